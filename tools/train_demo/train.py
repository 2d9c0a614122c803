"""Trains a demo model: python train.py --preset cpu-small --tokenizer ../../models/kvasir-demo/tokenizer.json --out run-main

Every row is a function of (seed, step, row), so a run can be stopped and resumed from its checkpoint and sees the same data.
The learning rate is warm-up, constant, then linear decay to zero (WSD) over the last `decay` share of the steps.
"""
import argparse
import json
import os
import pathlib
import random
import time

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

from data import Encoder, Gen
from model import Config, Gemma3

# stages: (steps, [(rows, tokens per row), ...]); a step draws one of the shapes.
PRESETS = {
    # one CPU core with AVX512-BF16
    "cpu-small": dict(config=Config(), muon_lr=0.02, adam_lr=0.003, decay=0.25, stages=[
        (2000, [(16, 256)]), (500, [(8, 512), (16, 256), (8, 512)]), (1200, [(4, 1024), (4, 1024), (8, 512)]),
        (1400, [(2, 2048), (1, 4096), (2, 2048), (1, 4096), (8, 512)]), (500, [(16, 256), (8, 512), (16, 256), (1, 4096), (2, 2048)])]),
    "cpu-draft": dict(config=Config(hidden=128, mlp=384, layers=3, heads=2, kv_heads=1, pattern=3), muon_lr=0.02, adam_lr=0.004, decay=0.3,
                      stages=[(3000, [(16, 256)]), (800, [(8, 512)]), (1400, [(4, 1024), (8, 512), (4, 1024), (2, 2048), (16, 256)])]),
    # an accelerator: the size the demo model is meant to have
    "gpu": dict(config=Config(hidden=384, mlp=1024, layers=6, heads=6, kv_heads=2), muon_lr=0.02, adam_lr=0.003, decay=0.3, stages=[
        (4000, [(256, 256)]), (2000, [(128, 512)]), (1500, [(64, 1024)]), (2500, [(32, 2048), (16, 4096), (128, 512)])]),
    "gpu-draft": dict(config=Config(hidden=128, mlp=384, layers=3, heads=2, kv_heads=1, pattern=3), muon_lr=0.02, adam_lr=0.004, decay=0.3, stages=[
        (4000, [(256, 256)]), (1500, [(128, 512)]), (1000, [(64, 1024)]), (1500, [(32, 2048), (16, 4096), (128, 512)])]),
}
LANGUAGE_SHARE = 0.12  # of the tokens that are not answers, how many are in the loss

SHARPNESS_LR = 6.0  # learning rate of the q_norm and k_norm gains, as a multiple of adam_lr


class Muon(torch.optim.Optimizer):
    """Momentum, then the nearest orthogonal matrix by five Newton-Schulz steps (Jordan et al. 2024)."""

    def __init__(self, params, lr, momentum=0.95, weight_decay=0.01):
        super().__init__(params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay))

    @staticmethod
    def orthogonal(g):
        x = g.to(torch.bfloat16)
        x = x / (x.norm() + 1e-7)
        tall = x.shape[0] > x.shape[1]
        x = x.T if tall else x
        for _ in range(5):
            s = x @ x.T
            x = 3.4445 * x + (-4.7750 * s + 2.0315 * (s @ s)) @ x
        return (x.T if tall else x).float()

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["momentum"] = torch.zeros_like(p)
                m = state["momentum"]
                m.mul_(group["momentum"]).add_(p.grad)
                update = self.orthogonal(p.grad + group["momentum"] * m)
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(update, alpha=-group["lr"] * max(1, p.shape[0] / p.shape[1]) ** 0.5)


def schedule(step, total, warmup=100, decay=0.25):
    return min(1.0, (step + 1) / warmup, (total - step) / (decay * total))


def batch(encoder, seed, step, shapes):
    r = random.Random(f"shape/{seed}/{step}")
    rows, length = shapes[r.randrange(len(shapes))]
    made = [encoder.row(Gen(f"train/{seed}/{step}/{i}"), length) for i in range(rows)]
    tokens = torch.tensor([t for t, _ in made])
    answer = torch.tensor([f for _, f in made])
    g = torch.Generator().manual_seed(seed * 1000003 + step)
    chosen = answer[:, 1:].bool() | (torch.rand(rows, length, generator=g) < LANGUAGE_SHARE)
    return tokens, answer[:, 1:].bool(), chosen


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--preset", choices=PRESETS, default="cpu-small")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stages", help="JSON, replaces the preset's stages")
    parser.add_argument("--ema", type=float, default=0.998)
    parser.add_argument("--save-every", type=int, default=250)
    parser.add_argument("--no-compile", action="store_true")
    args = parser.parse_args()
    preset = PRESETS[args.preset]
    device = args.device if args.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    stages = json.loads(args.stages) if args.stages else preset["stages"]
    total = sum(n for n, _ in stages)
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)

    torch.manual_seed(args.seed)
    model = Gemma3(preset["config"]).to(device)
    encoder = Encoder(Tokenizer.from_file(args.tokenizer))
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    # The gains of q_norm and k_norm bound how sharp attention can be; long contexts need them to grow quickly.
    sharpness = [p for n, p in model.named_parameters() if "q_norm" in n or "k_norm" in n]
    others = [p for n, p in model.named_parameters() if (p.ndim < 2 or "embed" in n) and "q_norm" not in n and "k_norm" not in n]
    muon = Muon(matrices, preset["muon_lr"])
    adam = torch.optim.AdamW([dict(params=others, scale=1.0), dict(params=sharpness, scale=SHARPNESS_LR)], lr=preset["adam_lr"],
                             betas=(0.9, 0.95), weight_decay=0.0)
    ema = {n: p.detach().clone() for n, p in model.named_parameters()}
    first = 0
    if (out / "state.pt").exists():
        state = torch.load(out / "state.pt", map_location=device)
        model.load_state_dict(state["model"])
        muon.load_state_dict(state["muon"])
        adam.load_state_dict(state["adam"])
        ema, first = state["ema"], state["step"]
    states = model.hidden_states if args.no_compile else torch.compile(model.hidden_states, dynamic=False)
    print(f"{sum(p.numel() for p in model.parameters())} parameters, {device}, steps {first}..{total}", flush=True)

    seen, began, logged = 0, time.time(), []
    for step in range(first, total):
        at = step
        for count, shapes in stages:
            if at < count:
                break
            at -= count
        tokens, answer, chosen = (t.to(device) for t in batch(encoder, args.seed, step, shapes))
        with torch.autocast(device, torch.bfloat16):
            hidden = states(tokens[:, :-1])
            logits = model.logits(hidden[chosen])
        losses = F.cross_entropy(logits.float(), tokens[:, 1:][chosen], reduction="none")
        loss = losses.mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(others + sharpness, 1.0)
        factor = schedule(step, total, decay=preset["decay"])
        for optimizer, lr in ((muon, preset["muon_lr"]), (adam, preset["adam_lr"])):
            for group in optimizer.param_groups:
                group["lr"] = lr * factor * group.get("scale", 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        keep = min(args.ema, (step + 1) / (step + 10))
        with torch.no_grad():
            for n, p in model.named_parameters():
                ema[n].lerp_(p, 1 - keep)
        seen += tokens.shape[0] * (tokens.shape[1] - 1)
        is_answer = answer[chosen]
        right = (logits.argmax(-1) == tokens[:, 1:][chosen])[is_answer].float().mean()
        logged.append((loss.item(), losses[is_answer].mean().item(), right.item()))
        if (step + 1) % 25 == 0:
            mean = [sum(x) / len(x) for x in zip(*logged)]
            print(f"step {step + 1} rows {tuple(tokens.shape)} loss {mean[0]:.4f} answer {mean[1]:.4f} right {mean[2]:.4f} "
                  f"lr {factor:.3f} tokens {seen} tok/s {seen / (time.time() - began):.0f} t {time.time() - began:.0f}", flush=True)
            logged = []
        if (step + 1) % args.save_every == 0 or step + 1 == total:
            torch.save(dict(model=model.state_dict(), muon=muon.state_dict(), adam=adam.state_dict(), ema=ema,
                            step=step + 1), out / "state.tmp")
            os.replace(out / "state.tmp", out / "state.pt")


if __name__ == "__main__":
    main()
