#include "passes/precision.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>

#include "leaves/needs.hpp"
#include "passes/quantize.hpp"
#include "snapshot/converting.hpp"
#include "snapshot/data.hpp"
#include "snapshot/undecoded.hpp"

namespace stele::inline v0 {
namespace detail {

namespace {

/// The step that all converted leaves refer to. A leaf has the number of its base leaf.
struct PrecisionStep {
  Snapshot base;
  std::vector<DType> to;  // for each leaf of the base
  ConvertRules rules;
  // For each leaf, the count of numbers that became infinite when it was last read; only if the rules allow this.
  std::unique_ptr<std::atomic<std::uint64_t>[]> overflowed;
};

Status converted_read(const void* at, std::uint64_t number, std::uint64_t offset, std::span<std::byte> out,
                      ReadContext& context) {
  const auto& step = *static_cast<const PrecisionStep*>(at);
  const LeafView base = step.base.leaf(static_cast<std::size_t>(number));
  STELE_TRY(check_decoded(base));
  const DType from = base.dtype();
  const DType to = step.to[static_cast<std::size_t>(number)];
  const std::size_t in_size = element_size(from);
  const std::size_t out_size = element_size(to);
  ReadContext::Piece staging(context);
  std::uint64_t overflowed = 0;
  for (std::size_t done = 0; done < out.size();) {
    const std::size_t n = std::min((out.size() - done) / out_size, ReadContext::piece_size / in_size);
    const std::uint64_t first = (offset + done) / out_size;
    STELE_TRY(base.read(first * in_size, {staging.data(), n * in_size}, context));
    const ConvertOutcome outcome = convert(from, staging.data(), to, out.data() + done, n, step.rules);
    if (outcome.status != ConvertStatus::ok) return convert_error(outcome, from, to, first);
    overflowed += outcome.overflowed;
    done += n * out_size;
  }
  if (step.overflowed != nullptr && offset == 0) step.overflowed[static_cast<std::size_t>(number)] = 0;
  if (overflowed != 0) step.overflowed[static_cast<std::size_t>(number)] += overflowed;
  return {};
}

Status converted_stream(const void* at, std::uint64_t number, std::uint64_t, PieceSink& sink, ReadContext& context) {
  const auto& step = *static_cast<const PrecisionStep*>(at);
  const LeafView base = step.base.leaf(static_cast<std::size_t>(number));
  STELE_TRY(check_decoded(base));
  ConvertingSink converting(base.dtype(), step.to[static_cast<std::size_t>(number)], step.rules, sink, context);
  Status status = base.stream(converting, context);
  if (step.overflowed != nullptr) step.overflowed[static_cast<std::size_t>(number)] = converting.overflowed();
  return status;
}

void converted_needs(const void* at, std::uint64_t number, Needs& needs) {
  needs.add(static_cast<const PrecisionStep*>(at)->base.leaf(static_cast<std::size_t>(number)));
}

constexpr LeafOps precision_ops{.read = converted_read, .stream = converted_stream, .needs = converted_needs};

}  // namespace

std::uint64_t overflowed(const LeafView& leaf) noexcept {
  if (leaf.provider().ops != &precision_ops) return 0;
  const auto& step = *static_cast<const PrecisionStep*>(leaf.provider().at);
  return step.overflowed != nullptr ? step.overflowed[static_cast<std::size_t>(leaf.provider().number)].load() : 0;
}

Snapshot with_dtypes(const Snapshot& snapshot, std::vector<DType> to, ConvertRules rules) {
  auto data = derived_data(snapshot);
  auto step = std::make_shared<const PrecisionStep>(PrecisionStep{
      snapshot, std::move(to), rules,
      rules.allow_overflow ? std::make_unique<std::atomic<std::uint64_t>[]>(snapshot.leaf_count()) : nullptr});
  for (std::size_t i = 0; i < data->leaves.size(); ++i) {
    LeafData& leaf = data->leaves[i];
    if (step->to[i] == leaf.dtype) continue;
    leaf.bytes = leaf.bytes / element_size(leaf.dtype) * element_size(step->to[i]);
    leaf.dtype = step->to[i];
    leaf.provider = {&precision_ops, step.get(), i};
  }
  data->keepers.push_back(std::move(step));
  return Snapshot(std::shared_ptr<const SnapshotData>(std::move(data)));
}

}  // namespace detail

Snapshot with_precision(const Snapshot& stored, PrecisionSpec precision, ConvertRules rules) {
  const Snapshot snapshot = precision.floating != DType::none ? detail::with_floats(stored) : stored;
  std::vector<DType> to;
  bool changes = false;
  for (const detail::LeafData& leaf : snapshot.data()->leaves) {
    to.push_back(precision.apply(leaf.dtype));
    changes = changes || to.back() != leaf.dtype;
  }
  return changes ? detail::with_dtypes(snapshot, std::move(to), rules) : snapshot;
}

}  // namespace stele::inline v0
