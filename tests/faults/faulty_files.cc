#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <mutex>
#include <string>

/// A bad file system, for LD_PRELOAD: calls for paths below a folder are late, fail, or kill the
/// process. Read from the environment:
///   FAULTY_FOLDER  the folder, as the process will name it
///   FAULTY_SEED    of the choice; the same seed chooses the same numbers of calls
///   FAULTY_ODDS    "kill=3 EIO=5 ESTALE=5 ENOSPC=5 short=20": of 1000 calls
///   FAULTY_DELAY_US, FAULTY_BYTES_PER_S    how late, how slow
///   FAULTY_NAMES_MS  so long a name that was looked up and was absent stays absent, as on NFS
///   FAULTY_LOCKS=local    every lock is given, as by mounts with localflock or local_lock
///   FAULTY_LOG     a file that gets a line for each fault
/// A change of names that fails is made all the same in half of the cases: the server did it, and
/// its answer was lost.
namespace {

template <class F>
F* next(const char* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

long number(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::atol(text);
}

struct Settings {
  std::string folder, log;
  std::uint64_t seed = 0;
  int kill = 0, eio = 0, estale = 0, enospc = 0, shorter = 0;
  long delay_us = 0, bytes_per_s = 0, names_ms = 0;
  bool local_locks = false;

  Settings() {
    const auto text = [](const char* name) {
      const char* value = std::getenv(name);
      return std::string(value == nullptr ? "" : value);
    };
    folder = text("FAULTY_FOLDER");
    log = text("FAULTY_LOG");
    seed = static_cast<std::uint64_t>(number("FAULTY_SEED"));
    const std::string odds = text("FAULTY_ODDS");
    const auto read = [&](const char* name) {
      const auto at = odds.find(name);
      return at == std::string::npos ? 0 : std::atoi(odds.c_str() + at + std::strlen(name));
    };
    kill = read("kill=");
    eio = read("EIO=");
    estale = read("ESTALE=");
    enospc = read("ENOSPC=");
    shorter = read("short=");
    delay_us = number("FAULTY_DELAY_US");
    bytes_per_s = number("FAULTY_BYTES_PER_S");
    names_ms = number("FAULTY_NAMES_MS");
    local_locks = text("FAULTY_LOCKS") == "local";
  }
};

/// Never destroyed: files are closed after main().
const Settings& settings() {
  static const auto* all = new Settings;
  return *all;
}

constexpr int kMostFiles = 4096;
std::atomic<bool> below[kMostFiles];  // file descriptors of paths below the folder
std::atomic<std::uint64_t> calls;

bool is_below(const char* path) {
  const std::string& folder = settings().folder;
  return path != nullptr && !folder.empty() &&
         std::strncmp(path, folder.c_str(), folder.size()) == 0;
}

bool is_below(int fd) { return fd >= 0 && fd < kMostFiles && below[fd]; }

void sleep_us(double us) {
  timespec time{static_cast<time_t>(us / 1e6),
                static_cast<long>(std::uint64_t(us) % 1000000 * 1000)};
  ::nanosleep(&time, nullptr);
}

std::uint64_t random(std::uint64_t of) {
  std::uint64_t x = of * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

void say(const char* fault, const char* call, const char* path) {
  if (settings().log.empty()) return;
  static auto* real_open = next<int(const char*, int, ...)>("open");
  static auto* real_write = next<ssize_t(int, const void*, std::size_t)>("write");
  static auto* real_close = next<int(int)>("close");
  const std::string line = std::string(fault) + " " + call + " " + (path ? path : "") + "\n";
  const int fd = real_open(settings().log.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return;
  if (real_write(fd, line.data(), line.size()) < 0) std::perror("FAULTY_LOG");
  real_close(fd);
}

enum Kind { kReads = 0, kTakesSpace = 1, kNames = 2 };

struct Fate {
  int error = 0;
  bool done = false, dies = false, is_short = false;
};

/// Returns the fate of this call.
Fate fate(const char* call, const char* path, int kind) {
  const Settings& s = settings();
  const std::uint64_t draw = random(s.seed * 1000003 + calls++);
  if (s.delay_us > 0) sleep_us(static_cast<double>(draw >> 33 & 1023) / 512 * double(s.delay_us));
  Fate fate;
  int dice = static_cast<int>(draw % 1000);
  const auto falls = [&](int odds) { return (dice -= odds) < 0 && dice >= -odds; };
  if (falls(s.kill)) {
    fate.dies = true;
    say("kill", call, path);
  } else if (falls(s.eio)) {
    fate.error = EIO;
  } else if (falls(s.estale)) {
    fate.error = ESTALE;
  } else if (falls(s.enospc)) {
    fate.error = (kind & kTakesSpace) != 0 ? ENOSPC : 0;
  } else if (falls(s.shorter)) {
    fate.is_short = true;
  }
  if (fate.error != 0)
    say(fate.error == EIO ? "EIO" : fate.error == ESTALE ? "ESTALE" : "ENOSPC", call, path);
  fate.done = (kind & kNames) != 0 && (draw >> 60 & 1) != 0;
  if (fate.dies && (draw >> 61 & 1) != 0) ::kill(::getpid(), SIGKILL);
  return fate;
}

/// The call, unless it fails instead. One that kills does so before or after it.
template <class Call>
auto run(const char* name, const char* path, int kind, Call call) -> decltype(call()) {
  const Fate f = fate(name, path, kind);
  if (f.error != 0) {
    if (f.done) call();
    errno = f.error;
    return -1;
  }
  const auto result = call();
  if (f.dies) ::kill(::getpid(), SIGKILL);
  return result;
}

/// Bytes moved by one call: late by their number, at times fewer than asked for.
template <class Call>
ssize_t move(const char* name, int kind, std::size_t bytes, Call call) {
  const Fate f = fate(name, nullptr, kind);
  if (f.error != 0) {
    errno = f.error;
    return -1;
  }
  if (f.is_short && bytes > 1) {
    bytes = bytes / 2 + 1;
    say("short", name, nullptr);
  }
  const Settings& s = settings();
  if (s.bytes_per_s > 0) sleep_us(1e6 * static_cast<double>(bytes) / double(s.bytes_per_s));
  const ssize_t result = call(bytes);
  if (f.dies) ::kill(::getpid(), SIGKILL);
  return result;
}

/// When a name was last looked up and absent, in ms.
class AbsentNames {
 public:
  bool is_held(const char* path) {
    if (settings().names_ms == 0) return false;
    const std::lock_guard lock(mutex_);
    const auto at = since_.find(path);
    if (at == since_.end()) return false;
    if (now() - at->second < settings().names_ms) return true;
    since_.erase(at);
    return false;
  }
  void found_none(const char* path) {
    if (settings().names_ms == 0 || errno != ENOENT) return;
    const std::lock_guard lock(mutex_);
    since_[path] = now();
  }
  /// By this process: it knows what it has made.
  void made(const char* path) {
    const std::lock_guard lock(mutex_);
    since_.erase(path);
  }

 private:
  static long now() {
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
  }
  std::mutex mutex_;
  std::map<std::string, long> since_;
};

AbsentNames& absent() {
  static auto* names = new AbsentNames;
  return *names;
}

template <class Call>
int look_up(const char* name, const char* path, Call call) {
  if (absent().is_held(path)) {
    say("absent", name, path);
    errno = ENOENT;
    return -1;
  }
  const int result = run(name, path, kReads, call);
  if (result < 0) absent().found_none(path);
  return result;
}

int opened(int fd) {
  if (fd >= 0 && fd < kMostFiles) below[fd] = true;
  return fd;
}

template <class Call>
int open_file(const char* path, int flags, Call call) {
  if ((flags & O_CREAT) == 0) return opened(look_up("open", path, call));
  absent().made(path);
  return opened(run("open", path, kTakesSpace, call));
}

template <class Call>
int change_name(const char* name, const char* path, const char* made, Call call) {
  if (made != nullptr) absent().made(made);
  return run(name, path, kNames | (made != nullptr ? kTakesSpace : 0), call);
}

mode_t mode_of(int flags, va_list& rest) {
  return (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
}

}  // namespace

extern "C" {

#define FAULTY_OPEN(NAME)                                                   \
  int NAME(const char* path, int flags, ...) {                              \
    static auto* real = next<int(const char*, int, ...)>(#NAME);            \
    va_list rest;                                                           \
    va_start(rest, flags);                                                  \
    const mode_t mode = mode_of(flags, rest);                               \
    va_end(rest);                                                           \
    if (!is_below(path)) return real(path, flags, mode);                    \
    return open_file(path, flags, [&] { return real(path, flags, mode); }); \
  }
FAULTY_OPEN(open)
FAULTY_OPEN(open64)

int close(int fd) {
  static auto* real = next<int(int)>("close");
  if (!is_below(fd)) return real(fd);
  below[fd] = false;
  const Fate f = fate("close", nullptr, kTakesSpace);
  const int result = real(fd);  // on Linux it is closed also if that is an error
  if (f.dies) ::kill(::getpid(), SIGKILL);
  if (f.error == 0) return result;
  errno = f.error;
  return -1;
}

ssize_t read(int fd, void* to, std::size_t bytes) {
  static auto* real = next<ssize_t(int, void*, std::size_t)>("read");
  if (!is_below(fd)) return real(fd, to, bytes);
  return move("read", kReads, bytes, [&](std::size_t n) { return real(fd, to, n); });
}

ssize_t write(int fd, const void* from, std::size_t bytes) {
  static auto* real = next<ssize_t(int, const void*, std::size_t)>("write");
  if (!is_below(fd)) return real(fd, from, bytes);
  return move("write", kTakesSpace, bytes, [&](std::size_t n) { return real(fd, from, n); });
}

#define FAULTY_AT(NAME, POINTER, KIND)                                                     \
  ssize_t NAME(int fd, POINTER data, std::size_t bytes, off_t at) {                        \
    static auto* real = next<ssize_t(int, POINTER, std::size_t, off_t)>(#NAME);            \
    if (!is_below(fd)) return real(fd, data, bytes, at);                                   \
    return move(#NAME, KIND, bytes, [&](std::size_t n) { return real(fd, data, n, at); }); \
  }
FAULTY_AT(pread, void*, kReads)
FAULTY_AT(pread64, void*, kReads)
FAULTY_AT(pwrite, const void*, kTakesSpace)
FAULTY_AT(pwrite64, const void*, kTakesSpace)

#define FAULTY_SYNC(NAME)                                              \
  int NAME(int fd) {                                                   \
    static auto* real = next<int(int)>(#NAME);                         \
    if (!is_below(fd)) return real(fd);                                \
    return run(#NAME, nullptr, kTakesSpace, [&] { return real(fd); }); \
  }
FAULTY_SYNC(fsync)
FAULTY_SYNC(fdatasync)
FAULTY_SYNC(syncfs)

#define FAULTY_ALLOCATE(NAME)                                                           \
  int NAME(int fd, int mode, off_t at, off_t bytes) {                                   \
    static auto* real = next<int(int, int, off_t, off_t)>(#NAME);                       \
    if (!is_below(fd)) return real(fd, mode, at, bytes);                                \
    return run(#NAME, nullptr, kTakesSpace, [&] { return real(fd, mode, at, bytes); }); \
  }
FAULTY_ALLOCATE(fallocate)
FAULTY_ALLOCATE(fallocate64)

#define FAULTY_STAT(NAME, STATUS)                                    \
  int NAME(const char* path, STATUS* status) noexcept {              \
    static auto* real = next<int(const char*, STATUS*)>(#NAME);      \
    if (!is_below(path)) return real(path, status);                  \
    return look_up(#NAME, path, [&] { return real(path, status); }); \
  }
FAULTY_STAT(stat, struct stat)
FAULTY_STAT(lstat, struct stat)
FAULTY_STAT(stat64, struct stat64)
FAULTY_STAT(lstat64, struct stat64)

#define FAULTY_FSTAT(NAME, STATUS)                                        \
  int NAME(int fd, STATUS* status) noexcept {                             \
    static auto* real = next<int(int, STATUS*)>(#NAME);                   \
    if (!is_below(fd)) return real(fd, status);                           \
    return run(#NAME, nullptr, kReads, [&] { return real(fd, status); }); \
  }
FAULTY_FSTAT(fstat, struct stat)
FAULTY_FSTAT(fstat64, struct stat64)

int rename(const char* from, const char* to) noexcept {
  static auto* real = next<int(const char*, const char*)>("rename");
  if (!is_below(to)) return real(from, to);
  return change_name("rename", to, to, [&] { return real(from, to); });
}

int link(const char* from, const char* to) noexcept {
  static auto* real = next<int(const char*, const char*)>("link");
  if (!is_below(to)) return real(from, to);
  return change_name("link", to, to, [&] { return real(from, to); });
}

int mkdir(const char* path, mode_t mode) noexcept {
  static auto* real = next<int(const char*, mode_t)>("mkdir");
  if (!is_below(path)) return real(path, mode);
  return change_name("mkdir", path, path, [&] { return real(path, mode); });
}

int chmod(const char* path, mode_t mode) noexcept {
  static auto* real = next<int(const char*, mode_t)>("chmod");
  if (!is_below(path)) return real(path, mode);
  return change_name("chmod", path, nullptr, [&] { return real(path, mode); });
}

int unlink(const char* path) noexcept {
  static auto* real = next<int(const char*)>("unlink");
  if (!is_below(path)) return real(path);
  return change_name("unlink", path, nullptr, [&] { return real(path); });
}

int remove(const char* path) noexcept {
  static auto* real = next<int(const char*)>("remove");
  if (!is_below(path)) return real(path);
  return change_name("remove", path, nullptr, [&] { return real(path); });
}

int flock(int fd, int operation) noexcept {
  static auto* real = next<int(int, int)>("flock");
  if (!is_below(fd)) return real(fd, operation);
  if (settings().local_locks) return 0;
  return run("flock", nullptr, kReads, [&] { return real(fd, operation); });
}

DIR* opendir(const char* path) {
  static auto* real = next<DIR*(const char*)>("opendir");
  if (!is_below(path)) return real(path);
  DIR* folder = nullptr;
  const int opened = look_up("opendir", path, [&] { return (folder = real(path)) ? 0 : -1; });
  return opened == 0 ? folder : nullptr;
}

}  // extern "C"
