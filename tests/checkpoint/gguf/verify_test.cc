#include "checkpoint/checkpoints.h"
#include "checkpoint/gguf/gguf_models.h"

namespace nvfp4::gguf::gguf_verify_test {

/// A file that llama.cpp could load: also a tokenizer.
void write_healthy(const TempDir& dir) {
  write_qwen3_moe(dir / "source");
  Json vocabulary = Json::object();
  for (int i = 0; i < 32; ++i) vocabulary["t" + std::to_string(i)] = i;
  write_json(
      dir / "source" / "tokenizer.json",
      {{"pre_tokenizer",
        {{"type", "Sequence"},
         {"pretokenizers",
          {{{"type", "Split"},
            {"pattern",
             {{"Regex",
               R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}}}},
           {{"type", "ByteLevel"}, {"use_regex", false}}}}}},
       {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", {"t 1"}}}}});
  quantize_checkpoint(dir / "source", dir / "a");
  convert(dir / "a", dir / "m.gguf", "gguf");
}

/// The file, taken apart and put together again with a change.
struct Parts {
  std::vector<NewEntry> entries;
  std::vector<TensorSpec> specs;
  std::vector<std::vector<std::byte>> bytes;

  explicit Parts(const fs::path& path) {
    const File file = File::open(path);
    for (const Entry& e : file.header().entries) {
      NewValue v{.type = e.value.type, .value = e.value.value};
      if (const auto* place = std::get_if<ArrayPlace>(&e.value.value)) {
        v.element = place->type;
        v.strings = file.strings(e.key, place->count);
        if (place->type != ValueType::string)
          v.numbers.resize(static_cast<std::size_t>(place->count));
      }
      entries.push_back({e.key, std::move(v)});
    }
    for (const TensorInfo& t : file.header().tensors) {
      specs.push_back({t.name, t.type, t.shape});
      bytes.push_back(bytes_of(file, t.name));
    }
  }
  std::size_t at(std::string_view name) const {
    const auto it = std::ranges::find(specs, name, &TensorSpec::name);
    if (it == specs.end()) throw std::runtime_error("no such tensor");
    return static_cast<std::size_t>(it - specs.begin());
  }
  void remove(std::string_view name) {
    const auto i = static_cast<std::ptrdiff_t>(at(name));
    specs.erase(specs.begin() + i);
    bytes.erase(bytes.begin() + i);
  }
  void remove_key(std::string_view key) {
    std::erase_if(entries, [&](const NewEntry& e) { return e.key == key; });
  }
  void set(std::string_view key, NewValue value) {
    remove_key(key);
    entries.push_back({std::string(key), std::move(value)});
  }
  void write(const fs::path& path) const {
    Writer writer(path, entries, specs);
    for (std::size_t i = 0; i < specs.size(); ++i) writer.write(i, 0, bytes[i]);
    writer.commit();
  }
};

using Plant = std::function<void(const fs::path&)>;

Plant parts(std::function<void(Parts&)> change) {
  return [change = std::move(change)](const fs::path& path) {
    Parts p(path);
    change(p);
    p.write(path);
  };
}
Plant first_scale(std::uint8_t bits) {
  return [bits](const fs::path& path) {
    edit_tensor(path, "blk.0.attn_q.weight", [bits](std::span<std::uint8_t> b) { b[1] = bits; });
  };
}

/// Replaces one spelling by another of its length, wherever it is.
Plant spelling(const std::string& from, const std::string& to) {
  return [=](const fs::path& path) {
    std::string text = read_text(path);
    const std::size_t at = text.find(from);
    ASSERT_NE(at, text.npos);
    for (std::size_t i = 0; i < to.size(); ++i) text[at + i] = to[i];
    write_text(path, text);
  };
}

const std::multimap<std::string, Plant>& plants() {
  static const std::multimap<std::string, Plant> all = {
      {"gguf-scale", first_scale(0x7F)},
      {"gguf-scale", first_scale(0xB8)},
      {"gguf-no-global-scale", parts([](Parts& p) { p.remove("blk.0.attn_q.scale"); })},
      {"gguf-unread-scale", parts([](Parts& p) {
         p.specs[p.at("token_embd.weight")].type = find_type(kNvfp4);
         p.bytes[p.at("token_embd.weight")].resize(32 * 36);
         p.specs.push_back({"token_embd.scale", find_type(kF32), {1}});
         p.bytes.emplace_back(4, std::byte{0x30});
       })},
      // The second tensor's offset, one alignment too far: within the file, as the last one is
      // long.
      {"gguf-layout",
       [](const fs::path& path) {
         Parts p(path);
         std::rotate(p.specs.begin(), p.specs.begin() + 1, p.specs.end());
         std::rotate(p.bytes.begin(), p.bytes.begin() + 1, p.bytes.end());
         p.write(path);
         const File file = File::open(path);
         const std::string name = file.header().tensors.back().name;
         std::string text = read_text(path);
         // name, dimensions, extents, type, offset
         std::size_t at = text.rfind(name, file.header().data_begin) + name.size();
         at += 4 + 8 * file.header().tensors.back().shape.size() + 4;
         std::uint64_t offset;
         std::memcpy(&offset, text.data() + at, 8);
         offset += 32;
         std::memcpy(text.data() + at, &offset, 8);
         text.append(32, '\0');
         write_text(path, text);
       }},
      {"gguf-name",
       [](const fs::path& path) {
         std::string text = read_text(path);
         const std::string name = "output_norm.weight";
         const std::size_t at = text.rfind(std::string("\x12\0\0\0\0\0\0\0", 8) + name);
         ASSERT_NE(at, text.npos);
         text[at] += 64;  // whole alignments, so that the data stay where they belong
         text.insert(at + 8 + name.size(), std::string(64, 'x'));
         write_text(path, text);
       }},
      {"gguf-architecture", parts([](Parts& p) { p.remove_key("general.architecture"); })},
      {"gguf-key", parts([](Parts& p) { p.remove_key("qwen3moe.context_length"); })},
      {"gguf-key", parts([](Parts& p) { p.set("qwen3moe.expert_count", new_u32(4)); })},
      {"gguf-key", parts([](Parts& p) { p.set("qwen3moe.block_count", new_u32(0)); })},
      {"gguf-tensor", parts([](Parts& p) { p.remove("blk.0.ffn_norm.weight"); })},
      {"gguf-key", parts([](Parts& p) { p.set("qwen3moe.block_count", new_u32(2)); })},
      {"gguf-key", parts([](Parts& p) { p.set("general.type", new_text("adapter")); })},
      {"gguf-tokenizer", parts([](Parts& p) { p.remove_key("tokenizer.ggml.model"); })},
      {"gguf-tokenizer", parts([](Parts& p) {
         p.set("tokenizer.ggml.tokens", new_strings({"a", "b"}));
       })},
      {"gguf-split", parts([](Parts& p) { p.set("split.count", new_u32(2)); })},
      {"unreadable-file", [](const fs::path& path) { fs::resize_file(path, 1000); }},
      {"unreadable-file", spelling("GGUF", "GGML")},
      {"orphan-scale", parts([](Parts& p) { p.remove("blk.0.attn_q.weight"); })},
      {"wrong-shape", parts([](Parts& p) {
         p.specs[p.at("blk.0.attn_q.scale")].shape = {2};
         p.bytes[p.at("blk.0.attn_q.scale")].resize(8);
       })},
      {"wrong-dtype", parts([](Parts& p) {
         p.specs[p.at("blk.0.attn_q.scale")].type = find_type(kF16);
         p.bytes[p.at("blk.0.attn_q.scale")].resize(2);
       })},
      {"scale-zero", first_scale(0)},
      {"global-scale-invalid",
       parts([](Parts& p) { p.bytes[p.at("blk.0.attn_q.scale")].assign(4, std::byte{0}); })},
      {"global-scale-sense", parts([](Parts& p) {
         p.bytes[p.at("blk.0.ffn_up_exps.scale")].assign(12, std::byte{0x44});
       })},
  };
  return all;
}

VerifyReport verify(const fs::path& path, const std::string& loader = "") {
  auto options = verify_options(path);
  options.loader = loader;
  return verify_checkpoint(options);
}

struct GgufVerify : FolderTest {};

TEST_F(GgufVerify, StaysSilentOnWhatWeWrite) {
  write_healthy(dir);
  for (const char* loader : {"", "llama.cpp"}) {
    const VerifyReport report = verify(dir / "m.gguf", loader);
    EXPECT_EQ(codes_of(report), std::set<std::string>{"input-scale-default"}) << text_of(report);
    EXPECT_FALSE(report.broken());
    EXPECT_EQ(report.format, "gguf");
    EXPECT_EQ(report.scheme, "w4a4");
    EXPECT_EQ(report.quantized, 7);
  }
  EXPECT_TRUE(codes_of(verify(dir / "m.gguf", "vllm")).contains("loader-format"));
}

TEST_F(GgufVerify, FindsEveryFault) {
  write_healthy(dir);
  for (const auto& [code, plant] : plants()) {
    SCOPED_TRACE(code);
    fs::copy_file(dir / "m.gguf", dir / "x.gguf", fs::copy_options::overwrite_existing);
    plant(dir / "x.gguf");
    const VerifyReport report = verify(dir / "x.gguf", "llama.cpp");
    EXPECT_TRUE(codes_of(report).contains(code)) << text_of(report);
    for (const Finding& f : report.findings) {
      EXPECT_FALSE(f.tensor.empty() || f.text.empty() || f.effect.empty() || f.fix.empty());
      EXPECT_EQ(f.text.find('\n'), f.text.npos);
    }
    for (const FindingKind& kind : finding_kinds())
      if (kind.code == code) {
        EXPECT_TRUE(report.broken() || kind.severity != Severity::error);
      }
  }
}

TEST_F(GgufVerify, EveryCodeHasAPlantedFault) {
  for (const FindingKind& kind : finding_kinds())
    if (kind.code.starts_with("gguf-")) {
      EXPECT_TRUE(plants().contains(std::string(kind.code))) << kind.code;
    }
}

TEST_F(GgufVerify, AScaleOfOneIsNoMistakeThere) {
  write_healthy(dir);
  parts([](Parts& p) {
    const float one = 1;
    std::memcpy(p.bytes[p.at("blk.0.attn_q.scale")].data(), &one, 4);
  })(dir / "m.gguf");
  EXPECT_FALSE(verify(dir / "m.gguf").broken());
}

TEST_F(GgufVerify, AgainstTheSource) {
  write_healthy(dir);
  auto options = verify_options(dir / "m.gguf", dir / "source");
  EXPECT_FALSE(verify_checkpoint(options).broken());
  edit_tensor(dir / "m.gguf", "blk.0.ffn_down_exps.weight", [](std::span<std::uint8_t> b) {
    for (std::size_t i = 0; i < b.size(); i += 36)
      std::reverse(b.begin() + long(i) + 4, b.begin() + long(i) + 36);
  });
  EXPECT_TRUE(codes_of(verify_checkpoint(options)).contains("far-from-source"));
}

TEST(GgufInspect, ShowsTheFileAsItIs) {
  const TempDir dir;
  write_healthy(dir);
  parts([](Parts& p) {
    p.specs.push_back({"blk.0.other.weight", find_type(12), {2, 256}});
    p.bytes.emplace_back(288);
  })(dir / "m.gguf");
  InspectOptions options;
  options.path = dir / "m.gguf";
  const InspectReport report = inspect_checkpoint(options);
  EXPECT_EQ(report.format, "gguf");
  EXPECT_EQ(report.scheme, "w4a4");
  EXPECT_EQ(report.model_type, "qwen3moe");
  const auto find = [&](std::string_view name) {
    return *std::ranges::find(report.tensors, name, &InspectedTensor::name);
  };
  const InspectedTensor stack = find("blk.0.ffn_up_exps.weight");
  EXPECT_EQ(stack.shape, (std::vector<std::int64_t>{3, 128, 64}));
  EXPECT_EQ(stack.scheme, "nvfp4");
  EXPECT_EQ(stack.bytes, 3u * 128 * 36 + 24);
  EXPECT_GT(stack.scale_max, 0);
  const InspectedTensor other = find("blk.0.other.weight");
  EXPECT_EQ(other.dtype, "Q4_K");
  EXPECT_EQ(other.shape, (std::vector<std::int64_t>{2, 256}));
  // The histogram is that of the checkpoint.
  options.path = dir / "a";
  options.tensor = "model.layers.0.self_attn.o_proj.weight";
  EXPECT_EQ(find("blk.0.attn_output.weight").codes, inspect_checkpoint(options).tensors[0].codes);
}

TEST(GgufRepair, IsRefused) {
  const TempDir dir;
  write_healthy(dir);
  expect_error<UnsupportedError>(
      [&] { repair_checkpoint(repair_options(dir / "m.gguf", dir / "out")); },
      {"m.gguf", "not repaired"});
}

}  // namespace nvfp4::gguf::gguf_verify_test
