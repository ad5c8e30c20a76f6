#ifdef NVFP4_CLI_PATH

#include <nlohmann/json.hpp>

#include "backends/cuda_build.h"
#include "checkpoint/case_table.h"
#include "nvfp4/device.h"
#include "nvfp4/runtime.h"
#include "run_cli.h"

namespace nvfp4::cli_test {

const char* const kCommands[] = {"quantize", "convert",   "inspect", "compare",
                                 "verify",   "sample",    "bench",   "tune",
                                 "selftest", "calibrate", "evaluate"};

TEST_F(Cli, PrintsItsVersion) {
  const Result r = run({"--version"});
  EXPECT_EQ(r.status, 0);
  EXPECT_EQ(r.out, "nvfp4 " NVFP4_CLI_VERSION "\n");
  EXPECT_EQ(run({"-v"}).out, r.out);
}

TEST_F(Cli, SaysWhatABuildRuns) {
  for (const Words& words : {Words{"--version", "--verbose"}, {"--verbose", "--version"}}) {
    const Result r = run(words);
    EXPECT_EQ(r.status, 0);
    EXPECT_TRUE(r.out.starts_with("nvfp4 " NVFP4_CLI_VERSION "\n")) << r.out;
    const CudaBuild cuda = cuda_build();
    for (const BackendInfo& b : backends()) EXPECT_TRUE(has(r.out, b.name)) << b.name;
    EXPECT_TRUE(has(r.out, cuda.version.empty() ? "CUDA: not in this build"
                                                : "machine code for " + cuda.architectures))
        << r.out;
  }
}

TEST_F(Cli, EveryHelpHasAnExampleInEightyColumns) {
  for (const char* command : kCommands) {
    const Result r = run({"help", command});
    EXPECT_EQ(r.status, 0) << command;
    EXPECT_TRUE(has(r.out, std::string("Usage: nvfp4 ") + command)) << r.out;
    EXPECT_TRUE(has(r.out, "Example") && has(r.out, std::string("\n  nvfp4 ") + command)) << r.out;
    EXPECT_LE(longest_line(r.out), 80u) << r.out;
    EXPECT_EQ(run({command, "--help"}).out, r.out);
  }
  const Result all = run({"help"});
  EXPECT_EQ(all.status, 0);
  EXPECT_LE(longest_line(all.out), 80u) << all.out;
  for (const char* word :
       {"quantize", "convert", "inspect", "compare", "verify", "repair", "sample", "bench", "tune",
        "selftest", "NVFP4_BACKEND", "NVFP4_THREADS", "NVFP4_TUNE_CACHE", "NO_COLOR"})
    EXPECT_TRUE(has(all.out, word)) << word;
  EXPECT_EQ(run({"--help"}).out, all.out);
  EXPECT_EQ(run({}).out, all.out);
  for (const unsigned short columns : {40, 80}) {
    const Result r = run_in_terminal({"sample", "-h"}, {"NO_COLOR=1"}, columns);
    EXPECT_LE(longest_line(r.out.substr(0, r.out.find("Examples"))), columns) << r.out;
  }
  for (const char* option : {"--scheme", "--format", "--method", "--ignore", "--include", "--fuse",
                             "--input-amax", "--threads", "--device", "--backend", "--resume",
                             "--overwrite", "--report", "--dry-run", "--quiet"})
    EXPECT_TRUE(has(run({"help", "quantize"}).out, option)) << option;
}

TEST_F(Cli, ErrorsOfTheTable) {
  make_sample();
  fs::create_directories(dir_ / "f/in");
  for (const table::Row& row : table::rows_of("../../data/cli_errors.txt")) {
    SCOPED_TRACE(row.name);
    Words words = table::split(row.name, ' ');
    std::ranges::replace(words, "''", "");
    expect_one_line_error(run(words), std::stoi(row.column(0)),
                          table::Expected(row.column(1)).texts);
    EXPECT_FALSE(fs::exists(dir_ / "out") || fs::exists(dir_ / "new"));
  }
}

TEST_F(Cli, TunesGpusOnly) {
  if (!cuda_devices().empty()) GTEST_SKIP() << "there is a GPU";
  expect_one_line_error(run({"tune", "--shape", "64x64"}), 1, {"--device cuda:0"});
  EXPECT_FALSE(has(run({"tune", "--shape", "64x64"}).err, "same bytes")) << "times are no bytes";
}

TEST_F(Cli, CallsAFailedInputOne) {
  write_text(dir_ / "bad.safetensors", "no header here");
  expect_one_line_error(run({"inspect", "bad.safetensors"}), 1, {"bad.safetensors"});
  expect_one_line_error(run({"inspect", "bad.safetensors"}, {"NVFP4_THREADS=many"}), 1, {});
  make_sample();
  write_text(dir_ / "file", "");
  for (const char* output : {"file/out", "file/a/b"})
    for (const char* dry : {"-q", "--dry-run"})
      expect_one_line_error(run({"quantize", "m", output, dry}), 1, {"/file: is a file"});
  expect_one_line_error(run({"quantize", "m", "out", "--quiet"}, {"NVFP4_BACKEND=nope"}), 1,
                        {"nope"});
}

TEST_F(Cli, QuantizesComparesAndInspectsASample) {
  make_sample();
  const Result q = run({"quantize", "m", "out", "--report", "r.json"});
  ASSERT_EQ(q.status, 0) << q.err;
  for (const char* word :
       {"quantized", "linear", "kept", "norm", "embedding", "lm_head", "total", "smaller",
        "relative error", "SQNR", "bits each", "time", "memory", "thread", "out"})
    EXPECT_TRUE(has(q.out, word)) << word << " in\n" << q.out;
  EXPECT_FALSE(has(q.out, "\x1b"));
  EXPECT_FALSE(has(q.err, "\x1b"));
  EXPECT_LE(longest_line(q.out), 80u) << q.out;

  const auto report = nlohmann::json::parse(read_text(dir_ / "r.json"));
  EXPECT_EQ(report.at("tensors").size(), 21u);
  const Result c = run({"compare", "m", "out", "--json"});
  ASSERT_EQ(c.status, 0) << c.err;
  const auto difference = nlohmann::json::parse(c.out);
  EXPECT_EQ(difference.at("different"), 14);
  EXPECT_EQ(difference.at("identical"), 7);
  EXPECT_EQ(difference.at("only_in_b").size(), 0u);
  double error = 0;
  for (const auto& t : report.at("tensors")) error += t.value("squared_error", 0.0);
  double compared = 0;
  for (const auto& t : difference.at("tensors")) compared += t.at("squared_error").get<double>();
  EXPECT_NEAR(error / compared, 1, 1e-6) << "the summary's error is that of the files";

  const Result i = run({"inspect", "out", "--json"});
  ASSERT_EQ(i.status, 0) << i.err;
  const auto inspected = nlohmann::json::parse(i.out);
  EXPECT_EQ(inspected.at("format"), "modelopt");
  EXPECT_EQ(inspected.at("scheme"), "w4a4");
  EXPECT_EQ(inspected.at("tensors").size(), 21u);
  for (const Words& words :
       {Words{"inspect", "out"}, Words{"compare", "m", "out"},
        Words{"inspect", "out", "--tensor", "model.layers.0.mlp.up_proj.weight"}}) {
    const Result r = run(words);
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_LE(longest_line(r.out), 80u) << r.out;
    EXPECT_TRUE(has(r.out, "NVFP4")) << r.out;
    EXPECT_FALSE(has(r.out, "\x1b"));
  }
}

TEST_F(Cli, PassesEveryOptionOn) {
  make_sample();
  const Result r = run({"quantize", "m", "out", "--scheme", "w4a16", "--format",
                        "compressed-tensors", "--method", "max", "--ignore", "*q_proj", "--include",
                        "lm_head", "--threads", "1", "--backend", "reference", "--device", "cpu"});
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.out, "reference (1 thread)")) << r.out;
  const auto inspected = nlohmann::json::parse(run({"inspect", "out", "--json"}).out);
  EXPECT_EQ(inspected.at("format"), "compressed-tensors");
  EXPECT_EQ(inspected.at("scheme"), "w4a16");
  for (const auto& t : inspected.at("tensors")) {
    const std::string name = t.at("name");
    const bool quantized = name == "lm_head.weight" || (has(name, "_proj") && !has(name, "q_proj"));
    EXPECT_EQ(t.at("scheme"), quantized ? "nvfp4" : "") << name;
  }
}

TEST_F(Cli, SaysWhichDeviceEncoded) {
  make_sample();
  const Result cpu = run({"quantize", "m", "a", "--report", "a.json"});
  EXPECT_TRUE(has(cpu.out, "device   cpu\n")) << cpu.out;
  EXPECT_EQ(nlohmann::json::parse(read_text(dir_ / "a.json")).at("device"), "cpu");
  const Result any = run({"quantize", "m", "b", "--device", "auto", "--report", "b.json"});
  ASSERT_EQ(any.status, 0) << any.err;
  const Device device = device_from_name("auto");
  EXPECT_TRUE(has(any.out, "device   " + device_name(device))) << any.out;
  EXPECT_LE(longest_line(any.out), 80u) << any.out;
  EXPECT_EQ(nlohmann::json::parse(read_text(dir_ / "b.json")).at("device"), device_name(device));
  EXPECT_EQ(run({"compare", "a", "b"}).status, 0);
}

TEST_F(Cli, DryRunTellsTheSame) {
  make_sample();
  const Result r = run({"quantize", "m", "out", "--dry-run"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_FALSE(std::filesystem::exists(dir_ / "out"));
  EXPECT_TRUE(has(r.out, "dry run") && has(r.out, "smaller") && has(r.out, "linear")) << r.out;
  EXPECT_FALSE(has(r.out, "relative error") || has(r.out, "time")) << r.out;
}

TEST_F(Cli, IsSilentWhenQuiet) {
  EXPECT_EQ(run({"sample", "m", "--scale", "0.015625", "--quiet"}).out, "");
  const Result r = run({"quantize", "m", "out", "-q"});
  EXPECT_EQ(r.status, 0);
  EXPECT_EQ(r.out + r.err, "");
}

TEST_F(Cli, FilledFolderNeedsOverwrite) {
  make_sample();
  ASSERT_EQ(run({"quantize", "m", "out", "-q"}).status, 0);
  expect_one_line_error(run({"quantize", "m", "out"}), 1, {"out"});
  EXPECT_EQ(run({"quantize", "m", "out", "--overwrite"}).status, 0);
  EXPECT_EQ(run({"quantize", "m", "out", "--resume"}).status, 0) << "it is complete";
}

TEST_F(Cli, SaysHowToGoOnWhenInterrupted) {
  ASSERT_EQ(run({"sample", "m", "--scale", "0.0625", "--shards", "3"}).status, 0);
  // The reference takes seconds for this, so that there is something to interrupt.
  const Words arguments{"quantize", "m", "out", "--backend", "reference"};
  const Result r = run_and_interrupt(arguments, dir_ / "out" / "nvfp4.partial.json");
  EXPECT_EQ(r.status, 128 + SIGINT);
  EXPECT_TRUE(has(r.err, "nvfp4 quantize m out --backend reference --resume\n")) << r.err;
  EXPECT_TRUE(has(run({"inspect", "out"}).out, "incomplete"));
  EXPECT_TRUE(has(run({"compare", "m", "out"}).out, "b is incomplete"));
  EXPECT_EQ(run({"compare", "m", "out"}).status, 3);
  EXPECT_TRUE(has(run({"compare", "out", "m", "--json"}).out, "\"complete_a\": false"));
  expect_one_line_error(run({"quantize", "m", "out"}), 1, {"out"});
  const Result resumed = run({"quantize", "m", "out", "--resume"});
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  const Result again = run({"quantize", "m", "out", "--resume"});
  EXPECT_EQ(again.out + again.err, "out: complete already, nothing was done\n");
  EXPECT_FALSE(has(run({"inspect", "out"}).out, "incomplete"));
  EXPECT_FALSE(has(run({"compare", "m", "out"}).out, "incomplete"));
}

TEST_F(Cli, ColoursOnlyATerminalThatWantsThem) {
  make_sample();
  const Result r = run_in_terminal({"inspect", "m"});
  EXPECT_EQ(r.status, 0);
  EXPECT_TRUE(has(r.out, "\x1b[1m")) << r.out;
  EXPECT_FALSE(has(run_in_terminal({"inspect", "m"}, {"NO_COLOR=1"}).out, "\x1b["));
  EXPECT_TRUE(has(run_in_terminal({"inspect", "m"}, {"NO_COLOR="}).out, "\x1b[1m"));
  EXPECT_FALSE(has(run_in_terminal({"inspect", "m"}, {"TERM=dumb"}).out, "\x1b"));
}

TEST_F(Cli, UsesPlainCharactersOutsideUtf8) {
  make_sample();
  ASSERT_EQ(run({"quantize", "m", "out", "-q"}).status, 0);
  for (const Words& words : {Words{"inspect", "out"}, Words{"compare", "m", "out"}}) {
    const Result r = run(words, {"LC_ALL=C"});
    EXPECT_TRUE(std::ranges::all_of(r.out, [](char c) { return c >= 0; })) << r.out;
  }
}

TEST_F(Cli, ShowsProgressOnATerminal) {
  // One thread, so that many cores do not finish before there is progress to show.
  const Result r = run_in_terminal({"sample", "m", "--scale", "0.25", "--threads", "1"});
  EXPECT_EQ(r.status, 0);
  EXPECT_TRUE(has(r.out, " tensors  ") && has(r.out, "GB/s") && has(r.out, "\r")) << r.out;
  EXPECT_FALSE(has(run_in_terminal({"sample", "n", "--scale", "0.25", "-q"}).out, "GB/s"));
}

using CliSlow = Cli;

TEST_F(CliSlow, Progress_OnATerminal_ShowsTheRemainingTime) {
  ASSERT_EQ(run({"sample", "m", "--scale", "0.0625", "--layers", "4", "-q"}).status, 0);
  // The reference takes seconds for this.
  Words arguments{"quantize", "m", "a", "--backend", "reference", "--threads", "1"};
  const std::string terminal = run_in_terminal(arguments).out;
  EXPECT_TRUE(has(terminal, "\r") && has(terminal, " tensors  ")) << terminal;
  EXPECT_TRUE(has(terminal, " GB/s  ") && has(terminal, " left")) << terminal;
  // The line names the tensor; the summary is on other lines.
  EXPECT_TRUE(has(terminal.substr(0, terminal.find('\n')), "_proj")) << terminal;
  arguments[2] = "b";
  const Result file = run(arguments);
  EXPECT_FALSE(has(file.err, " left")) << file.err;  // progress_bar_test.cc sees the lines
  EXPECT_TRUE(!has(file.err, "\r") && !has(file.err, "\x1b")) << file.err;
}

TEST_F(Cli, HidesControlCharactersOfNames) {
  make_sample();
  write_text(dir_ / "m" / "config.json", R"({"model_type": "a\u001b[31mb\u009b\n"})");
  const Result r = run({"inspect", "m"});
  EXPECT_EQ(r.status, 0);
  EXPECT_TRUE(has(r.out, "a\\x1b[31mb\\xc2\\x9b\\x0a")) << r.out;
}

TEST_F(Cli, FailsWhenStandardOutputIsFull) {
  make_sample();
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full here";
  std::filesystem::create_symlink("/dev/full", dir_ / "full");
  const std::string command = "cd '" + dir_.path().string() + "' && '" NVFP4_CLI_PATH "' ";
  for (const std::string arguments : {"inspect m", "inspect m --json", "verify m --json"}) {
    EXPECT_EQ(WEXITSTATUS(::system((command + arguments + " > full 2> err").c_str())), 1)
        << arguments;
    EXPECT_TRUE(has(read_text(dir_ / "err"), "nvfp4: error: ")) << read_text(dir_ / "err");
  }
  // A reader that has seen enough is no error.
  EXPECT_EQ(WEXITSTATUS(::system((command + "inspect m 2> err | true").c_str())), 0);
  EXPECT_EQ(read_text(dir_ / "err"), "");
}

/// It is 134 if an exception leaves main.
TEST_F(Cli, FullOrClosedStandardErrorIsIgnored) {
  make_sample();
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full here";
  const std::string command = "cd '" + dir_.path().string() + "' && '" NVFP4_CLI_PATH "' ";
  const auto status = [&](const std::string& arguments) {
    return WEXITSTATUS(::system((command + arguments).c_str()));
  };
  // It warns of the pattern.
  EXPECT_EQ(status("quantize m a --fuse no,none 2> /dev/full > out"), 0);
  EXPECT_EQ(status("quantize m b --fuse no,none <&- >&- 2>&-"), 0);
  EXPECT_EQ(read_text(dir_ / "a" / "model.safetensors"),
            read_text(dir_ / "b" / "model.safetensors"));
  EXPECT_EQ(status("quantize nowhere c 2> /dev/full"), 1);
  EXPECT_EQ(status("bogus 2>&-"), 2);
  EXPECT_EQ(status("quantize nowhere c 2>&1 | true"), 0);
}

TEST_F(Cli, LeavesLinksAloneThatLeadNowhere) {
  make_sample();
  for (const char* name : {"d", "d.gguf"}) {
    fs::create_symlink("not/there", dir_ / name);
    Words words = {"quantize", "m", name};
    if (std::string_view(name) != "d") words.insert(words.end(), {"--format", "gguf"});
    expect_one_line_error(run(words), 1, {name, "not/there"});
    words.push_back("--dry-run");
    expect_one_line_error(run(words), 1, {name, "not/there"});
    EXPECT_TRUE(fs::is_symlink(dir_ / name));
  }
  EXPECT_FALSE(fs::exists(dir_ / "not"));
}

TEST_F(Cli, ReportReplacesNoInputFile) {
  make_sample();
  fs::create_symlink("m/config.json", dir_ / "link");
  fs::create_directory(dir_ / "folder");
  const std::string config = read_text(dir_ / "m" / "config.json");
  for (const char* report : {"m/config.json", "m/new.json", "link", "folder", "m"}) {
    const Result r = run({"quantize", "m", "out", "--report", report});
    expect_one_line_error(r, 2, {"--report"});
    EXPECT_FALSE(has(r.err, dir_.path().string())) << r.err;
    EXPECT_FALSE(fs::exists(dir_ / "out")) << report;
  }
  expect_one_line_error(run({"quantize", "m", "out", "--report", "absent/r.json"}), 1,
                        {"--report: there is no folder 'absent'"});
  EXPECT_EQ(read_text(dir_ / "m" / "config.json"), config);
  EXPECT_FALSE(fs::exists(dir_ / "m" / "new.json"));
}

TEST_F(Cli, WritesTheReportThroughLinksPipesAndDescriptors) {
  make_sample();
  write_text(dir_ / "target.json", "old");
  fs::create_symlink("target.json", dir_ / "link");
  ASSERT_EQ(run({"quantize", "m", "a", "-q", "--report", "link"}).status, 0);
  EXPECT_TRUE(fs::is_symlink(dir_ / "link"));
  EXPECT_TRUE(nlohmann::json::accept(read_text(dir_ / "target.json")));

  const Result r = run({"quantize", "m", "b", "-q", "--report", "/dev/stdout"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(nlohmann::json::accept(r.out)) << r.out;

  ASSERT_EQ(::mkfifo((dir_ / "pipe").c_str(), 0600), 0);
  const std::string command = "cd '" + dir_.path().string() +
                              "' && (timeout 60 cat pipe > piped & '" +
                              NVFP4_CLI_PATH "' quantize m c -q --report pipe; wait)";
  ASSERT_EQ(::system(command.c_str()), 0);
  EXPECT_TRUE(fs::is_fifo(dir_ / "pipe"));
  EXPECT_TRUE(nlohmann::json::accept(read_text(dir_ / "piped")));
}

TEST_F(Cli, PipeWithoutReaderIsRefusedBeforeTheRun) {
  make_sample();
  ASSERT_EQ(::mkfifo((dir_ / "pipe").c_str(), 0600), 0);
  for (const Words& words : {Words{"quantize", "m", "out", "--report", "pipe"},
                             Words{"compare", "m", "m", "--html", "pipe"}})
    expect_one_line_error(run(words), 1,
                          {words[words.size() - 2], "nothing reads the pipe", "pipe"});
  EXPECT_FALSE(std::filesystem::exists(dir_ / "out"));
}

TEST_F(Cli, FileSizeLimitIsAnError) {
  make_sample();
  const std::string command = "cd '" + dir_.path().string() + "' && ulimit -f 8 && '" +
                              NVFP4_CLI_PATH "' quantize m out -q 2> err";
  const int status = ::system(command.c_str());
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_TRUE(has(read_text(dir_ / "err"), "nvfp4: error: ")) << read_text(dir_ / "err");
}

}  // namespace nvfp4::cli_test

#endif  // NVFP4_CLI_PATH
