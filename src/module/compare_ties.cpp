#include "module/compare_ties.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/hash.hpp"
#include "base/patterns.hpp"
#include "snapshot/converting.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail {
namespace {

/// Finds the tensors or values of a plan by path. Stores hashes, because paths may be long.
template <class Op>
class ByPath {
 public:
  ByPath(const PathStore& paths, const std::vector<Op>& ops) : paths_(paths) {
    for (const Op& op : ops) by_hash_.try_emplace(hash_of(paths.text(op.path)), &op);
  }
  const Op* find(const std::string& path) const {
    const auto found = by_hash_.find(hash_of(path));
    return found != by_hash_.end() && paths_.text(found->second->path) == path ? found->second : nullptr;
  }

 private:
  static std::uint64_t hash_of(const std::string& path) { return hash64(path.data(), path.size()); }
  const PathStore& paths_;
  std::unordered_map<std::uint64_t, const Op*> by_hash_;
};

Result<std::uint64_t> content_hash(const LeafView& leaf, DType dtype, const LoadOptions& options,
                                   ReadContext& context) {
  class HashSink final : public PieceSink {
   public:
    Status piece(std::span<const std::byte> bytes) override {
      hasher.update(bytes.data(), bytes.size());
      return {};
    }
    Hasher hasher;
  } sink;
  if (leaf.dtype() == dtype) {
    STELE_TRY(leaf.stream(sink, context));
  } else {
    STELE_TRY(stream_as(leaf, dtype, options.convert, sink, context));
  }
  return sink.hasher.digest();
}

/// Reports contents under an additional name of a shared object, which the load would lose.
Status differs(const LoadPlan& plan, const TiedOp& tie, const Patterns& allowed, Report& report) {
  const std::string path = plan.paths.text(tie.path);
  const std::string first = plan.first(tie);
  report.add(Report::What::unused, path, "differs from " + first + ", which is loaded under both names");
  if (allowed.match(path)) return {};
  return Error(Errc::unused, "the file has different contents for the names of a shared object")
      .path(path)
      .expected("the same as " + first)
      .found(tie.ops != nullptr ? "another tensor" : "another value")
      .hint("list the path in LoadOptions::allow_unused");
}

}  // namespace

Status compare_ties(const LoadPlan& plan, const LoadOptions& options, ReadContext& context, Report& report) {
  if (plan.ties.empty()) return {};
  const Snapshot& snapshot = plan.snapshot;
  const Patterns allowed(options.allow_unused);
  const ByPath<TensorOp> tensors(plan.paths, plan.tensors);
  const ByPath<ValueOp> values(plan.paths, plan.values);
  const auto first_of = [&](const TiedOp& tie) -> std::optional<std::uint32_t> {
    const TensorOp* found = tensors.find(plan.first(tie));
    return found != nullptr ? std::optional(found->leaf) : std::nullopt;
  };
  // Compares elements unchanged if the dtypes are equal, otherwise after conversion to the module's dtype.
  const auto dtype_of = [&](const TiedOp& tie, std::uint32_t first) {
    const DType dtype = snapshot.leaf(first).dtype();
    return dtype == snapshot.leaf(tie.number).dtype() ? dtype : loaded_dtype(*tie.ops, dtype);
  };
  // Compares hashes, which are computed once per leaf in the file's order.
  std::map<std::pair<std::uint32_t, DType>, std::uint64_t> hashes;
  std::vector<bool> same(plan.ties.size());
  for (std::size_t i = 0; i < plan.ties.size(); ++i) {
    const TiedOp& tie = plan.ties[i];
    if (tie.ops == nullptr) {
      const ValueOp* first = values.find(plan.first(tie));
      same[i] = first != nullptr && *first->value == *tie.value;
      continue;
    }
    const auto first = first_of(tie);
    if (!first) continue;
    const auto a = snapshot.leaf(*first).shape();
    const auto b = snapshot.leaf(tie.number).shape();
    same[i] = std::equal(a.begin(), a.end(), b.begin(), b.end());
    if (!same[i] || *first == tie.number) continue;
    for (const std::uint32_t leaf : {*first, tie.number}) hashes[{leaf, dtype_of(tie, *first)}] = 0;
  }
  for (auto& [leaf, hash] : hashes) {
    STELE_TRY_ASSIGN(hash, content_hash(snapshot.leaf(leaf.first), leaf.second, options, context));
  }
  for (std::size_t i = 0; i < plan.ties.size(); ++i) {
    const TiedOp& tie = plan.ties[i];
    if (const auto first = first_of(tie); same[i] && tie.ops != nullptr && *first != tie.number) {
      const DType dtype = dtype_of(tie, *first);
      same[i] = hashes.at({*first, dtype}) == hashes.at({tie.number, dtype});
    }
    if (!same[i]) STELE_TRY(differs(plan, tie, allowed, report));
  }
  return {};
}

}  // namespace stele::inline v0::detail
