#include "checkpoint/hub/hub_process.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "checkpoint/io/printable.h"
#include "core/require.h"

namespace nvfp4::checkpoint {

extern const char* const kHubScript;  // python/nvfp4/hub.py, by cmake/hub_script.cc.in

namespace fs = std::filesystem;

int run_hf(std::string id) {
  // It prints where the model is; our stdout is for our own output.
  platform::Child child;
  const bool started =
      child.start({"hf", "download", std::move(id)}, platform::Child::Streams::our_stdin) == 0;
  return started ? child.wait() : 127;
}

std::optional<std::string> hub_python() {
  if (const char* given = std::getenv("NVFP4_HUB_PYTHON"); given != nullptr && *given != 0)
    return given;
  const std::optional<fs::path> hf = platform::program("hf");
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
  std::vector<std::string> words{python, "-c", kHubScript};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const int failed = child_.start(std::move(words), platform::Child::Streams::piped);
  require<IoError>(failed == 0, "{}: cannot be started: {}", printable(python, 4096),
                   std::generic_category().message(failed));
}

void HubProcess::write_line(const std::string& line) {
  if (child_.write(line + "\n")) return;
  read_line();  // says why
  throw IoError("the download from the hub has ended");
}

std::string HubProcess::read_line() {
  std::size_t end = 0;
  while ((end = unread_.find('\n')) == unread_.npos) {
    std::array<char, 4096> buffer;
    const std::ptrdiff_t n = child_.read(buffer.data(), buffer.size());
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
