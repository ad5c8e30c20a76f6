#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace nvfp4::checkpoint {

/// Of a model card's front matter, YAML between two lines "---", the members that are plain words
/// or lists of them: "license: mit", "language: [en, de]", or a line "- en" for each. What else it
/// holds (objects, texts over several lines, words longer than 200 bytes) is left out. Never
/// throws: what is not YAML has no members.
std::map<std::string, std::vector<std::string>> front_matter(std::string_view card);

}  // namespace nvfp4::checkpoint
