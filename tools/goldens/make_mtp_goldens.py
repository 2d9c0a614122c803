#!/usr/bin/env python3
"""Records what the layers for multi-token prediction of tiny checkpoints draft.

Folders of Qwen3.5 in testdata/models get random tensors "mtp.*" beside their own, which stay as
they are; GLM's have their layer behind the last one already ("model.layers.N.*") and are only read.
Each gets golden_mtp.json ("kvasir-mtp-golden/1"). transformers drops these layers, so what
surrounds them is written here as vLLM's qwen3_next_mtp.py and SGLang's glm4_moe_nextn.py have it,
with transformers' own decoder layer within:

    x = fc([norm_e(embed(token of S + 1)) ; norm_h(state of S, behind the final norm)])
    state' = norm(layer(x)), logits = lm_head(state') of the token of S + 2

at position S, causally over all slots. A chain goes on with the pair of its guess and state'.
GLM's layer comes with embed_tokens and shared_head.head, which are copies of the model's by
definition: the model's are used, and these not read. Its norms of latents have rms_norm_eps here,
as the other norms do; transformers' classes have 1e-6 whatever the config says.
Everything is computed in float32; bf16 weights are widened first, which is exact.

Usage: make_mtp_goldens.py MODELS_FOLDER [NAME...]     (needs torch, transformers, safetensors)
"""
import json
import pathlib
import sys

import safetensors.torch
import torch
import transformers
from transformers.models.glm4_moe import modeling_glm4_moe as glm
from transformers.models.glm4_moe_lite import modeling_glm4_moe_lite as glm_lite
from transformers.models.qwen3_5 import modeling_qwen3_5 as dense
from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe as moe
from transformers.models.qwen3_next import modeling_qwen3_next as next_

TOKENS = 40
DRAFTS = 5

# name: (seed, prefix of the text model's tensors)
CASES = {
    "transformers_qwen3_5_bf16": (91, "model."),
    "transformers_qwen3_5_wrapped_bf16": (92, "model.language_model."),
    "transformers_qwen3_5_moe_bf16": (93, "model."),
    "transformers_qwen3_5_moe_wrapped_bf16": (94, "model.language_model."),
    "transformers_qwen3_next_bf16": (95, "model."),
    "transformers_glm4_moe_lite_bf16": (96, "model."),
    "transformers_glm4_moe_bf16": (97, "model."),
}

# GLM's names for what is "mtp." elsewhere; all others are of the decoder layer.
GLM_NAMES = {
    "enorm.weight": "pre_fc_norm_embedding.weight",
    "hnorm.weight": "pre_fc_norm_hidden.weight",
    "eh_proj.weight": "fc.weight",
    "shared_head.norm.weight": "norm.weight",
}
GLM_COPIES = ("embed_tokens.weight", "shared_head.head.weight")


def text_config(folder, more_layers=0):
    config = json.loads((folder / "config.json").read_text())
    config = config.get("text_config", config)
    config["num_hidden_layers"] += more_layers
    of, module, family = {
        "qwen3_5_text": (transformers.Qwen3_5TextConfig, dense, "Qwen3_5"),
        "qwen3_5_moe_text": (transformers.Qwen3_5MoeTextConfig, moe, "Qwen3_5Moe"),
        "qwen3_next": (transformers.Qwen3NextConfig, next_, "Qwen3Next"),
        "glm4_moe": (transformers.Glm4MoeConfig, glm, "Glm4Moe"),
        "glm4_moe_lite": (transformers.Glm4MoeLiteConfig, glm_lite, "Glm4MoeLite"),
    }[config["model_type"]]
    made = of(**config)
    made._attn_implementation = "eager"
    return made, module, family


def stacked(tensors):
    """Experts as transformers has them: in one tensor."""
    experts = sorted({name.split(".experts.")[0] for name in tensors
                      if ".experts." in name and name.endswith("gate_proj.weight")})
    for prefix in experts:
        prefix += ".experts."
        count = sum(name.startswith(prefix) and name.endswith(".gate_proj.weight") for name in tensors)
        of = lambda e, part: tensors.pop(f"{prefix}{e}.{part}_proj.weight")
        tensors[prefix + "gate_up_proj"] = torch.stack(
            [torch.cat([of(e, "gate"), of(e, "up")]) for e in range(count)])
        tensors[prefix + "down_proj"] = torch.stack([of(e, "down") for e in range(count)])
    return tensors


def random_layer(config, module, family, generator):
    """The tensors of "mtp.", in bf16, with one tensor for each part of an expert as published."""
    hidden = config.hidden_size
    # The last of them: of Qwen3-Next it has experts.
    full = max(i for i, kind in enumerate(config.layer_types) if kind == "full_attention")
    layer = getattr(module, family + "DecoderLayer")(config, full)
    shapes = {"fc.weight": (hidden, 2 * hidden), "norm.weight": (hidden,),
              "pre_fc_norm_embedding.weight": (hidden,), "pre_fc_norm_hidden.weight": (hidden,)}
    for name, tensor in layer.state_dict().items():
        if name.endswith("experts.gate_up_proj"):
            for e in range(tensor.shape[0]):
                for part in ("gate", "up"):
                    shapes[f"layers.0.mlp.experts.{e}.{part}_proj.weight"] = (
                        tensor.shape[1] // 2, tensor.shape[2])
        elif name.endswith("experts.down_proj"):
            for e in range(tensor.shape[0]):
                shapes[f"layers.0.mlp.experts.{e}.down_proj.weight"] = tuple(tensor.shape[1:])
        else:
            shapes["layers.0." + name] = tuple(tensor.shape)
    tensors = {}
    for name in sorted(shapes):
        noise = torch.randn(shapes[name], generator=generator)
        scale = 0.2 if len(shapes[name]) == 1 else shapes[name][-1] ** -0.5
        tensors["mtp." + name] = (noise * scale).to(torch.bfloat16)
    return layer, tensors


def stored_layer(folder, stored):
    """GLM's layer behind the last one, taken out of `stored`, with the names of "mtp."."""
    config, module, family = text_config(folder, more_layers=1)
    index = config.num_hidden_layers - 1
    layer = getattr(module, family + "DecoderLayer")(config, index)
    prefix = f"model.layers.{index}."
    tensors = {}
    for name in [n for n in stored if n.startswith(prefix)]:
        tensor, name = stored.pop(name), name.removeprefix(prefix)
        if name not in GLM_COPIES:
            tensors["mtp." + GLM_NAMES.get(name, "layers.0." + name)] = tensor
    return layer, tensors


def set_latent_eps(module, eps):
    for name, norm in module.named_modules():
        if name.endswith(("q_a_layernorm", "kv_a_layernorm")):
            norm.variance_epsilon = eps


class Head:
    def __init__(self, config, module, family, layer, tensors, embed, lm_head):
        wide = stacked({name.removeprefix("mtp."): tensor.float() for name, tensor in tensors.items()})
        self.layer = layer.eval().float()
        self.layer.load_state_dict({name.removeprefix("layers.0."): tensor
                                    for name, tensor in wide.items() if name.startswith("layers.0.")})
        self.norms = {}
        for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
            norm = getattr(module, family + "RMSNorm")(config.hidden_size, eps=config.rms_norm_eps)
            norm.weight.data = wide[name + ".weight"]
            self.norms[name] = norm
        self.fc = wide["fc.weight"]
        self.is_text_only = not hasattr(module, family + "TextRotaryEmbedding")
        self.rotary = getattr(module, family + (
            "RotaryEmbedding" if self.is_text_only else "TextRotaryEmbedding"))(config)
        self.embed, self.lm_head = embed, lm_head

    def __call__(self, tokens, states):
        """Of all pairs: states [n, hidden] behind the norm, and logits."""
        x = torch.cat([self.norms["pre_fc_norm_embedding"](self.embed(torch.tensor(tokens))),
                       self.norms["pre_fc_norm_hidden"](states)], dim=-1) @ self.fc.T
        n = len(tokens)
        positions = torch.arange(n)
        mask = torch.full((n, n), torch.finfo(torch.float32).min).triu(1)[None, None]
        # Text stands at the same place in all three directions.
        angles = self.rotary(x[None], positions[None] if self.is_text_only
                             else positions[None, None].expand(3, 1, n))
        out = self.layer(x[None], position_embeddings=angles, attention_mask=mask,
                         position_ids=positions[None])
        out = out[0] if isinstance(out, tuple) else out
        new = self.norms["norm"](out[0])
        return new, self.lm_head(new)


def record(name, folder):
    seed, prefix = CASES[name]
    generator = torch.Generator().manual_seed(seed)
    config, module, family = text_config(folder)
    path = folder / "model.safetensors"
    stored = {n: t for n, t in safetensors.torch.load_file(path).items() if not n.startswith("mtp.")}
    with torch.no_grad():
        if family.startswith("Glm"):
            layer, tensors = stored_layer(folder, stored)
        else:
            layer, tensors = random_layer(config, module, family, generator)
            safetensors.torch.save_file({**stored, **tensors}, path, metadata={"format": "pt"})
        model = getattr(module, family + "ForCausalLM")(config).eval().float()
        own = stacked({n.replace(prefix, "model.", 1): t.float() for n, t in stored.items()
                       if ".visual." not in n})
        missing, unexpected = model.load_state_dict(own, strict=False)
        assert set(missing) <= {"lm_head.weight"} and not unexpected, (missing, unexpected)
        model.tie_weights()
        for part in (model, layer):
            set_latent_eps(part, config.rms_norm_eps)
        tokens = torch.randint(0, config.vocab_size, (TOKENS,), generator=generator).tolist()
        states = model.model(torch.tensor([tokens])).last_hidden_state[0]
        head = Head(config, module, family, layer, tensors, model.get_input_embeddings(),
                    model.get_output_embeddings())
        chain_tokens, chain_states = tokens[1:], states[:-1]
        slots = head(chain_tokens, chain_states)[1]
        drafts, rows, gaps = [], [], []
        for _ in range(DRAFTS):
            new, logits = head(chain_tokens, chain_states)
            top = torch.topk(logits[-1], 2)
            drafts.append(int(top.indices[0]))
            gaps.append(round(float(top.values[0] - top.values[1]), 5))
            rows.append(logits[-1])
            chain_tokens = chain_tokens + [drafts[-1]]
            chain_states = torch.cat([chain_states, new[-1:]])
    rounded = lambda tensor: [round(float(x), 5) for x in tensor.flatten()]
    golden = {
        "format": "kvasir-mtp-golden/1", "name": name, "seed": seed,
        "source": f"transformers {transformers.__version__}, torch {torch.__version__} (CPU)",
        "tokens": tokens, "slot_logits": rounded(slots[[0, 1, 17]]), "slots": [0, 1, 17],
        "drafts": drafts, "draft_logits": rounded(torch.stack(rows)), "top2_gap": gaps,
        "tolerance": 1e-4}
    (folder / "golden_mtp.json").write_text(json.dumps(golden, separators=(",", ":")))
    print(f"{name}: std {float(slots.std()):.3f}, smallest gap {min(gaps)}")


def main():
    models = pathlib.Path(sys.argv[1])
    for name in sys.argv[2:] or CASES:
        record(name, models / name)


if __name__ == "__main__":
    main()
