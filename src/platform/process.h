#pragma once

#include <string>

namespace nvfp4::platform {

/// Of this process; a forked child has another.
int process_number();
std::string host_name();
/// The variable of the environment that names the user's folder.
extern const char* const kHomeVariable;
/// Another one in each process.
unsigned random_number();
/// That this process may run on.
int usable_cpus();

/// Whether the CPU has dot products of bytes (ARM), whether the system lets this process use the
/// tiles of AMX.
bool has_dot_products();
bool allow_amx_tiles();

}  // namespace nvfp4::platform
