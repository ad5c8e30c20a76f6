#include "checkpoint/plan/input_amax.h"

#include <cfloat>
#include <variant>

#include "checkpoint/io/strict_json.h"
#include "core/printable.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

Pattern pattern_of(const std::string& name, const SharedBudget& budget, const std::string& file) {
  try {
    return Pattern(name, budget);
  } catch (const ValueError& e) {
    throw ValueError(fmt::format("{}: {}", file, e.what()), e.code);
  }
}

/// Returns the number, or -1 if the value is not a number.
double number_of(const JsonScalar& scalar) {
  if (const auto* d = std::get_if<double>(&scalar)) return *d;
  if (const auto* u = std::get_if<std::uint64_t>(&scalar)) return static_cast<double>(*u);
  return -1;
}

}  // namespace

/// Reads one JSON object whose values are numbers.
class InputAmax::Reader final : public JsonVisitor {
 public:
  explicit Reader(InputAmax& to) : to_(to) {}
  void begin_object(int depth) override { refuse_inner(depth, "an object"); }
  void begin_array(int depth) override {
    require<FormatError>(depth > 1, kNoObject, to_.file_);
    refuse_inner(depth, "an array");
  }
  void key(std::string name, int) override { name_ = std::move(name); }
  void end_object(int) override {}
  void end_array(int) override {}
  void value(JsonScalar scalar, int depth) override {
    require<FormatError>(depth > 0, kNoObject, to_.file_);
    // Formats store amax / 2688 or its inverse, and loaders divide by both.
    const double amax = number_of(scalar);
    if (!(amax / 2688 >= FLT_MIN && amax <= FLT_MAX)) refuse(describe(scalar));
    to_.entries_.push_back({pattern_of(name_, to_.budget_, to_.file_), static_cast<float>(amax)});
    const std::size_t entry = to_.entries_.size() - 1;
    if (to_.entries_.back().pattern.exact())
      to_.exact_[name_] = entry;
    else
      to_.patterns_.push_back(entry);
  }

 private:
  static constexpr const char* kNoObject = "{}: must be a JSON object, module -> activation amax";
  void refuse_inner(int depth, const char* what) const {
    if (depth > 1) refuse(what);
  }
  [[noreturn]] void refuse(const std::string& value) const {
    throw ValueError(fmt::format("{}: {} = {}, must be a number from 3.2e-35 to 3.4e38", to_.file_,
                                 printable(name_), value));
  }
  InputAmax& to_;
  std::string name_;
};

InputAmax::InputAmax(const std::string& text, const std::string& file, SharedBudget budget)
    : file_(file), budget_(std::move(budget)) {
  Reader reader(*this);
  visit_json(text, 2, file, reader);
}

float InputAmax::find(const std::string& module) try {
  const std::string tensor = module + ".weight";
  for (const std::string& name : {module, tensor}) {
    if (const auto it = exact_.find(name); it != exact_.end()) {
      entries_[it->second].used = true;
      return entries_[it->second].amax;
    }
  }
  Entry* first = nullptr;
  for (const std::size_t i : patterns_) {
    Entry& entry = entries_[i];
    if ((first != nullptr && entry.matched) || !entry.pattern.matches(tensor)) continue;
    entry.matched = true;
    if (first == nullptr) first = &entry;
  }
  if (first == nullptr) return 0;
  first->used = true;
  return first->amax;
} catch (const ValueError& e) {
  throw ValueError(fmt::format("{}: {}", file_, e.what()), e.code);
}

std::vector<std::string> InputAmax::warnings() const {
  std::vector<std::string> lines;
  for (const Entry& entry : entries_)
    if (!entry.used)
      lines.push_back(fmt::format(
          "{}: {} matches {}", file_, printable(entry.pattern.text()),
          entry.matched ? "only what a pattern before it does" : "no quantized module"));
  return lines;
}

}  // namespace nvfp4::checkpoint
