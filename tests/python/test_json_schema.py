"""docs/schema/nvfp4.schema.json, by a validator that knows all of JSON Schema, against what the
commands print with --json and the functions return; the model card's front matter, read as YAML."""

import json
import pickle
import subprocess
from pathlib import Path

import pytest

import nvfp4
from command import COMMAND

jsonschema = pytest.importorskip("jsonschema")
yaml = pytest.importorskip("yaml")

SCHEMA = json.loads((Path(__file__).parents[2] / "docs/schema/nvfp4.schema.json").read_text())


def strict(schema):
    """The same, but without other keys: what is printed must be in the file."""
    if isinstance(schema, list):
        return [strict(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: strict(value) for key, value in schema.items()}
    if "properties" in out and "additionalProperties" not in out:
        out["additionalProperties"] = False
    return out


def check(name, report):
    schema = {"$schema": SCHEMA["$schema"], "$defs": strict(SCHEMA["$defs"]), "$ref": f"#/$defs/{name}"}
    jsonschema.Draft202012Validator(schema).validate(report)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("schema")
    nvfp4.sample(folder / "m", layers=1, scale=1 / 64)
    nvfp4.quantize_checkpoint(folder / "m", folder / "q")
    (folder / "mixed.yaml").write_text("rules:\n  - kind: attention\n    action: mxfp8\n")
    nvfp4.quantize_checkpoint(folder / "m", folder / "mixed", recipe=folder / "mixed.yaml")
    return folder


def printed(folder, *arguments):
    return json.loads(subprocess.run([*COMMAND, *arguments, "--json"], cwd=folder,
                                     capture_output=True).stdout)


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("words", (
    "quantize m dry --dry-run", "quantize m out --quiet", "convert q plain --to bf16", "inspect q", "inspect m --no-histogram",
    "inspect mixed", "inspect q --tensor model.layers.0.mlp.up_proj", "compare m q", "verify q --source m",
    "verify q --for transformers", "repair q mended", "repair q mended-dry --dry-run", "selftest --device cpu"))
def test_every_command_prints_what_it_says(folder, words):
    check(words.split()[0], printed(folder, *words.split()))


def test_report_has_every_decision_of_a_run(folder):
    tensors = printed(folder, "quantize", "m", "ignored", "--ignore", "*.up_proj")["tensors"]
    assert all((t["action"] == "kept") == bool(t.get("reason")) for t in tensors)
    assert sum(t.get("reason") == "--ignore *.up_proj" for t in tensors) == 1


def test_ranks_print_the_report_or_missing_ranks(folder):
    nvfp4.quantize_checkpoint(folder / "m", folder / "shared")
    for words in (["compare", "m", "shared"], ["verify", "shared", "--source", "m"]):
        shared = [*words, "--ranks", "2", "--parts", f"parts-{words[0]}"]
        first = printed(folder, *shared, "--rank", "1")
        check("missing", first)
        assert first == {"missing_ranks": [0]}
        assert printed(folder, *shared, "--rank", "0") == printed(folder, *words)
    path, parts = folder / "shared", folder / "parts-python"
    assert nvfp4.verify(path, rank=0, ranks=2, parts=parts) == {"missing_ranks": [1]}
    assert nvfp4.verify(path, rank=1, ranks="2", parts=parts) == nvfp4.verify(path)
    assert nvfp4.compare(folder / "m", path, rank=0, ranks=2, parts=parts) == {"missing_ranks": [1]}
    with pytest.raises(nvfp4.InvalidValueError, match="needs parts"):
        nvfp4.compare(folder / "m", path, rank=0, ranks=2)


def test_errors_are_in_the_schema_too(folder):
    report = printed(folder, "inspect", "nowhere")
    check("error", report)
    with pytest.raises(nvfp4.IoError) as error:
        nvfp4.inspect(folder / "nowhere")
    assert error.value.code == report["error"]["code"] == "NV0102"
    assert error.value.fix == report["error"]["fix"]
    with pytest.raises(nvfp4.InvalidValueError) as error:
        nvfp4.quantize_checkpoint(folder / "m", folder / "x", format="zip")
    assert error.value.code == "NV0303"
    with pytest.raises(nvfp4.IoError) as error:
        nvfp4.inspect("disk full")
    again = pickle.loads(pickle.dumps(error.value))
    assert (again.code, str(again)) == ("NV0102", str(error.value))
    assert nvfp4.IoError("disk full").code == "NV0199"


def test_the_card_is_markdown_with_yaml(folder):
    report = nvfp4.quantize_checkpoint(folder / "m", folder / "card", ignore=["*.o_proj", "a: 'b'"])
    card = (folder / "card" / report["card"]).read_text()
    _, front, body = card.split("---\n", 2)
    front = yaml.safe_load(front)
    assert front["base_model_relation"] == "quantized" and front["library_name"] == "transformers"
    assert front["tags"] == ["nvfp4", "fp4", "w4a4", "modelopt"]
    assert "# LlamaForCausalLM in NVFP4" in body
