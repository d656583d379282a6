#include "stele/deltas/updates.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <charconv>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include <xxhash.h>
#include <zstd.h>

#include "base/hex.hpp"
#include "base/meter.hpp"
#include "encodings/zstd/contexts.hpp"
#include "io/os/os.hpp"
#include "io/text.hpp"
#include "json/json.hpp"
#include "leaves/needs.hpp"
#include "passes/byte_order.hpp"
#include "passes/delta/delta.hpp"
#include "snapshot/data.hpp"
#include "snapshot/paths.hpp"
#include "snapshot/shard_set.hpp"
#include "stele/bundle.hpp"
#include "stele/composite.hpp"
#include "stele/recorders/safetensors.hpp"
#include "stele/report.hpp"

namespace stele::inline v0 {
namespace {

using detail::LeafPaths;
using detail::delta::Window;
using Span = std::span<const std::byte>;

constexpr const char* index_name = "model.safetensors.index.json";
constexpr const char* file_name_of_one = "model-00001-of-00001.safetensors";
constexpr const char* origin_key = "weight_version";

enum class Encoding : std::uint8_t { xored, overwrite };
enum class Checksum : std::uint8_t { xxh3_128, adler32 };
constexpr std::array<std::string_view, 2> encodings = {"xor", "overwrite"}, checksums = {"xxh3-128", "adler32"};

/// Errors: `code`, with the known names.
template <class Kind>
Result<Kind> kind_of(const std::string& text, const std::array<std::string_view, 2>& names, const char* what,
                     Errc code) {
  const auto found = std::find(names.begin(), names.end(), text);
  if (found != names.end()) return static_cast<Kind>(found - names.begin());
  return Error(code, what).expected(std::string(names[0]) + " or " + std::string(names[1])).found(text);
}

/// Computes a checksum of consecutive bytes, as text in hexadecimal digits.
class Summer {
 public:
  explicit Summer(Checksum kind) : kind_(kind) {
    if (kind == Checksum::adler32) return;
    state_.reset(XXH3_createState());
    if (state_ == nullptr) STELE_THROW(std::bad_alloc());
    XXH3_128bits_reset(state_.get());
  }
  void update(std::span<const std::byte> bytes) {
    if (kind_ == Checksum::xxh3_128) {
      XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
      return;
    }
    while (!bytes.empty()) {  // RFC 1950; 5552 is the largest number of bytes whose sums fit 32 bits
      const auto part = bytes.first(std::min<std::size_t>(bytes.size(), 5552));
      for (const std::byte b : part) b_ += a_ += static_cast<std::uint32_t>(b);
      a_ %= 65521;
      b_ %= 65521;
      bytes = bytes.subspan(part.size());
    }
  }
  std::string digest() const {
    if (kind_ == Checksum::adler32) return detail::hex(std::uint64_t{b_} << 16U | a_, 8);
    const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
    return detail::hex(hash.high64) + detail::hex(hash.low64);
  }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  Checksum kind_;
  std::unique_ptr<XXH3_state_t, Free> state_;
  std::uint32_t a_ = 1, b_ = 0;
};

/// Decompresses a leaf, which is one zstd frame, from its beginning.
class Inflater {
 public:
  explicit Inflater(const LeafView& leaf) : leaf_(leaf), window_(leaf), context_(detail::zstd::new_decompressor()) {
    ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax, 24);
  }
  /// Errors: malformed (the frame is damaged, or has fewer bytes), those of reading.
  Status fill(std::span<std::byte> out, ReadContext& context) {
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    while (to.pos < to.size) {
      const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(leaf_.byte_size() - at_, input_size));
      if (ended_) return damaged("the changes of a tensor end early");
      STELE_TRY_ASSIGN(const auto bytes, window_.at(at_, size, context));
      STELE_TRY(step(to, bytes));
    }
    return {};
  }
  Status skip(std::uint64_t count, ReadContext& context) {
    std::array<std::byte, 16384> scratch;
    for (; count != 0; count -= std::min<std::uint64_t>(count, scratch.size())) {
      const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(count, scratch.size()));
      STELE_TRY(fill(std::span(scratch).first(size), context));
    }
    return {};
  }
  /// Checks that nothing follows.
  Status finish(ReadContext& context) {
    std::byte none;
    ZSTD_outBuffer to{&none, 1, 0};
    while (!ended_) {
      const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(leaf_.byte_size() - at_, input_size));
      STELE_TRY_ASSIGN(const auto bytes, window_.at(at_, size, context));
      STELE_TRY(step(to, bytes));
      if (to.pos != 0) break;
    }
    return to.pos == 0 && at_ == leaf_.byte_size() ? Status() : damaged("the changes of a tensor are too long");
  }

 private:
  static constexpr std::size_t input_size = std::size_t{1} << 17;

  Status step(ZSTD_outBuffer& to, std::span<const std::byte> bytes) {
    ZSTD_inBuffer from{bytes.data(), bytes.size(), 0};
    const std::size_t before = to.pos;
    const std::size_t left = ZSTD_decompressStream(context_.get(), &to, &from);
    if (ZSTD_isError(left)) return damaged(ZSTD_getErrorName(left));
    at_ += from.pos;
    ended_ = left == 0;
    if (from.pos == 0 && to.pos == before && !ended_) return damaged("the changes of a tensor end early");
    return {};
  }
  static Error damaged(const char* text) { return Error(Errc::malformed, text); }

  LeafView leaf_;
  Window window_;
  detail::zstd::Decompressor context_;
  std::uint64_t at_ = 0;
  bool ended_ = false;
};

/// Applies the changes of a tensor to its consecutive pieces.
class Changes {
 public:
  Changes(const LeafView& packed, Encoding encoding, std::uint64_t bytes)
      : encoding_(encoding), bytes_(bytes), first_(packed) {
    if (encoding == Encoding::overwrite) values_.emplace(packed);
  }

  Status apply(std::span<std::byte> piece, ReadContext& context) {
    if (encoding_ == Encoding::xored) {
      ReadContext::Piece changes(context);
      STELE_TRY(first_.fill({changes.data(), piece.size()}, context));
      for (std::size_t i = 0; i < piece.size(); ++i) piece[i] ^= changes.data()[i];
      return {};
    }
    if (done_ == 0 && !started_) STELE_TRY(begin(context));
    while (next_ < done_ + piece.size()) {
      STELE_TRY(values_->fill({&piece[static_cast<std::size_t>(next_ - done_)], 1}, context));
      STELE_TRY(advance(context));
    }
    done_ += piece.size();
    return {};
  }
  Status finish(ReadContext& context) {
    if (encoding_ == Encoding::overwrite && !started_) STELE_TRY(begin(context));
    return (encoding_ == Encoding::xored ? first_ : *values_).finish(context);
  }

 private:
  Status begin(ReadContext& context) {
    started_ = true;
    STELE_TRY(number(left_, context));
    if (left_ > bytes_) return Error(Errc::malformed, "a tensor has more changes than bytes");
    STELE_TRY(values_->skip(4 + 4 * left_, context));
    return advance(context);
  }
  /// Reads the next position.
  Status advance(ReadContext& context) {
    next_ = UINT64_MAX;
    if (left_ == 0) return {};
    --left_;
    std::uint64_t position = 0;
    STELE_TRY(number(position, context));
    if (position >= bytes_ || position < after_) {
      return Error(Errc::malformed, "a position of changes is outside the tensor, or not above the previous one")
          .expected(std::to_string(after_) + " to " + std::to_string(bytes_ - 1))
          .found(std::to_string(position));
    }
    next_ = position;
    after_ = position + 1;
    return {};
  }
  Status number(std::uint64_t& to, ReadContext& context) {
    std::array<std::byte, 4> bytes;
    STELE_TRY(first_.fill(bytes, context));
    to = 0;
    for (std::size_t i = 4; i-- > 0;) to = to << 8U | static_cast<std::uint64_t>(bytes[i]);
    return {};
  }

  Encoding encoding_;
  std::uint64_t bytes_;
  Inflater first_;                  // the changes, or the positions
  std::optional<Inflater> values_;  // the bytes at the positions
  bool started_ = false;
  std::uint64_t done_ = 0, left_ = 0;  // bytes that were passed; positions that were not read
  std::uint64_t next_ = UINT64_MAX, after_ = 0;
};

/// The tensors that an update changes.
class Updated {
 public:
  struct Leaf {
    LeafView base, packed;
    std::string sum, path;
  };
  Updated(Encoding encoding, Checksum checksum, std::size_t leaves)
      : encoding_(encoding), checksum_(checksum), checked_(leaves) {
    leaves_.reserve(leaves);
  }
  Provider add(Leaf leaf);
  void keep(const Snapshot& snapshot) { kept_.push_back(snapshot); }
  const Leaf& leaf(std::size_t i) const noexcept { return leaves_[i]; }
  Status stream(std::size_t leaf, PieceSink& sink, ReadContext& context) const;
  Status read(std::size_t leaf, std::uint64_t offset, std::span<std::byte> out, ReadContext& context) const;

 private:
  class Pieces;
  Encoding encoding_;
  Checksum checksum_;
  std::vector<Leaf> leaves_;
  std::vector<Snapshot> kept_;
  mutable std::vector<std::atomic<bool>> checked_;  // by leaf
};

/// Receives the pieces of the base, and passes on the new pieces.
class Updated::Pieces final : public PieceSink {
 public:
  Pieces(const Updated& all, const Leaf& leaf, PieceSink& to, ReadContext& context)
      : changes_(leaf.packed, all.encoding_, leaf.base.byte_size()),
        sum_(all.checksum_),
        to_(to),
        context_(context),
        staging_(context) {}
  Status piece(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const auto now = bytes.first(std::min(bytes.size(), ReadContext::piece_size));
      std::byte* place = to_.place(done_, now.size());
      if (place == nullptr) place = staging_.data();
      const std::span<std::byte> out(place, now.size());
      std::memcpy(place, now.data(), now.size());
      STELE_TRY(changes_.apply(out, context_));
      sum_.update(out);
      STELE_TRY(to_.piece(out));
      done_ += now.size();
      bytes = bytes.subspan(now.size());
    }
    return {};
  }
  Status finish(const Leaf& leaf) {
    STELE_TRY(changes_.finish(context_));
    const std::string found = sum_.digest();
    if (found == leaf.sum) return {};
    return Error(Errc::checksum, "the tensor is not that of the update's base, or its changes are damaged")
        .expected(leaf.sum)
        .found(found);
  }

 private:
  Changes changes_;
  Summer sum_;
  PieceSink& to_;
  ReadContext& context_;
  ReadContext::Piece staging_;
  std::uint64_t done_ = 0;
};

Status Updated::stream(std::size_t number, PieceSink& sink, ReadContext& context) const {
  const Leaf& leaf = leaves_[number];
  const auto in_tensor = [&](Status status) -> Status {
    if (status || !status.error().path().empty()) return status;
    return std::move(status).error().path(leaf.path);
  };
  Pieces pieces(*this, leaf, sink, context);
  STELE_TRY(in_tensor(leaf.base.stream(pieces, context)));
  STELE_TRY(in_tensor(pieces.finish(leaf)));
  checked_[number] = true;
  return {};
}

/// Keeps the bytes of `out`, which begin at `offset`. A checked tensor needs no bytes after them.
class Part final : public PieceSink {
 public:
  Part(std::uint64_t offset, std::span<std::byte> out) : offset_(offset), out_(out) {}
  Status piece(std::span<const std::byte> bytes) override {
    const std::uint64_t from = std::max(done_, offset_), to = std::min(done_ + bytes.size(), offset_ + out_.size());
    if (from < to) {
      std::memcpy(out_.data() + (from - offset_), bytes.data() + (from - done_), static_cast<std::size_t>(to - from));
    }
    done_ += bytes.size();
    return {};
  }

 private:
  std::uint64_t offset_;
  std::span<std::byte> out_;
  std::uint64_t done_ = 0;
};

Status Updated::read(std::size_t number, std::uint64_t offset, std::span<std::byte> out, ReadContext& context) const {
  Part part(offset, out);
  if (!checked_[number]) return stream(number, part, context);
  // The changes before the part are decompressed, too.
  const Leaf& leaf = leaves_[number];
  Changes changes(leaf.packed, encoding_, leaf.base.byte_size());
  ReadContext::Piece staging(context);
  for (std::uint64_t done = 0; done < offset + out.size();) {
    const auto size =
        static_cast<std::size_t>(std::min<std::uint64_t>(leaf.base.byte_size() - done, ReadContext::piece_size));
    const std::span<std::byte> piece(staging.data(), size);
    STELE_TRY(leaf.base.read(done, piece, context));
    STELE_TRY(changes.apply(piece, context));
    STELE_TRY(part.piece(piece));
    done += size;
  }
  return {};
}

const Updated& updated(const void* at) { return *static_cast<const Updated*>(at); }

constexpr LeafOps updated_ops{
    .read =
        [](const void* at, std::uint64_t number, std::uint64_t offset, std::span<std::byte> out, ReadContext& context) {
          return updated(at).read(static_cast<std::size_t>(number), offset, out, context);
        },
    .stream = [](const void* at, std::uint64_t number, std::uint64_t, PieceSink& sink,
                 ReadContext& context) { return updated(at).stream(static_cast<std::size_t>(number), sink, context); },
    .needs =
        [](const void* at, std::uint64_t number, detail::Needs& needs) {
          const Updated::Leaf& leaf = updated(at).leaf(static_cast<std::size_t>(number));
          needs.add(leaf.base);
          needs.add(leaf.packed);
        }};

Provider Updated::add(Leaf leaf) {
  leaves_.push_back(std::move(leaf));
  return {&updated_ops, this, leaves_.size() - 1};
}

/// An update, as its files store it.
struct Update {
  Snapshot packed;  // a tensor of bytes for each changed tensor
  std::map<std::string, std::string> metadata, sums;
};

std::string text_in(const std::map<std::string, std::string>& metadata, const char* key) {
  const auto found = metadata.find(key);
  return found != metadata.end() ? found->second : std::string();
}

/// Reads a version: digits, after a v or without.
Result<std::uint64_t> version_in(const std::map<std::string, std::string>& metadata, const char* key) {
  const std::string text = text_in(metadata, key);
  std::uint64_t version = 0;
  const char* const begin = text.data() + (text.starts_with('v') ? 1 : 0);
  const auto [end, error] = std::from_chars(begin, text.data() + text.size(), version);
  if (error == std::errc() && end == text.data() + text.size()) return version;
  return Error(Errc::malformed, "an update has no valid version").path(key).found(text);
}

Result<SourcePtr> index_in(const Source& source) {
  const auto bundle = source.is_folder() ? source.bundle() : nullptr;
  if (bundle == nullptr) return SourcePtr();
  STELE_TRY_ASSIGN(const bool there, bundle->contains(index_name));
  if (!there) return SourcePtr();
  return bundle->open(index_name);
}

Result<Update> read_update(const SourcePtr& source, const LoadOptions& options) {
  Update update;
  const OpenContext context(options, {});
  STELE_TRY_ASSIGN(const SourcePtr index, index_in(*source));
  if (index == nullptr) {  // one file
    STELE_TRY_ASSIGN(update.packed, SafetensorsFormat().open(source, context));
    update.metadata = update.sums = update.packed.metadata();
    return update;
  }
  STELE_TRY_ASSIGN(update.packed, detail::open_shard_set(index, options.limits, [&](const SourcePtr& file) {
                     auto opened = SafetensorsFormat().open(file, context);
                     if (opened) update.sums.insert(opened->metadata().begin(), opened->metadata().end());
                     return opened;
                   }));
  update.metadata = update.packed.metadata();
  return update;
}

/// The facts in the metadata of an update.
struct Facts {
  Encoding encoding = Encoding::xored;
  Checksum checksum = Checksum::xxh3_128;
  std::uint64_t version = 0, base = 0;
};

Result<Facts> facts_of(const Update& update) {
  const auto& metadata = update.metadata;
  if (!metadata.contains("delta_encoding")) {
    return Error(Errc::invalid_argument, "the file is not an update of weights: it has no delta_encoding");
  }
  Facts facts;
  STELE_TRY_ASSIGN(facts.encoding, kind_of<Encoding>(text_in(metadata, "delta_encoding"), encodings,
                                                     "an unknown encoding of an update", Errc::unsupported));
  // modelexpress has no checksum_format: its checksums, adler32, have keys that name it.
  const bool named = metadata.contains("checksum_format");
  STELE_TRY_ASSIGN(facts.checksum, kind_of<Checksum>(named ? text_in(metadata, "checksum_format") : "adler32",
                                                     checksums, "an unknown checksum of an update", Errc::unsupported));
  const std::string compression = text_in(metadata, "compression_format");
  if (!compression.empty() && compression != "zstd") {
    return Error(Errc::unsupported, "an unknown compression of an update").expected("zstd").found(compression);
  }
  STELE_TRY_ASSIGN(facts.version, version_in(metadata, "version"));
  STELE_TRY_ASSIGN(facts.base, version_in(metadata, "base_version"));
  return facts;
}

Result<Snapshot> applied(const Snapshot& base, const Update& update) {
  STELE_TRY_ASSIGN(const Facts facts, facts_of(update));
  const auto before = base.origin().find(origin_key);
  if (before != base.origin().end() && before->second != std::to_string(facts.base)) {
    return Error(Errc::invalid_argument, "the update is out of order")
        .expected("an update of version " + before->second)
        .found("version " + std::to_string(facts.version) + ", of version " + std::to_string(facts.base));
  }
  STELE_TRY_ASSIGN(const auto names, detail::delta::Names::of(base));
  auto data = detail::derived_data(base);
  auto changed = std::make_shared<Updated>(facts.encoding, facts.checksum, update.packed.leaf_count());
  const LeafPaths paths(*update.packed.data());
  for (std::size_t i = 0; i < update.packed.leaf_count(); ++i) {
    const std::string path(paths[i]);
    const auto number = names.find(path);
    if (!number) return Error(Errc::missing, "the base lacks a tensor of the update").path(path);
    const LeafView packed = update.packed.leaf(i);
    if (packed.dtype() != DType::u8) {
      return Error(Errc::malformed, "the changes of a tensor are not bytes").path(path).found(name(packed.dtype()));
    }
    auto sum = update.sums.find(path);
    if (sum == update.sums.end()) sum = update.sums.find("mx.adler32:" + path);
    if (sum == update.sums.end()) return Error(Errc::malformed, "an update has no checksum of a tensor").path(path);
    data->leaves[*number].provider = changed->add({base.leaf(*number), packed, sum->second, path});
  }
  changed->keep(update.packed);
  data->keepers.push_back(changed);
  data->in_order = data->in_order || update.packed.in_order();
  data->origin[origin_key] = std::to_string(facts.version);
  return Snapshot(std::shared_ptr<const detail::SnapshotData>(std::move(data)));
}

// ---- Writing

/// A changed tensor, compressed when it is read.
struct Packed {
  LeafView base, next;
  Encoding encoding = Encoding::xored;
  std::uint64_t changed = 0;  // bytes
  std::uint64_t size = 0;     // compressed
  std::string sum{};
};

/// Compresses pieces into one frame, and passes them on.
class Deflater {
 public:
  Deflater(std::uint64_t plain, PieceSink& to)
      : to_(to), context_(detail::zstd::new_compressor()), out_(ZSTD_CStreamOutSize()) {
    ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_compressionLevel, 1);  // slime's
    ZSTD_CCtx_setPledgedSrcSize(context_.get(), plain);                  // in the frame: SGLang needs it
  }
  Status add(std::span<const std::byte> bytes) { return run(bytes, ZSTD_e_continue); }
  Status finish() { return run({}, ZSTD_e_end); }

 private:
  Status run(std::span<const std::byte> bytes, ZSTD_EndDirective how) {
    ZSTD_inBuffer from{bytes.data(), bytes.size(), 0};
    for (bool more = true; more;) {
      ZSTD_outBuffer out{out_.data() + filled_, out_.size() - filled_, 0};
      const std::size_t left = ZSTD_compressStream2(context_.get(), &out, &from, how);
      if (ZSTD_isError(left)) return Error(Errc::io, ZSTD_getErrorName(left));
      filled_ += out.pos;
      more = how == ZSTD_e_end ? left != 0 : from.pos < from.size;
      // The size of every piece except the last is a multiple of 64 bytes.
      const std::size_t whole = how == ZSTD_e_end && !more ? filled_ : filled_ / 64 * 64;
      if (whole == 0 || (whole < out_.size() / 2 && (more || how != ZSTD_e_end))) continue;
      STELE_TRY(to_.piece(std::span<const std::byte>(out_.span()).first(whole)));
      std::memmove(out_.data(), out_.data() + whole, filled_ - whole);
      filled_ -= whole;
    }
    return {};
  }

  PieceSink& to_;
  detail::zstd::Compressor context_;
  Bytes out_;
  std::size_t filled_ = 0;
};

/// Calls each(offset, old, now) for consecutive pieces of a tensor.
template <class Each>
Status each_piece(const Packed& packed, ReadContext& context, const Each& each) {
  class Pairs final : public PieceSink {
   public:
    Pairs(const Packed& packed, ReadContext& context, const Each& each)
        : window_(packed.base), context_(context), each_(each) {}
    Status piece(std::span<const std::byte> bytes) override {
      while (!bytes.empty()) {
        const auto now = bytes.first(std::min(bytes.size(), ReadContext::piece_size));
        STELE_TRY_ASSIGN(const auto old, window_.at(done_, now.size(), context_));
        STELE_TRY(each_(done_, old, now));
        done_ += now.size();
        bytes = bytes.subspan(now.size());
      }
      return {};
    }

   private:
    Window window_;
    ReadContext& context_;
    const Each& each_;
    std::uint64_t done_ = 0;
  } pairs(packed, context, each);
  return packed.next.stream(pairs, context);
}

Status compress(const Packed& packed, PieceSink& sink, ReadContext& context) {
  std::vector<std::byte> out;
  if (packed.encoding == Encoding::xored) {
    Deflater deflater(packed.next.byte_size(), sink);
    STELE_TRY(each_piece(packed, context, [&](std::uint64_t, Span old, Span now) {
      out.resize(now.size());
      for (std::size_t i = 0; i < now.size(); ++i) out[i] = old[i] ^ now[i];
      return deflater.add(out);
    }));
    return deflater.finish();
  }
  Deflater deflater(4 + 5 * packed.changed, sink);
  const auto put = [&](std::uint64_t number) {
    for (int i = 0; i < 4; ++i) out.push_back(static_cast<std::byte>(number >> (8 * i) & 0xffU));
  };
  put(packed.changed);
  STELE_TRY(deflater.add(out));
  STELE_TRY(each_piece(packed, context, [&](std::uint64_t at, Span old, Span now) {
    out.clear();
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (old[i] != now[i]) put(at + i);
    }
    return deflater.add(out);
  }));
  STELE_TRY(each_piece(packed, context, [&](std::uint64_t, Span old, Span now) {
    out.clear();
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (old[i] != now[i]) out.push_back(now[i]);
    }
    return deflater.add(out);
  }));
  return deflater.finish();
}

constexpr LeafOps packed_ops{
    .read = [](const void* at, std::uint64_t, std::uint64_t offset, std::span<std::byte> out,
               ReadContext& context) -> Status {
      Part part(offset, out);
      return compress(*static_cast<const Packed*>(at), part, context);
    },
    .stream = [](const void* at, std::uint64_t, std::uint64_t, PieceSink& sink,
                 ReadContext& context) { return compress(*static_cast<const Packed*>(at), sink, context); }};

/// Compares two tensors, and determines the size of the changes and the checksum.
Status plan(Packed& packed, Checksum checksum, ReadContext& context) {
  Summer sum(checksum);
  STELE_TRY(each_piece(packed, context, [&](std::uint64_t, Span old, Span now) -> Status {
    sum.update(now);
    if (std::memcmp(old.data(), now.data(), now.size()) == 0) return {};
    for (std::size_t i = 0; i < now.size(); ++i) packed.changed += old[i] != now[i] ? 1 : 0;
    if (packed.encoding == Encoding::xored || packed.next.byte_size() <= UINT64_C(0x100000000)) return {};
    return Error(Errc::limit, "positions of changes have 32 bits")
        .expected("a tensor of at most 4 GiB")
        .found(std::to_string(packed.next.byte_size()) + " bytes")
        .hint("encode the update as xor");
  }));
  if (packed.changed == 0) return {};
  packed.sum = sum.digest();
  struct Count final : PieceSink {
    std::uint64_t bytes = 0;
    Status piece(std::span<const std::byte> piece) override {
      bytes += piece.size();
      return {};
    }
  } count;
  STELE_TRY(compress(packed, count, context));
  packed.size = count.bytes;
  return {};
}

Result<std::string> index_text(const UpdateOptions& options, const std::vector<std::string>& changed) {
  const auto six = [](std::uint64_t version) {
    std::string digits = std::to_string(version);
    return std::string(digits.size() < 6 ? 6 - digits.size() : 0, '0') + digits;
  };
  std::string text;
  detail::json::Writer out(text);
  out.begin_object();
  out.key("metadata");
  out.begin_object();
  for (const auto& [key, value] : {std::pair<const char*, std::string>("version", six(options.version)),
                                   {"base_version", six(options.version - 1)},
                                   {"delta_encoding", options.encoding},
                                   {"compression_format", "zstd"},
                                   {"checksum_format", options.checksum}}) {
    out.key(key);
    out.string(value);
  }
  out.end_object();
  out.key("weight_map");
  out.begin_object();
  for (const std::string& name : changed) {
    out.key(name);
    out.string(file_name_of_one);
  }
  out.end_object();
  out.end_object();
  return text;
}

Error not_in_layout(const char* text, const std::string& path) {
  return Error(Errc::not_representable, text).path(path).hint("write a delta of stele: make_delta()");
}

/// Adds a row if the two versions differ in anything but tensors.
Status check_rest(const Snapshot& base, const Snapshot& next, bool allow_loss, Report& report) {
  const auto lost = [&](const char* text) -> Status {
    report.add(Report::What::lost, "", text);
    return allow_loss ? Status() : not_in_layout("an update of weights has only tensors", "").found(text);
  };
  if (!detail::delta::same_values(base, next)) STELE_TRY(lost("values that changed"));
  if (base.metadata() != next.metadata()) STELE_TRY(lost("metadata that changed"));
  return {};
}

Result<Report> save_folder(const Snapshot& base, const Snapshot& next, Sink& sink, const UpdateOptions& update,
                           const SaveOptions& options) {
  STELE_TRY_ASSIGN(const auto encoding,
                   kind_of<Encoding>(update.encoding, encodings, "no such encoding", Errc::invalid_argument));
  STELE_TRY_ASSIGN(const auto checksum,
                   kind_of<Checksum>(update.checksum, checksums, "no such checksum", Errc::invalid_argument));
  if (update.version == 0) return Error(Errc::invalid_argument, "the first update has version 1");
  Report report;
  STELE_TRY(check_rest(base, next, options.allow_loss, report));
  STELE_TRY_ASSIGN(const auto old_names, detail::delta::Names::of(base));
  STELE_TRY_ASSIGN(const auto new_names, detail::delta::Names::of(next));
  for (const auto& named : old_names.list()) {
    if (!new_names.find(named.path)) return not_in_layout("an update of weights cannot remove a tensor", named.path);
  }
  std::vector<std::shared_ptr<Packed>> all;
  for (const auto& named : new_names.list()) {
    const auto number = old_names.find(named.path);
    if (!number) return not_in_layout("an update of weights cannot add a tensor", named.path);
    const LeafView old = base.leaf(*number), now = next.leaf(named.leaf);
    if (old.dtype() != now.dtype() || Shape(old.shape()) != Shape(now.shape())) {
      return not_in_layout("an update of weights cannot change a dtype or a shape", named.path);
    }
    all.push_back(std::make_shared<Packed>(Packed{old, now, encoding}));
  }
  LoadOptions reading;
  reading.threads = options.threads;
  reading.executor = options.executor;
  reading.progress = options.progress;
  detail::Meter meter(options.progress, next.byte_size());
  const bool in_order = base.in_order() || next.in_order();
  STELE_TRY(detail::delta::each_leaf(all.size(), reading, in_order, [&](std::size_t i, ReadContext& context) -> Status {
    auto planned = plan(*all[i], checksum, context);
    if (!planned) return std::move(planned).error().path(new_names.list()[i].path);
    return meter.add(all[i]->next.byte_size());
  }));
  SnapshotBuilder builder;
  builder.set_flat();
  std::map<std::string, std::string> sums;
  std::vector<std::string> changed;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i]->changed == 0) continue;
    const std::string& path = new_names.list()[i].path;
    const Extent size = all[i]->size;
    builder.tensor(builder.intern(path), DType::u8, std::span(&size, 1), size, {&packed_ops, all[i].get(), 0});
    builder.keep(all[i]);
    sums.emplace(path, all[i]->sum);
    changed.push_back(path);
  }
  if (options.dry_run) return report;
  const auto bundle = sink.bundle();
  if (!changed.empty()) {
    builder.set_metadata(std::move(sums));
    STELE_TRY_ASSIGN(const auto file, bundle->create(file_name_of_one));
    STELE_TRY(SafetensorsFormat().write(builder.finish(), *file, options));
    STELE_TRY(file->commit());
  }
  STELE_TRY_ASSIGN(const std::string text, index_text(update, changed));
  STELE_TRY_ASSIGN(const auto index, bundle->create(index_name));
  STELE_TRY(index->write(std::as_bytes(std::span(text))));
  STELE_TRY(index->commit());
  STELE_TRY(sink.commit());
  return report;
}

}  // namespace

namespace {

/// Returns true if the metadata of an index have the encoding of an update. Keeps no values of the JSON.
bool has_encoding(std::string_view text) {
  detail::json::Reader in(text);
  std::string scratch;
  std::string_view key;
  if (!in.begin_object()) return false;
  while (in.next_key(key, scratch)) {
    if (key != "metadata") {
      if (!in.skip_value()) return false;
      continue;
    }
    if (!in.begin_object()) return false;
    while (in.next_key(key, scratch)) {
      if (key == "delta_encoding") return true;
      if (!in.skip_value()) return false;
    }
  }
  return false;
}

}  // namespace

Result<bool> is_update(const Input& update) {
  return detail::guarded(update.name(), [&]() -> Result<bool> {
    const LoadOptions options;
    STELE_TRY_ASSIGN(const SourcePtr source, update.open("", options));
    STELE_TRY_ASSIGN(const SourcePtr index, index_in(*source));
    if (index == nullptr) {
      if (source->is_folder()) return false;
      std::array<std::byte, 64> head;
      const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(source->size(), head.size()));
      STELE_TRY(source->read_at(0, std::span(head).first(size)));
      if (!SafetensorsFormat().recognises(std::span(head).first(size), source->size())) return false;
      STELE_TRY_ASSIGN(const Snapshot opened, SafetensorsFormat().open(source, OpenContext(options, {})));
      return opened.metadata().contains("delta_encoding");
    }
    if (index->size() > detail::max_index) return false;
    STELE_TRY_ASSIGN(const std::string text, detail::read_text(*index, detail::max_index));
    return has_encoding(text);
  });
}

Result<Snapshot> apply_update(const Snapshot& base, const Input& update, const LoadOptions& options) {
  return detail::guarded(update.name(), [&]() -> Result<Snapshot> {
    STELE_TRY(detail::not_a_delta(*base.data()));
    STELE_TRY_ASSIGN(const Snapshot parts, split_composites(base));
    const Snapshot stored = detail::in_file_order(parts);
    STELE_TRY_ASSIGN(const SourcePtr source, update.open("", options));
    STELE_TRY_ASSIGN(const Update read, read_update(source, options));
    STELE_TRY_ASSIGN(const Snapshot next, detail::in_host_order(applied(stored, read)));
    return join_composites(next);
  });
}

Result<Report> save_update(const Snapshot& base, const Snapshot& next, const Output& to, const UpdateOptions& update,
                           const SaveOptions& options) {
  return detail::guarded([&]() -> Result<Report> {
    STELE_TRY(detail::not_a_delta(*base.data()));
    STELE_TRY(detail::not_a_delta(*next.data()));
    STELE_TRY_ASSIGN(const Snapshot old, split_composites(base));
    STELE_TRY_ASSIGN(const Snapshot now, split_composites(next));
    const auto write = [&](Sink& sink) {
      return save_folder(detail::in_file_order(old), detail::in_file_order(now), sink, update, options);
    };
    if (to.sink() != nullptr) return write(*to.sink());
    STELE_TRY_ASSIGN(const auto sink,
                     folder_sink(std::string(to.path()), options.file, [](const Bundle& folder) -> Status {
                       STELE_TRY_ASSIGN(const bool update_there, folder.contains(index_name));
                       STELE_TRY_ASSIGN(const auto names, folder.names());
                       if (update_there && names.size() <= 2) return {};
                       return Error(Errc::exists, "the target folder has other files than those of an update");
                     }));
    return write(*sink);
  });
}

}  // namespace stele::inline v0
