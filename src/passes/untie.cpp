#include "passes/untie.hpp"

#include <algorithm>

#include "base/limits.hpp"
#include "base/name_order.hpp"
#include "snapshot/adopt.hpp"
#include "snapshot/data.hpp"
#include "snapshot/paths.hpp"

namespace stele::inline v0::detail {
namespace {

/// Builds a snapshot without ties: replaces each alias by its target.
class AliasExpander {
 public:
  explicit AliasExpander(const Snapshot& from) : from_(from), nodes_(from.nodes()) {}

  /// Returns the number of names visited.
  std::uint64_t steps() const noexcept { return steps_; }
  /// Returns the nodes of the tensors under each of their names, in order.
  const std::vector<std::uint32_t>& tensors() const noexcept { return tensors_; }

  Result<Snapshot> run() {
    if (from_.flat()) {
      builder_.set_flat();
      for (std::uint32_t i = 1; i < nodes_.size(); ++i) STELE_TRY(flat(i));
    } else if (!nodes_.empty()) {
      STELE_TRY(nested(0, 0, 0));
    }
    builder_.set_metadata(from_.metadata());
    if (from_.in_order()) builder_.set_in_order();
    builder_.set_unknown_kinds(from_.unknown_kinds());
    builder_.data().type = from_.data()->type;
    builder_.data().origin = from_.data()->origin;
    builder_.data().properties = from_.data()->properties;
    builder_.data().left_out = from_.data()->left_out;
    builder_.data().beside = from_.data()->beside;
    builder_.keep(from_.data());
    return builder_.finish();
  }

 private:
  using Name = SnapshotBuilder::Name;
  Status one_more(std::uint32_t i, int depth) {
    if (++count_ <= max_names && depth <= max_depth) return {};
    return Error(Errc::limit, "aliases of aliased containers give more than 2^24 names, or nest too deeply")
        .path(from_.path(i));
  }

  /// Adds node `what` under the name of node `i`.
  Status nested(std::uint32_t i, std::uint32_t what, int depth) {
    STELE_TRY(one_more(i, depth));
    const Node& node = nodes_[what];
    const Node& named = nodes_[i];
    if (node.kind == NodeKind::alias) return nested(i, node.index, depth + 1);
    const Name name =
        named.name != nullptr ? Name(std::string_view(named.name, named.name_size)) : Name::element(named.name_size);
    if (leaf(node, name, named.conditional)) return {};
    builder_.begin(node.kind, name, named.conditional, from_.type_name(node), from_.version(node));
    for (std::uint32_t k = what + 1; k < node.end; k = nodes_[k].end) STELE_TRY(nested(k, k, depth + 1));
    builder_.end();
    return {};
  }

  Status flat(std::uint32_t i) { return flat(i, nodes_[i], name_of(i), nodes_[i].conditional, 0); }

  /// Adds node `node` under a name, on behalf of node `i`.
  Status flat(std::uint32_t i, const Node& node, std::string_view name, bool conditional, int depth) {
    STELE_TRY(one_more(i, depth));
    const Node& meant = node.kind == NodeKind::alias ? nodes_[node.index] : node;
    if (leaf(meant, name, conditional) || node.kind != NodeKind::alias) return {};
    // For an alias of a container, adds all names that continue the container's name, in the file's order.
    const std::string target = from_.path(node.index) + '.';
    if (by_name_.empty()) order_names();
    const auto begin = std::lower_bound(by_name_.begin(), by_name_.end(), std::string_view(target),
                                        [&](std::uint32_t k, std::string_view n) { return ++steps_, name_of(k) < n; });
    auto end = begin;
    while (end != by_name_.end() && name_of(*end).starts_with(target)) ++end;
    std::vector<std::uint32_t> below(begin, end);
    std::sort(below.begin(), below.end());
    for (const std::uint32_t k : below) {
      ++steps_;
      const std::string copy_path = std::string(name) + '.' + std::string(name_of(k).substr(target.size()));
      STELE_TRY(flat(i, nodes_[k], builder_.intern(copy_path), nodes_[k].conditional, depth + 1));
    }
    return {};
  }

  std::string_view name_of(std::uint32_t i) const { return {nodes_[i].name, nodes_[i].name_size}; }

  /// Sorts all names except the root's, which is empty.
  void order_names() {
    by_name_ =
        order_by_name(static_cast<std::uint32_t>(nodes_.size() - 1), [&](std::uint32_t k) { return name_of(k + 1); });
    for (std::uint32_t& k : by_name_) ++k;
  }

  /// Adds a leaf. Returns false for a container.
  bool leaf(const Node& node, Name name, bool conditional) {
    if (node.kind == NodeKind::none) return builder_.none(name, conditional), true;
    if (node.kind == NodeKind::value) return builder_.value(name, from_.value(node), conditional), true;
    if (node.kind != NodeKind::tensor) return false;
    tensors_.push_back(static_cast<std::uint32_t>(&node - nodes_.data()));
    add_leaf(builder_, name, from_.leaf(node.index), conditional);
    return true;
  }

  const Snapshot& from_;
  std::span<const Node> nodes_;
  SnapshotBuilder builder_;
  std::vector<std::uint32_t> tensors_;
  std::size_t count_ = 0;
  std::vector<std::uint32_t> by_name_;  // flat only: the nodes in the order of their names, filled on first use
  std::uint64_t steps_ = 0;
};

}  // namespace

Result<Snapshot> untied(const Snapshot& snapshot, std::uint64_t* steps) {
  AliasExpander expander(snapshot);
  auto made = expander.run();
  if (steps != nullptr) *steps = expander.steps();
  return made;
}

Status each_tensor_name(const Snapshot& snapshot,
                        const std::function<Status(const std::string& path, const Node& tensor)>& visit) {
  const auto nodes = snapshot.nodes();
  if (std::none_of(nodes.begin(), nodes.end(), [](const Node& n) { return n.kind == NodeKind::alias; })) {
    const LeafPaths paths(*snapshot.data());
    for (const Node& node : nodes) {
      if (node.kind == NodeKind::tensor) STELE_TRY(visit(std::string(paths[node.index]), node));
    }
    return {};
  }
  AliasExpander expander(snapshot);
  STELE_TRY_ASSIGN(const Snapshot names, expander.run());
  const LeafPaths paths(*names.data());
  for (std::size_t i = 0; i < names.leaf_count(); ++i)
    STELE_TRY(visit(std::string(paths[i]), snapshot.nodes()[expander.tensors()[i]]));
  return {};
}

}  // namespace stele::inline v0::detail
