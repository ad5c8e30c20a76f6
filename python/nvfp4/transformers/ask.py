"""Loads a checkpoint into transformers on the meta device, with tensors that
have shapes and dtypes alone. No weight is read, and no code of the model folder is run."""

import contextlib
import json
import logging
import os
import re

import torch
import transformers
from safetensors import safe_open

from .. import _core
from .._ask import unknown
from .._errors import UnsupportedError
from ..torch.origins import Origins
from . import registry
from .quantizer import Nvfp4Quantizer

#: Names of a kind that an answer has.
_MOST = 50
#: Tensors that a quantized weight consists of; without one of them it has other values.
_PARTS = ("weight", "weight_packed", "weight_scale", "weight_scale_2", "weight_global_scale")
_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
           "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8,
           "BOOL": torch.bool, "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
           "F8_E8M0": torch.float8_e8m0fnu}


class _Report(logging.Handler):
    """Keeps what transformers logs, which has the causes of some errors."""

    def __init__(self):
        super().__init__()
        self.text = ""

    def emit(self, record):
        self.text += record.getMessage() + "\n"

    def cause(self):
        """Returns the first line about a tensor that cannot be loaded, or ""."""
        lines = (re.sub(r"\x1b\[\d*m", "", line) for line in self.text.splitlines())
        found = [" ".join(line.replace("|", " ").split()) for line in lines
                 if re.search(r"\| *(MISMATCH|CONVERSION)", line)]
        return f" {found[0][:200]}" if found else ""


def weight_files(folder, stem="model"):
    """Returns the paths of the files that a library reads, by the name of the first. Raises ValueError for a name outside
    the folder."""
    index = os.path.join(folder, f"{stem}.safetensors.index.json")
    names = [f"{stem}.safetensors"]
    if not os.path.exists(os.path.join(folder, names[0])) and os.path.exists(index):
        with open(index, encoding="utf-8") as file:
            names = sorted(set(json.load(file)["weight_map"].values()))
    if any(os.path.basename(name) != name for name in names):
        raise ValueError("the index names a file outside the folder")
    return [os.path.join(folder, name) for name in names]


def meta_tensors(files):
    """Returns name -> tensor on the meta device, from the headers of the files."""
    found = {}
    for file in files:
        with safe_open(file, "pt") as tensors:
            for name in tensors.keys():
                view = tensors.get_slice(name)
                found[name] = torch.empty(view.get_shape(), dtype=_DTYPES[view.get_dtype()], device="meta")
    return found


def lost_parts(tensors, used):
    """Returns tensors of weights that reach no parameter, though others of the same weight do."""
    modules = {name.rpartition(".")[0] for name in used if name.rpartition(".")[2] in _PARTS}
    return [name for name in sorted(tensors.keys() - used)
            if name.rpartition(".")[0] in modules and name.rpartition(".")[2] in _PARTS]


def _fates(model, info, tensors, origins):
    """Returns (the names of tensors that reach the model, names by their fate)."""
    used, converted, recast = set(), [], []
    for name, value in [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]:
        names = origins.of(value)
        used |= names
        if len(names) > 1:
            converted.append(name)
        elif names and value.dtype != (stored := tensors[next(iter(names))].dtype):
            if stored.itemsize == 1 or not stored.is_floating_point:
                recast.append(name)
    return used, {"missing": sorted(map(str, info["missing_keys"])), "lost": lost_parts(tensors, used),
                  "recast": recast, "mis-shaped": sorted(str(m[0]) for m in info["mismatched_keys"]),
                  "unexpected": sorted(map(str, info["unexpected_keys"])), "converted": converted,
                  "tied": sorted(getattr(model, "all_tied_weights_keys", None) or ())}


def judged(model, used, fates, version):
    """Returns the answer for a model that was built from the tensors `used`. `fates`: names by their fate."""
    said = {"missing": "not in the checkpoint, so they get random values",
            "lost": "left out, though they belong to weights that are read",
            "recast": "cast from codes to numbers", "mis-shaped": "of other shapes in the checkpoint"}
    wrong = [f"{len(fates[fate])} tensors {text}, such as {fates[fate][0]}"
             for fate, text in said.items() if fates.get(fate)]
    text = "; ".join(wrong) or f"builds {type(model).__name__} and finds all {len(used)} tensors that it needs"
    if fates["unexpected"] and not wrong:
        text += f"; it leaves out {len(fates['unexpected'])}, such as {fates['unexpected'][0]}"
    return {"verdict": "misreads" if wrong else "reads", "text": text, "version": version,
            "tensors": {fate: some[:_MOST] for fate, some in fates.items() if some}}


def failed(error, version, report=None):
    """Returns the answer for an exception of loading. `report`: what the library logged."""
    reason = one_line(error) + (report.cause() if report else "")
    if isinstance(error, ImportError):
        return unknown(f"a package is missing: {reason}", version)
    missing = isinstance(error, (NotImplementedError, MemoryError)) and not isinstance(error, UnsupportedError)
    if missing or re.search("meta (tensor|device)", f"{report.text if report else ''} {error}"):
        return unknown(f"it cannot be asked without weights: {reason}", version)
    return dict(unknown(reason, version), verdict="refuses")


def one_line(error):
    """Returns the name and the text of an exception as one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:400]


def _ask(folder, version):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        own = json.load(file).get("auto_map")
    try:
        config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # noqa: BLE001
        if own:
            return unknown("the model needs code of its own, which is not run", version)
        return dict(unknown(one_line(error), version), verdict="refuses")
    names = config.architectures or [""]
    cls = getattr(transformers, str(names[0]), None)
    if not (isinstance(cls, type) and issubclass(cls, transformers.PreTrainedModel)):
        return unknown(f"it has no class {names[0]!r}", version)
    report = _Report()
    logging.getLogger("transformers").addHandler(report)
    try:
        files = weight_files(folder)
        tensors = meta_tensors(files)
        with _headers_of(files), Origins(tensors) as origins:
            model, info = cls.from_pretrained(None, config=config, state_dict=dict(tensors), device_map="meta",
                                              dtype="auto", output_loading_info=True)
        return judged(model, *_fates(model, info, tensors, origins), version)
    except Exception as error:  # noqa: BLE001
        return failed(error, version, report)
    finally:
        logging.getLogger("transformers").removeHandler(report)


@contextlib.contextmanager
def _headers_of(files):
    """Makes our quantizer read the headers of these files, as a model without files gives it none."""
    before = Nvfp4Quantizer._process_model_before_weight_loading

    def with_files(self, model, checkpoint_files=None, **others):
        return before(self, model, checkpoint_files=files, **others)

    Nvfp4Quantizer._process_model_before_weight_loading = with_files
    try:
        yield
    finally:
        Nvfp4Quantizer._process_model_before_weight_loading = before


def ask(folder, loader):
    """Returns the answer of "transformers" or "transformers+nvfp4", as nvfp4._ask.answers()."""
    registered = registry.is_registered()
    (registry.register if loader == "transformers+nvfp4" else registry.unregister)()
    version = f"transformers {transformers.__version__}"
    if loader == "transformers+nvfp4":
        version += f" with `import nvfp4.transformers` {_core.version()}"
    try:
        return _ask(folder, version)
    except Exception as error:  # noqa: BLE001
        return unknown(f"it could not be asked: {one_line(error)}", version)
    finally:
        (registry.register if registered else registry.unregister)()
