// Every operation on the GPU gives the bytes of the reference. Skipped, with the reason, without
// one.
#include "backends/device_backend.h"
#include "fused_cases.h"
#include "plain_cases.h"
#include "testing.h"

namespace nvfp4::operations_test {

using test::Place;

class Cuda : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_unavailable(Device::cuda()); !reason.empty())
      GTEST_SKIP() << "no GPU to run on: " << reason;
  }
  /// Fixed seeds, then fresh ones; a failure prints the seed.
  static std::uint64_t fresh_seed() { return std::random_device{}() % 1'000'000; }
  const Place gpu_{.device = Device::cuda()};
};

TEST_F(Cuda, PlainOperationsGiveTheReferenceBytes) {
  for (const std::uint64_t seed : {std::uint64_t{1}, 1'000'000 + fresh_seed()})
    for (const test::Case& c : test::plain_cases(seed, 60))
      EXPECT_EQ(test::difference(c.run(gpu_), c.run(test::kReference)), "")
          << c.name << " of seeds from " << seed;
}

TEST_F(Cuda, FusedOperationsEqualTheReferenceAndTheirChain) {
  for (const std::uint64_t seed : {std::uint64_t{1}, 1'000'000 + fresh_seed()})
    for (const test::FusedCase& c : test::fused_cases(seed, 60)) {
      const test::Result fused = c.fused(gpu_);
      EXPECT_EQ(test::difference(fused, c.fused(test::kReference)), "")
          << c.name << " of seeds from " << seed;
      EXPECT_EQ(test::difference(fused, c.chain(gpu_)), "") << c.name << ", chain";
      EXPECT_EQ(test::difference(c.stored(gpu_), c.stored(test::kReference)), "")
          << c.name << ", stored";
    }
}

TEST_F(Cuda, FusedOperationsOnManyRowsEqualTheReference) {
  for (const std::uint64_t seed : {std::uint64_t{1}, 1'000'000 + fresh_seed()})
    for (const test::FusedCase& c : test::fused_cases(seed, 30, true)) {
      EXPECT_EQ(test::difference(c.fused(gpu_), c.fused(test::kReference)), "")
          << c.name << " of seeds from " << seed;
      EXPECT_EQ(test::difference(c.stored(gpu_), c.stored(test::kReference)), "")
          << c.name << ", stored";
    }
}

/// More rows than a GPU works on at a time, of the lengths that models have.
TEST_F(Cuda, LargeFusedInputsHaveTheCpusBytes) {
  const std::uint64_t seed = fresh_seed();
  const std::vector<float> weight = test::row_of(test::Fill::gaussian, 7168, seed);
  const test::Array<float> weight_on_gpu(weight, Device::cuda());
  const auto expect_same = [&](const char* what, const QuantizedActivation& gpu,
                               const QuantizedActivation& cpu) {
    EXPECT_TRUE(to_device(gpu.view(), {}) == to_device(cpu.view(), {}))
        << what << ", " << layout_name(cpu.view().shape.layout) << " seed " << seed;
  };
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32})
    for (const test::Fill fill : {test::Fill::gaussian, test::Fill::student}) {
      const Matrix x = test::make(fill, 3001, 7168, seed, dtype);
      const Matrix on_gpu = to_device(x.view(), Device::cuda());
      for (const GlobalScope scope : {GlobalScope::tensor, GlobalScope::vector})
        for (const ScaleLayout layout :
             {ScaleLayout::linear, ScaleLayout::tiled_128x4, ScaleLayout::packed_mn_major}) {
          const QuantizeOptions o{.quantizer = Quantizer::max, .layout = layout, .scope = scope};
          expect_same("quantize", QuantizedActivation(quantize(on_gpu.view(), o)),
                      QuantizedActivation(quantize(x.view(), o)));
          expect_same("rms_norm", rms_norm_quantize(on_gpu.view(), weight_on_gpu.span(), {}, o),
                      rms_norm_quantize(x.view(), weight, {}, o));
          expect_same("swiglu", swiglu_quantize(on_gpu.view(), {}, o),
                      swiglu_quantize(x.view(), {}, o));
        }
    }
}

TEST_F(Cuda, LargeInputsGiveTheBytesOfTheCpu) {
  const std::uint64_t seed = fresh_seed();
  const Matrix x = test::make(test::Fill::student, 2048, 7168, seed, DType::bf16);
  const Matrix on_gpu = to_device(x.view(), Device::cuda());
  for (const Quantizer q : {Quantizer::max, Quantizer::four_over_six, Quantizer::mse})
    for (const GlobalScope scope : {GlobalScope::tensor, GlobalScope::vector})
      for (const BlockAxis axis : {BlockAxis::rows, BlockAxis::columns}) {
        const QuantizeOptions o{.quantizer = q, .axis = axis, .scope = scope};
        EXPECT_TRUE(to_device(quantize(on_gpu.view(), o).view(), {}) == quantize(x.view(), o))
            << quantizer_name(q) << " seed " << seed;
      }
}

TEST_F(Cuda, ValuesAreCodesTimesBlockScales) {
  const std::uint64_t seed = fresh_seed();
  const GlobalScale global = GlobalScale::from_multiplier(0.011f);
  test::Array<float> multiplier({global.multiplier}, Device::cuda());
  const float one = 1;
  for (const test::Fill fill : test::kFills)
    for (const DType dtype : {DType::bf16, DType::f16, DType::f32})
      for (const std::int64_t cols : {std::int64_t{16}, std::int64_t{4080}}) {
        const Matrix x = test::make(fill, 37, cols, seed, dtype);
        const Matrix there = to_device(x.view(), Device::cuda());
        Matrix values(DType::bf16, 37, cols, Device::cuda());
        device_backend(Device::cuda())
            .quantize_values(there.view(), multiplier.data(), values.span(), {});
        const QuantizedMatrix q =
            quantize(x.view(), {.quantizer = Quantizer::max, .global = {&global, 1}});
        QuantizedView codes = q.view();
        codes.global_scale = &one;
        const Matrix want = dequantize(codes, DType::bf16), got = to_device(values.view(), {});
        EXPECT_EQ(std::memcmp(got.data<void>(), want.data<void>(), 37 * cols * 2), 0)
            << static_cast<int>(fill) << " " << dtype_name(dtype) << " seed " << seed;
      }
}

/// More groups of blocks than a GPU works on at a time, the last one not full.
TEST_F(Cuda, ErrorsOfLargeInputsEqualTheCpus) {
  const std::uint64_t seed = fresh_seed();
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    // Blocks of magnitudes so different that the last bits of a sum depend on its order.
    const Matrix x = test::make(test::Fill::subnormal_scales, 2064, 7152, seed, dtype);
    const Matrix there = to_device(x.view(), Device::cuda());
    for (const BlockAxis axis : {BlockAxis::rows, BlockAxis::columns})
      for (const Quantizer quantizer : {Quantizer::max, Quantizer::four_over_six, Quantizer::mse}) {
        const QuantizedMatrix q = quantize(x.view(), {.quantizer = quantizer, .axis = axis});
        const QuantizationError want = quantization_error(x.view(), q.view());
        const QuantizedMatrix codes = to_device(q.view(), Device::cuda());
        std::vector<QuantizationError> parts(static_cast<std::size_t>(error_part_count(q.shape())));
        test::Array<QuantizationError> sums(parts, Device::cuda());
        error_parts_into(there.view(), codes.view(), sums.data());
        const std::vector<std::uint8_t> bytes = sums.bytes();
        std::memcpy(parts.data(), bytes.data(), bytes.size());
        const QuantizationError got = sum_parts(parts);
        EXPECT_EQ(got.squared_error, want.squared_error) << dtype_name(dtype) << " seed " << seed;
        EXPECT_EQ(got.squared_norm, want.squared_norm) << dtype_name(dtype) << " seed " << seed;
      }
  }
}

TEST_F(Cuda, MseGivesTheBestScaleOfManyBlocks) {
  for (const test::Fill fill : test::kFills)
    for (const int block : {16, 32}) {
      const Matrix x = test::make(fill, 512, 4096, fresh_seed());
      const GlobalScale one;
      QuantizeOptions o{.quantizer = Quantizer::mse, .block = block};
      if (fill == test::Fill::saturated) o.global = {&one, 1};
      EXPECT_TRUE(to_device(quantize(to_device(x.view(), Device::cuda()).view(), o).view(), {}) ==
                  quantize(x.view(), o))
          << static_cast<int>(fill) << " block " << block;
    }
}

TEST_F(Cuda, RefusesWhatItCannotDo) {
  const Matrix host = test::make(test::Fill::gaussian, 4, 64, 1);
  const Matrix x = to_device(host.view(), Device::cuda());
  QuantizedMatrix on_cpu({.rows = 4, .cols = 64});
  EXPECT_THROW(quantize_into(x.view(), on_cpu.span()), DeviceError);
  EXPECT_THROW(quantize(x.view(), {.check_finite = true}), UnsupportedError);
  EXPECT_THROW(to_device(host.view(), Device::cuda(99)), UnsupportedError);
  MatrixView null = x.view();
  null.data = nullptr;
  EXPECT_THROW(quantize(null), ShapeError);
  const std::vector<GlobalScale> globals(4);
  EXPECT_THROW(quantize(x.view(), {.scope = GlobalScope::vector, .global = globals}), DeviceError);
}

TEST(Devices, AreListedWithReasons) {
  for (const DeviceInfo& d : cuda_devices()) {
    EXPECT_FALSE(d.name.empty());
    EXPECT_EQ(d.available, d.reason.empty());
    EXPECT_EQ(why_unavailable(d.device), d.reason);
  }
  EXPECT_EQ(why_unavailable({}), "");
  EXPECT_NE(why_unavailable(Device::cuda(1000)), "");
  EXPECT_THROW(Matrix(DType::f32, 1, 16, Device::cuda(1000)), UnsupportedError);
}

}  // namespace nvfp4::operations_test
