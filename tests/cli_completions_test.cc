#ifdef NVFP4_CLI_PATH

#include <fmt/format.h>

#include <cstdlib>
#include <regex>

#include "checkpoint/models.h"
#include "run_cli.h"

/// Completions and manual pages say what --help says.
namespace nvfp4::cli_completions_test {

/// The names of a command's options in its help.
Words options_in(const std::string& help) {
  Words names;
  const std::regex name(R"((^|\n)  (-\w, )?(--[\w,-]+))");
  for (std::sregex_iterator it(help.begin(), help.end(), name), end; it != end; ++it)
    names.push_back((*it)[3].str().substr(0, (*it)[3].str().find(',')));
  return names;
}

/// Returns the commands in the text of `nvfp4 --help`.
Words commands_in(const std::string& help) {
  Words names;
  const std::size_t begin = help.find("Commands:"), end = help.find("Options:");
  const std::string part = help.substr(begin, end - begin);
  const std::regex name(R"(\n  ([a-z]+) )");
  for (std::sregex_iterator it(part.begin(), part.end(), name), last; it != last; ++it)
    names.push_back((*it)[1]);
  return names;
}

bool installed(const std::string& program) {
  return std::system(fmt::format("command -v {} >/dev/null 2>&1", program).c_str()) == 0;
}

class Completions : public Cli {
 protected:
  /// Returns the completions of bash for a command line whose last word is incomplete.
  std::string offered(const std::string& words, int last) {
    write_text(dir_ / "nvfp4.bash", run({"completions", "bash"}).out);
    write_text(dir_ / "try.sh",
               fmt::format("source {}/nvfp4.bash\nCOMP_WORDS=({})\nCOMP_CWORD={}\n_nvfp4\n"
                           "echo \"${{COMPREPLY[*]}}\"\n",
                           dir_.path().string(), words, last));
    const std::string out = dir_ / "offered";
    EXPECT_EQ(std::system(
                  fmt::format("bash {0}/try.sh > {0}/offered 2>&1", dir_.path().string()).c_str()),
              0);
    return read_text(out);
  }
};

TEST_F(Completions, OfEveryShellHaveEveryCommandAndOption) {
  const Words commands = commands_in(run({"--help"}).out);
  ASSERT_GT(commands.size(), 8u);
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    const std::string text = run({"completions", shell}).out;
    for (const std::string& command : commands) {
      EXPECT_TRUE(has(text, command)) << shell;
      for (const std::string& option : options_in(run({command, "--help"}).out)) {
        const std::string name = shell == "fish" ? "-l " + option.substr(2) : option;
        EXPECT_TRUE(has(text, name)) << shell << ' ' << command << ' ' << option;
      }
    }
    if (installed(shell)) {
      write_text(dir_ / "script", text);
      EXPECT_EQ(std::system(fmt::format("{} -n {}", shell, (dir_ / "script").string()).c_str()), 0)
          << shell;
    }
  }
  expect_one_line_error(run({"completions", "tcsh"}), 2, {"SHELL", "tcsh"});
}

TEST_F(Completions, BashOffersWhatFits) {
  if (!installed("bash")) GTEST_SKIP() << "no bash";
  EXPECT_EQ(offered("nvfp4 ver", 1), "verify\n");
  EXPECT_EQ(offered("nvfp4 verify out --so", 3), "--source\n");
  EXPECT_EQ(offered("nvfp4 quantize --scheme ''", 3), "w4a4 w4a16\n");
  EXPECT_EQ(offered("nvfp4 quantize m out --format com", 5), "compressed-tensors comfyui\n");
  EXPECT_EQ(offered("nvfp4 help q", 2), "quantize\n");
  EXPECT_EQ(offered("nvfp4 completions z", 2), "zsh\n");
  EXPECT_EQ(offered("nvfp4 quantize m", 2), "\n") << "files, then";
  EXPECT_EQ(offered("nvfp4 quantize m out --report r", 5), "\n");
}

TEST_F(Completions, ManualPagesHaveEveryOptionAndTheExamples) {
  Words pages = commands_in(run({"--help"}).out);
  std::erase(pages, "help");  // its --help is that of nvfp4
  pages.push_back("");
  for (const std::string& command : pages) {
    Words arguments{"man"}, help{"--help"};
    if (!command.empty()) arguments.push_back(command), help.insert(help.begin(), command);
    const Result r = run(arguments);
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_TRUE(r.out.starts_with(".TH NVFP4")) << r.out;
    for (const char* section : {"NAME", "SYNOPSIS", "OPTIONS"})
      EXPECT_TRUE(has(r.out, fmt::format(".SH {}\n", section))) << command << section;
    const std::string text = std::regex_replace(r.out, std::regex(R"(\\-)"), "-");
    for (const std::string& option : options_in(run(help).out))
      EXPECT_TRUE(has(text, option)) << command << ' ' << option;
    EXPECT_TRUE(has(text, "EXAMPLE")) << command;
    if (!installed("groff")) continue;
    write_text(dir_ / "page", r.out);
    EXPECT_EQ(std::system(fmt::format("groff -man -ww -z -Tutf8 {0}/page 2> {0}/said && "
                                      "test ! -s {0}/said",
                                      dir_.path().string())
                              .c_str()),
              0)
        << command << read_text(dir_ / "said");
  }
  expect_one_line_error(run({"man", "verfy"}), 2, {"did you mean 'verify'?"});
}

}  // namespace nvfp4::cli_completions_test

#endif
