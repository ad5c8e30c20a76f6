// Forms and epilogues of products that are made of plain ones, and what plans say.
#include "backends/gemm_backend.h"
#include "layers/layer_cases.h"
#include "testing.h"

namespace nvfp4::gemm_forms_test {

using test::activations;
using test::contains;
using test::Fill;
using test::make;
using test::message_of;
using test::weights;

class GemmFormsOnEveryBackend : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(, GemmFormsOnEveryBackend, testing::ValuesIn(test::available_backends()),
                         [](const auto& p) { return test::identifier(p.param); });

/// Memory that is zero at first.
struct Workspace {
  Matrix memory;
  explicit Workspace(const GemmPlan& plan)
      : memory(DType::f32, 1, ceil_div(plan.workspace_bytes(), 4)) {}
  std::span<std::byte> span() {
    return {memory.data<std::byte>(), static_cast<std::size_t>(memory.cols() * 4)};
  }
};

MatrixView row_of(MatrixView x, std::int64_t row) {
  x.data = static_cast<const char*>(x.data) + row * x.stride * dtype_size(x.dtype);
  x.rows = 1;
  return x;
}

TEST_P(GemmFormsOnEveryBackend, RoutedRowsEqualSingleRows) {
  constexpr std::int64_t kG = 4, kN = 37, kK = 112, kTokens = 5, kTopK = 3;
  const QuantizedMatrix stacked = weights(kG * kN, kK, 3, GlobalScope::vector);
  const PackedWeights w = pack_weights(stacked.view(), {.groups = kG});
  const std::vector<float> alpha = test::random_floats(kG, 4),
                           bias = test::random_floats(kG * kN, 5);
  const std::uint8_t ids[kTokens][4] = {
      {0, 3, 3, 99}, {1, 1, 2, 99}, {2, 0, 1, 99}, {3, 2, 0, 99}, {0, 0, 0, 99}};
  const Routing routing{
      .ids = ids, .id_type = IndexType::u8, .id_stride = 4, .rows = kTokens, .top_k = kTopK};
  for (const bool shared : {false, true}) {
    const Matrix x = make(Fill::gaussian, shared ? kTokens : kTokens * kTopK, kK, 2, DType::bf16);
    Matrix y(DType::f32, kTokens * kTopK, kN);
    const GemmPlan plan = plan_gemm(w, {.m = kTokens * kTopK,
                                        .form = GemmForm::routed,
                                        .out = DType::f32,
                                        .top_k = kTopK,
                                        .shared_x = shared,
                                        .backend = GetParam()});
    gemm(plan, {.x = x.view(),
                .weights = w,
                .out = y.span(),
                .alpha = 0.5f,
                .group_alpha = alpha,
                .bias = bias,
                .routing = routing});
    for (std::int64_t r = 0; r < kTokens * kTopK; ++r) {
      const std::int64_t g = ids[r / kTopK][r % kTopK];
      const auto i = static_cast<std::size_t>(g);
      const PackedWeights own = pack_weights(unpack_weights(w, g).view());
      const Matrix want = test::product(row_of(x.view(), shared ? r / kTopK : r), own, DType::f32,
                                        {.alpha = 0.5f * alpha[i],
                                         .bias = std::span(bias).subspan(i * kN, kN),
                                         .backend = GetParam()});
      ASSERT_EQ(std::memcmp(y.data<float>() + r * kN, want.data<float>(), kN * 4), 0) << r;
    }
  }
  Routing bad = routing;
  bad.top_k = 4;  // reads the 99
  const Matrix x = make(Fill::gaussian, kTokens * 4, kK, 2, DType::bf16);
  Matrix y(DType::f32, kTokens * 4, kN);
  const GemmPlan plan = plan_gemm(w, {.m = kTokens * 4,
                                      .form = GemmForm::routed,
                                      .out = DType::f32,
                                      .top_k = 4,
                                      .backend = GetParam()});
  const std::string message = message_of<ValueError>(
      [&] { gemm(plan, {.x = x.view(), .weights = w, .out = y.span(), .routing = bad}); });
  EXPECT_TRUE(contains(message, "token 0, choice 3 = 99, must be in 0 … 3")) << message;
}

/// gate and up, then SwiGLU, of rows [first, first + rows).
void expect_swiglu(const PackedWeights& w, const GemmPlan& plan, const GemmArguments& given,
                   std::int64_t rows, const std::string& backend) {
  GemmDescription plain = plan.description();
  plain.epilogue = Epilogue::none;
  plain.out = DType::f32;
  const PackedShape s = w.shape();
  std::vector<QuantizedMatrix> parts;
  std::vector<QuantizedView> views;
  for (std::int64_t g = 0; g < s.groups; ++g) parts.push_back(unpack_weights(w, g));
  for (const QuantizedMatrix& p : parts) views.push_back(p.view());
  const PackedWeights same = pack_weights(views, {.groups = s.groups});
  Matrix sums(DType::f32, rows, s.rows), want(DType::bf16, rows, s.rows / 2),
      got(DType::bf16, rows, s.rows / 2);
  GemmArguments a = given;
  a.weights = same;
  a.out = sums.span();
  gemm(plan_gemm(same, plain), a);
  const SwigluOptions swiglu{.interleave = s.gate_up->interleave,
                             .limit = plan.description().swiglu_limit};
  swiglu_into(sums.view(), want.span(), swiglu, {.backend = backend});
  Workspace workspace(plan);
  a = given;
  a.weights = w;
  a.out = got.span();
  gemm(plan, a, workspace.span());
  EXPECT_TRUE(test::same_bits(got, want));
  EXPECT_THROW(gemm(plan, a), ShapeError) << "no workspace";

  GemmDescription quantized = plan.description();
  quantized.epilogue = Epilogue::swiglu_quantize;
  const QuantizeOptions options{.scope = GlobalScope::vector, .backend = backend};
  QuantizedMatrix codes({.rows = rows, .cols = s.rows / 2, .scope = GlobalScope::vector}),
      want_codes(codes.shape());
  swiglu_quantize_into(sums.view(), want_codes.span(), swiglu, options);
  a.out = codes.span();
  const GemmPlan last = plan_gemm(w, quantized);
  gemm(last, a, workspace.span());
  EXPECT_TRUE(codes == want_codes);

  std::vector<GlobalScale> given_scales;
  for (std::int64_t r = 0; r < rows; ++r)
    given_scales.push_back(GlobalScale::from_multiplier(0.01f * static_cast<float>(r + 1)));
  QuantizeOptions with_scales = options;
  with_scales.global = given_scales;
  swiglu_quantize_into(sums.view(), want_codes.span(), swiglu, with_scales);
  a.out_global = given_scales;
  gemm(last, a, workspace.span());
  EXPECT_TRUE(codes == want_codes) << "with global scales of each row";
}

TEST_P(GemmFormsOnEveryBackend, SwigluHasTheBitsOfItsSteps) {
  constexpr std::int64_t kI = 32, kK = 80, kM = 9;
  const Matrix x = make(Fill::gaussian, kM, kK, 2, DType::bf16);
  const QuantizedMatrix q = activations(kM, kK, 2, GlobalScope::vector);
  for (const int interleave : {0, 8}) {
    const PackedWeights one =
        pack_weights(weights(2 * kI, kK, 3).view(), {.gate_up = GateUp{interleave}});
    GemmDescription d{.m = 16,
                      .out = DType::bf16,
                      .epilogue = Epilogue::swiglu,
                      .swiglu_limit = 0.5f,
                      .backend = GetParam()};
    expect_swiglu(one, plan_gemm(one, d), {.x = x.view()}, kM, GetParam());
    d.scheme = Scheme::w4a4;
    expect_swiglu(one, plan_gemm(one, d), {.x = q.view()}, kM, GetParam());
    const PackedWeights two =
        pack_weights(weights(4 * kI, kK, 3).view(), {.groups = 2, .gate_up = GateUp{interleave}});
    d.form = GemmForm::grouped;
    const std::int32_t ends[] = {4, 9};
    expect_swiglu(two, plan_gemm(two, d), {.x = q.view(), .row_ends = ends}, kM, GetParam());
  }
}

TEST_P(GemmFormsOnEveryBackend, StartsLeaveRowsOut) {
  constexpr std::int64_t kN = 24, kK = 64;
  const PackedWeights w = pack_weights(weights(2 * kN, kK, 3).view(), {.groups = 2});
  const Matrix x = make(Fill::gaussian, 9, kK, 2, DType::bf16);
  Matrix y(DType::f32, 9, kN);
  std::memset(y.data<char>(), 0x5A, 9 * kN * 4);
  const std::int32_t starts[] = {1, 5}, ends[] = {3, 8};
  const GemmPlan plan =
      plan_gemm(w, {.m = 9, .form = GemmForm::grouped, .out = DType::f32, .backend = GetParam()});
  gemm(plan,
       {.x = x.view(), .weights = w, .out = y.span(), .row_ends = ends, .row_starts = starts});
  for (const std::int64_t r : {0, 3, 4, 8})
    for (std::int64_t n = 0; n < kN * 4; ++n) ASSERT_EQ(y.data<char>()[r * kN * 4 + n], 0x5A) << r;
  for (const std::int64_t r : {1, 2, 5, 7}) {
    MatrixView part = y.view();
    EXPECT_LE(test::worst_error(row_of(x.view(), r), w, row_of(part, r), 1, {}, r < 3 ? 0 : 1),
              1.0);
  }
}

TEST_P(GemmFormsOnEveryBackend, PlanServesFewerRowsAndForcedNames) {
  constexpr std::int64_t kN = 50, kK = 208;
  const PackedWeights w = pack_weights(weights(kN, kK, 3).view());
  const GemmPlan plan = plan_gemm(w, {.m = 40, .out = DType::f32, .backend = GetParam()});
  EXPECT_TRUE(plan.kernel().find("_w4a16") != std::string::npos) << plan.kernel();
  EXPECT_GT(plan.tile().m, 0);
  const GemmPlan again =
      plan_gemm(w, {.m = 40, .out = DType::f32, .kernel = plan.kernel(), .backend = "reference"});
  EXPECT_EQ(again.kernel(), plan.kernel());
  const Matrix x = make(Fill::gaussian, 7, kK, 2, DType::bf16);
  Matrix y(DType::f32, 7, kN), z(DType::f32, 7, kN);
  gemm(plan, {.x = x.view(), .weights = w, .out = y.span()});
  gemm(again, {.x = x.view(), .weights = w, .out = z.span()});
  EXPECT_TRUE(test::same_bits(y, z));
  EXPECT_TRUE(test::same_bits(y, test::product(x.view(), w, DType::f32, {.backend = GetParam()})));
}

TEST(GemmPlan, PrintsWhatItDoes) {
  const PackedWeights w = pack_weights(weights(64, 32, 3).view(), {.groups = 2});
  const GemmPlan plan = plan_gemm(
      w, {.m = 8, .form = GemmForm::every_group, .batch_invariant = true, .backend = "reference"});
  std::ostringstream text;
  text << plan;
  EXPECT_EQ(text.str(),
            "W4A16 every_group [8, 32] x [2, 32, 32], x bf16, out bf16, batch-invariant on cpu: "
            "reference_w4a16, workspace 0 bytes; weights read from their panels");
  EXPECT_EQ(to_string(GemmPlan()), "no plan");
  EXPECT_THROW(GemmPlan().kernel(), ValueError);
}

TEST(GemmPlan, NamesWhatIsWrong) {
  const PackedWeights w = pack_weights(weights(32, 32, 3).view());
  const auto rule = [&](const GemmDescription& d) {
    return message_of<Error>([&] { plan_gemm(w, d); });
  };
  EXPECT_TRUE(contains(rule({.m = -1}), "plan_gemm: m = -1, must be in 0 … "));
  EXPECT_TRUE(contains(rule({.m = 1, .x = static_cast<DType>(7)}), "x = 7, must be f32"));
  EXPECT_TRUE(
      contains(rule({.m = 1, .kernel = "reference_w4a4"}),
               "kernel = 'reference_w4a4' has another arithmetic, must be 'reference_w4a16'"));
  EXPECT_TRUE(contains(rule({.m = 1, .kernel = "abacus"}), "must be one of"));
  EXPECT_TRUE(contains(rule({.m = 7, .form = GemmForm::routed, .top_k = 2}),
                       "m = 7, must be a multiple of top_k = 2"));
  EXPECT_TRUE(contains(rule({.m = 1, .epilogue = Epilogue::swiglu, .swiglu_limit = 0}),
                       "swiglu_limit = 0, must be positive"));
  EXPECT_THROW(plan_gemm({.m = 1, .n = 32, .k = 24}), ShapeError);
  EXPECT_THROW(plan_gemm({.m = 1, .n = 48, .k = 32, .epilogue = Epilogue::swiglu}), ShapeError);
  EXPECT_THROW(plan_gemm({.m = 1, .n = 32, .k = 32, .groups = 2}), ShapeError);
  EXPECT_THROW(plan_gemm({.m = 1, .n = 32, .k = 32}, Device::cuda(1000)), UnsupportedError);
  EXPECT_THROW(plan_gemm(PackedWeights(), {.m = 1}), ShapeError);
}

TEST(GemmPlan, ArgumentsMustBeThosePlanned) {
  const PackedWeights w = pack_weights(weights(32, 32, 3).view()),
                      fused = pack_weights(weights(32, 32, 3).view(), {.gate_up = GateUp{}}),
                      other = pack_weights(weights(48, 32, 3).view());
  const GemmPlan plan = plan_gemm(w, {.m = 4, .out = DType::f32});
  const Matrix x = make(Fill::gaussian, 4, 32, 2, DType::bf16),
               wide = make(Fill::gaussian, 4, 32, 2);
  const QuantizedMatrix q = activations(4, 32, 2);
  Matrix y(DType::f32, 4, 32), many(DType::f32, 5, 32), half(DType::bf16, 4, 32);
  const auto rule = [&](const GemmArguments& a) {
    return message_of<Error>([&] { gemm(plan, a); });
  };
  const auto arguments = [&](std::variant<MatrixView, QuantizedView> in, const PackedWeights& with,
                             Matrix& out) {
    return GemmArguments{.x = in, .weights = with, .out = out.span()};
  };
  EXPECT_TRUE(contains(rule(arguments(q.view(), w, y)), "x is quantized, must be a matrix"));
  EXPECT_TRUE(contains(rule(arguments(wide.view(), w, y)), "x.dtype = f32, must be bf16"));
  EXPECT_TRUE(contains(rule(arguments(x.view(), other, y)), "must be [1, 32, 32] as planned"));
  EXPECT_TRUE(contains(rule(arguments(x.view(), fused, y)), "packed for SwiGLU"));
  EXPECT_TRUE(contains(rule(arguments(x.view(), PackedWeights(), y)), "weights are empty"));
  EXPECT_TRUE(contains(rule(arguments(x.view(), w, half)), "out.dtype = bf16, must be f32"));
  EXPECT_TRUE(contains(rule(arguments(x.view(), w, many)), "out has 5 rows, must have 4"));
  Matrix five(DType::bf16, 5, 32);
  EXPECT_TRUE(contains(rule(arguments(five.view(), w, many)),
                       "out has 5 rows, must have at most m = 4 as planned"));
  QuantizedMatrix codes({.rows = 4, .cols = 32});
  EXPECT_TRUE(contains(rule({.x = x.view(), .weights = w, .out = codes.span()}),
                       "out is quantized, must be a matrix"));
}

/// Adding a GEMM backend takes a table and an entry for its devices.
namespace fake {
int products = 0;
const GemmBackend& backend(Device) {
  static constexpr GemmBackend kBackend{
      .name = "fake",
      .plan =
          [](GemmPlan::Impl& plan) {
            plan.kernel = "sm77_fake_m16n64k64";
            plan.tile = {16, 64, 64};
            plan.workspace_bytes = 128;
          },
      .describe = [](const GemmPlan::Impl&) { return std::string("one order of summation"); },
      .run = [](const GemmCall&) { ++products; }};
  return kBackend;
}
constexpr GemmBackendEntry kEntry{
    [](Device d) { return d.type == DeviceType::cuda && d.index == 77; }, backend};
}  // namespace fake

TEST(GemmBackend, NewDeviceIsATableAndEntry) {
  set_first_gemm_backend(&fake::kEntry);
  const GemmPlan plan = plan_gemm({.m = 4, .n = 64, .k = 64}, Device::cuda(77));
  set_first_gemm_backend(nullptr);
  EXPECT_EQ(to_string(plan),
            "W4A16 dense [4, 64] x [64, 64], x bf16, out bf16 on cuda:77: sm77_fake_m16n64k64, "
            "workspace 128 bytes; one order of summation");
  EXPECT_THROW(gemm(plan, {}), ShapeError) << "arguments are checked for it";
  EXPECT_EQ(fake::products, 0);
}

}  // namespace nvfp4::gemm_forms_test
