// Writes a Snapshot as a list of arrays.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/parallel.hpp"
#include "file.hpp"
#include "io/cursor.hpp"
#include "mxnet.hpp"
#include "passes/byte_order.hpp"
#include "snapshot/leaf_gather.hpp"
#include "snapshot/paths.hpp"
#include "stele/detail/little_endian.hpp"
#include "stele/recorders/mxnet.hpp"
#include "stele/value.hpp"

namespace stele::inline v0 {
namespace detail::mxnet {
namespace {

/// Returns true for the names of BatchNorm's statistics, which MXNet calls auxiliary states.
bool is_auxiliary(std::string_view path) {
  constexpr std::array<std::string_view, 4> ends = {"running_mean", "running_var", "moving_mean", "moving_var"};
  return std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return path.ends_with(end); });
}

class Writer {
 public:
  Writer(const Snapshot& snapshot, MxnetNames names)
      : snapshot_(in_file_order(snapshot)), paths_(*snapshot.data()), names_(names) {}

  Status run(Sink& sink, const Workers& workers) {
    plan();
    STELE_TRY(check_names());
    STELE_TRY(sink.reserve(total_));
    LeafGather gather(sink);
    ReadContext context(workers);
    const auto number = [&](std::uint64_t value) {
      std::byte raw[8];
      store_le(raw, value);
      return gather.write(raw);
    };
    STELE_TRY(number(magic));
    STELE_TRY(number(0));
    STELE_TRY(number(snapshot_.leaf_count()));
    for (std::size_t i = 0; i < snapshot_.leaf_count(); ++i) {
      const LeafView leaf = snapshot_.leaf(i);
      STELE_TRY(gather.write(head_of(leaf.dtype(), leaf.shape(), v3_)));
      STELE_TRY(gather.leaf(leaf, context));
    }
    STELE_TRY(number(list_ ? 0 : snapshot_.leaf_count()));
    for (std::size_t i = 0; !list_ && i < snapshot_.leaf_count(); ++i) {
      STELE_TRY(number(prefix(i).size() + paths_[i].size()));
      STELE_TRY(gather.write(std::as_bytes(std::span(prefix(i)))));
      STELE_TRY(gather.write(std::as_bytes(std::span(paths_[i]))));
    }
    return gather.flush();
  }

 private:
  /// Chooses the version and the names' layout, and computes the size of the file.
  void plan() {
    const auto& origin = snapshot_.origin();
    v3_ = origin.contains(v3_origin);
    list_ = origin.contains(list_origin) && snapshot_.leaf_count() != 0;
    stored_ = origin.contains(stored_origin);
    total_ = header_bytes + 8;
    for (std::size_t i = 0; i < snapshot_.leaf_count(); ++i) {
      const LeafView leaf = snapshot_.leaf(i);
      v3_ = v3_ || leaf.size() == 0 || leaf.shape().empty();
      list_ = list_ && paths_[i] == std::to_string(i);
      total_ += head_of(leaf.dtype(), leaf.shape(), false).size() + leaf.byte_size();
    }
    for (std::size_t i = 0; !list_ && i < snapshot_.leaf_count(); ++i) {
      total_ += 8 + prefix(i).size() + paths_[i].size();
    }
  }

  std::string_view prefix(std::size_t i) const {
    const Annotations* const notes = snapshot_.leaf(i).annotations();
    if (notes != nullptr) {
      const auto found = notes->find(std::string(prefix_note));
      const std::string* const text = found != notes->end() ? found->second.as_string() : nullptr;
      if (text != nullptr && *text == "aux") return "aux:";
      if (text != nullptr && *text == "arg") return "arg:";
    }
    if (stored_ && has_prefix(paths_[i])) return "";
    if (names_ == MxnetNames::prefixed) return is_auxiliary(paths_[i]) ? "aux:" : "arg:";
    return has_prefix(paths_[i]) ? "arg:" : "";  // the reader removes one prefix
  }

  Status check_names() const {
    for (std::size_t i = 0; i < snapshot_.leaf_count(); ++i) {
      const std::string_view path = paths_[i];
      if (path.size() > Cursor::max_taken_bytes - prefix_size) {
        return Error(Errc::not_representable, "the name is too long")
            .path(std::string(path))
            .expected("at most " + std::to_string(Cursor::max_taken_bytes - prefix_size) + " bytes")
            .found(std::to_string(path.size()));
      }
      if (path.find('\0') != path.npos) {
        return Error(Errc::not_representable, "the name contains a zero byte, at which MXNet ends it")
            .path(std::string(path));
      }
    }
    return {};
  }

  const Snapshot snapshot_;
  const LeafPaths paths_;
  const MxnetNames names_;
  bool v3_ = false, list_ = false, stored_ = false;
  std::uint64_t total_ = 0;
};

}  // namespace
}  // namespace detail::mxnet

Status MxnetFormat::write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const {
  return detail::mxnet::Writer(snapshot, options_.names).run(sink, detail::workers_of(options));
}

}  // namespace stele::inline v0
