#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>

#include "checkpoint/formats/format.h"
#include "checkpoint/match/pattern.h"
#include "checkpoint/source/model_folder.h"
#include "core/printable.h"
#include "nvfp4/error.h"

namespace nvfp4::checkpoint {
namespace {

bool is_bare(const LogicalTensor& t) {
  return t.is_bare_fp8() && t.name.ends_with(".weight") && t.shape.size() >= 2;
}

bool says_fp8(const Declared* declared) {
  const Declared& d = *declared;
  return d.method.find("fp8") != std::string::npos || d.algorithm.starts_with("FP8") ||
         std::ranges::any_of(d.layers,
                             [](const auto& layer) { return layer.second.starts_with("FP8"); }) ||
         std::ranges::any_of(d.groups,
                             [](const DeclaredGroup& g) { return g.is_float && g.bits == 8; });
}

/// Adds weights of DeepSeek-V4 without MXFP4 exponents if other weights have theirs.
void add_lost_exponents(std::span<const LogicalTensor> tensors, std::vector<Defect>& lost) {
  using enum safetensors::DType;
  const auto whole = std::ranges::find_if(tensors, [](const LogicalTensor& t) {
    return t.encoding() == Encoding::mxfp4 && t.names->is_native;
  });
  if (whole == tensors.end()) return;
  for (const LogicalTensor& t : tensors) {
    const safetensors::DType dtype = t.data.info->dtype;
    if (t.is_plain() && t.name.ends_with(".weight") && t.shape.size() >= 2 &&
        (dtype == i8 || dtype == u8 || dtype == f4))
      lost.push_back({"missing-scale", t.name,
                      fmt::format("{}: {} and no '{}.scale' beside it, though '{}' has one",
                                  t.data.describe(), safetensors::dtype_name(dtype),
                                  printable(t.module()), printable(whole->name))});
  }
}

}  // namespace

std::vector<Defect> lost_fp8_scales(std::span<const LogicalTensor> tensors,
                                    std::span<const Declared* const> declared) {
  std::set<std::string> suffixes;  // suffixes of the scales of the model's other weights
  std::string reason;
  for (const LogicalTensor& t : tensors) {
    if (t.encoding() != Encoding::fp8) continue;
    if (reason.empty()) reason = fmt::format("'{}' has one", printable(t.name));
    suffixes.emplace(t.names->scales);
  }
  if (const auto d = std::ranges::find_if(declared, says_fp8); d != declared.end())
    reason = fmt::format("{} says that weights are FP8", (*d)->file);
  std::vector<Defect> lost;
  add_lost_exponents(tensors, lost);
  if (reason.empty()) return lost;
  if (suffixes.empty())
    for (const CheckpointFormat* format : all_formats())
      for (const WeightNames* names : format->reads)
        if (names->encoding == Encoding::fp8 && !names->is_native && !names->stacks)
          suffixes.emplace(names->scales);

  for (const LogicalTensor& t : tensors) {
    if (!is_bare(t)) continue;
    std::vector<std::string> names;
    names.reserve(suffixes.size());
    for (const std::string& suffix : suffixes)
      names.push_back(fmt::format("'{}{}'", printable(t.module()), suffix));
    lost.push_back({"missing-scale", t.name,
                    fmt::format("{}: F8_E4M3 and no {} beside it, though {}", t.data.describe(),
                                fmt::join(names, " or "), reason)});
  }
  return lost;
}

void require_fp8_scales(std::span<const LogicalTensor> tensors, std::span<const Defect> unknown,
                        std::span<const Declared* const> declared) {
  std::set<std::string_view> unknown_modules;
  for (const Defect& u : unknown) {
    unknown_modules.insert(module_of(u.tensor));
    unknown_modules.insert(std::string_view(u.tensor).substr(0, u.tensor.rfind('.')));
  }
  for (const Defect& lost : lost_fp8_scales(tensors, declared))
    if (!unknown_modules.contains(module_of(lost.tensor))) throw FormatError(lost.text);
}

std::vector<Defect> orphan_scales(std::span<const LogicalTensor> tensors,
                                  const std::set<std::string>& unknown) {
  std::unordered_set<std::string_view> fp8;  // FP8 weights may have scales of several names
  for (const LogicalTensor& t : tensors)
    if (t.name.ends_with(".weight") && t.data.info->dtype == safetensors::DType::f8_e4m3)
      fp8.insert(module_of(t.name));
  constexpr std::string_view kOfModules[] = {".weight_scale",
                                             ".weight_scale_2",
                                             ".weight_global_scale",
                                             ".weight_scale_inv",
                                             ".input_global_scale",
                                             ".input_scale",
                                             ".qzeros"};
  constexpr std::string_view kOfStacks[] = {"_weight_scale", "_weight_scale_2", "_scales"};
  const auto is_orphan = [&](std::string_view name) {
    for (const std::string_view suffix : kOfModules) {
      if (!name.ends_with(suffix)) continue;
      const std::string_view module = name.substr(0, name.size() - suffix.size());
      return !fp8.contains(module) && !unknown.contains(std::string(module));
    }
    for (const std::string_view suffix : kOfStacks) {
      if (!name.ends_with(suffix)) continue;
      const std::string_view stack = name.substr(0, name.size() - suffix.size());
      return stack.ends_with("_proj") && !unknown.contains(std::string(stack));
    }
    return false;
  };
  std::vector<Defect> orphans;
  const auto is_orphan_of_native = [&](const LogicalTensor& t) {
    return t.name.ends_with(".scale") && t.data.info->dtype == safetensors::DType::f8_e8m0 &&
           !unknown.contains(t.name.substr(0, t.name.rfind('.')));
  };
  for (const LogicalTensor& t : tensors)
    if (t.is_plain() && (is_orphan(t.name) || is_orphan_of_native(t)))
      orphans.push_back({"orphan-scale", t.name,
                         fmt::format("{}: no quantized weight beside it", t.data.describe())});
  return orphans;
}

}  // namespace nvfp4::checkpoint
