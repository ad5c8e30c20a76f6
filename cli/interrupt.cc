#include "interrupt.h"

#include <unistd.h>

#include <csignal>

namespace nvfp4::cli {
namespace {

std::string& message() {
  static std::string text;
  return text;
}
const char* volatile text_begin = nullptr;
volatile std::size_t text_size = 0;

// Only async-signal-safe calls here.
extern "C" void write_and_end(int signal) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text_begin, text_size);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

void on_interrupt(const std::string& text) {
  message() = text;
  text_begin = message().data();
  text_size = message().size();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    // nohup and background jobs ignore some of these; so must we.
    if (std::signal(signal, SIG_IGN) != SIG_IGN) std::signal(signal, write_and_end);
  }
}

std::string interrupt_text(const std::string& format, const std::string& command) {
  if (format == "gguf") return "\nnvfp4: interrupted; nothing was written: " + command + '\n';
  return "\nnvfp4: interrupted; to go on: " + command + " --resume (and the same options)\n";
}

}  // namespace nvfp4::cli
