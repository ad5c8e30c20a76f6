"""Whole checkpoints: the commands as functions that return reports. The tables of options, in
include/nvfp4/checkpoint/options.h, say what each function takes.
"""

import collections.abc
import json
import numbers
import os
import reprlib

from . import _ask, _core
from ._errors import InvalidValueError, IoError
from ._hub import can_download, download_model
from ._signatures import commands, documentation, signature

_COMMANDS = commands(_core)


def _must_be(name, given, rule):
    return TypeError(f"{name} = {reprlib.repr(given)}, must be {rule}")


def _path_word(name, given):
    if not isinstance(given, (str, bytes, os.PathLike)):
        raise _must_be(name, given, "a path")
    path = os.fsdecode(given)
    if not path or "\0" in path:
        raise InvalidValueError(f"{name} = {path!r}, must be a path: not empty, without zero bytes")
    _core.require_no_address(path)
    return path


def _words(option, given):
    """Returns the words of the command line for an argument, or None if it is not given. Raises TypeError,
    InvalidValueError."""
    name, kind = option["keyword"], option["kind"]
    if kind == "list":  # a string alone would be one of single letters, and '*' among them
        whole = isinstance(given, (str, bytes)) or not isinstance(given, collections.abc.Iterable)
        words = [] if whole else list(given)
        if whole or not all(isinstance(word, (str, bytes, os.PathLike)) for word in words):
            raise _must_be(name, given, "a list of strings")
        return [os.fsdecode(word) for word in words] or None
    if given is None and not option["required"] or kind == "word" and isinstance(given, str) and not given:
        return None
    if kind == "path":
        return [_path_word(name, given)]
    if kind == "flag":
        if not isinstance(given, bool):
            raise _must_be(name, given, "True or False")
        return ["true" if given else "false"]
    counts = str(option["fallback"]).isdecimal()  # a number or a word, such as "auto"
    types, rule = {"integer": (numbers.Integral, "an integer"), "number": (numbers.Real, "a number"),
                   "size": ((numbers.Integral, str), "bytes, such as 24GiB"),
                   "word": ((str, numbers.Integral) if counts else str, "a string")}[kind]
    if isinstance(given, bool) or not isinstance(given, types):
        raise _must_be(name, given, rule)
    return [repr(float(given)) if kind == "number" else str(given)]


def require_apart(reads, writes):
    """Raises InvalidValueError if a path in `writes` {name: path or None} lies where something is read or written."""
    given = lambda paths: [(name, os.fspath(path)) for name, path in paths.items() if path is not None]
    _core.require_apart(given(reads), given(writes))


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


def _run(command, given):
    """Returns the report of a command for the arguments of its function."""
    progress = given.pop("progress")
    if progress is not None and not isinstance(progress, bool) and not callable(progress):
        raise _must_be("progress", progress, "a function, True or None")
    options = {option["keyword"]: option for option in command["options"]}
    words = {name: _words(options[name], value) for name, value in given.items()}  # before anything is downloaded
    for name, option in options.items():
        if option["model"] and words.get(name):
            words[name] = [_find_model(words[name][0], not given.get("dry_run"))]
    answers = ""
    if command["name"] == "verify":
        answers = _ask.answers(words["path"][0], [*(words["loader"] or ()), *(words["loaders"] or ())])
    words = {name: [os.fsencode(word) for word in all_of] for name, all_of in words.items() if all_of is not None}
    bar = None
    if progress is True:
        bar, progress = _bar(command["name"])
    try:
        return json.loads(_core.run_command(command["name"], words, progress or None, answers))
    finally:
        if bar is not None:
            bar.close()


def _former(command, names):
    """Returns a hint if one of the names is a former keyword, else an empty text."""
    for option in command["options"]:
        for former in filter(None, option["former"].split(",")):
            name, _, value = former.partition(" ")
            if name.lstrip("-").replace("-", "_") in names:
                given = repr([value]) if option["kind"] == "list" else repr(value) if value else "..."
                return f"; did you mean {option['keyword']}={given}?"
    return ""


def _function(command, more=""):
    """Returns the function of a command."""
    takes = signature(command)

    def function(*args, **given):
        try:
            bound = takes.bind(*args, **given)
        except TypeError as error:
            raise TypeError(f"{command['function']}() {error}{_former(command, given)}") from None
        bound.apply_defaults()
        return _run(command, dict(bound.arguments))

    function.__name__ = function.__qualname__ = command["function"]
    function.__doc__ = documentation(command, more)
    function.__signature__ = takes
    return function


quantize_checkpoint = _function(_COMMANDS["quantize"], """
In the format 'modelopt' weight_scale_2 and input_scale are MULTIPLIERS; in 'compressed-tensors'
weight_global_scale and input_global_scale are DIVISORS, the reciprocals.

Returns the report that `nvfp4 quantize --report` writes, as a dict. Raises IoError, FormatError,
InvalidValueError, DeviceError, UnsupportedError.
""")

convert = _function(_COMMANDS["convert"], """
NVFP4 is not rounded again: a conversion there and back gives the same tensors. Returns the report
that `nvfp4 convert --report` writes, as a dict. Raises IoError, FormatError, InvalidValueError, and
UnsupportedError, which names the tensor that `to` cannot hold.
""")

repair = _function(_COMMANDS["repair"], """
`path` is never changed. Returns the report of `nvfp4 repair --json`, as a dict: `changes` with
their errors, and the number of findings of `verify` `before` and `after`. Raises IoError,
FormatError, InvalidValueError, and UnsupportedError for faults that need the source or cannot be
corrected.
""")

verify = _function(_COMMANDS["verify"], """
`nvfp4 help findings` lists the kinds of findings. Returns the report of `nvfp4 verify --json`, as a
dict: `broken`, `findings`, and in `loaders` the verdict of each loader ('reads', 'refuses',
'misreads', 'unknown') and its reason. A loader that was asked also has `tensors`: names, by what
happens to them. With ranks only the last rank has the report; the others return `missing_ranks`,
the ranks that have not finished.
""")

inspect = _function(_COMMANDS["inspect"], "Returns the report of `nvfp4 inspect --json`, as a dict.")

compare = _function(_COMMANDS["compare"], """
Returns the report of `nvfp4 compare --json`, as a dict. `relative_error` is of all tensors,
`median_relative_error` of the median tensor, `worst_relative_error` of the tensor `worst`. With
ranks only the last rank has the report; the others return `missing_ranks`, the ranks that have not
finished. Raises IoError, FormatError, InvalidValueError.
""")

sample = _function(_COMMANDS["sample"])
