#!/usr/bin/env python3
"""Quantizes a model folder, checks the result, and prints the layers that lost most.

usage: quantize_model.py MODEL OUTPUT
"""

import sys

import nvfp4

model, output = sys.argv[1:]
nvfp4.quantize_checkpoint(model, output)  # W4A4 in ModelOpt's format; progress= shows how far it is

findings = nvfp4.verify(output, source=model)["findings"]
print("\n".join(f"{f['severity']}: {f['text']}" for f in findings) or "every loader can read it")

for tensor in nvfp4.compare(model, output)["tensors"][:5]:
    print(f"{tensor['relative_error']:.4f}  {tensor['name']}")
