#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "commands/commands.h"

/// The options of processes that share the work of a command.
namespace nvfp4 {

/// Returns --rank. `what` describes the common work.
inline CommandOption rank_option(const std::string& what) {
  return {.names = "--rank",
          .value = "R",
          .keyword = "rank",
          .text = fmt::format("rank of this process, from 0: {}", what)};
}

inline CommandOption ranks_option() {
  return {.names = "--ranks",
          .value = "N",
          .keyword = "ranks",
          .fallback = "1",
          .text =
              "number of ranks; auto: rank and number as mpirun, srun or torchrun set them; 1 if "
              "not given"};
}

/// Returns the options of commands that read, and have a report.
inline std::vector<CommandOption> shared_work_options() {
  return {
      rank_option("each reads its share of the tensors"), ranks_option(),
      CommandOption{.names = "--parts",
                    .value = "DIR",
                    .keyword = "parts",
                    .text = "with --ranks: a folder that all ranks see. Each writes its results "
                            "there, and the rank that finds the files of all makes the report"}};
}

}  // namespace nvfp4
