#!/usr/bin/env python3
"""Makes tiny random checkpoints and records what Hugging Face transformers computes with them.

Each folder holds config.json, model.safetensors and golden.json in the format of
testdata/models/README.md. Everything is computed in float32 with eager attention; bf16 weights are
widened first, which is exact. Versions and seed are recorded in each golden.

Usage: make_model_goldens.py OUT_FOLDER [NAME...]     (needs torch, transformers, safetensors)
"""
import copy
import json
import pathlib
import sys

import safetensors.torch
import torch
import transformers

from model_configs import CASES, VOCAB

PROMPT_TOKENS = 48
GREEDY_TOKENS = 32

# Stored in float32, as published.
FLOAT32 = {
    "transformers_lfm2_moe_bf16": ("expert_bias",),
    "transformers_deepseek_v3_bf16": ("correction_bias",),
    "transformers_glm4_moe_lite_bf16": ("correction_bias",),
    "transformers_glm4_moe_bf16": ("correction_bias",),
    "transformers_qwen3_5_wrapped_bf16": ("linear_attn.A_log", "linear_attn.norm.weight"),
    "transformers_qwen3_5_moe_wrapped_bf16": ("linear_attn.A_log", "linear_attn.norm.weight"),
}


def randomize(model, generator):
    """Weights large enough that logits spread (standard deviation about 2) and norms matter.

    States of linear attention forget at rates that differ: half is gone after 0.5 to 65 tokens.
    """
    hybrid = any(part in name for name, _ in model.named_parameters()
                 for part in ("linear_attn", ".conv.", ".mamba."))
    for name, tensor in model.named_parameters():
        with torch.no_grad():
            if name.endswith("A_log"):
                tensor.copy_(torch.log(0.5 + 7.5 * torch.rand(tensor.shape, generator=generator)))
            elif name.endswith("mamba.dt_bias"):
                tensor.copy_(-3.0 + 2.0 * torch.rand(tensor.shape, generator=generator))
            elif name.endswith("dt_bias"):
                tensor.copy_(-5.0 + 4.0 * torch.rand(tensor.shape, generator=generator))
            elif tensor.dim() == 1:
                tensor.add_(torch.randn(tensor.shape, generator=generator) * 0.2)
            elif name.endswith("_bias"):  # of stacked experts
                tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.2)
            else:
                tensor.copy_(torch.randn(tensor.shape, generator=generator) * tensor.shape[-1] ** -0.5)
            if name.endswith("experts.gate_up_proj") and not hybrid:
                tensor.mul_(4.0)  # so that some are clamped
            if name.endswith(("q_a_proj.weight", "kv_a_proj_with_mqa.weight")):
                tensor.mul_(4.0)  # so that it hardly matters which epsilon the latent's norm has
            if "embed_tokens" in name:
                tensor.mul_(2.0)
    for name, tensor in model.named_buffers():
        if name.endswith("layer_scalar"):
            tensor.copy_(0.75 + 0.5 * torch.rand(tensor.shape, generator=generator))
        elif name.endswith(("expert_bias", "correction_bias")):  # about as much as scores differ
            tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.2)


def wrap(folder, wrapper, model_type, renamed, more=None, text_fields=None, fields=None):
    """Turns a saved text model into the form of a published multimodal checkpoint.

    renamed(name): what the wrapper calls a tensor; more: what a vision tower would hold;
    text_fields, fields: what the published config also has, inside text_config and around it.
    """
    path = folder / "config.json"
    text = json.loads(path.read_text())
    if model_type == "gemma4":  # heads of full layers in fields of their own
        heads = text.pop("per_layer_config")[str(text["layer_types"].index("full_attention"))]
        text["global_head_dim"] = heads["head_dim"]
        text["num_global_key_value_heads"] = heads.get("num_key_value_heads")
    text.pop("architectures")
    text.update(text_fields or {})
    path.write_text(json.dumps({"architectures": [wrapper], "model_type": model_type,
                                "text_config": text, **(fields or {})}, indent=2) + "\n")
    path = folder / "model.safetensors"
    tensors = {renamed(name): tensor
               for name, tensor in safetensors.torch.load_file(path).items()}
    safetensors.torch.save_file({**tensors, **(more or {})}, path, metadata={"format": "pt"})


def ones(*shape):
    return torch.ones(shape, dtype=torch.bfloat16)


def wrap_qwen3_5(folder, wrapper, model_type, interval, more):
    """As published: tensors of the wrapper, experts in one tensor, a vision tower, one MTP layer."""
    text = json.loads((folder / "config.json").read_text())
    hidden, tied = text["hidden_size"], text["tie_word_embeddings"]
    tower = {"model.visual.patch_embed.proj.weight": ones(16, 3, 2, 2, 2),
             "model.visual.patch_embed.proj.bias": ones(16),
             "model.visual.pos_embed.weight": ones(16, 16),
             "model.visual.blocks.0.norm1.weight": ones(16),
             "model.visual.blocks.0.attn.qkv.weight": ones(48, 16),
             "model.visual.merger.linear_fc2.weight": ones(hidden, 64)}
    drafter = {"mtp.fc.weight": ones(hidden, 2 * hidden), "mtp.norm.weight": ones(hidden),
               "mtp.pre_fc_norm_embedding.weight": ones(hidden),
               "mtp.pre_fc_norm_hidden.weight": ones(hidden),
               "mtp.layers.0.input_layernorm.weight": ones(hidden),
               "mtp.layers.0.post_attention_layernorm.weight": ones(hidden)}
    wrap(folder, wrapper, model_type,
         lambda name: name.replace("model.", "model.language_model.", 1), {
             **tower, **drafter,
             **{"mtp.layers.0." + name: ones(*shape) for name, shape in more.items()}},
         {"attn_output_gate": True, "full_attention_interval": interval,
          "mamba_ssm_dtype": "float32", "mlp_only_layers": [], "mtp_num_hidden_layers": 1,
          "mtp_use_dedicated_embeddings": False},
         {"image_token_id": 248, "video_token_id": 249, "vision_start_token_id": 245,
          "vision_end_token_id": 246, "tie_word_embeddings": tied,
          "vision_config": {"depth": 1, "hidden_size": 16, "in_channels": 3,
                            "intermediate_size": 24, "model_type": model_type,
                            "num_heads": 2, "num_position_embeddings": 16,
                            "out_hidden_size": hidden, "patch_size": 2, "spatial_merge_size": 2,
                            "temporal_patch_size": 2}})
    path = folder / "model.safetensors"
    stored = safetensors.torch.load_file(path)
    for layer in range(text["num_hidden_layers"]):
        experts = f"model.language_model.layers.{layer}.mlp.experts."
        if experts + "0.gate_proj.weight" not in stored:
            continue
        of = lambda e, part: stored.pop(f"{experts}{e}.{part}_proj.weight")
        stored[experts + "gate_up_proj"] = torch.stack(
            [torch.cat([of(e, "gate"), of(e, "up")]) for e in range(text["num_experts"])])
        stored[experts + "down_proj"] = torch.stack(
            [of(e, "down") for e in range(text["num_experts"])])
    safetensors.torch.save_file(stored, path, metadata={"format": "pt"})


def publish_qwen3_next(folder):
    """Qwen3-Next came before transformers 5: other fields say where layers attend and turn."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    interval = config.pop("layer_types").index("full_attention") + 1
    config.update(full_attention_interval=interval, rope_theta=rope["rope_theta"],
                  partial_rotary_factor=rope["partial_rotary_factor"], rope_scaling=None)
    path.write_text(json.dumps(config, indent=2) + "\n")


def publish_with_rope_scaling(folder, **fields):
    """As transformers 4 wrote it; fields: what has another value there."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    rope = rope.get("full_attention", rope)
    if rope["rope_type"] == "longrope":  # the rest stands beside it
        rope = {key: rope[key] for key in ("rope_theta", "type", "long_factor", "short_factor")}
    config.update(rope_theta=rope.pop("rope_theta"),
                  rope_scaling=None if rope.get("rope_type") == "default" else rope, **fields)
    path.write_text(json.dumps(config, indent=2) + "\n")


def publish_granite_hybrid(folder):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    del config["time_step_limit"]
    path.write_text(json.dumps(config, indent=2) + "\n")
    words = {"linear_attention": "mamba", "full_attention": "attention"}
    publish_with_rope_scaling(folder, layer_types=[words[kind] for kind in config["layer_types"]],
                              init_method="mup", normalization_function="rmsnorm")


def publish_lfm2(folder):
    """In the words of its authors, which transformers still reads; embeddings are tied unsaid."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    hidden, norm_eps = config["hidden_size"], config["norm_eps"]
    kinds = config.pop("layer_types")
    config.pop("tie_word_embeddings")
    config.update(
        block_dim=hidden, block_ff_dim=config.pop("intermediate_size"), block_mlp_init_scale=1.0,
        block_norm_eps=norm_eps, block_out_init_scale=1.0, block_use_swiglu=True,
        block_use_xavier_init=True, conv_dim=hidden, conv_dim_out=hidden, conv_use_xavier_init=True,
        full_attn_idxs=[i for i, kind in enumerate(kinds) if kind == "full_attention"],
        num_heads=config["num_attention_heads"],
        rope_theta=config.pop("rope_parameters")["rope_theta"], use_pos_enc=True)
    path.write_text(json.dumps(config, indent=2) + "\n")


def publish_deepseek(folder, **fields):
    """As its authors wrote it: fields that only transformers has are gone, theirs are there."""
    publish_with_rope_scaling(folder, **fields)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    for name in ("mlp_bias", "mlp_layer_types", "output_router_logits", "qk_head_dim",
                 "rope_interleave", *(["head_dim"] if "kv_lora_rank" in config else [])):
        config.pop(name, None)
    if config["rope_scaling"]:
        config["rope_scaling"]["type"] = config["rope_scaling"].pop("rope_type")
    config["torch_dtype"] = config.pop("dtype")
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


DEEPSEEK = dict(aux_loss_alpha=0.001, moe_layer_freq=1, seq_aux=True)


def publish_glm(folder, **fields):
    path = folder / "config.json"
    rope = json.loads(path.read_text())["rope_parameters"]
    publish_deepseek(folder, partial_rotary_factor=rope.get("partial_rotary_factor", 1.0),
                     pad_token_id=253, **fields)
    config = json.loads(path.read_text())
    for name in ("bos_token_id", "pretraining_tp", *(["rope_scaling"] if not fields else [])):
        config.pop(name, None)
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def add_next_token_layer(folder, seed):
    """One more layer, as the last, and what surrounds it: random, and not read by transformers."""
    generator = torch.Generator().manual_seed(seed)
    path = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    layers = json.loads((folder / "config.json").read_text())["num_hidden_layers"]
    vocab, hidden = tensors["lm_head.weight"].shape
    last, new = (f"model.layers.{i}." for i in (layers - 1, layers))
    like = {name.removeprefix(last): tensor for name, tensor in tensors.items()
            if name.startswith(last)}
    surroundings = {"eh_proj.weight": (hidden, 2 * hidden), "embed_tokens.weight": (vocab, hidden),
                    "enorm.weight": (hidden,), "hnorm.weight": (hidden,),
                    "shared_head.head.weight": (vocab, hidden),
                    "shared_head.norm.weight": (hidden,)}
    like.update({name: ones(*shape) for name, shape in surroundings.items()})
    for name, tensor in sorted(like.items()):
        values = torch.randn(tensor.shape, generator=generator)
        if tensor.dim() == 1:
            values = (1.0 if name.endswith("norm.weight") else 0.0) + values * 0.2
        else:
            values = values * tensor.shape[-1] ** -0.5
        tensors[new + name] = values.to(tensor.dtype)
    safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})


def publish_glm_with_experts(folder, seed, **fields):
    publish_glm(folder, num_nextn_predict_layers=1, **fields)
    add_next_token_layer(folder, seed)


# Saved as published, most inside a multimodal wrapper.
WRAPPED = {
    "transformers_deepseek_v2_lite_bf16": lambda folder: publish_deepseek(
        folder, scoring_func="softmax", **DEEPSEEK),
    "transformers_deepseek_v2_bf16": lambda folder: publish_deepseek(
        folder, scoring_func="softmax", ep_size=1, **DEEPSEEK),
    "transformers_deepseek_v3_bf16": lambda folder: publish_deepseek(
        folder, scoring_func="sigmoid", topk_method="noaux_tc", ep_size=1,
        num_nextn_predict_layers=1, **DEEPSEEK),
    "transformers_glm4_moe_lite_bf16": lambda folder: publish_glm_with_experts(
        folder, 117, topk_method="noaux_tc", first_k_dense_replace=1),
    "transformers_glm4_bf16": publish_glm,
    "transformers_glm4_moe_bf16": lambda folder: publish_glm_with_experts(folder, 118),
    "transformers_granite_dense_bf16": lambda folder: publish_with_rope_scaling(
        folder, layer_types=["attention"] * 3),
    "transformers_olmo3_bf16": publish_with_rope_scaling,
    "transformers_phi4_mini_bf16": publish_with_rope_scaling,
    "transformers_gemma4_shared_bf16": lambda folder: wrap(
        folder, "Gemma4ForConditionalGeneration", "gemma4",
        lambda name: name.replace("model.", "model.language_model.", 1)),
    "transformers_mistral3_bf16": lambda folder: wrap(
        folder, "Mistral3ForConditionalGeneration", "mistral3", lambda name: "language_model." + name,
        {"vision_tower.patch_conv.weight": torch.ones(8, 3, 2, 2, dtype=torch.bfloat16),
         "multi_modal_projector.linear_1.weight": torch.ones(64, 8, dtype=torch.bfloat16)}),
    "transformers_qwen3_5_wrapped_bf16": lambda folder: wrap_qwen3_5(
        folder, "Qwen3_5ForConditionalGeneration", "qwen3_5", 3,
        {"self_attn.q_proj.weight": (128, 64), "self_attn.k_proj.weight": (32, 64),
         "self_attn.v_proj.weight": (32, 64), "self_attn.o_proj.weight": (64, 64),
         "self_attn.q_norm.weight": (32,), "self_attn.k_norm.weight": (32,),
         "mlp.gate_proj.weight": (64, 64), "mlp.up_proj.weight": (64, 64),
         "mlp.down_proj.weight": (64, 64)}),
    "transformers_qwen3_5_moe_wrapped_bf16": lambda folder: wrap_qwen3_5(
        folder, "Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe", 2,
        {"mlp.gate.weight": (4, 64), "mlp.shared_expert_gate.weight": (1, 64)}),
    "transformers_qwen3_next_bf16": publish_qwen3_next,
    "transformers_lfm2_bf16": publish_lfm2,
    "transformers_granite_hybrid_bf16": publish_granite_hybrid,
    "transformers_granite_hybrid_moe_bf16": publish_granite_hybrid,
}


FP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def microscale(model, generator):
    """Gives experts values that MXFP4 holds; returns the tensors of a published checkpoint.

    Codes are [experts, outputs, groups, 16] bytes of two, the first in the low half.
    """
    stored = {}
    for name, tensor in model.named_parameters():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            continue
        experts, inputs, outputs = tensor.shape
        shape = (experts, outputs, inputs // 32, 32)
        codes = torch.randint(0, 16, shape, generator=generator)
        scales = torch.randint(121, 125, shape[:3], generator=generator)
        values = torch.where(codes > 7, -1.0, 1.0) * FP4[codes % 8]
        values = values * torch.exp2(scales.float() - 127)[..., None]
        with torch.no_grad():
            tensor.copy_(values.reshape(experts, outputs, inputs).transpose(1, 2))
        stored[name + "_blocks"] = (codes[..., 0::2] + 16 * codes[..., 1::2]).to(torch.uint8)
        stored[name + "_scales"] = scales.to(torch.uint8)
    return stored


def store_microscaled(folder, stored):
    path = folder / "model.safetensors"
    tensors = {name: tensor for name, tensor in safetensors.torch.load_file(path).items()
               if name + "_blocks" not in stored}
    safetensors.torch.save_file({**tensors, **stored}, path, metadata={"format": "pt"})
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")  # as it was published
    config.update(rope_theta=rope.pop("rope_theta"), rope_scaling=rope, swiglu_limit=7.0,
                  experts_per_token=config["num_experts_per_tok"],
                  quantization_config={"quant_method": "mxfp4", "modules_to_not_convert": [
                      "model.layers.*.self_attn", "model.layers.*.mlp.router",
                      "model.embed_tokens", "lm_head"]})
    path.write_text(json.dumps(config, indent=2) + "\n")


def record(name, folder):
    make_config, model_class, stored, shard, seed = CASES[name]
    generator = torch.Generator().manual_seed(seed)
    config = make_config()
    config._attn_implementation = "eager"
    model = model_class(config).eval()
    randomize(model, generator)
    microscaled = microscale(model, generator) if name.endswith("_mxfp4") else {}
    wide = FLOAT32.get(name, ())
    # Only parameters are rounded: casting the whole module would round its rotary tables too.
    with torch.no_grad():
        for tensor in [*(p for n, p in model.named_parameters() if not n.endswith(wide)),
                       *(b for n, b in model.named_buffers() if n.endswith("layer_scalar"))]:
            tensor.copy_(tensor.to(stored).float())
    saved = copy.deepcopy(model).to(stored)
    for (n, tensor), exact in zip([*saved.named_parameters(), *saved.named_buffers()],
                                  [*model.parameters(), *model.buffers()]):
        if n.endswith(wide):
            tensor.data = exact.data.clone()
    saved.save_pretrained(
        folder, safe_serialization=True, **({"max_shard_size": shard} if shard else {}))
    (folder / "generation_config.json").unlink(missing_ok=True)
    if name in WRAPPED:
        WRAPPED[name](folder)
    if microscaled:
        store_microscaled(folder, microscaled)

    tokens = torch.randint(0, VOCAB, (PROMPT_TOKENS,), generator=generator).tolist()
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits[0]
        greedy, gaps = [], []
        row = logits[-1]
        for _ in range(GREEDY_TOKENS):
            top = torch.topk(row, 2)
            greedy.append(int(top.indices[0]))
            gaps.append(round(float(top.values[0] - top.values[1]), 5))
            row = model(torch.tensor([tokens + greedy])).logits[0, -1]
    golden = {
        "format": "kvasir-model-golden/1",
        "name": name,
        "source": f"transformers {transformers.__version__}, torch {torch.__version__} (CPU)",
        "compute": "float32, eager attention, whole sequence without a cache",
        "seed": seed,
        "tokens": tokens,
        "logits": {"dtype": "f32", "shape": list(logits.shape), "decimals": 5,
                   "data": [round(float(x), 5) for x in logits.flatten()]},
        "greedy": {"tokens": greedy, "top2_gap": gaps},
        "logits_after_greedy": [round(float(x), 5) for x in row],
        "tolerance": 1e-4,
        "logit_std": round(float(logits.std()), 3),
    }
    (folder / "golden.json").write_text(json.dumps(golden, separators=(",", ":")))
    print(f"{name}: std {golden['logit_std']}, smallest greedy gap {min(gaps)}")


def main():
    out = pathlib.Path(sys.argv[1])
    for name in sys.argv[2:] or CASES:
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        record(name, folder)


if __name__ == "__main__":
    main()
