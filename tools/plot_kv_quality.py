#!/usr/bin/env python3
"""Draws what evictions cost, from the table that `kv_quality ... evictions` prints, as SVG.

python3 tools/plot_kv_quality.py < evictions.md > docs/kv-evictions.svg

Left: look-ups answered; right: perplexity of the answers (log scale); both over the share of the cache that is
kept. Only the standard library.
"""
import math
import re
import sys

ROW = re.compile(r"\| ([\w-]+), (\d+) % \| \d+ \| ([\d.]+) \| ([\d.]+) \| (\d+) of (\d+) \|")
COLOURS = ["#1b6ca8", "#d1495b", "#e0a500", "#2e933c", "#7b4fa3", "#5c6b73", "#00798c", "#8c5e2a"]
WIDTH, HEIGHT, LEFT, TOP, PLOT_W, PLOT_H, GAP = 900, 380, 50, 40, 300, 270, 90


def read(stream):
    scores, full = {}, None
    for line in stream:
        if match := ROW.match(line):
            name, share, _, answers, right, total = match.groups()
            scores.setdefault(name, []).append((int(share), float(answers), 100 * int(right) / int(total)))
        elif match := re.match(r"\| everything \| \d+ \| [\d.]+ \| ([\d.]+) \| (\d+) of (\d+) \|", line):
            full = (100, float(match[1]), 100 * int(match[2]) / int(match[3]))
    return {name: ([full] if full else []) + points for name, points in scores.items()}


def panel(out, x0, title, scores, value, y_of, ticks):
    out.append(f'<text x="{x0}" y="{TOP - 16}" font-weight="bold">{title}</text>')
    for tick in ticks:
        y = TOP + PLOT_H * (1 - y_of(tick))
        out.append(f'<line x1="{x0}" x2="{x0 + PLOT_W}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{x0 - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for share in (100, 75, 50, 25):
        x = x0 + PLOT_W * (100 - share) / 75
        out.append(f'<text x="{x:.1f}" y="{TOP + PLOT_H + 18}" text-anchor="middle">{share} %</text>')
    for colour, (_, points) in zip(COLOURS, scores.items()):
        path = " ".join(f"{x0 + PLOT_W * (100 - p[0]) / 75:.1f},{TOP + PLOT_H * (1 - y_of(p[value])):.1f}"
                        for p in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')


def main():
    scores = read(sys.stdin)
    if not scores:
        sys.exit("no rows of a kv_quality evictions table on standard input")
    worst = max(point[1] for points in scores.values() for point in points)
    decades = max(1, math.ceil(math.log10(worst)))
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
           f'font-size="12" fill="#222"><rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>']
    panel(out, LEFT, "look-ups answered, %", scores, 2, lambda v: v / 100, (0, 25, 50, 75, 100))
    panel(out, LEFT + PLOT_W + GAP, "perplexity of the answers", scores, 1,
          lambda v: math.log10(max(v, 1)) / decades, [10 ** i for i in range(decades + 1)])
    out.append(f'<text x="{LEFT + PLOT_W + GAP / 2}" y="{HEIGHT - 24}" text-anchor="middle">'
               "share of the prompt that is kept</text>")
    for i, (colour, name) in enumerate(zip(COLOURS, scores)):
        y = TOP + 10 + 20 * i
        out.append(f'<rect x="{WIDTH - 140}" y="{y - 9}" width="12" height="12" fill="{colour}"/>')
        out.append(f'<text x="{WIDTH - 122}" y="{y + 2}">{name}</text>')
    print("\n".join(out + ["</svg>"]))


if __name__ == "__main__":
    main()
