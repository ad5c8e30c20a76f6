#include "checkpoint/checkpoints.h"
#include "checkpoint/gguf/gguf_models.h"
#include "checkpoint/load/layer_weights.h"
#include "layers/moe_cases.h"

namespace nvfp4::load_layers_test {

using test::contains;
using test::Fill;
using test::make;
using test::message_of;
using test::same_bits;
using StoredType = safetensors::DType;

TestTensor raw(const std::string& name, StoredType dtype, std::vector<std::int64_t> shape,
               const void* data, std::size_t bytes) {
  TestTensor t{{name, dtype, std::move(shape)}, std::vector<std::byte>(bytes)};
  if (bytes > 0) std::memcpy(t.bytes.data(), data, bytes);
  return t;
}
TestTensor floats(const std::string& name, std::vector<std::int64_t> shape,
                  const std::vector<float>& values) {
  return raw(name, StoredType::f32, std::move(shape), values.data(), 4 * values.size());
}

/// The ModelOpt triple of a matrix, or of a stack of `stack` matrices that lie one below the other.
std::vector<TestTensor> triple(const std::string& module, const QuantizedMatrix& q,
                               std::int64_t stack = 0) {
  const QuantizedShape& s = q.shape();
  std::vector<std::int64_t> codes = {s.rows, s.cols / 2}, scales = {s.rows, s.cols / 16};
  std::vector<std::int64_t> globals = {s.global_count()};
  for (auto* shape : {&codes, &scales, &globals}) {
    if (stack == 0 || (shape == &globals && s.global_count() == 1)) continue;
    (*shape)[0] /= stack;
    shape->insert(shape->begin(), stack);
  }
  const std::vector<float> values(q.global_scale(), q.global_scale() + s.global_count());
  return {raw(module + ".weight", StoredType::u8, codes, q.codes(),
              static_cast<std::size_t>(s.code_bytes())),
          raw(module + ".weight_scale", StoredType::f8_e4m3, scales, q.scales(),
              static_cast<std::size_t>(s.scale_bytes())),
          floats(module + ".weight_scale_2", globals, values)};
}
void append(std::vector<TestTensor>& list, std::vector<TestTensor> more) {
  for (TestTensor& t : more) list.push_back(std::move(t));
}

/// Returns the matrix of a module by the rules of its format.
QuantizedMatrix matrix_of(const LoadedModel& model, const std::string& module) {
  const bool modelopt = model.has(module + ".weight");
  const auto& codes = model.at(module + (modelopt ? ".weight" : ".weight_packed"));
  QuantizedMatrix q({.rows = codes.shape[0], .cols = 2 * codes.shape[1]});
  std::memcpy(q.codes(), codes.bytes.data(), codes.bytes.size());
  const auto& scales = model.at(module + ".weight_scale");
  std::memcpy(q.scales(), scales.bytes.data(), scales.bytes.size());
  *q.global_scale() = modelopt ? model.scalar(module + ".weight_scale_2")
                               : 1.0f / model.scalar(module + ".weight_global_scale");
  return q;
}
std::optional<GlobalScale> input_of(const LoadedModel& model, const std::string& module) {
  if (model.has(module + ".input_scale"))
    return GlobalScale::from_multiplier(model.scalar(module + ".input_scale"));
  if (model.has(module + ".input_global_scale"))
    return GlobalScale::from_divisor(model.scalar(module + ".input_global_scale"));
  return std::nullopt;
}
test::ExpertMatrices expert_of(const LoadedModel& model, const std::string& module) {
  return {matrix_of(model, module + ".gate_proj"), matrix_of(model, module + ".up_proj"),
          matrix_of(model, module + ".down_proj"), input_of(model, module + ".gate_proj"),
          input_of(model, module + ".down_proj")};
}

/// A routing of 3 experts for each of a few tokens, as MoeCase makes them.
test::MoeCase case_of(const LoadedModel& model, const std::string& module, std::int64_t tokens) {
  test::MoeCase c(tokens, 16, 16);
  c.routed.clear();
  c.shared.clear();
  for (int e = 0; model.has(module + ".experts." + std::to_string(e) + ".up_proj.weight_scale");
       ++e)
    c.routed.push_back(expert_of(model, module + ".experts." + std::to_string(e)));
  if (model.has(module + ".shared_experts.up_proj.weight_scale"))
    c.shared.push_back(expert_of(model, module + ".shared_experts"));
  return c;
}

struct LoadLayers : FolderTest {};

TEST_F(LoadLayers, TakesWhatQuantizeWrites) {
  sample_checkpoint(sample_options(
      dir / "bf16", {"--arch", "deepseek-v3", "--layers", 2, "--scale", 1.0 / 64, "--shards", 3}));
  write_text(dir / "amax.json",
             R"({"model.layers.1.mlp.experts.*.gate_proj": 7.7,
                 "model.layers.1.mlp.experts.3.down_proj": 3.3})");
  const std::string moe_name = "model.layers.1.mlp",
                    linear_name = "model.layers.0.self_attn.o_proj";
  for (const std::string format : {"modelopt", "compressed-tensors"})
    for (const Scheme scheme : {Scheme::w4a4, Scheme::w4a16}) {
      auto options = quantize_options(dir / "bf16", dir / "nvfp4",
                                      {"--format", format, "--scheme", scheme, "--overwrite"});
      if (scheme == Scheme::w4a4) options.input_amax = dir / "amax.json";
      quantize_checkpoint(options);
      const LoadedModel model(dir / "nvfp4");
      const Checkpoint checkpoint(dir / "nvfp4");

      const test::MoeCase c = case_of(model, moe_name, 11);
      ASSERT_EQ(c.routed.size(), 32u);
      ASSERT_EQ(c.shared.size(), 1u);
      EXPECT_EQ(c.routed[3].down_scale.has_value(), scheme == Scheme::w4a4);
      for (const Scheme run_as : {Scheme::w4a4, Scheme::w4a16}) {
        const Moe moe = load_moe(checkpoint, moe_name, {.scheme = run_as});
        EXPECT_EQ(moe.experts(), 32);
        EXPECT_EQ(moe.shared_experts(), 1);
        const Matrix x = make(Fill::gaussian, 11, moe.hidden(), 2, DType::bf16);
        EXPECT_TRUE(same_bits(test::run(moe, x.view(), c.routing()),
                              test::run(c.moe({.scheme = run_as}), x.view(), c.routing())));
      }
      const Linear linear = load_linear(checkpoint, linear_name);
      const Matrix x = make(Fill::gaussian, 5, linear.inputs(), 2, DType::bf16);
      WeightView w(QuantizedView{});
      const QuantizedMatrix q = matrix_of(model, linear_name);
      w = q.view();
      w.input_scale = input_of(model, linear_name);
      EXPECT_TRUE(same_bits(linear.forward(x.view()), Linear(w).forward(x.view())));
      EXPECT_EQ(linear.quantize(x.view()).view().shape.scope,
                scheme == Scheme::w4a4 ? GlobalScope::tensor : GlobalScope::vector);

      // The values of any tensor, and its shape.
      EXPECT_EQ(checkpoint.shape(linear_name + ".weight"),
                (std::vector<std::int64_t>{q.shape().rows, q.shape().cols}));
      EXPECT_TRUE(same_bits(checkpoint.read(linear_name + ".weight"), dequantize(q.view())));
      EXPECT_TRUE(same_bits(checkpoint.read(linear_name + ".weight", DType::bf16),
                            dequantize(q.view(), DType::bf16)));
      EXPECT_EQ(checkpoint.read("model.norm.weight").rows(), 1);
      EXPECT_FALSE(checkpoint.has("model.norm"));
    }
}

TEST_F(LoadLayers, GgufFilesGiveTheSameLayers) {
  gguf::write_qwen3_moe(dir / "bf16", 4);
  quantize_checkpoint(dir / "bf16", dir / "nvfp4");
  convert(dir / "nvfp4", dir / "model.gguf", "gguf");
  const Checkpoint folder(dir / "nvfp4"), file(dir / "model.gguf");
  const std::string layer = "model.layers.0.";
  const Matrix x = make(Fill::gaussian, 5, 64, 2, DType::bf16);
  const std::vector<std::string> fused = {layer + "self_attn.q_proj", layer + "self_attn.k_proj"};
  EXPECT_TRUE(same_bits(load_linear(file, fused).forward(x.view()),
                        load_linear(folder, fused).forward(x.view())));
  const auto head = [&](const Checkpoint& checkpoint) {
    return load_linear(checkpoint, "lm_head", {}, Unquantized::quantize).forward(x.view());
  };
  EXPECT_TRUE(same_bits(head(file), head(folder))) << "BF16 there, quantized now";
  EXPECT_TRUE(same_bits(file.read("model.norm.weight"), folder.read("model.norm.weight")));
  const test::MoeCase c = case_of(LoadedModel(dir / "nvfp4"), layer + "mlp", 11);
  ASSERT_EQ(c.routed.size(), 4u);
  const Matrix y = make(Fill::gaussian, 11, 64, 3, DType::bf16);
  EXPECT_TRUE(same_bits(test::run(load_moe(file, layer + "mlp"), y.view(), c.routing()),
                        test::run(load_moe(folder, layer + "mlp"), y.view(), c.routing())));
}

TEST_F(LoadLayers, FusedModulesKeepTheirGlobalScales) {
  const QuantizedMatrix q = test::weights(40, 64, 1), k = test::weights(24, 64, 2),
                        v = test::uneven_weights(24, 64, 3);
  std::vector<TestTensor> tensors;
  append(tensors, triple("l.q", q));
  append(tensors, triple("l.k", k));
  append(tensors, triple("l.v", v));  // a global scale for each row
  tensors.push_back(random_tensor("l.k.bias", {24}));
  write_shard(dir / "m.safetensors", tensors);
  const Checkpoint checkpoint(dir / "m.safetensors");
  const std::vector<std::string> modules = {"l.q", "l.k", "l.v"};
  const Matrix x = make(Fill::gaussian, 6, 64, 2, DType::bf16);
  std::vector<float> bias(40, 0.0f);
  const Matrix own = checkpoint.read("l.k.bias");
  bias.insert(bias.end(), own.data<float>(), own.data<float>() + 24);
  bias.resize(88);
  const WeightView parts[] = {q.view(), k.view(), v.view()};
  EXPECT_TRUE(same_bits(load_linear(checkpoint, modules).forward(x.view()),
                        Linear(parts, {.bias = bias}).forward(x.view())));
  const std::vector<float> given = test::random_floats(88, 9);
  EXPECT_TRUE(same_bits(load_linear(checkpoint, modules, {.bias = given}).forward(x.view()),
                        Linear(parts, {.bias = given}).forward(x.view())));
  const Linear rows = load_linear(checkpoint, "l.v", {.scheme = Scheme::w4a16});
  EXPECT_LE(test::worst_error(x.view(), pack_weights(v.view()),
                              rows.forward(x.view(), DType::f32).view()),
            1.0);
  EXPECT_TRUE(same_bits(checkpoint.read("l.v.weight"), dequantize(v.view())));
}

TEST_F(LoadLayers, GroupsAreAMatrixStackOrModules) {
  std::vector<TestTensor> tensors;
  for (const GlobalScope scope : {GlobalScope::tensor, GlobalScope::vector}) {
    const std::string p = scope == GlobalScope::tensor ? "tensor." : "rows.";
    const QuantizedMatrix q = test::weights(3 * 32, 64, 5, scope);
    append(tensors, triple(p + "wo_a", q));
    append(tensors, triple(p + "stack", q, 3));
  }
  QuantizedMatrix each({.rows = 32, .cols = 64});
  const QuantizedMatrix all = test::weights(3 * 32, 64, 5);
  std::vector<WeightView> views = split_groups(all.view(), 3);
  for (std::size_t g = 0; g < 3; ++g) {
    copy(views[g].quantized, each.span());
    append(tensors, triple("group." + std::to_string(g), each));
  }
  tensors.push_back(random_tensor("plain.wo_a.weight", {96, 64}));
  write_shard(dir / "m.safetensors", tensors);
  const Checkpoint checkpoint(dir / "m.safetensors");
  const Matrix x = make(Fill::gaussian, 6, 3 * 64, 2, DType::bf16);
  const auto run = [&](const GroupedLinear& linear) {
    Matrix y(DType::f32, 6, 3 * 32);
    linear.forward_into(x.view(), y.span());
    return y;
  };
  const Matrix want = run(GroupedLinear(views));
  EXPECT_TRUE(same_bits(run(load_grouped_linear(checkpoint, "tensor.wo_a", 3)), want));
  EXPECT_TRUE(same_bits(run(load_grouped_linear(checkpoint, "tensor.stack", 3)), want));
  const std::vector<std::string> modules = {"group.0", "group.1", "group.2"};
  EXPECT_TRUE(same_bits(run(load_grouped_linear(checkpoint, modules)), want));
  EXPECT_TRUE(same_bits(run(load_grouped_linear(checkpoint, "rows.wo_a", 3)),
                        run(load_grouped_linear(checkpoint, "rows.stack", 3))));
  const Matrix plain = checkpoint.read("plain.wo_a.weight", DType::bf16);
  EXPECT_TRUE(
      same_bits(run(load_grouped_linear(checkpoint, "plain.wo_a", 3, {}, Unquantized::quantize)),
                run(GroupedLinear(split_groups(plain.view(), 3)))));
  for (const std::string name : {"tensor.wo_a.bias", "group.1.bias"}) {
    std::vector<TestTensor> more = tensors;
    more.push_back(floats(name, {96}, std::vector<float>(96)));
    write_shard(dir / "biased.safetensors", more);
    const Checkpoint biased(dir / "biased.safetensors");
    const std::vector<float> own(96);
    const auto load = [&](const LinearOptions& options) {
      return name[0] == 't' ? load_grouped_linear(biased, "tensor.wo_a", 3, options)
                            : load_grouped_linear(biased, modules, options);
    };
    EXPECT_TRUE(contains(message_of<UnsupportedError>([&] { load({}); }), name));
    EXPECT_TRUE(same_bits(run(load({.bias = own})), want));
  }
  EXPECT_THROW(load_grouped_linear(checkpoint, "tensor.stack", 2), FormatError);
  EXPECT_THROW(load_grouped_linear(checkpoint, "tensor.wo_a", 5), ShapeError);
}

TEST_F(LoadLayers, ExpertsComeFromStacksToo) {
  constexpr std::int64_t kE = 6, kI = 32, kK = 64;
  for (const GlobalScope scope : {GlobalScope::tensor, GlobalScope::vector}) {
    const QuantizedMatrix gate_up = test::weights(kE * 2 * kI, kK, 5, scope),
                          down = test::weights(kE * kK, kI, 6, scope);
    std::vector<TestTensor> tensors;
    append(tensors, triple("l.experts.gate_up_proj", gate_up, kE));
    append(tensors, triple("l.experts.down_proj", down, kE));
    write_shard(dir / "m.safetensors", tensors);
    const auto halves = split_groups(gate_up.view(), 2 * kE);
    const auto downs = split_groups(down.view(), kE);
    std::vector<ExpertWeights> experts;
    for (std::size_t e = 0; e < kE; ++e)
      experts.push_back({halves[2 * e], halves[2 * e + 1], downs[e]});
    const test::MoeCase c(7, 16, 16);
    const Matrix x = make(Fill::gaussian, 7, kK, 2, DType::bf16);
    EXPECT_TRUE(same_bits(
        test::run(load_moe(Checkpoint(dir / "m.safetensors"), "l"), x.view(), c.routing()),
        test::run(Moe(experts), x.view(), c.routing())));
  }
}

TEST_F(LoadLayers, ExpertsOfAStackKeepTheirOwnScales) {
  constexpr std::size_t kE = 6;
  std::vector<test::ExpertMatrices> list;
  std::vector<TestTensor> tensors;
  for (const std::string name : {"gate_proj", "up_proj", "down_proj"}) {
    TestTensor stack[3];
    std::vector<float> globals, inputs;
    for (std::size_t e = 0; e < kE; ++e) {
      if (list.size() == e) list.push_back(test::expert(64, 32, 40 + e, false));
      QuantizedMatrix& q = name == "gate_proj" ? list[e].gate
                           : name == "up_proj" ? list[e].up
                                               : list[e].down;
      *q.global_scale() *= static_cast<float>(e + 1);
      globals.push_back(*q.global_scale());
      inputs.push_back(0.01f * static_cast<float>(1 + e * 5 % kE));  // the largest is amid them
      const std::vector<TestTensor> one = triple("", q);
      for (std::size_t i = 0; i < 2; ++i) {
        stack[i].spec = one[i].spec;
        stack[i].bytes.insert(stack[i].bytes.end(), one[i].bytes.begin(), one[i].bytes.end());
      }
    }
    for (std::size_t i = 0; i < 2; ++i) {
      stack[i].spec.name = "l.experts." + name + stack[i].spec.name;
      stack[i].spec.shape.insert(stack[i].spec.shape.begin(), kE);
      tensors.push_back(std::move(stack[i]));
    }
    tensors.push_back(floats("l.experts." + name + ".weight_scale_2", {kE}, globals));
    tensors.push_back(floats("l.experts." + name + ".input_scale", {kE}, inputs));
  }
  test::MoeCase c(7, 16, 16, false, kE, 0);
  c.routed = std::move(list);
  for (std::size_t e = 0; e < kE; ++e)
    c.routed[e].input_scale = c.routed[e].down_scale =
        GlobalScale::from_multiplier(0.01f * static_cast<float>(1 + e * 5 % kE));
  // One that is not stacked, by its other name.
  c.shared.push_back(test::expert(64, 48, 90, false));
  append(tensors, triple("l.shared_expert.gate_proj", c.shared[0].gate));
  append(tensors, triple("l.shared_expert.up_proj", c.shared[0].up));
  append(tensors, triple("l.shared_expert.down_proj", c.shared[0].down));
  write_shard(dir / "m.safetensors", tensors);
  const Moe moe = load_moe(Checkpoint(dir / "m.safetensors"), "l");
  ASSERT_EQ(moe.shared_experts(), 1);
  const Matrix x = make(Fill::gaussian, 7, 64, 2, DType::bf16);
  EXPECT_EQ(moe.quantize(x.view()).view().global_of(0), 0.06f);
  EXPECT_TRUE(same_bits(test::run(moe, x.view(), c.routing()),
                        test::run(c.moe({}), x.view(), c.routing())));
}

TEST_F(LoadLayers, WeightsAreReadWhereTheyAreMapped) {
  std::vector<TestTensor> tensors = triple("l.q", test::weights(40, 64, 1));
  tensors.push_back(random_tensor("l.plain.weight", {24, 64}));
  write_shard(dir / "m.safetensors", tensors);
  const Checkpoint checkpoint(dir / "m.safetensors");
  checkpoint::LayerWeights weights(checkpoint, Unquantized::quantize);
  const auto mapped = [&](const checkpoint::StoredTensor& t) {
    return static_cast<const void*>(t.file->data(*t.info).data());
  };
  const checkpoint::LogicalTensor &q = weights.get("l.q", 2), &plain = weights.get("l.plain", 2);
  EXPECT_EQ(weights.matrix("l.q").quantized.codes, mapped(q.data));
  EXPECT_EQ(weights.matrix("l.q").quantized.scales, mapped(q.scales));
  EXPECT_EQ(weights.matrix("l.plain").dense.data, mapped(plain.data));
}

TEST_F(LoadLayers, PlainWeightsAreRefusedUnlessAllowed) {
  std::vector<TestTensor> single, stacked;
  std::vector<TestTensor> tall = {random_tensor("l.experts.gate_up_proj", {6, 64, 96}),
                                  random_tensor("l.experts.down_proj", {6, 48, 64})};
  write_model(dir / "stacked", {tall}, R"({"model_type": "llama4", "hidden_size": 64})");
  const LoadedModel model(dir / "stacked");
  // The same weights, one by one and the other way round; an odd number of bytes before them.
  single.push_back(raw("a.odd", StoredType::u8, {1}, "x", 1));
  for (int e = 0; e < 6; ++e) {
    const auto slice = [&](const char* stack, std::int64_t n0, std::int64_t n, std::int64_t k) {
      const auto& t = model.at(stack);
      std::vector<std::uint16_t> values;
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < k; ++j) {
          std::uint16_t v;
          std::memcpy(&v, t.bytes.data() + 2 * ((e * k + j) * t.shape[2] + n0 + i), 2);
          values.push_back(v);
        }
      return values;
    };
    const std::string p = "l.experts." + std::to_string(e) + ".";
    const auto gate = slice("l.experts.gate_up_proj", 0, 48, 64),
               up = slice("l.experts.gate_up_proj", 48, 48, 64),
               down = slice("l.experts.down_proj", 0, 64, 48);
    single.push_back(raw(p + "w1.weight", StoredType::bf16, {48, 64}, gate.data(), 48 * 128));
    single.push_back(raw(p + "w3.weight", StoredType::bf16, {48, 64}, up.data(), 48 * 128));
    single.push_back(raw(p + "w2.weight", StoredType::bf16, {64, 48}, down.data(), 48 * 128));
  }
  write_model(dir / "single", {single}, "{}");
  const test::MoeCase c(7, 16, 16);
  const Matrix x = make(Fill::gaussian, 7, 64, 2, DType::bf16);
  Matrix results[2];
  for (const int i : {0, 1}) {
    const Checkpoint checkpoint(dir / (i == 0 ? "stacked" : "single"));
    const std::string message = message_of<FormatError>([&] { load_moe(checkpoint, "l"); });
    EXPECT_TRUE(contains(message, "l.experts.") && contains(message, "BF16")) << message;
    results[i] =
        test::run(load_moe(checkpoint, "l", {}, Unquantized::quantize), x.view(), c.routing());
  }
  EXPECT_TRUE(same_bits(results[0], results[1]));
}

/// An expert layer of two experts that `change` breaks; what loading it says.
template <class Change>
std::string hostile(Change&& change) {
  const TempDir dir;
  std::vector<TestTensor> tensors;
  for (const std::string e : {"0", "1"}) {
    append(tensors, triple("l.experts." + e + ".gate_proj", test::weights(32, 64, 1)));
    append(tensors, triple("l.experts." + e + ".up_proj", test::weights(32, 64, 2)));
    append(tensors, triple("l.experts." + e + ".down_proj", test::weights(64, 32, 3)));
  }
  change(tensors);
  write_shard(dir / "m.safetensors", tensors);
  try {
    load_moe(Checkpoint(dir / "m.safetensors"), "l");
  } catch (const FormatError& e) {
    return std::string("FormatError ") + e.what();
  } catch (const ValueError& e) {
    return std::string("ValueError ") + e.what();
  } catch (const UnsupportedError& e) {
    return std::string("UnsupportedError ") + e.what();
  }
  return "loaded";
}

void expect_says(const std::string& message, const std::string& type, const std::string& tensor) {
  EXPECT_TRUE(message.starts_with(type) && contains(message, tensor)) << message;
}

TEST_F(LoadLayers, HostileFolderErrorsNameTheTensor) {
  using Tensors = std::vector<TestTensor>;
  const auto find = [](Tensors& tensors, const std::string& name) {
    return std::ranges::find_if(tensors, [&](const auto& t) { return t.spec.name == name; });
  };
  const std::string up = "l.experts.1.up_proj", down = "l.experts.0.down_proj";
  EXPECT_EQ(hostile([](Tensors&) {}), "loaded");
  const auto without = [&](const std::string& name) {
    return hostile([&](Tensors& t) { t.erase(find(t, name)); });
  };
  expect_says(without(up + ".weight"), "FormatError", up + ".weight");
  expect_says(without(up + ".weight_scale"), "FormatError", up);
  expect_says(without(up + ".weight_scale_2"), "FormatError", up + ".weight_scale_2");
  expect_says(
      hostile([&](Tensors& t) {
        for (int i = 0; i < 3; ++i)
          t.erase(find(t, down + ".weight" + (i == 0 ? "" : i == 1 ? "_scale" : "_scale_2")));
      }),
      "FormatError", down + ".weight");
  const auto replaced = [&](const std::string& name, const Tensors& by) {
    return hostile([&](Tensors& t) {
      for (const char* part : {".weight", ".weight_scale", ".weight_scale_2"})
        t.erase(find(t, name + part));
      append(t, by);
    });
  };
  expect_says(replaced(up, triple(up, test::weights(48, 64, 2))), "FormatError", up);
  expect_says(replaced(down, triple(down, test::weights(64, 48, 2))), "FormatError", down);
  expect_says(replaced(up, {random_tensor(up + ".weight", {32, 64}, StoredType::f16)}),
              "FormatError", up + ".weight");
  const std::vector<float> bytes(32 * 64 / 4);
  expect_says(
      replaced(up, {raw(up + ".weight", StoredType::f8_e4m3, {32, 64}, bytes.data(), 2048)}),
      "FormatError", up + ".weight");
  expect_says(replaced(up, {raw(up + ".weight", StoredType::f32, {512}, bytes.data(), 2048)}),
              "FormatError", up + ".weight");
  for (const float bad : {NAN, INFINITY, -1.0f})
    expect_says(hostile([&](Tensors& t) {
                  std::memcpy(find(t, up + ".weight_scale_2")->bytes.data(), &bad, 4);
                }),
                "FormatError", up + ".weight");
  for (const float bad : {NAN, 0.0f, 1e-45f})
    expect_says(hostile([&](Tensors& t) { t.push_back(floats(up + ".input_scale", {}, {bad})); }),
                "FormatError", up + ".weight");
  expect_says(
      hostile([&](Tensors& t) { find(t, up + ".weight_scale")->bytes[9] = std::byte{0x7F}; }),
      "ValueError", up + ".weight");
  expect_says(hostile([&](Tensors& t) {
                t.push_back(floats("l.experts.9000000000.gate_proj.weight", {1}, {0}));
              }),
              "FormatError", "l.experts.9000000000.gate_proj");
  expect_says(hostile([&](Tensors& t) { t.clear(); }), "FormatError", "l.experts");
  expect_says(hostile([&](Tensors& t) {  // of AWQ
                t.push_back(floats(down + ".pre_quant_scale", {32}, std::vector<float>(32, 2)));
              }),
              "UnsupportedError", down + ".pre_quant_scale");
  for (const std::string name : {"l.experts.1.up_proj.bias", "l.experts.down_proj_bias",
                                 "l.shared_expert.up_proj.bias", "l.shared_expert_gate.weight"})
    expect_says(
        hostile([&](Tensors& t) { t.push_back(floats(name, {32}, std::vector<float>(32))); }),
        "UnsupportedError", name);
}

TEST_F(LoadLayers, AnInterruptedFolderOrNoneIsAnError) {
  EXPECT_THROW(Checkpoint(dir / "none"), IoError);
  write_model(dir / "m", {{random_tensor("a.weight", {16, 16})}}, "{}");
  const Checkpoint checkpoint(dir / "m");
  EXPECT_TRUE(
      contains(message_of<FormatError>([&] { load_linear(checkpoint, "b"); }), "'b.weight'"));
  EXPECT_THROW(checkpoint.shape("b"), FormatError);
  EXPECT_THROW(checkpoint.read("b"), FormatError);
  write_text(dir / "m" / "nvfp4.partial.json", "{}");
  EXPECT_TRUE(contains(message_of<FormatError>([&] { Checkpoint(dir / "m"); }), "incomplete"));
}

}  // namespace nvfp4::load_layers_test
