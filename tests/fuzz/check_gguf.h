#pragma once

#include <algorithm>
#include <cstring>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/gguf/header.h"
#include "fuzz/must.h"

/// Properties of every input of the GGUF parser. A violation aborts.
namespace nvfp4::gguf {

/// Writing what was read gives a file that reads the same.
inline void check_round_trip(const Header& header, const ReadAt& read, std::uint64_t file_bytes) {
  std::vector<NewEntry> entries;
  for (const Entry& e : header.entries) {
    NewValue v{.type = e.value.type, .value = e.value.value};
    if (const auto* place = std::get_if<ArrayPlace>(&e.value.value)) {
      if (place->type != ValueType::string) continue;
      v = new_strings(read_strings(read, file_bytes, *place, "input"));
      must(v.strings.size() == place->count, "an array has as many strings as it says");
    }
    if (e.key != kAlignmentKey) entries.push_back({e.key, std::move(v)});
  }
  std::vector<TensorSpec> specs;
  for (const TensorInfo& t : header.tensors) {
    if (t.name.size() > kMaxName || t.bytes > std::uint64_t{1} << 40) return;
    specs.push_back({t.name, t.type, t.shape});
  }
  const FilePlan plan = plan_file(entries, specs, "input");
  const ReadAt again = [&](std::uint64_t offset, std::span<std::byte> out) {
    must(offset + out.size() <= plan.file_bytes(), "reads are within the file");
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = offset + i < plan.start.size() ? static_cast<std::byte>(plan.start[offset + i])
                                              : std::byte{0};
  };
  const Header h = parse_header(again, plan.file_bytes(), "written");
  must(h.entries.size() == entries.size() && h.tensors.size() == specs.size(), "all survive");
  for (std::size_t i = 0; i < specs.size(); ++i)
    must(h.tensors[i].name == specs[i].name && h.tensors[i].shape == specs[i].shape &&
             h.tensors[i].bytes == header.tensors[i].bytes,
         "every tensor survives");
}

/// Returns whether the file is valid.
inline bool check_gguf(std::span<const std::byte> bytes) {
  const ReadAt read = [bytes](std::uint64_t offset, std::span<std::byte> out) {
    must(offset <= bytes.size() && out.size() <= bytes.size() - offset,
         "reads are within the file");
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
  };
  Header header;
  try {
    header = parse_header(read, bytes.size(), "input");
  } catch (const FormatError& error) {
    check_message(error);
    return false;
  } catch (const UnsupportedError&) {
    return false;
  }
  std::set<std::string_view> names, keys;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
  for (const Entry& e : header.entries) must(keys.insert(e.key).second, "keys are unique");
  for (const TensorInfo& t : header.tensors) {
    must(names.insert(t.name).second, "names are unique");
    must(t.begin >= header.data_begin && t.begin % header.alignment == 0, "tensors are aligned");
    must(t.bytes == 0 || (t.begin <= bytes.size() && t.bytes <= bytes.size() - t.begin),
         "tensors are within the file");
    must(tensor_bytes(*t.type, t.shape) == t.bytes, "sizes fit shapes");
    if (t.bytes != 0) ranges.emplace_back(t.begin, t.begin + t.bytes);
  }
  std::ranges::sort(ranges);
  for (std::size_t i = 1; i < ranges.size(); ++i)
    must(ranges[i - 1].second <= ranges[i].first, "tensors do not overlap");
  check_round_trip(header, read, bytes.size());
  return true;
}

}  // namespace nvfp4::gguf
