#pragma once

#include "nvfp4/commands.h"

/// The commands that are about the machine, and about no checkpoint.
namespace nvfp4::command_table {

CommandOption backend();  ///< --backend, with those of this build

Command bench_command();
Command tune_command();
Command selftest_command();

}  // namespace nvfp4::command_table
