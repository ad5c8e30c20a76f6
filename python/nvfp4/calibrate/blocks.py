"""Runs a causal language model of transformers one decoder layer at a time. Weights are read from disk when they are
needed, one matrix at a time."""

import contextlib
import json
from pathlib import Path

import torch
from safetensors import safe_open
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import (
    WeightConverter,
    WeightRenaming,
    convert_and_load_state_dict_in_model,
    rename_source_key,
)
from transformers.modeling_utils import LoadStateDictConfig

from .._errors import FormatError, UnsupportedError, taken_from_transformers
from .experts import Source, stacks_of, streamed_modules
from .reading import EmbeddingRows, Streamed, linears_of


class _LastLayer(Exception):
    """Ends a run of the model whose remaining part is not needed."""


@contextlib.contextmanager
def parameters_on_meta():
    """A context in which new modules have parameters without memory, but real buffers."""
    register = nn.Module.register_parameter

    def on_meta(module, name, parameter):
        register(module, name, parameter)
        if parameter is not None:
            module._parameters[name] = nn.Parameter(parameter.data.to("meta"), requires_grad=False)

    nn.Module.register_parameter = on_meta
    try:
        yield
    finally:
        nn.Module.register_parameter = register


def checkpoint_files(folder):
    index = Path(folder) / "model.safetensors.index.json"
    if index.exists():
        return [Path(folder) / f for f in sorted(set(json.loads(index.read_text())["weight_map"].values()))]
    return sorted(Path(folder).glob("*.safetensors"))  # not empty: weights_to_quantize() has read them


def find_layers(model):
    """Returns the name and the longest list of modules that contain linear layers: the decoder layers."""
    lists = [(n, m) for n, m in model.named_modules() if isinstance(m, nn.ModuleList)
             and any(isinstance(child, nn.Linear) for child in m.modules())]
    if not lists:
        raise UnsupportedError(f"{type(model).__name__}: no list of decoder layers was found")
    return max(lists, key=lambda pair: (len(pair[1]), -len(pair[0])))


def head_of(model):
    """Returns the names of the parameters of the output head."""
    head = model.get_output_embeddings()
    return {f"{name}.{last}" for name, module in model.named_modules() if module is head
            for last, _ in module.named_parameters(recurse=False)}


class Blocks:
    """The decoder layers of a model. `names[i]` is the name of layer i. `sources` maps each parameter of the model to
    the checkpoint tensors that it is made of."""

    def __init__(self, folder, dtype, device):
        with taken_from_transformers(folder, "config.json"):
            config = AutoConfig.from_pretrained(folder)
        if getattr(config, "quantization_config", None) is not None:
            raise UnsupportedError(f"{folder}: is quantized; calibration needs the model as it was before")
        config._experts_implementation = "eager"  # one GEMM per expert, which can be intercepted
        with taken_from_transformers(folder, "it"), parameters_on_meta():
            self.model = AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
        self.dtype, self.device = dtype, device
        self.model.apply(lambda m: [m._buffers.__setitem__(n, b.to(device)) for n, b in m._buffers.items()
                                    if b is not None])
        self.layers_name, self.layers = find_layers(self.model)
        self.names = [f"{self.layers_name}.{i}" for i in range(len(self.layers))]
        self.files = [safe_open(f, "pt") for f in checkpoint_files(folder)]
        self._sort_tensors()
        self._find_experts()
        self._find_linears()

    def _sort_tensors(self):
        """Finds the layer and the parameter of each checkpoint tensor."""
        transforms = get_model_conversion_mapping(self.model)
        renamings = [t for t in transforms if isinstance(t, WeightRenaming)]
        converters = [t for t in transforms if isinstance(t, WeightConverter)]
        state = self.model.state_dict()
        self.converters = {pattern: c for c in converters for pattern in c.source_patterns}
        self.sources, self.tensors, self.patterns = {}, {name: {} for name in self.names}, {}
        self.tensors[None] = {}
        for file in self.files:
            for key in file.keys():
                args = (self.model.base_model_prefix, state)
                renamed, pattern = rename_source_key(key, renamings, converters, *args)
                if renamed not in state and key in state:
                    renamed, pattern = key, None
                self.patterns[key] = pattern
                self.sources.setdefault(renamed, []).append(key)
                place = renamed.removeprefix(self.layers_name + ".").partition(".")[0]
                name = f"{self.layers_name}.{place}" if renamed.startswith(self.layers_name + ".") else None
                self.tensors.get(name, {})[key] = file

    def _find_experts(self):
        """Finds, for each layer, the modules whose experts are read one by one, by name, and the sources of their
        stacks. `whole` has the first of the other modules of each class, and the reason."""
        self.experts, self.linears, self.whole = [], [], {}
        for layer_name, layer in zip(self.names, self.layers):
            found, others = streamed_modules(layer)
            sources = {f"{name}.{last}": self._source(f"{layer_name}.{name}.{last}")
                       for name, module in found.items() for last in stacks_of(module)}
            for name, module in list(found.items()):
                problem = next((p for last in stacks_of(module) if (p := sources[f"{name}.{last}"].problem(
                    module._parameters[last].shape)) is not None), None)
                if problem:
                    others[name] = problem
                    del found[name]
            for name, reason in others.items():
                self.whole.setdefault(type(layer.get_submodule(name)), (f"{layer_name}.{name}", reason))
            self.experts.append((found, sources))

    def _find_linears(self):
        """Finds, for each layer, the linear modules whose matrix is read when it is used, by name. A matrix made of
        several tensors is not among them."""
        for layer, layer_name, (_, sources) in zip(self.layers, self.names, self.experts):
            found = {}
            for name, module in linears_of(layer).items():
                source = self._source(f"{layer_name}.{name}.weight")
                if source.is_plain(module.weight.shape):
                    found[name], sources[f"{name}.weight"] = module, source
            self.linears.append(found)

    def _embeddings(self):
        """Returns parameter name -> source of the embeddings outside of the layers. Their rows are read when they are
        used."""
        sources = {}
        for name, module in self.model.named_modules():
            if isinstance(module, nn.Embedding) and module.max_norm is None and not self._in_layer(name + "."):
                source = self._source(f"{name}.weight", None)
                if source.is_plain(module.weight.shape):
                    sources[f"{name}.weight"] = source
        return sources

    def _source(self, parameter, *layer):
        keys = self.sources.get(parameter, [])
        files = self.tensors[layer[0] if layer else next(n for n in self.names if parameter.startswith(n + "."))]
        converter = next((self.converters[p] for k in keys if (p := self.patterns[k]) is not None), None)
        return Source({k: files[k] for k in keys}, {k: self.patterns[k] for k in keys}, converter)

    def streams(self, i):
        """Returns the names of the parameters of layer i that are not loaded with the layer."""
        stacks = {f"{name}.{last}" for name, module in self.experts[i][0].items() for last in stacks_of(module)}
        return stacks | {f"{name}.weight" for name in self.linears[i]}

    def _load(self, name, without=()):
        left_out = {f"{name}.{n}" for n in without} if name else {*head_of(self.model), *without}
        left_out = {key for parameter in left_out for key in self.sources.get(parameter, ())}
        state = {key: file.get_slice(key) for key, file in self.tensors[name].items() if key not in left_out}
        # Converters count their tensors, so each load needs new ones.
        config = LoadStateDictConfig(dtype=self.dtype, device_map={"": self.device},
                                     weight_mapping=get_model_conversion_mapping(self.model))
        convert_and_load_state_dict_in_model(self.model, state, config)
        module = self.model if name is None else self.model.get_submodule(name)
        missing = [n for n, p in module.named_parameters()
                   if p.is_meta and n not in without and not (name is None and self._in_layer(n))]
        tied = set(getattr(self.model, "_tied_weights_keys", None) or ())
        missing = [n for n in missing if n not in tied and n not in head_of(self.model)]
        if missing:
            raise FormatError(f"the checkpoint has no tensor for {name or 'the model'}.{missing[0]}")

    def _in_layer(self, name):
        return name.startswith(self.layers_name + ".")

    def _unload(self, module):
        for m in module.modules():
            for name, p in m._parameters.items():
                if p is not None:
                    m._parameters[name] = nn.Parameter(p.data.to("meta"), requires_grad=False)

    def attentions(self, i):
        """Returns module -> checkpoint name of the attentions of layer i that cache keys and values as they are.
        Multi-head latent attention and layers that share another layer's cache are left out."""
        found = {}
        for name, module in self.layers[i].named_modules():
            if hasattr(module, "kv_b_proj") or getattr(module, "is_kv_shared_layer", False):
                continue
            for parameter, _ in module.named_parameters():
                for source in self.sources.get(f"{self.names[i]}.{name}.{parameter}", []):
                    if source.endswith(f".{parameter}"):
                        found.setdefault(module, source.removesuffix(f".{parameter}"))
        return found

    def start(self, batches):
        """Returns the hidden states before the first layer, and the other arguments of each layer."""
        rows = self._embeddings()
        self._load(None, rows)
        reader = EmbeddingRows(self.model, rows, self.device)
        arguments = [None] * len(self.layers)

        def stub(i):
            def forward(hidden, *args, **kwargs):
                arguments[i] = arguments[i] or (args, kwargs)
                if i == 0:
                    first.append(hidden)
                if i + 1 == len(self.layers):
                    raise _LastLayer
                return hidden

            return forward

        hidden = []
        for i, layer in enumerate(self.layers):
            layer.forward = stub(i)
        for batch in batches:
            first = []
            with contextlib.suppress(_LastLayer), torch.no_grad(), reader:
                self.model(batch.to(self.device), use_cache=False)
            hidden.append(first[0].clone())  # a layer may also get the embedding as an argument
        for layer in self.layers:
            del layer.forward
        self._unload_outside()
        return hidden, arguments

    def tail(self, tokens, states, in_tuple):
        """Returns the input of the output head for `states`, the last layer's output. `in_tuple`: layers return a
        tuple."""
        rows = self._embeddings()
        self._load(None, rows)
        head, found = self.model.get_output_embeddings(), []

        def last(*args, **kwargs):
            return (states,) if in_tuple else states

        def found_head(hidden, *args, **kwargs):
            found.append(hidden)
            raise _LastLayer

        stubs = {layer: lambda hidden, *args, **kwargs: (hidden,) if in_tuple else hidden for layer in self.layers}
        stubs |= {self.layers[-1]: last} | ({head: found_head} if head is not None else {})
        for module, stub in stubs.items():
            module.forward = stub
        with contextlib.suppress(_LastLayer), torch.no_grad(), EmbeddingRows(self.model, rows, self.device):
            self.model(tokens.to(self.device), use_cache=False)
        for module in stubs:
            del module.forward
        self._unload_outside()
        return found[0] if found else states

    def _unload_outside(self):
        for name, p in list(self.model.named_parameters()):
            if not self._in_layer(name) and not p.is_meta:
                module, _, last = name.rpartition(".")
                owner = self.model.get_submodule(module)
                owner._parameters[last] = nn.Parameter(p.data.to("meta"), requires_grad=False)

    @contextlib.contextmanager
    def loaded(self, i, modules):
        """A context with layer i and its matrices, which are read one by one. `modules`: the checkpoint modules of each
        parameter."""
        self._load(self.names[i], self.streams(i))
        found, sources = self.experts[i]
        streamed = Streamed(found, self.linears[i], sources, self.device, modules)
        try:
            with streamed.in_place(self.layers[i]):
                yield self.layers[i], streamed
        finally:
            self._unload(self.layers[i])
