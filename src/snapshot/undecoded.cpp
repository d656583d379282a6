#include "snapshot/undecoded.hpp"

#include <algorithm>
#include <memory>
#include <string>

#include "snapshot/data.hpp"

namespace stele::inline v0::detail {
namespace {

bool is_marked(const LeafExtra& extra) {
  return extra.annotations != nullptr && extra.annotations->contains(std::string(undecoded_key));
}

Error not_decoded(const LeafView& leaf, std::size_t others) {
  std::string text = "the tensor is a part of a quantized weight, whose scheme is not decoded";
  if (others != 0) text += " (and " + std::to_string(others) + " more)";
  return Error(Errc::unsupported, text)
      .path(leaf.path())
      .expected("numbers, or codes of a scheme in docs/guide/quantized-checkpoints.md")
      .found(std::string(undecoded(leaf)) + ", as " + std::string(name(leaf.dtype())))
      .hint(
          "keep the stored precision, and save to safetensors, .stele, .npz or .pt; for codes and scales as numbers, "
          "call stele::raw_codes");
}

}  // namespace

std::string_view undecoded(const LeafView& leaf) noexcept {
  const Annotations* const annotations = leaf.annotations();
  if (annotations == nullptr) return {};
  const auto found = annotations->find(std::string(undecoded_key));
  const std::string* const scheme = found != annotations->end() ? found->second.as_string() : nullptr;
  return scheme != nullptr ? std::string_view(*scheme) : std::string_view();
}

bool has_undecoded(const Snapshot& snapshot) noexcept {
  const auto& extras = snapshot.data()->extras;
  return std::any_of(extras.begin(), extras.end(), is_marked);
}

Status check_decoded(const LeafView& leaf) {
  if (undecoded(leaf).empty()) return {};
  return not_decoded(leaf, 0);
}

Status check_decoded(const Snapshot& snapshot) {
  if (!has_undecoded(snapshot)) return {};
  std::size_t first = snapshot.leaf_count(), count = 0;
  for (std::size_t i = snapshot.leaf_count(); i-- > 0;) {
    if (!undecoded(snapshot.leaf(i)).empty()) first = i, ++count;
  }
  if (count == 0) return {};
  return not_decoded(snapshot.leaf(first), count - 1);
}

Snapshot without_undecoded(const Snapshot& snapshot) {
  if (!has_undecoded(snapshot)) return snapshot;
  auto data = derived_data(snapshot);
  for (LeafExtra& extra : data->extras) {
    if (!is_marked(extra)) continue;
    Annotations rest = *extra.annotations;
    rest.erase(std::string(undecoded_key));
    extra.annotations = rest.empty() ? nullptr : std::make_unique<const Annotations>(std::move(rest));
  }
  return Snapshot(std::shared_ptr<const SnapshotData>(std::move(data)));
}

}  // namespace stele::inline v0::detail
