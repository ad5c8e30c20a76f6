#include "checkpoint/output/card_file.h"

#include <algorithm>

#include "checkpoint/io/text_file.h"

namespace nvfp4::checkpoint {

namespace fs = std::filesystem;

bool is_own_card(const fs::path& path) {
  constexpr std::uintmax_t kLargest = 1 << 24;
  std::error_code error;
  if (!fs::is_regular_file(fs::symlink_status(path, error)) ||
      fs::file_size(path, error) > kLargest || error)
    return false;
  return read_model_text(path).find(kCardMark) != std::string::npos;
}

}  // namespace nvfp4::checkpoint
