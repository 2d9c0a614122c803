#!/usr/bin/env python3
"""Records quantized matrices and what MLX decodes them to, and tiny quantized models.

  weights OUT.safetensors    for every mode, bit width, group and scale type: NAME.weight, .scales,
                             .biases and .decoded. Every value is random or an edge; the scales of
                             mx modes run through all bytes.
  model SOURCE OUT [SEED]    quantizes the checkpoint folder SOURCE as mlx-lm's converters do (one
                             module wider by an override, one left dense, the embedding quantized
                             too, routers of experts in 8 bits, experts of gpt-oss and routers of
                             DeepSeek and GLM as they are, decays of Qwen3.5 in float32), and
                             records mlx-lm's logits in the format of testdata/models/README.md.

Needs mlx; "model" also mlx-lm. Versions and seed are recorded.
"""
import json
import pathlib
import sys

import mlx.core as mx
import numpy as np

SEED = 20
COLUMNS = 128


def affine(rng, bits, group, dtype):
    rows = rng.normal(size=(2, COLUMNS)).astype(np.float32)
    rows[0, :group] = -2.5  # a constant group
    rows[1, :group] = np.abs(rows[1, :group]) * 1e-4  # small, all positive: scale < 0
    return mx.quantize(mx.array(rows).astype(dtype), group_size=group, bits=bits)


def record_weights(path):
    rng = np.random.default_rng(SEED)
    out = {}

    def add(name, weight, scales, biases, **options):
        decoded = mx.dequantize(weight, scales, biases, **options)
        out.update({name + ".weight": weight, name + ".scales": scales, name + ".decoded": decoded})
        if biases is not None:
            out[name + ".biases"] = biases

    for bits in (2, 3, 4, 5, 6, 8):
        for group in (32, 64, 128):
            for tag, dtype in (("f32", mx.float32), ("f16", mx.float16), ("bf16", mx.bfloat16)):
                add(f"affine_{bits}_{group}_{tag}", *affine(rng, bits, group, dtype),
                    group_size=group, bits=bits)
    for mode, bits, group in (("mxfp4", 4, 32), ("mxfp8", 8, 32), ("nvfp4", 4, 16)):
        rows = 256 * group // COLUMNS
        codes = rng.integers(0, 1 << 32, size=(rows, COLUMNS * bits // 32), dtype=np.uint32)
        scales = np.arange(256, dtype=np.uint8).reshape(rows, -1)
        add(f"{mode}_{bits}_{group}_u8", mx.array(codes), mx.array(scales), None,
            group_size=group, bits=bits, mode=mode)
    for group in (32, 64, 128):
        for tag, dtype in (("f32", mx.float32), ("f16", mx.float16), ("bf16", mx.bfloat16)):
            add(f"affine_1_{group}_{tag}", *affine(rng, 1, group, dtype), group_size=group, bits=1)
    # Rows that are no multiple of 32.
    rows = mx.array(rng.normal(size=(4, 80)).astype(np.float32))
    add("nvfp4_4_16_odd", *mx.quantize(rows, group_size=16, bits=4, mode="nvfp4"), None,
        group_size=16, bits=4, mode="nvfp4")
    mx.save_safetensors(str(path), out, metadata={
        "source": f"MLX {mx.__version__} (CPU)", "seed": str(SEED)})


def tensors(model):
    from mlx.utils import tree_flatten
    return dict(tree_flatten(model.parameters()))


def record_model(source, folder, seed=SEED):
    import mlx.nn as nn
    import mlx_lm
    from mlx.utils import tree_map_with_path
    from mlx_lm.utils import load_model, save_config

    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads((source / "config.json").read_text())
    # Names that mlx-lm wants and transformers 5 no longer writes.
    aliases = {}
    if "num_local_experts" in config:
        aliases["num_experts"] = config["num_local_experts"]
    if "rope_theta" in config.get("rope_parameters", {}):
        aliases["rope_theta"] = config["rope_parameters"]["rope_theta"]
    model, config = load_model(source, model_config=aliases)
    common = {"group_size": 32, "bits": 4, "mode": "affine"}
    formats = {"model.layers.1.mlp.down_proj": {"group_size": 32, "bits": 6},
               "model.layers.2.self_attn.o_proj": False}
    if any("linear_attn" in path for path, _ in model.named_modules()):
        layers = "language_model.model.layers."
        formats = {layers + "0.linear_attn.in_proj_z": {"group_size": 32, "bits": 6},
                   layers + "1.self_attn.k_proj": {"group_size": 64, "bits": 8},
                   layers + "2.linear_attn.out_proj": False,
                   layers + "2.self_attn.o_proj": False}
        paths = {path for path, _ in model.named_modules()}
        formats = {path: wanted for path, wanted in formats.items() if path in paths}
    elif hasattr(model.layers[0], "conv"):
        formats = {"model.layers.0.conv.in_proj": {"group_size": 32, "bits": 6},
                   "model.layers.2.self_attn.k_proj": {"group_size": 64, "bits": 8},
                   "model.layers.3.conv.out_proj": False,
                   "model.layers.4.self_attn.out_proj": False}
    elif hasattr(model.layers[0], "mamba"):
        formats.update({"model.layers.0.mamba.in_proj": {"group_size": 32, "bits": 6},
                        "model.layers.1.mamba.out_proj": False})
    elif hasattr(getattr(model.layers[-1], "mlp", None), "shared_experts"):
        formats = {"model.layers.0.mlp.down_proj": {"group_size": 32, "bits": 6},
                   "model.layers.1.self_attn.embed_q": {"group_size": 32, "bits": 8},
                   "model.layers.2.self_attn.o_proj": False,
                   "model.layers.2.mlp.switch_mlp.up_proj": {"group_size": 32, "bits": 5}}
        paths = {path for path, _ in model.named_modules()}
        formats = {path: wanted for path, wanted in formats.items() if path in paths}
    of_model = getattr(model, "quant_predicate", None) or (lambda path, module: True)

    def choose(path, module):
        if not hasattr(module, "to_quantized"):
            return False
        wanted = formats.get(path, of_model(path, module))
        if module.weight.shape[-1] % common["group_size"] != 0:
            wanted = False
        if wanted is not True:
            formats[path] = wanted
        return wanted

    cast = getattr(model, "cast_predicate", lambda path: True)
    model.update(tree_map_with_path(
        lambda path, value: value.astype(mx.bfloat16)
        if cast(path) and mx.issubdtype(value.dtype, mx.floating) else value, model.parameters()))
    nn.quantize(model, group_size=32, bits=4, class_predicate=choose)
    # Experts of gpt-oss come quantized, and stay so.
    microscaled = {name.removesuffix(".scales") for name, value in tensors(model).items()
                   if name.endswith(".scales") and value.dtype == mx.uint8}
    formats.update({path: {"group_size": 32, "bits": 4, "mode": "mxfp4"} for path in microscaled})
    config["quantization"] = {**common, **formats}
    config["quantization_config"] = config["quantization"]
    if (config.get("rope_scaling") or {}).get("truncate") is False:
        config["rope_scaling"]["truncate"] = True  # mlx-lm always does
    weights = tensors(model)
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    save_config(config, folder / "config.json")

    # Computed in float32; scales and biases are widened first, as quantized matmuls do.
    reference, _ = load_model(source, model_config=aliases)
    decoded = {}
    for name, value in weights.items():
        path = name.removesuffix(".weight").removesuffix(".scales")
        if path in microscaled:
            decoded[name] = value
            continue
        if path + ".scales" in weights and name.endswith(".weight"):
            scales = weights[path + ".scales"].astype(mx.float32)
            biases = weights[path + ".biases"].astype(mx.float32)
            value = mx.dequantize(value, scales, biases, **(formats.get(path) or common))
        elif name.endswith((".scales", ".biases")):
            continue
        decoded[name] = value.astype(mx.float32)
    reference.load_weights(list(decoded.items()))
    reference.set_dtype(mx.float32)
    mx.random.seed(seed)
    tokens = mx.random.randint(0, 256, (48,)).tolist()
    logits = reference(mx.array([tokens]))[0]
    greedy, gaps, row = [], [], logits[-1]
    for _ in range(32):
        top = mx.sort(row)[-2:].tolist()
        greedy.append(int(mx.argmax(row)))
        gaps.append(round(top[1] - top[0], 5))
        row = reference(mx.array([tokens + greedy]))[0, -1]
    rounded = [round(x, 5) for x in logits.flatten().tolist()]
    # mlx-lm adds its epsilon to the mean of a delta net's keys, all others to the sum.
    tolerance = 2e-4 if "qwen3_5" in folder.name else 1e-4
    (folder / "golden.json").write_text(json.dumps({
        "format": "kvasir-model-golden/1", "name": folder.name,
        "source": f"mlx-lm {mlx_lm.__version__}, MLX {mx.__version__} (CPU)",
        "compute": "float32 (weights, scales and biases widened to float32); no cache", "seed": seed,
        "tokens": tokens,
        "logits": {"dtype": "f32", "shape": list(logits.shape), "decimals": 5, "data": rounded},
        "greedy": {"tokens": greedy, "top2_gap": gaps},
        "logits_after_greedy": [round(x, 5) for x in row.tolist()], "tolerance": tolerance},
        separators=(",", ":")))
    print(f"{folder.name}: smallest greedy gap {min(gaps)}")


if __name__ == "__main__":
    mx.set_default_device(mx.cpu)
    if sys.argv[1] == "weights":
        record_weights(sys.argv[2])
    else:
        record_model(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]), *map(int, sys.argv[4:]))
