#include "shard_file.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>

#include "base/hash.hpp"
#include "base/hex.hpp"
#include "base/parallel.hpp"
#include "json/json.hpp"
#include "stele/delta.hpp"
#include "stele/detail/little_endian.hpp"
#include "stele/format.hpp"
#include "stele/recorders/binary.hpp"
#include "stele/recorders/safetensors.hpp"

namespace stele::inline v0::mpi::detail {
namespace {

using v0::detail::Hasher;
namespace json = v0::detail::json;
namespace keys = v0::detail::shards;

class HashSink final : public PieceSink {
 public:
  explicit HashSink(bool pieces) : pieces_(pieces) {}
  Status piece(std::span<const std::byte> bytes) override {
    all_.update(bytes.data(), bytes.size());
    while (pieces_ && !bytes.empty()) {
      const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(keys::piece_bytes - in_piece_, bytes.size()));
      piece_.update(bytes.data(), n);
      in_piece_ += n;
      bytes = bytes.subspan(n);
      if (in_piece_ == keys::piece_bytes) end_piece();
    }
    return {};
  }
  BoxHashes take() {
    if (in_piece_ != 0) end_piece();
    hashes_.all = all_.digest();
    return std::move(hashes_);
  }

 private:
  void end_piece() {
    hashes_.pieces.push_back(piece_.digest());
    piece_.reset();
    in_piece_ = 0;
  }
  bool pieces_;
  Hasher all_, piece_;
  std::uint64_t in_piece_ = 0;
  BoxHashes hashes_;
};

/// Computes the checksums of the header and of all bytes while a file is written.
class HashingSink final : public Sink {
 public:
  /// `header`: the file has one, in safetensors' format.
  HashingSink(Sink& to, bool header) : Sink(to.name()), to_(to), header_(header) {}
  Status reserve(std::uint64_t total) override { return to_.reserve(total); }
  using Sink::write;
  Status write(std::span<const std::span<const std::byte>> pieces) override {
    for (const auto& piece : pieces) {
      all_.update(piece.data(), piece.size());
      auto rest = piece;
      while (header_ && !rest.empty() && (head_.size() < 8 || head_.size() < head_size())) {
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
    return {name, bytes_, v0::detail::hash64(head_.data(), head_.size()), all_.digest(), {}};
  }

 private:
  std::size_t head_size() const {
    return 8 + static_cast<std::size_t>(
                   v0::detail::load_le<std::uint64_t>(reinterpret_cast<const std::byte*>(head_.data())));
  }
  Sink& to_;
  bool header_;
  Hasher all_;
  std::string head_;
  std::uint64_t bytes_ = 0;
};

}  // namespace

Result<std::vector<BoxHashes>> hash_leaves(const Snapshot& snapshot, const std::vector<std::uint32_t>& leaves,
                                           const v0::detail::Workers& workers) {
  std::vector<BoxHashes> hashes(leaves.size());
  std::vector<Status> failed(leaves.size());
  v0::detail::parallel(workers, leaves.size(), [&](std::size_t i) {
    const LeafView leaf = snapshot.leaf(leaves[i]);
    HashSink sink(leaf.byte_size() > keys::piece_bytes);
    ReadContext context;
    failed[i] = leaf.stream(sink, context);
    hashes[i] = sink.take();
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

Result<Snapshot> shard_of(const Snapshot& snapshot, const std::vector<const LocalTensor*>& tensors,
                          const std::vector<BoxHashes>& hashes) {
  std::string places, sums, pieces;
  json::Writer place(places), sum(sums), piece(pieces);
  place.begin_object();
  sum.begin_object();
  piece.begin_object();
  piece.key("bytes");
  piece.u64(keys::piece_bytes);
  piece.key("boxes");
  piece.begin_object();
  std::string joined;
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
    sum.string(v0::detail::hex(hashes[i].all));
    if (hashes[i].pieces.empty()) continue;
    joined.clear();
    for (const std::uint64_t hash : hashes[i].pieces) joined += v0::detail::hex(hash);
    piece.key(tensor.whole.name);
    piece.string(joined);
  }
  place.end_object();
  sum.end_object();
  piece.end_object();
  piece.end_object();
  std::map<std::string, std::string> metadata{
      {keys::sharding_key, places}, {keys::version_key, "1.0"}, {keys::hashes_key, sums}, {"format", "pt"}};
  if (!joined.empty()) metadata.emplace(keys::pieces_key, pieces);
  builder.set_metadata(std::move(metadata));
  return builder.finish();
}

Result<WrittenFile> write_shard(const Snapshot& shard, Bundle& files, const std::string& name,
                                const SaveOptions& options) {
  STELE_TRY_ASSIGN(const auto file, files.create(name));
  HashingSink hashing(*file, true);
  STELE_TRY(SafetensorsFormat().write(shard, hashing, options));
  STELE_TRY(file->commit());
  return hashing.file(name);
}

Result<WrittenFile> write_shard_delta(const Snapshot& base, const Snapshot& shard, Bundle& files,
                                      const std::string& name, const SaveOptions& options) {
  LoadOptions comparing;
  comparing.threads = options.threads;
  comparing.executor = options.executor;
  STELE_TRY_ASSIGN(const Snapshot delta, make_delta(base, shard, comparing));
  const std::string full = delta_name(name);
  STELE_TRY_ASSIGN(const auto file, files.create(full));
  HashingSink hashing(*file, false);
  SaveOptions plain = options;
  plain.metadata.clear();  // the index has them
  STELE_TRY(v0::detail::save_object(CompressedSteleFormat(), {}, {nullptr, &delta}, hashing, plain));
  STELE_TRY(file->commit());
  WrittenFile written = hashing.file(full);
  const auto info = delta_info(delta);
  written.header = (info ? v0::detail::from_hex(info->next) : std::nullopt).value_or(0);
  return written;
}

std::string delta_name(std::string_view shard) {
  return std::string(shard.substr(0, shard.rfind('.'))) + std::string(keys::delta_suffix);
}
std::string whole_name(std::string_view shard) {
  return std::string(shard.substr(0, shard.rfind('.'))) + ".safetensors";
}

}  // namespace stele::inline v0::mpi::detail
