#!/usr/bin/env python3
"""Makes tiny random Gemma 4 assistants and records what transformers drafts with them.

Each folder of testdata/assistants holds config.json, model.safetensors and golden.json
("kvasir-assistant-golden/1"); the target is a checkpoint of testdata/models. Everything is computed
in float32 with eager attention; bf16 weights are widened first, which is exact.

A chain is drafted greedily by Gemma4AssistantForCausalLM from what the target left: its hidden
state behind the final norm at the last token it has read, its last sliding layer's last W - 1 keys
and values, its last full layer's all. Recorded twice: with the position id of the token that is
drafted from ("next", as transformers has it), and with that of the last token read ("read").

How much of the window transformers itself shows depends on the step before: W + 1 keys after a
prompt read at once, W after a step of one token, rejected ones too after a step of several. W - 1 is
what the target's own query at that position would see beside itself, and what every cache holds.

transformers 5.23.0 refuses to build a decoder whose layers all reuse keys and values, and lets targets
that share none hand nothing over; `sharing_modes` below says instead what its comments say.

Usage: make_assistant_goldens.py REPOSITORY [NAME...]   (needs torch, transformers, safetensors)
"""
import copy
import json
import pathlib
import sys

import safetensors.torch
import torch
import transformers

PROMPT_TOKENS = 48
DRAFTS = 5
LATER = 24  # greedy tokens of the target before the second recording


def sharing_modes(config):
    owners = config.num_hidden_layers - config.num_kv_shared_layers
    modes = [None] * owners + ["reuse"] * config.num_kv_shared_layers
    for kind in set(config.layer_types[:owners]):
        modes[max(i for i in range(owners) if config.layer_types[i] == kind)] = "store"
    return modes


transformers.Gemma4TextConfig.kv_sharing_modes = property(sharing_modes)


def text(**own):
    return {**dict(
        model_type="gemma4_text", vocab_size=256, vocab_size_per_layer_input=0, hidden_size=32,
        intermediate_size=64, num_hidden_layers=4, num_kv_shared_layers=4,
        layer_types=["sliding_attention"] * 3 + ["full_attention"], num_attention_heads=4,
        num_key_value_heads=1, head_dim=16, global_head_dim=32, max_position_embeddings=4096,
        sliding_window=12, hidden_size_per_layer_input=0, use_double_wide_mlp=False,
        enable_moe_block=False), **own}


CASES = {
    # name: (target, assistant config, seed)
    "gemma4_shared_ordered": ("transformers_gemma4_shared_bf16", dict(
        text_config=text(), backbone_hidden_size=48, use_ordered_embeddings=True,
        num_centroids=16, centroid_intermediate_top_k=3), 31),
    "gemma4_one_projection_plain": ("transformers_gemma4_one_projection_bf16", dict(
        text_config=text(num_key_value_heads=2, num_global_key_value_heads=1,
                         attention_k_eq_v=True),
        backbone_hidden_size=48), 32),
}


def load_target(folder):
    config = json.loads((folder / "config.json").read_text())
    config = transformers.Gemma4TextConfig(**config.get("text_config", config))
    config._attn_implementation = "eager"
    model = transformers.Gemma4ForCausalLM(config).eval().float()
    tensors = {name.replace("model.language_model.", "model."): tensor.float()
               for name, tensor in safetensors.torch.load_file(folder / "model.safetensors").items()}
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert set(missing) <= {"lm_head.weight"} and not unexpected, (missing, unexpected)
    model.tie_weights()
    return model


def make_assistant(own, folder, seed):
    generator = torch.Generator().manual_seed(seed)
    config = transformers.Gemma4AssistantConfig(**own)
    config._attn_implementation = "eager"
    config.text_config._attn_implementation = "eager"
    model = transformers.Gemma4AssistantForCausalLM(config).eval().float()
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if tensor.dim() == 1:
                tensor.add_(torch.randn(tensor.shape, generator=generator) * 0.2)
            else:
                tensor.copy_(torch.randn(tensor.shape, generator=generator) * tensor.shape[-1] ** -0.5)
            if "embed_tokens" in name:
                tensor.mul_(2.0)
            tensor.copy_(tensor.bfloat16().float())
        for name, tensor in model.named_buffers():
            if name.endswith("layer_scalar"):
                tensor.copy_((0.75 + 0.5 * torch.rand(tensor.shape, generator=generator))
                             .bfloat16().float())
            if name.endswith("token_ordering"):
                tensor.copy_(torch.randperm(tensor.numel(), generator=generator))
    stored = copy.deepcopy(model)
    for tensor in [*stored.parameters(), *(b for n, b in stored.named_buffers()
                                           if n.endswith("layer_scalar"))]:
        tensor.data = tensor.data.bfloat16()
    stored.save_pretrained(folder, safe_serialization=True)
    (folder / "generation_config.json").unlink(missing_ok=True)
    return model


def draft(target, assistant, tokens, position, window):
    """Tokens and logits of a chain; the last of `tokens` is the one that was not read."""
    with torch.no_grad():
        out = target(torch.tensor([tokens[:-1]]), output_hidden_states=True,
                     return_shared_kv_states=True, use_cache=False)
        kv = dict(out.shared_kv_states)
        kv["sliding_attention"] = tuple(x[:, :, -window:] for x in kv["sliding_attention"])
        hidden = out.hidden_states[-1][:, -1:]
        token = torch.tensor([[tokens[-1]]])
        drafted, logits = [], []
        for _ in range(DRAFTS):
            embedding = target.get_input_embeddings()(token)
            step = assistant(inputs_embeds=torch.cat([embedding, hidden], dim=-1),
                             position_ids=torch.tensor([[position]]), shared_kv_states=kv)
            token, hidden = step.logits.argmax(-1), step.last_hidden_state
            drafted.append(int(token))
            logits.append(step.logits[0, 0])
    return drafted, torch.stack(logits)


def chain(target, assistant, tokens):
    window = target.config.sliding_window
    size = len(tokens)
    record = {"tokens": list(tokens)}
    for name, position in (("next", size - 1), ("read", size - 2)):
        drafted, logits = draft(target, assistant, tokens, position, window - 1)
        top = torch.topk(logits, 2).values
        record[name] = {"position": position, "drafts": drafted,
                        "top2_gap": [round(float(a - b), 5) for a, b in top],
                        "logits": [round(float(x), 5) for x in logits.flatten()]}
    # What transformers shows of a prompt read at once, for the record.
    whole = draft(target, assistant, tokens, size - 1, size)[1]
    for width in (window - 1, window, window + 1):
        other = draft(target, assistant, tokens, size - 1, width)[1]
        print(f"  {size} tokens, {width} keys: differs by {float((whole - other).abs().max()):.2e}")
    return record


def record(name, root):
    target_name, own, seed = CASES[name]
    folder = root / "testdata" / "assistants" / name
    folder.mkdir(parents=True, exist_ok=True)
    target = load_target(root / "testdata" / "models" / target_name)
    assistant = make_assistant(own, folder, seed)
    generator = torch.Generator().manual_seed(seed + 100)
    tokens = torch.randint(0, 256, (PROMPT_TOKENS,), generator=generator).tolist()
    chains = [chain(target, assistant, tokens[:6]), chain(target, assistant, tokens)]
    with torch.no_grad():
        for _ in range(LATER):
            tokens.append(int(target(torch.tensor([tokens])).logits[0, -1].argmax()))
    chains.append(chain(target, assistant, tokens))
    gaps = [gap for c in chains for kind in ("next", "read") for gap in c[kind]["top2_gap"]]
    golden = {"format": "kvasir-assistant-golden/1", "name": name, "target": target_name,
              "source": f"transformers {transformers.__version__}, torch {torch.__version__} (CPU)",
              "compute": "float32, eager attention", "seed": seed, "tolerance": 1e-4,
              "is_ordered": bool(own.get("use_ordered_embeddings")), "chains": chains}
    (folder / "golden.json").write_text(json.dumps(golden, separators=(",", ":")))
    print(f"{name}: smallest gap {min(gaps)}")


def main():
    root = pathlib.Path(sys.argv[1])
    for name in sys.argv[2:] or CASES:
        record(name, root)


if __name__ == "__main__":
    main()
