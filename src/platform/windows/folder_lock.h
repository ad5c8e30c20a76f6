#pragma once

namespace nvfp4::platform {

/// Before the descriptor of a folder is closed; nothing where it has no lock.
void unlock_folder(int fd);

}  // namespace nvfp4::platform
