"""Windows of a text file. The choice is fixed, so that every run measures the same tokens."""

from pathlib import Path

import torch

from .._errors import InvalidValueError, IoError, taken_from_transformers

SEPARATOR = "\n\x1e\n"  # between documents
SEED = 7


class _Encoded:
    def __init__(self, ids):
        self.input_ids = ids


class Bytes:
    """The tokenizer for models without one: each byte is a token."""

    eos_token_id = None

    def __call__(self, document, verbose=False):
        return _Encoded(list(document.encode()))


def tokenizer_of(folder, words):
    """Returns a model's tokenizer, or Bytes for a model without one, such as those of `nvfp4 sample`."""
    files = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
    if words >= 256 and not any((Path(folder) / file).exists() for file in files):
        return Bytes()
    return loaded_tokenizer(folder)


def loaded_tokenizer(folder):
    """Returns the tokenizer that transformers finds in a model's folder."""
    from transformers import AutoTokenizer

    with taken_from_transformers(folder, "its tokenizer"):
        return AutoTokenizer.from_pretrained(folder)


def documents_of(path):
    """Returns the documents of a UTF-8 file. A line with U+001E alone separates them."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read().split(SEPARATOR)
    except OSError as no:
        raise IoError.of(path, no) from no
    except UnicodeDecodeError as no:
        raise InvalidValueError(f"{path}: is not UTF-8 at byte {no.start}") from no


def windows(path, tokenizer, count=None, context=512):
    """Returns `count` windows of `context` + 1 tokens, [count, context + 1], or all windows if `count` is None. Each
    document is encoded by itself and followed by the end-of-text token."""
    return windows_of(documents_of(path), path, tokenizer, count, context)


def windows_of(documents, name, tokenizer, count, context):
    """Returns the same for a list of documents. Errors call them `name`."""
    end = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
    ids = []
    for document in documents:
        ids += tokenizer(document, verbose=False).input_ids + end
    whole = (len(ids) - 1) // context
    if whole < 2:
        raise InvalidValueError(f"{name}: {len(ids)} tokens, must be {2 * context + 1} or more, for two "
                                f"windows of {context}")
    cut = torch.tensor(ids)[: whole * context + 1].unfold(0, context + 1, context)
    order = torch.randperm(len(cut), generator=torch.Generator().manual_seed(SEED))
    return cut[order[:count]]
