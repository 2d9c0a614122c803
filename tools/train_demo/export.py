"""Writes a training checkpoint as a Hugging Face folder (bf16 safetensors), checks it against transformers, records a golden.

python export.py --state run-main/state.pt --preset cpu-small --tokenizer tokenizer.json --out ../../models/kvasir-demo
"""
import argparse
import json
import pathlib
import platform

import safetensors
import tokenizers
import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer

import tokenizer as tokenizer_files
from data import Encoder, Gen, item
from evaluate import load_folder
from model import Gemma3
from train import PRESETS


def hf_config(c):
    return {
        "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "attention_bias": False, "attention_dropout": 0.0,
        "attn_logit_softcapping": None, "final_logit_softcapping": None, "bos_token_id": 2, "eos_token_id": [1, 5],
        "pad_token_id": 0, "cache_implementation": "hybrid", "head_dim": c.head_dim, "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size": c.hidden, "initializer_range": 0.02, "intermediate_size": c.mlp,
        "layer_types": ["full_attention" if c.is_full(i) else "sliding_attention" for i in range(c.layers)],
        "max_position_embeddings": c.max_positions, "num_attention_heads": c.heads, "num_hidden_layers": c.layers,
        "num_key_value_heads": c.kv_heads, "query_pre_attn_scalar": c.head_dim, "rms_norm_eps": c.eps,
        "rope_local_base_freq": c.rope_local, "rope_scaling": None, "rope_theta": c.rope_theta, "sliding_window": c.window,
        "sliding_window_pattern": c.pattern, "tie_word_embeddings": True, "torch_dtype": "bfloat16", "use_cache": True,
        "vocab_size": c.vocab_size}


def transformers_model(folder, c):
    model = transformers.Gemma3ForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    # Gemma rounds sqrt(hidden) to bfloat16; in float32 transformers would not (no difference for hidden 256).
    model.model.embed_tokens.embed_scale.fill_(c.embed_scale())
    return model


@torch.no_grad()
def golden(folder, c, name):
    """A 560-token look-up prompt (longer than the window), float32 logits at a few positions, then 32 greedy tokens."""
    tok = Tokenizer.from_file(str(folder / "tokenizer.json"))
    encoder, g = Encoder(tok), Gen("golden")
    lines, questions = g.key_values(44)
    prompt = "Remember these entries:\n" + "\n".join(lines)
    tokens, _ = encoder.encode([(prompt, "OK."), questions[3], questions[17], ("Write a short story about a lamp.", "")])
    tokens = tokens[:-1 - len(encoder.newline)]
    hf, own = transformers_model(folder, c), load_folder(folder)[0].eval()
    reference = hf(torch.tensor([tokens])).logits[0]
    difference = float((reference - own(torch.tensor([tokens]))[0]).abs().max())
    positions = [0, 63, 64, 256, 257, len(tokens) - 1]
    positions = sorted({p for p in positions if p < len(tokens)})
    ids, made, gaps, cache = list(tokens), [], [], None
    for _ in range(32):
        out = hf(torch.tensor([ids]), use_cache=False)
        last = out.logits[0, -1]
        top = last.topk(2).values
        made.append(int(last.argmax()))
        gaps.append(round(float(top[0] - top[1]), 5))
        ids.append(made[-1])
    after = hf(torch.tensor([ids]), use_cache=False).logits[0, -1]
    text = tok.decode(made, skip_special_tokens=False)
    record = {
        "format": "kvasir-model-golden/1", "name": name,
        "source": f"transformers {transformers.__version__} Gemma3ForCausalLM (eager), torch {torch.__version__}, CPU {platform.machine()}",
        "compute": "float32, bf16 weights widened; sqrt(hidden) rounded to bf16 as Gemma does",
        "tokens": tokens, "logit_positions": positions,
        "logits": {"dtype": "f32", "shape": [len(positions), c.vocab_size], "decimals": 4,
                   "data": [round(float(x), 4) for p in positions for x in reference[p]]},
        "greedy": {"tokens": made, "top2_gap": gaps, "text": text},
        "logits_after_greedy": [round(float(x), 4) for x in after],
        "argmax": [int(x) for x in reference.argmax(-1)],
        "tolerance": 1e-4, "max_diff_to_own_torch_module": difference}
    (folder / "golden.json").write_text(json.dumps(record, separators=(",", ":")) + "\n")
    print("largest difference between transformers and model.py:", difference)
    print("greedy:", repr(text))
    assert difference < 1e-3


def check_chat_template(folder):
    """The template must give the very tokens the model was trained on."""
    hf = transformers.AutoTokenizer.from_pretrained(folder)
    turns = [("You are a helpful assistant.\n\nHello", "Hello! How can I help you?"), ("Spell boat.", "b-o-a-t")]
    messages = [{"role": "system", "content": "You are a helpful assistant."}, {"role": "user", "content": "Hello"},
                {"role": "assistant", "content": turns[0][1]}, {"role": "user", "content": turns[1][0]},
                {"role": "assistant", "content": turns[1][1]}]
    text = hf.apply_chat_template(messages, tokenize=False)
    tok = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert tok.encode(text, add_special_tokens=False).ids == Encoder(tok).encode(turns)[0], text
    assert hf(text, add_special_tokens=False)["input_ids"] == Encoder(tok).encode(turns)[0]


def write_items(path, tok):
    """Held-out items for engines other than this one."""
    count = lambda text: len(tok.encode(text, add_special_tokens=False).ids)
    plan = [("passkey", 512, 6), ("kv", 512, 6), ("passkey", 2048, 6), ("kv", 2048, 6), ("passkey", 4096, 3), ("kv", 4096, 3),
            ("said", 1024, 5), ("facts", 1024, 5), ("json", 1024, 5), ("copy", 0, 5), ("count", 0, 5), ("instruction", 0, 9)]
    with open(path, "w") as f:
        for task, length, n in plan:
            for seed in range(n):
                it = item(task, length, 1000 + seed, count)
                it["tokens_approx"] = count(it["prompt"]) + 10
                f.write(json.dumps(it) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--state", required=True)
    parser.add_argument("--preset", choices=PRESETS, default="cpu-small")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--items", help="also write held-out items (JSONL) here")
    args = parser.parse_args()
    c, out = PRESETS[args.preset]["config"], pathlib.Path(args.out)
    state = torch.load(args.state, map_location="cpu")
    print("checkpoint of step", state["step"])
    tok = Tokenizer.from_file(args.tokenizer)
    tokenizer_files.write(tok, out)
    Gemma3(c).load_state_dict(state["ema"])  # names and shapes
    save_file({n: p.to(torch.bfloat16).contiguous() for n, p in state["ema"].items()}, out / "model.safetensors", {"format": "pt"})
    (out / "config.json").write_text(json.dumps(hf_config(c), indent=2) + "\n")
    (out / "generation_config.json").write_text(json.dumps(
        {"bos_token_id": 2, "eos_token_id": [1, 5], "pad_token_id": 0, "do_sample": True, "temperature": 0.7, "top_k": 40, "top_p": 0.9,
         "cache_implementation": "hybrid"}, indent=2) + "\n")
    golden(out, c, out.name)
    check_chat_template(out)
    if args.items:
        write_items(args.items, tok)


if __name__ == "__main__":
    main()
