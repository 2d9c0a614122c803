#!/usr/bin/env python3
"""bench/make_random_model: its folders convert and answer, and shapes it cannot make are refused.

    random_model_test.py KVASIR
"""
import json
import pathlib
import subprocess
import sys
import tempfile

MAKE = pathlib.Path(__file__).resolve().parent.parent / "bench" / "make_random_model"
SHAPE = {
    "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "num_hidden_layers": 2, "vocab_size": 70000,
    "rms_norm_eps": 1e-6, "rope_theta": 10000, "max_position_embeddings": 512,
    # Of those that know it.
    "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
    "norm_topk_prob": True,
    "sliding_window": 32, "query_pre_attn_scalar": 32, "hidden_activation": "gelu_pytorch_tanh",
}

DELTA_NETS = {
    "layer_types": ["linear_attention", "full_attention"], "linear_num_value_heads": 4,
    "linear_num_key_heads": 2, "linear_value_head_dim": 16, "linear_key_head_dim": 16,
    "linear_conv_kernel_dim": 4, "hidden_act": "silu",
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000, "partial_rotary_factor": 0.25,
                        "mrope_section": [2, 1, 1]},
}

GRANITE_4 = {
    "layer_types": ["mamba", "attention"], "shared_intermediate_size": 96, "num_local_experts": 4,
    "position_embedding_type": "nope", "attention_multiplier": 0.125, "intermediate_size": 32,
    "mamba_n_heads": 4, "mamba_d_head": 32, "mamba_expand": 2, "mamba_d_state": 16,
    "mamba_n_groups": 1, "mamba_d_conv": 4, "mamba_conv_bias": True,
}

LFM2 = {
    "layer_types": ["conv", "full_attention"], "head_dim": 16, "norm_eps": 1e-5,
    "conv_L_cache": 3, "conv_bias": False, "block_auto_adjust_ff_dim": False,
    "num_dense_layers": 1, "use_expert_bias": True, "routed_scaling_factor": 1.0,
}


LATENT = {
    "kv_lora_rank": 32, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32,
    "q_lora_rank": 32, "n_routed_experts": 4, "n_shared_experts": 1, "first_k_dense_replace": 1,
    "num_key_value_heads": 4, "n_group": 1, "topk_group": 1,
}


def run(*command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True)


def succeed(*command):
    done = run(*command)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def make(folder, name, *flags, **config):
    shape = folder / (name + "-shape")
    shape.mkdir(exist_ok=True)
    if config["model_type"] == "qwen3_5_text":
        config = DELTA_NETS | config
    if config["model_type"] == "ministral3":
        config = {"sliding_window": None} | config
    if config["model_type"] == "granitemoehybrid":
        config = GRANITE_4 | config
    if config["model_type"].startswith("lfm2"):
        config = LFM2 | config
    if config["model_type"] in ("deepseek_v2", "glm4_moe_lite"):
        config = LATENT | config
    if config["model_type"] == "deepseek_v2":
        config = config | {"q_lora_rank": None, "norm_topk_prob": False}
    (shape / "config.json").write_text(json.dumps(SHAPE | config))
    return run(sys.executable, MAKE, shape, folder / name, *flags)


def main():
    kvasir = sys.argv[1]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for family, tied in [("qwen3", True), ("qwen3_moe", False), ("qwen3_5_text", True),
                             ("gemma3_text", True), ("llama", False), ("ministral3", True),
                             ("granitemoehybrid", True), ("olmo3", False), ("phi3", False),
                             ("lfm2", True), ("lfm2_moe", True), ("deepseek_v2", False),
                             ("glm4_moe_lite", False)]:
            made = make(folder, family, model_type=family, tie_word_embeddings=tied)
            assert made.returncode == 0, made.stderr
            file = folder / (family + ".gguf")
            succeed(kvasir, "convert", "-m", folder / family, "-o", file, "--type", "q8_0")
            # Bytes, pairs and threes of them are tokens.
            for model in (folder / family, file):
                text = ["--json", "-p", "!!!ab c"]
                answer = json.loads(succeed(kvasir, "tokenize", "-m", model, *text))
                assert answer["pieces"] == ["!!!", "ab", " c"], answer
            succeed(kvasir, "generate", "-m", file, "--prompt", "Hi", "--max-tokens", "2")

        weights = [folder / name / "model.safetensors" for name in ("qwen3", "again", "other")]
        make(folder, "again", model_type="qwen3", tie_word_embeddings=True)
        make(folder, "other", "--seed", "2", model_type="qwen3", tie_word_embeddings=True)
        first, again, other = [path.read_bytes() for path in weights]
        assert first == again and first != other

        refused = make(folder, "gemma", model_type="gemma3")
        assert refused.returncode != 0 and "gemma3" in refused.stderr, refused.stderr
        assert not (folder / "gemma").exists()
        for wrong, named in [({"vocab_size": 256}, "vocab"), ({"hidden_size": 0.5}, "hidden")]:
            refused = make(folder, "wrong", model_type="llama", **wrong)
            assert refused.returncode == 1 and named in refused.stderr, refused.stderr
        refused = make(folder, "wrong", model_type="qwen3_moe", num_experts=0)
        assert refused.returncode == 1 and "num_experts" in refused.stderr, refused.stderr
        refused = make(folder, "qwen3", model_type="qwen3")
        assert refused.returncode == 1 and "exists" in refused.stderr, refused.stderr
        assert "Traceback" not in refused.stderr


if __name__ == "__main__":
    main()
