// Marks of leaves, as annotations.
#include "snapshot/marks.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "snapshot/data.hpp"

namespace stele::inline v0::detail {
namespace {

bool holds_mark(const LeafExtra& extra, std::string_view key) {
  return extra.annotations != nullptr && extra.annotations->contains(std::string(key));
}

}  // namespace

std::string_view mark_of(const LeafView& leaf, std::string_view key) noexcept {
  const Annotations* const annotations = leaf.annotations();
  if (annotations == nullptr) return {};
  const auto found = annotations->find(std::string(key));
  const std::string* const text = found != annotations->end() ? found->second.as_string() : nullptr;
  return text != nullptr ? std::string_view(*text) : std::string_view();
}

void set_mark(SnapshotData& data, std::size_t leaf, std::string_view key, std::string text) {
  std::uint32_t& at = data.leaves[leaf].extra;
  if (at == no_index) {
    at = static_cast<std::uint32_t>(data.extras.size());
    data.extras.emplace_back();
  }
  LeafExtra& extra = data.extras[at];
  Annotations all = extra.annotations != nullptr ? *extra.annotations : Annotations();
  all.insert_or_assign(std::string(key), Value(std::move(text)));
  extra.annotations = std::make_unique<const Annotations>(std::move(all));
}

bool has_mark(const Snapshot& snapshot, std::string_view key) noexcept {
  const auto& extras = snapshot.data()->extras;
  return std::any_of(extras.begin(), extras.end(), [key](const LeafExtra& extra) { return holds_mark(extra, key); });
}

Snapshot without_mark(const Snapshot& snapshot, std::string_view key) {
  if (!has_mark(snapshot, key)) return snapshot;
  auto data = derived_data(snapshot);
  for (LeafExtra& extra : data->extras) {
    if (!holds_mark(extra, key)) continue;
    Annotations rest = *extra.annotations;
    rest.erase(std::string(key));
    extra.annotations = rest.empty() ? nullptr : std::make_unique<const Annotations>(std::move(rest));
  }
  return Snapshot(std::shared_ptr<const SnapshotData>(std::move(data)));
}

}  // namespace stele::inline v0::detail
