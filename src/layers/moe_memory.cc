// The memory of a call of MoeLayer: allocated once, or placed in the caller's.
#include <algorithm>
#include <limits>

#include "layers/moe_layer.h"

namespace nvfp4 {

/// Returns the number of tokens that the CPU processes together. It bounds the memory of the rows.
std::int64_t MoeLayer::tokens_at_a_time(std::int64_t top_k) const {
  constexpr std::int64_t kBytes = std::int64_t{256} << 20;
  const ActivationScale& a = options_.down_activation;
  if (!on_cpu() ||
      (a.kind() == ActivationScale::Kind::measured && a.scope() == GlobalScope::tensor))
    return std::numeric_limits<std::int64_t>::max();  // measured over all tokens
  const std::int64_t row = 2 * routed_.intermediate() + routed_.hidden();
  return std::max<std::int64_t>(
      1, kBytes / (std::max<std::int64_t>(top_k, 1) * row * std::int64_t{4}));
}

/// Returns the type of the experts' results before they are summed.
DType MoeLayer::down_type(DType out) const {
  return !on_cpu() && out == DType::bf16 ? DType::bf16 : DType::f32;
}

/// Allocates the memory for the largest input.
void MoeLayer::reserve() const {
  Scratch<Work>::Lease lease(work_);
  Work& work = *lease;
  const std::int64_t tokens = std::min(options_.max_tokens, tokens_at_a_time(options_.max_top_k));
  const std::int64_t rows = tokens * options_.max_top_k, k = routed_.hidden();
  std::int64_t width = rows * routed_.intermediate();
  for (const Experts& s : shared_) width = std::max(width, tokens * s.intermediate());
  const auto fused = [](const Experts& e) { return e.fused; };
  if (!fused(routed_) || !std::ranges::all_of(shared_, fused))
    work.gate_up.get(DType::f32, 1, 2 * width, device());
  work.down.get(DType::f32, rows, k, device());
  if (!shared_.empty()) work.sum.get(DType::f32, tokens, k, device());
  if (shared_.size() > 1) work.shared.get(DType::f32, tokens, k, device());
  for (Rows* of_rows : {&work.row_of, &work.token_of, &work.expert_of})
    words<std::int32_t>(*of_rows, rows, device());
  words<std::int32_t>(work.row_ends, routed_.count(), device());
  words<std::int32_t>(work.counts, dispatch_counts(rows, routed_.count()), device());
  if (!w4a4()) {
    work.gathered.get(on_cpu() ? DType::f32 : DType::bf16, rows, k, device());
    work.hidden.get(options_.intermediate, 1, width, device());
    return;
  }
  work.x.get(options_.max_tokens, k, input_.scope, device());
  work.gathered_x.get(rows, k, input_.scope, device());
  work.activated.get(1, width, GlobalScope::vector, device());
  work.activated.get(std::max(rows, tokens), kBlock, GlobalScope::vector, device());
  words<float>(work.row_scales, 2 * rows, device());
  std::int64_t workspace = 0;
  const DispatchJob any_order;
  const auto widen = [&](const Experts& e, std::int64_t of_rows, const Rule& rule) {
    for (const PackedWeights* w : {&e.gate_up, &e.down}) {
      GemmDescription d = description(*w, of_rows, rule);
      d.autotune = false;
      workspace = std::max(workspace, plan_gemm(*w, d).workspace_bytes());
    }
  };
  widen(routed_, rows, {.order = &any_order});
  for (const Experts& s : shared_) widen(s, tokens, {});
  work.workspace.bytes(workspace, device());
}

void MoeLayer::place(Work& work, Arena& arena, std::int64_t tokens, std::int64_t top_k,
                     DType out) const {
  const std::int64_t rows = tokens * top_k, k = routed_.hidden(), i = routed_.intermediate();
  const auto give = [&](Rows& memory, std::int64_t values, DType type) {
    const std::int64_t bytes = values * dtype_size(type);
    memory.place(arena.take(bytes), bytes);
  };
  for (Rows* of_rows : {&work.row_of, &work.token_of, &work.expert_of})
    give(*of_rows, rows, DType::f32);
  give(work.row_ends, routed_.count(), DType::f32);
  give(work.counts, dispatch_counts(rows, routed_.count()), DType::f32);
  if (!routed_.fused) give(work.gate_up, rows * 2 * i, DType::f32);
  if (w4a4()) {
    work.x.place(arena, tokens, tokens * k);
    work.gathered_x.place(arena, rows, rows * k);
    work.activated.place(arena, rows, rows * i);
    give(work.row_scales, 2 * rows, DType::f32);
    give(work.down, rows * k, down_type(out));
    return;
  }
  give(work.hidden, rows * i, options_.intermediate);
  // The rows of x are read before those of down are written.
  const std::int64_t bytes = rows * k * dtype_size(down_type(out));
  std::byte* const shared = arena.take(bytes);
  work.down.place(shared, bytes);
  work.gathered.place(shared, bytes);
}

std::int64_t MoeLayer::memory_bytes(std::int64_t tokens, std::int64_t top_k, DType out) const {
  Work work;
  Arena arena;
  place(work, arena, tokens, top_k, out);
  return arena.taken;
}

std::int64_t MoeLayer::workspace_bytes(std::int64_t tokens, std::int64_t top_k) const {
  const Routing routing{.rows = tokens, .top_k = top_k};
  const DispatchJob any_order;
  const Rule rule = takes_choices(routing) ? Rule{.choices = &routing} : Rule{.order = &any_order};
  GemmDescription gate_up = gate_up_description(routed_, tokens * top_k, rule);
  gate_up.shared_x = rule.choices != nullptr;
  const GemmDescription down = description(routed_.down, tokens * top_k, rule);
  return std::max(plan_gemm(gate_up, device()).workspace_bytes(),
                  plan_gemm(down, device()).workspace_bytes());
}

}  // namespace nvfp4
