// Codes and scales of quantized weights that are not decoded.
#include "snapshot/undecoded.hpp"

#include <string>

#include "snapshot/marks.hpp"

namespace stele::inline v0::detail {
namespace {

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

std::string_view undecoded(const LeafView& leaf) noexcept { return mark_of(leaf, undecoded_key); }

bool has_undecoded(const Snapshot& snapshot) noexcept { return has_mark(snapshot, undecoded_key); }

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

Snapshot without_undecoded(const Snapshot& snapshot) { return without_mark(snapshot, undecoded_key); }

}  // namespace stele::inline v0::detail
