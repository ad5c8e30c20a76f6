"""Whole checkpoints: the commands as functions that return reports.

The texts of the arguments are those of `nvfp4 help`; `_documented` puts them into the docstrings.
"""

import collections.abc
import json
import os
import reprlib
import textwrap

from . import _core
from ._errors import InvalidValueError, IoError
from ._hub import can_download, download_model


def _of_command(name):
    """Returns keyword -> description of each option of a command, from src/commands/commands.h."""
    command = next(c for c in _core.commands() if c["name"] == name)
    return {o["keyword"]: o for o in command["options"] if o["keyword"]}


def _must_be(name, given, rule):
    return TypeError(f"{name} = {reprlib.repr(given)}, must be {rule}")


def _strings(name, given):
    """Returns `given` as a list. Raises TypeError for a single string, whose letters would be patterns."""
    if isinstance(given, (str, bytes)) or not isinstance(given, collections.abc.Iterable):
        raise _must_be(name, given, "a list of strings")
    return list(given)


def _path(name, given):
    if not isinstance(given, (str, bytes, os.PathLike)):
        raise _must_be(name, given, "a path")
    path = os.fsdecode(given)
    if not path or "\0" in path:
        raise InvalidValueError(f"{name} = {path!r}, must be a path: not empty, without zero bytes")
    _core.require_no_address(path)
    return path


def require_apart(reads, writes):
    """Raises InvalidValueError if a path in `writes` {name: path or None} lies where something is read or written."""
    given = lambda paths: [(name, os.fspath(path)) for name, path in paths.items() if path is not None]
    _core.require_apart(given(reads), given(writes))


def _documented(command):
    """Puts the texts of the command's arguments in the place of {arguments}."""

    def decorate(function):
        width = 12
        lines = []
        for keyword, about in _of_command(command).items():
            text = textwrap.wrap(about["text"], 100 - 4 - width - 1)
            head = keyword.ljust(width - 1) + " "
            if len(head) > width:
                lines.append(head.rstrip())
                head = " " * width
            lines += [head + text[0], *(" " * width + line for line in text[1:])]
        if function.__doc__:  # python -OO removes docstrings
            arguments = "\n".join("    " + line for line in lines).strip()
            function.__doc__ = function.__doc__.replace("{arguments}", arguments)
        return function

    return decorate


def _find_model(name, download):
    """Returns the folder of a model. `download`: a model of the hub that the cache lacks is fetched."""
    try:
        return _core.find_model(name)
    except IoError as missing:
        if missing.code != "NV0103" or not download or not can_download():
            raise
        try:
            download_model(name)
        except Exception as error:
            raise missing from error
    return _core.find_model(name)


def _bar(title):
    """Returns a bar of tqdm, which suits terminals and notebooks, and a progress function that updates it."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        raise ImportError("progress = True, needs tqdm: pip install tqdm") from None
    bar = tqdm(desc=title, unit="B", unit_scale=True, leave=False)

    def update(tensor, tensors_done, tensors_total, bytes_done, bytes_total):
        bar.total = bytes_total
        bar.set_postfix_str(f"{tensors_done}/{tensors_total} {tensor}", refresh=False)
        bar.update(bytes_done - bar.n)

    return bar, update


_MODELS = ("input", "path", "source", "a", "b", "against")
_PATHS = (*_MODELS, "output", "html", "parts", "run", "statistics", "input_amax")


def _check(command, given):
    """Checks the arguments of a command. Errors name the keyword."""
    for keyword, about in _of_command(command).items():
        value = given[keyword]
        if value is None and about["required"]:
            raise _must_be(keyword, value, "a path" if keyword in _PATHS else "given")
        if about["repeatable"]:
            given[keyword] = _strings(keyword, value)
        elif keyword in _PATHS and value is not None:
            given[keyword] = _path(keyword, value)
        elif not about["value"] and not about["required"] and not isinstance(value, bool):
            raise _must_be(keyword, value, "True or False")
    progress = given.get("progress")
    if progress is not None and not isinstance(progress, bool) and not callable(progress):
        raise _must_be("progress", progress, "a function, True or None")


def _run(command, function, given):
    """Calls a function of _core with the caller's arguments and returns its report as a dict."""
    given = dict(given)
    _check(command, given)  # before anything is downloaded
    for keyword in _MODELS:
        if given.get(keyword) is not None:
            given[keyword] = _find_model(given[keyword], not given.get("dry_run"))
    if given.get("progress") is False:
        given["progress"] = None
    if given.get("progress") is not True:
        return json.loads(function(given))
    bar, given["progress"] = _bar(command)
    with bar:
        return json.loads(function(given))


@_documented("quantize")
def quantize_checkpoint(input, output, *, scheme="nvfp4", format=None, method=None,
                        statistics=None, recipe=None, bits=None, size=None, merge=(),
                        ignore=(), include=(), fuse=(), input_amax=None, rank=None, ranks=1,
                        resume=False, overwrite=False, dry_run=False, allow=(),
                        keep_dtype=False, backend="", device="cpu", progress=None):
    """Quantizes a Hugging Face model folder, or one .safetensors or .gguf file.

    {arguments}
    progress    called as progress(tensor, tensors_done, tensors_total, bytes_done, bytes_total),
                from any thread; True: a tqdm bar, also in notebooks

    In the format 'modelopt' weight_scale_2 and input_scale are MULTIPLIERS; in 'compressed-tensors'
    weight_global_scale and input_global_scale are DIVISORS, the reciprocals.

    Returns the report that `nvfp4 quantize --report` writes, as a dict. Raises IoError,
    FormatError, InvalidValueError, DeviceError, UnsupportedError.
    """
    return _run("quantize", _core.quantize_checkpoint, locals())


@_documented("convert")
def convert(input, output, to, *, scheme=None, method="mse", input_amax=None, resume=False,
            overwrite=False, dry_run=False, allow=(), backend="", device="cpu", progress=None):
    """Converts a quantized checkpoint to another format. NVFP4 is not rounded again: a conversion there
    and back gives the same tensors.

    {arguments}
    progress    as of quantize_checkpoint

    Returns the report that `nvfp4 convert --report` writes, as a dict. Raises IoError, FormatError,
    InvalidValueError, and UnsupportedError, which names the tensor that `to` cannot hold.
    """
    return _run("convert", _core.convert, locals())


@_documented("repair")
def repair(path, output, *, source=None, scales="linear", nibbles="low", input_amax=None,
           method="mse", resume=False, overwrite=False, dry_run=False, backend="", device="cpu",
           progress=None):
    """Writes a faulty NVFP4 checkpoint again, with its faults corrected; `path` is never changed.

    {arguments}
    progress    as of quantize_checkpoint

    Returns the report of `nvfp4 repair --json`, as a dict: `changes` with their errors, and the
    number of findings of `verify` `before` and `after`. Raises IoError, FormatError,
    InvalidValueError, and UnsupportedError for faults that need the source or cannot be corrected.
    """
    return _run("repair", _core.repair, locals())


@_documented("verify")
def verify(path, *, source=None, loader="", full=False, rank=None, ranks=1, parts=None, progress=None):
    """Finds faults of a quantized checkpoint; docs/verify.md lists the kinds of findings.

    {arguments}
    progress    as of quantize_checkpoint

    Returns the report of `nvfp4 verify --json`, as a dict: `broken`, `findings`, and in `loaders`
    the verdict of each loader ('reads', 'refuses', 'misreads') and its reason. With ranks only the
    last rank has the report; the others return `missing_ranks`, the ranks that have not finished.
    """
    return _run("verify", _core.verify, locals())


@_documented("inspect")
def inspect(path, *, tensor=None, histograms=True, progress=None):
    """Formats, scales and codes of a checkpoint: the report of `nvfp4 inspect --json`.

    {arguments}
    progress    as of quantize_checkpoint
    """
    return _run("inspect", _core.inspect, locals())


@_documented("compare")
def compare(a, b, *, html=None, against=None, run=None, statistics=None, rank=None, ranks=1,
            parts=None, progress=None):
    """Compares two checkpoints tensor by tensor: the report of `nvfp4 compare --json`.
    `relative_error` is of all tensors together, `median_relative_error` of the median tensor,
    `worst_relative_error` of the tensor `worst`.

    {arguments}
    progress    as of quantize_checkpoint

    With ranks only the last rank has the report; the others return `missing_ranks`, the ranks that
    have not finished. Raises IoError, FormatError, InvalidValueError.
    """
    return _run("compare", _core.compare, locals())


@_documented("sample")
def sample(output, *, arch="llama", layers=0, scale=0.125, seed=0, shards=0, overwrite=False):
    """Writes a synthetic BF16 checkpoint with real names and shapes.

    {arguments}
    """
    given = locals()
    _check("sample", given)
    _core.sample(given)
