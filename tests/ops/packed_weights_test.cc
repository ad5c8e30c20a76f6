// Tests of pack_weights on the CPU: groups, parts, and memory of the caller.
#include "fragment_cases.h"
#include "layers/layer_cases.h"
#include "testing.h"

namespace nvfp4::packed_weights_test {

using test::bytes_of;
using test::contains;
using test::message_of;
using test::random_weights;

TEST(PackedWeights, StackTheSameInEveryWay) {
  for (const GlobalScope scope : {GlobalScope::tensor, GlobalScope::vector})
    for (const std::int64_t n : {64, 24, 35}) {
      constexpr std::int64_t kGroups = 5, kCols = 144;
      const QuantizedMatrix stacked =
          random_weights({.rows = kGroups * n, .cols = kCols, .scope = scope}, 7);
      const PackedWeights together = pack_weights(stacked.view(), {.groups = kGroups});
      ASSERT_EQ(together.groups(), kGroups);
      ASSERT_EQ(together.rows(), n);
      EXPECT_EQ(together.shape().scope, scope);
      std::vector<QuantizedView> parts;
      for (std::int64_t g = 0; g < kGroups; ++g)
        parts.emplace_back(QuantizedShape{.rows = n, .cols = kCols, .scope = scope},
                           stacked.codes() + g * n * kCols / 2,
                           stacked.scales() + g * n * kCols / 16,
                           stacked.global_scale() + (scope == GlobalScope::vector ? g * n : 0));
      EXPECT_EQ(bytes_of(pack_weights(parts, {.groups = kGroups})), bytes_of(together));
      for (std::int64_t g = 0; g < kGroups; ++g)
        EXPECT_TRUE(unpack_weights(together, g) ==
                    unpack_weights(pack_weights(parts[static_cast<std::size_t>(g)])));
    }
}

TEST(PackedWeights, ColumnsAndOtherLayoutsHaveGroupsToo) {
  const QuantizedMatrix w = random_weights({.rows = 80,
                                            .cols = 3 * 21,
                                            .axis = BlockAxis::columns,
                                            .layout = ScaleLayout::tiled_128x4,
                                            .scope = GlobalScope::vector},
                                           3);
  const PackedWeights one = pack_weights(w.view()), three = pack_weights(w.view(), {.groups = 3});
  const QuantizedMatrix whole = unpack_weights(one);
  for (std::int64_t g = 0; g < 3; ++g) {
    const QuantizedMatrix part = unpack_weights(three, g);
    EXPECT_EQ(std::memcmp(part.codes(), whole.codes() + g * 21 * 40, 21 * 40), 0);
    EXPECT_EQ(std::memcmp(part.scales(), whole.scales() + g * 21 * 5, 21 * 5), 0);
    EXPECT_EQ(std::memcmp(part.global_scale(), whole.global_scale() + g * 21, 21 * 4), 0);
  }
}

TEST(PackedWeights, DenseGroupsAreThoseOfTheQuantizedMatrix) {
  for (const std::int64_t n : {32, 21})
    for (const GlobalScope scope : {GlobalScope::tensor, GlobalScope::vector}) {
      const Matrix w = test::make(test::Fill::student, 3 * n, 80, 3, DType::bf16);
      const QuantizeOptions options{.scope = scope};
      EXPECT_EQ(bytes_of(pack_weights(w.view(), options, {.groups = 3})),
                bytes_of(pack_weights(quantize(w.view(), options).view(), {.groups = 3})));
    }
}

TEST(PackedWeights, LieInMemoryOfTheCallerToo) {
  const QuantizedMatrix w =
      random_weights({.rows = 140, .cols = 80, .scope = GlobalScope::vector}, 5);
  const PackedWeights own = pack_weights(w.view(), {.groups = 2});
  struct alignas(16) Aligned {
    std::byte bytes[16];
  };
  const auto bytes = static_cast<std::size_t>(own.shape().memory_bytes());
  std::vector<Aligned> memory(bytes / 16 + 2);
  memory.back().bytes[0] = std::byte{0xAA};
  const std::span<std::byte> lent(memory[0].bytes, bytes);
  EXPECT_EQ(pack_weights(w.view(), {.groups = 2, .memory = lent}).memory().data(), lent.data());
  EXPECT_EQ(std::memcmp(lent.data(), own.memory().data(), bytes), 0) << "it is still there";
  EXPECT_EQ(memory.back().bytes[0], std::byte{0xAA});
  const PackedWeights again(own.shape(), lent);
  EXPECT_TRUE(unpack_weights(again, 1) == unpack_weights(own, 1));
  EXPECT_THROW(PackedWeights(own.shape(), lent.first(bytes - 1)), ShapeError);
  EXPECT_THROW(PackedWeights(own.shape(), {lent.data() + 1, bytes}), ShapeError);
  EXPECT_THROW(PackedWeights(own.shape(), {}), ShapeError);
}

TEST(PackedWeights, RefuseGroupsThatDoNotFit) {
  const QuantizedMatrix w = random_weights({.rows = 24, .cols = 32}, 4),
                        other = random_weights({.rows = 24, .cols = 48}, 4),
                        small = random_weights({.rows = 8, .cols = 32}, 4),
                        middle = random_weights({.rows = 16, .cols = 32}, 4);
  EXPECT_THROW(pack_weights(w.view(), {.groups = 0}), ShapeError);
  EXPECT_THROW(pack_weights(w.view(), {.groups = 5}), ShapeError);
  EXPECT_THROW(pack_weights(std::span<const QuantizedView>{}), ShapeError);
  EXPECT_THROW(pack_weights(std::vector{w.view(), other.view()}), ShapeError);
  // 8 + 24 + 16 outputs are three times 16, but not in whole parts.
  const std::string message = message_of<ShapeError>([&] {
    pack_weights(std::vector{small.view(), w.view(), middle.view()}, {.groups = 3});
  });
  EXPECT_TRUE(contains(message, "part 1 has outputs 8 … 31, must not cross the end of a group"))
      << message;
  const PackedWeights two = pack_weights(w.view(), {.groups = 2});
  EXPECT_THROW(unpack_weights(two, 2), ShapeError);
  EXPECT_THROW(unpack_weights(two, -1), ShapeError);
  EXPECT_THROW(PackedWeights({.groups = 0, .rows = 24, .cols = 32}, {}), ShapeError);
  EXPECT_THROW(PackedWeights({.rows = 0, .cols = 32}, {}), ShapeError);
}

TEST(PackedWeights, RefuseGateAndUpThatDoNotFit) {
  const QuantizedMatrix odd({.rows = 48, .cols = 64}), w({.rows = 96, .cols = 64});
  EXPECT_EQ(pack_weights(w.view(), {.gate_up = GateUp{8}}).shape().gate_up, GateUp{8});
  EXPECT_THROW(pack_weights(odd.view(), {.gate_up = GateUp{}}), ShapeError);
  EXPECT_THROW(pack_weights(w.view(), {.gate_up = GateUp{3}}), ValueError);
  EXPECT_THROW(pack_weights(w.view(), {.gate_up = GateUp{-8}}), ValueError);
  EXPECT_THROW(pack_weights(w.view(), {.gate_up = GateUp{32}}), ShapeError);
}

TEST(PackedWeights, SayWhatTheyAre) {
  const QuantizedMatrix w = random_weights({.rows = 64, .cols = 32}, 4);
  std::ostringstream text;
  text << pack_weights(w.view(), {.groups = 2, .gate_up = GateUp{}}) << " " << PackedWeights();
  EXPECT_EQ(text.str(),
            "PackedWeights(groups=2, rows=32, cols=32, interleaved_16x4, gate and up, cpu) "
            "PackedWeights()");
}

TEST(PackedWeights, MissingDeviceIsRefused) {
  const QuantizedMatrix w = random_weights({.rows = 64, .cols = 32}, 4);
  EXPECT_THROW(pack_weights(w.view(), {.device = Device::cuda(1000)}), UnsupportedError);
}

}  // namespace nvfp4::packed_weights_test
