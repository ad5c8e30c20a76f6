"""Whole checkpoints: what the command does, as functions that return reports."""

import json

from . import _core
from ._errors import InvalidValueError


def _strings(name, given):
    """A list; a string alone would be one of single letters, and '*' among them."""
    if isinstance(given, (str, bytes)):
        raise TypeError(f"{name} = {given!r}, must be a list of strings")
    return list(given)


def quantize_checkpoint(input, output, *, scheme="nvfp4", format=None, quantizer="mse",
                        ignore=(), include=(), fuse=(), input_amax=None, resume=False,
                        overwrite=False, dry_run=False, drop=False, force=False, keep_dtype=False,
                        backend="", device="cpu", progress=None):
    """Quantizes a Hugging Face model folder, or one .safetensors or .gguf file.

    scheme      'nvfp4' (W4A4) or 'nvfp4a16' (weights only)
    format      'modelopt' (weight_scale_2 and input_scale are MULTIPLIERS) or 'compressed-tensors'
                (weight_global_scale and input_global_scale are DIVISORS, their reciprocals);
                'comfyui', one file in `output`; 'gguf', `output` is a file for llama.cpp. Not given:
                'gguf' for an output of that ending, else 'modelopt'
    ignore, include, fuse, input_amax, resume, overwrite, dry_run, drop, force, keep_dtype: as of
                `nvfp4 quantize`
    device      'cpu', 'cuda', 'cuda:N' or 'auto'; the output is the same
    progress    called as progress(tensor, tensors_done, tensors_total, bytes_done, bytes_total),
                from any thread
    Returns the report that `nvfp4 quantize --report` writes, as a dict. Raises IoError,
    FormatError, InvalidValueError, DeviceError, UnsupportedError.
    """
    return json.loads(_core.quantize_checkpoint(
        input, output, scheme, format or "", quantizer, _strings("ignore", ignore),
        _strings("include", include), _strings("fuse", fuse), input_amax, resume, overwrite, dry_run,
        drop, force, keep_dtype, backend, device, progress))


def convert(input, output, to, *, scheme=None, quantizer="mse", input_amax=None, resume=False,
            overwrite=False, dry_run=False, drop=False, force=False, decode=False, backend="",
            progress=None):
    """Writes a quantized checkpoint in another form. NVFP4 is not rounded again: there and back gives
    the same tensors.

    to          one of conversion_targets(): 'modelopt', 'compressed-tensors', 'bf16', ...
    scheme      'nvfp4' or 'nvfp4a16'; as in the input if not given
    quantizer, input_amax: for FP8 and MXFP4 weights, as of quantize_checkpoint
    resume, overwrite, dry_run, drop, force, progress: as of quantize_checkpoint
    decode      FP8 and MXFP4 weights that `to` cannot hold beside 4-bit ones become BF16, with a
                warning; else they are an error
    Returns the report that `nvfp4 convert --report` writes, as a dict. Raises IoError, FormatError,
    InvalidValueError, and UnsupportedError that names the tensor which `to` cannot hold.
    """
    return json.loads(_core.convert(input, output, to, scheme, quantizer, input_amax, resume,
                                    overwrite, dry_run, drop, force, decode, backend,
                                    progress))


def repair(path, output, *, source=None, scales="linear", nibbles="low", input_amax=None,
           quantizer="mse", resume=False, overwrite=False, dry_run=False, progress=None):
    """Writes a broken NVFP4 checkpoint again, with its faults put right; `path` is never changed.

    source      what it was quantized from: what cannot be put right otherwise is quantized again
    scales      how block scales lie in `path`: 'linear' or 'swizzled'
    nibbles     which nibble the even column is in: 'low' or 'high'
    quantizer   for what is quantized again
    input_amax, resume, overwrite, dry_run, progress: as of quantize_checkpoint
    Returns the report of `nvfp4 repair --json`, as a dict: `changes`, what each lost, and how many
    findings of `verify` there were `before` and are `after`. Raises IoError, FormatError,
    InvalidValueError, and UnsupportedError where only the source, or nothing, can help.
    """
    if scales not in ("linear", "swizzled"):
        raise InvalidValueError(f"scales = '{scales}', must be linear or swizzled")
    if nibbles not in ("low", "high"):
        raise InvalidValueError(f"nibbles = '{nibbles}', must be low or high")
    return json.loads(_core.repair(path, output, source, scales == "swizzled", nibbles == "high",
                                   input_amax, quantizer, resume, overwrite, dry_run, progress))


def verify(path, *, source=None, loader="", progress=None):
    """What is wrong with a quantized checkpoint; docs/verify.md lists the kinds of findings.

    source  the checkpoint that it was quantized from
    loader  judge for one of 'vllm', 'sglang', 'tensorrt-llm', 'transformers', 'llama.cpp' only
    Returns the report of `nvfp4 verify --json`, as a dict: `broken`, `findings`, and in `loaders`
    what each makes of it ('reads', 'refuses', 'misreads'), and why.
    """
    return json.loads(_core.verify(path, source, loader, progress))


def inspect(path, *, tensor=None, histograms=True, progress=None):
    """Schemes, scales and codes of a checkpoint: the report of `nvfp4 inspect --json`."""
    return json.loads(_core.inspect(path, tensor, histograms, progress))


def compare(a, b, *, html=None, progress=None):
    """Two checkpoints tensor by tensor: the report of `nvfp4 compare --json`. `relative_error` is that
    of all together, beside it are `median_relative_error` and `worst_relative_error` of `worst`.

    html  a file to write: one page for people that loads nothing, errors by layer, worst tensors,
          codes, scales and sizes, as of `nvfp4 compare --html`
    Raises IoError, FormatError, InvalidValueError.
    """
    return json.loads(_core.compare(a, b, html, progress))


def sample(output, *, arch="llama", layers=0, scale=0.125, seed=0, shards=0, overwrite=False):
    """Writes a synthetic BF16 checkpoint with real names and shapes; see `nvfp4 help sample`."""
    _core.sample(output, arch, layers, scale, seed, shards, overwrite)
