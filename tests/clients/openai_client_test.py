#!/usr/bin/env python3
"""The official openai client against `kvasir serve`. Usage: openai_client_test.py PROGRAM [TEST ...]

Deliberately about what the client makes of the answers, not about what the model says.
"""
import json
import unittest

import served

try:
    import openai
    import pydantic
except ImportError:
    openai = None

QUESTION = [{"role": "system", "content": "The pass key is 48213."},
            {"role": "user", "content": "What is the pass key?"}]


class OpenAiTest(unittest.TestCase):
    def setUp(self):
        self.client = openai.OpenAI(base_url=unittest.address + "/v1", api_key=served.API_KEY,
                                    max_retries=0, timeout=60)
        self.addCleanup(self.client.close)
        self.model = self.client.models.list().data[0].id

    def chat(self, **options):
        return self.client.chat.completions.create(
            model=self.model, messages=QUESTION, temperature=0, **options)

    def test_models(self):
        self.assertEqual(self.client.models.retrieve(self.model).id, self.model)
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("gpt-none")

    def test_chat(self):
        answer = self.chat(max_completion_tokens=20)
        self.assertEqual(answer.object, "chat.completion")
        choice = answer.choices[0]
        self.assertEqual(choice.message.role, "assistant")
        self.assertIn("48213", choice.message.content)
        self.assertIn(choice.finish_reason, ("stop", "length"))
        usage = answer.usage
        self.assertEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
        again = self.chat(max_completion_tokens=20)
        self.assertEqual(again.choices[0].message.content, choice.message.content)
        self.assertEqual(again.usage.prompt_tokens_details.cached_tokens, usage.prompt_tokens - 1)

    def test_chat_streamed(self):
        whole = self.chat(max_tokens=20, logprobs=True, top_logprobs=2)
        text, tokens, finish, usage = "", [], None, None
        for chunk in self.chat(max_tokens=20, logprobs=True, top_logprobs=2, stream=True,
                               stream_options={"include_usage": True}):
            if chunk.usage:
                usage = chunk.usage
                self.assertEqual(chunk.choices, [])
                continue
            choice = chunk.choices[0]
            text += choice.delta.content or ""
            if choice.logprobs:
                tokens += choice.logprobs.content
            finish = choice.finish_reason or finish
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(tokens, whole.choices[0].logprobs.content)
        self.assertEqual(finish, whole.choices[0].finish_reason)
        self.assertEqual(usage.completion_tokens, whole.usage.completion_tokens)

    def test_chat_stream_helper(self):
        with self.client.chat.completions.stream(model=self.model, messages=QUESTION, temperature=0,
                                                 max_tokens=20) as stream:
            kinds = {event.type for event in stream}
            final = stream.get_final_completion()
        self.assertIn("content.delta", kinds)
        self.assertEqual(final.choices[0].message.content,
                         self.chat(max_tokens=20).choices[0].message.content)

    def test_choices_and_seed(self):
        def ask(seed, count):
            return [choice.message.content for choice in self.client.chat.completions.create(
                model=self.model, messages=QUESTION, temperature=1.5, max_tokens=12, seed=seed,
                n=count).choices]
        three = ask(5, 3)
        self.assertEqual(len(three), 3)
        self.assertEqual(three[1], ask(6, 1)[0])

    def test_structured_output(self):
        class PassKey(pydantic.BaseModel):
            pass_key: int
            is_certain: bool
        answer = self.client.chat.completions.parse(
            model=self.model, messages=QUESTION, temperature=0, max_tokens=200,
            response_format=PassKey)
        self.assertIsInstance(answer.choices[0].message.parsed, PassKey)

    def test_json_object(self):
        answer = self.chat(max_tokens=200, response_format={"type": "json_object"})
        if answer.choices[0].finish_reason == "stop":
            self.assertIsInstance(json.loads(answer.choices[0].message.content), dict)

    def test_tools(self):
        tool = {"type": "function", "function": {
            "name": "open_door", "description": "Opens the door.",
            "parameters": {"type": "object", "required": ["key", "slowly"],
                           "additionalProperties": False,
                           "properties": {"key": {"type": "integer"},
                                          "slowly": {"type": "boolean"}}}}}
        for choice in ("required", {"type": "function", "function": {"name": "open_door"}}):
            ask = dict(tools=[tool], tool_choice=choice, max_tokens=200,
                       parallel_tool_calls=False)
            answer = self.chat(**ask).choices[0]
            self.assertEqual(answer.finish_reason, "tool_calls")
            call = answer.message.tool_calls[0]
            self.assertEqual(call.function.name, "open_door")
            arguments = json.loads(call.function.arguments)
            self.assertIsInstance(arguments["key"], int)
            self.assertIsInstance(arguments["slowly"], bool)
            with self.client.chat.completions.stream(model=self.model, messages=QUESTION,
                                                     temperature=0, **ask) as stream:
                for _ in stream:
                    pass
                streamed = stream.get_final_completion().choices[0]
            self.assertEqual(streamed.finish_reason, "tool_calls")
            self.assertEqual(streamed.message.tool_calls[0].function.arguments,
                             call.function.arguments)
            turns = QUESTION + [answer.message.model_dump(exclude_none=True),
                                {"role": "tool", "tool_call_id": call.id, "content": "open"}]
            after = self.client.chat.completions.create(model=self.model, messages=turns,
                                                        tools=[tool], max_tokens=4)
            self.assertEqual(len(after.choices), 1)

    def test_completions(self):
        answer = self.client.completions.create(model=self.model, prompt="Once upon a time",
                                                max_tokens=8, temperature=0, logprobs=2,
                                                extra_body={"ignore_eos": True})
        choice = answer.choices[0]
        self.assertEqual(len(choice.logprobs.tokens), answer.usage.completion_tokens)
        streamed = self.client.completions.create(model=self.model, prompt="Once upon a time",
                                                  max_tokens=8, temperature=0, stream=True,
                                                  extra_body={"ignore_eos": True})
        self.assertEqual("".join(chunk.choices[0].text for chunk in streamed), choice.text)
        echoed = self.client.completions.create(
            model=self.model, prompt=["Once", "upon"], max_tokens=2, echo=True)
        self.assertEqual([c.text[:4] for c in echoed.choices], ["Once", "upon"])

    def test_responses(self):
        answer = self.client.responses.create(
            model=self.model, instructions=QUESTION[0]["content"], input=QUESTION[1]["content"],
            temperature=0, max_output_tokens=20)
        self.assertIn("48213", answer.output_text)
        self.assertEqual(answer.usage.total_tokens,
                         answer.usage.input_tokens + answer.usage.output_tokens)
        counted = self.client.responses.input_tokens.count(
            model=self.model, instructions=QUESTION[0]["content"], input=QUESTION[1]["content"])
        self.assertEqual(counted.input_tokens, answer.usage.input_tokens)
        with self.client.responses.stream(
                model=self.model, instructions=QUESTION[0]["content"],
                input=QUESTION[1]["content"], temperature=0, max_output_tokens=20) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_response()
        self.assertEqual(kinds[0], "response.created")
        self.assertIn(kinds[-1], ("response.completed", "response.incomplete"))
        self.assertEqual(final.output_text, answer.output_text)

    def test_embeddings(self):
        texts = ["The pass key is 48213.", "Once upon a time"]
        # Unless told otherwise, the client asks for base64 and decodes it.
        packed = self.client.embeddings.create(model=self.model, input=texts)
        plain = self.client.embeddings.create(model=self.model, input=texts,
                                              encoding_format="float")
        self.assertEqual([entry.index for entry in packed.data], [0, 1])
        self.assertEqual([entry.embedding for entry in packed.data],
                         [entry.embedding for entry in plain.data])
        alone = self.client.embeddings.create(model=self.model, input=texts[1])
        self.assertEqual(alone.data[0].embedding, packed.data[1].embedding)
        self.assertGreater(packed.usage.prompt_tokens, alone.usage.prompt_tokens)

    def test_errors(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(max_tokens=4, top_logprobs=99, logprobs=True)
        self.assertEqual(caught.exception.param, "top_logprobs")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.completions.create(model=self.model, prompt="a b " * 9000, max_tokens=1)
        self.assertEqual(caught.exception.code, "context_length_exceeded")
        with self.assertRaises(openai.AuthenticationError):
            self.client.with_options(api_key="another").models.list()
        with self.assertRaises(openai.NotFoundError):
            self.client.post("/none", cast_to=object, body={})

    def test_leaving_a_stream_ends_the_answer(self):
        stream = self.chat(max_tokens=3000, stream=True, extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        # It comes after the one that was left, or beside it; either way it comes.
        self.assertTrue(self.chat(max_tokens=4).choices[0].message.content)


if __name__ == "__main__":
    served.main("openai")
