#pragma once

namespace nvfp4::platform {

/// Removes the lock of a folder, if there is one, before its descriptor is closed.
void unlock_folder(int fd);

}  // namespace nvfp4::platform
