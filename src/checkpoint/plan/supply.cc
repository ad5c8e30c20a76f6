#include <cfloat>
#include <utility>
#include <variant>

#include "checkpoint/io/strict_json.h"
#include "checkpoint/plan/steps.h"
#include "core/printable.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

/// Returns the number, or -1 if the value is not a number.
double number_of(const JsonScalar& scalar) {
  if (const auto* d = std::get_if<double>(&scalar)) return *d;
  if (const auto* u = std::get_if<std::uint64_t>(&scalar)) return static_cast<double>(*u);
  return -1;
}

}  // namespace

std::shared_ptr<const Statistics> statistics_of_run(const TransformOptions& options,
                                                    const ModelConfig& config) {
  const Method& method = *options.chosen.method;
  require<ValueError>(method.needs == Needs::nothing || options.statistics,
                      ErrorCode::no_statistics, "method = {}: needs {}, in a file for --statistics",
                      method.name, needs_text(method.needs));
  if (!options.statistics) return nullptr;
  auto statistics = open_statistics(*options.statistics, config);
  require<ValueError>(method.needs != Needs::gram || statistics->has_grams(),
                      ErrorCode::no_statistics,
                      "method = {}: {} does not hold {}; hint: nvfp4 calibrate --keep-gram "
                      "writes it",
                      method.name, options.statistics->string(), needs_text(method.needs));
  return statistics;
}

const InputStatistics* statistics_of(const Statistics* statistics, const WeightSlice& slice) {
  const InputStatistics* s = statistics == nullptr ? nullptr : statistics->find(slice.module);
  if (s == nullptr) return nullptr;
  require<ValueError>(s->depth == slice.cols, ErrorCode::other_statistics,
                      "{}: {} has inputs of {} channels there and {} in the model: statistics of "
                      "another model",
                      statistics->path().string(), printable(slice.module), s->depth, slice.cols);
  return s->count > 0 ? s : nullptr;
}

void warn_of_missing_statistics(Plan& plan) {
  if (plan.statistics == nullptr) return;
  const std::string file = plan.statistics->path().string();
  std::size_t asked = 0;
  Listed missing, unseen, diagonal, few;
  for (const Unit& unit : plan.units) {
    if (!unit.as<QuantizeWork>()) continue;
    ++asked;
    const std::string& module = unit.slice.module;
    if (plan.statistics->find(module) == nullptr)
      missing.add(module);
    else if (unit.statistics == nullptr)
      unseen.add(module);
    else if (plan.method->needs == Needs::gram && !unit.statistics->gram)
      diagonal.add(module);
    else if (plan.method->needs == Needs::gram &&
             plan.statistics->layer_tokens(*unit.statistics) > 0)
      few.add(module);
  }
  require<ValueError>(asked == 0 || missing.count < asked, ErrorCode::other_statistics,
                      "{}: has none of the {} weights to quantize, such as {}: statistics of "
                      "another model",
                      file, asked, missing.first);
  const auto warn = [&](const Listed& of, const std::string& what) {
    if (of.count > 0)
      plan.warnings.push_back(fmt::format(
          "{}: {}: {}", file,
          fmt::format(fmt::runtime(what), fmt::format("{} of {}", of.count, asked)), of.text()));
  };
  const std::string instead =
      plan.method->needs == Needs::nothing ? "" : ", they are quantized as by mse";
  warn(missing, "{} weights are not in it" + instead);
  warn(unseen, "{} weights got no token" + instead);
  warn(few, fmt::format("{{}} weights are of experts that got fewer than {} tokens for each "
                        "channel, which those of the whole layer complete",
                        kExpertTokens));
  warn(diagonal, "has no Gram matrix of {} weights, they are quantized as by weighted");
}

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
    to_.entries_.push_back({static_cast<float>(amax)});
    names_.push_back(name_);
  }
  std::vector<std::string> take_names() { return std::move(names_); }

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
  std::vector<std::string> names_;
};

InputAmax::InputAmax(const std::string& text, const std::string& file, SharedBudget budget)
    : file_(file) {
  Reader reader(*this);
  visit_json(text, 2, file, reader);
  try {
    patterns_.emplace(reader.take_names(), std::move(budget));
  } catch (const ValueError& e) {
    throw ValueError(fmt::format("{}: {}", file, e.what()), e.code);
  }
}

float InputAmax::find(const std::string& module) try {
  if (!patterns_) return 0;
  const std::string tensor = module + ".weight";
  const std::vector<std::size_t> found = patterns_->matching(tensor);
  if (found.empty()) return 0;
  const auto take = [&](std::size_t i) {
    entries_[i].used = true;
    return entries_[i].amax;
  };
  for (const std::string& name : {module, tensor})
    for (const std::size_t i : found)
      if (patterns_->text(i) == name) return take(i);
  for (const std::size_t i : found) entries_[i].matched = true;
  return take(found.front());
} catch (const ValueError& e) {
  throw ValueError(fmt::format("{}: {}", file_, e.what()), e.code);
}

std::vector<std::string> InputAmax::warnings() const {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < entries_.size(); ++i)
    if (!entries_[i].used)
      lines.push_back(fmt::format(
          "{}: {} matches {}", file_, printable(patterns_->text(i)),
          entries_[i].matched ? "only what a pattern before it does" : "no quantized module"));
  return lines;
}

}  // namespace nvfp4::checkpoint
