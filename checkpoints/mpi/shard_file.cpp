#include "shard_file.hpp"

#include <cstdio>
#include <optional>

#include "base/hash.hpp"
#include "base/parallel.hpp"
#include "json/json.hpp"
#include "json/sealed.hpp"
#include "stele/detail/little_endian.hpp"
#include "stele/recorders/safetensors.hpp"

namespace stele {
inline namespace v0 {
namespace mpi {
namespace detail {
namespace {

using v0::detail::Hasher;
namespace json = v0::detail::json;
namespace keys = v0::detail::safetensors;

class HashSink final : public PieceSink {
 public:
  Status piece(std::span<const std::byte> bytes) override {
    return hasher.update(bytes.data(), bytes.size()), Status();
  }
  Hasher hasher;
};

/// Computes the checksums of all bytes, and of the header, as they are written to a file.
class HashingSink final : public Sink {
 public:
  explicit HashingSink(Sink& to) : Sink(to.name()), to_(to) {}
  Status reserve(std::uint64_t total) override { return to_.reserve(total); }
  using Sink::write;
  Status write(std::span<const std::span<const std::byte>> pieces) override {
    for (const auto& piece : pieces) {
      all_.update(piece.data(), piece.size());
      auto rest = piece;
      while (!rest.empty() && (head_.size() < 8 || head_.size() < head_size())) {
        const std::size_t want = head_.size() < 8 ? 8 - head_.size() : head_size() - head_.size();
        const auto part = rest.first(std::min(want, rest.size()));
        head_.append(reinterpret_cast<const char*>(part.data()), part.size());
        rest = rest.subspan(part.size());
      }
      bytes_ += piece.size();
    }
    return to_.write(pieces);
  }
  WrittenFile file(const std::string& name) const {
    return {name, bytes_, v0::detail::hash64(head_.data(), head_.size()), all_.digest()};
  }

 private:
  std::size_t head_size() const {
    return 8 + static_cast<std::size_t>(
                   v0::detail::load_le<std::uint64_t>(reinterpret_cast<const std::byte*>(head_.data())));
  }
  Sink& to_;
  Hasher all_;
  std::string head_;
  std::uint64_t bytes_ = 0;
};

}  // namespace

Result<std::vector<std::uint64_t>> hash_leaves(const Snapshot& snapshot, const std::vector<std::uint32_t>& leaves,
                                               const v0::detail::Workers& workers) {
  std::vector<std::uint64_t> hashes(leaves.size());
  std::vector<Status> failed(leaves.size());
  v0::detail::parallel(workers, leaves.size(), [&](std::size_t i) {
    HashSink sink;
    ReadContext context;
    failed[i] = snapshot.leaf(leaves[i]).stream(sink, context);
    hashes[i] = sink.hasher.digest();
  });
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (!failed[i]) return std::move(failed[i]).error().path(snapshot.leaf(leaves[i]).path());
  }
  return hashes;
}

std::string shard_name(int process) {
  char name[64];
  std::snprintf(name, sizeof name, "shard-%05d-model-00001-of-00001.safetensors", process + 1);
  return name;
}

Result<WrittenFile> write_shard(const Snapshot& snapshot, const std::vector<const LocalTensor*>& tensors,
                                const std::vector<std::uint64_t>& hashes, const std::string& folder,
                                const std::string& name, const SaveOptions& options) {
  std::string places, sums;
  json::Writer place(places), sum(sums);
  place.begin_object();
  sum.begin_object();
  SnapshotBuilder builder;
  builder.set_flat();
  builder.keep(snapshot.data());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const LocalTensor& tensor = *tensors[i];
    if (!json::valid_utf8(tensor.whole.name)) {
      return Error(Errc::not_representable, "safetensors files store names in UTF-8 only").path(tensor.whole.name);
    }
    const LeafView leaf = snapshot.leaf(tensor.leaf);
    builder.tensor(builder.intern(tensor.whole.name), leaf.dtype(), leaf.shape(), leaf.byte_size(), leaf.provider());
    place.key(tensor.whole.name);
    place.begin_object();
    place.key("saved_offsets");
    place.begin_array();
    for (const Extent start : tensor.box.start) place.u64(start);
    place.end_array();
    place.end_object();
    sum.key(tensor.whole.name);
    sum.string(json::hex(hashes[i]));
  }
  place.end_object();
  sum.end_object();
  builder.set_metadata(
      {{keys::sharding_key, places}, {keys::version_key, "1.0"}, {keys::hashes_key, sums}, {"format", "pt"}});
  STELE_TRY_ASSIGN(const auto file, file_sink(folder + "/" + name, options.file));
  HashingSink hashing(*file);
  STELE_TRY(SafetensorsFormat().write(builder.finish(), hashing, options));
  STELE_TRY(file->commit());
  return hashing.file(name);
}

}  // namespace detail
}  // namespace mpi
}  // namespace v0
}  // namespace stele
