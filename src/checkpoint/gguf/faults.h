#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/gguf/header.h"
#include "checkpoint/gguf/names.h"

/// Comparison of a file's keys and tensors with the rows of its architecture.
namespace nvfp4::gguf {

struct Fault {
  std::string_view code;  ///< of finding_kinds(): "gguf-key" or "gguf-tensor"
  std::string name;       ///< of the key or tensor
  std::string text;       ///< without the file
};

/// Returns the keys and tensors that are missing, and those that contradict each other. A row of
/// the architecture has at most two faults, which name the first of its layers. Wrong keys hide the
/// faults of tensors.
std::vector<Fault> faults_of(const Header& header, const Architecture& architecture);

/// Throws FormatError with the first fault.
void require_whole(const Header& header, const Architecture& architecture, const std::string& file);

/// Throws UnsupportedError if the file says that it is no model.
void require_model(const Header& header, const std::string& file);

}  // namespace nvfp4::gguf
