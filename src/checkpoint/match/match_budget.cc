#include "checkpoint/match/match_budget.h"

#include <time.h>

#include "core/printable.h"
#include "core/require.h"

namespace nvfp4::checkpoint {

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
