#include <fmt/format.h>

#include <algorithm>

#include "checkpoint/base/option_values.h"
#include "checkpoint/formats/format.h"
#include "core/printable.h"
#include "core/require.h"
#include "nvfp4/checkpoint/convert.h"
#include "nvfp4/checkpoint/verify.h"
#include "nvfp4/runtime.h"
#include "quantizers/method.h"

namespace nvfp4::option_rules {
namespace {

/// Returns a name with a note on files that end in the format's extension.
std::string with_note(const FormatInfo& format, std::string note) {
  if (!format.extension.empty())
    note += fmt::format("{}the default if OUTPUT ends in {}", note.empty() ? "" : ", ",
                        format.extension);
  return note.empty() ? format.name : fmt::format("{}: {}", format.name, note);
}

}  // namespace

void check_fuse(const std::string& names) {
  const std::vector<std::string> parts = options::split(names);
  for (const std::string& part : parts)
    require<ValueError>(!part.empty() && part.find('.') == part.npos,
                        "'{}', must be last components of names, with commas between",
                        printable(names));
  require<ValueError>(parts.size() > 1, "'{}' is one component, must be two or more",
                      printable(names));
}

void check_method(const std::string& text) { method_from_text(text); }

std::vector<std::string> backends() {
  std::vector<std::string> names;
  for (const BackendInfo& b : nvfp4::backends()) names.push_back(b.name);
  return names;
}

std::vector<std::string> formats() {
  std::vector<std::string> all;
  for (const FormatInfo& f : output_formats())
    all.push_back(with_note(f, all.empty() ? "the default" : f.note));
  return all;
}

std::vector<std::string> loaders() {
  const auto known = known_loaders();
  return {known.begin(), known.end()};
}

std::vector<std::string> losses_of_convert() {
  return {"drop", "broken-scales", "decode", "round"};
}
std::vector<std::string> methods() { return method_names(); }
std::vector<std::string> quantizers() { return quantizer_names(); }
std::vector<std::string> recipes() { return recipe_names(); }
std::vector<std::string> schemes() {
  return {"w4a4: 4-bit weights and activations", "w4a16: 4-bit weights"};
}

std::vector<std::string> targets() {
  std::vector<std::string> all;
  for (const std::string& name : conversion_targets()) {
    const auto formats = output_formats();
    const auto format = std::ranges::find(formats, name, &FormatInfo::name);
    all.push_back(format == formats.end() ? name : with_note(*format, ""));
  }
  return all;
}

}  // namespace nvfp4::option_rules
