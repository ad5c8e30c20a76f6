#include "platform/process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#ifdef __linux__
#include <sched.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#endif

extern char** environ;

namespace nvfp4::platform {
namespace {

/// Starts a program of PATH with stdin and stdout as given, -1: as ours. An error, or 0.
int spawn(std::vector<std::string>& words, int in, int out, pid_t& child) {
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
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
  const int failed =
      ::posix_spawnp(&child, arguments[0], &files, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return failed;
}

/// Two ends that no child inherits.
bool make_pair(bool both_ways, std::array<int, 2>& ends) {
#ifdef __linux__
  return (both_ways ? ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data())
                    : ::pipe2(ends.data(), O_CLOEXEC)) == 0;
#else
  const int failed =
      both_ways ? ::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) : ::pipe(ends.data());
  if (failed != 0) return false;
  for (const int fd : ends) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
#ifdef SO_NOSIGPIPE
  const int on = 1;  // send() has no flag for that there
  if (both_ways)
    for (const int fd : ends) ::setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
#endif
  return true;
#endif
}

}  // namespace

const char* const kHomeVariable = "HOME";

int process_number() { return ::getpid(); }

std::string host_name() {
  char host[256] = {};
  ::gethostname(host, sizeof(host) - 1);
  return host;
}

unsigned random_number() {
  // Not std::random_device: libstdc++'s wants arc4random(), which glibc has from 2.36 on.
  unsigned random = 0;
  if (::getentropy(&random, sizeof random) == 0) return random;
  return static_cast<unsigned>(std::chrono::steady_clock::now().time_since_epoch().count());
}

int usable_cpus() {
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
  return static_cast<int>(std::thread::hardware_concurrency());
}

bool has_dot_products() {
#if defined(__aarch64__) && defined(__linux__)
  constexpr unsigned long kHasDotProd = 1ul << 20;  // HWCAP_ASIMDDP
  return (getauxval(AT_HWCAP) & kHasDotProd) != 0;
#elif defined(__aarch64__) && defined(__APPLE__)
  return true;  // every one of them has
#else
  return false;
#endif
}

bool allow_amx_tiles() {
#if defined(__x86_64__) && defined(__linux__)
  constexpr int kTileData = 18, kRequestPermission = 0x1023;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

std::optional<std::filesystem::path> program(std::string_view name) {
  const char* path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    const std::filesystem::path file = std::filesystem::path(rest.substr(0, end)) / name;
    if (::access(file.c_str(), X_OK) == 0) return file;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return {};
}

int Child::start(std::vector<std::string> words, Streams streams) {
  pid_t child = 0;
  int failed = 0;
  if (streams == Streams::our_stdin) {
    const Descriptor nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
    failed = spawn(words, -1, nowhere.get(), child);
  } else {
    // A socket: what is written to a process that has ended is an error then, and no signal.
    std::array<int, 2> in{}, out{};
    if (!make_pair(true, in)) return errno;
    to_ = Descriptor(in[0]);
    const Descriptor its_input(in[1]);
    if (!make_pair(false, out)) return errno;
    from_ = Descriptor(out[0]);
    const Descriptor its_output(out[1]);
    failed = spawn(words, its_input.get(), its_output.get(), child);
  }
  child_ = child;
  return failed;
}

bool Child::write(std::string_view text) {
#ifdef MSG_NOSIGNAL
  constexpr int kFlags = MSG_NOSIGNAL;
#else
  constexpr int kFlags = 0;
#endif
  while (!text.empty()) {
    const ssize_t n = ::send(to_.get(), text.data(), text.size(), kFlags);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

std::ptrdiff_t Child::read(void* out, std::size_t bytes) {
  return platform::read(from_.get(), out, bytes);
}

int Child::wait() {
  to_ = Descriptor();
  from_ = Descriptor();
  if (child_ == 0) return 127;
  int status = 0;
  const auto child = static_cast<pid_t>(std::exchange(child_, 0));
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return 127;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace nvfp4::platform
