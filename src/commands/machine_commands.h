#pragma once

#include "commands/commands.h"

/// The commands for the machine, without a checkpoint.
namespace nvfp4::command_table {

/// Returns --backend with the backends of this build.
CommandOption backend();

Command bench_command();
Command tune_command();
Command selftest_command();

}  // namespace nvfp4::command_table
