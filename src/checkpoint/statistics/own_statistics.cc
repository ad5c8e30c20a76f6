#include <fmt/ranges.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <map>

#include "checkpoint/families/experts.h"
#include "checkpoint/io/json_text.h"
#include "checkpoint/io/text_file.h"
#include "checkpoint/statistics/statistics.h"
#include "core/printable.h"
#include "core/require.h"
#include "nvfp4/checkpoint/safetensors.h"

namespace nvfp4::checkpoint {
namespace {

using safetensors::DType;
using safetensors::TensorInfo;

constexpr const char* kVersionKey = "nvfp4_statistics";
constexpr const char* kVersion = "1";
/// The metadata key of a JSON object of modules that have the same input as another module. Only
/// that module has the Gram matrix.
constexpr const char* kSameInputKey = "same_input";
constexpr std::string_view kDiagonal = ".diag", kAmax = ".amax", kCount = ".count", kGram = ".gram",
                           kSensitivity = ".sensitivity", kInputSensitivity = ".input_sensitivity";

class OwnStatistics final : public Statistics {
 public:
  explicit OwnStatistics(const std::filesystem::path& path) : file_(safetensors::File::open(path)) {
    const auto version = file_.metadata().find(kVersionKey);
    require<FormatError>(version != file_.metadata().end(), ErrorCode::statistics,
                         "{}: no file of statistics, its metadata has no \"{}\"; "
                         "hint: nvfp4 calibrate writes them",
                         path.string(), kVersionKey);
    require<UnsupportedError>(version->second == kVersion,
                              "{}: statistics of version {}, must be {}", path.string(),
                              printable(version->second), kVersion);
    for (std::size_t i = 0; i < file_.tensors().size(); ++i)
      if (const TensorInfo& t = file_.tensors()[i]; t.name.ends_with(kDiagonal)) add(i, t);
    find_grams();
    find_experts();
    find_caches();
  }

  const std::filesystem::path& path() const override { return file_.path(); }
  bool has_grams() const override { return grams_; }

  const InputStatistics* find(std::string_view module) const override {
    const auto it = modules_.find(module);
    return it == modules_.end() ? nullptr : &it->second;
  }

  std::span<const InputStatistics* const> experts_of(const InputStatistics& of) const override {
    return experts_[of.experts];
  }

  const std::map<std::string, CacheAmax, std::less<>>& caches() const override { return caches_; }

  std::vector<double> triangle(const InputStatistics& of) const override {
    const TensorInfo& info = file_.tensors()[of.triangle];
    std::vector<double> values = read(info);
    std::size_t at = 0;
    for (std::int64_t i = 0; i < of.depth; ++i) {
      require<FormatError>(values[at] >= 0, ErrorCode::statistics,
                           "{}: {} has {} on its diagonal, must not be negative", path().string(),
                           printable(info.name), values[at]);
      at += static_cast<std::size_t>(of.depth - i);
    }
    return values;
  }

  std::uint64_t fingerprint() const override {
    return fingerprint_of(file_, file_.tensors(),
                          checkpoint::fingerprint(fmt::format("{}", file_.file_bytes())));
  }

 private:
  std::vector<double> diagonal(const InputStatistics& of) const override {
    return read(file_.tensors()[of.tensor]);
  }

  void add(std::size_t index, const TensorInfo& t) {
    require<FormatError>(t.shape.size() == 1, ErrorCode::statistics,
                         "{}: {} has shape [{}], must be [K]", path().string(), printable(t.name),
                         fmt::join(t.shape, ", "));
    const std::string module = t.name.substr(0, t.name.size() - kDiagonal.size());
    InputStatistics& s = modules_[module];
    s.tensor = index;
    s.depth = t.shape[0];
    require<FormatError>(is_number(t), ErrorCode::statistics, "{}: {} is {}, must be F32 or F64",
                         path().string(), printable(t.name), dtype_name(t.dtype));
    s.count = scalar(module, kCount).value_or(-1);
    require<FormatError>(s.count >= 0 && std::isfinite(s.count), ErrorCode::statistics,
                         "{}: {}{} is missing or no count of tokens", path().string(),
                         printable(module), kCount);
    s.amax = static_cast<float>(scalar(module, kAmax).value_or(0));
    require<FormatError>(s.amax >= 0 && std::isfinite(s.amax), ErrorCode::statistics,
                         "{}: {}{} = {}, must be finite and not negative", path().string(),
                         printable(module), kAmax, s.amax);
    if (file_.find(fmt::format("{}{}", module, kSensitivity)) != nullptr) {
      s.sensitivity = scalar(module, kSensitivity).value_or(-1);
      require<FormatError>(s.sensitivity > 0, ErrorCode::statistics,
                           "{}: {}{} must be one number, finite and positive", path().string(),
                           printable(module), kSensitivity);
    }
    const TensorInfo* inputs = file_.find(fmt::format("{}{}", module, kInputSensitivity));
    if (inputs == nullptr) return;
    if (is_number(*inputs) && inputs->shape == std::vector<std::int64_t>{2}) {
      const std::vector<double> sum = read(*inputs);
      if (sum[0] > 0 && sum[1] > 0) s.input_sensitivity = std::pow(sum[0] / sum[1], 4);
    }
    require<FormatError>(
        s.input_sensitivity > 0 && std::isfinite(s.input_sensitivity), ErrorCode::statistics,
        "{}: {} must be a sum of roots and a number of tokens, finite and positive",
        path().string(), printable(inputs->name));
  }

  void find_grams() {
    const auto text = file_.metadata().find(kSameInputKey);
    using Json = nlohmann::json;
    const Json same = text == file_.metadata().end()
                          ? Json::object()
                          : parse_json<Json>(text->second, path().string());
    require<FormatError>(same.is_object(), ErrorCode::statistics,
                         "{}: \"{}\" must be a JSON object", path().string(), kSameInputKey);
    for (auto& [module, s] : modules_) {
      const auto other = same.find(module);
      const bool shares = other != same.end() && other->is_string();
      const std::string owner = shares ? other->get<std::string>() : module;
      const TensorInfo* gram = file_.find(fmt::format("{}{}", owner, kGram));
      if (gram == nullptr) continue;
      const std::int64_t size = s.depth * (s.depth + 1) / 2;
      require<FormatError>(is_number(*gram) && gram->shape == std::vector<std::int64_t>{size},
                           ErrorCode::statistics,
                           "{}: {} is {} [{}], must be F32 or F64 [{}], the upper triangle of "
                           "[{}, {}]",
                           path().string(), printable(gram->name), dtype_name(gram->dtype),
                           fmt::join(gram->shape, ", "), size, s.depth, s.depth);
      s.triangle = static_cast<std::size_t>(gram - file_.tensors().data());
      s.gram = grams_ = true;
    }
  }

  /// Lists the experts: modules whose names differ only in the number of the expert.
  void find_experts() {
    std::map<std::pair<std::string, std::int64_t>, std::size_t> lists;  // keyed by name and K
    for (auto& [module, s] : modules_) {
      const std::string weight = without_expert_number(module);
      if (weight == module || !s.gram || s.count == 0) continue;
      const auto [it, is_new] = lists.try_emplace({weight, s.depth}, experts_.size());
      if (is_new) experts_.emplace_back();
      experts_[it->second].push_back(&s);
      s.experts = it->second;
    }
  }

  void find_caches() {
    constexpr std::string_view kKeys = ".k_cache.amax", kValues = ".v_cache.amax";
    for (const TensorInfo& t : file_.tensors()) {
      const bool keys = t.name.ends_with(kKeys);
      if (!keys && !t.name.ends_with(kValues)) continue;
      const std::string attention = t.name.substr(0, t.name.size() - kKeys.size());
      const double amax = scalar(t.name, "").value_or(-1);
      require<FormatError>(amax >= 0 && amax <= FLT_MAX, ErrorCode::statistics,
                           "{}: {} must be one number, finite and not negative", path().string(),
                           printable(t.name));
      (keys ? caches_[attention].k : caches_[attention].v) = static_cast<float>(amax);
      require<FormatError>(
          file_.find(fmt::format("{}{}", attention, keys ? kValues : kKeys)) != nullptr,
          ErrorCode::statistics, "{}: {} has no {} beside it", path().string(), printable(t.name),
          keys ? kValues : kKeys);
    }
  }

  static bool is_number(const TensorInfo& t) {
    return t.dtype == DType::f32 || t.dtype == DType::f64;
  }

  std::optional<double> scalar(const std::string& module, std::string_view suffix) const {
    const TensorInfo* info = file_.find(fmt::format("{}{}", module, suffix));
    if (info == nullptr || !is_number(*info) || info->bytes != bytes_of(*info)) return {};
    return read(*info)[0];
  }
  static std::uint64_t bytes_of(const TensorInfo& t) {
    return static_cast<std::uint64_t>(safetensors::dtype_bits(t.dtype)) / 8;
  }

  std::vector<double> read(const TensorInfo& info) const {
    std::vector<double> values(info.bytes / bytes_of(info));
    if (info.dtype == DType::f64) {
      file_.read(info, 0, std::as_writable_bytes(std::span(values)));
    } else {
      std::vector<float> floats(values.size());
      file_.read(info, 0, std::as_writable_bytes(std::span(floats)));
      std::ranges::copy(floats, values.begin());
    }
    // Making the name for a message of each value would take longer than factoring the matrix.
    const auto wrong = std::ranges::find_if_not(values, [](double v) { return std::isfinite(v); });
    if (wrong != values.end())
      throw FormatError(fmt::format("{}: {} holds {}, must be finite", path().string(),
                                    printable(info.name), *wrong));
    return values;
  }

  safetensors::File file_;
  std::map<std::string, InputStatistics, std::less<>> modules_;
  std::map<std::string, CacheAmax, std::less<>> caches_;
  bool grams_ = false;
  // The first list is for modules that are not experts.
  std::vector<std::vector<const InputStatistics*>> experts_{1};
};

}  // namespace

std::shared_ptr<const Statistics> open_own_statistics(const std::filesystem::path& path) {
  return std::make_shared<OwnStatistics>(path);
}

}  // namespace nvfp4::checkpoint
