#include "checkpoint/engines/engines.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "checkpoint/match/pattern.h"

namespace nvfp4::checkpoint {
namespace {

constexpr std::pair<std::string_view, std::string_view Engine::*> kFields[] = {
    {"version", &Engine::version},
    {"declared", &Engine::declared},
    {"loaded", &Engine::loaded},
    {"algorithms", &Engine::algorithms},
    {"no_experts", &Engine::no_experts}};

/// Reads lines of a loader, a field and its value. The lines of a loader are together.
std::vector<Engine> read_engines(std::string_view text) {
  std::vector<Engine> engines;
  for (const std::string_view line : split_name(text, '\n')) {
    const std::size_t field = line.find(' ') + 1, value = line.find(' ', field) + 1;
    if (value == 0) continue;
    const std::string_view loader = line.substr(0, field - 1);
    if (engines.empty() || engines.back().loader != loader) engines.emplace_back().loader = loader;
    for (const auto& [name, member] : kFields)
      if (name == line.substr(field, value - 1 - field))
        engines.back().*member = line.substr(value);
  }
  return engines;
}

bool has_word(std::string_view list, std::string_view word) {
  const auto words = split_name(list, ' ');
  return std::ranges::find(words, word) != words.end();
}

}  // namespace

bool Engine::declares(std::string_view architecture) const {
  return has_word(declared, architecture);
}
bool Engine::was_loaded(std::string_view model_type, std::string_view architecture) const {
  return has_word(loaded, fmt::format("{}/{}", model_type, architecture));
}
bool Engine::accepts(std::string_view algorithm) const {
  return algorithms.empty() || has_word(algorithms, algorithm);
}

const Engine* find_engine(std::string_view loader) {
  static const std::vector<Engine> engines = read_engines(kEngines);
  const auto engine = std::ranges::find(engines, loader, &Engine::loader);
  return engine == engines.end() ? nullptr : &*engine;
}

}  // namespace nvfp4::checkpoint
