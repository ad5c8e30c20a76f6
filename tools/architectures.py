#!/usr/bin/env python3
"""Lists the weights of every architecture that transformers can build from its default
configuration: the name each has in a checkpoint, its shape, and the class of the module that owns
it. tests/checkpoint/architectures_test.cc holds the selection of tensors against the list: some
types as a file of the tests, all of them in tests/python/test_architectures.py.

Needs PyTorch and transformers (tests/python/requirements.txt). Models are built on the meta device,
with two layers and four experts where the configuration takes that; no weight is allocated.

usage: architectures.py OUT.tsv [--only MODEL_TYPE]... [--again] [--report FILE]
"""

import argparse
import contextlib
import copy
import os
import re
import signal
import sys
import warnings

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a backbone must not be downloaded
warnings.filterwarnings("ignore")

import torch  # noqa: E402
import transformers  # noqa: E402
from transformers.core_model_loading import revert_weight_conversion  # noqa: E402
from transformers.initialization import no_init_weights  # noqa: E402
from transformers.models.auto import modeling_auto  # noqa: E402
from transformers.models.auto.configuration_auto import CONFIG_MAPPING  # noqa: E402

HEADER = """\
# Written by tools/architectures.py with transformers {}. ">" and a model_type, then its weights:
# class of the module that has it (Head: of the output embeddings), shape, name in a checkpoint.
"""
LAYERS, EXPERTS, SECONDS = 5, 4, 300
LAYER_FIELDS = re.compile(r"^(num_(hidden_|encoder_|decoder_|text_|vision_)?layers|n_layers?|"
                          r"(encoder|decoder)_layers|(encoder|decoder)_n_layers|depth|n_blocks)$")
EXPERT_FIELDS = re.compile(r"^(num_(local_|routed_)?experts|n_routed_experts|moe_num_experts)$")
LAYER_LISTS = re.compile(r"^(layer_types|layers_block_type|mlp_layer_types|no_rope_layers|"
                         r"attention_layers|block_types|layer_type_list)$")
NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")

# What the default configuration of a type lacks.
RESNET = {"backbone_config": {"model_type": "resnet", "out_features": ["stage2", "stage3", "stage4"]},
          "backbone": None, "use_timm_backbone": False, "use_pretrained_backbone": False}
DETR = RESNET | {"backbone_config": {"model_type": "resnet", "out_features": ["stage4"]}}
HEADS = {"head_dim": 128}
MOE = {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2,
       "first_k_dense_replace": 1}
FULL = {"full_attention": {"rope_type": "default", "rope_theta": 1e4},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
SETTINGS = {
    "autoformer": {"prediction_length": 24}, "informer": {"prediction_length": 24},
    "time_series_transformer": {"prediction_length": 24},
    "aya_vision": {"vision_config": {"model_type": "siglip_vision_model", "hidden_size": 1152,
                                     "num_attention_heads": 16}},
    "chameleon": {"vocabulary_map": {"<image>": 8711}}, "emu3": {"vocabulary_map": {"<image>": 1}},
    "cohere_compass_text": {"rope_parameters": FULL},
    "cohere_compass": {"text_config": {"model_type": "cohere_compass_text",
                                       "rope_parameters": FULL}},
    "conditional_detr": DETR, "dab-detr": DETR, "detr": DETR, "table-transformer": DETR,
    "deformable_detr": RESNET, "omdet-turbo": RESNET,
    "dbrx": {"attn_config": {"rope_theta": 1e4, "kv_n_heads": 8}},
    "diffusion_gemma": {"text_config": {"num_experts": 4, "top_k_experts": 2,
                                        "moe_intermediate_size": 704}},
    "dots1": MOE, "esm": {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32},
    "granite4_vision": {"deepstack_layer_map": [[0, 0], [1, 1]], "downsample_rate": "1/2"},
    "hunyuan_v1_dense": HEADS, "hunyuan_v1_moe": HEADS, "hunyuan_vl_text": HEADS,
    "hunyuan_vl": {"text_config": {"model_type": "hunyuan_vl_text"} | HEADS}, "ministral": HEADS,
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 16},
    "nemotron": {"num_key_value_heads": 8},
}


def shrink(config):
    """Fewer layers and experts; every other size stays as it is."""
    for key, value in list(vars(config).items()):
        if isinstance(value, transformers.PreTrainedConfig):
            shrink(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            if LAYER_FIELDS.match(key) and value > LAYERS:
                setattr(config, key, LAYERS)
            elif EXPERT_FIELDS.match(key) and value > EXPERTS:
                setattr(config, key, EXPERTS)
            elif key == "first_k_dense_replace":  # experts in the other layers
                setattr(config, key, min(value, 1))
        elif isinstance(value, (list, tuple)) and LAYER_LISTS.match(key):
            # Both kinds of layer, where there are two.
            kinds = list(dict.fromkeys(str(v) for v in value))
            chosen = [next(v for v in value if str(v) == k) for k in kinds[:LAYERS]]
            if len(value) > LAYERS:
                setattr(config, key, (chosen * LAYERS)[:LAYERS])
    return config


def model_classes():
    """model_type -> the classes that have it, those with a head first."""
    classes = {}
    names = [n for n in dir(modeling_auto) if re.fullmatch(r"MODEL_.*MAPPING_NAMES", n)]
    for name in sorted(names) + ["MODEL_MAPPING_NAMES"]:
        for model_type, found in getattr(modeling_auto, name).items():
            for cls in found if isinstance(found, (list, tuple)) else [found]:
                known = classes.setdefault(model_type, [])
                if cls is not None and cls not in known:
                    known.append(cls)
    return classes


@contextlib.contextmanager
def time_limit(seconds):
    def stop(*_):
        raise TimeoutError(f"{seconds} s")
    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def build(cls, config):
    with torch.device("meta"), no_init_weights(), time_limit(SECONDS):
        return cls(config).eval()


def owner_class(module, heads):
    """One word: what the owner is to whoever quantizes."""
    if module in heads:
        return "Head"
    if isinstance(module, torch.nn.Linear):
        return "Linear"
    if isinstance(module, torch.nn.Embedding):
        return "Embedding"
    if isinstance(module, transformers.pytorch_utils.Conv1D):
        return "Conv1D"
    if isinstance(module, torch.nn.modules.conv._ConvNd):
        return "Conv"
    return type(module).__name__


def rows_of(model):
    """(name in the checkpoint, shape, class of the owner) of each matrix and stack."""
    modules = dict(model.named_modules())
    heads = []
    with contextlib.suppress(Exception):  # some have none, and say so with an error of their own
        heads = [m for m in [model.get_output_embeddings()] if m is not None]
    dropped = set(getattr(model, "_keys_to_ignore_on_save", None) or ())
    # Tied weights too: checkpoints of older versions hold them.
    state = {k: v for k, v in model.state_dict().items() if k not in dropped}
    owner = {k: owner_class(modules[k.rpartition(".")[0]], heads) for k in state}
    # Each tensor says where it comes from, also after it was split or merged.
    saved = revert_weight_conversion(model, dict(state))
    by_id = {id(v): k for k, v in state.items()}
    rows = {}
    for name, tensor in saved.items():
        if not torch.is_tensor(tensor) or tensor.dim() < 2:
            continue
        source = by_id.get(id(tensor))
        cls = owner[source] if source else "Linear" if tensor.dim() == 2 and \
            name.endswith(".weight") else "converted"
        rows.setdefault((NUMBER.sub("#", name), cls), (name, tuple(tensor.shape)))
    return [(name, shape, cls) for (_, cls), (name, shape) in rows.items()]


def architecture(model_type, class_names):
    """Rows of all classes of the type, and what went wrong."""
    rows, errors, built = {}, [], []
    base = CONFIG_MAPPING[model_type]
    for class_name in class_names:
        cls = getattr(transformers, class_name, None)
        if cls is None:
            errors.append(f"{class_name}: not in transformers")
            continue
        bare = class_name == class_names[-1] and len(class_names) > 1
        if bare and built:
            continue  # the same without a head, and without the prefix
        for small in (True, False):
            try:
                config = base(**copy.deepcopy(SETTINGS.get(model_type, {})))
                model = build(cls, shrink(config) if small else config)
                for name, shape, owner in rows_of(model):
                    rows.setdefault((NUMBER.sub("#", name), owner), (name, shape))
                built.append(class_name)
                break
            except Exception as error:  # noqa: BLE001: the report names it
                errors.append(f"{class_name}{'' if small else ' (full size)'}: "
                              f"{type(error).__name__}: {str(error)[:200]!r}")
    return [(n, s, o) for (_, o), (n, s) in rows.items()], built, errors


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("out")
    parser.add_argument("--only", action="append", help="a model_type")
    parser.add_argument("--again", action="store_true", help="the types that OUT.tsv has")
    parser.add_argument("--report", help="what could not be built, and why")
    options = parser.parse_args()
    if options.again:
        with open(options.out, encoding="utf-8") as old:
            options.only = [line[1:].strip() for line in old if line.startswith(">")]
    classes = model_classes()
    types = options.only or sorted(CONFIG_MAPPING.keys())
    report = open(options.report, "w", encoding="utf-8") if options.report else sys.stderr
    count = 0
    with open(options.out, "w", encoding="utf-8") as out:
        out.write(HEADER.format(transformers.__version__))
        for model_type in types:
            if model_type not in classes:
                print(model_type, "no model class", file=report)
                continue
            rows, built, errors = architecture(model_type, classes[model_type])
            if rows:
                count += 1
                out.write(f">{model_type}\n")
                for name, shape, owner in sorted(rows):
                    out.write(f"{owner}\t{','.join(map(str, shape))}\t{name}\n")
                out.flush()
            for error in errors:
                print(model_type, "built" if built else "MISSING", error, file=report, flush=True)
    print(f"{count} architectures", file=sys.stderr)


if __name__ == "__main__":
    main()
