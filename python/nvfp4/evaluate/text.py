"""Windows of a text file, drawn so that everybody measures the same tokens."""

from pathlib import Path

import torch

from .._errors import InvalidValueError, IoError, taken_from_transformers

SEPARATOR = "\n\x1e\n"  # between documents
SEED = 7


class _Encoded:
    def __init__(self, ids):
        self.input_ids = ids


class Bytes:
    """The tokenizer of models that have none: each byte is a token."""

    eos_token_id = None

    def __call__(self, document, verbose=False):
        return _Encoded(list(document.encode()))


def tokenizer_of(folder, words):
    """A model's tokenizer; bytes for one without, such as `nvfp4 sample` makes."""
    files = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
    if words >= 256 and not any((Path(folder) / file).exists() for file in files):
        return Bytes()
    return loaded_tokenizer(folder)


def loaded_tokenizer(folder):
    """The one that transformers finds in a model's folder."""
    from transformers import AutoTokenizer

    with taken_from_transformers(folder, "its tokenizer"):
        return AutoTokenizer.from_pretrained(folder)


def documents_of(path):
    """Of a file of UTF-8, in which a line that holds U+001E alone separates documents."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read().split(SEPARATOR)
    except OSError as no:
        raise IoError.of(path, no) from no
    except UnicodeDecodeError as no:
        raise InvalidValueError(f"{path}: is not UTF-8 at byte {no.start}") from no


def windows(path, tokenizer, count=None, context=512):
    """`count` windows of `context` + 1 tokens, [count, context + 1]; None: all there are. Each document is
    encoded by itself, and followed by the tokenizer's end of text."""
    return windows_of(documents_of(path), path, tokenizer, count, context)


def windows_of(documents, name, tokenizer, count, context):
    """The same of strings; `name` is what errors call them."""
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
