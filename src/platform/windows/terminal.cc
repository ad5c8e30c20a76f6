#include "platform/terminal.h"

#include <fcntl.h>
#include <io.h>

#include <cstdlib>

#include "platform/windows/system.h"
#include "platform/windows/text.h"

namespace nvfp4::platform {
namespace {

const char* volatile text_begin = nullptr;
volatile std::size_t text_size = 0;
UINT code_page_before = 0;
constexpr UINT kEndedByCtrlC = 0xC000013A;  // STATUS_CONTROL_C_EXIT

HANDLE handle_of(std::FILE* stream) {
  const int fd = ::_fileno(stream);
  return fd < 0 ? INVALID_HANDLE_VALUE : reinterpret_cast<HANDLE>(::_get_osfhandle(fd));
}

/// Restores the code page, which would otherwise stay in the window after this process.
void restore_code_page() {
  if (code_page_before != 0) ::SetConsoleOutputCP(code_page_before);
}

// This runs in a thread of its own. It does not use stdio: another thread may hold a stream's lock.
BOOL WINAPI write_and_end(DWORD) {
  DWORD written = 0;
  ::WriteFile(::GetStdHandle(STD_ERROR_HANDLE), text_begin, static_cast<DWORD>(text_size), &written,
              nullptr);
  restore_code_page();
  ::ExitProcess(kEndedByCtrlC);  // the default action of Windows; Wine would report success
}

void make_leading(int fd, std::FILE* stream, const char* mode) {
  if (::_get_osfhandle(fd) == -1 || ::_fileno(stream) < 0) {
    if (std::freopen("NUL", mode, stream) == nullptr) return;
  }
  ::_setmode(::_fileno(stream), _O_BINARY);
}

}  // namespace

bool is_terminal(std::FILE* stream) {
  DWORD mode = 0;
  return ::GetConsoleMode(handle_of(stream), &mode) != 0;
}

int columns(std::FILE* stream) {
  CONSOLE_SCREEN_BUFFER_INFO info{};
  if (::GetConsoleScreenBufferInfo(handle_of(stream), &info) == 0) return 0;
  return info.srWindow.Right - info.srWindow.Left + 1;
}

void prepare_streams() {
  // A line ends in one byte for every reader.
  _fmode = _O_BINARY;
  make_leading(0, stdin, "rb");
  make_leading(1, stdout, "wb");
  make_leading(2, stderr, "wb");
  // There are no windows that wait for a click.
  ::SetErrorMode(SEM_FAILCRITICALERRORS | SEM_NOGPFAULTERRORBOX | SEM_NOOPENFILEERRORBOX);
  for (std::FILE* stream : {stdout, stderr}) {
    DWORD mode = 0;
    if (::GetConsoleMode(handle_of(stream), &mode) == 0) continue;
    ::SetConsoleMode(handle_of(stream), mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
    if (code_page_before != 0) continue;
    code_page_before = ::GetConsoleOutputCP();
    ::SetConsoleOutputCP(CP_UTF8);
    std::atexit(restore_code_page);
  }
}

std::vector<std::string> command_line(int argc, char** argv) {
  // The arguments of main() are in the system's code page, so they are not used.
  int count = 0;
  wchar_t** const words = ::CommandLineToArgvW(::GetCommandLineW(), &count);
  if (words == nullptr) return {argv, argv + argc};
  std::vector<std::string> out;
  for (int i = 0; i < count; ++i) out.push_back(narrow(words[i]));
  ::LocalFree(words);
  return out;
}

bool terminal_is_utf8() { return ::GetConsoleOutputCP() == CP_UTF8; }

const bool kPosixShell = false;

void write_before_the_end(const char* text, std::size_t bytes) {
  const bool first = text_begin == nullptr;
  text_begin = text;
  text_size = bytes;
  if (first) ::SetConsoleCtrlHandler(write_and_end, TRUE);
}

}  // namespace nvfp4::platform
