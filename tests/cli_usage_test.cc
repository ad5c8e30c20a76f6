#ifdef NVFP4_CLI_PATH

#include <fmt/format.h>

#include "checkpoint/models.h"
#include "nvfp4/device.h"
#include "run_cli.h"

namespace nvfp4::cli_usage_test {

TEST_F(Cli, LinesFitTheColumnsOfTheEnvironment) {
  for (const Words& words : std::initializer_list<Words>{
           {"quantise"}, {"compare", "--help"}, {"--version", "--verbose"}, {"help", "NV0102"}}) {
    const Result r = run(words, {"COLUMNS=40"});
    std::istringstream lines(r.out + r.err);
    for (std::string line; std::getline(lines, line);)
      EXPECT_TRUE(line.size() <= 40 || line.starts_with("  nvfp4 ")) << line;
  }
}

TEST_F(Cli, FarCommandHasNoSuggestion) {
  EXPECT_FALSE(has(run({"frobnicate"}).err, "did you mean"));
}

/// An empty word is like an unset variable of a script. The word after "--name=" is not its value.
TEST_F(Cli, EmptyWordsAreNoValues) {
  make_sample();
  const std::pair<Words, std::vector<std::string>> options[] = {
      {{"quantize", "m", "out"},
       {"--scheme", "--format", "--method", "--statistics", "--recipe", "--merge", "--ignore",
        "--include", "--fuse", "--input-amax", "--device", "--backend", "--report"}},
      {{"convert", "m", "out"}, {"--to", "--report"}},
      {{"compare", "m", "m"}, {"--html", "--against", "--statistics", "--run", "--parts"}},
      {{"verify", "m"}, {"--source", "--for"}},
      {{"inspect", "m"}, {"--tensor"}}};
  for (const auto& [command, names] : options)
    for (const std::string& name : names)
      for (const Words& given : {Words{name, ""}, Words{name + "=", "--json"}}) {
        Words words = command;
        words.insert(words.end(), given.begin(), given.end());
        const Result r = run(words);
        EXPECT_EQ(r.status, 2) << command[0] << ' ' << given[0] << ": " << r.err;
        EXPECT_TRUE(has(r.err + r.out, name + ": ")) << r.err << r.out;
        EXPECT_FALSE(has(r.err + r.out, "missing")) << r.err << r.out;
        EXPECT_FALSE(std::filesystem::exists(dir_ / "out"));
      }
}

TEST_F(Cli, WarningsOfOneKindAreOneLine) {
  make_sample();
  Words words{"quantize", "m", "out", "--dry-run", "--fuse", "x1,x2"};
  for (const char* name : {"a1", "b2", "c", "d", "e"})
    words.insert(words.end(), {"--ignore", name});
  EXPECT_EQ(run(words).err,
            "nvfp4: warning: --ignore a1, --ignore b2, --ignore c and 2 more: matches no tensor\n"
            "nvfp4: warning: --fuse x1,x2: matches no quantized module\n");
}

TEST_F(Cli, ValueErrorsSayRuleAndHint) {
  make_sample();
  for (const auto& [words, text] :
       {std::pair{Words{"quantize", "m", "o", "--format", "x"},
                  "comfyui, gguf [NV0303]\nhint: 'nvfp4 quantize --help' explains the choices"},
        {Words{"sample", "s", "--seed", "-1"},
         "'-1', must be an integer from 0 to 184467440737095"},
        {Words{"quantize", "m", "o", "--report", "m"}, "'m', must be a file, not a folder"}}) {
    const Result r = run(words);
    EXPECT_EQ(r.status, 2);
    EXPECT_TRUE(has(r.err, text)) << r.err;
  }
}

TEST_F(Cli, HintsOfSampleNameItsOptions) {
  make_sample();
  for (const Words& words :
       {Words{"sample", "m"}, Words{"sample", "n", "--scale", "4", "--layers", "1000"}}) {
    const Result r = run(words);
    EXPECT_EQ(r.status, 1);
    EXPECT_TRUE(has(r.err, "hint: ")) << r.err;
    EXPECT_FALSE(has(r.err, "--resume")) << r.err;
  }
}

TEST_F(Cli, WarningsWithOtherNumbersSaySo) {
  make_sample();
  for (const char* name : {"a.txt", "b.txt"}) write_text(dir_ / "m" / name, name);
  ASSERT_EQ(run({"quantize", "m", "out"}).status, 0);
  for (const char* text : {"same", "other size"}) {
    write_text(dir_ / "out" / "a.txt", "same");
    write_text(dir_ / "out" / "b.txt", text);
    const Result r = run({"quantize", "m", "out", "--resume"});
    EXPECT_TRUE(has(r.err, "a.txt, out/b.txt: has 4 bytes, 5 were written")) << r.err;
    EXPECT_EQ(has(r.err, "(numbers of out/a.txt; others have their own)"), text[0] == 'o');
  }
}

/// Whatever the number is of: not a number, out of range, empty, followed by something.
TEST_F(Cli, NumbersThatAreNoneAreWrongUsage) {
  make_sample();
  const std::pair<Words, std::vector<std::string>> options[] = {
      {{"quantize", "m", "out"}, {"--bits", "--threads", "--rank", "--ranks", "--size"}},
      {{"inspect", "m"}, {"--row", "--blocks", "--threads"}},
      {{"compare", "m", "m"}, {"--top", "--threads", "--rank", "--ranks"}},
      {{"verify", "m"}, {"--top", "--threads", "--rank", "--ranks"}},
      {{"repair", "m", "out"}, {"--top", "--threads"}},
      {{"sample", "out"}, {"--layers", "--scale", "--seed", "--shards", "--threads"}},
      {{"bench"}, {"--threads"}},
      {{"tune", "--shape", "64x64"}, {"--rows", "--groups", "--top-k", "--workspace", "--show"}}};
  for (const auto& [command, names] : options)
    for (const std::string& name : names)
      for (const char* value : {"nan", "-1", "", "8x", "99999999999999999999"}) {
        Words words = command;
        words.insert(words.end(), {name, value});
        const Result r = run(words);
        EXPECT_EQ(r.status, 2) << command[0] << ' ' << name << " '" << value << "': " << r.err;
        EXPECT_TRUE(has(r.err, name)) << r.err;
        EXPECT_TRUE(has(r.err, value)) << r.err;
        EXPECT_FALSE(std::filesystem::exists(dir_ / "out"));
      }
}

TEST_F(Cli, NumbersAreDecimalWhateverTheyBeginWith) {
  const std::string ten = run({"sample", "a", "--scale", "0.0625", "--layers", "10"}).out;
  const std::string padded =
      run({"sample", "a", "--scale", "0.0625", "--layers", "010", "--overwrite"}).out;
  ASSERT_TRUE(has(ten, " tensors"));
  EXPECT_EQ(padded.substr(0, padded.find(", made")), ten.substr(0, ten.find(", made")));
  EXPECT_EQ(run({"verify", "a", "--top", "08"}).status, 3) << "not quantized";
}

TEST_F(Cli, SaysHowToGetABuildWithCuda) {
  if (!has(why_unavailable(Device::cuda()), "without CUDA")) GTEST_SKIP() << "this build has CUDA";
  make_sample();
  expect_one_line_error(run({"quantize", "m", "out", "--device", "cuda"}), 1,
                        {"--device cuda:0", "toolkit of 12.9", "-DNVFP4_CUDA=ON", "cpu gives"});
  EXPECT_EQ(run({"quantize", "m", "out", "--device", "auto", "-q"}).status, 0);
}

TEST_F(Cli, OutputNameDecidesTheFormat) {
  make_sample();
  EXPECT_TRUE(has(run({"quantize", "m", "a.gguf"}).out, "format   gguf"));
  EXPECT_TRUE(std::filesystem::is_regular_file(dir_ / "a.gguf"));
  EXPECT_EQ(run({"quantize", "m", "a", "-q"}).status, 0);
  EXPECT_TRUE(has(run({"convert", "a", "b.gguf"}).out, "format   gguf"));
  EXPECT_TRUE(std::filesystem::is_regular_file(dir_ / "b.gguf"));
  expect_one_line_error(run({"convert", "a", "b"}), 2, {"--to is required"});
}

TEST_F(Cli, RepeatsTheWholeCommandWhenInterrupted) {
  ASSERT_EQ(run({"sample", "my model", "--scale", "0.0625", "--shards", "3"}).status, 0);
  const Words arguments{"quantize", "my model", "it's",        "--backend",  "reference",
                        "--ignore", "*.o_proj", "--overwrite", "--threads=1"};
  const Result r = run_and_interrupt(arguments, dir_ / "it's" / "nvfp4.partial.json");
  const std::string command =
      R"(nvfp4 quantize 'my model' 'it'\''s' --backend reference --ignore '*.o_proj' --threads=1)"
      " --resume\n";
  EXPECT_TRUE(has(r.err, "interrupted; to continue: ")) << r.err;
  EXPECT_TRUE(has(r.err, command)) << r.err;
}

TEST_F(Cli, RepeatsTheCommandWithoutResume) {
  ASSERT_EQ(run({"sample", "m", "--scale", "0.0625", "--shards", "3"}).status, 0);
  const Result r =
      run_and_interrupt({"quantize", "m", "a.gguf", "--format", "gguf", "--backend", "reference"},
                        dir_ / "a.gguf.partial");
  EXPECT_TRUE(has(r.err, "nothing was written; to start again: ")) << r.err;
  EXPECT_TRUE(has(r.err, "nvfp4 quantize m a.gguf --format gguf --backend reference\n")) << r.err;
}

TEST_F(Cli, SecondInterruptEndsDespiteAFullPipe) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "a signal that comes during write() waits for its end there";
#endif
  ASSERT_EQ(run({"sample", "m", "--scale", "0.0625", "--shards", "3"}).status, 0);
  EXPECT_EQ(interrupt_twice_unread({"quantize", "m", "out", "--backend", "reference", "-q"},
                                   dir_ / "out" / "nvfp4.partial.json"),
            SIGINT);
}

TEST_F(Cli, ShowsProgressBeforeTheFirstTensorIsDone) {
  // One tensor, which takes the reference seconds.
  write_model(dir_ / "m", {{random_tensor("a.q_proj.weight", {256, 4096})}}, "{}");
  const Words arguments{"quantize", "m", "out", "--backend", "reference", "--threads", "1"};
  const Result r = run_in_terminal(arguments);
  EXPECT_EQ(r.status, 0);
  EXPECT_TRUE(has(r.out, "reading the input") || has(r.out, "  0/1 tensors  ")) << r.out;
}

TEST_F(Cli, ProgressFitsANarrowTerminal) {
  ASSERT_EQ(run({"sample", "m", "--scale", "0.0625", "--layers", "2", "-q"}).status, 0);
  for (const unsigned short columns : {50, 20}) {
    const std::string out = "out" + std::to_string(columns);
    const Words arguments{"quantize", "m", out, "--backend", "reference", "--threads", "1"};
    const std::string text = run_in_terminal(arguments, {"NO_COLOR=1"}, columns).out;
    std::string progress = text.substr(0, text.find('\n'));  // the summary follows
    EXPECT_TRUE(has(progress, " %")) << text;
    EXPECT_EQ(has(progress, " left"), columns > 20) << text;
    for (std::size_t at; (at = progress.find("\x1b[K")) != std::string::npos;)
      progress.erase(at, 3);
    EXPECT_LT(longest_line(progress), columns) << progress;
  }
}

TEST_F(Cli, TextFitsANarrowTerminal) {
  make_sample();
  for (const unsigned short columns : {40, 80}) {
    const std::string out = "out" + std::to_string(columns);
    for (const Words& words :
         {Words{"quantize", "m", out}, {"inspect", out}, {"compare", "m", out}}) {
      const std::string text = run_in_terminal(words, {"NO_COLOR=1"}, columns).out;
      // The command to copy stays one line.
      const std::string shown = text.substr(0, text.find("  upload ")).substr(text.find('\n'));
      EXPECT_LE(longest_line(shown), columns) << text;
    }
  }
}

TEST_F(Cli, QuantizeFailsIfNoTensorCanBeQuantized) {
  write_model(dir_ / "gpt", {{random_tensor("h.0.attn.c_attn.weight", {64, 192})}},
              R"({"model_type": "gpt2"})");
  write_tiny_llama(dir_ / "m");
  for (const Words& words :
       {Words{"quantize", "gpt", "out", "--dry-run"}, Words{"quantize", "gpt", "out"}}) {
    const Result r = run(words);
    EXPECT_EQ(r.status, 1);
    EXPECT_TRUE(has(r.err, "gpt: no tensor can be quantized: Conv1D stores [in, out] [NV0599]"))
        << r.err;
    EXPECT_FALSE(fs::exists(dir_ / "out"));
  }
  write_text(dir_ / "keep.yaml", "rules:\n  - match: '*'\n    action: keep\n");
  for (const Words& more : {Words{"--ignore", "*"}, Words{"--recipe", "keep.yaml"}}) {
    Words words{"quantize", "gpt", "out", "--dry-run"};
    words.insert(words.end(), more.begin(), more.end());
    EXPECT_EQ(run(words).status, 1) << more[0];
    words[1] = "m";
    EXPECT_EQ(run(words).status, 0) << "asked for";
  }
  EXPECT_EQ(run({"quantize", "m", "whole", "--bits", "16"}).status, 0) << "all fits in BF16";
}

TEST_F(Cli, APatternOfManyLayersIsOneWarning) {
  std::vector<TestTensor> tensors;
  for (int layer = 0; layer < 3; ++layer)
    for (const char* name : {"q_proj", "k_proj", "v_proj"})
      tensors.push_back(
          random_tensor(fmt::format("model.layers.{}.self_attn.{}.weight", layer, name), {64, 64}));
  write_model(dir_ / "in", {tensors}, R"({"model_type": "llama"})");
  const Result r = run({"quantize", "in", "out", "--ignore", "*.q_proj"});
  EXPECT_EQ(r.status, 0);
  EXPECT_EQ(r.err.find("warning:"), r.err.rfind("warning:")) << r.err;
  EXPECT_TRUE(has(r.err, "refuse that; 2 more modules named q_proj\n")) << r.err;
}

TEST_F(Cli, VerifyOfATruncatedFileAdvisesOnIt) {
  write_model(dir_ / "in", {{random_tensor("model.layers.0.mlp.up_proj.weight", {64, 64})}},
              R"({"model_type": "llama"})");
  ASSERT_EQ(run({"quantize", "in", "out"}).status, 0);
  const auto file = dir_ / "out" / "model.safetensors";
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  const Result r = run({"verify", "out"});
  EXPECT_EQ(r.status, 3);
  EXPECT_TRUE(has(r.out, "unreadable-file")) << r.out;
  EXPECT_FALSE(has(r.out, "quantization_config")) << r.out;
}

}  // namespace nvfp4::cli_usage_test

#endif
