#include <sys/stat.h>

#include "checkpoint/case_table.h"
#include "checkpoint/checkpoints.h"
#include "checkpoint/gguf/gguf_models.h"
#include "checkpoint/statistics_file.h"

/// Whole commands, as scripts. data/README.md lists the statements.
namespace nvfp4::scripts_test {

using table::split;
using table::Words;

/// A line of a script. A word in double quotes may have spaces, and \n, \0 and \" in it.
struct Statement {
  int line = 0;
  std::string text;
  Words words;

  Statement(int number, std::string line_text) : line(number), text(std::move(line_text)) {
    for (std::size_t at = 0; at < text.size(); ++at) {
      if (text[at] == ' ') continue;
      std::string& word = words.emplace_back();
      const bool quoted = text[at] == '"';
      for (at += quoted; at < text.size() && text[at] != (quoted ? '"' : ' '); ++at) {
        const bool escaped = quoted && text[at] == '\\' && at + 1 < text.size();
        if (escaped) ++at;
        word += escaped && text[at] == 'n' ? '\n' : escaped && text[at] == '0' ? '\0' : text[at];
      }
    }
  }
  /// Returns the text behind the first `n` words.
  std::string rest(std::size_t n) const {
    std::size_t at = 0;
    for (; n > 0; --n) at = text.find_first_not_of(' ', std::min(text.find(' ', at), text.size()));
    return at < text.size() ? text.substr(at) : "";
  }
  Words from(std::size_t n) const {
    return {words.begin() + static_cast<std::ptrdiff_t>(std::min(n, words.size())), words.end()};
  }
};

struct Script {
  std::string name;
  std::vector<std::pair<int, std::string>> lines;
  friend std::ostream& operator<<(std::ostream& out, const Script& s) { return out << s.name; }
};

/// Returns the scripts of tests/checkpoint/data/scripts. "== NAME" begins one; spaces at the start
/// of a line continue the line before.
std::vector<Script> scripts() {
  std::vector<Script> all;
  for (const auto& file :
       fs::directory_iterator(fs::path(NVFP4_SOURCE_DIR) / "tests/checkpoint/data/scripts")) {
    std::ifstream in(file.path());
    int number = 0;
    for (std::string line; std::getline(in, line);) {
      ++number;
      if (line.empty() || line[0] == '#') continue;
      if (line.starts_with("== "))
        all.push_back(Script{file.path().stem().string() + " " + line.substr(3), {}});
      else if (line[0] == ' ')
        all.back().lines.back().second += " " + line.substr(line.find_first_not_of(' '));
      else
        all.back().lines.emplace_back(number, line);
    }
  }
  std::ranges::sort(all, {}, &Script::name);
  return all;
}

/// Returns the value of "a" or "a/b" in FP32.
float number(const std::string& text) {
  const Words parts = split(text, '/');
  const float value = std::stof(parts.at(0));
  return parts.size() > 1 ? value / std::stof(parts[1]) : value;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

/// Returns the names of the files that differ, or that only one of the folders has.
std::string differing(const std::map<std::string, std::string>& a,
                      const std::map<std::string, std::string>& b) {
  std::string names;
  for (const auto& [name, bytes] : a)
    if (!b.contains(name) || b.at(name) != bytes) names += " " + name;
  for (const auto& [name, bytes] : b)
    if (!a.contains(name)) names += " " + name;
  return names;
}

/// A script while it runs, in a folder of its own.
class Run {
 public:
  void statement(const Statement& s) {
    const std::string& word = s.words.at(0);
    if (word.ends_with(":")) return change(at(word.substr(0, word.size() - 1)), s.rest(1));
    if (word == "write") return write_text(at(s.words.at(1)), text_of(s, 2));
    if (!make(s) && !file(s) && !expect_tensors(s) && !expect_files(s) && !expect_report(s))
      throw std::runtime_error("no such statement: " + s.text);
  }

  static bool is_command(const Statement& s) {
    static const std::set<std::string> names = {"quantize", "convert", "repair", "verify",
                                                "compare",  "inspect", "sample"};
    return names.contains(s.words.at(0));
  }
  void command(const Statement& s) {
    OptionWords options;
    Words plain;
    for (const std::string& word : s.from(1)) {
      const bool path = word.find("./") == 0;
      if (word.starts_with("--") || !options.empty())
        options.emplace_back(path ? (at(word.substr(2))).string() : word);
      else
        plain.push_back(word);
    }
    const std::string& name = s.words[0];
    const fs::path a = at(plain.at(0)), b = at(plain.size() > 1 ? plain[1] : "");
    report_ = {};
    verify_ = {};
    if (name == "quantize") {
      auto with = quantize_options(a, b, options);
      for (const std::string& word : plain) set_rank(word, with);
      report_ = quantize_checkpoint(with);
    } else if (name == "convert") {
      report_ = convert_checkpoint(convert_options(a, b, "", options));
    } else if (name == "repair") {
      const RepairReport repair = repair_checkpoint(repair_options(a, b, {}, options));
      report_ = repair.written;
      verify_ = repair.after;
    } else if (name == "sample") {
      sample_checkpoint(sample_options(a, options));
    } else if (name == "verify") {
      verify_ = verify_checkpoint(verify_options(a, {}, "", options));
    } else if (name == "compare") {
      const CompareReport same = compare_checkpoints(a, b);
      EXPECT_TRUE(same.tensors.empty()) << same.tensors[0].name << " differs";
      EXPECT_THAT(same.only_in_a, testing::IsEmpty());
      EXPECT_THAT(same.only_in_b, testing::IsEmpty());
      EXPECT_THAT(same.shape_mismatch, testing::IsEmpty());
    } else {
      inspect_checkpoint({.path = a, .tensor = {}, .progress = {}});
    }
  }

 private:
  fs::path at(const std::string& word) const { return dir_ / word; }
  static std::string text_of(const Statement& s, std::size_t n) {
    return s.rest(n).starts_with('"') ? s.words.at(n) : s.rest(n);
  }
  static void change(const fs::path& folder, const std::string& changes) {
    table::apply(changes, folder, folder);
  }
  /// Sets what no option of the table is: "rank=1/3", "report=FILE".
  void set_rank(const std::string& word, QuantizeCheckpointOptions& options) const {
    if (word.starts_with("report=")) options.report = at(word.substr(7));
    if (!word.starts_with("rank=")) return;
    options.rank = std::stoi(word.substr(5));
    options.ranks = std::stoi(word.substr(word.find('/') + 1));
  }

  bool make(const Statement& s) {
    const std::string& word = s.words[0];
    if (word == "llama") {
      write_tiny_llama(at(s.words.at(1)));
    } else if (word == "gguf-llama") {
      gguf::write_llama(at(s.words.at(1)));
    } else if (word == "model") {
      fs::create_directories(at(s.words.at(1)));
      if (!s.rest(2).empty()) write_text(at(s.words[1]) / "config.json", s.rest(2));
    } else if (word == "gguf-qwen3-moe") {
      gguf::write_qwen3_moe(at(s.words.at(1)));
    } else if (word == "case") {  // the models of other tables
      table::make_model(s.from(2), at(s.words.at(1)));
    } else if (word == "take") {  // TO FROM NAME...: tensors of another folder, after all others
      LoadedFolder to(at(s.words.at(1))), from(at(s.words.at(2)));
      for (const std::string& name : s.from(3))
        table::each(from, name, [&](TestTensor& t) { to.shards.rbegin()->second.push_back(t); });
      fs::remove_all(at(s.words[1]));
      to.write(at(s.words[1]));
    } else if (word == "grams") {
      write_llama_grams(at(s.words.at(1)));
    } else if (word == "statistics") {
      std::vector<TestTensor> tensors;
      for (const auto& [module, m] : llama_statistics())
        for (const auto& [suffix, values] :
             {std::pair(".diag", m.diagonal), {".count", {m.count}}, {".amax", {1.0f}}})
          tensors.push_back(floats(module + suffix, values));
      for (const std::string& more : s.from(2))
        tensors.push_back(
            floats(more.substr(0, more.find('=')), {number(more.substr(more.find('=') + 1))}));
      write_shard(at(s.words.at(1)), tensors, {{"nvfp4_statistics", "1"}});
    } else {
      return false;
    }
    return true;
  }

  bool file(const Statement& s) {
    const std::string& word = s.words[0];
    if (word == "copy")
      fs::copy(at(s.words.at(1)), at(s.words.at(2)),
               fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    else if (word == "rename")
      fs::rename(at(s.words.at(1)), at(s.words.at(2)));
    else if (word == "remove")
      for (const std::string& path : s.from(1)) EXPECT_GT(fs::remove_all(at(path)), 0u) << path;
    else if (word == "fifo")
      EXPECT_EQ(::mkfifo(at(s.words.at(1)).c_str(), 0600), 0);
    else if (word == "remember")
      remembered_ = files_of(at(s.words.at(1)));
    else if (word == "unchanged")
      EXPECT_EQ(differing(files_of(at(s.words.at(1))), remembered_), "");
    else if (word == "mkdir")
      fs::create_directories(at(s.words.at(1)));
    else if (word == "link")
      fs::create_symlink(
          s.words.at(1).starts_with("./") ? at(s.words[1].substr(2)) : fs::path(s.words[1]),
          at(s.words.at(2)));
    else if (word == "flip")
      flip(at(s.words.at(1)));
    else if (word == "replace")
      write_text(at(s.words.at(1)), std::regex_replace(read_text(at(s.words[1])),
                                                       std::regex(s.words.at(2)), s.words.at(3)));
    else if (word == "append")
      write_text(at(s.words.at(1)), read_text(at(s.words[1])) + text_of(s, 2));
    else
      return false;
    return true;
  }
  /// Changes one bit, and neither the size nor the time of modification.
  static void flip(const fs::path& file) {
    const auto time = fs::last_write_time(file);
    std::string bytes = read_text(file);
    bytes[bytes.size() - 3] ^= 4;
    write_text(file, bytes);
    fs::last_write_time(file, time);
  }

  bool expect_tensors(const Statement& s) {
    const std::string& word = s.words[0];
    if (word != "has" && word != "lacks" && word != "count" && word != "tensor" &&
        word != "scalar" && word != "same-bytes")
      return false;
    const LoadedModel model(at(s.words.at(1)));
    if (word == "has" || word == "lacks") {
      for (const std::string& name : s.from(2)) EXPECT_EQ(model.has(name), word == "has") << name;
    } else if (word == "count") {
      EXPECT_EQ(std::to_string(model.tensors.size()), s.words.at(2));
    } else if (word == "tensor") {
      const auto& t = model.at(s.words.at(2));
      EXPECT_EQ(t.dtype, table::dtype_of(s.words.at(3)));
      if (s.words.size() > 4) {
        EXPECT_EQ(t.shape, table::shape_of(s.words[4]));
      }
    } else if (word == "scalar") {
      EXPECT_EQ(model.scalar(s.words.at(2)), number(s.words.at(3)));
    } else {
      const LoadedModel other(at(s.words.at(3)));
      const std::string& name = s.words.size() > 4 ? s.words[4] : s.words.at(2);
      EXPECT_EQ(model.at(s.words.at(2)).bytes, other.at(name).bytes);
    }
    return true;
  }

  Json json_of(const std::string& file) const { return Json::parse(read_text(at(file))); }

  bool expect_files(const Statement& s) {
    const std::string& word = s.words[0];
    if (word == "exists" || word == "absent") {
      for (const std::string& path : s.from(1))
        EXPECT_EQ(fs::exists(fs::symlink_status(at(path))), word == "exists") << path;
    } else if (word == "same-tensors") {
      expect_same_tensors(at(s.words.at(1)), at(s.words.at(2)));
    } else if (word == "same-files") {
      const fs::path a = at(s.words.at(1)), b = at(s.words.at(2));
      if (fs::is_directory(a))
        EXPECT_EQ(differing(files_of(a), files_of(b)), "");
      else
        EXPECT_EQ(read_text(a), read_text(b));
    } else if (word == "sound") {
      EXPECT_EQ(findings_of(at(s.words.at(1))), "");
    } else if (word == "text" || word == "no-text") {
      for (const std::string& part : s.from(2))
        EXPECT_EQ(read_text(at(s.words.at(1))).find(part) != part.npos, word == "text")
            << part << " in " << read_text(at(s.words[1]));
    } else if (word == "once") {
      const std::string text = read_text(at(s.words.at(1))), &part = s.words.at(2);
      EXPECT_TRUE(text.find(part) != text.npos && text.find(part) == text.rfind(part)) << text;
    } else if (word == "is") {
      EXPECT_EQ(read_text(at(s.words.at(1))), text_of(s, 2));
    } else if (word == "files") {
      Words names;
      for (const auto& [name, content] : files_of(at(s.words.at(1)))) names.push_back(name);
      EXPECT_EQ(names, s.from(2));
    } else if (word == "metadata") {  // of every shard: FOLDER KEY FILE POINTER, or none
      for (const auto& entry : fs::directory_iterator(at(s.words.at(1)))) {
        if (entry.path().extension() != ".safetensors") continue;
        auto metadata = safetensors::File::open(entry.path()).metadata();
        EXPECT_EQ(metadata.contains(s.words.at(2)), s.words.size() > 3) << entry.path();
        if (s.words.size() > 3) {
          EXPECT_EQ(Json::parse(metadata[s.words[2]]),
                    json_of(s.words[3]).at(Json::json_pointer(s.words.at(4))));
        }
      }
    } else if (word == "same-json") {
      EXPECT_EQ(json_of(s.words.at(1)).at(Json::json_pointer(s.words.at(2))),
                json_of(s.words.at(3)).at(Json::json_pointer(s.words.at(4))));
    } else if (word == "json" || word == "no-json") {
      const Json json = json_of(s.words.at(1));
      const Json::json_pointer pointer(s.words.at(2));
      EXPECT_EQ(json.contains(pointer), word == "json") << json.dump();
      if (word == "json" && json.contains(pointer)) {
        EXPECT_EQ(json.at(pointer), Json::parse(s.rest(3)));
      }
    } else {
      return false;
    }
    return true;
  }

  bool expect_report(const Statement& s) {
    const std::string& word = s.words[0];
    const std::string said = joined(report_.warnings);
    if (word == "warns" || word == "silent-about") {
      for (const std::string& part : s.from(1))
        EXPECT_EQ(said.find(part) != said.npos, word == "warns") << part << " in " << said;
    } else if (word == "warnings") {
      EXPECT_EQ(std::to_string(report_.warnings.size()), s.words.at(1)) << said;
    } else if (word == "actions") {
      for (const std::string& each : s.from(1)) {
        const std::string action = each.substr(0, each.find('='));
        EXPECT_EQ(fmt::format("{}={}", action,
                              std::ranges::count(report_.tensors, action, &TensorReport::action)),
                  each);
      }
    } else if (word == "action" || word == "reason") {
      const auto t = std::ranges::find(report_.tensors, s.words.at(1), &TensorReport::name);
      if (t == report_.tensors.end())
        ADD_FAILURE() << "no tensor " << s.words[1];
      else if (word == "action")
        EXPECT_EQ(t->action, s.words.at(2)) << t->reason;
      else
        EXPECT_THAT(t->reason, HasSubstr(s.words.at(2)));
    } else if (word == "report") {
      EXPECT_EQ(Json::parse(to_json(report_)).at(Json::json_pointer(s.words.at(1))),
                Json::parse(s.rest(2)));
    } else if (word == "card") {
      EXPECT_EQ(report_.card, s.words.size() > 1 ? s.words[1] : "");
    } else if (word == "broken" || word == "not-broken") {
      EXPECT_EQ(verify_.broken(), word == "broken") << nvfp4::text_of(verify_);
    } else if (word == "counts") {
      for (const std::string& each : s.from(1)) {  // warning=2
        const std::string name = each.substr(0, each.find('='));
        const auto n = std::ranges::count_if(
            verify_.findings, [&](const Finding& f) { return severity_name(f.severity) == name; });
        EXPECT_EQ(fmt::format("{}={}", name, n), each) << nvfp4::text_of(verify_);
      }
    } else if (word == "codes") {
      table::Expected(s.rest(1)).expect_codes(verify_);
    } else if (word == "found" || word == "not-found") {
      for (const std::string& each : s.from(1)) {  // a code, or code*times
        const std::size_t times = each.find('*');
        const auto n = std::ranges::count(verify_.findings, each.substr(0, times), &Finding::code);
        EXPECT_EQ(times == each.npos ? n > 0 : n == std::stoi(each.substr(times + 1)),
                  word == "found")
            << each << '\n'
            << nvfp4::text_of(verify_);
      }
    } else if (word == "says") {
      for (const std::string& part : s.from(1))
        EXPECT_THAT(nvfp4::text_of(verify_), HasSubstr(part));
    } else if (word == "verdicts") {
      for (const std::string& each : s.from(1)) {
        const std::string loader = each.substr(0, each.find('='));
        const auto v = std::ranges::find(verify_.loaders, loader, &LoaderVerdict::loader);
        const std::string verdict(v == verify_.loaders.end() ? "none" : verdict_name(v->verdict));
        EXPECT_EQ(loader + "=" + verdict, each);
      }
    } else {
      return false;
    }
    return true;
  }

  const TempDir dir_;
  std::map<std::string, std::string> remembered_;  ///< the files of a folder
  QuantizeReport report_;
  VerifyReport verify_;
};

using Variables = std::map<std::string, std::string>;

/// Runs a script from its line `i` on; "each a,b: 1,2 3,4" runs what follows for each value.
void run(const Script& script, const Variables& variables, std::size_t each = 0) {
  if (each < script.lines.size() && script.lines[each].second.starts_with("each ")) {
    const Statement s(0, script.lines[each].second);
    std::string names = s.words.at(1);
    names.pop_back();
    for (const std::string& value : s.from(2)) {
      Variables with = variables;
      const Words keys = split(names, ','), values = split(value, ',');
      ASSERT_EQ(keys.size(), values.size()) << value;
      for (std::size_t k = 0; k < keys.size(); ++k)
        with[keys[k]] = values[k] == "_" ? "" : values[k];
      run(script, with, each + 1);
    }
    return;
  }
  std::vector<Statement> statements;
  for (std::size_t i = each; i < script.lines.size(); ++i) {
    std::string text = table::names_in(script.lines[i].second);
    for (const auto& [name, value] : variables)
      for (std::size_t at; (at = text.find("$" + name)) != text.npos;)
        text.replace(at, name.size() + 1, value);
    statements.emplace_back(script.lines[i].first, text);
  }
  Run folder;
  for (std::size_t i = 0; i < statements.size(); ++i) {
    const Statement& s = statements[i];
    SCOPED_TRACE(fmt::format("line {}: {}", s.line, s.text));
    if (!Run::is_command(s)) {
      folder.statement(s);
      continue;
    }
    const bool fails = i + 1 < statements.size() && statements[i + 1].words.at(0) == "!";
    try {
      folder.command(s);
      EXPECT_FALSE(fails) << "no error";
    } catch (const Error& e) {
      ASSERT_TRUE(fails) << e.what();
      EXPECT_EQ(table::error_class(e), statements[i + 1].words.at(1)) << e.what();
      for (const std::string& part : statements[i + 1].from(2))
        EXPECT_THAT(e.what(), HasSubstr(part));
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
    }
    i += fails;
  }
}

class Scripts : public testing::TestWithParam<Script> {};

TEST_P(Scripts, RunAsTheySay) { run(GetParam(), {{"VERSION", version()}}); }

INSTANTIATE_TEST_SUITE_P(Checkpoint, Scripts, testing::ValuesIn(scripts()), [](const auto& info) {
  return std::regex_replace(info.param.name, std::regex("[^A-Za-z0-9]"), "_");
});

}  // namespace nvfp4::scripts_test
