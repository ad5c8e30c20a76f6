#include "checkpoint/match/expression_set.h"

#include <re2/set.h>

#include <algorithm>

#include "core/require.h"

namespace nvfp4::checkpoint {
namespace {

/// Size of a chunk. With larger chunks, automata grow more than the number of calls shrinks.
constexpr std::size_t kMostOfChunk = 128;
/// Memory of a chunk's program and automaton. A chunk that does not fit is split.
constexpr std::int64_t kChunkBytes = 1 << 20;

/// Names and expressions in a set are ASCII, so a byte is a character.
RE2::Options set_options() {
  RE2::Options options(RE2::Latin1);
  options.set_log_errors(false);
  options.set_max_mem(kChunkBytes);
  return options;
}

}  // namespace

struct ExpressionSet::Chunk {
  std::vector<std::size_t> members;
  std::string called;
  RE2::Set set{set_options(), RE2::ANCHOR_START};
};

ExpressionSet::ExpressionSet(std::span<const std::string_view> texts, SharedBudget budget)
    : texts_(texts.begin(), texts.end()), budget_(std::move(budget)), alone_(texts.size()) {
  std::vector<std::size_t> together;
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    auto expression =
        std::make_unique<const Expression>(texts_[i], Expression::Extent::start, budget_);
    const bool linear = expression->is_linear() && is_plain_text(texts_[i]);
    (linear ? together : others_).push_back(i);
    if (!linear) alone_[i] = std::move(expression);
  }
  for (std::size_t i = 0; i < together.size(); i += kMostOfChunk)
    add_chunks(std::span(together).subspan(i, std::min(kMostOfChunk, together.size() - i)));
  std::ranges::sort(others_);
}

ExpressionSet::~ExpressionSet() = default;

void ExpressionSet::add_chunks(std::span<const std::size_t> members) {
  const std::string& first = texts_[members.front()];
  Chunk chunk{.members = {members.begin(), members.end()},
              .called = members.size() == 1 ? first
                                            : fmt::format("{} or one of {} expressions after it",
                                                          first, members.size() - 1)};
  const bool added = std::ranges::all_of(
      members, [&](std::size_t i) { return chunk.set.Add(texts_[i], nullptr) >= 0; });
  if (added && chunk.set.Compile()) return chunks_.push_back(std::move(chunk));
  if (members.size() == 1) return others_.push_back(members.front());
  add_chunks(members.first(members.size() / 2));
  add_chunks(members.subspan(members.size() / 2));
}

bool ExpressionSet::matches(std::size_t expression, std::string_view name) const {
  ++calls_;
  const Expression* alone = nullptr;
  {
    const std::lock_guard lock(mutex_);
    auto& owned = alone_[expression];
    if (owned == nullptr)
      owned = std::make_unique<const Expression>(texts_[expression], Expression::Extent::start,
                                                 budget_);
    alone = owned.get();
  }
  return alone->matches(name);
}

std::optional<std::size_t> ExpressionSet::first_of(const Chunk& chunk,
                                                   std::string_view name) const {
  ++calls_;
  std::vector<int> found;
  RE2::Set::ErrorInfo error{};
  const ComputedTime time;
  const bool any = chunk.set.Match(re2::StringPiece(name.data(), name.size()), &found, &error);
  budget_->spend(time.steps(), chunk.called);
  if (any) return chunk.members[static_cast<std::size_t>(std::ranges::min(found))];
  if (error.kind == RE2::Set::kNoError) return std::nullopt;
  const auto it = std::ranges::find_if(
      chunk.members, [&](std::size_t expression) { return matches(expression, name); });
  return it == chunk.members.end() ? std::nullopt : std::optional(*it);
}

std::optional<std::size_t> ExpressionSet::first(std::string_view name, std::size_t end) const {
  std::optional<std::size_t> found;
  if (is_plain_text(name)) {
    for (const Chunk& chunk : chunks_) {
      if (found || chunk.members.front() >= end) break;
      found = first_of(chunk, name);
    }
    if (found && *found >= end) found.reset();
    for (const std::size_t i : others_) {
      if (i >= found.value_or(end)) break;
      if (matches(i, name)) return i;
    }
    return found;
  }
  for (std::size_t i = 0; i < std::min(end, texts_.size()); ++i)
    if (matches(i, name)) return i;
  return std::nullopt;
}

}  // namespace nvfp4::checkpoint
