#include "checkpoint/io/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <set>
#include <sstream>

#include "core/printable.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

/// Builds a tree from the events of the parser.
class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(const std::string& file) : file_(file) {}

  YamlNode root;

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    put(node(YamlNode::Kind::null, mark, anchor));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    put(node(YamlNode::Kind::alias, mark, 0));
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    YamlNode scalar = node(YamlNode::Kind::scalar, mark, anchor);
    scalar.quoted = tag == "!";
    scalar.has_tag = !scalar.quoted && tag != "?" && !tag.empty();
    scalar.text = value;
    put(std::move(scalar));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::sequence, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::map, mark, tag, anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    YamlNode node;
    std::set<std::string> keys;
    bool has_key = false;  ///< only for a map: the next node is the value of its last key
  };

  static YamlNode node(YamlNode::Kind kind, const YAML::Mark& mark, YAML::anchor_t anchor) {
    YamlNode made;
    made.kind = kind;
    made.line = mark.line + 1;
    made.has_anchor = anchor != 0;
    return made;
  }

  void open(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag,
            YAML::anchor_t anchor) {
    require<FormatError>(open_.size() < kMaxYamlDepth, "{}:{}: nested more than {} deep", file_,
                         mark.line + 1, kMaxYamlDepth);
    Open& opened = open_.emplace_back();
    opened.node = node(kind, mark, anchor);
    opened.node.has_tag = tag != "?" && !tag.empty();
  }

  void close() {
    YamlNode node = std::move(open_.back().node);
    open_.pop_back();
    put(std::move(node));
  }

  void put(YamlNode node) {
    if (open_.empty()) {
      root = std::move(node);
      return;
    }
    Open& parent = open_.back();
    if (parent.node.kind == YamlNode::Kind::map && !parent.has_key) {
      require<FormatError>(node.kind == YamlNode::Kind::scalar, "{}:{}: a key that is not a word",
                           file_, node.line);
      require<FormatError>(parent.keys.insert(node.text).second, "{}:{}: {} is there twice", file_,
                           node.line, printable(node.text));
      parent.node.keys.push_back({std::move(node.text), node.line});
      parent.has_key = true;
      return;
    }
    parent.has_key = false;
    parent.node.items.push_back(std::move(node));
  }

  const std::string& file_;
  std::vector<Open> open_;
};

}  // namespace

YamlNode parse_yaml(std::string_view text, const std::string& file, std::size_t max_bytes) {
  require<FormatError>(text.size() <= max_bytes, "{}: {} bytes, at most {}", file, text.size(),
                       max_bytes);
  // For other encodings the library would count other columns, and a NUL would end the text.
  const std::size_t zero = text.find('\0');
  require<FormatError>(is_utf8(text) && zero == std::string_view::npos, "{}: not UTF-8 text", file);
  TreeBuilder tree(file);
  std::istringstream in{std::string(text)};
  try {
    YAML::Parser parser(in);
    parser.HandleNextDocument(tree);
    TreeBuilder second(file);
    require<FormatError>(!parser.HandleNextDocument(second), "{}: a second document", file);
  } catch (const YAML::Exception& e) {
    throw FormatError(fmt::format("{}:{}: {}", file, e.mark.line + 1, e.msg));
  }
  return std::move(tree.root);
}

}  // namespace nvfp4::checkpoint
