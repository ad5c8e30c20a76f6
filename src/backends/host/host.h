#pragma once

#include "backends/gemm_backend.h"

/// GEMM and mixtures of experts on the CPU, with the kernels of any Backend.
namespace nvfp4::host {

const GemmBackend& cpu_gemm_backend();

/// Returns an id of a routing. An unsigned id above 2^63 becomes negative.
std::int64_t id_at(const Routing& routing, std::int64_t token, std::int64_t choice);

// The functions of cpu_gemm_backend(), each in the file of its name.
void pack(const PackJob& job);
void unpack(const UnpackJob& job);
void plan(GemmPlan::Impl& plan);
std::string describe(const GemmPlan::Impl& plan);
void run(const GemmCall& call);
void dispatch(const DispatchJob& job);
void gather_rows(const GatherJob& job);
void combine_rows(const CombineJob& job);
void add_rows(const MatrixView& other, const MatrixSpan& y, Stream stream);
void clear_rows_from(const std::int32_t* first, const MatrixSpan& m, Stream stream);

}  // namespace nvfp4::host
