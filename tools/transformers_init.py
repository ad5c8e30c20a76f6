#!/usr/bin/env python3
"""Lists the linear layers that `_init_weights` of transformers asks for their weight, for kInitReads of
src/checkpoint/verify/transformers_init.h: compressed-tensors takes it away before, so that loading stops.

Every class of every type is built on the meta device as tools/architectures.py does. Of each linear layer
the weight is taken away, and the model that it is in asked to initialize the layer, or the module that it
belongs to. What raises AttributeError goes into the list under the type of that model, which may be a tower.

usage: transformers_init.py [--only MODEL_TYPE]... [--report FILE]     prints the rows of the table
"""

import argparse
import collections
import copy
import sys

import architectures
import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING


def owners_of(model):
    """(module, the model within the model that initializes it) of each, parents first."""
    def walk(module, owner):
        if isinstance(module, transformers.PreTrainedModel):
            owner = module
        yield module, owner
        for child in module.children():
            yield from walk(child, owner)
    return walk(model, model)


def asks(owner, module, linear):
    """Reports whether the initialization raises without the layer's weight."""
    weight = linear._parameters.pop("weight")
    try:
        with torch.no_grad():
            owner._init_weights(module)
    except AttributeError as error:
        return "weight" in str(error)
    except Exception:  # noqa: BLE001: what the meta device cannot compute
        pass
    finally:
        linear._parameters["weight"] = weight
    return False


def layers_of(model):
    """{type of the model that initializes: last names of the layers that it asks}"""
    found = collections.defaultdict(dict)
    seen = set()
    for module, owner in owners_of(model):
        model_type = getattr(owner.config, "model_type", "")
        for name, linear in module.named_modules():
            # A module asks for its own weight, or for those of its children.
            if not isinstance(linear, torch.nn.Linear) or name.count(".") > 1:
                continue
            last = next(n for n, m in owner.named_modules() if m is linear).rpartition(".")[2]
            key = (type(owner), type(module), model_type, last)
            if key in seen:
                continue
            seen.add(key)
            if linear._parameters.get("weight") is not None and asks(owner, module, linear):
                found[model_type].setdefault(last)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", action="append", help="a model_type")
    parser.add_argument("--report", help="what could not be built, and why")
    options = parser.parse_args()
    report = open(options.report, "w", encoding="utf-8") if options.report else sys.stderr
    classes = architectures.model_classes()
    table = collections.defaultdict(dict)
    for model_type in options.only or sorted(CONFIG_MAPPING.keys()):
        for class_name in classes.get(model_type, []):
            cls = getattr(transformers, class_name, None)
            if cls is None:
                continue
            try:
                config = CONFIG_MAPPING[model_type](
                    **copy.deepcopy(architectures.SETTINGS.get(model_type, {})))
                model = architectures.build(cls, architectures.shrink(config))
            except Exception as error:  # noqa: BLE001: the report names it
                print(model_type, class_name, type(error).__name__, str(error)[:200], file=report,
                      flush=True)
                continue
            for owner, layers in layers_of(model).items():
                table[owner].update(layers)
    for model_type, layers in sorted(table.items()):
        print(f'    {{"{model_type}", "{" ".join(layers)}"}},', flush=True)


if __name__ == "__main__":
    main()
