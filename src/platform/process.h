#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/files.h"

namespace nvfp4::platform {

/// Of this process; a forked child has another.
int process_number();
std::string host_name();
/// The variable of the environment that names the user's folder.
extern const char* const kHomeVariable;
/// Another one in each process.
unsigned random_number();
/// That this process may run on.
int usable_cpus();

/// Whether the CPU has dot products of bytes (ARM), whether the system lets this process use the
/// tiles of AMX.
bool has_dot_products();
bool allow_amx_tiles();

/// A file of PATH that can be run.
std::optional<std::filesystem::path> program(std::string_view name);

/// A program of PATH that was started.
class Child {
 public:
  enum class Streams {
    piped,      ///< it reads what is written here; what it writes is read here
    our_stdin,  ///< ours; what it writes to its stdout is dropped
  };
  Child() = default;
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  /// Closes its streams and waits for its end.
  ~Child() { wait(); }

  /// 0, or the reason as errno has it.
  int start(std::vector<std::string> words, Streams streams);
  /// False where it has ended.
  bool write(std::string_view text);
  /// 0 at the end of its output, -1.
  std::ptrdiff_t read(void* out, std::size_t bytes);
  /// Closes its streams; its exit status, 128 and the signal that ended it, 127 if it is not known.
  int wait();

 private:
  std::int64_t child_ = 0;
  Descriptor to_, from_;
};

}  // namespace nvfp4::platform
