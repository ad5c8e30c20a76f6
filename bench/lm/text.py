"""Windows of a text file, drawn so that everybody measures the same tokens."""

import torch

SEPARATOR = "\n\x1e\n"  # between documents
END = 0  # <|endoftext|>, behind every document
SEED = 7


def windows(path, tokenizer, count, context=512):
    """`count` windows of `context` + 1 tokens, [count, context + 1]. Each document is encoded by itself."""
    ids = []
    with open(path, encoding="utf-8", newline="") as file:
        for document in file.read().split(SEPARATOR):
            ids += tokenizer(document, verbose=False).input_ids + [END]
    whole = (len(ids) - 1) // context
    cut = torch.tensor(ids)[: whole * context + 1].unfold(0, context + 1, context)
    order = torch.randperm(len(cut), generator=torch.Generator().manual_seed(SEED))
    return cut[order[:count]]
