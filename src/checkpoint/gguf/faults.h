#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/gguf/header.h"
#include "checkpoint/gguf/names.h"

/// Comparison of a file's keys and tensors with the rows of its architecture.
namespace nvfp4::gguf {

/// A key or a tensor that is missing, or that contradicts another one.
struct Fault {
  std::string_view code;  ///< one of finding_kinds(): "gguf-key" or "gguf-tensor"
  std::string name;       ///< the name of the key or tensor
  std::string text;       ///< the message without the file's name
};

/// Returns the faults of a file. A row of the architecture has at most two, which name the first of
/// its layers. Tensors are only compared if the keys have no faults.
std::vector<Fault> faults_of(const Header& header, const Architecture& architecture);

/// Throws FormatError with the first fault.
void require_whole(const Header& header, const Architecture& architecture, const std::string& file);

/// Throws UnsupportedError if the file says that it is no model.
void require_model(const Header& header, const std::string& file);

}  // namespace nvfp4::gguf
