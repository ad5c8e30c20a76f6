"""Python and the command line: the same names, the same defaults."""

import inspect
import re
import subprocess
import sys

import pytest

import nvfp4

#: Of the command alone: where it runs and what it prints. --report, --json are what Python returns.
OF_THE_COMMAND = {"threads", "quiet", "report", "json", "top", "help"}
#: Of Python alone.
OF_PYTHON = {"progress"}
#: Spelled otherwise, with the reason.
OTHERWISE = {("verify", "for"): "loader",  # a keyword of Python
             ("inspect", "no_histogram"): "histograms"}
#: Missing on the command line.
ONLY_PYTHON = {"convert": {"backend"}}
#: Other names for one that Python has.
ALIASES = {"scale_search": "quantizer"}

FUNCTIONS = {"quantize": nvfp4.quantize_checkpoint, "convert": nvfp4.convert, "repair": nvfp4.repair,
             "verify": nvfp4.verify, "inspect": nvfp4.inspect, "compare": nvfp4.compare,
             "sample": nvfp4.sample}


def options_of(command):
    """Names to what the help says of them."""
    text = subprocess.run([sys.executable, "-m", "nvfp4._cli", "help", command], check=True,
                          capture_output=True, text=True).stdout
    options, name = {}, None
    for line in text.splitlines():
        if line.startswith("  -"):
            names = re.findall(r"--([\w-]+)", re.match(r"  [^ ,]+(, [^ ,]+)*", line)[0])
            names = [n.replace("-", "_") for n in names]
            name = names[0]
            options.update({n: "" for n in names})
        elif not line.startswith("   "):
            name = None
        if name:
            options[name] += " " + line.strip()
    return {n: text for n, text in options.items() if n not in OF_THE_COMMAND}


@pytest.mark.parametrize("command", FUNCTIONS)
def test_the_same_names(command):
    names = {OTHERWISE.get((command, n), ALIASES.get(n, n)) for n in options_of(command)}
    parameters = inspect.signature(FUNCTIONS[command]).parameters.values()
    keywords = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
    if command == "convert":
        keywords.add("to")
    assert names == keywords - OF_PYTHON - ONLY_PYTHON.get(command, set())


@pytest.mark.parametrize("command", FUNCTIONS)
def test_the_same_defaults(command):
    options = options_of(command)
    for name, parameter in inspect.signature(FUNCTIONS[command]).parameters.items():
        if isinstance(parameter.default, str) and parameter.default:
            default = re.escape(parameter.default)
            assert re.search(rf"{default}\b[^.;]*,? \(?the default|{default}, the default|"
                             rf"{default} \(the default", options[name]), (name, options[name])


def test_weights_are_quantized_alike_and_activations_as_flashinfer_does():
    for function in (nvfp4.quantize, nvfp4.quantize_checkpoint, nvfp4.convert, nvfp4.repair,
                     nvfp4.global_scales):
        assert inspect.signature(function).parameters["quantizer"].default == "mse"
    for function in (nvfp4.nvfp4_quantize, nvfp4.silu_and_mul_nvfp4_quantize,
                     nvfp4.rmsnorm_fp4quant, nvfp4.add_rmsnorm_fp4quant):
        assert inspect.signature(function).parameters["quantizer"].default == "max"
