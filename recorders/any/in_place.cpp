// Applies deltas to a file in place. All changes are written to a journal beside the file first; from then on, the file
// can be made the new version after any interruption, by writing the changes again.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.hpp"
#include "io/files.hpp"
#include "passes/byte_order.hpp"
#include "passes/delta/delta.hpp"
#include "snapshot/data.hpp"
#include "stele/composite.hpp"
#include "stele/delta.hpp"
#include "stele/recorders/any.hpp"

namespace stele::inline v0 {
namespace {

using detail::FilePlace;
namespace os = detail::os;
using Span = std::span<const std::byte>;

// A journal: the line, the u64 size of the file, the digest of the new version (16 digits); for each run of changed
// bytes two numbers, of the bytes before it since the last run and of its own, and the bytes; two zeros; u64 XXH3-64 of
// all. The numbers have 7 bits in each byte, the lowest first; bit 7 is set in all but the last.
constexpr std::string_view first_line = "stele journal 1\n";
constexpr std::string_view journal_ending = ".stele-journal";
constexpr std::size_t digest_size = 16, head_size = 16 + 8 + digest_size;
static_assert(first_line.size() == 16);

Error malformed(const std::string& name) {
  return Error(Errc::malformed, "the journal of an interrupted change is damaged").file(name);
}

/// Writes a journal.
class Journal {
 public:
  explicit Journal(Sink& sink) : sink_(sink) {}
  Status begin(std::uint64_t size, std::string_view digest) {
    add(std::as_bytes(std::span(first_line)));
    for (int i = 0; i < 8; ++i) add_byte(static_cast<std::byte>(size >> (8 * i) & 0xffU));
    add(std::as_bytes(std::span(digest)));
    return flush();
  }
  /// Adds a run of changed bytes at `offset` of the file, which is not before the end of the last one.
  Status run(std::uint64_t offset, Span bytes) {
    number(offset - end_);
    number(bytes.size());
    add(bytes);
    end_ = offset + bytes.size();
    return buffer_.size() < (std::size_t{1} << 20) ? Status() : flush();
  }
  Status finish() {
    number(0);
    number(0);
    STELE_TRY(flush());
    const std::uint64_t hash = hasher_.digest();
    for (int i = 0; i < 8; ++i) add_byte(static_cast<std::byte>(hash >> (8 * i) & 0xffU));
    STELE_TRY(sink_.write(Span(buffer_)));
    return sink_.commit();
  }

 private:
  void add_byte(std::byte byte) { buffer_.push_back(byte); }
  void add(Span bytes) { buffer_.insert(buffer_.end(), bytes.begin(), bytes.end()); }
  void number(std::uint64_t n) {
    for (; n >= 128; n >>= 7U) add_byte(static_cast<std::byte>((n & 127U) | 128U));
    add_byte(static_cast<std::byte>(n));
  }
  Status flush() {
    hasher_.update(buffer_.data(), buffer_.size());
    STELE_TRY(sink_.write(Span(buffer_)));
    buffer_.clear();
    return {};
  }

  Sink& sink_;
  detail::Hasher hasher_;
  std::vector<std::byte> buffer_;
  std::uint64_t end_ = 0;
};

/// Reads a source from a position on.
class Reader {
 public:
  Reader(const Source& source, std::uint64_t at, std::uint64_t end) : source_(source), at_(at), end_(end) {}
  /// Returns up to `size` bytes; at least one, unless all are read.
  Result<Span> some(std::size_t size) {
    if (used_ == filled_) {
      filled_ = static_cast<std::size_t>(std::min<std::uint64_t>(end_ - at_, buffer_.size()));
      used_ = 0;
      STELE_TRY(source_.read_at(at_, buffer_.span().first(filled_)));
      at_ += filled_;
    }
    const std::size_t n = std::min(size, filled_ - used_);
    used_ += n;
    return Span(buffer_.span()).subspan(used_ - n, n);
  }
  Result<std::uint64_t> number() {
    std::uint64_t n = 0;
    for (unsigned shift = 0; shift < 63; shift += 7) {
      STELE_TRY_ASSIGN(const Span byte, some(1));
      if (byte.empty()) break;
      n |= static_cast<std::uint64_t>(byte[0] & std::byte{127}) << shift;
      if ((byte[0] & std::byte{128}) == std::byte{0}) return n;
    }
    return malformed(source_.name());
  }

 private:
  const Source& source_;
  std::uint64_t at_, end_;
  Bytes buffer_{std::size_t{1} << 20};
  std::size_t used_ = 0, filled_ = 0;
};

/// Writes the changes of a journal to the open file. Unchanged bytes between them are written again, as they are.
class Redo {
 public:
  Redo(const os::File& file, std::uint64_t size) : file_(file), size_(size) {}
  Status write(std::uint64_t offset, Span bytes) {
    while (!bytes.empty()) {
      const std::uint64_t block = offset / block_size * block_size;
      if (block != block_) STELE_TRY(load(block));
      const auto within = static_cast<std::size_t>(offset - block);
      const std::size_t n = std::min(bytes.size(), filled_ - within);
      std::memcpy(buffer_.data() + within, bytes.data(), n);
      first_ = std::min(first_, within);
      last_ = std::max(last_, within + n);
      offset += n;
      bytes = bytes.subspan(n);
    }
    return {};
  }
  Status flush() {
    if (last_ <= first_) return {};
    STELE_TRY(os::write_at(file_, block_ + first_, Span(buffer_.span()).subspan(first_, last_ - first_)));
    first_ = block_size, last_ = 0;
    return {};
  }

 private:
  static constexpr std::size_t block_size = std::size_t{1} << 20;
  Status load(std::uint64_t block) {
    STELE_TRY(flush());
    block_ = block;
    filled_ = static_cast<std::size_t>(std::min<std::uint64_t>(block_size, size_ - block));
    STELE_TRY_ASSIGN(const std::size_t got, os::read_at(file_, block, buffer_.span().first(filled_)));
    return got == filled_ ? Status() : Status(Error(Errc::truncated, "the file became shorter").file(file_.name()));
  }

  const os::File& file_;
  std::uint64_t size_;
  Bytes buffer_{block_size};
  std::uint64_t block_ = UINT64_MAX;
  std::size_t filled_ = 0, first_ = block_size, last_ = 0;
};

/// A file that is changed in place, and its journal.
class Target {
 public:
  static Result<Target> open(const std::string& path) {
    Target target;
    target.place_ = detail::file_place(path);
    target.journal_ = detail::file_place(path + std::string(journal_ending));
    STELE_TRY_ASSIGN(target.file_, os::open_locked(target.place_.os()));
    if (!target.file_.is_open()) return Error(Errc::io, "another program changes the file").file(path);
    STELE_TRY_ASSIGN(const os::Info info, os::status(target.file_));
    if (info.kind != os::Kind::regular) return Error(Errc::io, "not a regular file").file(path);
    target.size_ = info.size;
    return target;
  }

  std::uint64_t size() const noexcept { return size_; }
  Result<std::unique_ptr<Sink>> create_journal() const { return detail::file_sink(journal_, {}); }

  /// Completes an interrupted change. Returns the digest of the version that the file has now; nullopt if there is no
  /// journal.
  Result<std::optional<std::string>> recover() const {
    STELE_TRY_ASSIGN(const os::Info info, os::status(journal_.os()));
    if (info.kind == os::Kind::missing) return std::optional<std::string>();
    STELE_TRY_ASSIGN(const SourcePtr source, detail::open_file(journal_, false));
    STELE_TRY_ASSIGN(std::string digest, check(*source));
    Reader reader(*source, head_size, source->size() - 8);
    Redo redo(file_, size_);
    for (std::uint64_t at = 0;;) {
      STELE_TRY_ASSIGN(const std::uint64_t gap, reader.number());
      STELE_TRY_ASSIGN(std::uint64_t count, reader.number());
      if (gap == 0 && count == 0) break;
      if (gap > size_ - at || count > size_ - at - gap) return malformed(source->name());
      for (at += gap; count != 0;) {
        STELE_TRY_ASSIGN(const Span bytes,
                         reader.some(static_cast<std::size_t>(std::min<std::uint64_t>(count, 1U << 20U))));
        if (bytes.empty()) return malformed(source->name());
        STELE_TRY(redo.write(at, bytes));
        at += bytes.size();
        count -= bytes.size();
      }
    }
    STELE_TRY(redo.flush());
    STELE_TRY(os::sync(file_));
    STELE_TRY_ASSIGN(const os::Folder folder, os::open_folder(place_.folder().os()));
    os::remove(folder, std::string(file_name(journal_.path)));
    STELE_TRY(os::sync_folder(folder, file_));
    return std::optional<std::string>(std::move(digest));
  }

 private:
  Target() = default;
  /// Checks a journal's hash and size. Returns the digest.
  Result<std::string> check(const Source& source) const {
    if (source.size() < head_size + 10) return malformed(source.name());
    std::array<std::byte, head_size> head;
    STELE_TRY(source.read_at(0, head));
    std::uint64_t size = 0;
    for (std::size_t i = 8; i-- > 0;) size = size << 8U | static_cast<std::uint64_t>(head[16 + i]);
    if (std::memcmp(head.data(), first_line.data(), first_line.size()) != 0) return malformed(source.name());
    if (size != size_) {
      return Error(Errc::malformed, "the journal beside the file belongs to another file")
          .file(source.name())
          .expected(std::to_string(size_) + " bytes")
          .found(std::to_string(size));
    }
    detail::Hasher hasher;
    Reader reader(source, 0, source.size() - 8);
    for (;;) {
      STELE_TRY_ASSIGN(const Span bytes, reader.some(std::size_t{1} << 20));
      if (bytes.empty()) break;
      hasher.update(bytes.data(), bytes.size());
    }
    std::array<std::byte, 8> stored;
    STELE_TRY(source.read_at(source.size() - 8, stored));
    std::uint64_t hash = 0;
    for (std::size_t i = 8; i-- > 0;) hash = hash << 8U | static_cast<std::uint64_t>(stored[i]);
    if (hash != hasher.digest()) return malformed(source.name());
    return std::string(reinterpret_cast<const char*>(head.data()) + 24, digest_size);
  }

  FilePlace place_, journal_;
  os::File file_;
  std::uint64_t size_ = 0;
};

Error not_in_place(const char* text) { return Error(Errc::not_representable, text).hint("write a new file"); }

/// Compares a new tensor with the old one, and writes its changes to a journal.
class ChangeSink final : public PieceSink {
 public:
  ChangeSink(const LeafView& old, std::uint64_t offset, Journal& journal, ReadContext& context)
      : window_(old), offset_(offset), journal_(journal), context_(context) {}
  Status piece(Span bytes) override {
    constexpr std::size_t join = 4;  // equal bytes between two runs cost less than another run
    while (!bytes.empty()) {
      const auto now = bytes.first(std::min(bytes.size(), ReadContext::piece_size));
      STELE_TRY_ASSIGN(const auto old, window_.at(done_, now.size(), context_));
      for (std::size_t i = 0; i < now.size();) {
        if (now[i] == old[i]) {
          ++i;
          continue;
        }
        std::size_t end = i + 1;
        for (std::size_t k = end; k < now.size() && k - end < join; ++k) {
          if (now[k] != old[k]) end = k + 1;
        }
        STELE_TRY(journal_.run(offset_ + done_ + i, now.subspan(i, end - i)));
        i = end;
      }
      done_ += now.size();
      bytes = bytes.subspan(now.size());
    }
    return {};
  }

 private:
  detail::delta::Window window_;
  std::uint64_t offset_;
  Journal& journal_;
  ReadContext& context_;
  std::uint64_t done_ = 0;
};

/// Writes the journal that makes `next` of `base`.
Status write_journal(const Target& target, const Snapshot& base, const Snapshot& next, const std::string& digest) {
  if (!detail::delta::same_values(base, next) || base.metadata() != next.metadata()) {
    return not_in_place("values or metadata change, which is not possible in place");
  }
  STELE_TRY_ASSIGN(const auto old_names, detail::delta::Names::of(base));
  STELE_TRY_ASSIGN(const auto new_names, detail::delta::Names::of(next));
  if (old_names.digest(base, nullptr) != new_names.digest(next, nullptr)) {
    return not_in_place("names, dtypes or shapes change, which is not possible in place");
  }
  // In the order of the file.
  std::vector<std::pair<std::uint64_t, std::pair<std::uint32_t, std::uint32_t>>> order;
  std::vector<bool> seen(base.leaf_count());
  for (const auto& named : new_names.list()) {
    const std::uint32_t old = *old_names.find(named.path);
    if (seen[old]) continue;
    seen[old] = true;
    const auto place = base.leaf(old).location();
    if (!place || place->hashed) {
      return not_in_place("the format stores checksums, or its tensors otherwise than as they are").path(named.path);
    }
    order.push_back({place->offset, {old, named.leaf}});
  }
  std::sort(order.begin(), order.end());
  STELE_TRY_ASSIGN(const auto sink, target.create_journal());
  Journal journal(*sink);
  STELE_TRY(journal.begin(target.size(), digest));
  ReadContext context;
  std::uint64_t end = 0;
  for (const auto& [offset, leaves] : order) {
    const LeafView old = base.leaf(leaves.first), now = next.leaf(leaves.second);
    if (offset < end) return not_in_place("tensors of the file share bytes").path(old.path());
    end = offset + old.byte_size();
    ChangeSink changes(old, offset, journal, context);
    STELE_TRY(now.stream(changes, context));
  }
  return journal.finish();
}

}  // namespace

Status apply_in_place(const std::string& path, std::span<const std::string> deltas, const LoadOptions& options) {
  return detail::guarded(path, [&]() -> Status {
    STELE_TRY_ASSIGN(const Target target, Target::open(path));
    STELE_TRY_ASSIGN(const auto recovered, target.recover());
    if (deltas.empty()) return {};
    {
      LoadOptions whole = options;
      whole.part = {};
      STELE_TRY_ASSIGN(const Snapshot opened, open(path, whole));
      STELE_TRY_ASSIGN(const Snapshot base, split_composites(opened));
      Snapshot next = base;
      std::string digest;
      for (const std::string& file : deltas) {
        STELE_TRY_ASSIGN(const Snapshot delta, open(file, whole));
        const auto info = delta_info(delta);
        if (!info) return Error(Errc::invalid_argument, "the file is not a delta of weights").file(file);
        digest = info->next;
        if (&file == &deltas.back() && recovered == digest) return {};  // the interrupted change was this one
        auto applied = apply_delta(next, delta);
        if (!applied) {
          Error error = std::move(applied).error();
          return error.file().empty() ? std::move(error).file(file) : std::move(error);
        }
        STELE_TRY_ASSIGN(next, split_composites(*applied));
      }
      if (digest.size() != digest_size) return Error(Errc::malformed, "the delta has no digest");
      STELE_TRY(write_journal(target, detail::in_file_order(base), detail::in_file_order(next), digest));
    }
    STELE_TRY(target.recover());
    return {};
  });
}

}  // namespace stele::inline v0
