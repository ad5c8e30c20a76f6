#include "nvfp4/error_codes.h"

#include <algorithm>
#include <new>
#include <nlohmann/json.hpp>

#include "nvfp4/error.h"

namespace nvfp4 {
namespace {

// A code stays with its meaning, and is never used again. docs/errors.md is made of this:
// nvfp4 help errors > docs/errors.md
constexpr ErrorCode kCodes[] = {
    {"NV0101", "IoError", "disk full", "the disk is full",
     "free space, then continue with --resume; or write elsewhere"},
    {"NV0102", "IoError", "no such file or folder|No such file or directory",
     "an input does not exist", "check the path; a relative path starts at the current folder"},
    {"NV0103", "IoError", "is not whole in the Hugging Face cache",
     "a model of the hub is not on this machine",
     "hf download ORG/MODEL, or give the path of a folder"},
    {"NV0104", "IoError", "must be empty; --overwrite", "the output folder is not empty",
     "name a new folder; --overwrite replaces a model, --resume continues an interrupted run"},
    {"NV0105", "IoError", "does not look like a model folder",
     "--overwrite names a folder that holds no model",
     "remove the folder yourself, or name another"},
    {"NV0106", "IoError", "another process is writing to it",
     "another run writes to the same output", "wait for the other run, or name another output"},
    {"NV0107", "IoError", "must be a regular file",
     "a folder, pipe, socket or device stands where a file must be", "give a file"},
    {"NV0108", "IoError", "is a file, must be a folder", "a file stands where a folder must be",
     "name a folder, or move the file away"},
    {"NV0109", "IoError", "missing, but the index names it", "a shard is missing",
     "download the model again: hf download ORG/MODEL"},
    {"NV0110", "IoError", "since it was opened",
     "a file of the input was replaced or modified after it was opened",
     "wait until nothing writes to the input, then run again"},
    {"NV0111", "IoError", "became shorter", "a file became shorter while it was read",
     "wait until nothing writes to the input, then run again"},
    {"NV0112", "IoError", "changed while it was read", "the input changed while it was read",
     "wait until nothing writes to the input, then run again"},
    {"NV0113", "IoError", "a link that leads nowhere", "a symbolic link of the model is broken",
     "download the model again; in the hub's cache its blob is missing"},
    {"NV0114", "IoError", "holds no .safetensors file", "the folder holds no weights",
     "give the folder that holds the .safetensors files"},
    {"NV0115", "IoError", "Permission denied", "the file system refused access",
     "change the permissions, or run as the owner of the files"},
    {"NV0199", "IoError", "", "the operating system refused to open, read, write or rename a file",
     "the message names the file and the reason"},

    {"NV0201", "FormatError", "incomplete, an interrupted run left it",
     "the folder is incomplete: an interrupted run left it",
     "run the command that wrote it again with --resume"},
    {"NV0202", "FormatError", "header length", "the header of a .safetensors file is damaged",
     "download the file again"},
    {"NV0203", "FormatError", "Git LFS", "the file is a Git LFS pointer, not its content",
     "git lfs pull, or hf download ORG/MODEL"},
    {"NV0204", "FormatError", "data_offsets", "tensors of a file overlap or leave gaps",
     "download the file again, or write it again with the program that made it"},
    {"NV0205", "FormatError", "tensors end at byte", "a .safetensors file is cut short or too long",
     "download the file again"},
    {"NV0206", "FormatError", "weight_map", "the index of the shards is damaged",
     "download model.safetensors.index.json again; nvfp4 repair writes a new one"},
    {"NV0207", "FormatError", "index files, must be one", "the folder has several indices",
     "remove those of other models"},
    {"NV0208", "FormatError", "appears twice, must be unique", "a name appears twice",
     "write the file again with the program that made it"},
    {"NV0209", "FormatError", "invalid JSON", "a file is not valid JSON",
     "correct the file at the byte that the message names"},
    {"NV0210", "FormatError", "JSON is nested deeper", "JSON is nested too deeply",
     "download the file again"},
    {"NV0211", "FormatError", "nvfp4 verify lists all",
     "weights have scales that are NaN, negative, far too large or without codes, or codes that "
     "are NaN",
     "nvfp4 repair corrects NVFP4; --force takes the values as they are"},
    {"NV0212", "FormatError", "cache of",
     "the folder is a part of the hub's cache that holds no model",
     "name the model, or the folder below snapshots/"},
    {"NV0213", "FormatError", "statistics", "a file of statistics is damaged",
     "write it again with nvfp4-calibrate"},
    {"NV0299", "FormatError", "", "a file breaks the rules of its format",
     "the message names file and tensor; nvfp4 verify says more, nvfp4 repair corrects NVFP4"},

    {"NV0301", "ValueError",
     "--resume:", "options or input differ from those of the interrupted run",
     "give the same options and input, or start again with --overwrite"},
    {"NV0302", "ValueError", "--resume cannot go on",
     "the output was written with other options, or from another input", "--overwrite replaces it"},
    {"NV0303", "ValueError", "must be one of", "the value is none of the choices",
     "give one that the message lists"},
    {"NV0304", "ValueError", "inside the input folder", "the output is inside the input",
     "name an output outside the input"},
    {"NV0305", "ValueError", "pattern:", "a pattern is invalid",
     "give an exact name, a glob, or re: and a regular expression; see nvfp4 help quantize"},
    {"NV0306", "ValueError", "holds no tensor", "no tensor has this name",
     "nvfp4 inspect PATH --json lists all names"},
    {"NV0307", "ValueError", "cannot be quantized:",
     "--include names a tensor that cannot be NVFP4", "leave it out of --include"},
    {"NV0308", "ValueError", "statistics of another model", "the statistics do not fit the model",
     "calibrate this model: nvfp4-calibrate"},
    {"NV0309", "ValueError", "which --statistics gives", "the quantizer needs statistics",
     "nvfp4-calibrate MODEL writes them; give the file with --statistics"},
    {"NV0310", "ValueError", "must be finite", "a value is infinite or NaN", "give finite values"},
    {"NV0399", "ValueError", "", "an argument or an element is outside its domain",
     "the message names argument, value and rule"},

    {"NV0401", "ShapeError", "must be a multiple of 16",
     "a length is not a multiple of 16, the size of a block",
     "pad the rows with zeros, or do not quantize the matrix"},
    {"NV0499", "ShapeError", "", "sizes, strides or layouts do not fit",
     "the message names argument, size and rule"},

    {"NV0501", "UnsupportedError", "device = ", "the GPU cannot be used",
     "nvfp4 --version --verbose says why; --device cpu gives the same bytes"},
    {"NV0502", "UnsupportedError", "cannot run here", "the processor lacks what a backend needs",
     "omit --backend: nvfp4 then takes the best one that runs here"},
    {"NV0503", "UnsupportedError", "cannot be repaired", "what was lost cannot be computed",
     "give the original model with --source"},
    {"NV0504", "UnsupportedError", "the input seems to be quantized",
     "the model is quantized in a form that nvfp4 does not read", "start from the model in BF16"},
    {"NV0505", "UnsupportedError", "has no name in", "llama.cpp has no name for a tensor",
     "write a folder instead of .gguf; --drop leaves out what GGUF has no place for"},
    {"NV0506", "UnsupportedError", "llama-gguf-split",
     "the file is one part of a model in several GGUF files",
     "llama-gguf-split --merge FIRST-PART WHOLE"},
    {"NV0599", "UnsupportedError", "", "the request is valid, but not supported here",
     "the message says what is supported"},

    {"NV0601", "DeviceError", "lies on", "arrays are on different devices",
     "move them to one device"},
    {"NV0602", "DeviceError", "out of memory", "the memory of the GPU is full",
     "close other programs on the GPU, or use --device cpu"},
    {"NV0699", "DeviceError", "", "the CUDA runtime or the driver reported an error",
     "check the GPU with nvidia-smi; --device cpu needs none"},

    {"NV0901", "usage", "", "the command line is wrong", "nvfp4 help COMMAND lists the options"},
    {"NV0902", "memory", "", "memory is full",
     "--threads 1 takes the least memory; close other programs"},
    {"NV0999", "internal", "", "a bug in nvfp4.cpp", "report it with the command and the message"},
};

std::string_view type_of(const std::exception& error) {
  if (dynamic_cast<const ShapeError*>(&error) != nullptr) return "ShapeError";
  if (dynamic_cast<const ValueError*>(&error) != nullptr) return "ValueError";
  if (dynamic_cast<const UnsupportedError*>(&error) != nullptr) return "UnsupportedError";
  if (dynamic_cast<const DeviceError*>(&error) != nullptr) return "DeviceError";
  if (dynamic_cast<const IoError*>(&error) != nullptr) return "IoError";
  if (dynamic_cast<const FormatError*>(&error) != nullptr) return "FormatError";
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return "memory";
  return "internal";
}

/// Whether one of the parts, with "|" between them, is in the text.
bool fits(std::string_view parts, std::string_view text) {
  for (std::size_t begin = 0; begin <= parts.size();) {
    const std::size_t end = std::min(parts.find('|', begin), parts.size());
    if (text.find(parts.substr(begin, end - begin)) != text.npos) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace

std::span<const ErrorCode> error_codes() { return kCodes; }

const ErrorCode& error_code(std::string_view type, std::string_view message) {
  const auto* found = std::ranges::find_if(
      kCodes, [&](const ErrorCode& c) { return c.type == type && fits(c.message, message); });
  return found == std::end(kCodes) ? *std::prev(std::end(kCodes)) : *found;
}

const ErrorCode& error_code(const std::exception& error) {
  return error_code(type_of(error), error.what());
}

std::string error_json(const ErrorCode& code, std::string_view message) {
  const nlohmann::ordered_json json = {
      {"error",
       {{"code", code.code}, {"type", code.type}, {"message", message}, {"fix", code.fix}}}};
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace nvfp4
