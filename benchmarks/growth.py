#!/usr/bin/env python3
"""Plots time per tensor over the number of tensors, from bench_growth's JSON, and prints it as a table.

Usage: benchmarks/growth.py JSON SVG
"""
import json
import math
import sys

from tables import table

OPERATIONS = {"save": "#1b6ca8", "load": "#c0392b", "open": "#2e8b57", "find one": "#8e6bb0"}
WIDTH, HEIGHT, LEFT, TOP, GAP = 330, 260, 62, 34, 78


def label(number):
    for unit, name in ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1, "ns")):
        if number >= unit:
            return f"{number / unit:g} {name}"
    return f"{number:g} ns"


def plot(figures, kinds, counts):
    values = [value for lines in figures.values() for value in lines.values()]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))

    def x(panel, count):
        part = (math.log10(count) - math.log10(counts[0])) / (math.log10(counts[-1]) - math.log10(counts[0]))
        return LEFT + panel * (WIDTH + GAP) + part * WIDTH

    def y(value):
        return TOP + HEIGHT * (1 - (math.log10(value) - low) / (high - low))

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + len(kinds) * (WIDTH + GAP)}" '
           f'height="{TOP + HEIGHT + 52}" font-family="sans-serif" font-size="12">',
           '<rect width="100%" height="100%" fill="white"/>']

    def text(at_x, at_y, words, **style):
        style = "".join(f' {key.replace("_", "-")}="{value}"' for key, value in style.items())
        out.append(f'<text x="{at_x:.1f}" y="{at_y:.1f}"{style}>{words}</text>')

    for panel, kind in enumerate(kinds):
        left, right = x(panel, counts[0]), x(panel, counts[-1])
        text((left + right) / 2, TOP - 14, f"{kind}: time per tensor", text_anchor="middle", font_weight="bold")
        for power in range(low, high + 1):
            at = y(10**power)
            out.append(f'<line x1="{left:.1f}" y1="{at:.1f}" x2="{right:.1f}" y2="{at:.1f}" stroke="#ddd"/>')
            text(left - 6, at + 4, label(10**power), text_anchor="end")
        for count in counts:
            at = x(panel, count)
            out.append(f'<line x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{TOP + HEIGHT}" stroke="#ddd"/>')
            text(at, TOP + HEIGHT + 18, f"{count:,}", text_anchor="middle")
        text((left + right) / 2, TOP + HEIGHT + 40, "tensors", text_anchor="middle")
        name_y = math.inf  # position of the last name, from the bottom up: names must not overlap
        for operation, colour in sorted(OPERATIONS.items(), key=lambda item: figures[kind, item[0]][counts[-1]]):
            points = [(x(panel, count), y(value)) for count, value in sorted(figures[kind, operation].items())]
            out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="' +
                       " ".join(f"{a:.1f},{b:.1f}" for a, b in points) + '"/>')
            out += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in points]
            name_y = min(points[-1][1] + 4, name_y - 14)
            text(points[-1][0] + 6, name_y, operation, fill=colour)
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        runs = json.load(file)["benchmarks"]
    figures = {}
    for run in runs:
        kind, operation, count = run["name"].split("/")[:3]
        figures.setdefault((kind, operation), {})[int(count)] = run["ns/tensor"]
    kinds = list(dict.fromkeys(kind for kind, _ in figures))
    counts = sorted({count for lines in figures.values() for count in lines})
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(plot(figures, kinds, counts))
    print("Time per tensor, ns.\n")
    table(["operation"] + [f"{count:,}" for count in counts],
          [[f"{kind}: {operation}"] + [f"{line[count]:,.0f}" for count in counts]
           for (kind, operation), line in figures.items()])


if __name__ == "__main__":
    main()
