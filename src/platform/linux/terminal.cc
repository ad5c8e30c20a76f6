#include "platform/terminal.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <csignal>

namespace nvfp4::platform {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

const char* volatile text_begin = nullptr;
volatile std::size_t text_size = 0;

// Only async-signal-safe calls are allowed here. A write to a stopped terminal or a full pipe does
// not return. Therefore the signals have their default actions before it.
extern "C" void write_and_end(int signal) {
  for (const int s : kSignals) std::signal(s, SIG_DFL);
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text_begin, text_size);
  std::raise(signal);
}

}  // namespace

bool is_terminal(std::FILE* stream) { return isatty(fileno(stream)) == 1; }

int columns(std::FILE* stream) {
  winsize size{};
  return ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

void prepare_streams() {
  // A closed pipe must not kill a quantization. A write to it fails with EPIPE.
  std::signal(SIGPIPE, SIG_IGN);
  // A file size limit is an error like a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    // open() takes the lowest free number, which is this one.
    if (::fcntl(fd, F_GETFD) == -1 && ::open("/dev/null", O_RDWR) != fd) return;
}

std::vector<std::string> command_line(int argc, char** argv) { return {argv, argv + argc}; }

bool terminal_is_utf8() { return false; }

const bool kPosixShell = true;

void write_before_the_end(const char* text, std::size_t bytes) {
  text_begin = text;
  text_size = bytes;
  struct sigaction action {};
  action.sa_handler = write_and_end;
  action.sa_flags = SA_NODEFER;  // a second signal must not wait for the first one's text
  for (const int signal : kSignals) {
    struct sigaction old {};
    // nohup and background jobs ignore some of these signals. They must stay ignored.
    if (::sigaction(signal, nullptr, &old) == 0 && old.sa_handler != SIG_IGN)
      ::sigaction(signal, &action, nullptr);
  }
}

}  // namespace nvfp4::platform
