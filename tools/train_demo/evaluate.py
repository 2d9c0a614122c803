"""Measures a model on held-out items by greedy decoding and exact match; prints a table, writes JSON.

python evaluate.py --model ../../models/kvasir-demo [--items 50] [--json figures.json]
python evaluate.py --state run-main/state.pt --preset cpu-small --tokenizer ...   (a training checkpoint, EMA weights)
"""
import argparse
import json
import pathlib
import time

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from data import LONG_TASKS, SHORT_TASKS, Encoder, a, item
from model import Config, Gemma3
from words import OBJECTS

LENGTHS = (512, 1024, 2048, 4096)


def load_folder(folder):
    folder = pathlib.Path(folder)
    c = json.loads((folder / "config.json").read_text())
    model = Gemma3(Config(
        vocab_size=c["vocab_size"], hidden=c["hidden_size"], mlp=c["intermediate_size"], layers=c["num_hidden_layers"],
        heads=c["num_attention_heads"], kv_heads=c["num_key_value_heads"], head_dim=c["head_dim"],
        window=c["sliding_window"], pattern=c["sliding_window_pattern"], rope_theta=c["rope_theta"],
        rope_local=c["rope_local_base_freq"], max_positions=c["max_position_embeddings"]))
    model.load_state_dict({k: v.float() for k, v in load_file(folder / "model.safetensors").items()})
    return model, Tokenizer.from_file(str(folder / "tokenizer.json"))


def load_state(path, preset, tokenizer):
    from train import PRESETS
    model = Gemma3(PRESETS[preset]["config"])
    state = torch.load(path, map_location="cpu")
    model.load_state_dict({n: p.to(torch.bfloat16).float() for n, p in state["ema"].items()})
    print("checkpoint of step", state["step"])
    return model, Tokenizer.from_file(tokenizer)


@torch.no_grad()
def generate(model, encoder, prompt, limit=100):
    """Greedy answer to one user message."""
    tokens, _ = encoder.encode([(prompt, "")])
    tokens = tokens[:-1 - len(encoder.newline)]  # without <end_of_turn>\n of the empty answer
    device = next(model.parameters()).device
    caches = [{} for _ in range(model.c.layers)]
    fed, out = torch.tensor([tokens], device=device), []
    while len(out) < limit:
        states = model.hidden_states(fed, caches)
        token = int(model.logits(states[0, -1]).argmax())
        if token in (encoder.end, 1):
            break
        out.append(token)
        fed = torch.tensor([[token]], device=device)
    return encoder.tokenizer.decode(out), len(tokens)


def evaluate(model, tokenizer, items, lengths, tasks, show=0):
    encoder, table = Encoder(tokenizer), []
    for task in tasks:
        for length in (lengths if task in LONG_TASKS else (0,)):
            right, prompt_tokens = 0, 0
            for seed in range(items):
                it = item(task, length, seed, lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids))
                limit = 2 * len(tokenizer.encode(it["answer"]).ids) + 10
                got, n = generate(model, encoder, it["prompt"], limit)
                right += got == it["answer"]
                prompt_tokens += n
                if seed < show:
                    print(repr(it["prompt"][-80:]), "->", repr(got), "want", repr(it["answer"]), flush=True)
            table.append({"task": task, "tokens": length, "items": items, "right": right,
                          "accuracy": right / items, "mean_prompt_tokens": prompt_tokens / items})
            row = table[-1]
            print(f"{task:12} {length or 'natural':>8} {row['accuracy']:7.1%}  ({right}/{items}, "
                  f"mean prompt {row['mean_prompt_tokens']:.0f} tokens)", flush=True)
    return table


@torch.no_grad()
def agreement(model, draft, tokenizer, items):
    """How often the draft's argmax is the model's next greedy token, per task."""
    encoder, table = Encoder(tokenizer), []
    plan = [("passkey", 1024), ("kv", 1024), ("said", 1024), ("json", 1024), ("copy", 0), ("count", 0), ("instruction", 0), ("story", 0)]
    for task, length in plan:
        same = total = 0
        for seed in range(items):
            prompt = f"Write a short story about {a(OBJECTS[seed])}." if task == "story" else item(task, length, seed)["prompt"]
            text, _ = generate(model, encoder, prompt)
            tokens, answer = encoder.encode([(prompt, text)])
            guess = draft(torch.tensor([tokens]))[0, :-1].argmax(-1).tolist()
            hits = [g == t for g, t, f in zip(guess, tokens[1:], answer[1:]) if f]
            same, total = same + sum(hits), total + len(hits)
        table.append({"task": task, "tokens": length, "items": items, "answer_tokens": total, "agreement": same / total})
        print(f"agreement {task:12} {length or 'natural':>8} {same / total:7.1%} of {total} answer tokens", flush=True)
    return table


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model")
    parser.add_argument("--draft", help="folder of a draft model: print how often it agrees with --model instead")
    parser.add_argument("--state")
    parser.add_argument("--preset", default="cpu-small")
    parser.add_argument("--tokenizer")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--items", type=int, default=50)
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)))
    parser.add_argument("--tasks", default=",".join(LONG_TASKS + SHORT_TASKS))
    parser.add_argument("--show", type=int, default=0, help="print this many answers per row")
    parser.add_argument("--ask", action="append", default=[], help="only answer these prompts")
    parser.add_argument("--json")
    args = parser.parse_args()
    model, tokenizer = load_folder(args.model) if args.model else load_state(args.state, args.preset, args.tokenizer)
    model = model.to(args.device).eval()
    if args.draft:
        table = agreement(model, load_folder(args.draft)[0].eval(), tokenizer, args.items)
        if args.json:
            pathlib.Path(args.json).write_text(json.dumps({"format": "kvasir-demo-agreement/1", "table": table}, indent=1) + "\n")
        return
    for prompt in args.ask:
        print(repr(prompt), "->", repr(generate(model, Encoder(tokenizer), prompt, 120)[0]))
    if args.ask:
        return
    began = time.time()
    table = evaluate(model, tokenizer, args.items, [int(x) for x in args.lengths.split(",")], args.tasks.split(","), args.show)
    print(f"{time.time() - began:.0f} s")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"format": "kvasir-demo-figures/1", "decoding": "greedy, float32", "table": table}, indent=1) + "\n")


if __name__ == "__main__":
    main()
