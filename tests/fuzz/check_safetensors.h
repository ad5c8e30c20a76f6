#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "checkpoint/safetensors/header.h"
#include "fuzz/must.h"
#include "nvfp4/checkpoint/safetensors.h"
#include "nvfp4/error.h"

/// Properties of every input of the parsers. A violation aborts. The fuzzer and the tests of its
/// corpus use them.
namespace nvfp4::safetensors {

/// Writing what was read gives a file that reads the same.
inline void check_header_round_trip(const Header& header, std::uint64_t file_bytes) {
  std::vector<TensorSpec> specs;
  for (const TensorInfo& t : header.tensors) specs.push_back({t.name, t.dtype, t.shape});
  std::string start;
  std::uint64_t written_bytes = 0;
  try {
    const FilePlan plan(
        specs.size(), [&](std::size_t i) { return specs[i]; }, header.metadata, "input");
    plan.write_start([&](std::string_view piece) { start += piece; });
    written_bytes = plan.file_bytes();
  } catch (const ValueError&) {
    must(file_bytes > std::uint64_t{1} << 62, "what was read can be written");
    return;
  }
  const Header again = parse_header(std::as_bytes(std::span(start)), written_bytes, "written");
  must(again.metadata == header.metadata, "metadata survives");
  must(again.data_begin % kDataAlignment == 0, "data is aligned");
  must(again.tensors.size() == header.tensors.size(), "tensors survive");
  for (std::size_t i = 0; i < again.tensors.size(); ++i) {
    const TensorInfo &a = again.tensors[i], &b = header.tensors[i];
    must(a.name == b.name && a.dtype == b.dtype && a.shape == b.shape && a.bytes == b.bytes &&
             a.begin - again.data_begin == b.begin - header.data_begin,
         "every tensor survives");
  }
}

/// Returns whether the header is valid.
inline bool check_parse_header(std::span<const std::byte> start, std::uint64_t file_bytes) {
  Header header;
  try {
    header = parse_header(start, file_bytes, "input");
  } catch (const FormatError& error) {
    check_message(error);
    return false;
  }
  must(header.data_begin >= kLengthBytes && header.data_begin <= start.size(),
       "data begins behind the header");
  must(header.data_begin <= kLengthBytes + kMaxHeaderBytes, "the header is within its cap");
  std::uint64_t covered = header.data_begin;
  std::set<std::string_view> names;
  for (const TensorInfo& t : header.tensors) {
    must(names.insert(t.name).second, "names are unique");
    must(t.name != kMetadataKey, "metadata is no tensor");
    must(t.begin == covered, "tensors lie side by side, in order");
    must(t.bytes <= file_bytes - t.begin, "tensors lie within the file");
    covered = t.begin + t.bytes;
    unsigned __int128 bits = static_cast<unsigned>(dtype_bits(t.dtype));
    for (const std::int64_t extent : t.shape) {
      must(extent >= 0, "no extent is negative");
      bits *= static_cast<std::uint64_t>(extent);
      must(bits >> 63 == 0, "no product overflows");
    }
    must(bits == static_cast<unsigned __int128>(t.bytes) * 8, "size is shape x dtype");
    must(dtype_from_name(dtype_name(t.dtype)) == t.dtype, "the dtype is known");
  }
  must(covered == file_bytes, "tensors cover the file");
  check_header_round_trip(header, file_bytes);
  return true;
}

/// Returns whether the index is valid.
inline bool check_parse_index(std::string_view json) {
  Index index;
  try {
    index = parse_index(json, "input");
  } catch (const FormatError& error) {
    check_message(error);
    return false;
  }
  for (const auto& [name, file] : index.weight_map) {
    must(!file.empty() && file != "." && file != "..", "a shard has a name");
    must(file.find('/') == file.npos && file.find('\0') == file.npos,
         "a shard lies beside its index");
  }
  const Index again = parse_index(index_json(index), "written");
  must(again.weight_map == index.weight_map && again.total_size == index.total_size,
       "the index survives");
  return true;
}

struct Verdict {
  bool is_file = false, is_start = false, is_index = false;
};

/// Takes `input` for a whole file, for the start of a larger file (whose size are its last eight
/// bytes), and for an index.
inline Verdict check_safetensors(std::span<const std::byte> input) {
  Verdict verdict;
  verdict.is_file = check_parse_header(input, input.size());
  if (input.size() >= 8) {
    std::uint64_t file_bytes = 0;
    for (const std::byte b : input.last(8))
      file_bytes = file_bytes << 8 | std::to_integer<std::uint64_t>(b);
    const auto start = input.first(input.size() - 8);
    if (file_bytes >= start.size()) verdict.is_start = check_parse_header(start, file_bytes);
  }
  verdict.is_index = check_parse_index({reinterpret_cast<const char*>(input.data()), input.size()});
  return verdict;
}

}  // namespace nvfp4::safetensors
