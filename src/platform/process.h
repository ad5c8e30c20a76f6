#pragma once

#include <string>

namespace nvfp4::platform {

/// Returns the process ID.
int process_id();
std::string host_name();
/// The environment variable with the user's home folder.
extern const char* const kHomeVariable;
/// Returns a number that differs in each process.
unsigned random_number();
/// Returns the number of CPUs that this process may run on.
int usable_cpus();

/// Reports whether the CPU has dot products of bytes (ARM).
bool has_dot_products();
/// Reports whether the system lets this process use the tiles of AMX.
bool allow_amx_tiles();

}  // namespace nvfp4::platform
