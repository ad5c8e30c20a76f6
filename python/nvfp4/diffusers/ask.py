"""Loads a part of a pipeline into diffusers on the meta device, with tensors that have shapes and dtypes alone."""

import json
import os
from unittest import mock

import diffusers
import torch
from diffusers.models import model_loading_utils, modeling_utils

from .. import _core
from .._ask import unknown
from ..transformers.ask import failed, judged, lost_parts, meta_tensors, weight_files


def _read_header(file, **others):
    """Takes the place of diffusers' load_state_dict(), which gets a dict where it has read the file before."""
    return file if isinstance(file, dict) else meta_tensors([file])


def ask(folder, loader):
    """Returns the answer of diffusers with our quantizer, as nvfp4._ask.answers()."""
    version = f"diffusers {diffusers.__version__} with `import nvfp4.diffusers` {_core.version()}"
    try:
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            name = json.load(file).get("_class_name")
        if name is None:
            return dict(unknown("config.json has no _class_name, as a part of a pipeline has", version), verdict="refuses")
        cls = getattr(diffusers, str(name), None)
        if not (isinstance(cls, type) and issubclass(cls, diffusers.ModelMixin)):
            return unknown(f"it has no model {name!r}", version)
        tensors = meta_tensors(weight_files(folder, "diffusion_pytorch_model"))
        with mock.patch.object(modeling_utils, "load_state_dict", _read_header), \
                mock.patch.object(model_loading_utils, "load_state_dict", _read_header):
            model, info = cls.from_pretrained(folder, torch_dtype=torch.bfloat16, device_map={"": "meta"},
                                              use_safetensors=True, local_files_only=True, output_loading_info=True)
        unexpected = sorted(info["unexpected_keys"])
        used = tensors.keys() - unexpected
        return judged(model, used, {"missing": sorted(info["missing_keys"]), "lost": lost_parts(tensors, used),
                                    "unexpected": unexpected}, version)
    except Exception as error:  # noqa: BLE001
        return failed(error, version)
