"""lm_eval, EleutherAI's harness, with a loaded NVFP4 model as it is: its class for transformers' models, on a
task of our own, without a network."""

import json
import os
from pathlib import Path

import pytest

for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
    os.environ.setdefault(name, "1")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed")
pytest.importorskip("lm_eval", reason="lm_eval is not installed")

import nvfp4.transformers
from test_evaluate import at  # noqa: F401: a model, what nvfp4 quantize makes of it, a tokenizer

QUESTIONS = [("The function returns the", ["number of bytes", "sea", "?"], 0), ("Document 1:", [" words", " x"], 0),
             ("a b c d", [" e", " words, words"], 1)]
TASK = """
task: nvfp4_choices
dataset_path: json
dataset_kwargs:
  data_files: {{test: {data}}}
output_type: multiple_choice
test_split: test
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{answer}}}}"
target_delimiter: ""
metric_list: [{{metric: acc}}]
"""


def log_likelihood(model, tokenizer, before, after):
    ids = tokenizer(before).input_ids
    both = torch.tensor([tokenizer(before + after).input_ids])
    with torch.no_grad():
        values = torch.log_softmax(model(both).logits[0].float(), -1)
    return sum(float(values[i - 1, both[0, i]]) for i in range(len(ids), both.shape[1]))


@pytest.mark.slow
def test_a_task_runs_on_the_loaded_model(at, tmp_path, monkeypatch):
    import lm_eval
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", Path(tmp_path / "datasets"))
    data = tmp_path / "questions.jsonl"
    data.write_text("".join(json.dumps(dict(zip(("question", "choices", "answer"), q))) + "\n" for q in QUESTIONS))
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "choices.yaml").write_text(TASK.format(data=data))
    model = transformers.AutoModelForCausalLM.from_pretrained(at / "quantized", dtype=torch.float32).eval()
    assert any(isinstance(m, nvfp4.transformers.Nvfp4Linear) for m in model.modules())
    tokenizer = transformers.AutoTokenizer.from_pretrained(at / "model")
    results = lm_eval.simple_evaluate(
        HFLM(pretrained=model, tokenizer=tokenizer, batch_size=2), tasks=["nvfp4_choices"],
        task_manager=TaskManager(include_path=str(tmp_path / "tasks"), include_defaults=False),
        bootstrap_iters=0, log_samples=True)
    right = 0
    for sample, (question, choices, answer) in zip(results["samples"]["nvfp4_choices"], QUESTIONS):
        expected = [log_likelihood(model, tokenizer, question, choice) for choice in choices]
        got = [value for value, _ in sample["filtered_resps"]]
        assert got == pytest.approx(expected, rel=1e-4)
        right += max(range(len(choices)), key=expected.__getitem__) == answer
    assert results["results"]["nvfp4_choices"]["acc,none"] == pytest.approx(right / len(QUESTIONS))
