"""Whole checkpoints: what the command does, as functions that return reports."""

import json

from . import _core


def quantize_checkpoint(input, output, *, scheme="nvfp4", format="modelopt", quantizer="mse",
                        ignore=(), include=(), fuse=(), input_amax=None, resume=False,
                        overwrite=False, dry_run=False, backend="", device="cpu", progress=None):
    """Quantizes a Hugging Face model folder, or one .safetensors file, in bounded memory.

    scheme      'nvfp4' (W4A4) or 'nvfp4a16' (weights only)
    format      'modelopt' (weight_scale_2 and input_scale are MULTIPLIERS) or 'compressed-tensors'
                (weight_global_scale and input_global_scale are DIVISORS, their reciprocals)
    ignore, include, fuse, input_amax, resume, overwrite, dry_run: as of `nvfp4 quantize`
    device      'cpu', 'cuda', 'cuda:N' or 'auto'; the output is the same
    progress    called as progress(tensor, tensors_done, tensors_total, bytes_done, bytes_total),
                from any thread
    Returns the report that `nvfp4 quantize --report` writes, as a dict. Raises IoError,
    FormatError, InvalidValueError, DeviceError, UnsupportedError.
    """
    return json.loads(_core.quantize_checkpoint(
        input, output, scheme, format, quantizer, list(ignore), list(include), list(fuse),
        input_amax, resume, overwrite, dry_run, backend, device, progress))


def verify(path, *, source=None, loader="", progress=None):
    """What is wrong with a quantized checkpoint; docs/verify.md lists the kinds of findings.

    source  the checkpoint that it was quantized from
    loader  judge for one of 'vllm', 'sglang', 'tensorrt-llm', 'transformers', 'llama.cpp' only
    Returns the report of `nvfp4 verify --json`, as a dict.
    """
    return json.loads(_core.verify(path, source, loader, progress))


def inspect(path, *, tensor=None, histograms=True, progress=None):
    """Schemes, scales and codes of a checkpoint: the report of `nvfp4 inspect --json`."""
    return json.loads(_core.inspect(path, tensor, histograms, progress))


def compare(a, b, *, progress=None):
    """Two checkpoints tensor by tensor: the report of `nvfp4 compare --json`."""
    return json.loads(_core.compare(a, b, progress))


def sample(output, *, arch="llama", layers=0, scale=0.125, seed=0, shards=0, overwrite=False):
    """Writes a synthetic BF16 checkpoint with real names and shapes; see `nvfp4 help sample`."""
    _core.sample(output, arch, layers, scale, seed, shards, overwrite)
