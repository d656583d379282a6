// Entries of a file that are not tensors of a known kind.
#include "snapshot/unreadable.hpp"

#include <string>

#include "snapshot/marks.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail {
namespace {

constexpr LeafOps empty_ops{.view = [](const void* at, std::uint64_t) { return static_cast<const std::byte*>(at); }};
constexpr std::byte nothing{};

}  // namespace

std::uint32_t add_unreadable(SnapshotBuilder& builder, NodeName name, std::string_view reason, std::uint64_t bytes,
                             Provider provider, bool conditional) {
  if (provider.ops == nullptr) provider = {&empty_ops, &nothing}, bytes = 0;
  const Extent shape[] = {bytes};
  const std::uint32_t node = builder.tensor(name, DType::opaque, shape, bytes, provider, conditional);
  builder.annotate(std::string(unreadable_key), Value(reason));
  return node;
}

std::string_view unreadable(const LeafView& leaf) noexcept {
  return leaf.dtype() == DType::opaque ? mark_of(leaf, unreadable_key) : std::string_view();
}

void add_unreadable_rows(const Snapshot& snapshot, Report& report) {
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    if (const std::string_view reason = unreadable(leaf); !reason.empty()) {
      report.add(Report::What::unchecked, leaf.path(), reason);
    }
  }
}

}  // namespace stele::inline v0::detail
