"""nvfp4 evaluate, on a tiny model whose figures are computed here another way."""

import json
import math
import os
import subprocess
import sys

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

import numpy as np
import tokenizers

import nvfp4
from models_of_families import FAMILIES
import nvfp4.evaluate as package
from nvfp4.evaluate import evaluate
from nvfp4._cli import run_here
from nvfp4.evaluate.comparison import compare_logits
from nvfp4.evaluate.resampling import Bootstrap
from nvfp4.evaluate.table import lines
from nvfp4.evaluate.text import windows

CONTEXT = 32


@pytest.fixture(scope="module")
def at(tmp_path_factory):
    """A folder with a model, what nvfp4 quantize makes of it, and a text of three documents."""
    at = tmp_path_factory.mktemp("evaluate")
    torch.manual_seed(1)
    model = FAMILIES["llama"]().to(torch.bfloat16)
    model.config.eos_token_id = model.generation_config.eos_token_id = 0
    model.save_pretrained(at / "model")
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    words = {"<end>": 0, **{c: i + 1 for i, c in enumerate(sorted(alphabet))}}
    bytewise = tokenizers.Tokenizer(tokenizers.models.BPE(words, []))
    bytewise.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=bytewise, eos_token="<end>").save_pretrained(at / "model")
    nvfp4.quantize_checkpoint(at / "model", at / "quantized", scheme="w4a16")
    (at / "text").write_text("\n\x1e\n".join(f"Document {i}: " + "words, " * 40 for i in range(3)))
    return at


def test_windows_are_those_of_each_document(at):
    tokenizer = transformers.AutoTokenizer.from_pretrained(at / "model")
    everything = windows(at / "text", tokenizer, None, CONTEXT)
    ids = [i for document in (at / "text").read_text().split("\n\x1e\n")
           for i in (*tokenizer(document).input_ids, 0)]
    assert everything.shape == ((len(ids) - 1) // CONTEXT, CONTEXT + 1)
    first = {tuple(ids[k:k + CONTEXT + 1]) for k in range(0, len(ids) - CONTEXT, CONTEXT)}
    assert {tuple(w) for w in everything.tolist()} <= first
    assert torch.equal(windows(at / "text", tokenizer, 5, CONTEXT), everything[:5])


@pytest.mark.parametrize("words", [64, 16384, 300000])
def test_a_window_is_compared_in_pieces(words):
    random = torch.Generator().manual_seed(3)
    tokens = 37  # a part of a piece, a piece for each token, pieces and a rest
    plain = torch.randn(tokens, words, generator=random) * 3
    own = plain + 0.3 * torch.randn(tokens, words, generator=random)
    target = torch.randint(0, words, (tokens, 1), generator=random)
    loss, (divergence, own_loss, same) = compare_logits(own, plain, target)
    p, q = (torch.log_softmax(each.double(), -1) for each in (plain, own))
    assert loss == pytest.approx(-p.gather(1, target).mean().item(), rel=1e-5)
    assert own_loss == pytest.approx(-q.gather(1, target).mean().item(), rel=1e-5)
    assert divergence == pytest.approx((p.exp() * (p - q)).sum(1).mean().item(), rel=1e-4)
    assert same == pytest.approx((p.argmax(1) == q.argmax(1)).double().mean().item())


def test_figures(at):
    report = evaluate(at / "quantized", at / "text", at / "model", windows=None, context=CONTEXT, batch=5,
                      device="cpu")
    tokens = windows(at / "text", transformers.AutoTokenizer.from_pretrained(at / "model"), None, CONTEXT)
    p, q = (torch.log_softmax(transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32)(tokens[:, :-1]).logits.double(), -1).detach()
        for folder in (at / "model", at / "quantized"))
    loss = [torch.nn.functional.nll_loss(x.flatten(0, 1), tokens[:, 1:].flatten()).item() for x in (p, q)]
    divergence = torch.nn.functional.kl_div(q, p, log_target=True, reduction="sum") / tokens[:, 1:].numel()
    assert report["windows"] == len(tokens)
    assert report["against_perplexity"]["value"] == pytest.approx(math.exp(loss[0]), rel=1e-5)
    assert report["perplexity"]["value"] == pytest.approx(math.exp(loss[1]), rel=1e-5)
    assert report["divergence"]["value"] == pytest.approx(divergence.item(), rel=1e-2)
    assert report["perplexity_change_percent"]["value"] == pytest.approx(
        100 * math.expm1(loss[1] - loss[0]), abs=1e-3)
    assert report["same_first_choice"]["value"] == pytest.approx(
        (p.argmax(-1) == q.argmax(-1)).double().mean().item())
    # 9 bytes for 16 weights, and 4 for each row of those that are one product.
    shapes = [w.shape for n, w in transformers.AutoModelForCausalLM.from_pretrained(
        at / "model").named_parameters() if n.endswith("_proj.weight")]
    saved = report["against_figures"]["bytes"] - report["figures"]["bytes"]
    assert 0 <= sum(4 * r * c - r * c * 9 // 16 for r, c in shapes) - saved <= sum(
        8 * (r + 16) for r, _ in shapes)


@pytest.mark.parametrize("device, dtype, expected", [
    ("cuda", None, "bfloat16"), ("cuda", "float32", "float32"), ("cpu", None, "float32"), ("cpu", "float16", "float16")])
def test_both_models_have_the_requested_dtype(at, monkeypatch, device, dtype, expected):
    loaded = []
    monkeypatch.setattr(package, "usable_device", lambda name: None)  # there may be no GPU here
    monkeypatch.setattr(package, "_Subject", lambda folder, device, dtype: loaded.append((device, dtype)))
    with pytest.raises(AttributeError):  # nothing was loaded
        evaluate(at / "quantized", at / "text", at / "model", device=device, dtype=dtype)
    assert loaded == [(device, getattr(torch, expected))] * 2


def test_a_dtype_that_does_not_exist_is_named(at):
    with pytest.raises(nvfp4.InvalidValueError, match="dtype = 'float64', must be float32, bfloat16, float16"):
        evaluate(at / "model", at / "text", device="cpu", dtype="float64")


def test_only_nvfp4_models_need_the_plugin(at, monkeypatch):
    monkeypatch.setitem(sys.modules, "nvfp4.transformers", None)  # an import of it fails
    report = evaluate(at / "model", at / "text", windows=2, context=CONTEXT, device="cpu")
    assert report["dtype"] == "float32"
    with pytest.raises(ImportError):
        evaluate(at / "quantized", at / "text", windows=2, context=CONTEXT, device="cpu")


def test_help_needs_no_plugin(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "nvfp4.transformers", None)
    for name in ("calibrate", "evaluate"):
        with pytest.raises(SystemExit) as end:
            run_here(name, ["--help"])
        assert not end.value.code and f"usage: nvfp4 {name}" in capsys.readouterr().out


def test_errors_are_those_of_a_bootstrap_over_windows():
    column = np.random.default_rng(1).normal(3, 2, 400)
    mean, error = Bootstrap(400).mean(column)
    assert mean == pytest.approx(column.mean())
    assert error == pytest.approx(column.std() / 20, rel=0.1)
    # Paired: a figure and itself plus a constant differ by that, without an error.
    change, nothing = Bootstrap(400).perplexity_change(column + 0.01, column)
    assert change == pytest.approx(100 * math.expm1(0.01)) and nothing < 1e-9


def test_the_command_prints_a_table_and_writes_json(at, capsys):
    out = at / "report.json"
    common = ["--text", str(at / "text"), "--context", "32", "--windows", "4", "--device", "cpu"]
    assert run_here("evaluate", [str(at / "quantized"), "--against", str(at / "model"), *common, "--json", str(out)]) == 0
    printed = capsys.readouterr().out
    report = json.loads(out.read_text())
    assert printed.splitlines() == list(lines(report))
    assert "KL divergence, millinats per token" in printed and "text: 4 windows of 32 tokens" in printed
    assert run_here("evaluate", [str(at / "quantized"), *common, "--json", "-"]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert "divergence" not in alone
    assert alone["perplexity"]["value"] == pytest.approx(report["perplexity"]["value"])


def test_the_page_of_compare_gets_a_section(at, tmp_path, capsys):
    """Once, whatever is run how often; a page is made where there is none."""
    page = tmp_path / "report.html"
    given = [str(at / "quantized"), "--text", str(at / "text"), "--context", "32", "--windows", "4", "--device",
             "cpu", "--html", str(page)]
    assert run_here("evaluate", given) == 1 and "must be a page of nvfp4 compare --html" in capsys.readouterr().err
    assert run_here("evaluate", [*given, "--against", str(at / "model")]) == 0
    nvfp4.compare(at / "model", at / "quantized", html=tmp_path / "plain.html")
    plain = (tmp_path / "plain.html").read_text()
    first = page.read_text()
    start, end = first.index("<section aria-labelledby='evaluation'>"), first.index("</section>\n") + len("</section>\n")
    assert first[:start] + first[end:] == plain
    shown = first[start:end]
    assert shown.count("<tr>") == 8 and "<th scope='row'>change of perplexity</th>" in shown
    assert run_here("evaluate", given) == 0
    second = page.read_text()
    assert second.count("id='evaluation'") == 1 and "change of perplexity" not in second
    assert len(list(tmp_path.iterdir())) == 2
    other = tmp_path / "other.html"
    other.write_text("<p>something else</p>")
    assert run_here("evaluate", [*given[:-1], str(other)]) == 1 and "is no page of nvfp4 compare" in capsys.readouterr().err
    assert other.read_text() == "<p>something else</p>"


@pytest.mark.parametrize("option", ["--json", "--html"])
def test_what_is_read_is_not_replaced(at, capsys, option):
    before = (at / "text").read_bytes()
    assert run_here("evaluate", [str(at / "model"), "--text", str(at / "text"), option, str(at / "text"), "--device", "cpu"]) == 1
    assert f"{option} {at / 'text'} is --text" in capsys.readouterr().err
    assert (at / "text").read_bytes() == before


def test_names_in_the_page_are_no_markup():
    from nvfp4.evaluate.page import section

    figure = {"value": 1.0, "error": 0.1}
    shown = section({"model": "<b>&x", "text": "<script>", "windows": 1, "context": 2, "device": "cpu", "dtype": "float32",
                     "perplexity": figure})
    assert "<script>" not in shown and "<b>" not in shown and "&lt;b&gt;&amp;x" in shown


@pytest.mark.parametrize("given, message", [
    (["absent", "--text", "text"], "absent: No such file or directory [NV0102]"),
    (["text", "--text", "text"], "text: Not a directory"),
    ([".", "--text", "text"], ": no config.json"),
    (["model", "--text", "absent"], "absent: No such file or directory"),
    (["model", "--text", "text", "--context", "4000"], "must be 8001 or more, for two windows of 4000"),
    (["model", "--text", "text", "--windows", "0"], "error: --windows: '0', must be 1 or more"),
])
def test_mistakes_are_named(at, capsys, given, message):
    given = [str(at / g) if g in ("model", "text", "absent", ".") else g for g in given]
    assert run_here("evaluate", [*given, "--device", "cpu"]) == 1
    assert message in capsys.readouterr().err
