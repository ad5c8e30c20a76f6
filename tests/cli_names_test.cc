// Names from files, as they are shown.
#ifdef NVFP4_CLI_PATH

#include <vector>

#include "checkpoint/models.h"
#include "run_cli.h"

namespace nvfp4::cli_names_test {

TEST_F(Cli, ControlCharactersInNamesAreEscaped) {
  // A mark that turns text around, an escape sequence, a separator of lines, an invisible one.
  const std::string marks[] = {"\u202e", "\x1b", "\u2028", "\u200b", "\u009b", "\u2066"};
  std::string name = "m.", shown = "m.";
  for (const std::string& mark : marks) {
    name += "a" + mark;
    shown += "a";
    for (const char c : mark) {
      const char* const digits = "0123456789abcdef";
      const auto byte = static_cast<unsigned char>(c);
      shown += std::string("\\x") + digits[byte >> 4] + digits[byte & 15];
    }
  }
  write_shard(dir_ / "a.safetensors",
              {stored_f32(name + ".weight", {2, 16}, std::vector<float>(32, 1.0f))});
  write_shard(dir_ / "b.safetensors",
              {stored_f32(name + ".weight", {2, 16}, std::vector<float>(32, 2.0f))});
  write_text(dir_ / ("not\u202ethere.json"), "");
  const std::vector<Words> commands = {
      {"inspect", "a.safetensors"},
      {"inspect", "a.safetensors", "--tensor", name + ".weight"},
      {"inspect", "a.safetensors", "--tensor", name},
      {"compare", "a.safetensors", "b.safetensors"},
      {"quantize", "a.safetensors", "out", "--dry-run"},
      {"quantize", "a.safetensors", "out", "--ignore", name},
      {"quantize", "a.safetensors", "out", "--include", name + ".w"},
      {"verify", "a.safetensors", "--source", "b.safetensors"},
      {"convert", "a.safetensors", "out", "--to", "bf16"},
      {"repair", "not\u202ethere", "out"},
      {name},
      {"quantize", "a.safetensors", "out", "--" + name}};
  bool any = false;
  for (const Words& command : commands) {
    const Result r = run(command);
    for (const std::string& mark : marks)
      EXPECT_FALSE(has(r.out, mark) || has(r.err, mark)) << command[0] << r.out << r.err;
    any |= has(r.out, shown);
  }
  EXPECT_TRUE(any);
}

}  // namespace nvfp4::cli_names_test

#endif
