// The steps of a mixture of experts on a GPU give what those of the CPU give.
#include <random>

#include "backends/host/host.h"
#include "cuda/gpu_layers.h"

namespace nvfp4::moe_steps_test {

using test::Array;
using test::kGpu;
using test::make;
using Fill = test::Fill;

class CudaMoeSteps : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_unavailable(kGpu); !reason.empty())
      GTEST_SKIP() << "no GPU to run on: " << reason;
  }
};

template <class T>
std::vector<T> values_of(const Array<T>& array) {
  const std::vector<std::uint8_t> bytes = array.bytes();
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

void expect_order(const std::vector<std::int64_t>& ids, std::int64_t top_k, std::int64_t experts) {
  const auto pairs = static_cast<std::int64_t>(ids.size());
  const auto poison = [](std::int64_t n, Device device) {
    return Array<std::int32_t>(std::vector<std::int32_t>(static_cast<std::size_t>(n), 0x5A5A5A5A),
                               device);
  };
  const auto run = [&](const GemmBackend& backend, Device device) {
    Array<std::int64_t> there(ids, device);
    Array<std::int32_t> ends = poison(experts, device), rows = poison(pairs, device),
                        tokens = poison(pairs, device), owners = poison(pairs, device),
                        counts = poison(dispatch_counts(pairs, experts), device);
    backend.dispatch({.routing = {.ids = there.data(),
                                  .id_type = IndexType::i64,
                                  .id_stride = top_k,
                                  .rows = pairs / top_k,
                                  .top_k = top_k},
                      .experts = experts,
                      .row_ends = ends.data(),
                      .row_of = rows.data(),
                      .token_of = tokens.data(),
                      .expert_of = owners.data(),
                      .counts = counts.data(),
                      .device = device});
    synchronize(kGpu);
    return std::vector{values_of(ends), values_of(rows), values_of(tokens), values_of(owners)};
  };
  EXPECT_EQ(run(gemm_backend(kGpu), kGpu), run(host::cpu_gemm_backend(), {}));
}

TEST_F(CudaMoeSteps, RowsAreOrderedAsOnTheCpu) {
  std::mt19937_64 rng(11);
  for (const std::int64_t experts : {1, 7, 256, 1024})
    for (const std::int64_t top_k : {1, 3, 8})
      for (const std::int64_t tokens : {1, 2, 33, 128, 341, 342, 1025, 5000})
        for (const bool some_bad : {false, true}) {
          std::vector<std::int64_t> ids;
          for (std::int64_t i = 0; i < tokens * top_k; ++i) {
            // The squares make some experts much more popular than others.
            const auto e = static_cast<double>(experts) *
                           std::pow(static_cast<double>(rng() % 100'000) / 100'000, 2);
            ids.push_back(static_cast<std::int64_t>(e));
            if (some_bad && rng() % 5 == 0)
              ids.back() = rng() % 2 ? experts : -static_cast<std::int64_t>(rng() >> 30);
          }
          SCOPED_TRACE(std::to_string(experts) + " experts, top " + std::to_string(top_k) + ", " +
                       std::to_string(tokens) + " tokens");
          expect_order(ids, top_k, experts);
        }
  expect_order(std::vector<std::int64_t>(3000, -1), 3, 16);  // no rows at all
  expect_order(std::vector<std::int64_t>(3000, 15), 3, 16);  // all of one expert
}

TEST_F(CudaMoeSteps, RowsOfAnySizeAreGathered) {
  std::mt19937_64 rng(12);
  for (const std::int64_t bytes : {1, 2, 5, 6, 8, 20, 40, 64, 144, 4096, 14336})
    for (const std::int64_t gap : {0, 8, 16})
      for (const std::int64_t rows : {1, 3, 100}) {
        constexpr std::int64_t kFrom = 9;
        std::vector<std::uint8_t> from(static_cast<std::size_t>(kFrom * (bytes + gap)));
        for (std::uint8_t& b : from) b = static_cast<std::uint8_t>(rng());
        std::vector<std::int32_t> index;
        std::vector<std::uint8_t> want(static_cast<std::size_t>(rows * bytes), 0);
        for (std::int64_t r = 0; r < rows; ++r) {
          index.push_back(static_cast<std::int32_t>(rng() % (kFrom + 1)) - 1);
          if (index.back() >= 0)
            std::memcpy(want.data() + r * bytes, from.data() + index.back() * (bytes + gap),
                        static_cast<std::size_t>(bytes));
        }
        Array<std::uint8_t> there(from, kGpu),
            to(std::vector<std::uint8_t>(want.size(), 0xAA), kGpu);
        Array<std::int32_t> index_there(index, kGpu);
        gemm_backend(kGpu).gather_rows({.from = there.data(),
                                        .from_stride = bytes + gap,
                                        .row_bytes = bytes,
                                        .index = index_there.data(),
                                        .rows = rows,
                                        .to = to.data(),
                                        .device = kGpu});
        synchronize(kGpu);
        EXPECT_EQ(to.bytes(), want) << bytes << " bytes, gap " << gap << ", " << rows << " rows";
      }
}

/// From the other side: a token's row goes to all of its rows, as index says.
TEST_F(CudaMoeSteps, RowsOfATokenAreGatheredAtOnce) {
  std::mt19937_64 rng(13);
  for (const std::int64_t bytes : {4, 6, 7, 20, 40, 144, 448, 4096, 14336})
    for (const std::int64_t tokens : {1, 3, 130})
      for (const std::int64_t top_k : {1, 3, 8, 11}) {
        const std::int64_t gap = bytes % 2 == 0 ? 8 : 1, pairs = tokens * top_k;
        std::vector<std::uint8_t> from(static_cast<std::size_t>(tokens * (bytes + gap)));
        for (std::uint8_t& b : from) b = static_cast<std::uint8_t>(rng());
        // Pairs of some experts in a random order, and as many rows of none behind them.
        std::vector<std::int32_t> order, row_of(static_cast<std::size_t>(pairs), -1), index(row_of);
        for (std::int32_t p = 0; p < pairs; ++p)
          if (rng() % 5 != 0) order.push_back(p);
        std::shuffle(order.begin(), order.end(), rng);
        std::vector<std::uint8_t> want(static_cast<std::size_t>(pairs * bytes), 0);
        for (std::size_t r = 0; r < order.size(); ++r) {
          const std::int64_t token = order[r] / top_k;
          row_of[static_cast<std::size_t>(order[r])] = static_cast<std::int32_t>(r);
          index[r] = static_cast<std::int32_t>(token);
          std::memcpy(want.data() + static_cast<std::int64_t>(r) * bytes,
                      from.data() + token * (bytes + gap), static_cast<std::size_t>(bytes));
        }
        Array<std::uint8_t> there(from, kGpu),
            to(std::vector<std::uint8_t>(want.size(), 0xAA), kGpu);
        Array<std::int32_t> index_there(index, kGpu), row_of_there(row_of, kGpu);
        gemm_backend(kGpu).gather_rows({.from = there.data(),
                                        .from_stride = bytes + gap,
                                        .row_bytes = bytes,
                                        .index = index_there.data(),
                                        .rows = pairs,
                                        .to = to.data(),
                                        .row_of = row_of_there.data(),
                                        .top_k = top_k,
                                        .device = kGpu});
        synchronize(kGpu);
        EXPECT_EQ(to.bytes(), want) << bytes << " bytes, " << tokens << " x " << top_k;
      }
}

struct Combination {
  std::int64_t tokens, cols, top_k;
  DType type, row_type;  ///< of out, and of the rows: FP32 or BF16
  std::int64_t gap;
  bool with_first;
  bool of_choices = false;  ///< each choice is a row, its id says whether it counts
};

/// Every fifth pair has no row, which is as a weight of 0.
void expect_combined(const Combination& c) {
  const std::int64_t pairs = c.tokens * c.top_k;
  Matrix rows = make(Fill::gaussian, pairs, c.cols, 1);
  Matrix there(c.row_type, pairs, c.cols);
  for (std::int64_t i = 0; i < rows.view().size(); ++i) {
    float& value = rows.data<float>()[i];
    if (c.row_type == DType::f32) {
      there.data<float>()[i] = value;
    } else {
      there.data<std::uint16_t>()[i] = BF16::from_float(value).bits;
      value = BF16::from_float(value).to_float();
    }
  }
  const Matrix first = make(Fill::gaussian, c.tokens, c.cols, 2);
  const std::vector<float> given = test::random_floats(static_cast<std::size_t>(pairs), 5);
  std::vector<std::int32_t> row_of_given;
  for (std::int64_t i = 0; i < pairs; ++i) {
    const std::int64_t row = c.of_choices ? i : pairs - 1 - i;
    row_of_given.push_back(i % 5 == 4 ? -1 : static_cast<std::int32_t>(row));
  }
  Routing here{.ids = row_of_given.data(),
               .id_stride = c.top_k,
               .weights = given.data(),
               .weight_stride = c.top_k,
               .rows = c.tokens,
               .top_k = c.top_k};
  Matrix want(c.type, c.tokens, c.cols + c.gap);
  std::memset(want.data<char>(), 0xAA,
              static_cast<std::size_t>(want.view().size() * dtype_size(c.type)));
  MatrixSpan part = want.span();
  part.cols = c.cols;
  host::combine_rows({.first = c.with_first ? first.view() : MatrixView(),
                      .rows = rows.view(),
                      .routing = here,
                      .experts = pairs,
                      .row_of = c.of_choices ? nullptr : row_of_given.data(),
                      .out = part});
  test::Placed out = test::poisoned(c.type, c.tokens, c.cols, c.cols + c.gap, kGpu);
  const Matrix rows_there = to_device(there.view(), kGpu),
               first_there = to_device(first.view(), kGpu);
  Array<float> weights_there(given, kGpu);
  Array<std::int32_t> row_of_there(row_of_given, kGpu);
  const Routing routing{.ids = row_of_there.data(),
                        .id_stride = c.top_k,
                        .weights = weights_there.data(),
                        .weight_stride = c.top_k,
                        .rows = c.tokens,
                        .top_k = c.top_k};
  gemm_backend(kGpu).combine_rows({.first = c.with_first ? first_there.view() : MatrixView(),
                                   .rows = rows_there.view(),
                                   .routing = routing,
                                   .experts = pairs,
                                   .row_of = c.of_choices ? nullptr : row_of_there.data(),
                                   .out = out.span});
  synchronize(kGpu);
  EXPECT_TRUE(test::same_bits(to_device(out.memory.view(), {}), want))
      << c.tokens << " x " << c.top_k << ", " << c.cols << " columns, gap " << c.gap;
}

TEST_F(CudaMoeSteps, CombinedRowsHaveTheCpusBits) {
  for (const std::int64_t tokens : {1, 37})
    for (const std::int64_t cols : {16, 1024, 1040, 7168})
      for (const std::int64_t top_k : {1, 3, 8, 17}) {
        if (tokens * cols > 37 * 1040 && top_k != 3) continue;  // most of the time, and nothing new
        for (const DType type : {DType::f32, DType::bf16, DType::f16})
          for (const DType row_type : {DType::f32, DType::bf16})
            for (const std::int64_t gap : {0, 3})
              for (const bool with_first : {false, true})
                for (const bool of_choices : {false, true})
                  expect_combined(
                      {tokens, cols, top_k, type, row_type, gap, with_first, of_choices});
      }
}

}  // namespace nvfp4::moe_steps_test
