// Writes a Snapshot as a file or a folder.
#include <algorithm>
#include <memory>
#include <numeric>

#include "base/name_order.hpp"
#include "base/parallel.hpp"
#include "expected.hpp"
#include "passes/byte_order.hpp"
#include "record.hpp"
#include "snapshot/leaf_gather.hpp"
#include "snapshot/paths.hpp"
#include "stele/bundle.hpp"
#include "stele/detail/little_endian.hpp"
#include "stele/recorders/paddle.hpp"

namespace stele::inline v0 {
namespace {

using namespace detail::paddle;  // NOLINT(google-build-using-namespace): this file implements the format

class PaddleWriter {
 public:
  PaddleWriter(const PaddleOptions& options, const Snapshot& snapshot, const SaveOptions& save)
      : options_(options),
        snapshot_(snapshot),
        paths_(*snapshot.data()),
        count_(static_cast<std::uint32_t>(snapshot.leaf_count())),
        ordered_(detail::in_file_order(snapshot)),
        context_(detail::workers_of(save)) {}

  Status run(Sink& sink) {
    order_.resize(count_);
    std::iota(order_.begin(), order_.end(), std::uint32_t{0});
    if (options_.order == PaddleOrder::sorted) {
      order_ = detail::order_by_name(count_, [&](std::uint32_t i) { return paths_[i]; });
    }
    if (!options_.program.empty()) STELE_TRY(check_declared());
    STELE_TRY(make_heads());
    return options_.folder ? write_folder(sink) : write_file(sink);
  }

 private:
  Status check_declared() const {
    std::vector<Found> found;
    found.reserve(count_);
    for (std::uint32_t i = 0; i < count_; ++i) {
      const LeafView leaf = snapshot_.leaf(i);
      found.push_back({paths_[i], leaf.dtype(), leaf.shape()});
    }
    return check_program(options_.program, found);
  }

  /// Makes the headers of all records, and checks the names.
  Status make_heads() {
    heads_.resize(count_);
    for (std::uint32_t i = 0; i < count_; ++i) {
      const LeafView leaf = snapshot_.leaf(i);
      const Value* lod = nullptr;
      if (const Annotations* notes = leaf.annotations()) {
        if (const auto found = notes->find(std::string(lod_key)); found != notes->end()) lod = &found->second;
      }
      auto head = head_of(leaf.dtype(), leaf.shape(), lod);
      if (!head) return std::move(head).error().path(std::string(paths_[i]));
      heads_[i] = std::move(*head);
      if (options_.folder && (paths_[i] == "__model__" || paths_[i] == "__model__.json")) {
        return Error(Errc::not_representable, "the name is reserved for the folder's program")
            .path(std::string(paths_[i]));
      }
      if (options_.framing == PaddleFraming::named && paths_[i].size() > max_name_bytes) {
        return Error(Errc::not_representable, "the name is too long")
            .path(std::string(paths_[i]))
            .expected("at most " + std::to_string(max_name_bytes) + " bytes")
            .found(std::to_string(paths_[i].size()));
      }
    }
    return {};
  }

  std::uint64_t record_size(std::uint32_t i) const { return heads_[i].size() + snapshot_.leaf(i).byte_size(); }

  Status write_record(std::uint32_t i, detail::LeafGather& gather) {
    STELE_TRY(gather.write(heads_[i]));
    return gather.leaf(ordered_.leaf(i), context_);
  }

  Status write_folder(Sink& sink) {
    const auto bundle = sink.bundle();
    if (bundle == nullptr)
      return Error(Errc::unsupported, "the sink cannot create a folder").hint("save to a path, or to bundle_sink()");
    if (count_ == 0) return Error(Errc::not_representable, "a Paddle folder needs at least one tensor");
    for (const std::uint32_t i : order_) {
      auto file = bundle->create(paths_[i]);
      if (!file) return std::move(file).error().path(std::string(paths_[i]));
      STELE_TRY((*file)->reserve(record_size(i)));
      detail::LeafGather gather(**file);
      STELE_TRY(write_record(i, gather));
      STELE_TRY(gather.flush());
      STELE_TRY((*file)->commit());
    }
    return {};
  }

  Status write_file(Sink& sink) {
    const bool named = options_.framing == PaddleFraming::named;
    std::uint64_t total = 0;
    for (std::uint32_t i = 0; i < count_; ++i) {
      total += record_size(i);
      if (options_.framing != PaddleFraming::none) total += 8;
      if (named) total += 8 + paths_[i].size();
    }
    STELE_TRY(sink.reserve(total));
    detail::LeafGather gather(sink);
    const auto number = [&](std::uint64_t n) {
      std::byte raw[8];
      detail::store_le(raw, n);
      return gather.write(raw);
    };
    for (const std::uint32_t i : order_) {
      if (options_.framing == PaddleFraming::sized) STELE_TRY(number(record_size(i)));
      if (named) {
        STELE_TRY(number(8 + paths_[i].size() + record_size(i)));
        STELE_TRY(number(paths_[i].size()));
        STELE_TRY(gather.write(std::as_bytes(std::span(paths_[i]))));
      }
      STELE_TRY(write_record(i, gather));
    }
    return gather.flush();
  }

  const PaddleOptions& options_;
  const Snapshot& snapshot_;
  detail::LeafPaths paths_;
  std::uint32_t count_;
  Snapshot ordered_;
  ReadContext context_;
  std::vector<std::uint32_t> order_;
  std::vector<std::vector<std::byte>> heads_;
};

}  // namespace

Status PaddleFormat::write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const {
  return PaddleWriter(options_, snapshot, options).run(sink);
}

}  // namespace stele::inline v0
