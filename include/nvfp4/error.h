#pragma once

#include <stdexcept>
#include <string>

namespace nvfp4 {

/// The fault behind an error. Its number is stable when the message changes: 102 is shown as
/// NV0102. src/checkpoint/base/error_codes.h has the meaning and the fix of each fault.
enum class ErrorCode {
  disk_full = 101,
  not_found = 102,
  not_in_hub_cache = 103,
  output_not_empty = 104,
  output_no_model = 105,
  output_busy = 106,
  not_a_file = 107,
  not_a_folder = 108,
  shard_missing = 109,
  input_replaced = 110,
  input_shortened = 111,
  input_changed = 112,
  broken_link = 113,
  no_weights = 114,
  access_denied = 115,
  io = 199,

  incomplete = 201,
  header = 202,
  lfs_pointer = 203,
  tensor_ranges = 204,
  cut_short = 205,
  index = 206,
  several_indices = 207,
  duplicate_name = 208,
  invalid_json = 209,
  deep_json = 210,
  faulty_values = 211,
  cache_without_model = 212,
  statistics = 213,
  format = 299,

  resume_differs = 301,
  output_differs = 302,
  not_a_choice = 303,
  output_in_input = 304,
  pattern = 305,
  no_such_tensor = 306,
  not_quantizable = 307,
  other_statistics = 308,
  no_statistics = 309,
  not_finite = 310,
  value = 399,

  partial_block = 401,
  shape = 499,

  device_unavailable = 501,
  backend_unavailable = 502,
  not_repairable = 503,
  already_quantized = 504,
  no_gguf_name = 505,
  gguf_part = 506,
  unsupported = 599,

  other_device = 601,
  device_memory = 602,
  device = 699,

  usage = 901,
  memory = 902,
  internal = 999,
};

/// The base of all exceptions of nvfp4.cpp. what() names the argument, its value and the rule:
/// "quantize: x.cols = 100, must be a multiple of 16".
struct Error : std::runtime_error {
  explicit Error(const std::string& what, ErrorCode fault = ErrorCode::internal)
      : std::runtime_error(what), code(fault) {}
  ErrorCode code;
};

/// Sizes, strides or layouts that do not fit.
struct ShapeError : Error {
  explicit ShapeError(const std::string& what, ErrorCode fault = ErrorCode::shape)
      : Error(what, fault) {}
};
/// An argument or a tensor element outside its domain.
struct ValueError : Error {
  explicit ValueError(const std::string& what, ErrorCode fault = ErrorCode::value)
      : Error(what, fault) {}
};
/// A valid request that the library, this build or this device cannot carry out.
struct UnsupportedError : Error {
  explicit UnsupportedError(const std::string& what, ErrorCode fault = ErrorCode::unsupported)
      : Error(what, fault) {}
};
/// A refusal of the CUDA runtime or driver; it names the call.
struct DeviceError : Error {
  explicit DeviceError(const std::string& what, ErrorCode fault = ErrorCode::device)
      : Error(what, fault) {}
};
/// A refusal of the operating system: open, read, write, rename, disk full.
struct IoError : Error {
  explicit IoError(const std::string& what, ErrorCode fault = ErrorCode::io) : Error(what, fault) {}
};
/// A file with invalid content; it names the file and tensor.
struct FormatError : Error {
  explicit FormatError(const std::string& what, ErrorCode fault = ErrorCode::format)
      : Error(what, fault) {}
};

}  // namespace nvfp4
