#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace nvfp4::checkpoint {

/// Returns members of a model card's front matter, the YAML between two lines "---". The members
/// are plain words or lists of words: "license: mit", "language: [en, de]", or a line "- en" for
/// each. Objects, texts over several lines and words longer than 200 bytes are left out. Never
/// throws: text that is not YAML has no members.
std::map<std::string, std::vector<std::string>> front_matter(std::string_view card);

}  // namespace nvfp4::checkpoint
