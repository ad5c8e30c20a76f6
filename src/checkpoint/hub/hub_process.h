#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/process.h"

/// The programs that talk to the hub: `hf`, and our own script in a Python with huggingface_hub.
namespace nvfp4::checkpoint {

/// `hf download ID`, whose progress goes to stderr. Its status; 127 if PATH has no `hf`.
int run_hf(std::string id);

/// The Python to run: NVFP4_HUB_PYTHON, else what the `hf` of PATH names in its first line; none if
/// there is neither.
std::optional<std::string> hub_python();

/// python/nvfp4/hub.py while it runs; lines go both ways.
class HubProcess {
 public:
  /// Throws IoError.
  HubProcess(const std::string& python, const std::vector<std::string>& arguments);
  HubProcess(const HubProcess&) = delete;
  HubProcess& operator=(const HubProcess&) = delete;
  /// Its end is that of its input.
  ~HubProcess() = default;

  /// Throws IoError.
  void write_line(const std::string& line);
  /// The next line without its end; "" at the end of its output. Throws IoError with the text of a
  /// line "failed TEXT".
  std::string read_line();

 private:
  platform::Child child_;
  std::string unread_;
};

/// What follows `word` and a space in a line; none if the line begins otherwise.
std::optional<std::string> after_word(std::string_view line, std::string_view word);

}  // namespace nvfp4::checkpoint
