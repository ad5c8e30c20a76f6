#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "checkpoint/io/strict_json.h"
#include "checkpoint/safetensors/header.h"
#include "core/printable.h"
#include "core/require.h"
#include "nvfp4/checkpoint/safetensors.h"

namespace nvfp4::safetensors {
namespace {

// The largest depth of ignored values; the index itself needs two.
constexpr int kMaxIndexDepth = 16;

/// Reports whether a name stays in the folder of the index.
bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == name.npos;
}

/// Returns a size. Some writers sum sizes in floating point, so integral doubles are accepted.
std::optional<std::uint64_t> as_size(const JsonScalar& scalar) {
  if (const auto* integer = std::get_if<std::uint64_t>(&scalar)) return *integer;
  const auto* number = std::get_if<double>(&scalar);
  if (!number || !(*number >= 0 && *number < 0x1p64) || *number != std::floor(*number))
    return std::nullopt;
  return static_cast<std::uint64_t>(*number);
}

class IndexVisitor final : public JsonVisitor {
 public:
  explicit IndexVisitor(const std::string& file) : file_(file) {}

  Index take() {
    require<FormatError>(has_weight_map_, ErrorCode::index, "{}: weight_map is missing", file_);
    require<FormatError>(!index_.weight_map.empty(), ErrorCode::index,
                         "{}: weight_map is empty, must name tensors", file_);
    return std::move(index_);
  }

  void begin_object(int depth) override {
    if (depth == 2 && section_ == "weight_map") has_weight_map_ = true;
    if (depth > 2) check_place(depth - 1, "an object");
  }
  void key(std::string name, int depth) override {
    if (depth == 1)
      section_ = std::move(name);
    else if (depth == 2)
      key_ = std::move(name);
  }
  void end_object(int) override {}
  void begin_array(int depth) override {
    require<FormatError>(depth > 1, ErrorCode::index, "{}: an array, must be an object", file_);
    check_place(depth - 1, "an array");
  }
  void end_array(int) override {}
  void value(JsonScalar scalar, int depth) override {
    require<FormatError>(depth > 0, ErrorCode::index, "{}: {}, must be an object", file_,
                         describe(scalar));
    if (depth == 2 && section_ == "weight_map") {
      auto* name = std::get_if<std::string>(&scalar);
      if (!name || !is_plain_file_name(*name))
        throw FormatError(
            fmt::format(
                "{}: weight_map: tensor '{}' is in {}, must be the name of a file beside the index",
                file_, printable(key_), describe(scalar)),
            ErrorCode::index);
      index_.weight_map.emplace(std::move(key_), std::move(*name));
    } else if (depth == 2 && section_ == "metadata" && key_ == "total_size") {
      const auto size = as_size(scalar);
      require<FormatError>(size.has_value(), ErrorCode::index,
                           "{}: metadata.total_size = {}, must be a non-negative integer", file_,
                           describe(scalar));
      index_.total_size = *size;
    } else {
      check_place(depth, describe(scalar));
    }
  }

 private:
  /// Rejects `what`, found at `depth`, if another value is required there. Other places are
  /// ignored.
  void check_place(int depth, const std::string& what) const {
    const bool ours = section_ == "weight_map" || section_ == "metadata";
    if (depth == 1 && ours)
      throw FormatError(fmt::format("{}: {} = {}, must be an object", file_, section_, what),
                        ErrorCode::index);
    if (depth == 2 && section_ == "weight_map")
      throw FormatError(fmt::format("{}: weight_map: tensor '{}' is in {}, must be a file name",
                                    file_, printable(key_), what),
                        ErrorCode::index);
    if (depth == 2 && section_ == "metadata" && key_ == "total_size")
      throw FormatError(
          fmt::format("{}: metadata.total_size = {}, must be a non-negative integer", file_, what),
          ErrorCode::index);
  }

  const std::string& file_;
  Index index_;
  bool has_weight_map_ = false;
  std::string section_, key_;  // the current keys at depth 1 and 2
};

}  // namespace

Index parse_index(std::string_view json, const std::string& file) {
  const std::string where = printable(file, 4096);
  require<FormatError>(json.size() <= kMaxHeaderBytes, ErrorCode::index,
                       "{}: {} bytes, must be at most {}", where, json.size(), kMaxHeaderBytes);
  IndexVisitor visitor(where);
  visit_json(json, kMaxIndexDepth, where, visitor);
  return visitor.take();
}

std::string index_json(std::uint64_t total_size, std::size_t count,
                       const std::function<IndexEntry(std::size_t)>& entry) {
  const auto quoted = [](std::string_view text) {
    return nlohmann::json(text).dump(-1, ' ', /*ensure_ascii=*/true);
  };
  std::string json = fmt::format(
      "{{\n  \"metadata\": {{\n    \"total_size\": {}\n  }},\n  \"weight_map\": {{", total_size);
  try {
    for (std::size_t i = 0; i < count; ++i) {
      const auto [name, file] = entry(i);
      json += fmt::format("{}\n    {}: {}", i == 0 ? "" : ",", quoted(name), quoted(file));
    }
  } catch (const nlohmann::json::exception&) {
    throw ValueError("index_json: a tensor or file name is not valid UTF-8");
  }
  return json + (count == 0 ? "}\n}\n" : "\n  }\n}\n");
}

std::string index_json(const Index& index) {
  auto next = index.weight_map.begin();
  return index_json(index.total_size, index.weight_map.size(), [&](std::size_t) {
    const auto& [name, file] = *next++;
    return IndexEntry(name, file);
  });
}

}  // namespace nvfp4::safetensors
