#include "checkpoint/formats/unread_forms.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <string_view>

#include "checkpoint/match/pattern.h"
#include "core/printable.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

using safetensors::DType;
using enum safetensors::DType;

/// A form of quantized weights that is not supported. Suffixes follow the module's name.
struct UnreadForm {
  std::string_view name;                   ///< name of the form, for messages
  std::string_view codes;                  ///< suffix of the tensor named in messages
  std::string_view beside = {};            ///< suffix of a tensor that must exist, if any
  std::optional<DType> beside_dtype = {};  ///< required dtype of that tensor, if any
};

// The first row that fits is named. Sources: the programs that write them (modelopt, AutoGPTQ,
// AutoAWQ, nunchaku, compressed-tensors, auto-round, bitsandbytes, mlx, ComfyUI, hqq, AQLM,
// exllamav2 and v3, quip-sharp, DFloat11).
constexpr UnreadForm kUnreadForms[] = {
    {"AWQ of ModelOpt", ".pre_quant_scale"},
    {"SVDQuant of ModelOpt", ".svdquant_lora_a"},
    {"SVDQuant of ModelOpt", ".svdquant_lora_b"},
    {"SVDQuant of nunchaku", ".qweight", ".wscales"},
    {"GPTQ or AWQ", ".qweight"},
    {"packed integers of compressed-tensors", ".weight_packed", ".weight_shape"},
    {"NVFP4 with E5M3 block scales, of AutoRound", ".weight_packed", ".weight_scale", u8},
    {"packed codes of compressed-tensors", ".weight_packed", ".weight_scale"},
    {"a stack of compressed-tensors", "_packed", "_scale"},
    {"bitsandbytes", ".weight", ".weight.absmax"},
    {"bitsandbytes, INT8", ".weight", ".SCB"},
    {"MLX, affine", ".weight", ".biases"},
    {"MLX, nvfp4 with a global scale", ".weight", ".global_scale"},
    {"MLX, mxfp4 or mxfp8", ".weight", ".scales", u8},
    {"MLX", ".weight", ".scales"},
    {"MLX, scales without codes", ".scales"},
    {"scaled FP8 of ComfyUI", ".weight", ".scale_weight"},
    {"HQQ", ".W_q"},
    {"AQLM", ".codes", ".codebooks"},
    {"EXL2", ".q_weight"},
    {"EXL3", ".trellis"},
    {"QuIP#", ".Qidxs"},
    {"DFloat11", ".encoded_exponent"},
    {"sparse weights of compressed-tensors", ".bitmask", ".compressed"},
};

/// The last parts of names of tensors that are copied with any dtype: they are not codes.
constexpr std::string_view kKnownOthers =
    "comfy_quant "                               // ComfyUI, comfy/ops.py: JSON as bytes
    "spiece_model tekken_model tokenizer_json "  // ComfyUI, comfy/sd.py: tokenizers as bytes
    "tid2eid "                                   // DeepSeek-V4, inference/model.py: Gate
    "attn.bias attention.bias self_attn.bias masked_bias causal_mask attn_mask "  // masks
    "position_ids token_type_ids "  // transformers: buffers of BERT, CLIP
    "relative_position_index "      // transformers: buffers of Swin, BEiT
    "weight_shape qzeros g_idx "    // compressed-tensors, GPTQ: beside packed integers
    "num_batches_tracked";          // torch.nn.BatchNorm

/// Values of "quant_method" of programs that write codes, so that plain weights are plain. Others
/// may change the weights at load time.
constexpr std::string_view kMethodsOfCodes =
    "auto-round awq awq_marlin bitsandbytes compressed-tensors eetq fbgemm_fp8 fp8 gptq "
    "gptq_marlin hqq mlx modelopt modelopt_fp4 modelopt_mixed mxfp4 nvfp4 quanto quark torchao";

bool is_any(DType dtype, std::initializer_list<DType> list) {
  return std::ranges::find(list, dtype) != list.end();
}

bool is_plain_float(DType dtype) { return is_any(dtype, {f64, f32, bf16, f16}); }

bool is_integer(DType dtype) { return is_any(dtype, {u8, i8, u16, i16, u32, i32, u64, i64}); }

/// Reports whether orphan_scales() reports such a scale.
bool has_own_error(std::string_view last) {
  return last == "scale" || last == "weight_scale" || last == "weight_scale_2" ||
         last == "weight_scale_inv" || last == "weight_global_scale" || last == "input_scale" ||
         last == "input_global_scale";
}

/// Reports whether the name ends in these parts, as whole parts.
bool ends_in(std::string_view name, std::string_view parts) {
  return name == parts || (name.size() > parts.size() && name.ends_with(parts) &&
                           name[name.size() - parts.size() - 1] == '.');
}

bool is_known_other(const StoredTensor& t) {
  return std::ranges::any_of(split_name(kKnownOthers, ' '),
                             [&](std::string_view known) { return ends_in(t.info->name, known); });
}

std::optional<Defect> named_form(const TensorTable& table, const StoredTensor& t) {
  const std::string& name = t.info->name;
  for (const UnreadForm& form : kUnreadForms) {
    if (!name.ends_with(form.codes)) continue;
    if (form.beside.empty()) return unread_weight(t, {}, form.name);
    const std::string module = name.substr(0, name.size() - form.codes.size());
    const StoredTensor beside = table.find(module + std::string(form.beside));
    if (beside && (!form.beside_dtype || beside.info->dtype == form.beside_dtype))
      return unread_weight(t, beside, form.name);
  }
  return std::nullopt;
}

/// Returns the tensor with the scales of a weight by name, or null.
StoredTensor scales_beside(const TensorTable& table, const std::string& name) {
  for (const char* suffix : {"_scale", "_scale_inv", "_scales", "_weight_scale"})
    if (const StoredTensor found = table.find(name + suffix)) return found;
  const std::string module = name.substr(0, name.rfind('.') + 1);
  if (module.empty()) return {};
  for (const char* part : {"scale", "scales", "weight_scale", "wscales"})
    if (const StoredTensor found = table.find(module + part); found && found.info->name != name)
      return found;
  return {};
}

/// Reports whether the last part of a name is one that programs give to scales.
bool is_scale_name(std::string_view last) {
  return last.find("scal") != last.npos || last.find("amax") != last.npos ||
         last.find("absmax") != last.npos || last == "s" || last.starts_with("s_") ||
         last.ends_with("_s");
}

std::string_view last_part(std::string_view name) { return name.substr(name.rfind('.') + 1); }

/// Reports whether the name is that of SmoothQuant's factors of a layer's inputs.
bool is_smoothing(std::string_view name) { return last_part(name).find("smooth") != name.npos; }

/// Reports whether a tensor of floats corrects a weight, which is wrong without it.
bool is_correction(const TensorTable& table, std::string_view name) {
  const std::string_view last = last_part(name);
  if (last == "pre_quant_scale" || last.starts_with("svdquant_lora_")) return true;
  const std::string module(owner_of(name));
  return is_smoothing(name) &&
         (table.find(module + ".weight") || table.find(module + ".weight_packed"));
}

bool is_four_bits(DType dtype) {
  return dtype == DType::u8 || dtype == DType::i8 || dtype == DType::f4;
}

}  // namespace

std::string_view owner_of(std::string_view name) {
  std::string_view last;
  do {
    name = name.substr(0, std::min(name.rfind('.'), name.size()));
    last = last_part(name);
  } while (name.find('.') != name.npos &&
           (last == "weight" || last.starts_with('_') || last.ends_with("_quantizer")));
  return name;
}

bool is_zero_point(std::string_view name) {
  const std::string_view last = last_part(name);
  return last.find("zero") != last.npos || last.ends_with("_zp");
}

bool is_companion(std::string_view name) {
  const std::string_view last = last_part(name);
  return (is_scale_name(last) || is_zero_point(last) || last == "weight_shape") &&
         last != "pre_quant_scale" && !is_smoothing(last);
}

std::string form_of(const StoredTensor& t) {
  return fmt::format("{} [{}]", safetensors::dtype_name(t.info->dtype),
                     fmt::join(t.info->shape, ", "));
}

Defect unread_weight(const StoredTensor& t, const StoredTensor& beside, std::string_view form) {
  return {
      "unknown-form", t.info->name,
      fmt::format("{}: {}{}, the input seems to be quantized: {}", t.describe(), form_of(t),
                  beside ? fmt::format(" beside '{}'", printable(beside.info->name)) : "", form),
      std::string(form)};
}

std::optional<Defect> unread_declaration(const Declared& declared,
                                         std::span<const LogicalTensor> tensors) {
  std::vector<std::string_view> formats = {declared.format};
  for (const DeclaredGroup& group : declared.groups) formats.push_back(group.format);
  const auto defect = [](const std::string& file, const std::string& text, std::string form) {
    return Defect{"unknown-form", std::filesystem::path(file).filename().string(),
                  fmt::format("{}: {}", file, text), std::move(form)};
  };
  for (const std::string_view format : formats)
    if (format.starts_with("nvfp4") && format != "nvfp4-pack-quantized")
      return defect(declared.file,
                    fmt::format("format = '{}', must be nvfp4-pack-quantized", printable(format)),
                    std::string(format));
  if (declared.unread)
    return defect(declared.unread->file, declared.unread->text, declared.unread->form);
  const std::string& method = declared.method;
  const auto methods = split_name(kMethodsOfCodes, ' ');
  if (method.empty() || std::ranges::find(methods, method) != methods.end() ||
      !std::ranges::all_of(tensors, &LogicalTensor::is_plain))
    return std::nullopt;
  return defect(declared.file,
                fmt::format("quant_method = '{}' is not known, and no weight is quantized in a "
                            "known way: must be one of {}; hint: remove quantization_config if "
                            "the weights are plain",
                            printable(method), fmt::join(methods, ", ")),
                method);
}

ModuleScales unread_scales(const TensorTable& table, const ReadParts& read) {
  ModuleScales scales;
  for (const StoredTensor& t : table.all()) {
    const std::string_view name = t.info->name;
    if (is_plain_float(t.info->dtype) && !read.contains(t.info) && name.find('.') != name.npos &&
        is_scale_name(last_part(name)))
      scales.emplace(owner_of(name), t);
  }
  return scales;
}

std::optional<Defect> find_unread_weight(const TensorTable& table, const StoredTensor& t,
                                         const ModuleScales& module_scales) {
  const std::string& name = t.info->name;
  const DType dtype = t.info->dtype;
  const std::string_view last = last_part(name);
  const bool correction = is_plain_float(dtype) && is_correction(table, name);
  // Files of other formats have types of their own.
  if ((is_plain_float(dtype) && !correction) || is_known_other(t)) return {};
  if (t.file->container() != "safetensors" || t.info->bytes == 0) return {};
  if (auto found = named_form(table, t)) return found;
  if (correction) return unread_weight(t, {}, "SmoothQuant");
  if (last.find("scale") != last.npos) {
    const StoredTensor weight = table.find(std::string(owner_of(name)) + ".weight");
    if (!weight || has_own_error(last)) return {};
    return unread_weight(t, weight, "scales of codes that are not there");
  }
  const bool is_matrix = t.info->shape.size() >= 2;
  if (is_matrix)
    if (const StoredTensor scales = scales_beside(table, name))
      return unread_weight(t, scales,
                           fmt::format("{} with scales", safetensors::dtype_name(dtype)));
  if (const auto found = module_scales.find(owner_of(name)); found != module_scales.end())
    return unread_weight(t, found->second,
                         fmt::format("{} with scales", safetensors::dtype_name(dtype)));
  if (is_any(dtype, {f8_e4m3, f8_e5m2})) return {};  // without scales these are values
  const bool has_weight_name = last.find("weight") != last.npos && last != "weight_shape";
  if (last == "weight" || (has_weight_name && (is_matrix || is_integer(dtype))) ||
      (is_matrix && is_any(dtype, {u8, i8, boolean})))
    return unread_weight(t, {}, "codes without scales that are known");
  if (is_any(dtype, {f4, f6_e2m3, f6_e3m2, f8_e8m0, f8_e4m3fnuz, f8_e5m2fnuz}))
    return unread_weight(t, {}, "values of a dtype that is not read");
  return {};
}

bool is_lost_native(const StoredTensor& t) {
  return is_four_bits(t.info->dtype) && t.info->name.ends_with(".weight") &&
         t.info->shape.size() >= 2;
}

std::string lost_scales_of(const TensorTable& table, const StoredTensor& t) {
  const std::string& name = t.info->name;
  if (!is_four_bits(t.info->dtype) || !name.ends_with(".weight_packed")) return {};
  std::string scales = name.substr(0, name.rfind('_')) + "_scale";
  return table.find(scales) ? std::string() : scales;
}

bool is_unknown_integer(const StoredTensor& t) {
  return is_integer(t.info->dtype) && safetensors::dtype_bits(t.info->dtype) <= 32 &&
         !is_known_other(t) && t.file->container() == "safetensors";
}

}  // namespace nvfp4::checkpoint
