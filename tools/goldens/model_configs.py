"""What the tiny checkpoints of make_model_goldens.py are: a config for each, and its seed.

Deliberately no weights and no files: those are made there.
"""
import torch
import transformers

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


# As Youtu: DeepSeek-V3 without experts, and with its embedding for a head.
def youtu():
    return transformers.YoutuConfig(
        vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=4, q_lora_rank=32, kv_lora_rank=48,
        qk_nope_head_dim=16, qk_rope_head_dim=16, v_head_dim=24, max_position_embeddings=2048,
        bos_token_id=254, eos_token_id=255, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1600000})


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
    "transformers_youtu_bf16": (youtu, transformers.YoutuForCausalLM, torch.bfloat16, None, 151),
    "transformers_glm4_bf16": (glm4, transformers.Glm4ForCausalLM, torch.bfloat16, None, 140),
    "transformers_glm4_moe_bf16": (glm4_moe, transformers.Glm4MoeForCausalLM, torch.bfloat16, None,
                                   127),
}
