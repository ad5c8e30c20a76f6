"""Compares cuda/solver/cusolver.h with NVIDIA's header of cuSOLVER. Skipped without it: NVFP4_TEST_CUSOLVER names a
folder with include/cusolverDn.h (`pip install nvidia-cusolver nvidia-cublas` has one in nvidia/cu13)."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"


def folder_with(header):
    nvcc = shutil.which("nvcc")
    named = os.environ.get("NVFP4_TEST_CUSOLVER")
    folders = [Path(named)] if named else []
    folders += [Path(p) / "nvidia/cu13" for p in sys.path]
    folders += [Path(nvcc).resolve().parents[1]] if nvcc else []
    return next((f for f in folders + [Path("/usr/local/cuda")] if (f / "include" / header).exists()), None)


CHECKS = """
#include <cusolverDn.h>
#include "backends/cuda/solver/cusolver.h"
namespace own = nvfp4::cuda::cusolver;
static_assert(own::kUpper == CUBLAS_FILL_MODE_UPPER && own::kNotUnit == CUBLAS_DIAG_NON_UNIT);
static_assert(own::kReal64 == CUDA_R_64F && own::kSuccess == CUSOLVER_STATUS_SUCCESS);
static_assert(CUSOLVER_VERSION >= own::kOldestVersion);
template <class A, class B> constexpr bool same = false;
template <class A> constexpr bool same<A, A> = true;
static_assert(same<decltype(&cusolverGetVersion), cusolverStatus_t (*)(int*)>);
static_assert(same<decltype(&cusolverDnXpotrf_bufferSize), cusolverStatus_t (*)(cusolverDnHandle_t, cusolverDnParams_t,
    cublasFillMode_t, int64_t, cudaDataType, const void*, int64_t, cudaDataType, size_t*, size_t*)>);
static_assert(same<decltype(&cusolverDnXpotrf), cusolverStatus_t (*)(cusolverDnHandle_t, cusolverDnParams_t,
    cublasFillMode_t, int64_t, cudaDataType, void*, int64_t, cudaDataType, void*, size_t, void*, size_t, int*)>);
static_assert(same<decltype(&cusolverDnXtrtri_bufferSize), cusolverStatus_t (*)(cusolverDnHandle_t, cublasFillMode_t,
    cublasDiagType_t, int64_t, cudaDataType, void*, int64_t, size_t*, size_t*)>);
static_assert(same<decltype(&cusolverDnXtrtri), cusolverStatus_t (*)(cusolverDnHandle_t, cublasFillMode_t,
    cublasDiagType_t, int64_t, cudaDataType, void*, int64_t, void*, size_t, void*, size_t, int*)>);
"""


def test_values_and_functions_are_those_of_the_header(tmp_path):
    folders = [folder_with(header) for header in ("cusolverDn.h", "cublas_api.h", "cuda_runtime_api.h")]
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if None in folders or compiler is None:
        pytest.skip("no headers of cuSOLVER, cuBLAS and CUDA, or no compiler")
    file = tmp_path / "checks.cc"
    file.write_text(CHECKS)
    command = [compiler, "-std=c++20", "-fsyntax-only", f"-I{SOURCE}", *(f"-I{f}/include" for f in folders), file]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
