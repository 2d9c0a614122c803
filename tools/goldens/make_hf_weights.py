#!/usr/bin/env python3
"""Records matrices as AWQ, GPTQ, compressed-tensors, fine-grained FP8 and ModelOpt store them.

  weights OUT.safetensors
      Modules "METHOD/NAME" with their parts, and METHOD/NAME.decoded: (code - zero) * scale in
      float32. METHOD is what quant_method says, "gptq_v2" GPTQ's second version. Codes, zeros and
      scales are random or edges: every code of E4M3 is there, NaN included.
  model SOURCE METHOD OUT
      The checkpoint folder SOURCE with random modules of METHOD (awq, gptq, compressed-tensors,
      fp8, modelopt) in place of its layers' matrices, and the logits of transformers with the
      decoded ones, in the format of testdata/models/README.md.

Needs torch and compressed-tensors, whose own compressors pack what is of that method, and whose
decompression is compared with what is recorded; "model" also transformers. Versions and seed are
recorded.
"""
import json
import pathlib
import sys

import compressed_tensors
import torch
from compressed_tensors.compressors.naive_quantized.base import NaiveQuantizationCompressor
from compressed_tensors.compressors.nvfp4.base import NVFP4PackedCompressor
from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from safetensors.torch import load_file, save_file

SEED = 27
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def stream(codes, bits):
    """Rows of codes as streams of bits, lowest first, in 32-bit words."""
    rows = []
    for row in codes.tolist():
        whole = sum(code << (bits * i) for i, code in enumerate(row))
        words = (len(row) * bits + 31) // 32
        rows.append([whole >> (32 * i) & 0xFFFFFFFF for i in range(words)])
    return torch.tensor(rows, dtype=torch.int64).to(torch.uint32).view(torch.int32)


class Recorder:
    def __init__(self, trained=False):
        """trained: weights of about 1/16, as a model has them, rather than of all magnitudes."""
        self.generator = torch.Generator().manual_seed(SEED)
        self.tensors = {}
        self.trained = trained

    def codes(self, shape, bits):
        return torch.randint(0, 1 << bits, shape, generator=self.generator)

    def scales(self, shape, dtype=torch.float16):
        return (torch.rand(shape, generator=self.generator) * 0.02 + 1e-4).to(dtype)

    def add(self, name, parts, decoded):
        assert decoded.dtype == torch.float32
        for part, tensor in parts.items():
            self.tensors[f"{name}.{part}"] = tensor.contiguous()
        self.tensors[f"{name}.decoded"] = decoded.contiguous()

    # codes [outputs, inputs], zeros and scales [outputs, groups]
    def integers(self, outputs, inputs, group, bits, dtype=torch.float16):
        groups = -(-inputs // group)
        codes = self.codes((outputs, inputs), bits)
        zeros = self.codes((outputs, groups), bits)
        return codes, zeros, self.scales((outputs, groups), dtype)

    @staticmethod
    def value(codes, zeros, scales, groups_of_inputs):
        return (codes - zeros[:, groups_of_inputs]) * scales.float()[:, groups_of_inputs]

    def awq(self, name, outputs, inputs, group, dtype=torch.float16):
        codes, zeros, scales = self.integers(outputs, inputs, group, 4, dtype)
        order = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])

        def packed(numbers):  # [rows, outputs], eight outputs a word
            return stream(numbers.reshape(-1, 8)[:, order], 4).reshape(numbers.shape[0], -1)

        self.add(f"awq/{name}", {
            "qweight": packed(codes.T), "qzeros": packed(zeros.T), "scales": scales.T,
        }, self.value(codes, zeros, scales, torch.arange(inputs) // group))

    def gptq(self, name, outputs, inputs, group, bits, version=1, g_idx="regular"):
        codes, zeros, scales = self.integers(outputs, inputs, group, bits)
        groups_of_inputs = torch.arange(inputs) // group
        if g_idx == "shuffled":
            groups_of_inputs = groups_of_inputs[torch.randperm(inputs, generator=self.generator)]
        # GPTQModel takes the first version's 1 from all fields of a word at once, of three bits, which
        # go over the ends of words, from each.
        if version == 1 and bits == 3:
            zeros_stored = stream((zeros.T - 1) & 7, bits)
        else:
            ones = 0xFFFFFFFF // ((1 << bits) - 1) if version == 1 else 0
            words = stream(zeros.T, bits).view(torch.uint32).to(torch.int64) - ones
            zeros_stored = (words & 0xFFFFFFFF).to(torch.uint32).view(torch.int32)
        parts = {"qweight": stream(codes, bits).T, "qzeros": zeros_stored, "scales": scales.T}
        if g_idx != "none":
            parts["g_idx"] = groups_of_inputs.to(torch.int32)
        method = "gptq" if version == 1 else "gptq_v2"
        self.add(f"{method}/{name}", parts, self.value(codes, zeros, scales, groups_of_inputs))

    def packed_integers(self, name, outputs, inputs, bits, dtype, symmetric, group=None,
                        shuffled=False):
        size = group or inputs
        codes, zeros, scales = self.integers(outputs, inputs, size, bits, dtype)
        half = 1 << (bits - 1)
        if symmetric:
            zeros = torch.full_like(zeros, half)
        groups_of_inputs = torch.arange(inputs) // size
        state = {"weight_scale": scales}
        if shuffled:
            groups_of_inputs = groups_of_inputs[torch.randperm(inputs, generator=self.generator)]
            state["weight_g_idx"] = groups_of_inputs.to(torch.int32)
        value = self.value(codes, zeros, scales, groups_of_inputs)
        arguments = QuantizationArgs(num_bits=bits, type="int", symmetric=symmetric,
                                     strategy="group" if group else "channel", group_size=group)
        scheme = QuantizationScheme(targets=["Linear"], weights=arguments)
        if shuffled:  # codes are what matters, not how the library comes to them
            ordered = self.value(codes, zeros, scales, torch.arange(inputs) // size)
        else:
            ordered = value
        state["weight"] = ordered
        state["weight_zero_point"] = (zeros - half).to(torch.int8)
        stored = PackedQuantizationCompressor.compress(state, scheme)
        if not shuffled:
            back = PackedQuantizationCompressor.decompress(stored, scheme)["weight"]
            assert torch.equal(back, value.to(dtype)), name
        self.add(f"compressed-tensors/{name}",
                 {part: tensor for part, tensor in stored.items() if tensor is not None}, value)

    def bytes(self, name, outputs, inputs, dtype, per_channel=True, symmetric=True):
        codes = self.codes((outputs, inputs), 8) - 128
        shape = (outputs, 1) if per_channel else (1,)
        scales = self.scales(shape, dtype) / (16 if self.trained else 1)
        zeros = torch.zeros(shape, dtype=torch.int64)
        parts = {"weight": codes.to(torch.int8), "weight_scale": scales}
        if not symmetric:
            zeros = self.codes(shape, 8) - 128
            parts["weight_zero_point"] = zeros.to(torch.int8)
        self.add(f"compressed-tensors/{name}", parts, (codes - zeros) * scales.float())

    def e4m3(self, outputs, inputs, has_nan=False):
        codes = self.codes((outputs, inputs), 8)
        if self.trained:
            codes = codes & 0xBF  # below 2
        if has_nan:
            codes.view(-1)[:256] = torch.arange(256)
        else:
            codes = torch.where(codes & 127 == 127, codes - 1, codes)
        return codes.to(torch.uint8).view(torch.float8_e4m3fn)

    def fp8(self, name, outputs, inputs, scale_shape, block, dtype=torch.float32, has_nan=False,
            part="weight_scale"):
        weight = self.e4m3(outputs, inputs, has_nan)
        if dtype == torch.float8_e8m0fnu:
            scales = torch.randint(100, 130, scale_shape, generator=self.generator)
            scales = scales.to(torch.uint8).view(dtype)
        else:
            scales = self.scales(scale_shape, dtype) * (16 if self.trained else 1)
        grid = scales.float().reshape(-(-outputs // block[0]), -(-inputs // block[1]))
        spread = grid.repeat_interleave(block[0], 0)[:outputs]
        spread = spread.repeat_interleave(block[1], 1)[:, :inputs]
        self.add(name, {"weight": weight, part: scales}, weight.float() * spread)

    def nvfp4(self, name, outputs, inputs, method, divisor=None):
        codes = self.codes((outputs, inputs), 4)
        scales = self.e4m3(outputs, inputs // 16).float().abs().to(torch.float8_e4m3fn)
        weight = (codes[:, 0::2] | codes[:, 1::2] << 4).to(torch.uint8)
        values = E2M1[codes] * scales.float().repeat_interleave(16, 1)
        if method == "modelopt":
            scale = torch.tensor(0.06 if self.trained else 3e-5)
            parts = {"weight": weight, "weight_scale": scales, "weight_scale_2": scale,
                     "input_scale": torch.tensor(0.5)}
            decoded = values * scale
        else:
            scale = torch.tensor([divisor or (16.0 if self.trained else 4096.0)])
            arguments = QuantizationArgs(num_bits=4, type="float", symmetric=True,
                                         strategy="tensor_group", group_size=16)
            scheme = QuantizationScheme(targets=["Linear"], weights=arguments)
            parts = {"weight_packed": weight, "weight_scale": scales,
                     "weight_global_scale": scale, "input_global_scale": torch.tensor([7.0])}
            decoded = values * (1 / scale)
            if divisor is None:  # a power of two: exact, however it is divided
                back = NVFP4PackedCompressor.decompress(dict(parts), scheme)["weight"]
                assert torch.equal(back.float(), decoded.to(back.dtype).float()), name
        self.add(f"{method}/{name}", parts, decoded)

    def microscaled(self, name, outputs, inputs, bits):
        scales = torch.randint(100, 130, (outputs, inputs // 32), generator=self.generator)
        spread = (2.0 ** (scales - 127).float()).repeat_interleave(32, 1)
        parts = {"weight_scale": scales.to(torch.uint8)}
        if bits == 8:
            parts["weight"] = self.e4m3(outputs, inputs)
            values = parts["weight"].float()
        else:
            codes = self.codes((outputs, inputs), 4)
            parts["weight_packed"] = (codes[:, 0::2] | codes[:, 1::2] << 4).to(torch.uint8)
            values = E2M1[codes]
        self.add(f"compressed-tensors/{name}", parts, values * spread)


def record_weights(path):
    r = Recorder()
    r.awq("groups_of_128", 24, 256, 128)
    r.awq("groups_of_32", 16, 96, 32)
    r.awq("one_group", 8, 160, 160)
    r.awq("bf16", 8, 64, 64, torch.bfloat16)
    for bits in (2, 3, 4, 8):
        r.gptq(f"{bits}_bits", 32 if bits == 3 else 16, 256, 128, bits)
        r.gptq(f"{bits}_bits", 32, 128, 32, bits, version=2, g_idx="none")
    r.gptq("one_group", 32, 192, 192, 4)
    r.gptq("short_last_of_128", 32, 160, 128, 4)
    r.gptq("short_last_of_128", 32, 288, 128, 2, version=2, g_idx="none")
    r.gptq("shuffled", 32, 128, 32, 4, g_idx="shuffled")
    for bits in range(1, 9):
        r.packed_integers(f"{bits}_bits", 24, 128, bits, torch.bfloat16, True, group=32)
        r.packed_integers(f"{bits}_bits_zeros", 24, 128, bits, torch.float16, False, group=64)
    r.packed_integers("channels", 8, 160, 4, torch.bfloat16, True)
    r.packed_integers("channels_zeros", 8, 96, 8, torch.float32, False)
    r.packed_integers("shuffled", 8, 128, 4, torch.bfloat16, False, group=32, shuffled=True)
    r.packed_integers("no_multiple", 8, 72, 4, torch.float16, True, group=8)
    r.packed_integers("groups_of_96", 24, 192, 4, torch.bfloat16, False, group=96)
    r.bytes("bytes", 8, 160, torch.bfloat16)
    r.bytes("bytes_f32", 8, 64, torch.float32)
    r.bytes("bytes_of_all", 8, 64, torch.float16, per_channel=False)
    r.bytes("bytes_zeros", 8, 64, torch.float16, symmetric=False)
    r.fp8("fp8/blocks", 144, 160, (2, 2), (128, 128), part="weight_scale_inv")
    r.fp8("fp8/bf16_blocks", 16, 256, (1, 2), (128, 128), torch.bfloat16, part="weight_scale_inv")
    r.fp8("fp8/e8m0_blocks", 132, 32, (2, 1), (128, 128), torch.float8_e8m0fnu,
          part="weight_scale_inv")
    r.fp8("fp8/nan", 4, 512, (1, 4), (128, 128), has_nan=True, part="weight_scale_inv")
    r.fp8("compressed-tensors/fp8_of_all", 8, 96, (1,), (8, 96))
    r.fp8("compressed-tensors/fp8_channels", 8, 160, (8, 1), (1, 160), torch.bfloat16)
    r.fp8("compressed-tensors/fp8_groups", 8, 128, (8, 4), (1, 32))
    r.fp8("fbgemm_fp8/channels", 8, 96, (8, 1), (1, 96))
    r.fp8("modelopt/fp8", 8, 64, (), (8, 64))
    r.fp8("modelopt/fp8_channels", 8, 64, (8,), (1, 64))
    r.fp8("modelopt/fp8_blocks", 136, 160, (2, 1, 2, 1), (128, 128))
    r.nvfp4("nvfp4", 8, 128, "modelopt")
    r.nvfp4("nvfp4", 8, 128, "compressed-tensors")
    r.nvfp4("nvfp4_odd", 8, 128, "compressed-tensors", 2687.0)
    r.microscaled("mxfp4", 8, 128, 4)
    r.microscaled("mxfp8", 8, 128, 8)
    r.fp8("fp8/mxfp8", 8, 64, (8, 2), (1, 32), torch.float8_e8m0fnu, part="weight_scale_inv")
    save_file(r.tensors, path, metadata={"source": versions(), "seed": str(SEED)})


def versions():
    return f"torch {torch.__version__}, compressed-tensors {compressed_tensors.__version__}"


# How to record the matrices of a model, one after the other, and what its config.json says.
def layouts(r, method):
    if method == "awq":
        return [lambda *a: r.awq(*a, 32)], {"bits": 4, "group_size": 32, "version": "gemm",
                                            "zero_point": True}
    if method == "gptq":
        return ([lambda *a: r.gptq(*a, 32, 4), lambda *a: r.gptq(*a, 32, 4, g_idx="shuffled"),
                 lambda *a: r.gptq(*a, 32, 8)],
                {"bits": 4, "group_size": 32, "desc_act": True, "sym": False})
    if method == "compressed-tensors":
        return ([lambda *a: r.packed_integers(*a, 4, torch.bfloat16, True, group=32),
                 lambda *a: r.packed_integers(*a, 4, torch.bfloat16, False, group=32),
                 lambda *a: r.bytes(*a, torch.bfloat16),
                 lambda n, o, i: r.fp8(f"{method}/{n}", o, i, (o, 1), (1, i), torch.bfloat16),
                 lambda *a: r.nvfp4(*a, method), lambda *a: r.microscaled(*a, 4)],
                {"format": "mixed-precision", "quantization_status": "compressed"})
    if method == "fp8":
        return ([lambda n, o, i: r.fp8(f"{method}/{n}", o, i, (-(-o // 32), -(-i // 128)),
                                       (32, 128), part="weight_scale_inv")],
                {"activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [32, 128]})
    return ([lambda *a: r.nvfp4(*a, method),
             lambda n, o, i: r.fp8(f"{method}/{n}", o, i, (), (o, i))],
            {"quant_algo": "MIXED_PRECISION"})


def record_model(source, method, folder):
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    r = Recorder(trained=True)
    ways, quantization = layouts(r, method)
    weights = load_file(source / "model.safetensors")
    stored, decoded = {}, {}
    for number, (name, weight) in enumerate(sorted(weights.items())):
        is_matrix = ".layers." in name and weight.dim() == 2
        decoded[name] = weight.float()
        if not is_matrix:
            stored[name] = weight.to(torch.bfloat16)
            decoded[name] = stored[name].float()
            continue
        module = name.removesuffix(".weight")
        before = set(r.tensors)
        ways[number % len(ways)](module, *weight.shape)
        for key in set(r.tensors) - before:
            part = key.split("/", 1)[1]
            if part.endswith(".decoded"):
                decoded[name] = r.tensors[key]
            else:
                stored[part] = r.tensors[key]
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((source / "config.json").read_text())
    config["torch_dtype"] = "bfloat16"
    config["quantization_config"] = {"quant_method": method, **quantization}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")

    model = transformers.AutoModelForCausalLM.from_pretrained(
        source, dtype=torch.float32, attn_implementation="eager").eval()
    missing = model.load_state_dict(decoded, strict=False)
    assert not missing.unexpected_keys and set(missing.missing_keys) <= {"lm_head.weight"}
    model.tie_weights()
    tokens = torch.randint(0, 256, (48,), generator=torch.Generator().manual_seed(SEED)).tolist()
    greedy, gaps = [], []
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits[0]
        row = logits[-1]
        for _ in range(32):
            top = row.topk(2).values.tolist()
            greedy.append(int(row.argmax()))
            gaps.append(round(top[0] - top[1], 5))
            row = model(torch.tensor([tokens + greedy])).logits[0, -1]
    positions = [0, 1, 7, 23, 46, 47]
    rounded = [round(x, 5) for x in logits[positions].flatten().tolist()]
    (folder / "golden.json").write_text(json.dumps({
        "format": "kvasir-model-golden/1", "name": folder.name,
        "source": f"transformers {transformers.__version__}, {versions()} (CPU)",
        "compute": "float32 with the decoded weights; no cache", "seed": SEED, "tokens": tokens,
        "logit_positions": positions,
        "logits": {"dtype": "f32", "shape": [len(positions), logits.shape[1]], "decimals": 5,
                   "data": rounded},
        "greedy": {"tokens": greedy, "top2_gap": gaps},
        "logits_after_greedy": [round(x, 5) for x in row.tolist()], "tolerance": 1e-4},
        separators=(",", ":")))
    print(f"{folder.name}: smallest greedy gap {min(gaps)}")


if __name__ == "__main__":
    if sys.argv[1] == "weights":
        record_weights(sys.argv[2])
    else:
        record_model(pathlib.Path(sys.argv[2]), sys.argv[3], pathlib.Path(sys.argv[4]))
