#pragma once

#include <filesystem>
#include <string>

namespace nvfp4::checkpoint {

/// In the order in which they are taken: the second where there is a card of somebody else.
inline constexpr const char* kCardNames[] = {"README.md", "README-NVFP4.md"};
/// A line of our own cards. A file without it is never replaced.
inline constexpr const char* kCardMark =
    "<!-- nvfp4 quantize wrote this card; without this line "
    "it is yours and stays as it is -->";

/// Whether the file is a card that we wrote and nobody claimed. False if it is not there.
bool is_own_card(const std::filesystem::path& path);

}  // namespace nvfp4::checkpoint
