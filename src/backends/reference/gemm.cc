#include "backends/reference/gemm.h"

#include <cstring>

namespace nvfp4::reference {
namespace {

struct CodeRecord {
  std::int8_t doubled[kBlock];  // 2 · e2m1
  float scale;
};
struct ElementRecord {
  float x[kBlock];
};

int doubled(unsigned code) {
  return static_cast<int>(2 * E2M1{static_cast<std::uint8_t>(code & 0xF)}.to_float());
}

/// Returns the weight code of row r and element k of a block.
unsigned weight_code(const std::uint8_t* codes, std::int64_t r, std::int64_t k) {
  const std::uint8_t byte = codes[(k / 8 * kPanelRows + r) * 4 + k % 8 / 2];
  return static_cast<unsigned>(byte >> (k % 2 * 4)) & 0xF;
}

void prepare_codes(const Activations& x, std::int64_t row, int rows, std::byte* records) {
  for (std::int64_t b = 0; b < x.blocks; ++b)
    for (int t = 0; t < rows; ++t, records += sizeof(CodeRecord)) {
      const std::uint8_t* codes = x.codes + (row + t) * x.code_stride + b * (kBlock / 2);
      CodeRecord record;
      for (int k = 0; k < kBlock; ++k)
        record.doubled[k] = static_cast<std::int8_t>(doubled(codes[k / 2] >> (k % 2 * 4)));
      record.scale = E4M3{x.scales[(row + t) * x.scale_stride + b]}.to_float();
      std::memcpy(records, &record, sizeof record);
    }
}

void prepare_elements(const Activations& x, std::int64_t row, int rows, std::byte* records) {
  const MatrixView view(x.data, x.dtype, x.rows, x.blocks * kBlock, x.stride);
  for (std::int64_t b = 0; b < x.blocks; ++b)
    for (int t = 0; t < rows; ++t, records += sizeof(ElementRecord)) {
      ElementRecord record;
      for (int k = 0; k < kBlock; ++k) record.x[k] = view.at(row + t, b * kBlock + k);
      std::memcpy(records, &record, sizeof record);
    }
}

/// Calls add_block(sum, record, scale, codes, row of the panel) for every row of x, row of the
/// panels and block. Blocks are innermost.
template <class Record, class Sum, class F>
void for_each_sum(const Panels& w, const std::byte* records, int rows, float* sums,
                  std::int64_t stride, F&& add_block) {
  for (int t = 0; t < rows; ++t)
    for (std::int64_t n = 0; n < w.count * kPanelRows; ++n) {
      const std::uint8_t* panel = w.data + n / kPanelRows * w.bytes;
      const std::int64_t r = n % kPanelRows;
      Sum sum = 0;
      for (std::int64_t b = 0; b < w.blocks; ++b) {
        const PanelBlock at = panel_block(b, w.blocks);
        Record record;
        std::memcpy(&record, records + (b * rows + t) * static_cast<std::int64_t>(sizeof record),
                    sizeof record);
        sum = add_block(sum, record, E4M3{panel[at.scales + r]}.to_float(), panel + at.codes, r);
      }
      sums[t * stride + n] += static_cast<float>(sum);
    }
}

void direct_codes(const Panels& w, const std::byte* records, int rows, float* sums,
                  std::int64_t stride) {
  for_each_sum<CodeRecord, float>(
      w, records, rows, sums, stride,
      [](float sum, const CodeRecord& x, float scale, const std::uint8_t* codes, std::int64_t r) {
        int dot = 0;
        for (int k = 0; k < kBlock; ++k) dot += x.doubled[k] * doubled(weight_code(codes, r, k));
        return sum + 0.25f * static_cast<float>(dot) * x.scale * scale;  // the product is exact
      });
}

void direct_elements(const Panels& w, const std::byte* records, int rows, float* sums,
                     std::int64_t stride) {
  for_each_sum<ElementRecord, double>(
      w, records, rows, sums, stride,
      [](double sum, const ElementRecord& x, float scale, const std::uint8_t* codes,
         std::int64_t r) {
        for (int k = 0; k < kBlock; ++k) {
          const float w = 0.5f * static_cast<float>(doubled(weight_code(codes, r, k))) * scale;
          sum += static_cast<double>(x.x[k]) * static_cast<double>(w);
        }
        return sum;
      });
}

constexpr int kStripRows = 4;

}  // namespace

void finish_gemm(const GemmOutput& output, const float* sums, std::int64_t stride,
                 const GemmPart& part) {
  for (std::int64_t t = 0; t < part.rows; ++t)
    for (std::int64_t j = 0; j < part.cols; ++j) {
      const std::int64_t m = part.m0 + t, n = part.n0 + j;
      float y = sums[t * stride + j] * output.factor(m, n);
      if (output.bias != nullptr) y = y + output.bias[n];
      const std::int64_t i = m * output.out.stride + n;
      if (output.out.dtype == DType::f32)
        static_cast<float*>(output.out.data)[i] = y;
      else
        static_cast<std::uint16_t*>(output.out.data)[i] =
            output.out.dtype == DType::bf16 ? BF16::from_float(y).bits : FP16::from_float(y).bits;
    }
}

const GemmKernels& w4a4_kernels() {
  static constexpr GemmKernels kKernels{
      .direct = {.records = {kStripRows, sizeof(CodeRecord), prepare_codes}, .run = direct_codes}};
  return kKernels;
}

const GemmKernels& w4a16_kernels() {
  static constexpr GemmKernels kKernels{
      .direct = {.records = {kStripRows, sizeof(ElementRecord), prepare_elements},
                 .run = direct_elements}};
  return kKernels;
}

}  // namespace nvfp4::reference
