#!/usr/bin/env python3
"""Writes the prompt caches in testdata/mlx_prompt_caches with mlx-lm itself.

    pip install mlx-lm==VERSION 'mlx[cpu]'
    make_mlx_prompt_caches.py OUTPUT_FOLDER PREFIX

Every number is made by `row`, which the tests repeat, and which every element type holds exactly.
The committed files: prefix "meta" with mlx-lm 0.31.1 (state beside meta_state), prefix "scalars"
with mlx-lm 0.32.2 (numbers among the arrays), both with mlx 0.32.4 on a CPU.
"""
import sys

import mlx.core as mx
from mlx_lm.models.cache import (KVCache, QuantizedKVCache, RotatingKVCache, load_prompt_cache,
                                 save_prompt_cache)


def row(layer, value, position, head, dim):
    """One element: a multiple of 1/8 from -8 to 7.875."""
    return ((layer * 5 + value * 11 + position * 7 + head * 3 + dim * 13) % 127 - 64) / 8


def rows(layer, value, begin, end, heads, dims, dtype):
    return mx.array([[[[row(layer, value, p, h, d) for d in range(dims)]
                       for p in range(begin, end)] for h in range(heads)]], dtype=dtype)


def feed(cache, layer, chunks, heads, dims, dtype):
    begin = 0
    for chunk in chunks:
        end = begin + chunk
        cache.update_and_fetch(rows(layer, 0, begin, end, heads, dims, dtype),
                               rows(layer, 1, begin, end, heads, dims, dtype))
        begin = end


def mixed(dtype):
    """Four layers at offset 70: all rows, a window after decoding, one with kept rows, one whose
    last step was a chunk (so that its buffer is longer than the window)."""
    caches = [KVCache(), RotatingKVCache(24), RotatingKVCache(24, keep=4), RotatingKVCache(24)]
    decoded = [40] + [1] * 30
    for layer, (cache, chunks) in enumerate(zip(caches, [decoded] * 3 + [[40, 30]])):
        feed(cache, layer, chunks, 2, 8, dtype)
    return caches


def young():
    """Windows that are not full yet, at offset 10."""
    caches = [RotatingKVCache(24), RotatingKVCache(24, keep=4)]
    for layer, cache in enumerate(caches):
        feed(cache, layer, [6, 1, 1, 1, 1], 1, 8, mx.float16)
    return caches


def quantized():
    caches = [QuantizedKVCache(32, 4), QuantizedKVCache(64, 8), QuantizedKVCache(32, 3)]
    for layer, (cache, dtype) in enumerate(zip(caches, [mx.float16, mx.bfloat16, mx.float32])):
        feed(cache, layer, [20, 1, 1], 1, 64, dtype)
    return caches


def main():
    folder, prefix = sys.argv[1:]
    metadata = {"model": "made-up", "tokenizer_config": "{}"}
    for name, caches in [("mixed_f32", mixed(mx.float32)), ("mixed_bf16", mixed(mx.bfloat16)),
                         ("young_f16", young()), ("quantized", quantized())]:
        path = f"{folder}/{prefix}_{name}.safetensors"
        save_prompt_cache(path, caches, metadata)
        load_prompt_cache(path)


if __name__ == "__main__":
    main()
