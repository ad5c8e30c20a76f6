#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "testing.h"

/// Runs the command that NVFP4_CLI_PATH names.
namespace nvfp4 {

using Words = std::vector<std::string>;

struct Result {
  int status = -1;  ///< exit code; 128 + signal if it was killed
  std::string out, err;
};

/// Runs `nvfp4 <arguments>` in `folder`. With a terminal, all output goes there and into `out`.
class Cli : public ::testing::Test {
 protected:
  Result run(const Words& arguments, const Words& environment = {}) {
    return spawn(arguments, environment, dir_ / "stdout", dir_ / "stderr");
  }

  Result run_in_terminal(const Words& arguments, const Words& environment = {},
                         unsigned short columns = 80) {
    const int master = ::posix_openpt(O_RDWR | O_NOCTTY);
    EXPECT_TRUE(master >= 0 && ::grantpt(master) == 0 && ::unlockpt(master) == 0);
    const std::string name = ::ptsname(master);
    const int keep = ::open(name.c_str(), O_RDWR | O_NOCTTY);  // lest it hangs up before we read
    const winsize size{24, columns, 0, 0};
    ::ioctl(keep, TIOCSWINSZ, &size);
    std::string text;
    const pid_t pid = start(arguments, environment, name, name);
    int status = 0;
    // The process may fill the terminal's buffer: read while it runs.
    ::fcntl(master, F_SETFL, O_NONBLOCK);
    for (bool ended = false;;) {
      std::array<char, 4096> buffer;
      const ssize_t n = ::read(master, buffer.data(), buffer.size());
      if (n > 0) {
        text.append(buffer.data(), static_cast<std::size_t>(n));
      } else if (ended) {
        break;
      } else {
        ended = ::waitpid(pid, &status, WNOHANG) == pid;
        if (!ended) ::usleep(2000);
      }
    }
    ::close(keep);
    ::close(master);
    return {exit_code(status), text, ""};
  }

  /// Sends SIGINT as soon as `file` is there.
  Result run_and_interrupt(const Words& arguments, const std::filesystem::path& file) {
    const pid_t pid = start(arguments, {}, dir_ / "stdout", dir_ / "stderr");
    for (int i = 0; i < 10000 && !std::filesystem::exists(file); ++i) ::usleep(1000);
    ::kill(pid, SIGINT);
    int status = 0;
    ::waitpid(pid, &status, 0);
    return {exit_code(status), read_text(dir_ / "stdout"), read_text(dir_ / "stderr")};
  }

  /// Sends SIGINT twice, with nobody who reads stderr: the first one's text finds no room. Returns
  /// the signal that ended the process.
  int interrupt_twice_unread(const Words& arguments, const std::filesystem::path& file) {
    const std::filesystem::path pipe = dir_ / "pipe";
    EXPECT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    const int keep = ::open(pipe.c_str(), O_RDWR | O_NONBLOCK);
    while (::write(keep, "x", 1) == 1) {
    }
    const pid_t pid = start(arguments, {}, dir_ / "stdout", pipe);
    for (int i = 0; i < 10000 && !std::filesystem::exists(file); ++i) ::usleep(1000);
    ::kill(pid, SIGINT);
    // It has begun to write once the signal is not its handler's any more.
    const std::string status_file = "/proc/" + std::to_string(pid) + "/status";
    for (int i = 0; i < 10000 && handles(read_text(status_file), SIGINT); ++i) ::usleep(1000);
    ::kill(pid, SIGINT);
    int status = 0;
    for (int i = 0; i < 10000 && ::waitpid(pid, &status, WNOHANG) == 0; ++i) ::usleep(1000);
    if (::kill(pid, SIGKILL) == 0) ::waitpid(pid, &status, 0);
    ::close(keep);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }

  /// The sample that most tests work on.
  void make_sample() { ASSERT_EQ(run({"sample", "m", "--scale", "0.015625"}).status, 0); }

  TempDir dir_;

 private:
  /// Reports whether the process of that /proc/PID/status catches the signal.
  static bool handles(const std::string& status, int signal) {
    const std::size_t at = status.find("SigCgt:");
    return at != std::string::npos &&
           (std::stoull(status.substr(at + 7), nullptr, 16) >> (signal - 1) & 1) != 0;
  }

  static int exit_code(int status) {
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  pid_t start(const Words& arguments, const Words& environment, const std::string& out,
              const std::string& err) {
    Words words{NVFP4_CLI_PATH};
    words.insert(words.end(), arguments.begin(), arguments.end());
    Words variables = environment;  // the first of a name counts
    variables.insert(variables.end(), {"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8", "TERM=xterm"});
    const auto pointers = [](Words& from) {
      std::vector<char*> to;
      for (std::string& s : from) to.push_back(s.data());
      to.push_back(nullptr);
      return to;
    };
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addchdir_np(&actions, dir_.path().c_str());
    ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_RDWR | O_CREAT | O_NOCTTY, 0600);
    ::posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), O_RDWR | O_CREAT | O_NOCTTY, 0600);
    pid_t pid = -1;
    EXPECT_EQ(::posix_spawn(&pid, NVFP4_CLI_PATH, &actions, nullptr, pointers(words).data(),
                            pointers(variables).data()),
              0);
    ::posix_spawn_file_actions_destroy(&actions);
    return pid;
  }

  Result spawn(const Words& arguments, const Words& environment, const std::filesystem::path& out,
               const std::filesystem::path& err) {
    std::filesystem::remove(out);
    std::filesystem::remove(err);
    int status = 0;
    ::waitpid(start(arguments, environment, out, err), &status, 0);
    return {exit_code(status), read_text(out), read_text(err)};
  }
};

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// A line that starts as every error does, and one with a hint. They name each of `parts`.
inline void expect_one_line_error(const Result& r, int status, const Words& parts) {
  EXPECT_EQ(r.status, status) << r.err;
  EXPECT_EQ(r.out, "");
  EXPECT_TRUE(r.err.starts_with("nvfp4: error: ")) << r.err;
  EXPECT_EQ(std::ranges::count(r.err, '\n'), 2) << r.err;
  EXPECT_EQ(r.err.find("\nhint: "), r.err.find('\n')) << r.err;
  for (const std::string& part : parts) EXPECT_TRUE(has(r.err, part)) << part << " in " << r.err;
}

inline std::size_t longest_line(const std::string& text) {
  std::size_t longest = 0, width = 0;
  for (const char c : text) {
    width = c == '\n' || c == '\r' ? 0 : width + ((c & 0xC0) != 0x80);
    longest = std::max(longest, width);
  }
  return longest;
}

}  // namespace nvfp4
