#define PCRE2_CODE_UNIT_WIDTH 8
#include "checkpoint/match/expression.h"

#include <pcre2.h>
#include <re2/re2.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <mutex>
#include <new>

#include "checkpoint/match/glob.h"
#include "core/printable.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

constexpr std::size_t kMaxBytes = 65'536;
/// The steps of a call of PCRE2 without those of the expression.
constexpr std::int64_t kStepsOfACall = 16;
/// Limit of a match, about 15 ms. On names of models, harmless expressions take some hundred steps.
constexpr std::uint32_t kMaxSteps = 1'000'000;
/// Bytes of a name times instructions below which every match takes less than 100 µs.
constexpr std::int64_t kUntimed = 16'384;
constexpr std::uint32_t kMaxKibibytes = 16'384;

/// A PCRE2 object that is freed at the end.
template <class T, void (*free)(T*)>
class Owned {
 public:
  explicit Owned(T* object) : object_(object) {
    if (object == nullptr) throw std::bad_alloc();
  }
  operator T*() const { return object_.get(); }

 private:
  struct Free {
    void operator()(T* object) const { free(object); }
  };
  std::unique_ptr<T, Free> object_;
};

PCRE2_SPTR bytes_of(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

pcre2_code* compile(const std::string& text, Expression::Extent extent) {
  const Owned<pcre2_compile_context, pcre2_compile_context_free> context(
      pcre2_compile_context_create(nullptr));
  pcre2_set_max_pattern_length(context, kMaxBytes);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  // Text is characters and not bytes, with Unicode's classes and \uXXXX, as in Python.
  constexpr std::uint32_t kOptions = PCRE2_ANCHORED | PCRE2_UTF | PCRE2_UCP |
                                     PCRE2_MATCH_INVALID_UTF | PCRE2_ALT_BSUX |
                                     PCRE2_NEVER_BACKSLASH_C | PCRE2_AUTO_CALLOUT;
  const std::uint32_t options =
      kOptions | (extent == Expression::Extent::whole ? PCRE2_ENDANCHORED : 0);
  int error = 0;
  PCRE2_SIZE at = 0;
  pcre2_code* code = pcre2_compile(bytes_of(text), text.size(), options, &error, &at, context);
  require<ValueError>(code != nullptr, ErrorCode::pattern,
                      "pattern: re:{} is not a valid regular expression: {}, at byte {} after re:",
                      printable(text), message_of(error), at);
  return code;
}

/// A count of the steps of one match, with its limit.
struct Steps {
  std::int64_t taken = 0, most = 0;
};
constexpr int kSpent = -1000;  // not an error of PCRE2

/// Counts a step before each item of the expression. A repetition without an item is a scan of the
/// name.
int count_step(pcre2_callout_block*, void* data) {
  auto& steps = *static_cast<Steps*>(data);
  return ++steps.taken > steps.most ? kSpent : 0;
}

std::unique_ptr<const RE2> compile_linear(const std::string& text) {
  if (!means_the_same(text)) return nullptr;
  RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(1 << 20);
  auto linear = std::make_unique<const RE2>(text, options);
  return linear->ok() ? std::move(linear) : nullptr;
}

using Code = Owned<pcre2_code, pcre2_code_free>;

}  // namespace

void check_expression(const std::string& text) {
  const Code code(compile(text, Expression::Extent::start));
}

bool means_the_same(std::string_view text) {
  for (std::size_t i = 0; i + 1 < text.size(); ++i) {
    if (text[i] != '\\') continue;
    const char c = text[++i];
    if ((c >= '1' && c <= '9') || (c == 'x' && text.substr(i + 1).starts_with('{'))) return false;
  }
  return true;
}

bool is_plain_text(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= 0x20 && c < 0x7F; });
}

class Expression::Compiled {
 public:
  Compiled(const std::string& text, Extent extent)
      : anchor(extent == Extent::whole ? RE2::ANCHOR_BOTH : RE2::ANCHOR_START), extent_(extent) {
    auto code = std::make_unique<const Code>(compile(text, extent));  // throws if it is invalid
    linear = compile_linear(text);
    if (linear == nullptr) code_ = std::move(code);
  }
  /// Returns the code of PCRE2. Thread-safe. It is compiled on demand, because RE2 handles most
  /// expressions and names.
  const Code& code(const std::string& text) const {
    const std::lock_guard lock(mutex_);
    if (code_ == nullptr) code_ = std::make_unique<const Code>(compile(text, extent_));
    return *code_;
  }

  RE2::Anchor anchor;
  std::unique_ptr<const RE2> linear;

 private:
  Extent extent_;
  mutable std::mutex mutex_;
  mutable std::unique_ptr<const Code> code_;
};

Expression::Expression(std::string text, Extent extent, SharedBudget budget)
    : text_(std::move(text)),
      budget_(std::move(budget)),
      compiled_(std::make_shared<const Compiled>(text_, extent)) {}

bool Expression::is_linear() const { return compiled_->linear != nullptr; }

bool Expression::matches(std::string_view name) const {
  if (compiled_->linear == nullptr || !is_plain_text(name)) return matches_step_by_step(name);
  const auto match = [&] {
    return compiled_->linear->Match(re2::StringPiece(name.data(), name.size()), 0, name.size(),
                                    compiled_->anchor, nullptr, 0);
  };
  const auto bytes = static_cast<std::int64_t>(name.size());
  const std::int64_t program = compiled_->linear->ProgramSize();
  if (bytes * program < kUntimed) {
    budget_->spend(1 + bytes * (1 + program / 64) / 16, text_);
    return match();
  }
  const ComputedTime time;
  const bool matched = match();
  budget_->spend(time.steps(), text_);
  return matched;
}

bool Expression::matches_step_by_step(std::string_view name) const {
  const Owned<pcre2_match_data, pcre2_match_data_free> data(pcre2_match_data_create(1, nullptr));
  const Owned<pcre2_match_context, pcre2_match_context_free> context(
      pcre2_match_context_create(nullptr));
  Steps steps{.most = std::clamp<std::int64_t>(budget_->left(), 0, kMaxSteps)};
  pcre2_set_match_limit(context, kMaxSteps);
  pcre2_set_heap_limit(context, kMaxKibibytes);
  pcre2_set_callout(context, count_step, &steps);
  const int result =
      pcre2_match(compiled_->code(text_), bytes_of(name), name.size(), 0, 0, data, context);
  const auto scanned = static_cast<std::int64_t>(name.size() / 16);
  budget_->spend(kStepsOfACall + steps.taken + scanned, text_);
  if (result == PCRE2_ERROR_NOMATCH) return false;
  if (result == PCRE2_ERROR_MATCHLIMIT || result == kSpent)
    throw ValueError(fmt::format("pattern: re:{} on '{}' takes more than {} steps; repeat nothing "
                                 "that itself is repeated",
                                 printable(text_), printable(name), kMaxSteps),
                     ErrorCode::pattern);
  require<ValueError>(result >= 0, ErrorCode::pattern,
                      "pattern: re:{} cannot be matched on '{}': {}", printable(text_),
                      printable(name), message_of(result));
  return true;
}

void MatchBudget::throw_spent(std::string_view pattern) const {
  throw ValueError(
      fmt::format("pattern: {} takes more than what is left of {} steps for all patterns of a "
                  "run; repeat nothing that itself is repeated, and write names where names do",
                  printable(pattern, 4096), steps_),
      ErrorCode::pattern);
}

std::int64_t ComputedTime::now() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace nvfp4::checkpoint
