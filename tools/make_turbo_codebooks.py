#!/usr/bin/env python3
"""Prints kvasir/tensor/turbo_codebooks.inc: the exact scalar codebooks of the turbo codec.

    tools/make_turbo_codebooks.py > kvasir/tensor/turbo_codebooks.inc

A coordinate of a uniformly random unit vector of d elements has the density
f(t) ~ (1 - t^2)^((d - 3) / 2) on [-1, 1]. For each d the Lloyd-Max quantizer of f (thresholds
halfway between levels, levels at the means of their cells) is iterated until no level moves by
more than 1e-13 of itself. f is log-concave, so this fixed point is the only one. It is symmetric:
only the positive levels are found and printed, as decimals that parse to the nearest float32.

Deliberately without numpy: it runs wherever Python does, in a second or two.
"""
import math
import struct

DIMS = range(16, 513, 16)
BITS = (2, 3, 4)
# Gauss-Legendre with 8 nodes on pieces of at most half a standard deviation: errors below 1e-15.
NODES = ((0.1834346424956498, 0.3626837833783620), (0.5255324099163290, 0.3137066458778873),
         (0.7966664774136267, 0.2223810344533745), (0.9602898564975363, 0.1012285362903763))
PIECE_SIGMAS = 0.5
# Beyond this many standard deviations f is below 1e-19 of its peak for every d.
TAIL_SIGMAS = 9.5


def cell_mean(dim, low, high):
    power = (dim - 3) / 2
    pieces = max(1, math.ceil((high - low) * math.sqrt(dim) / PIECE_SIGMAS))
    half = (high - low) / pieces / 2
    mass = moment = 0.0
    for piece in range(pieces):
        middle = low + (2 * piece + 1) * half
        for node, weight in NODES:
            for t in (middle - node * half, middle + node * half):
                f = weight * (1 - t * t) ** power
                mass += f
                moment += f * t
    return moment / mass


def positive_levels(dim, bits):
    count = 2 ** (bits - 1)
    sigma = 1 / math.sqrt(dim)
    top = min(1.0, TAIL_SIGMAS * sigma)
    levels = [(i + 0.5) / count * 2.5 * sigma for i in range(count)]
    while True:
        edges = [0.0] + [(a + b) / 2 for a, b in zip(levels, levels[1:])] + [top]
        moved = [cell_mean(dim, a, b) for a, b in zip(edges, edges[1:])]
        change = max(abs(a - b) / b for a, b in zip(levels, moved))
        levels = moved
        if change < 1e-13:
            return levels


def float32(x):
    x = struct.unpack("f", struct.pack("f", x))[0]
    text = f"{x:.9g}"
    assert struct.unpack("f", struct.pack("f", float(text)))[0] == x
    return text + "f"


def main():
    print("// Written by tools/make_turbo_codebooks.py, which says what these numbers are.")
    print("// Positive levels, ascending, for dim = 16, 32, ..., 512: bits 2, 3, 4.")
    for dim in DIMS:
        tables = ["{" + ", ".join(float32(x) for x in positive_levels(dim, bits)) + "}"
                  for bits in BITS]
        print("{" + tables[0] + ",\n " + tables[1] + ",\n " + tables[2] + "},  // " + str(dim))


if __name__ == "__main__":
    main()
