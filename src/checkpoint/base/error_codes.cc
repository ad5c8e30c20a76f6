#include "checkpoint/base/error_codes.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "checkpoint/base/json.h"
#include "platform/files.h"

namespace nvfp4 {
namespace {

// A code keeps its meaning and is never reused.
constexpr ErrorInfo kCodes[] = {
    {ErrorCode::disk_full, "IoError", "the disk is full",
     "free space, then run again, with --resume if the command has it; or write elsewhere"},
    {ErrorCode::not_found, "IoError", "an input does not exist",
     "check the path; a relative path starts at the current folder"},
    {ErrorCode::not_in_hub_cache, "IoError", "a model of the hub is not on this machine",
     "hf download ORG/MODEL, or give the path of a folder"},
    {ErrorCode::output_not_empty, "IoError", "the output folder is not empty",
     "name a new folder; --overwrite replaces what nvfp4 wrote"},
    {ErrorCode::output_no_model, "IoError",
     "--overwrite or --resume meets a file that nvfp4 did not write, or that was changed since",
     "remove it yourself, or name another output"},
    {ErrorCode::output_busy, "IoError", "another run writes to the same output",
     "wait for the other run, or name another output"},
    {ErrorCode::not_a_file, "IoError",
     "a folder, pipe, socket or device stands where a file must be", "give a file"},
    {ErrorCode::not_a_folder, "IoError", "a file stands where a folder must be",
     "name a folder, or move the file away"},
    {ErrorCode::shard_missing, "IoError", "a shard is missing",
     "download the model again: hf download ORG/MODEL"},
    {ErrorCode::input_replaced, "IoError",
     "a file of the input was replaced or modified after it was opened",
     "wait until nothing writes to the input, then run again"},
    {ErrorCode::input_shortened, "IoError", "a file became shorter while it was read",
     "wait until nothing writes to the input, then run again"},
    {ErrorCode::input_changed, "IoError", "the input changed while it was read",
     "wait until nothing writes to the input, then run again"},
    {ErrorCode::broken_link, "IoError", "a symbolic link of the model is broken",
     "download the model again; in the hub's cache its blob is missing"},
    {ErrorCode::no_weights, "IoError", "the folder holds no weights",
     "give the folder that holds the .safetensors files"},
    {ErrorCode::access_denied, "IoError", "the file system refused access",
     "change the permissions, or run as the owner of the files"},
    {ErrorCode::io, "IoError", "the operating system refused to open, read, write or rename a file",
     "check the disk, the path and its permissions, then run again"},

    {ErrorCode::incomplete, "FormatError", "the folder is incomplete: an interrupted run left it",
     "run the command that wrote it again with --resume"},
    {ErrorCode::header, "FormatError", "the header of a .safetensors file is damaged",
     "download the file again, or give a model folder, a .safetensors or a .gguf file"},
    {ErrorCode::lfs_pointer, "FormatError", "the file is a Git LFS pointer, not its content",
     "git lfs pull, or hf download ORG/MODEL"},
    {ErrorCode::tensor_ranges, "FormatError", "tensors of a file overlap or leave gaps",
     "download the file again, or write it again with the program that made it"},
    {ErrorCode::cut_short, "FormatError", "a file of weights is cut short or too long",
     "download the file again"},
    {ErrorCode::index, "FormatError", "the index of the shards is damaged",
     "download model.safetensors.index.json again; nvfp4 repair writes a new one"},
    {ErrorCode::several_indices, "FormatError", "the folder has several indices",
     "remove those of other models"},
    {ErrorCode::duplicate_name, "FormatError", "a name appears twice",
     "write the file again with the program that made it"},
    {ErrorCode::invalid_json, "FormatError", "a file is not valid JSON",
     "correct the file at the byte that the message names"},
    {ErrorCode::deep_json, "FormatError", "JSON is nested too deeply", "download the file again"},
    {ErrorCode::faulty_values, "FormatError",
     "weights have scales that are NaN, negative, far too large or without codes, or codes that "
     "are NaN",
     "nvfp4 repair corrects NVFP4; --allow broken-scales takes the values as they are"},
    {ErrorCode::cache_without_model, "FormatError",
     "the folder is a part of the hub's cache that holds no model",
     "name the model, or the folder below snapshots/"},
    {ErrorCode::statistics, "FormatError", "a file of statistics is damaged",
     "write it again with nvfp4 calibrate"},
    {ErrorCode::format, "FormatError", "a file breaks the rules of its format",
     "correct the file; of a checkpoint nvfp4 verify says more, and nvfp4 repair corrects NVFP4"},

    {ErrorCode::resume_differs, "ValueError",
     "options or input differ from those of the interrupted run",
     "give the same options and input, or start again with --overwrite"},
    {ErrorCode::output_differs, "ValueError",
     "the output was written with other options, or from another input", "--overwrite replaces it"},
    {ErrorCode::not_a_choice, "ValueError", "the value is not one of the choices",
     "nvfp4 help COMMAND explains the choices"},
    {ErrorCode::output_in_input, "ValueError",
     "an output path is inside an input path, or the other way round", "write to another place"},
    {ErrorCode::pattern, "ValueError", "a pattern is invalid",
     "give an exact name, a glob, or re: and a regular expression; see nvfp4 help quantize"},
    {ErrorCode::no_such_tensor, "ValueError", "no tensor has this name",
     "nvfp4 inspect PATH --json lists all names"},
    {ErrorCode::not_quantizable, "ValueError", "--include names a tensor that cannot be NVFP4",
     "leave it out of --include"},
    {ErrorCode::other_statistics, "ValueError", "the statistics do not fit the model",
     "calibrate this model: nvfp4 calibrate"},
    {ErrorCode::no_statistics, "ValueError", "the method needs statistics",
     "nvfp4 calibrate MODEL --text TEXT --out FILE --keep-gram writes them; give FILE with "
     "--statistics"},
    {ErrorCode::not_finite, "ValueError", "a value is infinite or NaN", "give finite values"},
    {ErrorCode::value, "ValueError", "an argument or an element is outside its domain",
     "give a value that the message allows"},

    {ErrorCode::partial_block, "ShapeError", "a length is not a multiple of the block size, 16",
     "pad the rows with zeros, or do not quantize the matrix"},
    {ErrorCode::shape, "ShapeError", "sizes, strides or layouts do not fit",
     "give sizes that the message allows"},

    {ErrorCode::device_unavailable, "UnsupportedError", "the GPU cannot be used",
     "nvfp4 --version --verbose says why"},
    {ErrorCode::backend_unavailable, "UnsupportedError",
     "the CPU lacks instructions of the backend",
     "omit --backend: nvfp4 then takes the best one that runs here"},
    {ErrorCode::not_repairable, "UnsupportedError", "a lost value cannot be computed",
     "give the original model with --source"},
    {ErrorCode::already_quantized, "UnsupportedError",
     "the model is quantized in a format that nvfp4 does not read", "start from the model in BF16"},
    {ErrorCode::no_gguf_name, "UnsupportedError", "llama.cpp has no name for a tensor",
     "write a folder instead of .gguf; --allow drop leaves out what GGUF has no place for"},
    {ErrorCode::gguf_part, "UnsupportedError",
     "the file is one part of a model in several GGUF files",
     "llama-gguf-split --merge FIRST-PART WHOLE"},
    {ErrorCode::unsupported, "UnsupportedError", "the request is valid, but not supported here",
     "change the option or input that the message names"},

    {ErrorCode::other_device, "DeviceError", "arrays are on different devices",
     "move them to one device"},
    {ErrorCode::device_memory, "DeviceError", "the memory of the GPU is full",
     "close other programs on the GPU, or use --device cpu"},
    {ErrorCode::device, "DeviceError", "the CUDA runtime or the driver reported an error",
     "check the GPU with nvidia-smi; --device cpu needs none"},

    {ErrorCode::usage, "usage", "the command line is wrong",
     "nvfp4 help COMMAND lists the options"},
    {ErrorCode::memory, "memory", "memory is full",
     "--threads 1 takes the least memory; close other programs"},
    {ErrorCode::internal, "internal", "a bug in nvfp4.cpp",
     "report it with the command and the message"},
};

}  // namespace

std::string ErrorInfo::name() const { return fmt::format("NV{:04}", static_cast<int>(code)); }

std::span<const ErrorInfo> error_codes() { return kCodes; }

const ErrorInfo& error_info(ErrorCode code) {
  return *std::ranges::find(kCodes, code, &ErrorInfo::code);
}

ErrorCode error_code(const std::exception& error) {
  if (const auto* ours = dynamic_cast<const Error*>(&error)) return ours->code;
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return ErrorCode::memory;
  return ErrorCode::internal;
}

ErrorCode error_code(const std::error_code& reason) {
  if (platform::is_disk_full(reason.value())) return ErrorCode::disk_full;
  if (reason == std::errc::permission_denied) return ErrorCode::access_denied;
  if (reason == std::errc::no_such_file_or_directory) return ErrorCode::not_found;
  return ErrorCode::io;
}

ErrorText error_text(ErrorCode code, std::string_view message) {
  constexpr std::string_view kHint = "; hint: ";
  const std::size_t at = message.rfind(kHint);
  if (at == message.npos) return {std::string(message), std::string(error_info(code).fix)};
  return {std::string(message.substr(0, at)), std::string(message.substr(at + kHint.size()))};
}

std::string error_json(ErrorCode code, std::string_view message) {
  const ErrorInfo& info = error_info(code);
  const auto [text, hint] = error_text(code, message);
  const Json json = {
      {"error", {{"code", info.name()}, {"type", info.type}, {"message", text}, {"fix", hint}}}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace nvfp4
