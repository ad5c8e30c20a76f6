"""Python and the command line: the names, choices, defaults and texts of one table."""

import inspect
import re
import subprocess

import pytest

import nvfp4
from command import SCRIPT
from nvfp4 import _core

#: Of Python alone.
OF_PYTHON = {"progress"}
#: Of the command alone: where it runs and what it prints. --report, --json are what Python returns.
OF_THE_COMMAND = {"--threads", "-q,--quiet", "--report", "--json", "--top", "--row", "--blocks"}

#: They measure or check the machine; Python has plan_gemm(autotune=True).
OF_A_MACHINE = {"bench", "tune", "selftest"}

COMMANDS = {c["name"]: c for c in _core.commands()}
WITH_FUNCTION = [name for name, c in COMMANDS.items() if c["function"]]


def help_of(command):
    return subprocess.run([*SCRIPT, "help", command], check=True,
                          capture_output=True, text=True).stdout


def parameters(command):
    return inspect.signature(getattr(nvfp4, COMMANDS[command]["function"])).parameters


@pytest.mark.parametrize("command", COMMANDS)
def test_help_lists_the_options_in_order(command):
    names = [re.split(r"  |(?<=[a-z]) [A-Z]", line.strip())[0].replace(", ", ",")
             for line in help_of(command).splitlines() if re.match(r"  (-|[A-Z]+  )", line)]
    wanted = [o["names"] for o in COMMANDS[command]["options"]]
    assert sorted(names) == sorted([*wanted, "-h,--help"])
    assert [n for n in names if n != "-h,--help"] == wanted


@pytest.mark.parametrize("command", COMMANDS)
def test_what_python_has_no_keyword_for(command):
    without = {o["names"] for o in COMMANDS[command]["options"] if not o["keyword"]}
    assert command in OF_A_MACHINE or without <= OF_THE_COMMAND


@pytest.mark.parametrize("command", WITH_FUNCTION)
def test_the_function_takes_the_keywords_of_the_table(command):
    keywords = {o["keyword"] for o in COMMANDS[command]["options"]} - {""}
    assert keywords == parameters(command).keys() - OF_PYTHON


@pytest.mark.parametrize("command", WITH_FUNCTION)
def test_the_function_has_the_defaults_of_the_table(command):
    for option in COMMANDS[command]["options"]:
        if not option["keyword"]:
            continue
        default = parameters(command)[option["keyword"]].default
        if option["required"]:
            assert default is inspect.Parameter.empty, option
        elif option["fallback"]:
            assert str(default) == option["fallback"], option
        elif default is not inspect.Parameter.empty:  # `to`, which the command can guess
            assert default in (None, "", (), 0, option["names"].startswith("--no-")), option


@pytest.mark.parametrize("command", COMMANDS)
def test_the_text_says_the_default(command):
    for option in COMMANDS[command]["options"]:
        default = re.escape(option["fallback"])
        if default and not option["choices"] == [option["fallback"]]:
            assert re.search(rf"{default}\b[^.;]*,? \(?the default|{default}, the default|"
                             rf"{default} \(the default|{default} if not given",
                             option["text"]), option


@pytest.mark.parametrize("command", WITH_FUNCTION)
def test_the_docstring_has_every_argument(command):
    text = getattr(nvfp4, COMMANDS[command]["function"]).__doc__
    for name in parameters(command):
        assert re.search(rf"^    {name}\b", text, re.M), name
    for option in COMMANDS[command]["options"]:
        if option["keyword"]:
            assert option["text"].split()[0] in text
    assert "{" not in text
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("command", WITH_FUNCTION)
def test_other_words_than_the_choices_are_refused(command, tmp_path):
    given = [str(tmp_path / "in"), str(tmp_path / "out"), "modelopt"]
    arguments = [n for n, p in parameters(command).items() if p.default is inspect.Parameter.empty]
    for option in COMMANDS[command]["options"]:
        if not option["choices"] or option["keyword"] in ("", "backend", "arch"):
            continue
        words = dict(zip(arguments, given)) | {option["keyword"]: "another"}
        with pytest.raises(nvfp4.InvalidValueError, match=option["keyword"]):
            getattr(nvfp4, COMMANDS[command]["function"])(**words)


def test_arguments_of_another_type_are_named():
    with pytest.raises(TypeError, match="resume = 'yes'"):
        nvfp4.quantize_checkpoint("in", "out", resume="yes")
    with pytest.raises(TypeError, match="path = 3"):
        nvfp4.verify(3)


def test_weights_and_activations_have_their_defaults():
    for function in (nvfp4.quantize, nvfp4.global_scales):
        assert inspect.signature(function).parameters["quantizer"].default == "mse"
    for function in (nvfp4.nvfp4_quantize, nvfp4.silu_and_mul_nvfp4_quantize,
                     nvfp4.rmsnorm_fp4quant, nvfp4.add_rmsnorm_fp4quant):
        assert inspect.signature(function).parameters["quantizer"].default == "max"
