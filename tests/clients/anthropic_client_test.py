#!/usr/bin/env python3
"""The official anthropic client against `kvasir serve`.

Usage: anthropic_client_test.py PROGRAM [TEST ...]
Deliberately about what the client makes of the answers, not about what the model says.
"""
import unittest

import served

try:
    import anthropic
except ImportError:
    anthropic = None

SYSTEM = "The pass key is 48213."
QUESTION = [{"role": "user", "content": "What is the pass key?"}]
GREEDY = {"temperature": 0}  # newer clients have no argument for it


class AnthropicTest(unittest.TestCase):
    def setUp(self):
        self.client = anthropic.Anthropic(base_url=unittest.address, api_key=served.API_KEY,
                                          max_retries=0, timeout=60)
        self.addCleanup(self.client.close)

    def ask(self, **options):
        return self.client.messages.create(model="any", system=SYSTEM, messages=QUESTION,
                                           max_tokens=20, extra_body=GREEDY, **options)

    def test_message(self):
        answer = self.ask()
        self.assertEqual((answer.type, answer.role), ("message", "assistant"))
        self.assertIn("48213", answer.content[0].text)
        self.assertIn(answer.stop_reason, ("end_turn", "max_tokens"))
        self.assertGreater(answer.usage.output_tokens, 0)

    def test_stream(self):
        whole = self.ask()
        with self.client.messages.stream(model="any", system=SYSTEM, messages=QUESTION,
                                         max_tokens=20, extra_body=GREEDY) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual(text, whole.content[0].text)
        self.assertEqual(final.content[0].text, text)
        self.assertEqual(final.stop_reason, whole.stop_reason)
        self.assertEqual(final.usage.output_tokens, whole.usage.output_tokens)

    def test_events_in_order(self):
        kinds = [event.type for event in self.ask(stream=True)]
        steps = [kind for i, kind in enumerate(kinds) if i == 0 or kind != kinds[i - 1]]
        self.assertEqual(steps, ["message_start", "content_block_start", "content_block_delta",
                                 "content_block_stop", "message_delta", "message_stop"])

    def test_stop_sequence(self):
        answer = self.ask(stop_sequences=["482"])
        self.assertEqual((answer.stop_reason, answer.stop_sequence), ("stop_sequence", "482"))
        self.assertNotIn("482", answer.content[0].text if answer.content else "")

    def test_count_tokens(self):
        counted = self.client.messages.count_tokens(model="any", system=SYSTEM, messages=QUESTION)
        usage = self.ask().usage
        self.assertEqual(counted.input_tokens,
                         usage.input_tokens + (usage.cache_read_input_tokens or 0))

    def test_models(self):
        model, = self.client.models.list()
        self.assertEqual(self.client.models.retrieve(model.id), model)
        self.assertEqual((model.type, model.display_name), ("model", model.id))

    def test_conversation(self):
        turn = self.ask()
        answer = self.client.messages.create(
            model="any", system=SYSTEM, max_tokens=5, extra_body=GREEDY,
            messages=QUESTION + [{"role": "assistant", "content": turn.content},
                                 {"role": "user", "content": [{"type": "text", "text": "And?"}]}])
        self.assertGreater(answer.usage.cache_read_input_tokens, 0)

    def test_tools(self):
        tool = {"name": "open_door", "description": "Opens the door.",
                "input_schema": {"type": "object", "required": ["key"],
                                 "properties": {"key": {"type": "integer"}},
                                 "additionalProperties": False}}
        ask = dict(model="any", messages=QUESTION, max_tokens=200, extra_body=GREEDY,
                   tools=[tool], tool_choice={"type": "any"})
        answer = self.client.messages.create(**ask)
        self.assertEqual(answer.stop_reason, "tool_use")
        call = next(block for block in answer.content if block.type == "tool_use")
        self.assertEqual(call.name, "open_door")
        self.assertIsInstance(call.input["key"], int)
        with self.client.messages.stream(**ask) as stream:
            streamed = stream.get_final_message()
        self.assertEqual([block.input for block in streamed.content if block.type == "tool_use"],
                         [block.input for block in answer.content if block.type == "tool_use"])
        turns = QUESTION + [
            {"role": "assistant", "content": [block.model_dump() for block in answer.content]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": block.id,
                                          "content": "open"}
                                         for block in answer.content if block.type == "tool_use"]}]
        after = self.client.messages.create(model="any", messages=turns, max_tokens=4,
                                            tools=[tool])
        self.assertEqual(after.role, "assistant")

    def test_errors(self):
        with self.assertRaises(anthropic.BadRequestError) as caught:
            self.client.messages.create(model="any", max_tokens=5, messages=[])
        self.assertEqual(caught.exception.body["error"]["type"], "invalid_request_error")
        with self.assertRaises(anthropic.AuthenticationError):
            self.client.with_options(api_key="another").messages.create(
                model="any", max_tokens=5, messages=QUESTION)

    def test_leaving_a_stream_ends_the_answer(self):
        with self.client.messages.stream(model="any", messages=QUESTION, max_tokens=3000,
                                         extra_body={"ignore_eos": True}) as stream:
            next(iter(stream))
        self.assertTrue(self.ask().content)


if __name__ == "__main__":
    served.main("anthropic")
