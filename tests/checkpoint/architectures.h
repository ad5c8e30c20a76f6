#pragma once

#include "checkpoint/match/pattern.h"
#include "nvfp4/checkpoint/safetensors.h"
#include "testing.h"

/// The weights of architectures as transformers builds them, from the table of
/// tools/architectures.py. NVFP4_ARCHITECTURES names the table of all architectures, which
/// tests/python/test_architectures.py makes of the installed transformers.
namespace nvfp4::checkpoint {

struct ArchitectureRow {
  std::string architecture;
  std::string owner;  ///< class of the module that has the weight; "Head": of output embeddings
  safetensors::TensorInfo tensor;

  bool is_linear() const { return owner == "Linear"; }
  bool is_experts() const { return owner.find("Experts") != std::string::npos; }
  double size() const {
    double n = 1;
    for (const std::int64_t d : tensor.shape) n *= static_cast<double>(d);
    return n;
  }
};

inline std::ostream& operator<<(std::ostream& out, const ArchitectureRow& row) {
  return out << row.architecture << ": " << row.tensor.name << " of " << row.owner;
}

/// Returns the rows. The lines of the table are ">architecture", then "class of the owner \t sizes
/// \t name in the checkpoint".
inline std::vector<ArchitectureRow> architecture_rows() {
  const char* const all = std::getenv("NVFP4_ARCHITECTURES");
  std::ifstream file(all != nullptr ? all
                                    : NVFP4_SOURCE_DIR "/tests/checkpoint/data/architectures.tsv");
  std::vector<ArchitectureRow> rows;
  std::string line, architecture;
  while (std::getline(file, line)) {
    if (line.starts_with('#')) continue;
    if (line.starts_with('>')) {
      architecture = line.substr(1);
      continue;
    }
    const auto fields = split_name(line, '\t');
    ArchitectureRow row{
        .architecture = architecture, .owner = std::string(fields.at(0)), .tensor = {}};
    row.tensor.name = fields.at(2);
    row.tensor.dtype = safetensors::DType::bf16;
    for (const std::string_view size : split_name(fields.at(1), ','))
      row.tensor.shape.push_back(std::stoll(std::string(size)));
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace nvfp4::checkpoint
