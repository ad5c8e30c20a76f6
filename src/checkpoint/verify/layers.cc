// Checks that no layer and no weight of a layer is missing, compared with the configuration and the
// other layers.
#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <span>

#include "checkpoint/base/json_members.h"
#include "checkpoint/families/model_config.h"
#include "checkpoint/match/pattern.h"
#include "checkpoint/verify/checks.h"
#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

/// The parents of the text model's layers. Other towers have their own numbers of layers.
constexpr std::string_view kAbove[] = {"model", "language_model", "language",    "text_model",
                                       "llm",   "thinker",        "transformer", "backbone"};

/// Linear layers of one parent that need each other.
using PartnerNames = std::array<std::string_view, 3>;
constexpr PartnerNames kPartners[] = {
    {"gate_proj", "up_proj", "down_proj"}, {"w1", "w2", "w3"}, {"q_proj", "o_proj", ""}};
constexpr std::string_view kFused[] = {"gate_up_proj", "qkv_proj"};
constexpr std::int64_t kMostExperts = 1 << 20;
constexpr const char* kExpertCounts[] = {"n_routed_experts", "num_experts", "num_local_experts",
                                         "moe_num_experts"};

std::optional<std::int64_t> number_of(std::string_view digits) {
  std::int64_t number = 0;
  const char* end = digits.data() + digits.size();
  if (!is_number(digits) || std::from_chars(digits.data(), end, number).ec != std::errc())
    return std::nullopt;
  return number;
}

/// The members of kPartners that a module has, as one bit each.
struct Children {
  std::array<unsigned, std::size(kPartners)> has{};
  bool fused = false;
};

class LayerCheck {
 public:
  LayerCheck(const Subject& subject, Findings& findings) : subject_(subject), findings_(findings) {}

  void run() {
    for (const LogicalTensor& t : subject_.tensors) see(t.name);
    check_count();
    for (std::size_t s = 0; s < std::size(kPartners); ++s) check_partners(s);
    check_experts();
  }

 private:
  void see(const std::string& name) {
    const std::vector<std::string_view> parts = split_name(name);
    const std::optional<LayerPlace> layer = layer_place(name);
    if (!layer) return;
    layers_.insert(layer->number);
    see_expert(name, parts);
    // In "<parent>.up_proj.weight", a module exists if any tensor of it exists.
    const std::string_view child = parts[parts.size() - 2];
    const std::size_t length = name.size() - parts.back().size() - child.size() - 2;
    Children& children = parents_[name.substr(0, length)];
    children.fused |= std::ranges::find(kFused, child) != std::end(kFused);
    for (std::size_t s = 0; s < std::size(kPartners); ++s)
      for (std::size_t i = 0; i < kPartners[s].size(); ++i)
        if (kPartners[s][i] == child) children.has[s] |= 1u << i;
  }

  /// Records the expert of "<list>.experts.7.<...>".
  void see_expert(const std::string& name, std::span<const std::string_view> parts) {
    const auto list = std::ranges::find(parts, "experts");
    if (parts.end() - list < 3) return;
    const std::optional<std::int64_t> expert = number_of(*std::next(list));
    if (!expert || *expert >= kMostExperts) return;
    const auto length = static_cast<std::size_t>(list->data() + list->size() - name.data());
    experts_[name.substr(0, length)].insert(*expert);
  }

  /// Returns the configured number of experts if any layer has the last of them, otherwise 0.
  std::int64_t expert_count() const {
    for (const char* key : kExpertCounts) {
      const std::int64_t wanted = integer_of(config_, key);
      if (wanted <= 0 || wanted > kMostExperts) continue;
      for (const auto& [list, experts] : experts_)
        if (*experts.rbegin() == wanted - 1) return wanted;
    }
    return 0;
  }

  /// Checks that experts are numbered without a gap up to the count. A special layer may have fewer
  /// experts; then the configuration does not count them.
  void check_experts() {
    const std::int64_t count = expert_count();
    for (const auto& [list, experts] : experts_) {
      const std::int64_t wanted = std::max(*experts.rbegin() + 1, count);
      if (std::ssize(experts) == wanted) continue;
      std::int64_t first = 0;
      for (auto it = experts.begin(); it != experts.end() && *it == first; ++it) ++first;
      findings_.add("missing-expert", fmt::format("{}.{}", list, first),
                    "{}.{}: missing, {} of {} experts are there", list, first, experts.size(),
                    wanted);
    }
  }

  /// Checks the number of layers. Layers beyond the count are those of multi-token prediction. If
  /// no layer below the count exists, the files are another part of the model.
  void check_count() {
    const std::int64_t wanted = integer_of(config_, "num_hidden_layers");
    const auto end = layers_.lower_bound(wanted);
    const std::int64_t there = std::distance(layers_.begin(), end);
    if (there == 0 || there >= wanted) return;
    if (counts_blocks() && 2 * there == wanted && *layers_.rbegin() + 1 == there) return;
    std::int64_t first = 0;
    for (auto it = layers_.begin(); it != end && *it == first; ++it) ++first;
    findings_.add("missing-layers", fmt::format("layers.{}", first),
                  "{}: num_hidden_layers = {}, {} of them have tensors, layers.{} has "
                  "none",
                  subject_.config_file, wanted, there, first);
  }

  /// Reports whether attention and MLP of a layer are two entries of layer_types, as in Dory.
  bool counts_blocks() const {
    const Json& types = list_of(config_, "layer_types");
    return std::ranges::find(types, Json("mlp")) != types.end();
  }

  void check_partners(std::size_t set) {
    const PartnerNames& partners = kPartners[set];
    unsigned all = 0;
    for (std::size_t i = 0; i < partners.size(); ++i) all |= partners[i].empty() ? 0 : 1u << i;
    std::map<std::string, const std::string*> whole;  // kind -> a parent that has all
    for (const auto& [parent, children] : parents_)
      if (children.has[set] == all) whole.try_emplace(template_of(parent), &parent);
    for (const auto& [parent, children] : parents_) {
      if (children.has[set] == 0 || children.has[set] == all || children.fused) continue;
      const auto other = whole.find(template_of(parent));
      if (other == whole.end()) continue;
      for (std::size_t i = 0; i < partners.size(); ++i)
        if ((all & ~children.has[set] & 1u << i) != 0)
          findings_.add("missing-linear", fmt::format("{}.{}", parent, partners[i]),
                        "{}.{}: missing, {} has it", parent, partners[i], *other->second);
    }
  }

  const Subject& subject_;
  const Json& config_ = language_model_config(subject_.config);
  Findings& findings_;
  std::set<std::int64_t> layers_;
  std::map<std::string, Children> parents_;
  std::map<std::string, std::set<std::int64_t>> experts_;  ///< numbers of the experts in each list
};

}  // namespace

std::optional<LayerPlace> layer_place(std::string_view name) {
  const std::vector<std::string_view> parts = split_name(name);
  const auto list = std::ranges::find_if(parts, [](std::string_view part) {
    return std::ranges::find(kAbove, part) == std::end(kAbove);
  });
  if (parts.end() - list < 3 || (*list != "layers" && *list != "h")) return std::nullopt;
  const std::string_view digits = *std::next(list);
  const std::optional<std::int64_t> number = number_of(digits);
  if (!number) return std::nullopt;
  return LayerPlace{*number,
                    name.substr(static_cast<std::size_t>(digits.end() - name.begin()) + 1)};
}

bool is_beside_layers(std::string_view name) {
  // The last two parts are a module and its tensor.
  const std::vector<std::string_view> parts = split_name(name);
  return parts.size() >= 2 &&
         std::all_of(parts.begin(), parts.end() - 2, [](std::string_view part) {
           return std::ranges::find(kAbove, part) != std::end(kAbove);
         });
}

void check_layers(const Subject& subject, Findings& findings) {
  if (!subject.config.is_object()) return;
  // Such models have special or missing layers, or the count is that of an encoder.
  const auto& config = language_model_config(subject.config);
  if (config.contains("block_configs") || config.contains("decoder_layers")) return;
  LayerCheck(subject, findings).run();
}

}  // namespace nvfp4::checkpoint
