#include "backends/reference/rows.h"

#include <vector>

#include "quantizers/encode_block.h"
#include "quantizers/row_math.h"

namespace nvfp4::reference {
namespace {

float rounded(float value, DType dtype) {
  switch (dtype) {
    case DType::f32:
      break;
    case DType::bf16:
      return BF16::from_float(value).to_float();
    case DType::f16:
      return FP16::from_float(value).to_float();
  }
  return value;
}

void store(const MatrixSpan& m, std::int64_t row, std::int64_t col, float value) {
  const std::int64_t i = row * m.stride + col;
  if (m.dtype == DType::f32)
    static_cast<float*>(m.data)[i] = value;
  else
    static_cast<std::uint16_t*>(m.data)[i] =
        m.dtype == DType::bf16 ? BF16::from_float(value).bits : FP16::from_float(value).bits;
}

/// Loads x, or computes and stores the sum of x and the residual.
void load_input(const RowJob& job, std::int64_t r, float* row) {
  const RmsNormOptions& norm = job.norm;
  for (std::int64_t c = 0; c < job.cols; ++c) {
    row[c] = job.x.at(r, c);
    if (norm.residual.data == nullptr) continue;
    row[c] = rounded(row[c] + norm.residual.at(r, c), norm.residual_out.dtype);
    store(norm.residual_out, r, c, row[c]);
  }
}

void mix(const RowJob& job, std::int64_t r, float* row) {
  float weights[kMostStreams], x[kMostStreams];
  for (int h = 0; h < job.streams; ++h) weights[h] = job.mix.at(r, h);
  for (std::int64_t c = 0; c < job.cols; ++c) {
    for (int h = 0; h < job.streams; ++h) x[h] = job.x.at(r, h * job.cols + c);
    row[c] = mixed(weights, x, job.streams);
  }
}

void swiglu_row(const RowJob& job, std::int64_t r, float* row) {
  const std::int64_t group = job.swiglu.interleave;
  for (std::int64_t c = 0; c < job.cols; ++c) {
    const std::int64_t gate = group == 0 ? c : c / group * 2 * group + c % group;
    const std::int64_t up = gate + (group == 0 ? job.cols : group);
    row[c] = swiglu(job.x.at(r, gate), job.x.at(r, up), job.swiglu.limit);
  }
}

/// Computes the balanced tree of reciprocal_rms().
float sum_of_squares(const float* row, std::int64_t n) {
  std::vector<float> padded(row, row + n);
  padded.resize(padded.size() + 3 - (padded.size() + 3) % 4);
  std::vector<float> sums;
  for (std::size_t i = 0; i < padded.size(); i += 4)
    sums.push_back(four_squares(padded[i], padded[i + 1], padded[i + 2], padded[i + 3]));
  while (sums.size() > 1) {
    if (sums.size() % 2 != 0) sums.push_back(0.0f);
    for (std::size_t i = 0; i < sums.size() / 2; ++i) sums[i] = sums[2 * i] + sums[2 * i + 1];
    sums.resize(sums.size() / 2);
  }
  return sums.empty() ? 0.0f : sums[0];
}

void normalize(const RowJob& job, std::int64_t r, float* row) {
  const float rstd = reciprocal_rms(sum_of_squares(row, job.cols), job.cols, job.norm.eps);
  if (job.norm.rstd != nullptr) job.norm.rstd[r] = rstd;
  for (std::int64_t c = 0; c < job.cols; ++c)
    row[c] = rounded(normalized(row[c], job.weight[c], rstd), job.norm.intermediate);
}

}  // namespace

void make_rows(const RowJob& job, std::int64_t r0, std::int64_t r1, float* rows, float* amax) {
  for (std::int64_t r = r0; r < r1; ++r) {
    float* row = rows + (r - r0) * job.cols;
    switch (job.source) {
      case RowSource::plain:
      case RowSource::rms_norm:
        load_input(job, r, row);
        break;
      case RowSource::mix:
      case RowSource::mix_rms_norm:
        mix(job, r, row);
        break;
      case RowSource::swiglu:
        swiglu_row(job, r, row);
        break;
    }
    if (job.normalizes()) normalize(job, r, row);
    float largest = 0;
    for (std::int64_t c = 0; c < job.cols; ++c) {
      const float a = block_amax(row + c, 1);
      if (a > largest) largest = a;
    }
    amax[r - r0] = largest;
  }
}

void store_rows(const float* rows, std::int64_t r0, std::int64_t r1, const MatrixSpan& y) {
  for (std::int64_t r = r0; r < r1; ++r)
    for (std::int64_t c = 0; c < y.cols; ++c) store(y, r, c, rows[(r - r0) * y.cols + c]);
}

void gram(const MatrixView& x, const MatrixSpan& out, bool accumulate, std::int64_t b0,
          std::int64_t b1) {
  const std::int64_t block = out.cols;
  static_assert(kGramSums == 8);
  for (std::int64_t k = b0 * block; k < b1 * block; ++k)
    for (std::int64_t b = 0; b < block; ++b) {
      float s[kGramSums] = {};
      for (std::int64_t t = 0; t < x.rows; ++t) {
        const float product = x.at(t, k) * x.at(t, k / block * block + b);
        s[t % kGramSums] = s[t % kGramSums] + product;
      }
      const float sum = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
      float& to = static_cast<float*>(out.data)[k * out.stride + b];
      to = accumulate ? to + sum : sum;
    }
}

}  // namespace nvfp4::reference
