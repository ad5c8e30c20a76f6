"""vLLM on our kernels: engines/vllm_cases.py, in build/venv-vllm, where vLLM's package for CPUs is.

tools/engines_env.sh makes that environment; another: NVFP4_VLLM_PYTHON=/path/to/python.
"""

import pytest

import engine_cases

GROUPS = {
    "layers": "linear_layers or experts_of or cut or missing or stays or another_kind_have",
    "chosen": "chosen or first_of or another_kind_are or exclusions or another_hash",
    "dense": "serves_a_dense",
    "experts": "serves_experts",
    "types": "types_that_verify or of_both_schemes",
    "weights": "takes_new_weights",
    "distilled": "distilled",
}


@pytest.mark.parametrize("group", ["dense", *(pytest.param(g, marks=pytest.mark.slow) for g in GROUPS if g != "dense")])
def test_in_vllm(tmp_path, group):
    engine_cases.run("vllm", tmp_path, "vllm_cases.py", GROUPS[group])
