#include <fcntl.h>
#include <io.h>

#include <algorithm>
#include <cerrno>

#include "platform/process.h"
#include "platform/windows/system.h"
#include "platform/windows/text.h"

namespace nvfp4::platform {
namespace {

/// A word of a command line as CommandLineToArgvW and the C library read it again: backslashes
/// before a quote are doubled.
std::wstring command_word(std::wstring_view word) {
  if (!word.empty() && word.find_first_of(L" \t\n\v\"") == word.npos) return std::wstring(word);
  std::wstring out = L"\"";
  std::size_t backslashes = 0;
  for (const wchar_t c : word) {
    if (c == L'"') out.append(backslashes + 1, L'\\');
    backslashes = c == L'\\' ? backslashes + 1 : 0;
    out += c;
  }
  out.append(backslashes, L'\\');
  return out + L'"';
}

/// Two ends of a pipe, of which the child inherits one.
struct Pipe {
  HANDLE ours = nullptr, its = nullptr;

  bool make(bool child_reads) {
    SECURITY_ATTRIBUTES inherited{sizeof inherited, nullptr, TRUE};
    HANDLE out = nullptr, in = nullptr;
    if (::CreatePipe(&out, &in, &inherited, 0) == 0) return false;
    ours = child_reads ? in : out;
    its = child_reads ? out : in;
    return ::SetHandleInformation(ours, HANDLE_FLAG_INHERIT, 0) != 0;
  }
};

void close_handle(HANDLE handle) {
  if (handle != nullptr && handle != INVALID_HANDLE_VALUE) ::CloseHandle(handle);
}

HANDLE open_nowhere() {
  SECURITY_ATTRIBUTES inherited{sizeof inherited, nullptr, TRUE};
  return ::CreateFileW(L"NUL", GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_WRITE, &inherited,
                       OPEN_EXISTING, 0, nullptr);
}

Descriptor descriptor_of(HANDLE handle) {
  return Descriptor(
      ::_open_osfhandle(reinterpret_cast<std::intptr_t>(handle), _O_BINARY | _O_NOINHERIT));
}

}  // namespace

int Child::start(std::vector<std::string> words, Streams streams) {
  std::wstring line;
  for (const std::string& word : words) {
    if (!line.empty()) line += L' ';
    line += command_word(wide(word));
  }
  STARTUPINFOW with{};
  with.cb = sizeof with;
  with.dwFlags = STARTF_USESTDHANDLES;
  with.hStdError = ::GetStdHandle(STD_ERROR_HANDLE);
  Pipe in, out;
  if (streams == Streams::our_stdin) {
    out.its = open_nowhere();
    with.hStdInput = ::GetStdHandle(STD_INPUT_HANDLE);
  } else if (!in.make(/*child_reads=*/true) || !out.make(/*child_reads=*/false)) {
    fail();
  } else {
    with.hStdInput = in.its;
    to_ = descriptor_of(in.ours);
    from_ = descriptor_of(out.ours);
  }
  with.hStdOutput = out.its;
  PROCESS_INFORMATION process{};
  int failed = 0;
  // Without a path, it is looked for in PATH.
  if (with.hStdOutput == nullptr || ::CreateProcessW(nullptr, line.data(), nullptr, nullptr, TRUE,
                                                     0, nullptr, nullptr, &with, &process) == 0) {
    fail();
    failed = errno;
  } else {
    ::CloseHandle(process.hThread);
    child_ = reinterpret_cast<std::intptr_t>(process.hProcess);
  }
  close_handle(in.its);
  close_handle(out.its);
  return failed;
}

bool Child::write(std::string_view text) {
  while (!text.empty()) {
    const std::ptrdiff_t n = platform::write(to_.get(), text.data(), text.size());
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
  const auto process =
      reinterpret_cast<HANDLE>(static_cast<std::intptr_t>(std::exchange(child_, 0)));
  DWORD status = 127;
  if (::WaitForSingleObject(process, INFINITE) != WAIT_OBJECT_0 ||
      ::GetExitCodeProcess(process, &status) == 0)
    status = 127;
  ::CloseHandle(process);
  return static_cast<int>(status);
}

}  // namespace nvfp4::platform
