#!/usr/bin/env python3
"""Draws docs/accuracy.svg from measure.py's figures: chart.py docs/accuracy.json docs/accuracy.svg"""

import json
import sys
from pathlib import Path

#: Weights and activations of the panels.
PANELS = (("weights alone", None), ("activations by max", "max"), ("activations by mse", "mse"))
NAMES = {"gptq": "gptq:0", "gptq + descent": "gptq"}
BAR, LEFT, WIDTH = 20, 150, 520


def main():
    rows = json.loads(Path(sys.argv[1]).read_text())[0]["rows"]
    unit = WIDTH / max(r["divergence"] for r in rows)
    parts, y = [], 10
    for title, activations in PANELS:
        y += 24
        parts.append(f'<text x="{LEFT}" y="{y - 8}" font-weight="bold">{title}</text>')
        for r in (r for r in rows if r["activations"] == activations):
            length = r["divergence"] * unit
            name = NAMES.get(r["weights"], r["weights"])
            parts += [f'<text x="{LEFT - 8}" y="{y + 14}" text-anchor="end">{name}</text>',
                      f'<rect x="{LEFT}" y="{y + 2}" width="{length:.1f}" height="{BAR - 4}" fill="#3f7fbf"/>',
                      f'<text x="{LEFT + length + 6:.1f}" y="{y + 14}">{r["divergence"]:.1f}</text>']
            y += BAR
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 60}" height="{y + 10}" '
            'font-family="sans-serif" font-size="12">'
            '<title>KL divergence from BF16 in millinats per token, dense model, validation text</title>'
            '<rect width="100%" height="100%" fill="white"/>')
    Path(sys.argv[2]).write_text("\n".join([head, *parts, "</svg>"]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
