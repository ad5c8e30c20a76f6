#include "checkpoint/plan/steps.h"
#include "core/printable.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

/// Returns the spec of a cache scale: FP32, with the name and the shape of the format.
safetensors::TensorSpec cache_scale_spec(const CheckpointFormat& format, const CacheScale& scale) {
  const CacheScaleNames& names = *format.cache_scales;
  return {scale.attention + std::string(scale.key ? names.key : names.value),
          safetensors::DType::f32,
          names.vector ? std::vector<std::int64_t>{1} : std::vector<std::int64_t>{}};
}

const LogicalTensor* any_of(const ModelFolder& model, const CacheScales& found) {
  for (const LogicalTensor& t : model.tensors)
    if (found.find(t)) return &t;
  return nullptr;
}

}  // namespace

PlannedCacheScales::PlannedCacheScales(const ModelFolder& model, const CacheScales& found,
                                       const Statistics* statistics, const CheckpointFormat* format,
                                       std::string_view type)
    : type_(type), format_(format), all_(model.files.size()) {
  if (format == nullptr && !type.empty() && any_of(model, found) != nullptr) found_ = &found;
  declared_ = !type.empty() && format != nullptr && format->declares_kv_cache != nullptr &&
              format->declares_kv_cache(type);
  if (!declared_ || format->cache_scales == nullptr) return;
  given_ = any_of(model, found) != nullptr;
  if (statistics == nullptr) return;
  unused_ = given_ && !statistics->caches().empty();
  if (given_) return;
  std::map<std::string, CacheAmax, std::less<>> left(statistics->caches().begin(),
                                                     statistics->caches().end());
  asked_ = left.size();
  for (std::size_t i = 0; i < model.tensors.size() && !left.empty(); ++i) {
    const std::string_view module = module_of(model.tensors[i].name);
    const auto it = left.find(module.substr(0, std::min(module.size(), module.rfind('.'))));
    if (it == left.end()) continue;
    all_[model.file_of[i]].push_back({it->first, it->second});
    left.erase(it);
  }
  if (!left.empty()) absent_ = left.begin()->first;
}

bool PlannedCacheScales::leaves_out(const LogicalTensor& tensor) const {
  return found_ != nullptr && found_->find(tensor);
}

std::vector<std::string> PlannedCacheScales::lost() const {
  if (found_ == nullptr) return {};
  return {
      fmt::format("the scales of keys and values are left out, since the output does not declare "
                  "their cache in "
                  "{}",
                  printable(type_))};
}

void PlannedCacheScales::add(std::size_t first_file, std::size_t end_file,
                             PlannedShard& shard) const {
  for (std::size_t f = first_file; f < end_file; ++f)
    for (const Attention& attention : all_[f])
      for (const bool key : {true, false}) {
        const float amax = key ? attention.amax.k : attention.amax.v;
        shard.cache_scales.push_back({shard.specs.size(), amax});
        shard.specs.push_back(cache_scale_spec(*format_, {attention.name, key}));
      }
}

std::vector<std::string> PlannedCacheScales::warnings(bool asked) const {
  if (unused_)
    return {
        "the model has scales of keys and values: those of the statistics are left out, also "
        "for attentions that have none"};
  if (type_.empty() || given_) return {};
  if (!declared_)
    return {fmt::format("keys and values are to be cached in {}, which {} cannot declare", type_,
                        format_->name)};
  if (asked && asked_ == 0)
    return {
        fmt::format("keys and values are to be cached in {}, and their amax is not known: loaders "
                    "use the scale 1, "
                    "as after ModelOpt's recipes *-kv_fp8_cast; --statistics of "
                    "nvfp4 calibrate gives others",
                    type_)};
  if (!absent_.empty())
    return {fmt::format("the statistics have keys and values of {}, which the model does not have",
                        printable(absent_))};
  return {};
}

std::string cache_type_of_output(const ModelFolder& model, const CacheScales& found,
                                 const TransformOptions& options, const CheckpointFormat* format,
                                 const std::optional<Declared>& declared) {
  const bool of_recipe = options.layers != nullptr && !options.layers->kv_cache.empty();
  const CacheType input = declared ? cache_type(*declared) : CacheType();
  std::string type = of_recipe ? options.layers->kv_cache : input.name;
  if (input.is_known || format == nullptr || format->declares_kv_cache == nullptr) return type;
  constexpr std::string_view kKnown =
      "FP8 with one fixed scale for all keys and one for all values, and NVFP4";
  require<UnsupportedError>(of_recipe,
                            "{}: keys and values are cached in {}, {} is written with {} alone; "
                            "without that entry and its scales they stay as they are",
                            model.root.string(), printable(input.name), format->name, kKnown);
  const LogicalTensor* scale = any_of(model, found);
  require<UnsupportedError>(scale == nullptr,
                            "{}: keys and values are cached in {}, and {} is a scale of that; the "
                            "recipe's kv_cache takes those of {}",
                            model.root.string(), printable(input.name),
                            scale != nullptr ? printable(scale->name) : "", kKnown);
  return type;
}

void rename_cache_scale(const CheckpointFormat* format, const CacheScale& scale,
                        safetensors::TensorSpec& spec) {
  if (format == nullptr || format->cache_scales == nullptr) return;
  const safetensors::DType dtype = spec.dtype;
  spec = cache_scale_spec(*format, scale);
  spec.dtype = dtype;
}

}  // namespace nvfp4::checkpoint
