"""Compares gemm/sm100/cublaslt.h with NVIDIA's header and library of cuBLASLt. Skipped without them: NVFP4_TEST_CUBLAS
names a folder with include/cublasLt.h (`pip install nvidia-cublas` has one in nvidia/cu13)."""

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"


def cublas():
    named = os.environ.get("NVFP4_TEST_CUBLAS")
    folders = [Path(named)] if named else [Path(p) / "nvidia/cu13" for p in sys.path]
    return next((f for f in folders if (f / "include/cublasLt.h").exists()), None)


def toolkit():
    nvcc = shutil.which("nvcc")
    folders = [Path(nvcc).resolve().parents[1]] if nvcc else []
    folders += [Path("/usr/local/cuda")] + [Path(p) / "nvidia/cu13" for p in sys.path]
    return next((f / "include" for f in folders if (f / "include/cuda_runtime_api.h").exists()), None)


FOLDER = cublas()
pytestmark = pytest.mark.skipif(FOLDER is None, reason="no cuBLAS headers: NVFP4_TEST_CUBLAS names none")

CHECKS = """
#include <cstddef>
#include <cublasLt.h>
#include "backends/cuda/gemm/sm100/cublaslt.h"
namespace own = nvfp4::cuda::cublaslt;
static_assert(own::kReal32 == CUDA_R_32F && own::kRealE2m1 == CUDA_R_4F_E2M1 && own::kRealE4m3 == CUDA_R_8F_E4M3);
static_assert(own::kFactorOfRow == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
static_assert(own::kFastAccumulation == CUBLASLT_MATMUL_DESC_FAST_ACCUM);
static_assert(own::kEpilogue == CUBLASLT_MATMUL_DESC_EPILOGUE && own::kAddBias == CUBLASLT_EPILOGUE_BIAS);
static_assert(own::kBias == CUBLASLT_MATMUL_DESC_BIAS_POINTER && own::kBiasType == CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
static_assert(own::kReal16 == CUDA_R_16F && own::kRealBf16 == CUDA_R_16BF);
static_assert(own::kPointerMode == CUBLASLT_MATMUL_DESC_POINTER_MODE);
static_assert(own::kFactorsOnDevice == CUBLASLT_POINTER_MODE_DEVICE);
static_assert(own::kCompute32 == CUBLAS_COMPUTE_32F && own::kTransposed == CUBLAS_OP_T);
static_assert(own::kSuccess == CUBLAS_STATUS_SUCCESS && own::kNotSupported == CUBLAS_STATUS_NOT_SUPPORTED);
static_assert(own::kScaleOf16 == CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3);
static_assert(own::kTransposeA == CUBLASLT_MATMUL_DESC_TRANSA);
static_assert(own::kScalesOfA == CUBLASLT_MATMUL_DESC_A_SCALE_POINTER);
static_assert(own::kScalesOfB == CUBLASLT_MATMUL_DESC_B_SCALE_POINTER);
static_assert(own::kScaleModeA == CUBLASLT_MATMUL_DESC_A_SCALE_MODE);
static_assert(own::kScaleModeB == CUBLASLT_MATMUL_DESC_B_SCALE_MODE);
static_assert(own::kMostWorkspace == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
static_assert(own::kAlignmentOfC == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
static_assert(own::kAlignmentOfD == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
using Theirs = cublasLtMatmulHeuristicResult_t;
static_assert(sizeof(own::Algorithm) == sizeof(cublasLtMatmulAlgo_t) && sizeof(own::Heuristic) == sizeof(Theirs));
static_assert(offsetof(own::Heuristic, workspace) == offsetof(Theirs, workspaceSize));
static_assert(offsetof(own::Heuristic, state) == offsetof(Theirs, state));
static_assert(offsetof(own::Heuristic, waves) == offsetof(Theirs, wavesCount));
"""


def test_values_and_layouts_are_those_of_the_header(tmp_path):
    include = toolkit()
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if include is None or compiler is None:
        pytest.skip("no CUDA headers" if include is None else "no compiler")
    file = tmp_path / "checks.cc"
    file.write_text(CHECKS)
    command = [compiler, "-std=c++20", "-fsyntax-only", f"-I{SOURCE}", f"-I{FOLDER}/include", f"-I{include}", file]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_library_takes_each_attribute_in_its_size():
    libraries = sorted((FOLDER / "lib").glob("libcublasLt.so.1*"))
    if not libraries:
        pytest.skip("no library beside the headers")
    lt = ctypes.CDLL(str(libraries[-1]))
    lt.cublasLtGetVersion.restype = ctypes.c_size_t
    assert lt.cublasLtGetVersion() >= 120800
    product = ctypes.c_void_p()
    assert lt.cublasLtMatmulDescCreate(ctypes.byref(product), 68, 0) == 0
    written = ctypes.c_size_t()
    for attribute, size in {2: 4, 3: 4, 7: 4, 8: 8, 17: 8, 18: 8, 25: 1, 26: 4, 31: 4, 32: 4}.items():
        assert lt.cublasLtMatmulDescGetAttribute(product, attribute, None, 0, ctypes.byref(written)) == 0
        assert written.value == size, attribute
    one = ctypes.c_int32(1)
    for attribute in (2, 3, 31, 32):
        assert lt.cublasLtMatmulDescSetAttribute(product, attribute, ctypes.byref(one), 4) == 0, attribute
    matrix = ctypes.c_void_p()
    e2m1 = [33, ctypes.c_uint64(64), ctypes.c_uint64(32), ctypes.c_int64(64)]
    assert lt.cublasLtMatrixLayoutCreate(ctypes.byref(matrix), *e2m1) == 0
    preference, bytes_ = ctypes.c_void_p(), ctypes.c_uint64(32 << 20)
    assert lt.cublasLtMatmulPreferenceCreate(ctypes.byref(preference)) == 0
    assert lt.cublasLtMatmulPreferenceSetAttribute(preference, 1, ctypes.byref(bytes_), 8) == 0
    alignment = ctypes.c_uint32(16)
    for attribute in (7, 8):
        assert lt.cublasLtMatmulPreferenceSetAttribute(preference, attribute, ctypes.byref(alignment), 4) == 0
