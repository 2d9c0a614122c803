#!/usr/bin/env python3
"""Writes GGUF goldens with the reference Python package `gguf`.

  blocks OUT.safetensors   for every block type TYPE.raw (u8) and TYPE.decoded (f32): random blocks
                           with ordinary scales, decoded by gguf.quants.
  model SOURCE OUT.gguf    a tiny llama, ministral3, smollm3, granite (also with Mamba layers),
                           olmo2, olmo3, phi3, lfm2 (also with experts), qwen2, qwen3 (also with
                           experts), qwen3.5, qwen3-next, gpt-oss (of MXFP4), deepseek-v2,
                           deepseek-v3, glm4 (also with experts), gemma3 or gemma4
                           checkpoint folder, converted by the rules of convert_hf_to_gguf.py: rows
                           of llama's queries and keys interleaved, rope_freqs, norms of Gemma 3
                           and of models with delta nets plus one, value heads of Qwen3.5 in
                           rounds, experts stacked. Matrices keep their type, or become --q8.
                           With --nvfp4 those of 64 columns are random blocks of it, with a scale
                           of their own, as of converted ModelOpt checkpoints. With --fused the
                           projections of queries, keys and values are one tensor. With --old
                           keys and values of a latent are, and less is said of a DeepSeek-V2.
  vocabulary OUT.gguf      a tokenizer of single bytes and one block of every type: where fuzzing starts.
  config OUT.gguf          the metadata of a gemma4 with experts and hardly any tensors: likewise.
  split IN.gguf PARTS      cuts a file into PARTS, beside it.

Needs gguf, numpy, safetensors. The seed is fixed.
"""
import json
import math
import pathlib
import re
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Q

SEED = 21
# Type: (bytes of a block's f16 fields, number of blocks).
BLOCKS = {
    Q.Q8_0: [0], Q.Q4_0: [0], Q.Q4_1: [0, 2], Q.Q5_0: [0], Q.Q5_1: [0, 2], Q.Q2_K: [80, 82],
    Q.Q3_K: [108], Q.Q4_K: [0, 2], Q.Q5_K: [0, 2], Q.Q6_K: [208], Q.IQ4_NL: [0], Q.IQ4_XS: [0],
    Q.MXFP4: [], Q.NVFP4: [], Q.TQ1_0: [52], Q.TQ2_0: [64],
}


def record_blocks(path):
    from safetensors.numpy import save_file
    rng = np.random.default_rng(SEED)
    out = {}
    for kind, halves in BLOCKS.items():
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        count = 1024 // elements
        raw = rng.integers(0, 256, size=(2, count, size), dtype=np.uint8)
        for at in halves:
            scale = (rng.normal(size=(2, count)) * 0.01).astype(np.float16)
            raw[:, :, at:at + 2] = scale.view(np.uint8).reshape(2, count, 2)
        if kind == Q.MXFP4:
            raw[:, :, 0] = rng.integers(0, 254, size=(2, count))
        raw = raw.reshape(2, count * size)
        out[kind.name + ".raw"] = raw
        out[kind.name + ".decoded"] = gguf.quants.dequantize(raw, kind).astype(np.float32)
    save_file(out, path, metadata={"source": "gguf-py", "seed": str(SEED)})


NAMES = {
    "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up",
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
    "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
    "post_feedforward_layernorm_1": "post_ffw_norm_1",
    "post_feedforward_layernorm_2": "post_ffw_norm_2",
    "per_layer_input_gate": "inp_gate", "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm", "mlp.gate": "ffn_gate_inp",
    "router.proj": "ffn_gate_inp", "mlp.router": "ffn_gate_inp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp", "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate", "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.in_proj_a": "ssm_alpha", "linear_attn.in_proj_ba": "ssm_ba",
    "linear_attn.conv1d": "ssm_conv1d", "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out", "operator_norm": "attn_norm", "ffn_norm": "ffn_norm",
    "self_attn.q_layernorm": "attn_q_norm", "self_attn.k_layernorm": "attn_k_norm",
    "self_attn.out_proj": "attn_output", "conv.conv": "shortconv.conv",
    "conv.in_proj": "shortconv.in_proj", "conv.out_proj": "shortconv.out_proj",
    "mamba.in_proj": "ssm_in", "mamba.conv1d": "ssm_conv1d", "mamba.norm": "ssm_norm",
    "mamba.out_proj": "ssm_out", "block_sparse_moe.router.layer": "ffn_gate_inp",
    "block_sparse_moe.gate_proj": "ffn_gate_exps", "block_sparse_moe.up_proj": "ffn_up_exps",
    "block_sparse_moe.down_proj": "ffn_down_exps",
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp", "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp", "self_attn.q_a_proj": "attn_q_a",
    "self_attn.q_a_layernorm": "attn_q_a_norm", "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa", "self_attn.kv_b_proj": "attn_kv_b",
    "self_attn.kv_a_layernorm": "attn_kv_a_norm", "self_attn.k_b_proj": "attn_k_b",
    "self_attn.v_b_proj": "attn_v_b", "post_self_attn_layernorm": "post_attention_norm",
    "post_mlp_layernorm": "post_ffw_norm", "eh_proj": "nextn.eh_proj", "enorm": "nextn.enorm",
    "hnorm": "nextn.hnorm", "embed_tokens": "nextn.embed_tokens",
    "shared_head.head": "nextn.shared_head_head", "shared_head.norm": "nextn.shared_head_norm",
}
# Parameters without a module of their own.
BARE = {
    "router.scale": "ffn_gate_inp.scale", "router.per_expert_scale": "ffn_down_exps.scale",
    "layer_scalar": "layer_output_scale.weight", "experts.gate_up_proj": "ffn_gate_up_exps.weight",
    "experts.down_proj": "ffn_down_exps.weight", "self_attn.sinks": "attn_sinks.weight",
    "linear_attn.A_log": "ssm_a", "linear_attn.dt_bias": "ssm_dt.bias",
    "mlp.expert_bias": "exp_probs_b.bias", "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
    "mamba.A_log": "ssm_a", "mamba.D": "ssm_d",
    "mamba.dt_bias": "ssm_dt.bias",
}


def has_delta_nets(arch):
    return arch in ("qwen35", "qwen35moe", "qwen3next")


def rename(name, arch):
    top = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight":
           "output_norm.weight", "lm_head.weight": "output.weight",
           "model.embedding_norm.weight": "token_embd_norm.weight",
           "model.embed_tokens_per_layer.weight": "per_layer_token_embd.weight",
           "model.per_layer_model_projection.weight": "per_layer_model_proj.weight",
           "model.per_layer_projection_norm.weight": "per_layer_proj_norm.weight"}
    name = name.replace("model.language_model.", "model.")
    if name in top:
        return top[name]
    layer, rest = name.removeprefix("model.layers.").split(".", 1)
    if rest in BARE:
        return f"blk.{layer}.{BARE[rest]}"
    part, kind = rest.rsplit(".", 1)
    is_named_after = (arch.startswith(("gemma", "gpt-oss", "olmo2", "glm4moe"))
                      or has_delta_nets(arch))
    after = "post_attention_norm" if is_named_after else "ffn_norm"
    part = after if part == "post_attention_layernorm" else NAMES[part]
    return f"blk.{layer}.{part}.{kind}"


def read_safetensors(folder):
    for path in sorted(folder.glob("*.safetensors")):
        raw = path.read_bytes()
        size = int.from_bytes(raw[:8], "little")
        for name, entry in json.loads(raw[8:8 + size]).items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            data = np.frombuffer(raw[8 + size + begin:8 + size + end], dtype={
                "F32": np.float32, "F16": np.float16, "BF16": np.uint16,
                "U8": np.uint8}[entry["dtype"]])
            yield name, entry["dtype"], data.reshape(entry["shape"])


def widened(dtype, data):
    return (data.astype(np.uint32) << 16).view(np.float32) if dtype == "BF16" else \
        data.astype(np.float32)


def interleave(data, heads):
    return data.reshape(heads, 2, data.shape[0] // heads // 2, *data.shape[1:]).swapaxes(
        1, 2).reshape(data.shape)


def llama3_divisors(config, head_dim, theta):
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if rope.get("rope_type") != "llama3":
        return None
    f32 = np.float32  # as the converter's tensors are
    length = f32(rope["original_max_position_embeddings"])
    low = f32(rope["low_freq_factor"])
    high = f32(rope["high_freq_factor"])
    factor = f32(rope["factor"])
    out = []
    for i in range(head_dim // 2):
        frequency = f32(1) / f32(theta) ** (f32(2 * i) / f32(head_dim))
        wavelength = f32(2 * np.pi) / frequency
        if wavelength < length / high:
            out.append(f32(1))
        elif wavelength > length / low:
            out.append(factor)
        else:
            smooth = (length / wavelength - low) / (high - low)
            out.append(f32(1) / ((f32(1) - smooth) / factor + smooth))
    return np.array(out, dtype=np.float32)


def slides(config):
    if "layer_types" in config:
        return [kind == "sliding_attention" for kind in config["layer_types"]]
    pattern = config.get("sliding_window_pattern") or config["_sliding_window_pattern"]
    return [(i + 1) % pattern != 0 for i in range(config["num_hidden_layers"])]


def add_gemma4(writer, config):
    """Returns the divisors of the full layers' frequencies."""
    # Newer configs list the layers that are not like the others.
    last = str(config["num_hidden_layers"] - 1)
    full = config.get("per_layer_config", {}).get(last, {})
    global_dim = full.get("head_dim") or config["global_head_dim"]
    shared = config["num_kv_shared_layers"]
    writer.add_shared_kv_layers(shared)
    writer.add_embedding_length_per_layer_input(config.get("hidden_size_per_layer_input") or 0)
    writer.add_key_length(global_dim)
    writer.add_value_length(global_dim)
    writer.add_key_length_swa(config["head_dim"])
    writer.add_value_length_swa(config["head_dim"])
    writer.add_rope_dimension_count(global_dim)
    writer.add_rope_dimension_count_swa(config["head_dim"])
    writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if config.get("moe_intermediate_size"):
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
        writer.add_expert_count(config["num_experts"])
        writer.add_expert_used_count(config["top_k_experts"])
    size = config["intermediate_size"]
    if config.get("use_double_wide_mlp"):
        first = config["num_hidden_layers"] - shared
        writer.add_feed_forward_length(
            [size if i < first else 2 * size for i in range(config["num_hidden_layers"])])
    else:
        writer.add_feed_forward_length(size)
    heads = config["num_key_value_heads"]
    full_heads = full.get("num_key_value_heads") or config.get("num_global_key_value_heads")
    writer.add_head_count_kv([heads if slide else full_heads for slide in slides(config)]
                             if full_heads else heads)
    turning = int(global_dim * config["rope_parameters"]["full_attention"]
                  ["partial_rotary_factor"] / 2)
    return np.array([1.0] * turning + [1e30] * (global_dim // 2 - turning), dtype=np.float32)


# Blocks that draft tokens, which come behind the layers.
def drafting_blocks(arch):
    return 1 if arch == "qwen35moe" else 0


def add_delta_nets(writer, config, arch, head_dim):
    rope = config.get("rope_parameters") or config
    drafting = drafting_blocks(arch)
    if drafting:
        writer.add_nextn_predict_layers(drafting)
    writer.add_rope_dimension_count(int(head_dim * rope.get("partial_rotary_factor", 0.25)))
    if "mrope_section" in rope:
        writer.add_rope_dimension_sections((rope["mrope_section"] + [0])[:4])
    writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    writer.add_ssm_state_size(config["linear_key_head_dim"])
    writer.add_ssm_group_count(config["linear_num_key_heads"])
    writer.add_ssm_time_step_rank(config["linear_num_value_heads"])
    writer.add_ssm_inner_size(config["linear_num_value_heads"] * config["linear_value_head_dim"])
    # Where a config only lists its layers the converter writes the interval of most models, which
    # the list overrules.
    writer.add_full_attention_interval(config.get("full_attention_interval", 4))
    if "layer_types" in config:
        writer.add_array(f"{arch}.attention.recurrent_layers", [
            kind == "linear_attention" for kind in config["layer_types"]] + [False] * drafting)
    if "num_experts" in config:
        writer.add_expert_count(config["num_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
        writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])


def add_yarn(writer, rope):
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(rope["factor"])
    writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
    writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])


# What models much like Llama have besides.
def add_llama_kin(writer, config, arch, head_dim, rope):
    writer.add_rope_dimension_count(
        int(head_dim * (config.get("partial_rotary_factor", 1.0) if arch == "phi3" else 1)))
    if arch.startswith("granite"):
        writer.add_attention_scale(config["attention_multiplier"])
        writer.add_embedding_scale(config["embedding_multiplier"])
        writer.add_residual_scale(config["residual_multiplier"])
        writer.add_logit_scale(config["logits_scaling"])
    if arch == "mistral3":
        add_yarn(writer, rope)
        writer.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
        writer.add_attn_temperature_scale(rope["llama_4_scaling_beta"])
    if arch == "olmo2" and "sliding_window" in config:
        add_yarn(writer, config["rope_scaling"])
        writer.add_sliding_window(config["sliding_window"])
        writer.add_sliding_window_pattern(slides(config))
    if arch == "phi3":
        original = config["original_max_position_embeddings"]
        rope = config["rope_scaling"]
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_sliding_window(config["sliding_window"] or 0)
        if "long_factor" in rope:
            scale = config["max_position_embeddings"] / original
            writer.add_rope_scaling_attn_factors(
                math.sqrt(1 + math.log(scale) / math.log(original)))
            for length in ("long", "short"):
                writer.add_tensor(f"rope_factors_{length}.weight",
                                  np.array(rope[length + "_factor"], dtype=np.float32))


def add_lfm2(writer, config, arch):
    full = config.get("full_attn_idxs") or [
        i for i, kind in enumerate(config["layer_types"]) if kind == "full_attention"]
    writer.add_head_count_kv([config["num_key_value_heads"] if i in full else 0
                              for i in range(config["num_hidden_layers"])])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_shortconv_l_cache(config["conv_L_cache"])
    if arch == "lfm2":
        size = int(config["block_ffn_dim_multiplier"] * int(2 * config["block_ff_dim"] / 3))
        multiple = config["block_multiple_of"]
        writer.add_feed_forward_length(-(-size // multiple) * multiple)
        return
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_expert_count(config["num_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_leading_dense_block_count(config["num_dense_layers"])
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def add_granite_hybrid(writer, config):
    kv_heads = config["num_key_value_heads"]
    writer.add_head_count_kv([kv_heads if kind == "attention" else 0
                              for kind in config["layer_types"]])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_expert_count(config["num_local_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_shared_feed_forward_length(config["shared_intermediate_size"])
    writer.add_ssm_conv_kernel(config["mamba_d_conv"])
    writer.add_ssm_state_size(config["mamba_d_state"])
    writer.add_ssm_group_count(config["mamba_n_groups"])
    writer.add_ssm_inner_size(config["mamba_expand"] * config["hidden_size"])
    writer.add_ssm_time_step_rank(config["mamba_n_heads"])
    writer.add_rope_scaling_finetuned(False)  # that is, nothing turns


def add_deepseek_experts(writer, config):
    writer.add_expert_count(config["n_routed_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_shared_count(config["n_shared_experts"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_expert_weights_scale(config["routed_scaling_factor"])
    writer.add_leading_dense_block_count(config["first_k_dense_replace"])


def add_groups_of_experts(writer, config):
    writer.add_expert_group_count(config["n_group"])
    writer.add_expert_group_used_count(config["topk_group"])
    if config["norm_topk_prob"]:
        writer.add_expert_weights_norm(True)


def add_latent_attention(writer, config, old):
    """Keys and values are the latent, of one head, unless it is the old form: those of all heads."""
    turning, latent = config["qk_rope_head_dim"], config["kv_lora_rank"]
    key, value = config["qk_nope_head_dim"] + turning, config["v_head_dim"]
    writer.add_vocab_size(config["vocab_size"])
    writer.add_kv_lora_rank(latent)
    if config["q_lora_rank"]:
        writer.add_q_lora_rank(config["q_lora_rank"])
    writer.add_head_count_kv(config["num_key_value_heads"] if old else 1)
    writer.add_key_length(key if old else latent + turning)
    writer.add_value_length(value if old else latent)
    writer.add_rope_dimension_count(turning)
    rope = config["rope_scaling"]
    if rope:
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_log_mul(0.1 * rope["mscale_all_dim"])
    add_deepseek_experts(writer, config)
    if old:
        return
    writer.add_key_length_mla(key)
    writer.add_value_length_mla(value)
    if rope:
        writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
        writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
    add_groups_of_experts(writer, config)
    if "scoring_func" in config:  # GLM-4.7-Flash does not say it
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType[config["scoring_func"].upper()])


def add_glm4(writer, config, arch):
    writer.add_rope_dimension_count(int(config["head_dim"] * config["partial_rotary_factor"]))
    if arch == "glm4moe":
        add_deepseek_experts(writer, config)
        add_groups_of_experts(writer, config)
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


# Layers behind the last that draft tokens. Those of DeepSeek are left out.
def next_token_layers(config):
    is_glm = config.get("model_type", "").startswith("glm4")
    return config.get("num_nextn_predict_layers", 0) if is_glm else 0


LLAMA_KIN = ("smollm3", "granite", "granitehybrid", "mistral3", "olmo2", "phi3")
LFM2 = ("lfm2", "lfm2moe")


def add_config(writer, config, arch, old=False):
    """Returns the divisors of rope's frequencies, None where there are none."""
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    head_dim = config.get("head_dim") or hidden // heads
    rope = config.get("rope_parameters") or {}
    theta = config.get("rope_theta") or rope.get("rope_theta") or \
        rope["full_attention"]["rope_theta"]
    drafting = next_token_layers(config)
    writer.add_block_count(config["num_hidden_layers"] + drafting_blocks(arch) + drafting)
    if drafting:
        writer.add_nextn_predict_layers(drafting)
    writer.add_context_length(
        1 << 20 if arch == "granitehybrid" else config["max_position_embeddings"])
    writer.add_embedding_length(hidden)
    if arch not in ("gemma4", "qwen35moe", *LFM2):
        writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    if arch not in ("gemma4", "granitehybrid", "deepseek2", *LFM2):
        writer.add_head_count_kv(config["num_key_value_heads"])
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(config.get("rms_norm_eps") or config["norm_eps"])
    writer.add_rope_freq_base(theta)
    if arch in ("gemma3", "gemma4"):
        writer.add_sliding_window(config["sliding_window"])
        writer.add_sliding_window_pattern(slides(config))
    if arch == "gemma4":
        return add_gemma4(writer, config)
    if has_delta_nets(arch):
        add_delta_nets(writer, config, arch, head_dim)
    if arch in LLAMA_KIN:
        add_llama_kin(writer, config, arch, head_dim, rope)
    if arch == "granitehybrid":
        add_granite_hybrid(writer, config)
    if arch in LFM2:
        add_lfm2(writer, config, arch)
    if arch == "deepseek2":
        add_latent_attention(writer, config, old)
    if arch.startswith("glm4"):
        add_glm4(writer, config, arch)
    if arch == "qwen3moe":
        writer.add_expert_count(config.get("num_experts") or config["num_local_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if arch == "gpt-oss":
        writer.add_sliding_window(config["sliding_window"])
        writer.add_expert_count(config["num_local_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(config["intermediate_size"])
        scaling = config["rope_scaling"]
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(scaling["factor"])
        writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
    if arch == "gemma3" and config["query_pre_attn_scalar"] != head_dim:
        writer.add_attention_scale(config["query_pre_attn_scalar"] ** -0.5)
    return llama3_divisors(config, head_dim, theta)


def add_tokenizer(writer, folder):
    """A byte-level tokenizer.json that cuts text as Qwen 2 does, and the chat template beside it."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    added = {t["id"]: t for t in tokenizer["added_tokens"]}
    tokens = {i: text for text, i in tokenizer["model"]["vocab"].items()}
    tokens |= {i: t["content"] for i, t in added.items()}
    ids = {text: i for i, text in tokens.items()}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([tokens[i] for i in range(len(tokens))])
    writer.add_token_types([1 if i not in added else 3 if added[i]["special"] else 4
                            for i in range(len(tokens))])
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m)
                             for m in tokenizer["model"]["merges"]])
    writer.add_bos_token_id(ids[settings["bos_token"]])
    writer.add_eos_token_id(ids[settings["eos_token"]])
    writer.add_add_bos_token(tokenizer["post_processor"] is not None)
    writer.add_chat_template(settings["chat_template"])


def add_tokens(writer, pre="qwen2"):
    """256 byte-level tokens without merges: every id is a byte."""
    printable = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    others = [b for b in range(256) if b not in printable]
    chars = {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([chars[b] for b in range(256)])
    writer.add_token_types([1] * 256)


def stacked(tensors):
    """Experts with a tensor each become one tensor."""
    experts = {}
    for name, dtype, data in tensors:
        if ".mlp.experts." not in name:
            yield name, dtype, data
            continue
        layer, rest = name.split(".mlp.experts.")
        number, part = rest.split(".", 1)
        experts.setdefault((layer, part, dtype), {})[int(number)] = data
    for (layer, part, dtype), parts in sorted(experts.items()):
        out = part.replace("_proj", "_exps").replace("gate", "ffn_gate").replace(
            "up_", "ffn_up_").replace("down", "ffn_down")
        yield layer.replace("model.layers", "blk") + "." + out, dtype, \
            np.stack([parts[i] for i in range(len(parts))])


def add_nvfp4(writer, name, shape, rng):
    """A matrix, or a stack, with scales 2^-1 to 2^-3 of whole matrices, which could be multiplied
    with those of its blocks exactly: these are 2^-3 to 2^-1."""
    matrices = shape[0] if len(shape) > 2 else 1
    raw = rng.integers(0, 256, size=(*shape[:-1], shape[-1] // 64, 36), dtype=np.uint8)
    raw[..., :4] = 0x20 + raw[..., :4] % 16
    writer.add_tensor(name + ".weight", raw.reshape(*shape[:-1], -1), raw_dtype=Q.NVFP4)
    scales = np.float32(2) ** -(1 + np.arange(matrices, dtype=np.float32) % 3)
    writer.add_tensor(name + ".scale", scales)
    writer.add_tensor(name + ".input_scale", np.ones(matrices, dtype=np.float32))


def add_gpt_oss_experts(writer, tensors):
    """Adds the experts; yields the other tensors. Gates and ups come in turns; a GGUF block is the
    scale, then 16 bytes of codes i and i + 16."""
    experts = {}
    for name, dtype, data in tensors:
        if ".mlp.experts." in name:
            experts[name] = (dtype, data)
        else:
            yield name, dtype, data
    for name, (dtype, data) in experts.items():
        layer, part = name.removeprefix("model.layers.").split(".mlp.experts.")
        names = ["gate", "up"] if part.startswith("gate_up") else ["down"]
        for i, out in enumerate(names):
            rows = data[:, i::len(names)]
            out = f"blk.{layer}.ffn_{out}_exps"
            if part.endswith("_bias"):
                writer.add_tensor(out + ".bias", widened(dtype, np.ascontiguousarray(rows)))
            elif part.endswith("_blocks"):
                codes = np.stack([rows & 15, rows >> 4], axis=-1).reshape(*rows.shape[:-1], 32)
                packed = codes[..., :16] | codes[..., 16:] << 4
                scales = experts[name.replace("_blocks", "_scales")][1][:, i::len(names)]
                block = np.concatenate([scales[..., None], packed], axis=-1)
                writer.add_tensor(out + ".weight", np.ascontiguousarray(
                    block.reshape(*block.shape[:2], -1)), raw_dtype=Q.MXFP4)


def tiled(data, heads, key_heads):
    """Value heads in rounds over the key heads, instead of all of one key head after another's."""
    return data.reshape(key_heads, heads // key_heads, -1).swapaxes(0, 1).reshape(data.shape)


def with_delta_nets(tensors, config, arch):
    """As the converter stores them; norms are float32 with 1 added to them."""
    key_heads, heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
    key_dim, value_dim = config["linear_key_head_dim"], config["linear_value_head_dim"]
    keys = 2 * key_heads * key_dim
    for name, dtype, data in tensors:
        part = name.rsplit("linear_attn.", 1)[-1].removesuffix(".weight")
        if part == "in_proj_qkvz":  # by key head: its query, its key, values and gates
            of_head = heads // key_heads * value_dim
            parts = np.split(data.reshape(key_heads, -1, data.shape[-1]),
                             [key_dim, 2 * key_dim, 2 * key_dim + of_head], axis=1)
            q, k, v, z = (p.reshape(-1, data.shape[-1]) for p in parts)
            yield name.replace(part, "in_proj_qkv"), dtype, np.concatenate([q, k, v])
            yield name.replace(part, "in_proj_z"), dtype, z
            continue
        if part == "conv1d":
            data = data.squeeze(1)
        elif part == "A_log":
            dtype, data = "F32", -np.exp(widened(dtype, data))
        elif name.endswith(("layernorm.weight", "_norm.weight", "model.norm.weight")) and (
                not name.startswith("blk.")):
            dtype, data = "F32", widened(dtype, data) + np.float32(1)
        if arch != "qwen3next":
            if part in ("in_proj_qkv", "conv1d"):
                data = np.concatenate([data[:keys], tiled(data[keys:], heads, key_heads)])
            elif part in ("in_proj_z", "in_proj_a", "in_proj_b", "A_log", "dt_bias"):
                data = tiled(data, heads, key_heads)
            elif part == "out_proj":
                data = np.ascontiguousarray(tiled(np.ascontiguousarray(data.T), heads, key_heads).T)
            elif part.endswith("shared_expert_gate"):  # as llama-quantize leaves it
                dtype, data = "F32", widened(dtype, data[0])
        yield name, dtype, data


def with_short_convolutions(tensors):
    """Projections by the names that most models give them; convolutions become matrices."""
    usual = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
    for name, dtype, data in tensors:
        name = re.sub(r"\.(w[123])\.", lambda own: f".{usual[own[1]]}.",
                      name.replace(".feed_forward.", ".mlp."))
        yield name, dtype, data.squeeze(1) if ".conv.conv." in name else data


def with_drafting_block(tensors, config):
    """"mtp.*" under the names of one more layer, and of what surrounds it, with 1 added to norms."""
    last = config["num_hidden_layers"]
    around = {"mtp.fc.weight": "eh_proj", "mtp.pre_fc_norm_embedding.weight": "enorm",
              "mtp.pre_fc_norm_hidden.weight": "hnorm", "mtp.norm.weight": "shared_head_norm"}
    for name, dtype, data in tensors:
        if name not in around:
            yield name.replace("mtp.layers.0.", f"model.layers.{last}.", 1), dtype, data
        elif data.ndim == 1:
            yield f"blk.{last}.nextn.{around[name]}.weight", "F32", widened(dtype, data) + np.float32(1)
        else:
            yield f"blk.{last}.nextn.{around[name]}.weight", dtype, data


def with_latents_apart(tensors, config):
    """What makes keys of a latent, by columns, and what makes values of it."""
    heads, nope = config["num_attention_heads"], config["qk_nope_head_dim"]
    for name, dtype, data in tensors:
        if not name.endswith("kv_b_proj.weight"):
            yield name, dtype, data
            continue
        data = data.reshape(heads, -1, data.shape[-1])
        yield name.replace("kv_b", "k_b"), dtype, np.ascontiguousarray(
            data[:, :nope].swapaxes(1, 2))
        yield name.replace("kv_b", "v_b"), dtype, np.ascontiguousarray(data[:, nope:])


def model_tensors(folder, writer, config, arch, old):
    tensors = read_safetensors(folder)
    if arch == "deepseek2" and not old:
        tensors = with_latents_apart(tensors, config)
    if arch == "gpt-oss":
        return add_gpt_oss_experts(writer, tensors)
    if drafting_blocks(arch):
        tensors = with_drafting_block(tensors, config)
    if arch in LFM2:
        tensors = with_short_convolutions(tensors)
    tensors = stacked(entry for entry in tensors if not entry[0].startswith("mtp."))
    if has_delta_nets(arch):
        return with_delta_nets(tensors, config, arch)
    if arch == "granitehybrid":
        tensors = with_mamba(tensors, config["mamba_n_groups"])
    return with_parts_apart(tensors, config.get("num_local_experts"))


def with_parts_apart(tensors, experts):
    """Gates and ups of Granite 4 become two tensors."""
    shared = "mlp.shared_expert" if experts else "mlp"
    for name, dtype, data in tensors:
        name = name.replace("shared_mlp", shared).replace("output_linear", "down_proj")
        if "input_linear" not in name:
            yield name, dtype, data
            continue
        for part, rows in zip(("gate", "up"), np.split(data, 2, axis=-2)):
            yield name.replace("input_linear", part + "_proj"), dtype, np.ascontiguousarray(rows)


def with_mamba(tensors, groups):
    """Numbers of heads become columns, norms a row for each group."""
    for name, dtype, data in tensors:
        part = name.rsplit(".mamba.", 1)[-1]
        if part == "conv1d.weight":
            data = data.squeeze(1)
        elif part == "A_log":
            dtype, data = "F32", -np.exp(widened(dtype, data))[:, None]
        elif part == "D":
            data = data[:, None]
        elif part == "norm.weight":
            data = data.reshape(groups, -1)
        yield name, dtype, data


FLOAT32 = re.compile(r"\.(ffn_gate_inp|ssm_conv1d|ssm_norm|shortconv\.conv)\.|\.ssm_[ad]$")


def write_model(folder, path, kind):
    config = json.loads((folder / "config.json").read_text())
    config = config.get("text_config", config)
    arch = config["model_type"].removesuffix("_text").replace("_moe", "moe").replace(
        "gpt_oss", "gpt-oss").replace("qwen3_5", "qwen35").replace("qwen3_next", "qwen3next")
    granite = "granitehybrid" if "mamba" in config.get("layer_types", []) else "granite"
    arch = {"granitemoehybrid": granite, "ministral3": "mistral3", "olmo3": "olmo2",
            "deepseek_v2": "deepseek2", "deepseek_v3": "deepseek2",
            "glm4moe_lite": "deepseek2"}.get(arch, arch)
    writer = gguf.GGUFWriter(path, arch)
    divisors = add_config(writer, config, arch, kind == "--old")
    if (folder / "tokenizer.json").exists():
        add_tokenizer(writer, folder)
    else:
        add_tokens(writer, "qwen35" if arch.startswith("qwen35") else "qwen2")
    if divisors is not None:
        writer.add_tensor("rope_freqs.weight", divisors)
    rng = np.random.default_rng(SEED)
    fused = {}  # by name: queries, keys and values of a layer
    for name, dtype, data in model_tensors(folder, writer, config, arch, kind == "--old"):
        if (arch in ("llama", "smollm3", "granite", "granitehybrid", "mistral3")
                and (".q_proj." in name or ".k_proj." in name)):
            heads = config["num_attention_heads" if ".q_proj." in name else "num_key_value_heads"]
            data = interleave(data, heads)
        out = name if name.startswith("blk.") else rename(name, arch)
        part = re.fullmatch(r"(blk\.\d+\.attn_)([qkv])(\.\w+)", out)
        if kind == "--fused" and part:
            data = data if data.ndim == 2 else widened(dtype, data)
            parts = fused.setdefault(part[1] + "qkv" + part[3], {})
            parts[part[2]] = data
            if len(parts) == 3:
                writer.add_tensor(part[1] + "qkv" + part[3],
                                  np.concatenate([parts[p] for p in "qkv"]))
        elif data.ndim == 1 or FLOAT32.search(out):
            data = widened(dtype, data)
            writer.add_tensor(out, data + np.float32(1) if arch == "gemma3" else data)
        elif kind == "--nvfp4" and data.shape[-1] % 64 == 0 and out != "token_embd.weight":
            add_nvfp4(writer, out.removesuffix(".weight"), data.shape, rng)
        elif kind == "--q8":
            packed = gguf.quants.quantize(widened(dtype, data), Q.Q8_0)
            writer.add_tensor(out, packed, raw_dtype=Q.Q8_0)
        elif dtype == "BF16":
            writer.add_tensor(out, data.view(np.uint8), raw_dtype=Q.BF16)
        else:
            writer.add_tensor(out, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_vocabulary(path):
    writer = gguf.GGUFWriter(path, "llama")
    add_tokens(writer)
    for kind in BLOCKS:
        block = np.zeros((1, gguf.GGML_QUANT_SIZES[kind][1]), dtype=np.uint8)
        writer.add_tensor(kind.name, block, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_config(path):
    layers = ["sliding_attention", "full_attention"]
    writer = gguf.GGUFWriter(path, "gemma4")
    divisors = add_config(writer, {
        "num_attention_heads": 2, "hidden_size": 16, "num_hidden_layers": 2, "head_dim": 4,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "sliding_window": 8,
        "layer_types": layers, "global_head_dim": 8, "num_kv_shared_layers": 0,
        "final_logit_softcapping": 30.0, "moe_intermediate_size": 4, "num_experts": 2,
        "top_k_experts": 1, "intermediate_size": 8, "num_key_value_heads": 1,
        "num_global_key_value_heads": 1, "rope_parameters": {
            "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1e6}}}, "gemma4")
    writer.add_tensor("rope_freqs.weight", divisors)
    writer.add_tensor("token_embd.weight", np.zeros((4, 16), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def split(path, parts):
    reader = gguf.GGUFReader(path)
    tensors = list(reader.tensors)
    arch = reader.fields["general.architecture"].contents()
    for part in range(parts):
        out = path.with_name(f"{path.stem}-{part + 1:05d}-of-{parts:05d}.gguf")
        writer = gguf.GGUFWriter(out, arch)
        if part == 0:
            for field in reader.fields.values():
                if field.name.startswith("GGUF.") or field.name == "general.architecture":
                    continue
                sub = field.types[-1] if len(field.types) > 1 else None
                writer.add_key_value(field.name, field.contents(), field.types[0], sub)
        writer.add_uint16("split.no", part)
        writer.add_uint16("split.count", parts)
        writer.add_int32("split.tensors.count", len(tensors))
        for tensor in tensors[part * len(tensors) // parts:(part + 1) * len(tensors) // parts]:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


if __name__ == "__main__":
    verb, args = sys.argv[1], [pathlib.Path(a) for a in sys.argv[2:4]]
    if verb == "blocks":
        record_blocks(args[0])
    elif verb == "vocabulary":
        write_vocabulary(args[0])
    elif verb == "config":
        write_config(args[0])
    elif verb == "model":
        kinds = [kind for kind in ("--q8", "--nvfp4", "--fused", "--old") if kind in sys.argv]
        write_model(args[0], args[1], kinds[0] if kinds else None)
    else:
        split(args[0], int(sys.argv[3]))
