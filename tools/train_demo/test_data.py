"""python -m unittest test_data: the promises of data.py that need no torch."""
import unittest

from tokenizers import Tokenizer

import data
from data import LONG_TASKS, Encoder, Gen, chat_text, item

TOKENIZER = "../../models/kvasir-demo/tokenizer.json"


class DataTest(unittest.TestCase):
    def setUp(self):
        self.tokenizer = Tokenizer.from_file(TOKENIZER)
        self.encoder = Encoder(self.tokenizer)

    def test_same_seed_same_chat(self):
        self.assertEqual(Gen("x").chat(700), Gen("x").chat(700))
        self.assertNotEqual(Gen("x").chat(700), Gen("y").chat(700))

    def test_pieces_encode_like_the_whole_text(self):
        for seed in range(30):
            turns = Gen(seed).chat(300)
            whole = self.tokenizer.encode("<bos>" + chat_text(turns), add_special_tokens=False).ids
            self.assertEqual(self.encoder.encode(turns)[0], whole)

    def test_rows_have_the_asked_length(self):
        for length in (256, 1024, 4096):
            tokens, answer = self.encoder.row(Gen(length), length)
            self.assertEqual((len(tokens), len(answer)), (length + 1, length + 1))

    def test_training_and_held_out_keys_are_disjoint(self):
        train, held = Gen(1), Gen(1, held_out=True)
        keys = [{g.unique(g.key) for _ in range(500)} for g in (train, held)]
        self.assertFalse(keys[0] & keys[1])

    def test_items_fit_their_length_and_their_answer_is_in_the_prompt(self):
        count = lambda text: len(self.tokenizer.encode(text, add_special_tokens=False).ids)
        for task in LONG_TASKS:
            for tokens in (512, 4096):
                for seed in range(5):
                    it = item(task, tokens, seed, count)
                    self.assertLessEqual(count(it["prompt"]) + count(it["answer"]) + 12, tokens + 20)
                    if task in ("passkey", "kv"):
                        self.assertIn(it["answer"], it["prompt"])


if __name__ == "__main__":
    unittest.main()
