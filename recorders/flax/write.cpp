// Writes a Snapshot as MessagePack.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/parallel.hpp"
#include "encodings/msgpack/msgpack.hpp"
#include "flax.hpp"
#include "passes/byte_order.hpp"
#include "snapshot/data.hpp"
#include "snapshot/leaf_gather.hpp"
#include "snapshot/tree.hpp"
#include "stele/recorders/flax.hpp"

namespace stele::inline v0 {
namespace detail::flax {
namespace {

/// Writes the beginning of an array's extension, up to the array's bytes.
Status begin_array(msgpack::Writer& out, std::int8_t extension, std::span<const Extent> shape, DType dtype,
                   std::uint64_t bytes) {
  const auto content = [&](msgpack::Writer& to) -> Status {
    STELE_TRY(to.begin_list(3));
    STELE_TRY(to.begin_list(shape.size()));
    for (const Extent extent : shape) STELE_TRY(to.value(Value(std::uint64_t{extent})));
    STELE_TRY(to.text(type_of(dtype)->name));
    return to.begin_bytes(bytes);
  };
  msgpack::Writer counted(nullptr);
  STELE_TRY(content(counted));
  STELE_TRY(out.begin_extension(extension, counted.size()));
  return content(out);
}

/// Writes the bytes of a large leaf as arrays of `part` bytes.
class Parts final : public PieceSink {
 public:
  Parts(msgpack::Writer& out, LeafGather* gather, const LeafView& leaf, std::uint64_t part)
      : out_(out), gather_(gather), leaf_(leaf), part_(part) {}
  Status piece(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      if (done_ % part_ == 0) STELE_TRY(begin());
      const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), part_ - done_ % part_));
      STELE_TRY(gather_->write(bytes.first(n)));
      done_ += n;
      bytes = bytes.subspan(n);
    }
    return {};
  }
  Status run(ReadContext& context) {
    const std::uint64_t size = leaf_.byte_size();
    STELE_TRY(out_.begin_map(static_cast<std::size_t>((size + part_ - 1) / part_)));
    if (gather_ != nullptr) return leaf_.stream(*this, context);
    for (; done_ < size; done_ += std::min(part_, size - done_)) STELE_TRY(begin());
    return {};
  }

 private:
  Status begin() {
    STELE_TRY(out_.text(std::to_string(done_ / part_)));
    const std::uint64_t bytes = std::min(part_, leaf_.byte_size() - done_);
    const Extent shape[] = {bytes / element_size(leaf_.dtype())};
    return begin_array(out_, array_type, shape, leaf_.dtype(), bytes);
  }

  msgpack::Writer& out_;
  LeafGather* gather_;
  const LeafView& leaf_;
  std::uint64_t part_, done_ = 0;
};

class Writer {
 public:
  /// If `gather` is null, only counts the bytes.
  Writer(const Snapshot& snapshot, std::uint64_t part, LeafGather* gather, ReadContext& context)
      : snapshot_(snapshot), tree_(snapshot), part_(part), gather_(gather), context_(context), out_(gather) {}

  Status run() { return write(tree_.root(), 0); }
  std::uint64_t size() const noexcept { return out_.size(); }

 private:
  /// Maximum depth of an entry; an array adds three levels.
  static constexpr unsigned max_entry_depth = msgpack::max_depth - 4;

  Status in_path(Status status) const {
    return status ? std::move(status) : Status(std::move(status).error().path(path_));
  }
  Error too_deep() const {
    return Error(Errc::not_representable, "the entry is nested too deeply")
        .path(path_)
        .expected("at most " + std::to_string(max_entry_depth) + " levels");
  }
  static unsigned depth_of(const Value& value) {
    unsigned deepest = 0;
    if (const auto* list = value.as_list()) {
      for (const Value& element : *list) deepest = std::max(deepest, 1 + depth_of(element));
    } else if (const auto* map = value.as_map()) {
      for (const auto& entry : *map) deepest = std::max(deepest, 1 + depth_of(entry.second));
    }
    return deepest;
  }

  Status write(const Place& place, unsigned depth) {
    if (depth > max_entry_depth) return too_deep();
    if (tree_.absent(place)) return out_.nil();
    if (place.node != no_index && !(tree_.flat() && place.node == 0)) {
      const Node& node = tree_.node(place.node);
      if (node.kind == NodeKind::tensor) return in_path(array(snapshot_.leaf(node.index)));
      if (node.kind == NodeKind::value) {
        const Value& value = snapshot_.value(node);
        return depth + depth_of(value) > max_entry_depth ? too_deep() : in_path(out_.value(value));
      }
    }
    std::vector<std::pair<std::string, Place>> children;
    tree_.each(place, [&](std::string_view key, const Place& child) { children.emplace_back(key, child); });
    if (children.empty() && place.node != no_index && tree_.node(place.node).kind == NodeKind::list) {
      return out_.begin_list(0);  // an empty map would load as a map
    }
    // Readers would take a file that begins with `metadata` for a Burn record.
    if (depth == 0 && children.size() > 1 && children[0].first == "metadata") std::swap(children[0], children[1]);
    STELE_TRY(out_.begin_map(children.size()));
    for (const auto& [key, child] : children) {
      const std::size_t before = path_.size();
      path_.append(before != 0 ? "." : "").append(key, 0, 100);
      STELE_TRY(in_path(out_.text(key)));
      STELE_TRY(write(child, depth + 1));
      path_.resize(before);
    }
    return {};
  }

  Status array(const LeafView& leaf) {
    const std::uint64_t bytes = leaf.byte_size();
    if (bytes > part_) {
      STELE_TRY(out_.begin_map(3));
      STELE_TRY(out_.text(parts_key));
      STELE_TRY(out_.value(Value(true)));
      STELE_TRY(out_.text(shape_key));
      STELE_TRY(out_.begin_map(leaf.shape().size()));
      for (std::size_t d = 0; d < leaf.shape().size(); ++d) {
        STELE_TRY(out_.text(std::to_string(d)));
        STELE_TRY(out_.value(Value(std::uint64_t{leaf.shape()[d]})));
      }
      STELE_TRY(out_.text(chunks_key));
      return Parts(out_, gather_, leaf, part_ - part_ % element_size(leaf.dtype())).run(context_);
    }
    const Annotations* notes = leaf.annotations();
    const bool scalar = leaf.shape().empty() && notes != nullptr && notes->contains(std::string(scalar_note));
    STELE_TRY(begin_array(out_, scalar ? scalar_type : array_type, leaf.shape(), leaf.dtype(), bytes));
    return gather_ != nullptr ? gather_->leaf(leaf, context_) : Status();
  }

  const Snapshot& snapshot_;
  const Tree tree_;
  std::uint64_t part_;
  LeafGather* gather_;
  ReadContext& context_;
  msgpack::Writer out_;
  std::string path_;
};

}  // namespace
}  // namespace detail::flax

Result<std::vector<Loss>> FlaxFormat::losses(const Snapshot& snapshot, std::string_view /*file*/) const {
  std::vector<Loss> losses;
  for (const std::uint32_t node : detail::Tree(snapshot).hidden()) {
    losses.push_back({node, "the whole entry: nested names cannot express its name"});
  }
  return losses;
}

Status FlaxFormat::write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const {
  const std::uint64_t part = std::clamp<std::uint64_t>(options_.part_bytes, 16, std::uint64_t{1} << 30);
  const Snapshot ordered = detail::in_file_order(snapshot);
  ReadContext context(detail::workers_of(options));
  detail::flax::Writer counted(ordered, part, nullptr, context);
  STELE_TRY(counted.run());  // finds errors before the first byte is written
  STELE_TRY(sink.reserve(counted.size()));
  detail::LeafGather gather(sink);
  STELE_TRY(detail::flax::Writer(ordered, part, &gather, context).run());
  return gather.flush();
}

}  // namespace stele::inline v0
