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
     "free space, or write elsewhere; --resume goes on with what is finished"},
    {"NV0102", "IoError", "no such file or folder|No such file or directory",
     "an input is not there", "check the path; a relative one counts from the current folder"},
    {"NV0103", "IoError", "is not whole in the Hugging Face cache",
     "a model of the hub is not on this machine",
     "hf download ORG/MODEL, or give the path of a folder"},
    {"NV0104", "IoError", "must be empty; --overwrite", "the output folder holds something",
     "name a new folder; --overwrite replaces a model, --resume goes on with an interrupted run"},
    {"NV0105", "IoError", "does not look like a model folder",
     "--overwrite of a folder that holds no model", "remove the folder yourself, or name another"},
    {"NV0106", "IoError", "another process is writing to it", "two runs have the same output",
     "wait for the other run, or name another output"},
    {"NV0107", "IoError", "must be a regular file",
     "a folder, pipe, socket or device in the place of a file", "give a file"},
    {"NV0108", "IoError", "is a file, must be a folder", "a file in the place of a folder",
     "name a folder, or move the file away"},
    {"NV0109", "IoError", "missing, but the index names it", "a shard is missing",
     "download the model again: hf download ORG/MODEL"},
    {"NV0110", "IoError", "since it was opened", "the input changed while it was read",
     "wait until nothing writes to the input, then run again"},
    {"NV0111", "IoError", "became shorter", "a file was cut short while it was read",
     "wait until nothing writes to the input, then run again"},
    {"NV0112", "IoError", "changed while it was read", "the input changed while it was read",
     "wait until nothing writes to the input, then run again"},
    {"NV0113", "IoError", "a link that leads nowhere", "a symbolic link of the model is broken",
     "download the model again; in the hub's cache its blob is missing"},
    {"NV0114", "IoError", "holds no .safetensors file", "a folder without weights",
     "give the folder that holds the .safetensors files"},
    {"NV0115", "IoError", "Permission denied", "the file system refused",
     "change the permissions, or run as the owner of the files"},
    {"NV0116", "IoError", "Hugging Face Hub:|from the hub has ended",
     "a download from the hub, or an upload, failed",
     "the message has the hub's reason; --resume goes on with what has arrived"},
    {"NV0199", "IoError", "", "the operating system refused to open, read, write or rename a file",
     "the message names the file and the reason"},

    {"NV0201", "FormatError", "incomplete, an interrupted run left it",
     "the folder is what an interrupted run left",
     "run the command that wrote it again with --resume"},
    {"NV0202", "FormatError", "header length", "the header of a .safetensors file is damaged",
     "download the file again; a pointer of Git LFS is no weight file"},
    {"NV0203", "FormatError", "Git LFS", "a pointer of Git LFS in the place of a file",
     "git lfs pull, or hf download ORG/MODEL"},
    {"NV0204", "FormatError", "data_offsets", "tensors of a file overlap or leave gaps",
     "download the file again, or write it again with the program that made it"},
    {"NV0205", "FormatError", "tensors end at byte", "a .safetensors file is cut short or too long",
     "download the file again"},
    {"NV0206", "FormatError", "weight_map", "the index of the shards is damaged",
     "download model.safetensors.index.json again; nvfp4 repair writes a new one"},
    {"NV0207", "FormatError", "index files, must be one", "a folder with several indices",
     "remove those of other models"},
    {"NV0208", "FormatError", "appears twice, must be unique", "a name is there twice",
     "write the file again with the program that made it"},
    {"NV0209", "FormatError", "invalid JSON", "a file is not valid JSON",
     "mend the file at the byte that the message names"},
    {"NV0210", "FormatError", "JSON is nested deeper", "JSON that is nested too deep to be meant",
     "download the file again"},
    {"NV0211", "FormatError", "nvfp4 verify lists all",
     "weights with scales that no model can mean",
     "nvfp4 repair mends NVFP4; --force takes the values as they are"},
    {"NV0212", "FormatError", "cache of", "a folder of the hub's cache that holds no model itself",
     "name the model, or the folder below snapshots/"},
    {"NV0213", "FormatError", "statistics", "a file of statistics is damaged",
     "write it again with python -m nvfp4.calibrate"},
    {"NV0299", "FormatError", "", "a file breaks the rules of its format",
     "the message names file and tensor; nvfp4 verify says more, nvfp4 repair mends NVFP4"},

    {"NV0301", "ValueError", "--resume:", "other options or another input than the interrupted run",
     "give the same options and input, or start again with --overwrite"},
    {"NV0302", "ValueError", "--resume cannot go on",
     "the output was written by other options, or from another input", "--overwrite replaces it"},
    {"NV0303", "ValueError", "must be one of", "a word that is none of the choices",
     "take one that the message lists"},
    {"NV0304", "ValueError", "inside the input folder", "input and output are in each other",
     "name an output outside of the input"},
    {"NV0305", "ValueError", "pattern:", "a pattern that cannot be used",
     "exact name, glob, or re: and a regular expression; nvfp4 help quantize"},
    {"NV0306", "ValueError", "holds no tensor", "there is no tensor of that name",
     "nvfp4 inspect PATH --json lists all names"},
    {"NV0307", "ValueError", "cannot be quantized:",
     "--include names a tensor that cannot be NVFP4", "leave it out of --include"},
    {"NV0308", "ValueError", "statistics of another model", "the statistics do not fit the model",
     "calibrate this model: python -m nvfp4.calibrate"},
    {"NV0309", "ValueError", "which --statistics gives", "the quantizer needs statistics",
     "python -m nvfp4.calibrate MODEL writes them; give the file with --statistics"},
    {"NV0310", "ValueError", "must be finite", "a value that is infinite or NaN",
     "give finite values"},
    {"NV0399", "ValueError", "", "an argument or an element is outside its domain",
     "the message names argument, value and rule"},

    {"NV0401", "ShapeError", "must be a multiple of 16",
     "a length that is no multiple of the block of 16",
     "pad the rows with zeros, or leave the matrix as it is"},
    {"NV0499", "ShapeError", "", "sizes, strides or layouts do not fit",
     "the message names argument, size and rule"},

    {"NV0501", "UnsupportedError", "device = ", "the GPU cannot be used",
     "nvfp4 --version --verbose says why; --device cpu gives the same bytes"},
    {"NV0502", "UnsupportedError", "cannot run here", "the processor lacks what a backend needs",
     "leave --backend out: the best that runs is taken"},
    {"NV0503", "UnsupportedError", "cannot be repaired", "what was lost cannot be computed",
     "give what it was quantized from with --source"},
    {"NV0504", "UnsupportedError", "the input seems to be quantized",
     "a model that is quantized in a form that is not read", "start from the model in BF16"},
    {"NV0505", "UnsupportedError", "has no name in", "llama.cpp has no name for a tensor",
     "write a folder in place of .gguf; --drop leaves out what GGUF never has"},
    {"NV0506", "UnsupportedError", "llama-gguf-split", "one part of a model in several GGUF files",
     "llama-gguf-split --merge FIRST-PART WHOLE"},
    {"NV0599", "UnsupportedError", "", "a valid request that nothing here can carry out",
     "the message says what could be"},

    {"NV0601", "DeviceError", "lies on", "arrays on different devices",
     "move all of them to one device"},
    {"NV0602", "DeviceError", "out of memory", "the memory of the GPU is full",
     "end other programs on the GPU, or use --device cpu"},
    {"NV0699", "DeviceError", "", "the CUDA runtime or the driver refused",
     "nvidia-smi shows whether the GPU works; --device cpu does without"},

    {"NV0901", "usage", "", "the command line is wrong", "nvfp4 help COMMAND lists the options"},
    {"NV0902", "memory", "", "no memory is left",
     "--threads 1 takes the least; end other programs"},
    {"NV0999", "internal", "", "a fault of nvfp4.cpp itself",
     "report it with the command and the message"},
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
