"""Measures the accuracy of a model on a text: perplexity, and KL divergence from the BF16 model.

    nvfp4 evaluate MODEL --against BF16 --text FILE

`evaluate` is the same as a function. Needs PyTorch and transformers 5.
"""

import importlib
import json
import os
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
import transformers

from .._errors import InvalidValueError, IoError, taken_from_transformers
from .._forms import FORMS
from .comparison import compare_logits, log_probabilities, loss_of
from .devices import default_device, usable_device
from .resampling import Bootstrap
from .text import tokenizer_of
from .text import windows as windows_of_text

__all__ = ["evaluate"]
DTYPES = ("float32", "bfloat16", "float16")
_DECODED = 32  # tokens to decode


def _quant_method(folder):
    """Returns quant_method of a model's config.json, None if there is none."""
    try:
        files = os.listdir(folder)
    except OSError as error:
        raise IoError.of(folder, error) from None
    if "config.json" not in files:
        raise IoError(f"{folder}: no config.json")
    try:
        config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
        return (config.get("quantization_config") or {}).get("quant_method")
    except (ValueError, AttributeError):
        return None  # transformers reports the error


class _Subject:
    """A model, and how long its forward passes took."""

    def __init__(self, folder, device, dtype):
        if _quant_method(folder) in FORMS:
            importlib.import_module("nvfp4.transformers")  # registers the checkpoints
        # device_map would load directly to the device, but needs accelerate.
        there = {"device_map": device} if find_spec("accelerate") else {}
        with taken_from_transformers(folder, "it"):
            self.model = transformers.AutoModelForCausalLM.from_pretrained(
                folder, dtype=dtype, **there).to(device).eval()
        self.dtype, self.seconds, self.tokens = dtype, 0.0, 0

    @torch.no_grad()
    def logits(self, tokens):
        start = time.perf_counter()
        result = self.model(tokens.to(self.model.device), use_cache=False).logits
        self._wait()
        self.seconds += time.perf_counter() - start
        self.tokens += tokens.numel()
        return result

    def _wait(self):
        if self.model.device.type == "cuda":
            torch.cuda.synchronize(self.model.device)

    def decoding_speed(self, prompt):
        """Returns tokens per second of one sequence, decoded token by token."""
        def seconds(count):
            start = time.perf_counter()
            self.model.generate(prompt.to(self.model.device), min_new_tokens=count, max_new_tokens=count,
                                do_sample=False, pad_token_id=0)
            self._wait()
            return time.perf_counter() - start
        seconds(2)
        first = seconds(1)
        return (_DECODED - 1) / max(seconds(_DECODED) - first, 1e-9)

    def bytes(self):
        tensors = {t.data_ptr(): t for t in (*self.model.parameters(), *self.model.buffers())}
        return sum(t.numel() * t.element_size() for t in tensors.values())

    def figures(self, prompt):
        return {"bytes": self.bytes(), "tokens_per_second": self.tokens / self.seconds,
                "decoded_tokens_per_second": self.decoding_speed(prompt)}


def _figure(pair):
    return dict(zip(("value", "error"), pair))


def evaluate(model, text, against=None, *, windows=192, context=512, batch=None, device=None,
             dtype=None, progress=None):
    """Measures a checkpoint on a text.

    model    a folder, quantized or not
    text     a file of UTF-8; documents in it may be separated by a line that holds U+001E alone. For a
             model without a tokenizer each byte is a token.
    against  the folder of the model that it was quantized from
    windows  number of windows of `context` tokens, drawn with a fixed seed; None: all
    batch    windows at a time; default 2, whose logits stay in the caches of a CPU, on a GPU 8
    device   'cpu', 'cuda', ...; default CUDA where there is one
    dtype    of what is not quantized, in both models: 'float32', 'bfloat16' or 'float16'; default FP32 on a CPU,
             because BF16 alone costs some percent of what quantizing does, and BF16 on a GPU, where NVFP4 layers
             take no FP32
    progress called as progress(windows done, of all)
    Returns a dict: figures with their standard errors, of a paired bootstrap over windows. Divergence is
    in nats per token.
    """
    device = device or default_device()
    usable_device(device)
    dtype = dtype or ("bfloat16" if device.startswith("cuda") else "float32")
    for name, value in (("windows", windows), ("context", context), ("batch", batch)):
        if value is not None and value < 1:
            raise InvalidValueError(f"{name} = {value}, must be 1 or more")
    if dtype not in DTYPES:
        raise InvalidValueError(f"dtype = {dtype!r}, must be {', '.join(DTYPES)}")
    subjects = [_Subject(folder, device, getattr(torch, dtype))
                for folder in ([model] if against is None else [model, against])]
    vocabularies = [s.model.get_output_embeddings().weight.shape[0] for s in subjects]
    if len(set(vocabularies)) > 1:
        raise InvalidValueError(f"vocabulary sizes differ: {vocabularies[0]} of {model} and {vocabularies[1]} of {against}")
    tokens = windows_of_text(text, tokenizer_of(against or model, vocabularies[0]), windows, context)
    columns, losses = [], []
    for part in tokens.split(batch or (8 if device.startswith("cuda") else 2)):
        target = part[:, 1:, None].to(subjects[0].model.device)
        logits = [subject.logits(part[:, :-1]) for subject in subjects]
        for window in range(len(part)):  # FP32 logits of one window at a time
            if against is None:
                one = slice(window, window + 1)
                losses.append(loss_of(log_probabilities(logits[0][one]), target[one]))
            else:
                loss, column = compare_logits(logits[0][window], logits[1][window], target[window])
                losses.append(loss)
                columns.append(column)
        if progress:
            progress(len(losses), len(tokens))
    return _report(model, text, against, context, np.concatenate(losses), columns, subjects, tokens[:1, :8])


def _perplexity(bootstrap, loss):
    return _figure((float(np.exp(loss.mean())), bootstrap.error(np.exp, loss)))


def _report(model, text, against, context, loss, columns, subjects, prompt):
    bootstrap = Bootstrap(len(loss))
    report = {"model": str(model), "text": str(text), "windows": len(loss), "context": context,
              "device": str(subjects[0].model.device), "dtype": str(subjects[0].dtype).removeprefix("torch.")}
    if against is None:
        report["perplexity"] = _perplexity(bootstrap, loss)
    else:
        divergence, own, same = np.concatenate(columns, 1)
        report.update(
            against=str(against), perplexity=_perplexity(bootstrap, own),
            divergence=_figure(bootstrap.mean(divergence)),
            perplexity_change_percent=_figure(bootstrap.perplexity_change(own, loss)),
            same_first_choice=_figure(bootstrap.mean(same)),
            against_perplexity=_perplexity(bootstrap, loss), against_figures=subjects[1].figures(prompt))
    report["figures"] = subjects[0].figures(prompt)
    return report
