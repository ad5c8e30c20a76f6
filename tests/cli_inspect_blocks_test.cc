#ifdef NVFP4_CLI_PATH

#include <nlohmann/json.hpp>

#include "checkpoint/compare/inspect_blocks.h"
#include "checkpoint/models.h"
#include "nvfp4/error.h"
#include "nvfp4/runtime.h"
#include "run_cli.h"

/// The blocks of one tensor, read back and looked at.
namespace nvfp4::cli_inspect_blocks_test {

bool has(const std::string& text, std::string_view part) { return text.find(part) != text.npos; }

/// Rows of 32 of which each is 6 times its number, but for the first of each block: 3 times.
TEST_F(Cli, InspectShowsTheBlocksOfARow) {
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  std::vector<float> values;
  for (int row = 0; row < 32; ++row)
    for (int col = 0; col < 32; ++col)
      values.push_back(static_cast<float>(row) * (col % 16 == 0 ? -3.f : 6.f));
  write_model(
      dir_ / "m",
      {{{{name, safetensors::DType::bf16, {32, 32}}, encode(values, safetensors::DType::bf16)}}},
      kLlamaConfig);
  for (const char* format : {"modelopt", "compressed-tensors", "comfyui"}) {
    ASSERT_EQ(run({"quantize", "m", format, "--format", format, "--include", "*", "-q"}).status, 0);
    for (const int row : {0, 4, 31}) {
      const auto blocks = inspect_blocks(dir_ / format, name, row, 9);
      ASSERT_EQ(blocks.size(), 2u);
      for (std::size_t b = 0; b < 2; ++b) {
        EXPECT_EQ(blocks[b].column, static_cast<std::int64_t>(16 * b));
        for (std::size_t i = 0; i < 16; ++i) {
          const double weight =
              blocks[b].elements[i] * static_cast<double>(blocks[b].scale) * blocks[b].global_scale;
          const double was = values[static_cast<std::size_t>(row) * 32 + 16 * b + i];
          EXPECT_NEAR(weight, was, 0.07 * std::abs(was)) << format << " " << row << " " << i;
        }
      }
    }
  }
  const Result r = run({"inspect", "modelopt", "--tensor", name, "--row", "31", "--blocks", "1"});
  EXPECT_TRUE(has(r.out, "row 31") && has(r.out, "0 to 15") && !has(r.out, "16 to 31")) << r.out;
  EXPECT_TRUE(has(r.out, "   -3    6    6    6    6    6    6    6")) << r.out;
  const auto json =
      nlohmann::json::parse(run({"inspect", "modelopt", "--tensor", name, "--json"}).out);
  EXPECT_EQ(json.at("tensors").at(0).at("blocks").size(), 2u);
  EXPECT_THROW(inspect_blocks(dir_ / "modelopt", name, 32, 1), ValueError);
  EXPECT_THROW(inspect_blocks(dir_ / "modelopt", "nothing", 0, 1), ValueError);
  EXPECT_TRUE(inspect_blocks(dir_ / "m", name, 0, 1).empty());
}

}  // namespace nvfp4::cli_inspect_blocks_test

#endif
