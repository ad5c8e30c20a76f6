#pragma once

/// Instructions under PTX's names, one thin function for each.
#include "backends/cuda/ptx/barrier.cuh"
#include "backends/cuda/ptx/cp_async.cuh"
#include "backends/cuda/ptx/griddepcontrol.cuh"
#include "backends/cuda/ptx/mbarrier.cuh"
#include "backends/cuda/ptx/memory.cuh"
#include "backends/cuda/ptx/mma.cuh"
#include "backends/cuda/ptx/registers.cuh"
#include "backends/cuda/ptx/setmaxnreg.cuh"
#include "backends/cuda/ptx/tma.cuh"
#include "backends/cuda/ptx/wgmma.cuh"
