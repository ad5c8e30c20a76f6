#!/usr/bin/env python3
"""Lists where transformers gives linear layers other names than the checkpoint has, for
data/transformers_names.txt. Each line has a set of model types and their rules, "old>new": the
longest old beginning of a name that fits, "#" for any number, is replaced.

The names come from the models themselves, built on the meta device as tools/architectures.py does.

usage: renamed_modules.py OUT [--only MODEL_TYPE]... [--report FILE]
"""

import argparse
import copy
import sys

import architectures
import torch
import transformers
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import revert_weight_conversion
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

HEADER = "# Written by tools/renamed_modules.py with transformers {}.\n{}"
PREFERRED = ("ForConditionalGeneration", "ForCausalLM", "LMHeadModel", "ForMaskedLM", "ForPreTraining")


def template(name):
    return architectures.NUMBER.sub("#", name)


def pairs_of(model):
    """{name in a checkpoint: name in the model} of linear layers, both without numbers."""
    modules = dict(model.named_modules())
    state = model.state_dict()
    by_id = {id(v): k for k, v in state.items()}
    linear = {}
    saved = list(revert_weight_conversion(model, dict(state)).items())
    # Once more with the prefixes that older versions put before the names of towers.
    model._weight_conversions = get_model_conversion_mapping(model, add_legacy=False)
    saved += revert_weight_conversion(model, dict(state)).items()
    for name, tensor in saved:
        source = by_id.get(id(tensor))
        # One that is stored as "x_proj" may be the weight of a linear layer of that name.
        if source is None or not name.endswith((".weight", "proj")) or tensor.dim() != 2:
            continue
        if isinstance(modules[source.rpartition(".")[0]], torch.nn.Linear) and source.endswith(".weight"):
            old, new = (template(n.removesuffix(".weight")) for n in (name, source))
            linear[old] = new
    return linear


def rename(name, rules):
    parts = name.split(".")
    for n in range(len(parts), -1, -1):
        new = rules.get(".".join(parts[:n]))
        if new is not None:
            return ".".join(([new] if new else []) + parts[n:])
    return name


def rules_of(pairs):
    """The shortest beginnings that make every name right."""
    rules = {}
    for extra in range(1, 20):
        wrong = [(o, n) for o, n in pairs.items() if rename(o, rules) != n]
        if not wrong:
            break
        for old, new in wrong:
            a, b = old.split("."), new.split(".")
            same = 0
            while same < min(len(a), len(b)) and a[-1 - same] == b[-1 - same]:
                same += 1
            same = max(0, min(same, len(a) - 1) - (extra - 1))
            rules[".".join(a[:len(a) - same])] = ".".join(b[:len(b) - same])
    assert all(rename(o, rules) == n for o, n in pairs.items()), pairs
    for old in sorted(rules, key=len, reverse=True):  # what others do as well
        fewer = {k: v for k, v in rules.items() if k != old}
        if all(rename(o, fewer) == n for o, n in pairs.items()):
            rules = fewer
    return rules


def table(rules_by_type):
    types = {}
    for model_type, rules in rules_by_type.items():
        types.setdefault(rules, []).append(model_type)
    return "".join(f"{' '.join(t)} | {r}\n" for r, t in sorted(types.items(), key=lambda item: item[1]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("out")
    parser.add_argument("--only", action="append", help="a model_type")
    parser.add_argument("--report", help="what could not be built, and why")
    options = parser.parse_args()
    report = open(options.report, "w", encoding="utf-8") if options.report else sys.stderr
    classes = architectures.model_classes()
    dual_towers = modeling_auto.MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION_MAPPING_NAMES.values()
    renamed = {}
    for model_type in options.only or sorted(CONFIG_MAPPING.keys()):
        names = [n for n in classes.get(model_type, []) if hasattr(transformers, n)]
        names.sort(key=lambda n: next((i for i, p in enumerate(PREFERRED) if n.endswith(p)),
                                      8 if n in dual_towers else 9))
        for name in names:
            try:
                config = CONFIG_MAPPING[model_type](
                    **copy.deepcopy(architectures.SETTINGS.get(model_type, {})))
                model = architectures.build(getattr(transformers, name),
                                            architectures.shrink(config))
                linear = pairs_of(model)
                rules = rules_of(linear)
            except Exception as error:  # noqa: BLE001: the report names it
                print(model_type, name, type(error).__name__, str(error)[:200], file=report,
                      flush=True)
                continue
            if rules:
                renamed[model_type] = " ".join(f"{o}>{n}" for o, n in sorted(rules.items()))
            print(model_type, name, len(linear), renamed.get(model_type, ""), file=report, flush=True)
            break
    with open(options.out, "w", encoding="utf-8") as out:
        out.write(HEADER.format(transformers.__version__, table(renamed)))


if __name__ == "__main__":
    main()
