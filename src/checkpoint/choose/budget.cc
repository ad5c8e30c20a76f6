#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "checkpoint/choose/choose.h"

namespace nvfp4::checkpoint {
namespace {

/// Returns the indices of alternatives on the lower convex hull, by increasing bytes.
std::vector<std::size_t> hull_of(const Alternatives& all) {
  std::vector<std::size_t> order(all.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    return all[a].bytes != all[b].bytes ? all[a].bytes < all[b].bytes : all[a].error < all[b].error;
  });
  const auto gain = [&](std::size_t from, std::size_t to) {
    return (all[from].error - all[to].error) / static_cast<double>(all[to].bytes - all[from].bytes);
  };
  std::vector<std::size_t> hull;
  for (const std::size_t i : order) {
    if (!hull.empty() &&
        (all[i].bytes == all[hull.back()].bytes || !(all[i].error < all[hull.back()].error)))
      continue;
    while (hull.size() >= 2 && gain(hull.back(), i) >= gain(hull[hull.size() - 2], hull.back()))
      hull.pop_back();
    hull.push_back(i);
  }
  return hull;
}

struct Step {
  std::size_t layer, to;  ///< from the preceding alternative on its hull
  std::uint64_t bytes;
  std::int64_t slow;
  double gain;
  double rate() const { return gain / static_cast<double>(bytes); }
};

/// The smallest alternative of each layer, and the steps from there on the hulls of all layers.
/// Steps with the largest gain per byte come first.
struct Hulls {
  std::vector<std::size_t> first;  ///< smallest alternative of each layer
  std::vector<Step> steps;
};

Hulls hulls_of(std::span<const Alternatives> layers) {
  Hulls hulls;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const Alternatives& all = layers[l];
    const std::vector<std::size_t> hull = hull_of(all);
    hulls.first.push_back(hull[0]);
    for (std::size_t i = 1; i < hull.size(); ++i)
      hulls.steps.push_back({l, hull[i], all[hull[i]].bytes - all[hull[i - 1]].bytes,
                             static_cast<std::int64_t>(all[hull[i]].slow - all[hull[i - 1]].slow),
                             all[hull[i - 1]].error - all[hull[i]].error});
  }
  std::ranges::stable_sort(hulls.steps,
                           [](const Step& a, const Step& b) { return a.rate() > b.rate(); });
  return hulls;
}

/// Sets bytes and error to the sums of the choice, which avoids the rounding of subtracted gains.
void add_up(std::span<const Alternatives> layers, Allocation& of) {
  of.bytes = of.slow = 0;
  of.error = 0;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    of.bytes += layers[l][of.chosen[l]].bytes;
    of.slow += layers[l][of.chosen[l]].slow;
    of.error += layers[l][of.chosen[l]].error;
  }
}

/// Layers whose errors include `price` for each slow multiplication.
struct Priced {
  std::vector<Alternatives> layers;
  double price = 0;
  double allowance = 0;  ///< the price of the budget of slow multiplications

  Priced(std::span<const Alternatives> plain, double price, std::uint64_t budget)
      : layers(plain.begin(), plain.end()), price(price) {
    if (price == 0) return;
    allowance = price * static_cast<double>(budget);
    for (Alternatives& all : layers)
      for (Alternative& a : all) a.error += price * static_cast<double>(a.slow);
  }
};

/// Takes steps on the hulls of the layers while they fit, as in allocate().
Allocation take_steps(std::span<const Alternatives> layers, std::uint64_t bytes) {
  const Hulls hulls = hulls_of(layers);
  Allocation result;
  result.chosen = hulls.first;
  add_up(layers, result);
  std::vector<bool> ended(layers.size());
  bool bounded = false;
  result.bound = result.error;
  for (const Step& step : hulls.steps) {
    const std::uint64_t left = bytes - result.bytes;
    const bool fits = step.bytes <= left;
    if (!bounded) result.bound -= fits ? step.gain : step.rate() * static_cast<double>(left);
    bounded |= !fits;
    if (!fits || ended[step.layer]) {
      ended[step.layer] = true;
      continue;
    }
    result.chosen[step.layer] = step.to;
    result.bytes += step.bytes;
  }
  add_up(layers, result);
  return result;
}

/// Returns the least price of a slow multiplication at which take_steps() is within the budget.
double price_within(std::span<const Alternatives> layers, Budget budget) {
  const auto is_within = [&](double price) {
    return take_steps(Priced(layers, price, budget.slow).layers, budget.bytes).slow <= budget.slow;
  };
  if (is_within(0)) return 0;
  double low = -500, high = 500;  // exponents
  constexpr int kHalvings = 60;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (is_within(std::exp2(middle)) ? high : low) = middle;
  }
  return std::exp2(high);
}

/// The choice of one layer, and its node in the layer before.
struct Link {
  std::uint32_t parent = 0, choice = 0;
};

/// The choices for the first layers, in the order of the search.
struct Node {
  std::uint64_t bytes = 0, slow = 0;
  double error = 0;
  Link last;
};

/// A search layer by layer. A node is dropped if another one is better in bytes, slow
/// multiplications and error. It is also dropped if its bound, from the hulls of the remaining
/// layers, is not below the best error. The errors of nodes, steps and the bound include the price
/// of slow multiplications, less the price of their budget.
class Search {
 public:
  Search(std::span<const Alternatives> layers, Budget budget, const Priced& priced, Allocation best)
      : plain_(layers),
        layers_(priced.layers),
        budget_(budget),
        price_(priced.price),
        allowance_(priced.allowance),
        hulls_(hulls_of(priced.layers)),
        best_(std::move(best)) {
    for (std::size_t l = 0; l < layers.size(); ++l) order_.push_back(l);
    const auto spread = [&](std::size_t l) {
      const auto [low, high] = std::ranges::minmax(layers[l], {}, &Alternative::bytes);
      return high.bytes - low.bytes;
    };
    // Layers of small steps come last, since the bound of the remaining layers is then tight.
    std::ranges::stable_sort(order_, std::ranges::greater(), spread);
  }

  Allocation run(std::size_t nodes) {
    nodes_ = {Node{}};
    std::vector<Step> steps = hulls_.steps;
    Alternative rest;  // the remaining layers, each with its smallest alternative
    rest.error = -allowance_;
    for (std::size_t l = 0; l < layers_.size(); ++l) add(rest, l, 1);
    for (std::size_t d = 0;; ++d) {
      keep_hopeful(rest, steps);
      if (nodes_.empty() || d == layers_.size()) break;
      const std::size_t layer = order_[d];
      constexpr std::size_t kStepsOfANode = 16;  // steps in the time of one node
      const std::size_t cost = nodes_.size() * layers_[layer].size() + steps.size() / kStepsOfANode;
      if (cost > nodes) return best_;
      nodes -= cost;
      std::erase_if(steps, [&](const Step& step) { return step.layer == layer; });
      add(rest, layer, -1);
      expand(layers_[layer]);
    }
    best_.exact = std::isfinite(best_.error);
    return best_;
  }

 private:
  /// Adds or subtracts the smallest alternative of a layer.
  void add(Alternative& to, std::size_t layer, int sign) const {
    const Alternative& first = layers_[layer][hulls_.first[layer]];
    to.bytes += sign > 0 ? first.bytes : -first.bytes;
    to.slow += sign > 0 ? first.slow : -first.slow;
    to.error += sign * first.error;
  }

  void expand(const Alternatives& all) {
    std::vector<Node> next;
    next.reserve(nodes_.size() * all.size());
    std::vector<Link>& links = links_.emplace_back();
    for (const Node& node : nodes_) {
      const auto n = static_cast<std::uint32_t>(links.size());
      links.push_back(node.last);
      for (std::uint32_t a = 0; a < all.size(); ++a)
        next.push_back({node.bytes + all[a].bytes,
                        node.slow + all[a].slow,
                        node.error + all[a].error,
                        {n, a}});
    }
    std::ranges::sort(next, {}, [](const Node& n) {
      return std::tuple(n.bytes, n.error, n.last.parent, n.last.choice);
    });
    nodes_ = std::move(next);
  }

  /// Reports whether a node with no more bytes is also as good in slow multiplications and error.
  /// `least` has the least error, without prices, by slow multiplications; the node is added.
  bool is_worse(const Node& node, std::map<std::uint64_t, double>& least) const {
    const double error = node.error - price_ * static_cast<double>(node.slow);
    auto it = least.upper_bound(node.slow);
    if (it != least.begin() && !(error < std::prev(it)->second)) return true;
    while (it != least.end() && !(it->second < error)) it = least.erase(it);
    least[node.slow] = error;
    return false;
  }

  /// Drops nodes that cannot be better than the best. Also tests whether a node, with whole steps
  /// for the remaining layers, is better.
  void keep_hopeful(const Alternative& rest, const std::vector<Step>& steps) {
    // Nodes are sorted by bytes: the first has the most room for steps.
    std::size_t taken = steps.size(), kept = 0;
    std::uint64_t step_bytes = 0, step_slow = 0;
    double gain = 0;
    std::map<std::uint64_t, double> least;
    for (const Step& step : steps) {
      step_bytes += step.bytes;
      step_slow += static_cast<std::uint64_t>(step.slow);
      gain += step.gain;
    }
    for (const Node& node : nodes_) {
      if (is_worse(node, least)) continue;
      if (node.bytes + rest.bytes > budget_.bytes) break;
      const std::uint64_t left = budget_.bytes - node.bytes - rest.bytes;
      while (step_bytes > left) {
        --taken;
        step_bytes -= steps[taken].bytes;
        step_slow -= static_cast<std::uint64_t>(steps[taken].slow);
        gain -= steps[taken].gain;
      }
      const double whole = node.error + rest.error - gain;
      const double part =
          taken == steps.size() ? 0 : steps[taken].rate() * static_cast<double>(left - step_bytes);
      const std::uint64_t slow = node.slow + rest.slow + step_slow;
      if (slow <= budget_.slow &&
          is_better(whole + allowance_ - price_ * static_cast<double>(slow)))
        take(node.last, std::span(steps).first(taken));
      if (node.slow <= budget_.slow && is_better(whole - part)) nodes_[kept++] = node;
    }
    nodes_.resize(kept);
  }

  bool is_better(double error) const {
    return error < best_.error - kRounding * (best_.error + allowance_);
  }

  /// Sets the best choice to that of a node, with steps for the remaining layers.
  void take(Link last, std::span<const Step> steps) {
    best_.chosen = hulls_.first;
    for (const Step& step : steps) best_.chosen[step.layer] = step.to;
    for (std::size_t d = links_.size(); d > 0; --d) {
      best_.chosen[order_[d - 1]] = last.choice;
      last = links_[d - 1][last.parent];
    }
    add_up(plain_, best_);
  }

  /// The largest relative difference between sums of the same errors in another order.
  static constexpr double kRounding = 1e-12;

  std::span<const Alternatives> plain_, layers_;
  Budget budget_;
  double price_, allowance_;
  Hulls hulls_;
  std::vector<std::size_t> order_;
  std::vector<Node> nodes_;               ///< nodes of the current layer
  std::vector<std::vector<Link>> links_;  ///< nodes of the layers before
  Allocation best_;
};

}  // namespace

std::uint64_t least_bytes(std::span<const Alternatives> layers) {
  std::uint64_t sum = 0;
  for (const Alternatives& all : layers)
    sum += std::ranges::min_element(all, {}, &Alternative::bytes)->bytes;
  return sum;
}

Allocation allocate(std::span<const Alternatives> layers, Budget budget) {
  const Priced priced(layers, price_within(layers, budget), budget.slow);
  Allocation result = take_steps(priced.layers, budget.bytes);
  result.bound -= priced.allowance;
  add_up(layers, result);
  return result;
}

Allocation allocate_exactly(std::span<const Alternatives> layers, Budget budget,
                            std::size_t nodes) {
  const Priced priced(layers, price_within(layers, budget), budget.slow);
  return Search(layers, budget, priced, allocate(layers, budget)).run(nodes);
}

}  // namespace nvfp4::checkpoint
