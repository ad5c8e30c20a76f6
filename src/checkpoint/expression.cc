#include "checkpoint/expression.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <cstdint>
#include <new>

#include "checkpoint/printable.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

constexpr std::size_t kMaxBytes = 65'536;
/// About 15 ms. On names of models, expressions that are no trap take some hundred steps.
constexpr std::uint32_t kMaxSteps = 1'000'000;
constexpr std::uint32_t kMaxKibibytes = 16'384;

/// PCRE2's objects, allocated.
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
  // As Python reads text: characters, not bytes, with Unicode's classes, and \uXXXX.
  constexpr std::uint32_t kOptions = PCRE2_ANCHORED | PCRE2_UTF | PCRE2_UCP |
                                     PCRE2_MATCH_INVALID_UTF | PCRE2_ALT_BSUX |
                                     PCRE2_NEVER_BACKSLASH_C;
  const std::uint32_t options =
      kOptions | (extent == Expression::Extent::whole ? PCRE2_ENDANCHORED : 0);
  int error = 0;
  PCRE2_SIZE at = 0;
  pcre2_code* code = pcre2_compile(bytes_of(text), text.size(), options, &error, &at, context);
  require<ValueError>(code != nullptr,
                      "pattern: re:{} is not a valid regular expression: {}, at byte {} after re:",
                      printable(text), message_of(error), at);
  return code;
}

}  // namespace

struct Expression::Compiled {
  Compiled(const std::string& text, Extent extent)
      : code(compile(text, extent)), context(pcre2_match_context_create(nullptr)) {
    pcre2_set_match_limit(context, kMaxSteps);
    pcre2_set_heap_limit(context, kMaxKibibytes);
  }
  Owned<pcre2_code, pcre2_code_free> code;
  Owned<pcre2_match_context, pcre2_match_context_free> context;
};

Expression::Expression(std::string text, Extent extent)
    : text_(std::move(text)), compiled_(std::make_shared<const Compiled>(text_, extent)) {}

bool Expression::matches(std::string_view name) const {
  const Owned<pcre2_match_data, pcre2_match_data_free> data(pcre2_match_data_create(1, nullptr));
  const int result =
      pcre2_match(compiled_->code, bytes_of(name), name.size(), 0, 0, data, compiled_->context);
  if (result == PCRE2_ERROR_NOMATCH) return false;
  if (result == PCRE2_ERROR_MATCHLIMIT)
    throw ValueError(fmt::format(
        "pattern: re:{} on '{}' takes more than {} steps; repeat nothing that itself is repeated",
        printable(text_), printable(name), kMaxSteps));
  require<ValueError>(result >= 0, "pattern: re:{} cannot be matched on '{}': {}", printable(text_),
                      printable(name), message_of(result));
  return true;
}

}  // namespace nvfp4::checkpoint
