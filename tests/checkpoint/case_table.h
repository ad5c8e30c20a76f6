#pragma once

#include <fnmatch.h>

#include "checkpoint/checkpoints.h"
#include "checkpoint/sample/sample_models.h"
#include "checkpoint/stacked_experts.h"
#include "nvfp4/layout.h"

/// Cases of tests as rows of text files: a model, what is changed in it, and what is found then.
/// data/README.md describes the columns.
namespace nvfp4::table {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;
using Tensors = std::vector<TestTensor>;

inline Words split(const std::string& text, char at) {
  Words parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, at);) {
    const std::size_t begin = part.find_first_not_of(' '), end = part.find_last_not_of(' ');
    if (begin != part.npos)
      parts.push_back(part.substr(begin, end - begin + 1));
    else if (at != ' ')
      parts.emplace_back();
  }
  return parts;
}

/// A case: its name, and its other columns.
struct Row {
  std::string name;
  Words columns;
  std::string column(std::size_t i) const { return i < columns.size() ? columns[i] : ""; }
  friend std::ostream& operator<<(std::ostream& out, const Row& row) { return out << row.name; }
};

/// Returns the line with '@q' replaced by the name of q_proj in layer 0, '@1q' by that in layer 1.
inline std::string names_in(std::string line) {
  if (line.find('@') == line.npos) return line;
  for (const std::string layer : {"0", "1"}) {
    const std::string at = layer == "0" ? "@" : "@1", name = "model.layers." + layer;
    line = std::regex_replace(line, std::regex(at + "([qkvo])\\b"), name + ".self_attn.$1_proj");
    line = std::regex_replace(line, std::regex(at + "(gate|up|down)\\b"), name + ".mlp.$1_proj");
  }
  return std::regex_replace(line, std::regex("@stack"), "model.layers.0.mlp.experts.gate_up_proj");
}

/// Returns the rows of tests/checkpoint/data/<file>.
inline std::vector<Row> rows_of(const std::string& file) {
  std::vector<Row> rows;
  std::ifstream in(fs::path(NVFP4_SOURCE_DIR) / "tests/checkpoint/data" / file);
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    Row row{"", split(names_in(line), '|')};
    row.name = row.columns.at(0);
    row.columns.erase(row.columns.begin());
    rows.push_back(row);
  }
  if (rows.empty()) throw std::runtime_error("no rows in " + file);
  return rows;
}

/// Returns the name of the class of an error, as tables have it.
inline std::string error_class(const Error& error) {
  const auto is = [&]<class E>(const E*) { return dynamic_cast<const E*>(&error) != nullptr; };
  return is(static_cast<FormatError*>(nullptr))        ? "FormatError"
         : is(static_cast<UnsupportedError*>(nullptr)) ? "UnsupportedError"
         : is(static_cast<ValueError*>(nullptr))       ? "ValueError"
         : is(static_cast<IoError*>(nullptr))          ? "IoError"
                                                       : "Error";
}

/// The name of a row as GoogleTest takes it.
inline std::string test_name(const testing::TestParamInfo<Row>& info) {
  return std::regex_replace(info.param.name, std::regex("[^A-Za-z0-9]"), "_");
}

/// The words of a column, and its texts in quotes.
struct Expected {
  Words words, texts;

  explicit Expected(const std::string& column) {
    std::string rest;
    for (std::size_t at = 0; at < column.size(); ++at) {
      if (column[at] != '"') {
        rest += column[at];
        continue;
      }
      std::string& text = texts.emplace_back();
      for (++at; at < column.size() && column[at] != '"'; ++at)
        text += column[at] == '\\' ? column[++at] : column[at];
    }
    words = split(rest, ' ');
  }
  /// Returns what follows `name`= in a word, or nothing.
  std::optional<std::string> value(const std::string& name) const {
    for (const std::string& word : words)
      if (word.starts_with(name + "=")) return word.substr(name.size() + 1);
    return {};
  }
  /// Expects the codes of the column, '-' for none; a code '*1' is found once.
  void expect_codes(const VerifyReport& report) const {
    std::set<std::string> expected, found = codes_of(report);
    for (std::string word : words) {
      if (word == "-" || word.find('=') != word.npos) continue;
      if (const std::size_t at = word.find('*'); at != word.npos) {
        word.resize(at);
        EXPECT_EQ(std::ranges::count(report.findings, word, &Finding::code), 1) << text_of(report);
      }
      expected.insert(word);
    }
    // Whoever quantizes without statistics finds this note.
    if (!expected.contains("input-scale-default")) found.erase("input-scale-default");
    EXPECT_EQ(found, expected) << text_of(report);
    for (const std::string& text : texts)
      EXPECT_NE(text_of(report).find(text), std::string::npos) << text << '\n' << text_of(report);
  }
};

inline std::vector<std::int64_t> shape_of(const std::string& text) {
  std::vector<std::int64_t> shape;
  for (const std::string& word : split(text == "-" ? "" : text, 'x'))
    shape.push_back(std::stoll(word));
  return shape;
}

inline safetensors::DType dtype_of(const std::string& name) {
  return safetensors::dtype_from_name(name).value();
}

/// Returns the floats of `words`, from the word `at` on.
inline std::vector<float> floats_of(const Words& words, std::size_t at) {
  std::vector<float> values;
  for (; at < words.size(); ++at) values.push_back(std::stof(words[at]));
  return values;
}

/// Returns `rows` x `cols` values whose rows have norms of their own.
inline std::vector<float> structured(std::int64_t rows, std::int64_t cols) {
  std::vector<float> x = random_values(rows * cols, "structured", 0.01f);
  const std::vector<float> row = random_values(rows, "row", 0.7f);
  for (std::int64_t i = 0; i < rows * cols; ++i)
    x[static_cast<std::size_t>(i)] *= std::exp(row[static_cast<std::size_t>(i / cols)]);
  return x;
}

/// Puts row-major scales into tiles, as a whole tensor of `shape`.
inline void tile(TestTensor& scales, std::vector<std::int64_t> shape) {
  const std::int64_t rows = scales.spec.shape[0], blocks = scales.spec.shape[1];
  std::vector<std::byte> tiled(
      static_cast<std::size_t>(scale_bytes(ScaleLayout::tiled_128x4, rows, blocks)));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t b = 0; b < blocks; ++b)
      tiled[static_cast<std::size_t>(scale_offset(ScaleLayout::tiled_128x4, r, b, rows, blocks))] =
          scales.bytes[static_cast<std::size_t>(r * blocks + b)];
  scales.spec.shape = std::move(shape);
  scales.bytes = std::move(tiled);
}

/// Changes the value at a JSON pointer: `how` is "" to set it, '+' to append to it, '-' to erase
/// it.
inline void change(Json& json, char how, const std::string& pointer, const std::string& value) {
  const Json::json_pointer at(pointer == "/" ? "" : pointer);
  if (how == '-')
    json[at.parent_pointer()].erase(at.back());
  else if (how == '+')
    json[at].push_back(Json::parse(value));
  else
    json[at] = Json::parse(value);
}

/// Expects that some tensor has a name that `pattern` matches, and changes each.
inline void each(LoadedFolder& f, const std::string& pattern,
                 const std::function<void(TestTensor&)>& change) {
  int found = 0;
  for (auto& [file, tensors] : f.shards)
    for (TestTensor& t : tensors)
      if (::fnmatch(pattern.c_str(), t.spec.name.c_str(), 0) == 0) ++found, change(t);
  if (found == 0) throw std::runtime_error("no tensor " + pattern);
}

/// Applies one change to tensors or configurations; returns false if it is none of these.
inline bool change_model(LoadedFolder& f, const Words& w, const std::string& rest) {
  const std::string& op = w[0];
  const auto add = [&](TestTensor tensor) {
    if (f.shards.empty()) f.shards["model.safetensors"];
    f.shards.rbegin()->second.push_back(std::move(tensor));
  };
  const auto add_all = [&](const PackedWeight& weight) {
    for (const TestTensor& t : weight.tensors) add(t);
  };
  const auto each_tensor = [&](const std::function<void(TestTensor&)>& change) {
    each(f, w[1], change);
  };
  const auto byte = [](const std::string& hex) {
    return static_cast<std::byte>(std::stoi(hex, nullptr, 16));
  };
  const auto n = [&](std::size_t i) { return std::stoll(w.at(i)); };
  if (op == "rm") {
    for (std::size_t i = 1; i < w.size(); ++i) {
      each(f, w[i], [](TestTensor&) {});
      for (auto& [file, tensors] : f.shards)
        std::erase_if(tensors, [&](const TestTensor& t) {
          return ::fnmatch(w[i].c_str(), t.spec.name.c_str(), 0) == 0;
        });
    }
  } else if (op == "f32") {
    each_tensor([&](TestTensor& t) { t.bytes = encode(floats_of(w, 2), safetensors::DType::f32); });
  } else if (op == "f32-at") {
    each_tensor([&](TestTensor& t) {
      std::ranges::copy(encode(floats_of(w, 3), safetensors::DType::f32),
                        t.bytes.begin() + 4 * n(2));
    });
  } else if (op == "repeat") {  // a scalar
    each_tensor([&](TestTensor& t) {
      t.bytes = encode(std::vector(static_cast<std::size_t>(n(2)), f.scalar(t.spec.name)),
                       safetensors::DType::f32);
      t.spec.shape = {n(2)};
    });
  } else if (op == "times") {
    each_tensor(
        [&](TestTensor& t) { f.set_scalar(t.spec.name, f.scalar(t.spec.name) * std::stof(w[2])); });
  } else if (op == "inverse") {
    each_tensor([&](TestTensor& t) { f.set_scalar(t.spec.name, 1 / f.scalar(t.spec.name)); });
  } else if (op == "byte") {
    each_tensor([&](TestTensor& t) {
      t.bytes.at(static_cast<std::size_t>(
          n(2) < 0 ? n(2) + static_cast<std::int64_t>(t.bytes.size()) : n(2))) = byte(w[3]);
    });
  } else if (op == "fill") {
    each_tensor([&](TestTensor& t) { std::ranges::fill(t.bytes, byte(w[2])); });
  } else if (op == "reverse") {
    each_tensor([](TestTensor& t) { std::ranges::reverse(t.bytes); });
  } else if (op == "nibbles") {
    each_tensor([](TestTensor& t) {
      for (std::byte& c : t.bytes) c = c << 4 | c >> 4;
    });
  } else if (op == "reseed") {
    each_tensor([](TestTensor& t) {
      t.bytes = random_tensor("another " + t.spec.name, t.spec.shape).bytes;
    });
  } else if (op == "tile") {
    each_tensor([&](TestTensor& t) { tile(t, shape_of(w[2])); });
  } else if (op == "dtype") {
    each_tensor([&](TestTensor& t) { t.spec.dtype = dtype_of(w[2]); });
  } else if (op == "shape") {
    each_tensor([&](TestTensor& t) {
      t.spec.shape = shape_of(w[2]);
      t.bytes.resize(static_cast<std::size_t>(element_count(t.spec.shape) *
                                              safetensors::dtype_bits(t.spec.dtype) / 8));
    });
  } else if (op == "rename") {
    each_tensor([&](TestTensor& t) { t.spec.name = w[2]; });
  } else if (op == "rename-end") {
    each(f, "*" + w[1], [&](TestTensor& t) {
      t.spec.name = t.spec.name.substr(0, t.spec.name.size() - w[1].size()) + w[2];
    });
  } else if (op == "random") {
    add(random_tensor(w[1], shape_of(w[2]),
                      w.size() > 3 ? dtype_of(w[3]) : safetensors::DType::bf16));
  } else if (op == "zeros") {
    const auto shape = shape_of(w[3]);
    add({{w[1], dtype_of(w[2]), shape},
         std::vector<std::byte>(static_cast<std::size_t>(
             element_count(shape) * safetensors::dtype_bits(dtype_of(w[2])) / 8))});
  } else if (op == "long-name") {
    add(random_tensor(std::string(1'000'000, 'x') + ".weight", {16, 16}));
  } else if (op == "scalar") {
    add({{w[1], safetensors::DType::f32, {}}, encode(floats_of(w, 2), safetensors::DType::f32)});
  } else if (op == "text") {
    const std::string text = rest.substr(rest.find(w[1]) + w[1].size() + 1);
    const auto bytes = std::as_bytes(std::span(text));
    add({{w[1], safetensors::DType::u8, {static_cast<std::int64_t>(text.size())}},
         {bytes.begin(), bytes.end()}});
  } else if (op == "copy") {
    TestTensor t = f.at(w[1]);
    t.spec.name = w[2];
    add(std::move(t));
  } else if (op == "fp8") {
    const auto shape = shape_of(w[2]), block = shape_of(w[5]);
    add_all(fp8_weight(w[1], shape[0], shape[1], w[3], shape_of(w[4]), block[0], block[1]));
  } else if (op == "mxfp4") {
    const auto shape = shape_of(w[2]);
    add_all(mxfp4_matrix(w[1], shape[0], shape[1], static_cast<int>(n(3)), static_cast<int>(n(4))));
  } else if (op == "mxfp4-stack") {
    add_all(mxfp4_weight(w[1], w[2], shape_of(w[3]), shape_of(w[4]), static_cast<int>(n(5)),
                         static_cast<int>(n(6))));
  } else if (op.starts_with("config") || op.starts_with("quant") || op.starts_with("hf")) {
    const char how = std::isalpha(static_cast<unsigned char>(op.back())) ? ' ' : op.back();
    const std::string value = w.size() > 2 ? rest.substr(rest.find(w[1]) + w[1].size() + 1) : "";
    change(op[0] == 'c'   ? f.config
           : op[0] == 'q' ? f.quantization()
                          : f.hf_quant,
           how, w[1], value);
  } else {
    return false;
  }
  return true;
}

/// Applies one change to the files of a folder.
inline void change_file(const fs::path& folder, const Words& w, const std::string& rest) {
  const fs::path file = folder / w.at(1);
  const fs::path index = folder / "model.safetensors.index.json";
  if (w[0] == "delete") {
    if (!fs::remove(file)) throw std::runtime_error("no file " + file.string());
  } else if (w[0] == "write") {
    write_text(file, rest.substr(std::min(rest.size(), rest.find(w[1]) + w[1].size() + 1)));
  } else if (w[0] == "append") {
    write_text(file, read_text(file) + " ");
  } else if (w[0] == "cut") {
    const std::int64_t n = std::stoll(w[2]);
    fs::resize_file(file, static_cast<std::uintmax_t>(
                              n < 0 ? n + static_cast<std::int64_t>(fs::file_size(file)) : n));
  } else if (w[0].starts_with("index")) {
    Json json = Json::parse(read_text(index));
    change(json, w[0].size() > 5 ? w[0].back() : ' ', w[1], w.size() > 2 ? w[2] : "");
    write_text(index, json.dump());
  } else {
    throw std::runtime_error("no such change: " + w[0]);
  }
}

/// Makes the folders "source" and "model" of a model that the first column of a row names.
inline void make_model(const Words& w, const fs::path& folder) {
  const fs::path source = folder / "source", model = folder / "model";
  auto options = quantize_options(source, model);
  for (const std::string& word : w) {
    if (word == "compressed-tensors" || word == "comfyui") options.format = word;
    if (word == "a16") options.scheme = Scheme::w4a16;
  }
  if (w[0] == "empty") {
    write_text((fs::create_directories(model), model / "config.json"),
               R"({"model_type": ")" + (w.size() > 1 ? w[1] : "llama") + R"("})");
    return;
  } else if (w[0] == "plain") {
    write_tiny_llama(model);
    return;
  } else if (w[0] == "llama") {
    write_tiny_llama(source);
  } else if (w[0] == "deepseek") {
    SampleOptions sample;
    sample.output = source;
    sample.arch = "deepseek-v3";
    sample.scale = 0.03125;
    sample_checkpoint(sample);
  } else if (w[0] == "mixed") {  // NVFP4 and, for attention, FP8 with a scale for each row
    write_tiny_llama(source);
    options.format = "compressed-tensors";
    quantize_checkpoint(options);
    LoadedFolder f(model);
    Json& groups = f.quantization()["config_groups"];
    groups["group_1"] =
        Json::parse(R"({"targets": ["re:.*self_attn.*"], "format": "float-quantized",
                                        "weights": {"num_bits": 8, "type": "float"}})");
    groups["group_0"]["targets"] = {"re:.*mlp.*"};
    f.quantization()["format"] = "mixed-precision";
    for (auto& [file, tensors] : f.shards) {
      Tensors kept;
      for (TestTensor& t : tensors) {
        const std::size_t packed = t.spec.name.find(".weight_packed");
        if (t.spec.name.find("self_attn") == std::string::npos)
          kept.push_back(std::move(t));
        else if (packed != std::string::npos)
          append(kept, fp8_weight(t.spec.name.substr(0, packed), 64, 64, ".weight_scale", {64, 1},
                                  1, 64));
      }
      tensors = std::move(kept);
    }
    fs::remove_all(model);
    return f.write(model);
  } else if (w[0] == "only") {  // one linear layer, quantized alone
    const auto shape = shape_of(w[2]);
    TestTensor tensor = random_tensor(w[1] + ".weight", shape);
    if (std::ranges::count(w, "structured") > 0)
      tensor.bytes = encode(structured(shape[0], shape[1]), safetensors::DType::bf16);
    if (std::ranges::count(w, "zeros") > 0) std::ranges::fill(tensor.bytes, std::byte{0});
    write_model(source, {{std::move(tensor)}}, kLlamaConfig);
    options.include = {w[1] + ".weight"};
  } else if (w[0] == "experts") {  // two, in a layer
    std::vector<TestTensor> tensors = {random_tensor("model.norm.weight", {64})};
    for (const char* expert : {"0", "1"})
      for (const char* part : {"gate_proj", "up_proj", "down_proj"})
        tensors.push_back(random_tensor(
            fmt::format("model.layers.0.mlp.experts.{}.{}.weight", expert, part), {64, 64}));
    write_model(source, {std::move(tensors)}, kLlamaConfig);
  } else {
    throw std::runtime_error("no such model: " + w[0]);
  }
  quantize_checkpoint(options);
}

/// Applies changes, which ';' separates, to a model; those that begin with 'source:' to its source.
inline void apply(const std::string& changes, const fs::path& source, const fs::path& path) {
  static const std::set<std::string> of_files = {"delete", "write",  "append", "cut",
                                                 "index",  "index+", "index-"};
  for (std::string text : split(changes, ';')) {
    const fs::path& folder = text.starts_with("source:") ? source : path;
    if (text.starts_with("source:")) text.erase(0, 7);
    const Words words = split(text, ' ');
    if (words.empty()) continue;
    if (of_files.contains(words[0])) {
      change_file(folder, words, text);
      continue;
    }
    LoadedFolder model(folder);
    if (!change_model(model, words, text)) throw std::runtime_error("no such change: " + text);
    fs::remove_all(folder);
    model.write(folder);
  }
}

/// A model of a row in a folder of its own. Each kind is made once and copied.
struct Model {
  TempDir dir;
  const fs::path source = dir / "source", path = dir / "model";

  explicit Model(const std::string& name, const std::string& changes = "") {
    static std::map<std::string, std::unique_ptr<TempDir>> made;
    auto& original = made[name];
    if (!original) make_model(split(name, ' '), (original = std::make_unique<TempDir>())->path());
    fs::copy(original->path(), dir.path(), fs::copy_options::recursive);
    apply(changes, source, path);
  }
};

}  // namespace nvfp4::table
