// Writes Burnpack files.
#include <algorithm>
#include <string>
#include <vector>

#include "base/name_order.hpp"
#include "base/parallel.hpp"
#include "burnpack.hpp"
#include "cbor.hpp"
#include "json/json.hpp"
#include "passes/byte_order.hpp"
#include "record.hpp"
#include "snapshot/data.hpp"
#include "snapshot/flat.hpp"
#include "snapshot/leaf_gather.hpp"
#include "snapshot/paths.hpp"
#include "stele/detail/little_endian.hpp"

namespace stele::inline v0 {
namespace detail::burn {
namespace {

// Burn's reader rejects files beyond these limits, even if Burn wrote them.
constexpr std::uint64_t max_tensors = 100'000;
constexpr std::uint64_t max_description_bytes = std::uint64_t{100} << 20;
constexpr std::uint64_t max_tensor_bytes = std::uint64_t{10} << 30;
constexpr std::uint64_t max_file_bytes = std::uint64_t{100} << 30;

Error beyond_burn(const char* what, std::uint64_t max, std::uint64_t found) {
  return Error(Errc::not_representable, what).expected("at most " + std::to_string(max)).found(std::to_string(found));
}

Error no_utf8(std::string_view name) {
  return Error(Errc::not_representable, "the string is not UTF-8, which Burnpack requires").path(std::string(name));
}

class BurnpackWriter {
 public:
  BurnpackWriter(const Snapshot& snapshot, BurnEra era)
      : snapshot_(snapshot), paths_(*snapshot.data()), metadata_(snapshot.metadata()), era_(era) {
    if (era_ == BurnEra::automatic) era_ = era_of_pack();
  }

  Status run(Sink& sink, const SaveOptions& options) {
    STELE_TRY(place());
    STELE_TRY(describe());
    std::byte head[burnpack_header];
    store_le(head, burnpack_magic);
    store_le(head + 4, burnpack_version);
    store_le(head + 6, static_cast<std::uint32_t>(description_.size()));
    const std::uint64_t described = sizeof head + description_.size();
    const std::uint64_t data = burnpack_aligned(described);
    if (data + end_ > max_file_bytes)
      return beyond_burn("the file exceeds the size that Burn reads", max_file_bytes, data + end_);
    STELE_TRY(sink.reserve(data + end_));
    LeafGather gather(sink);
    STELE_TRY(gather.write(head));
    STELE_TRY(gather.write(std::as_bytes(std::span(description_))));
    STELE_TRY(gather.zeros(static_cast<std::size_t>(data - described)));
    ReadContext context(workers_of(options));
    const Snapshot ordered = in_file_order(snapshot_);
    std::uint64_t at = 0;
    for (std::size_t i = 0; i < begins_.size(); ++i) {
      STELE_TRY(gather.zeros(static_cast<std::size_t>(begins_[i] - at)));
      STELE_TRY(gather.leaf(ordered.leaf(i), context));
      at = begins_[i] + ordered.leaf(i).byte_size();
    }
    return gather.flush();
  }

 private:
  /// Returns the era of the release that wrote the original file if the metadata store a release; else the latest era.
  BurnEra era_of_pack() const {
    const auto producer = metadata_.find("producer");
    const auto version = metadata_.find("version");
    if (producer == metadata_.end() || producer->second != "burn" || version == metadata_.end()) return BurnEra::v0_21;
    const auto era = era_of(version->second);
    return era ? *era : BurnEra::v0_21;
  }
  /// Assigns offsets: data are stored in the order of the Snapshot, and the description is sorted.
  Status place() {
    const std::size_t count = snapshot_.leaf_count();
    if (count > max_tensors) return beyond_burn("the model has more tensors than Burn reads", max_tensors, count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t size = snapshot_.leaf(i).byte_size();
      if (size > max_tensor_bytes) {
        return beyond_burn("the tensor exceeds the size that Burn reads", max_tensor_bytes, size)
            .path(std::string(paths_[i]));
      }
      begins_.push_back(burnpack_aligned(end_));
      end_ = begins_.back() + size;
    }
    return {};
  }

  Status describe() {
    STELE_TRY_ASSIGN(std::string extras, flat_extras(snapshot_, [](const std::string&, const Value& value) {
                       return is_burnpack_scalar(value);
                     }));
    STELE_TRY(add_flat_key(metadata_, std::move(extras)));
    const auto nodes = snapshot_.nodes();
    std::vector<std::pair<std::string, const Value*>> scalars;
    for (std::uint32_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i].kind != NodeKind::value || !is_burnpack_scalar(snapshot_.value(nodes[i]))) continue;
      scalars.emplace_back(snapshot_.path(i), &snapshot_.value(nodes[i]));
    }
    std::sort(scalars.begin(), scalars.end());

    out_.begin_map(1U + !metadata_.empty() + !scalars.empty());
    out_.text("tensors");
    out_.begin_map(begins_.size());
    const auto name = [&](std::uint32_t i) { return paths_[i]; };
    for (const std::uint32_t i : order_by_name(static_cast<std::uint32_t>(begins_.size()), name)) {
      STELE_TRY(tensor(i));
    }
    if (!metadata_.empty()) {
      out_.text("metadata");
      out_.begin_map(metadata_.size());
    }
    for (const auto& [key, text] : metadata_) {
      if (!json::valid_utf8(key) || !json::valid_utf8(text)) return no_utf8({});
      out_.text(key);
      out_.text(text);
    }
    if (!scalars.empty()) {
      out_.text("scalars");
      out_.begin_map(scalars.size());
    }
    for (const auto& [path, value] : scalars) {
      if (!json::valid_utf8(path)) return no_utf8(path);
      out_.text(path);
      out_.begin_map(1);
      // The number's type is unknown here. Burn converts between types, and stores its own counts as UInt.
      const std::int64_t* number = value->as_i64();
      out_.text(value->as_bool() != nullptr        ? "Bool"
                : value->as_f64() != nullptr       ? "Float"
                : number != nullptr && *number < 0 ? "Int"
                                                   : "UInt");
      out_.value(*value);
    }
    if (description_.size() <= max_description_bytes) return {};
    return beyond_burn("the description exceeds the size that Burn reads", max_description_bytes, description_.size());
  }

  Status tensor(std::uint32_t i) {
    const LeafView leaf = snapshot_.leaf(i);
    if (!json::valid_utf8(paths_[i])) return no_utf8(paths_[i]);
    STELE_TRY_ASSIGN(const Value dtype, spell_dtype(leaf, era_));
    const Value* const scheme = burnpack_scheme(dtype);
    std::vector<Extent> shape(leaf.shape().begin(), leaf.shape().end());
    if (scheme != nullptr) {
      STELE_TRY_ASSIGN(shape, shape_of(leaf));
    }
    const auto id = leaf.id();
    out_.text(paths_[i]);
    out_.begin_map(3U + id.has_value());
    out_.text("dtype");
    const std::size_t at = description_.size();
    out_.value(dtype);
    // The annotation may have any content. Checks that the reader accepts it.
    const std::string_view written = std::string_view(description_).substr(at);
    Value back;
    std::uint64_t memory = max_description_bytes;
    const bool good = cbor::Reader(std::as_bytes(std::span(written)), 0).read(back, memory);
    if (const auto known = read_dtype(dtype); !good || !known || (known->opaque && scheme == nullptr)) {
      return Error(Errc::not_representable, "Burn cannot read the dtype").path(std::string(paths_[i]));
    }
    out_.text("shape");
    out_.begin_list(shape.size());
    for (const Extent e : shape) out_.u64(e);
    out_.text("data_offsets");
    out_.begin_list(2);
    out_.u64(begins_[i]);
    out_.u64(begins_[i] + leaf.byte_size());
    if (!id) return {};
    if (id->form == ParamId::Form::u64) {
      out_.text("param_id");
      out_.u64(id->low);
    } else {
      out_.text(burnpack_uuid);
      out_.text(id_text(*id));
    }
    return {};
  }

  const Snapshot& snapshot_;
  const LeafPaths paths_;
  std::map<std::string, std::string> metadata_;
  BurnEra era_;
  std::vector<std::uint64_t> begins_;
  std::uint64_t end_ = 0;
  std::string description_;
  cbor::Writer out_{description_};
};

}  // namespace
}  // namespace detail::burn

Status BurnpackFormat::write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const {
  return detail::burn::BurnpackWriter(snapshot, options_.era).run(sink, options);
}

}  // namespace stele::inline v0
