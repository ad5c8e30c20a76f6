"""SGLang's layer classes on our kernels: engines/sglang_cases.py, in build/venv-sglang.

`tools/engines_env.sh sglang` makes that environment; another: NVFP4_SGLANG_PYTHON=/path/to/python.
"""

import engine_cases
import pytest


@pytest.mark.slow
def test_in_sglang(tmp_path):
    engine_cases.run("sglang", tmp_path, "sglang_cases.py")
