#include "checkpoint/source/hub_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "checkpoint/io/printable.h"
#include "core/require.h"

namespace nvfp4::checkpoint {

extern const char* const kHubScript;  // python/nvfp4/hub.py, by cmake/hub_script.cc.in

namespace {

namespace fs = std::filesystem;

/// Starts a program of PATH with stdin and stdout as given, -1: as ours. 0 if it cannot.
pid_t start(std::vector<std::string> words, int in, int out) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  if (in >= 0) posix_spawn_file_actions_adddup2(&files, in, STDIN_FILENO);
  if (out >= 0) posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGPIPE);
  sigaddset(&signals, SIGXFSZ);
  posix_spawnattr_setsigdefault(&attributes, &signals);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  pid_t child = 0;
  const int failed =
      ::posix_spawnp(&child, arguments[0], &files, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return failed != 0 ? 0 : child;
}

int status_of(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return 127;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// A file of PATH that can be run.
std::optional<fs::path> program(std::string_view name) {
  const char* path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    const fs::path file = fs::path(rest.substr(0, end)) / name;
    if (::access(file.c_str(), X_OK) == 0) return file;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return {};
}

}  // namespace

int run_hf(std::string id) {
  // It prints where the model is; our stdout is for our own output.
  const Descriptor null(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  const pid_t child = start({"hf", "download", std::move(id)}, -1, null.get());
  return child == 0 ? 127 : status_of(child);
}

std::optional<std::string> hub_python() {
  if (const char* given = std::getenv("NVFP4_HUB_PYTHON"); given != nullptr && *given != 0)
    return given;
  const std::optional<fs::path> hf = program("hf");
  if (!hf) return {};
  std::ifstream file(*hf, std::ios::binary);
  std::string line(256, '\0');
  file.read(line.data(), static_cast<std::streamsize>(line.size()));
  line.resize(static_cast<std::size_t>(file.gcount()));
  const std::size_t end = line.find('\n');
  if (end == line.npos || !line.starts_with("#!")) return {};
  std::string python = line.substr(2, end - 2);
  if (!fs::path(python).filename().string().starts_with("python")) return {};
  return python;
}

HubProcess::HubProcess(const std::string& python, const std::vector<std::string>& arguments) {
  // A socket: what is written to a process that has ended is an error then, and no signal.
  std::array<int, 2> in{}, out{};
  require<IoError>(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in.data()) == 0,
                   "{}: no pipe to it: error {}", python, errno);
  to_ = Descriptor(in[0]);
  const Descriptor its_input(in[1]);
  require<IoError>(::pipe2(out.data(), O_CLOEXEC) == 0, "{}: no pipe from it: error {}", python,
                   errno);
  from_ = Descriptor(out[0]);
  const Descriptor its_output(out[1]);
  std::vector<std::string> words{python, "-c", kHubScript};
  words.insert(words.end(), arguments.begin(), arguments.end());
  child_ = start(std::move(words), its_input.get(), its_output.get());
  require<IoError>(child_ != 0, "{}: cannot be started", printable(python, 4096));
}

HubProcess::~HubProcess() {
  to_ = Descriptor();
  from_ = Descriptor();
  if (child_ != 0) status_of(child_);
}

void HubProcess::write_line(const std::string& line) {
  const std::string text = line + "\n";
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t n = ::send(to_.get(), text.data() + at, text.size() - at, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      read_line();  // says why
      throw IoError("the download from the hub has ended");
    }
    at += static_cast<std::size_t>(n);
  }
}

std::string HubProcess::read_line() {
  std::size_t end = 0;
  while ((end = unread_.find('\n')) == unread_.npos) {
    std::array<char, 4096> buffer;
    const ssize_t n = ::read(from_.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return {};
    unread_.append(buffer.data(), static_cast<std::size_t>(n));
  }
  std::string line = unread_.substr(0, end);
  unread_.erase(0, end + 1);
  if (const auto text = after_word(line, "failed"))
    throw IoError(fmt::format("Hugging Face Hub: {}", printable(*text, 4096)));
  return line;
}

std::optional<std::string> after_word(std::string_view line, std::string_view word) {
  if (!line.starts_with(word) || line.size() <= word.size() || line[word.size()] != ' ') return {};
  return std::string(line.substr(word.size() + 1));
}

}  // namespace nvfp4::checkpoint
