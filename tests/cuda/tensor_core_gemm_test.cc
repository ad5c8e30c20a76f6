// Products on tensor cores against FP64 ones of the unpacked weights. Skipped without a Hopper GPU.
#include "tensor_core_cases.h"

namespace nvfp4::test::tensor_core_gemm_test {

TEST_F(CudaGemm, EveryRowCountAndTypeIsRight) {
  std::uint64_t seed = 10 * fresh_seed();
  for (const Shape& s : kShapes)
    for (const std::int64_t m : kRows)
      for (const DType type : kTypes) {
        ++seed;
        const GlobalScope scope = seed % 3 ? GlobalScope::vector : GlobalScope::tensor;
        const Weights w(1, s.n, s.k, scope, seed);
        const DenseX x(m, s.k, seed % 5 < 2 ? DType::f16 : DType::bf16, seed);
        expect_product(x, w, type, {.batch_invariant = seed % 7 == 0}, seed % 2 ? 5 : 8,
                       name_of(s, m, seed));
      }
}

TEST_F(CudaGemm, OfQuantizedRowsIsRight) {
  std::uint64_t seed = 10 * fresh_seed();
  for (const Shape& s : kShapes)
    for (const std::int64_t m : {0, 1, 33, 129})
      for (const GlobalScope scope : {GlobalScope::tensor, GlobalScope::vector}) {
        ++seed;
        const Weights w(1, s.n, s.k, seed % 2 ? GlobalScope::vector : GlobalScope::tensor, seed);
        const QuantizedX x(m, s.k, scope, seed);
        expect_product(x, w, kTypes[seed % 3], {}, 8, name_of(s, m, seed));
      }
}

TEST_F(CudaGemm, OfQuantizedRowsReadsEveryScaleLayout) {
  const Weights w(1, 72, 208, GlobalScope::tensor, 4);
  const QuantizedX x(37, 208, GlobalScope::vector, 5);
  const Output want = run(GemmForm::dense, x, w, DType::f32);
  QuantizedX tiled = QuantizedX(37, 208, GlobalScope::vector, 5);
  tiled.q = QuantizedMatrix(
      {.rows = 37, .cols = 208, .layout = ScaleLayout::tiled_128x4, .scope = GlobalScope::vector});
  std::memcpy(tiled.q.codes(), x.q.codes(), static_cast<std::size_t>(x.q.shape().code_bytes()));
  std::memcpy(tiled.q.global_scale(), x.q.global_scale(), 37 * 4);
  relayout_scales({x.q.scales(), 37 * 13}, ScaleLayout::linear,
                  {tiled.q.scales(), static_cast<std::size_t>(tiled.q.shape().scale_bytes())},
                  ScaleLayout::tiled_128x4, 37, 13);
  EXPECT_TRUE(same_bits(run(GemmForm::dense, tiled, w, DType::f32).host, want.host));
}

/// One product with many tiles: what it should be is worked out once.
void expect_tiles(const DenseX& x, const Weights& w, DType type,
                  std::span<const KernelConfig> tiles, const std::string& what) {
  const MatrixView whole = x.part(0, x.rows(), 0, w.k);
  const Sums sums = sums_of(whole, w.group(0));
  for (const KernelConfig& t : tiles) {
    const Output out = run(GemmForm::dense, x, w, type, {.kernel = t}, {}, {}, 8);
    EXPECT_LE(worst_tensor_core_error(sums, whole, w.group(0), out.part(0, x.rows(), 0, w.n),
                                      w.alpha_of(0, kAlpha), w.bias_of(0)),
              1)
        << what << " " << name_of(t);
  }
}

TEST_F(CudaGemm, IsRightWithEveryTile) {
  const std::uint64_t seed = 4 * fresh_seed() + 3;
  // Last tiles of several sizes.
  for (const std::int64_t m : {150, 104, 74})
    for (const Shape& s : {Shape{200, 720}, Shape{264, 720}, Shape{328, 2048}, Shape{72, 48}})
      for (const DType type : {DType::bf16, DType::f16})
        expect_tiles(DenseX(m, s.k, type, seed), Weights(1, s.n, s.k, GlobalScope::vector, seed),
                     m == 104 ? type : DType::f32, all_tiles(s.k), name_of(s, m, seed));
}

/// More tiles than there are multiprocessors: blocks take several. Of depths from less than a stage
/// of any tile to several.
TEST_F(CudaGemm, IsRightWhereBlocksTakeManyTiles) {
  const std::uint64_t seed = 4 * fresh_seed() + 3;
  for (const std::int64_t k : {16, 128, 400}) {
    std::vector<KernelConfig> tiles = all_tiles(k);
    std::erase_if(tiles, [](const KernelConfig& t) {
      return t.split_k > 2 || (tests_others() && t.split_k > 1 && t.m < 64);  // too many
    });
    tiles.push_back({});
    for (const DType out : {DType::bf16, DType::f32})
      expect_tiles(DenseX(700, k, DType::bf16, seed),
                   Weights(1, 3160, k, GlobalScope::vector, seed), out, tiles,
                   "K = " + std::to_string(k) + " seed " + std::to_string(seed));
  }
  const std::vector<KernelConfig> large = whole_tiles();
  expect_tiles(DenseX(1500, 528, DType::bf16, seed),
               Weights(1, 3160, 528, GlobalScope::vector, seed), DType::bf16, large,
               "seed " + std::to_string(seed));
}

/// Two products, of different tiles, share the rows (see choose_kernels()).
TEST_F(CudaGemm, OfTwoPartsHasTheBitsOfOne) {
  const std::uint64_t seed = 4 * fresh_seed() + 3;
  constexpr std::int64_t kN = 3080, kK = 7168;
  std::int64_t m = 2000;
  std::array<cuda::PlanPart, 2> parts;
  do
    parts = cuda::choose_kernels(
        {.n = kN, .k = kK, .m = ++m, .multiprocessors = 132, .batch_invariant = true});
  while (m < 6000 && parts[1].rows == 0);
  ASSERT_GT(parts[1].rows, 0) << "choose other sizes";
  const Weights w(1, kN, kK, GlobalScope::vector, seed);
  const DenseX x(m, kK, DType::bf16, seed);
  EXPECT_TRUE(
      same_bits(run(GemmForm::dense, x, w, DType::bf16, {.batch_invariant = true}, {}, {}, 8).host,
                run(GemmForm::dense, x, w, DType::bf16, {.kernel = {128, 128, 1}}, {}, {}, 8).host))
      << "seed " << seed;
}

/// So that SwiGLU, which has no tiles of 16 rows, has the bits of the product alone.
TEST_F(CudaGemm, StripsOf16And32RowsHaveEqualBits) {
  if (tests_others()) GTEST_SKIP() << "kernels of sm_90";
  const std::uint64_t seed = 4 * fresh_seed() + 3;
  for (const std::int64_t k : {64, 1088, 1984}) {
    const Weights w(1, 520, k, GlobalScope::vector, seed);
    const DenseX x(5, k, DType::bf16, seed);
    for (const int tokens : {2, 8})
      EXPECT_TRUE(
          same_bits(run(GemmForm::dense, x, w, DType::f32, {.kernel = {tokens, 16, 1}}).host,
                    run(GemmForm::dense, x, w, DType::f32, {.kernel = {tokens, 32, 1}}).host))
          << tokens << " tokens, K = " << k << " seed " << seed;
  }
}

TEST_F(CudaGemm, GivesTheSameBytesEveryTime) {
  const std::uint64_t seed = 4 * fresh_seed() + 3;
  for (const std::int64_t k : {2064, 1984}) {
    const Weights w(1, 520, k, GlobalScope::vector, seed);
    const DenseX x(150, k, DType::bf16, seed);
    for (const KernelConfig& t : all_tiles(k)) {
      const Output first = run(GemmForm::dense, x, w, DType::f32, {.kernel = t});
      for (int repeat = 0; repeat < 5; ++repeat)
        EXPECT_TRUE(
            same_bits(run(GemmForm::dense, x, w, DType::f32, {.kernel = t}).host, first.host))
            << name_of(t) << " K = " << k;
    }
  }
}

TEST_F(CudaGemm, BatchInvariantRowsHaveTheSameBits) {
  const std::uint64_t seed = 4 * fresh_seed() + 3;
  for (const Shape& s : {Shape{200, 720}, Shape{2112, 512}}) {
    const Weights w(1, s.n, s.k, GlobalScope::vector, seed);
    const DenseX x(600, s.k, DType::bf16, 3 * seed);  // no gaps
    const Output all = run(GemmForm::dense, x, w, DType::f32, {.batch_invariant = true});
    for (const std::int64_t rows : {1, 2, 7, 16, 33, 64, 129, 300, 513}) {
      DenseX few(rows, s.k, DType::bf16, 3);
      copy(x.part(600 - rows, rows, 0, s.k), few.memory.span());
      const Output part = run(GemmForm::dense, few, w, DType::f32, {.batch_invariant = true});
      for (std::int64_t r = 0; r < rows; ++r)
        ASSERT_EQ(
            std::memcmp(part.part(r, 1, 0, s.n).data, all.part(600 - rows + r, 1, 0, s.n).data,
                        static_cast<std::size_t>(s.n * 4)),
            0)
            << name_of(s, rows, seed);
    }
  }
}

/// Each product of a row has the result of the one before: whenever it may start, it waits for
/// that.
TEST_F(CudaGemm, TheNextProductMayStartAtAnyStep) {
  constexpr std::int64_t kRowsOfX = 16, kSize = 3072;
  constexpr int kProducts = 4;
  const std::uint64_t seed = 10 * fresh_seed();
  std::vector<Weights> weights;
  for (int i = 0; i < kProducts; ++i)
    weights.emplace_back(1, kSize, kSize, GlobalScope::tensor,
                         seed + static_cast<std::uint64_t>(i));
  const Matrix poison = poisoned(DType::bf16, kRowsOfX, kSize, kSize, kGpu).memory;
  std::vector<Matrix> x;
  for (int i = 0; i <= kProducts; ++i) x.emplace_back(DType::bf16, kRowsOfX, kSize, kGpu);
  const DenseX first(kRowsOfX, kSize, DType::bf16, seed);
  copy(first.part(0, kRowsOfX, 0, kSize), x[0].span());
  const auto last_of = [&](const KernelConfig& t, bool one_by_one) {
    for (int i = 1; i <= kProducts; ++i) copy(poison.view(), x[static_cast<std::size_t>(i)].span());
    for (std::size_t i = 0; i < kProducts; ++i) {
      multiply(x[i].view(), weights[i].packed, x[i + 1].span(), {.alpha = 0.02f, .kernel = t});
      if (one_by_one) synchronize(kGpu);
    }
    return to_device(x[kProducts].view(), {});
  };
  for (KernelConfig t : {KernelConfig{2, 16, 1}, KernelConfig{2, 128, 1}, KernelConfig{8, 16, 1},
                         KernelConfig{8, 64, 1}, KernelConfig{16, 64, 1}, KernelConfig{16, 128, 1},
                         KernelConfig{8, 128, 2}, KernelConfig{16, 64, 2}, KernelConfig{32, 128, 4},
                         KernelConfig{64, 64, 2}, KernelConfig{64, 128, 1},
                         KernelConfig{64, 128, 2}, KernelConfig{64, 192, 1}}) {
    for (const auto& [next, early] :
         {std::pair{0, 0}, {1, 1}, {2, 3}, {5, 0}, {8, 2}, {11, 4}, {1000, 1000}, {0, 1}, {5, 3}}) {
      t.launch_dependents_step = next;
      t.prefetch_stages = stages(early);
      const Matrix want = last_of(t, true);
      for (std::int64_t i = 0; i < kRowsOfX * kSize; ++i)
        ASSERT_TRUE(std::isfinite(BF16{want.data<std::uint16_t>()[i]}.to_float())) << name_of(t);
      for (int repeat = 0; repeat < 5; ++repeat)
        EXPECT_TRUE(same_bits(last_of(t, false), want)) << name_of(t);
    }
  }
}

TEST_F(CudaGemm, PacksTheBytesOfTheCpu) {
  std::uint64_t seed = fresh_seed();
  for (const std::int64_t n : {1, 24, 64, 200})
    for (const std::int64_t k : {16, 80, 256, 1040})
      for (const BlockAxis axis : {BlockAxis::rows, BlockAxis::columns})
        for (const ScaleLayout layout :
             {ScaleLayout::linear, ScaleLayout::tiled_128x4, ScaleLayout::tiled_8x4,
              ScaleLayout::packed_row_major, ScaleLayout::packed_mn_major}) {
          const GlobalScope scope = ++seed % 2 ? GlobalScope::vector : GlobalScope::tensor;
          QuantizedShape shape{
              .rows = 3 * n, .cols = k, .axis = axis, .layout = layout, .scope = scope};
          if (axis == BlockAxis::columns) std::swap(shape.rows, shape.cols);
          const QuantizedMatrix w = random_weights(shape, seed);
          HostFragments cpu = pack_on_host(w.view(), 3);
          const PackedWeights gpu = pack_weights(to_device(w.view(), kGpu).view(), {.groups = 3});
          ASSERT_EQ(bytes_of(gpu), cpu.bytes) << n << "x" << k << " seed " << seed;
          // Uploaded as it is, and packed there.
          ASSERT_EQ(bytes_of(pack_weights(w.view(), {.groups = 3, .device = kGpu})), cpu.bytes);
          for (std::int64_t g = 0; g < 3; ++g)
            ASSERT_TRUE(to_device(unpack_weights(gpu, g).view(), {}) == unpack_on_host(cpu, g));
        }
}

TEST_F(CudaGemm, PackingFindsOrClearsBadScales) {
  QuantizedMatrix host = random_weights({.rows = 70, .cols = 96}, 3);
  for (const int bad : {0x7F, 0x80, 0xFF}) {
    host.scales()[69 * 6 + 5] = host.scales()[30 * 6 + 1] = static_cast<std::uint8_t>(bad);
    const QuantizedMatrix w = to_device(host.view(), kGpu);
    try {
      pack_weights(w.view());
      ADD_FAILURE() << bad;
    } catch (const ValueError& e) {
      EXPECT_NE(std::string(e.what()).find("output 30, block 1"), std::string::npos) << e.what();
    }
    const PackedWeights packed = pack_weights(w.view(), {.check_scales = false});
    QuantizedMatrix cleared = to_device(host.view(), {});
    cleared.scales()[69 * 6 + 5] = cleared.scales()[30 * 6 + 1] = 0;
    EXPECT_EQ(bytes_of(packed), pack_on_host(cleared.view()).bytes);
  }
}

TEST_F(CudaGemm, SeesOneWrongScale) {
  Weights w(1, 72, 480, GlobalScope::tensor, 4);
  const DenseX x(5, 480, DType::bf16, 3);
  const QuantizedMatrix right = to_device(w.q.view(), {});
  for (const std::int64_t at : {0, 17 * 30 + 9, 72 * 30 - 1}) {
    copy(right.view(), w.q.span());
    ++w.q.scales()[at];
    ASSERT_LE(w.q.scales()[at], E4M3::kMaxBits);
    w.packed = pack_weights(to_device(w.q.view(), kGpu).view());
    const Output out = run(GemmForm::dense, x, w, DType::f32);
    EXPECT_GT(error_of(x, 0, 5, 0, 480, right.view(), out.part(0, 5, 0, 72), kAlpha, {}), 1);
    EXPECT_LE(error_of(x, 0, 5, 0, 480, w.q.view(), out.part(0, 5, 0, 72), kAlpha, {}), 1);
  }
}

TEST_F(CudaGemm, RefusesWhatItCannotDo) {
  const Weights w(2, 72, 64, GlobalScope::tensor, 4);
  const PackedWeights one = pack_weights(to_device(w.q.view(), kGpu).view());
  const auto on_gpu = [](DType t, std::int64_t r, std::int64_t c) { return Matrix(t, r, c, kGpu); };
  const Matrix x = on_gpu(DType::bf16, 4, 64);
  Matrix out = on_gpu(DType::f32, 4, 144), host(DType::f32, 4, 144);
  const Matrix x_host(DType::bf16, 4, 64), x_f32 = on_gpu(DType::f32, 4, 64),
                                           wide = on_gpu(DType::bf16, 4, 80);
  multiply(x.view(), one, out.span());
  EXPECT_THROW(multiply(x_host.view(), one, out.span()), DeviceError);
  EXPECT_THROW(multiply(x.view(), one, host.span()), DeviceError);
  EXPECT_THROW(multiply(x_f32.view(), one, out.span()), ValueError);
  EXPECT_THROW(multiply(wide.view(), one, out.span()), ShapeError);
  EXPECT_THROW(multiply(x.view(), w.packed, out.span()), ShapeError);
  EXPECT_THROW(multiply(x.view(), one, on_gpu(DType::f32, 4, 72).span()), ShapeError);
  EXPECT_THROW(multiply(x.view(), one, on_gpu(DType::f32, 5, 144).span()), ShapeError);
  MatrixView odd = wide.view();
  odd.cols = 64;
  odd.stride = 68;
  EXPECT_THROW(multiply(odd, one, out.span()), ShapeError);
  odd = wide.view();
  odd.cols = 64;
  odd.data = wide.data<char>() + 2;
  EXPECT_THROW(multiply(odd, one, out.span()), ShapeError);
  odd.data = nullptr;
  EXPECT_THROW(multiply(odd, one, out.span()), ShapeError);
  const Array<float> floats(std::vector<float>(3), kGpu);
  EXPECT_THROW(multiply(x.view(), one, out.span(), {.group_alpha = floats.span()}), ShapeError);
  EXPECT_THROW(multiply(x.view(), one, out.span(), {.bias = floats.span()}), ShapeError);
  for (const KernelConfig& t :
       {KernelConfig{24, 64, 1}, KernelConfig{256, 64, 2}, KernelConfig{96, 64, 1},
        KernelConfig{160, 128, 4}, KernelConfig{192, 128, 8}, KernelConfig{64, 192, 4}})
    EXPECT_THROW(multiply(x.view(), one, out.span(), {.kernel = t}), ValueError);
  EXPECT_THROW(multiply(x.view(), one, out.span(), {.kernel = {2, 16, 2}}), ValueError);
  EXPECT_THROW(multiply(x.view(), one, out.span(), {.batch_invariant = true, .kernel = {8, 64, 1}}),
               ValueError);
  const QuantizedMatrix q({.rows = 4, .cols = 64}, kGpu);
  const GemmPlan w4a4 = plan_gemm(one, {.m = 4, .scheme = Scheme::w4a4, .out = DType::f32});
  EXPECT_THROW(gemm(w4a4, {.x = q.view(), .weights = one, .out = out.span()}), ShapeError)
      << "no workspace";
  const Array<std::int32_t> ends({1, 2, 3}, kGpu);
  Matrix half = on_gpu(DType::f32, 4, 72);
  const auto grouped = [&](std::span<const std::int32_t> from, std::span<const std::int32_t> to) {
    multiply(x.view(), w.packed, half.span(),
             {.form = GemmForm::grouped, .row_ends = to, .row_starts = from});
  };
  EXPECT_THROW(grouped({}, ends.span()), ShapeError);
  EXPECT_THROW(grouped(ends.span(), ends.span().first(2)), ShapeError);
  EXPECT_THROW(multiply(wide.view(), w.packed, out.span(), {.form = GemmForm::every_group}),
               ShapeError);
  EXPECT_THROW(
      plan_gemm({.m = 4, .n = 1, .k = 16, .groups = 1025, .form = GemmForm::grouped}, kGpu),
      UnsupportedError);
  synchronize(kGpu);
}

/// Everything that may run in a graph, on memory that stays where it is.
struct GraphWork {
  static constexpr std::int64_t kM = 70, kN = 200, kK = 336, kG = 4;
  QuantizedMatrix w_source = poisoned({.rows = kG * kN, .cols = kK}, kGpu);
  // The packed weights, in memory that stays valid.
  PackedShape w_shape{.groups = kG, .rows = kN, .cols = kK, .device = kGpu},
      one_shape{.rows = kN, .cols = kK, .device = kGpu};
  Matrix w_memory{DType::f32, 1, w_shape.memory_bytes() / 4, kGpu},
      one_memory{DType::f32, 1, one_shape.memory_bytes() / 4, kGpu};
  QuantizedMatrix q{{.rows = kM, .cols = kK, .scope = GlobalScope::vector}, kGpu};
  Matrix x{DType::bf16, kM, kK, kGpu}, space{DType::f32, kM, kK, kGpu};
  Matrix y{DType::bf16, kM, kN, kGpu}, y4{DType::f32, kM, kN, kGpu};
  Matrix grouped{DType::bf16, kM, kN, kGpu}, every{DType::f16, kM, kG* kN, kGpu};
  Array<std::int32_t> ends{std::vector<std::int32_t>{5, 5, 40, 70}, kGpu};

  static std::span<std::byte> bytes_of(Matrix& m) {
    return {m.data<std::byte>(), static_cast<std::size_t>(m.view().size() * 4)};
  }
  void fill(std::uint64_t seed) {
    copy(weights(kG * kN, kK, seed).view(), w_source.span());
    copy(activations(kM, kK, seed, GlobalScope::vector).view(), q.span());
    copy(make(Fill::gaussian, kM, kK, seed, DType::bf16).view(), x.span());
    synchronize(kGpu);
  }
  void run(Stream stream) {
    PackOptions pack{
        .groups = kG, .memory = bytes_of(w_memory), .check_scales = false, .stream = stream};
    const PackedWeights w = pack_weights(w_source.view(), pack);
    pack.groups = 1;
    pack.memory = bytes_of(one_memory);
    QuantizedView first = w_source.view();
    first.shape.rows = kN;
    const PackedWeights one = pack_weights(first, pack);
    GpuOptions o{.workspace = bytes_of(space), .stream = stream};
    multiply(x.view(), one, y.span(), o);
    multiply(q.view(), one, y4.span(), o);
    o.form = GemmForm::every_group;
    multiply(x.view(), w, every.span(), o);
    o.form = GemmForm::grouped;
    o.row_ends = ends.span();
    multiply(x.view(), w, grouped.span(), o);
  }
  Result result() const {
    Result r;
    add(r, "y", y.view());
    add(r, "y4", y4.view());
    add(r, "grouped", grouped.view());
    add(r, "every", every.view());
    return r;
  }
};

TEST_F(CudaGemm, RunsInAGraph) {
  GraphWork work;
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  work.run({stream});
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  for (const std::uint64_t seed : {5, 6, 7}) {
    work.fill(seed);
    work.run({stream});
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    const Result want = work.result();
    const Matrix poison =
        poisoned(DType::bf16, GraphWork::kM, GraphWork::kN, GraphWork::kN, kGpu).memory;
    for (int repeat = 0; repeat < 3; ++repeat) {
      copy(poison.view(), work.y.span(), {stream});
      copy(poison.view(), work.grouped.span(), {stream});
      ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
      ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
      EXPECT_EQ(difference(work.result(), want), "") << "seed " << seed;
    }
    const Matrix host = to_device(work.x.view(), {}), y = to_device(work.y.view(), {});
    const QuantizedMatrix all = to_device(work.w_source.view(), {});
    QuantizedView w = all.view();
    w.shape.rows = GraphWork::kN;
    EXPECT_LE(worst_tensor_core_error(host.view(), w, y.view()), 1);
  }
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

}  // namespace nvfp4::test::tensor_core_gemm_test
