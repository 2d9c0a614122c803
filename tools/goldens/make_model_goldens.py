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

PROMPT_TOKENS = 48
GREEDY_TOKENS = 32
VOCAB = 256


def llama3_rope():
    return transformers.LlamaConfig(
        vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=1, head_dim=16, max_position_embeddings=4096,
        rms_norm_eps=1e-5, rope_theta=500000.0, tie_word_embeddings=True,
        rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                      "high_freq_factor": 4.0, "original_max_position_embeddings": 64})


def qwen2():
    return transformers.Qwen2Config(
        vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=4096,
        rope_theta=1000000.0, tie_word_embeddings=True)


# As Mistral Small 3.1: heads wider than the width over their number.
def mistral():
    return transformers.MistralConfig(
        vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, head_dim=24, max_position_embeddings=4096,
        rope_theta=1000000.0, sliding_window=None, tie_word_embeddings=False)


# As Ministral 3: queries grow with their positions (here every 20 tokens).
def ministral3():
    return transformers.Ministral3Config(
        vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, head_dim=24, max_position_embeddings=4096,
        rope_parameters={"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0,
                         "original_max_position_embeddings": 20, "beta_fast": 32.0,
                         "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                         "llama_4_scaling_beta": 0.1})


# As SmolLM3: every fourth layer turns nothing.
def smollm3():
    return transformers.SmolLM3Config(
        vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=5,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=4096,
        rope_theta=50000.0, pad_token_id=None, bos_token_id=None, eos_token_id=None)


GRANITE = dict(
    vocab_size=VOCAB, hidden_size=64, num_hidden_layers=3, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=4096, rope_theta=10000.0,
    residual_multiplier=0.7, attention_multiplier=0.125)


def granite():
    return transformers.GraniteConfig(
        intermediate_size=96, embedding_multiplier=3.0, logits_scaling=1.5,
        tie_word_embeddings=False, **GRANITE)


# As Granite 4's dense models: the class of the hybrid ones, with attention alone.
def granite_dense():
    return transformers.GraniteMoeHybridConfig(
        intermediate_size=96, shared_intermediate_size=96, num_local_experts=0,
        num_experts_per_tok=0, layer_types=["full_attention"] * 3, position_embedding_type="rope",
        mamba_n_heads=8, mamba_d_head=16, mamba_d_state=16, embedding_multiplier=0.3,
        logits_scaling=0.75, tie_word_embeddings=True, **GRANITE)


def olmo2():
    return transformers.Olmo2Config(
        vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=4096,
        rope_theta=500000.0, pad_token_id=None, eos_token_id=None)


# Windows in three of four layers, whose rope is not scaled.
def olmo3():
    return transformers.Olmo3Config(
        vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=5,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=4096,
        sliding_window=12, pad_token_id=None, eos_token_id=None, rope_theta=500000.0,
        rope_scaling={"rope_type": "yarn", "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0,
                      "original_max_position_embeddings": 64,
                      "attention_factor": 1.2079441541679836})


PHI3 = dict(
    vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=3,
    num_attention_heads=4, num_key_value_heads=2, pad_token_id=None, bos_token_id=None,
    eos_token_id=None)


# As Phi-3-mini-4k: all layers slide.
def phi3():
    return transformers.Phi3Config(max_position_embeddings=4096, sliding_window=20,
                                   rope_theta=10000.0, **PHI3)


# As Phi-4-mini: three quarters of a head turn, slower in long contexts than in short ones. All
# recorded sequences are long.
def phi4_mini():
    return transformers.Phi3Config(
        max_position_embeddings=4096, original_max_position_embeddings=16, tie_word_embeddings=True,
        rope_theta=10000.0, partial_rotary_factor=0.75,
        rope_scaling={"type": "longrope", "short_factor": [1.0, 1.1, 1.2, 1.5, 1.75, 2.0],
                      "long_factor": [1.0, 1.25, 2.5, 6.5, 15.25, 31.5]}, **PHI3)


def gemma3():
    return transformers.Gemma3TextConfig(
        vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=6,
        num_attention_heads=4, num_key_value_heads=1, head_dim=32, max_position_embeddings=4096,
        query_pre_attn_scalar=20, sliding_window=12, rope_theta=1000000.0,
        rope_local_base_freq=10000.0)


def gemma2():
    return transformers.Gemma2Config(
        vocab_size=VOCAB, hidden_size=48, intermediate_size=80, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=2, head_dim=16, max_position_embeddings=4096,
        query_pre_attn_scalar=20, sliding_window=12)


def qwen3_moe():
    return transformers.Qwen3MoeConfig(
        vocab_size=VOCAB, hidden_size=64, intermediate_size=80, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, head_dim=24, max_position_embeddings=4096,
        num_experts=6, num_experts_per_tok=3, moe_intermediate_size=32, norm_topk_prob=True,
        decoder_sparse_step=1, mlp_only_layers=[1])


def gemma4(**own):
    return transformers.Gemma4TextConfig(**{**dict(
        vocab_size=VOCAB, hidden_size=48, intermediate_size=64, num_attention_heads=4,
        num_key_value_heads=1, head_dim=16, global_head_dim=32, max_position_embeddings=4096,
        sliding_window=12, final_logit_softcapping=30.0, hidden_size_per_layer_input=0), **own})


# As E2B: per-layer embeddings, keys and values shared by the last layers, those with a wider MLP.
def gemma4_shared():
    return gemma4(
        num_hidden_layers=7, layer_types=(["sliding_attention"] * 2 + ["full_attention"]) * 2
        + ["full_attention"], num_kv_shared_layers=3, use_double_wide_mlp=True,
        hidden_size_per_layer_input=8, vocab_size_per_layer_input=VOCAB)


# As 31B: full layers with fewer and larger heads whose values are their keys.
def gemma4_one_projection():
    return gemma4(num_hidden_layers=6, num_key_value_heads=2, num_global_key_value_heads=1,
                  attention_k_eq_v=True)


# As 26B-A4B: the same with experts beside the dense MLP.
def gemma4_experts():
    return gemma4(num_hidden_layers=3, layer_types=["sliding_attention"] * 2 + ["full_attention"],
                  num_key_value_heads=2, num_global_key_value_heads=1, attention_k_eq_v=True,
                  hidden_size=64, enable_moe_block=True, num_experts=5, top_k_experts=2,
                  moe_intermediate_size=32)


# Experts are saved as transformers has them: inputs before outputs, gates and ups in turns.
def gpt_oss():
    return transformers.GptOssConfig(
        vocab_size=VOCAB, hidden_size=64, intermediate_size=32, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=2, head_dim=24, max_position_embeddings=4096,
        num_local_experts=5, num_experts_per_tok=2, sliding_window=12, tie_word_embeddings=False,
        rope_parameters={"rope_type": "yarn", "rope_theta": 150000.0, "factor": 8.0,
                         "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                         "original_max_position_embeddings": 16})


# As Qwen3.5: three of four layers (here all but one) carry a state instead of keys and values.
def qwen3_5(**own):
    return transformers.Qwen3_5TextConfig(**{**dict(
        vocab_size=VOCAB, hidden_size=48, intermediate_size=80, num_hidden_layers=5,
        layer_types=["linear_attention"] * 2 + ["full_attention"] + ["linear_attention"] * 2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=32, max_position_embeddings=4096,
        linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16,
        linear_value_head_dim=24,
        rope_parameters={"rope_type": "default", "rope_theta": 10000000.0,
                         "partial_rotary_factor": 0.25, "mrope_section": [2, 1, 1],
                         "mrope_interleaved": True}), **own})


def qwen3_5_wrapped():
    return qwen3_5(hidden_size=64, intermediate_size=64, num_hidden_layers=4,
                   layer_types=["linear_attention"] * 2 + ["full_attention", "linear_attention"],
                   num_attention_heads=2, num_key_value_heads=1, linear_num_value_heads=2,
                   linear_value_head_dim=32, tie_word_embeddings=True)


def qwen3_5_moe(**own):
    return transformers.Qwen3_5MoeTextConfig(**{**dict(
        vocab_size=VOCAB, hidden_size=48, num_hidden_layers=4,
        layer_types=["linear_attention", "full_attention"] + ["linear_attention"] * 2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=24, max_position_embeddings=4096,
        linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=8,
        linear_value_head_dim=16, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=16,
        shared_expert_intermediate_size=24,
        rope_parameters={"rope_type": "default", "rope_theta": 10000000.0,
                         "partial_rotary_factor": 0.25, "mrope_section": [1, 1, 1],
                         "mrope_interleaved": True}), **own})


def qwen3_5_moe_wrapped():
    return qwen3_5_moe(hidden_size=64, num_hidden_layers=3,
                       layer_types=["linear_attention", "full_attention", "linear_attention"],
                       num_attention_heads=2, num_key_value_heads=1, head_dim=32,
                       linear_num_value_heads=4, linear_key_head_dim=16, num_experts=4,
                       moe_intermediate_size=32, shared_expert_intermediate_size=32,
                       rope_parameters=qwen3_5().rope_parameters)


# Experts in layers 1 and 5: every second layer, but not those named.
def qwen3_next():
    return transformers.Qwen3NextConfig(
        vocab_size=VOCAB, hidden_size=48, intermediate_size=64, num_hidden_layers=6,
        layer_types=(["linear_attention"] * 2 + ["full_attention"]) * 2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=24, max_position_embeddings=4096,
        linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8,
        linear_value_head_dim=16, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=16,
        shared_expert_intermediate_size=24, decoder_sparse_step=2, mlp_only_layers=[3],
        rope_parameters={"rope_type": "default", "rope_theta": 10000000.0,
                         "partial_rotary_factor": 0.25})


# As LFM2: most layers are short convolutions between two gates. Its MLP has 96 of 140.
def lfm2(**own):
    return transformers.Lfm2Config(**{**dict(
        vocab_size=VOCAB, hidden_size=64, intermediate_size=140, num_hidden_layers=6,
        layer_types=["conv"] * 2 + ["full_attention", "conv"] * 2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=4096, conv_L_cache=3, block_multiple_of=8,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}), **own})


# The size of the MLP is what it says.
def lfm2_conv_bias():
    return lfm2(intermediate_size=96, num_hidden_layers=4,
                layer_types=["conv", "full_attention"] + ["conv"] * 2, conv_L_cache=4,
                conv_bias=True, block_auto_adjust_ff_dim=False)


def lfm2_moe():
    return transformers.Lfm2MoeConfig(
        vocab_size=VOCAB, hidden_size=64, intermediate_size=96, moe_intermediate_size=32,
        num_hidden_layers=6, layer_types=["conv"] * 2 + ["full_attention", "conv"] * 2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=4096,
        num_dense_layers=1, num_experts=6, num_experts_per_tok=2,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0})


# As Granite 4's hybrids, which turn nothing.
def granite_hybrid(kinds, **own):
    return transformers.GraniteMoeHybridConfig(**{**GRANITE, **dict(
        num_hidden_layers=len(kinds), shared_intermediate_size=96, position_embedding_type="nope",
        mamba_d_state=16,
        layer_types=[{"M": "linear_attention", "A": "full_attention"}[kind] for kind in kinds],
        rms_norm_eps=1e-5), **own})


def granite_hybrid_dense():
    return granite_hybrid("MMAM", attention_bias=True, intermediate_size=96, num_local_experts=0, num_experts_per_tok=0,
                          mamba_n_heads=4, mamba_d_head=32, embedding_multiplier=0.3,
                          logits_scaling=0.75, tie_word_embeddings=True)


def granite_hybrid_moe():
    return granite_hybrid("MAMA", intermediate_size=32, num_local_experts=6, num_experts_per_tok=2,
                          mamba_n_heads=8, mamba_d_head=16, mamba_n_groups=2,
                          embedding_multiplier=0.5, logits_scaling=0.5, tie_word_embeddings=False)


def granite_moe():
    return transformers.GraniteMoeSharedConfig(**{**GRANITE, **dict(
        num_hidden_layers=3, intermediate_size=32, shared_intermediate_size=48,
        num_local_experts=5, num_experts_per_tok=2, rms_norm_eps=1e-5)})


# As DeepSeek-V2-Lite: queries are projected at once, yarn's factor goes into the scale.
def deepseek_v2(**own):
    return transformers.DeepseekV2Config(**{**dict(
        vocab_size=VOCAB, hidden_size=64, intermediate_size=64, moe_intermediate_size=32,
        num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=4, q_lora_rank=None,
        kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16,
        first_k_dense_replace=1, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2,
        topk_method="greedy", n_group=1, topk_group=1, norm_topk_prob=False,
        routed_scaling_factor=1.0, max_position_embeddings=2560, rms_norm_eps=1e-6,
        bos_token_id=254, eos_token_id=255,
        rope_parameters=deepseek_yarn(64, 0.707, 0.707)), **own})


# As DeepSeek-V2: queries go through a latent too, and two of four groups have the experts. Yarn's
# two factors differ, so that what turns is scaled otherwise than the rest.
def deepseek_v2_groups():
    return deepseek_v2(
        moe_intermediate_size=16, q_lora_rank=24, kv_lora_rank=40, v_head_dim=20,
        n_routed_experts=8, num_experts_per_tok=3, topk_method="group_limited_greedy", n_group=4,
        topk_group=2, routed_scaling_factor=2.5, rope_parameters=deepseek_yarn(64, 1.0, 0.707))


def deepseek_yarn(length, mscale, mscale_all_dim):
    return {"rope_type": "yarn", "rope_theta": 10000, "factor": 40, "beta_fast": 32, "beta_slow": 1,
            "mscale": mscale, "mscale_all_dim": mscale_all_dim,
            "original_max_position_embeddings": length}


# As DeepSeek-V3, in groups of three experts of which the best two count.
def deepseek_v3():
    return transformers.DeepseekV3Config(
        vocab_size=VOCAB, hidden_size=64, intermediate_size=32, moe_intermediate_size=32,
        num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=4, q_lora_rank=32,
        kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=16, v_head_dim=24,
        first_k_dense_replace=2, n_routed_experts=12, num_experts_per_tok=3, n_shared_experts=1,
        n_group=4, topk_group=2, norm_topk_prob=True, routed_scaling_factor=2.5,
        max_position_embeddings=5120, rms_norm_eps=1e-6, bos_token_id=254, eos_token_id=255,
        rope_parameters=deepseek_yarn(128, 1.0, 1.0))


GLM4 = dict(vocab_size=VOCAB, num_hidden_layers=3, max_position_embeddings=4096, rms_norm_eps=1e-5,
            eos_token_id=[253, 254, 255], pad_token_id=None)


# As GLM-4.7-Flash: values wider than the part of keys that does not turn.
def glm4_moe_lite():
    return transformers.Glm4MoeLiteConfig(
        hidden_size=32, intermediate_size=64, moe_intermediate_size=32, num_attention_heads=2,
        num_key_value_heads=2, q_lora_rank=64, kv_lora_rank=64, qk_nope_head_dim=32,
        qk_rope_head_dim=8, v_head_dim=48, n_routed_experts=4, num_experts_per_tok=2,
        n_shared_experts=1, n_group=1, topk_group=1, norm_topk_prob=True,
        routed_scaling_factor=1.8, bos_token_id=None,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000}, **GLM4)


# As GLM-4-0414: a norm before and after every part, neighbours turn as pairs in half of a head.
def glm4():
    return transformers.Glm4Config(
        hidden_size=64, intermediate_size=96, num_attention_heads=4, num_key_value_heads=2,
        head_dim=24, attention_bias=True, rope_parameters={
            "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}, **GLM4)


# As GLM-4.5: halves turn as pairs.
def glm4_moe():
    return transformers.Glm4MoeConfig(
        hidden_size=32, intermediate_size=64, moe_intermediate_size=32, num_attention_heads=4,
        num_key_value_heads=2, head_dim=24, attention_bias=True, use_qk_norm=True,
        first_k_dense_replace=1, n_routed_experts=5, num_experts_per_tok=2, n_shared_experts=1,
        n_group=1, topk_group=1, norm_topk_prob=True, routed_scaling_factor=2.5,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000,
                         "partial_rotary_factor": 0.5}, **GLM4)


CASES = {
    # name: (config, model class, stored type, largest shard or None, seed)
    "transformers_llama3_rope_bf16": (llama3_rope, transformers.LlamaForCausalLM, torch.bfloat16,
                                      None, 11),
    "transformers_qwen2_f16": (qwen2, transformers.Qwen2ForCausalLM, torch.float16, None, 12),
    "transformers_mistral3_bf16": (mistral, transformers.MistralForCausalLM, torch.bfloat16, None,
                                   31),
    "transformers_ministral3_bf16": (ministral3, transformers.Ministral3ForCausalLM,
                                     torch.bfloat16, None, 91),
    "transformers_smollm3_bf16": (smollm3, transformers.SmolLM3ForCausalLM, torch.bfloat16, None,
                                  92),
    "transformers_granite_bf16": (granite, transformers.GraniteForCausalLM, torch.bfloat16, None,
                                  93),
    "transformers_granite_dense_bf16": (granite_dense, transformers.GraniteMoeHybridForCausalLM,
                                        torch.bfloat16, None, 94),
    "transformers_olmo2_bf16": (olmo2, transformers.Olmo2ForCausalLM, torch.bfloat16, None, 95),
    "transformers_olmo3_bf16": (olmo3, transformers.Olmo3ForCausalLM, torch.bfloat16, None, 96),
    "transformers_phi3_bf16": (phi3, transformers.Phi3ForCausalLM, torch.bfloat16, None, 97),
    "transformers_phi4_mini_bf16": (phi4_mini, transformers.Phi3ForCausalLM, torch.bfloat16, None,
                                    98),
    "transformers_gemma3_sharded_bf16": (gemma3, transformers.Gemma3ForCausalLM, torch.bfloat16,
                                         "100KB", 13),
    "transformers_gemma2_bf16": (gemma2, transformers.Gemma2ForCausalLM, torch.bfloat16, None, 14),
    "transformers_qwen3_moe_bf16": (qwen3_moe, transformers.Qwen3MoeForCausalLM, torch.bfloat16,
                                    None, 26),
    "transformers_gemma4_shared_bf16": (gemma4_shared, transformers.Gemma4ForCausalLM,
                                        torch.bfloat16, None, 16),
    "transformers_gemma4_one_projection_bf16": (gemma4_one_projection,
                                                transformers.Gemma4ForCausalLM, torch.bfloat16,
                                                None, 17),
    "transformers_gemma4_experts_bf16": (gemma4_experts, transformers.Gemma4ForCausalLM,
                                         torch.bfloat16, None, 18),
    "transformers_gpt_oss_bf16": (gpt_oss, transformers.GptOssForCausalLM, torch.bfloat16, None, 41),
    "transformers_gpt_oss_mxfp4": (gpt_oss, transformers.GptOssForCausalLM, torch.bfloat16, None,
                                   42),
    "transformers_qwen3_5_bf16": (qwen3_5, transformers.Qwen3_5ForCausalLM, torch.bfloat16, None,
                                  75),
    "transformers_qwen3_5_wrapped_bf16": (qwen3_5_wrapped, transformers.Qwen3_5ForCausalLM,
                                          torch.bfloat16, None, 78),
    "transformers_qwen3_5_moe_bf16": (qwen3_5_moe, transformers.Qwen3_5MoeForCausalLM,
                                      torch.bfloat16, None, 87),
    "transformers_qwen3_5_moe_wrapped_bf16": (qwen3_5_moe_wrapped,
                                              transformers.Qwen3_5MoeForCausalLM, torch.bfloat16,
                                              None, 61),
    "transformers_qwen3_next_bf16": (qwen3_next, transformers.Qwen3NextForCausalLM, torch.bfloat16,
                                     None, 53),
    "transformers_lfm2_bf16": (lfm2, transformers.Lfm2ForCausalLM, torch.bfloat16, None, 101),
    "transformers_lfm2_conv_bias_bf16": (lfm2_conv_bias, transformers.Lfm2ForCausalLM,
                                         torch.bfloat16, None, 105),
    "transformers_lfm2_moe_bf16": (lfm2_moe, transformers.Lfm2MoeForCausalLM, torch.bfloat16, None,
                                   104),
    "transformers_granite_moe_bf16": (granite_moe, transformers.GraniteMoeSharedForCausalLM,
                                      torch.bfloat16, None, 108),
    "transformers_granite_hybrid_bf16": (granite_hybrid_dense,
                                         transformers.GraniteMoeHybridForCausalLM, torch.bfloat16,
                                         None, 105),
    "transformers_granite_hybrid_moe_bf16": (granite_hybrid_moe,
                                             transformers.GraniteMoeHybridForCausalLM,
                                             torch.bfloat16, None, 106),
    "transformers_deepseek_v2_lite_bf16": (deepseek_v2, transformers.DeepseekV2ForCausalLM,
                                           torch.bfloat16, None, 189),
    "transformers_deepseek_v2_bf16": (deepseek_v2_groups, transformers.DeepseekV2ForCausalLM,
                                      torch.bfloat16, None, 132),
    "transformers_deepseek_v3_bf16": (deepseek_v3, transformers.DeepseekV3ForCausalLM,
                                      torch.bfloat16, None, 142),
    "transformers_glm4_moe_lite_bf16": (glm4_moe_lite, transformers.Glm4MoeLiteForCausalLM,
                                        torch.bfloat16, None, 139),
    "transformers_glm4_bf16": (glm4, transformers.Glm4ForCausalLM, torch.bfloat16, None, 140),
    "transformers_glm4_moe_bf16": (glm4_moe, transformers.Glm4MoeForCausalLM, torch.bfloat16, None,
                                   127),
}

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
