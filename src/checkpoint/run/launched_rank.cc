#include <charconv>
#include <cstdlib>
#include <optional>
#include <string>

#include "core/require.h"
#include "nvfp4/checkpoint/checkpoint.h"

namespace nvfp4 {
namespace {

struct Launcher {
  const char *rank, *ranks;
};
/// The launchers, the innermost first: mpirun and torchrun may run inside a Slurm job.
constexpr Launcher kLaunchers[] = {{"RANK", "WORLD_SIZE"},
                                   {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                   {"PMI_RANK", "PMI_SIZE"},
                                   {"SLURM_PROCID", "SLURM_NTASKS"}};

int number_of(const std::string& what, const std::string& text, int least) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  require<ValueError>(error == std::errc() && at == end && value >= least,
                      "{} = '{}', must be a number, {} or more", what, text, least);
  return value;
}

}  // namespace

Rank rank_from_text(std::optional<int> rank, const std::string& ranks) {
  if (ranks != "auto") {
    const int n = number_of("ranks", ranks, 1);
    require<ValueError>(
        rank || n == 1,
        "ranks = {}, and rank is not given; hint: give each process a rank, from 0 to {}", n,
        n - 1);
    require<ValueError>(rank.value_or(0) >= 0 && rank.value_or(0) < n,
                        "rank = {}, must be from 0 to ranks - 1 = {}", rank.value_or(0), n - 1);
    return {rank.value_or(0), n};
  }
  require<ValueError>(!rank, "rank = {} and ranks = auto, must be one of them", rank.value_or(0));
  std::string names;
  for (const Launcher& by : kLaunchers) {
    const char *r = std::getenv(by.rank), *n = std::getenv(by.ranks);
    if (r != nullptr && n != nullptr) return {number_of(by.rank, r, 0), number_of(by.ranks, n, 1)};
    names += fmt::format("{}{}, {}", names.empty() ? "" : "; ", by.rank, by.ranks);
  }
  throw ValueError("ranks = auto: the environment has none of the pairs " + names);
}

}  // namespace nvfp4
