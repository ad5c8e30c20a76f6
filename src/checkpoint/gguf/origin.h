#pragma once

#include <optional>
#include <string>

#include "checkpoint/gguf/blocks.h"
#include "checkpoint/gguf/header.h"
#include "checkpoint/gguf/names.h"
#include "nvfp4/checkpoint/safetensors.h"

/// The conversion of tensors of the file to those of the model.
namespace nvfp4::gguf {

/// The conversion of a tensor from the file. Each unit has in() bytes in the file and out() bytes
/// here.
struct Origin {
  enum class Kind : std::uint8_t {
    copy,
    codes,
    scales,
    mx_codes,
    mx_exponents,
    bf16,
    f16,
    f32,
    q8_0,
    one,
  };
  Kind kind = Kind::copy;
  const TensorInfo* stored = nullptr;
  std::uint64_t begin = 0;        ///< offset in the bytes of `stored`
  std::uint64_t row_units = 0;    ///< units of a row, if rows or columns are in another order
  Order rows = {}, columns = {};  ///< columns are counted in units
  Change change = Change::none;
  Run run = {};                          ///< rows of the model's tensor that come from here
  std::uint64_t transposed_columns = 0;  ///< columns of the model, which the file has as rows; or 0

  std::uint64_t in() const {
    return kind == Kind::codes || kind == Kind::scales            ? kBlockBytes
           : kind == Kind::q8_0                                   ? kQ8BlockBytes
           : kind == Kind::mx_codes || kind == Kind::mx_exponents ? kMxBlockBytes
           : kind == Kind::copy                                   ? 1
                                                                  : 4;
  }
  std::uint64_t out() const {
    switch (kind) {
      case Kind::codes:
        return kBlockCodes;
      case Kind::scales:
      case Kind::f32:
      case Kind::one:
        return 4;
      case Kind::bf16:
      case Kind::f16:
        return 2;
      case Kind::q8_0:
        return kQ8Block * sizeof(float);
      case Kind::mx_codes:
        return kMxBlock / 2;
      case Kind::mx_exponents:
      case Kind::copy:
        break;
    }
    return 1;
  }
};

/// Returns the dtype of a type without blocks, or null.
std::optional<safetensors::DType> dtype_of(const Type& type);

/// Returns the order and the change of a tensor, without its place. `model_name` is one of the
/// architecture's. Throws FormatError with `file` if the tensor's size contradicts the numbers of
/// heads in the keys.
Origin origin_of(const Header& header, const Architecture& architecture, const TensorInfo& t,
                 const std::string& model_name, const std::string& file);

/// Returns the rows of a tensor that is a part of one of the model. Null for others. Throws as
/// origin_of().
std::optional<Split> split_of(const Header& header, const Architecture& architecture,
                              const TensorInfo& t, const std::string& model_name,
                              const std::string& file);

/// Counts the columns of `origin` in its units. Throws UnsupportedError if a head ends within one.
void count_columns(const TensorInfo& t, Origin& origin, const std::string& file);

}  // namespace nvfp4::gguf
