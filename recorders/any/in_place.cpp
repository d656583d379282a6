// Applies deltas to a file in place. All changes are written to a journal next to the file first; from then on, the
// file can be made the new version after any interruption, by writing the changes again.
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
#include "io/urls.hpp"
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

// A journal: the line; the u64 size of the file; the digests of the version that the change begins with and of the one
// that it gives (16 digits each); for each run of changed bytes two numbers, of the bytes before it since the last run
// and of its own, then the old bytes and the new bytes; two zeros; u64 XXH3-64 of the whole new file; u64 XXH3-64 of
// all that precedes. The numbers have 7 bits in each byte, the lowest first; bit 7 is set in all but the last.
//
// The content identifies the file: each byte of a run must be the old or the new one, and all other bytes, with the new
// ones, must have the hash. So another file or version is never taken for the interrupted one, and a copy of the file
// and its journal can be completed like the original; inodes and times would show neither.
constexpr std::string_view first_line = "stele journal 2\n";
constexpr std::size_t digest_size = 16, head_size = 16 + 8 + 2 * digest_size, tail_size = 16;
static_assert(first_line.size() == 16);
/// Maximum number of bytes in a run: bounds the memory that reading one takes.
constexpr std::size_t max_run = ReadContext::piece_size;

/// The versions before and after a change.
struct Versions {
  std::string base, next;  // weights_digest()
};

Error malformed(const std::string& name) {
  return Error(Errc::malformed, "the journal of an interrupted change is damaged, or of another version of stele")
      .file(name)
      .hint("restore the file from a copy, and remove the journal");
}

void put_u64(std::vector<std::byte>& to, std::uint64_t n) {
  for (int i = 0; i < 8; ++i) to.push_back(static_cast<std::byte>(n >> (8 * i) & 0xffU));
}

std::uint64_t get_u64(Span from) {
  std::uint64_t n = 0;
  for (std::size_t i = 8; i-- > 0;) n = n << 8U | static_cast<std::uint64_t>(from[i]);
  return n;
}

/// Hashes a file as it is after a change.
class NewFile {
 public:
  explicit NewFile(const os::File& file) : file_(file) {}
  /// Adds the bytes of the file up to `offset`, which the change leaves as they are.
  Status unchanged_to(std::uint64_t offset) {
    while (at_ < offset) {
      const auto part =
          buffer_.span().first(static_cast<std::size_t>(std::min<std::uint64_t>(offset - at_, buffer_.size())));
      STELE_TRY_ASSIGN(const std::size_t got, os::read_at(file_, at_, part));
      if (got != part.size()) return Error(Errc::truncated, "the file became shorter").file(file_.name());
      add(part);
    }
    return {};
  }
  /// Adds bytes as they become.
  void add(Span bytes) {
    hasher_.update(bytes.data(), bytes.size());
    at_ += bytes.size();
  }
  std::uint64_t digest() const { return hasher_.digest(); }

 private:
  const os::File& file_;
  detail::Hasher hasher_;
  std::uint64_t at_ = 0;
  Bytes buffer_{std::size_t{1} << 20};
};

/// Writes a journal.
class Journal {
 public:
  explicit Journal(Sink& sink) : sink_(sink) {}
  Status begin(std::uint64_t size, const Versions& versions) {
    add(std::as_bytes(std::span(first_line)));
    put_u64(buffer_, size);
    for (const std::string& digest : {versions.base, versions.next}) add(std::as_bytes(std::span(digest)));
    return flush();
  }
  /// Adds a run of changed bytes at `offset` of the file, which is not before the end of the last one.
  Status run(std::uint64_t offset, Span old, Span now) {
    number(offset - end_);
    number(now.size());
    add(old);
    add(now);
    end_ = offset + now.size();
    return buffer_.size() < (std::size_t{1} << 20) ? Status() : flush();
  }
  /// `digest`: of the new file.
  Status finish(std::uint64_t digest) {
    number(0);
    number(0);
    put_u64(buffer_, digest);
    STELE_TRY(flush());
    put_u64(buffer_, hasher_.digest());
    STELE_TRY(sink_.write(Span(buffer_)));
    return sink_.commit();
  }

 private:
  void add(Span bytes) { buffer_.insert(buffer_.end(), bytes.begin(), bytes.end()); }
  void number(std::uint64_t n) {
    for (; n >= 128; n >>= 7U) buffer_.push_back(static_cast<std::byte>((n & 127U) | 128U));
    buffer_.push_back(static_cast<std::byte>(n));
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
class JournalReader {
 public:
  JournalReader(const Source& source, std::uint64_t at, std::uint64_t end) : source_(source), at_(at), end_(end) {}
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
  /// Fills `out`.
  Status exactly(std::span<std::byte> out) {
    while (!out.empty()) {
      STELE_TRY_ASSIGN(const Span bytes, some(out.size()));
      if (bytes.empty()) return malformed(source_.name());
      std::memcpy(out.data(), bytes.data(), bytes.size());
      out = out.subspan(bytes.size());
    }
    return {};
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

/// A journal that is complete.
class Waiting {
 public:
  /// Checks the hash and the head. `size`: the size of the file.
  static Result<Waiting> open(SourcePtr source, std::uint64_t size) {
    Waiting journal;
    journal.size_ = size;
    if (source->size() < head_size + 2 + tail_size) return malformed(source->name());
    std::array<std::byte, head_size> head;
    std::array<std::byte, tail_size> tail;
    STELE_TRY(source->read_at(0, head));
    STELE_TRY(source->read_at(source->size() - tail_size, tail));
    if (std::memcmp(head.data(), first_line.data(), first_line.size()) != 0) return malformed(source->name());
    detail::Hasher hasher;
    JournalReader reader(*source, 0, source->size() - 8);
    for (;;) {
      STELE_TRY_ASSIGN(const Span bytes, reader.some(std::size_t{1} << 20));
      if (bytes.empty()) break;
      hasher.update(bytes.data(), bytes.size());
    }
    if (get_u64(Span(tail).subspan(8)) != hasher.digest()) return malformed(source->name());
    journal.new_file_ = get_u64(tail);
    const auto* const digests = reinterpret_cast<const char*>(head.data()) + 24;
    journal.versions_ = {std::string(digests, digest_size), std::string(digests + digest_size, digest_size)};
    journal.source_ = std::move(source);
    if (const std::uint64_t own = get_u64(Span(head).subspan(16)); own != size) {
      return journal.foreign().expected(std::to_string(own) + " bytes").found(std::to_string(size));
    }
    return journal;
  }

  const Versions& versions() const noexcept { return versions_; }

  /// Returns an error unless the file is the one for which the journal was written, however much of it is changed.
  Status check(const os::File& file) const {
    NewFile whole(file);
    Bytes found(max_run);
    STELE_TRY(each_run([&](std::uint64_t offset, Span old, Span now) -> Status {
      STELE_TRY(whole.unchanged_to(offset));
      const auto bytes = found.span().first(now.size());
      STELE_TRY_ASSIGN(const std::size_t got, os::read_at(file, offset, bytes));
      if (got != bytes.size()) return Error(Errc::truncated, "the file became shorter").file(file.name());
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        if (bytes[i] != old[i] && bytes[i] != now[i]) return foreign().offset(offset + i);
      }
      whole.add(now);
      return {};
    }));
    STELE_TRY(whole.unchanged_to(size_));
    return whole.digest() == new_file_ ? Status() : foreign();
  }

  /// Writes the new bytes.
  Status redo(const os::File& file) const {
    Redo redo(file, size_);
    STELE_TRY(each_run([&](std::uint64_t offset, Span, Span now) { return redo.write(offset, now); }));
    STELE_TRY(redo.flush());
    return os::sync(file);
  }

 private:
  Waiting() = default;
  Error foreign() const {
    return Error(Errc::checksum, "the journal beside the file belongs to another file, or to another version of it")
        .file(source_->name())
        .hint("if the file is whole, remove the journal");
  }
  /// Calls visit(offset, old bytes, new bytes) for each run.
  template <class Visit>
  Status each_run(const Visit& visit) const {
    JournalReader reader(*source_, head_size, source_->size() - tail_size);
    Bytes memory(2 * max_run);
    for (std::uint64_t at = 0;;) {
      STELE_TRY_ASSIGN(const std::uint64_t gap, reader.number());
      STELE_TRY_ASSIGN(const std::uint64_t count, reader.number());
      if (gap == 0 && count == 0) return {};
      if (gap > size_ - at || count > size_ - at - gap || count > max_run) return malformed(source_->name());
      const auto bytes = memory.span().first(2 * static_cast<std::size_t>(count));
      STELE_TRY(reader.exactly(bytes));
      at += gap;
      STELE_TRY(visit(at, bytes.first(bytes.size() / 2), bytes.subspan(bytes.size() / 2)));
      at += count;
    }
  }

  SourcePtr source_;
  std::uint64_t size_ = 0, new_file_ = 0;
  Versions versions_;
};

/// A file that is changed in place, and its journal.
class Target {
 public:
  static Result<Target> open(const std::string& path) {
    if (detail::is_url(path)) {
      return Error(Errc::invalid_argument, "a file at a URL cannot be changed in place")
          .file(path)
          .hint("write a new file");
    }
    Target target;
    target.path_ = detail::file_place(path);
    if (target.path_.path.empty()) return Error(Errc::invalid_argument, "the path is empty");
    // The journal is next to the file itself, not next to a link to it.
    STELE_TRY_ASSIGN(const std::string resolved, os::resolve_links(target.path_.os()));
    auto [folder, name] = detail::split_path(resolved);
    STELE_TRY_ASSIGN(os::Folder opened, os::open_folder({nullptr, folder, path}));
    target.folder_ = std::make_shared<const os::Folder>(std::move(opened));
    target.name_ = std::move(name);
    const std::string journal = target.name_ + std::string(detail::journal_ending);
    target.journal_ = {target.folder_, journal, resolved + std::string(detail::journal_ending)};
    STELE_TRY_ASSIGN(target.file_, os::open_locked(target.path_.os()));
    if (!target.file_.is_open()) return Error(Errc::io, "another program changes the file").file(path);
    STELE_TRY_ASSIGN(const os::Info info, os::status(target.file_));
    if (info.kind != os::Kind::regular) {
      const char* const what = info.kind == os::Kind::folder ? "a folder cannot be changed in place"
                                                             : "only a regular file can be changed in place";
      return Error(Errc::invalid_argument, what).file(path).hint("write a new file");
    }
    if (info.names > 1) {
      return Error(Errc::not_representable, "the file has other names (hard links), under which it would change too")
          .file(path)
          .hint("write a new file");
    }
    STELE_TRY(os::check_writable(target.path_.os()));
    target.size_ = info.size;
    return target;
  }

  const os::File& file() const noexcept { return file_; }
  std::uint64_t size() const noexcept { return size_; }
  Result<std::unique_ptr<Sink>> create_journal() const {
    return detail::file_sink(journal_, {}, detail::Names::as_data, name_);
  }

  /// Returns the journal, which belongs to this file; nullopt if there is none.
  Result<std::optional<Waiting>> interrupted() const {
    STELE_TRY_ASSIGN(std::optional<Waiting> journal, waiting());
    if (journal) STELE_TRY(journal->check(file_));
    return journal;
  }

  /// Makes the changes of a journal that was just written.
  Status change() const {
    STELE_TRY_ASSIGN(const std::optional<Waiting> journal, waiting());
    if (!journal) return Error(Errc::not_found, "the journal has been removed").file(journal_.name);
    return complete(*journal);
  }

  /// Makes the changes of a journal, and removes it.
  Status complete(const Waiting& journal) const {
    STELE_TRY(check_current());
    if (auto done = journal.redo(file_); !done) {
      return std::move(done).error().hint("the same call completes the change, once the cause is gone");
    }
    STELE_TRY(check_current());
    os::remove(*folder_, journal_.path);
    STELE_TRY(os::sync_folder(*folder_, file_));
    STELE_TRY_ASSIGN(const bool remains, os::exists(journal_.os()));
    if (!remains) return {};
    return Error(Errc::io, "the file is changed, but its journal cannot be removed").file(journal_.name);
  }

  /// Returns an error if the path leads to another file now: the change would be lost with this one.
  Status check_current() const {
    STELE_TRY_ASSIGN(const bool same, os::leads_to(path_.os(), file_));
    return same ? Status() : Status(Error(Errc::io, "another file has taken the file's name").file(path_.name));
  }

 private:
  Target() = default;
  Result<std::optional<Waiting>> waiting() const {
    STELE_TRY_ASSIGN(const bool exists, os::exists(journal_.os()));
    if (!exists) return std::optional<Waiting>();
    STELE_TRY_ASSIGN(SourcePtr source, detail::open_file(journal_, false));
    STELE_TRY_ASSIGN(Waiting journal, Waiting::open(std::move(source), size_));
    return std::optional<Waiting>(std::move(journal));
  }

  FilePlace path_, journal_;
  std::shared_ptr<const os::Folder> folder_;
  std::string name_;  // in the folder
  os::File file_;
  std::uint64_t size_ = 0;
};

Error not_in_place(const char* text) { return Error(Errc::not_representable, text).hint("write a new file"); }

/// Compares a new tensor with the old one, and writes its changes to a journal.
class ChangeSink final : public PieceSink {
 public:
  ChangeSink(const LeafView& old, std::uint64_t offset, Journal& journal, NewFile& whole, ReadContext& context)
      : window_(old), offset_(offset), journal_(journal), whole_(whole), context_(context) {}
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
        STELE_TRY(journal_.run(offset_ + done_ + i, old.subspan(i, end - i), now.subspan(i, end - i)));
        i = end;
      }
      whole_.add(now);
      done_ += now.size();
      bytes = bytes.subspan(now.size());
    }
    return {};
  }

 private:
  detail::delta::Window window_;
  std::uint64_t offset_;
  Journal& journal_;
  NewFile& whole_;
  ReadContext& context_;
  std::uint64_t done_ = 0;
};

/// Writes the journal that makes `next` of `base`.
Status write_journal(const Target& target, const Snapshot& base, const Snapshot& next, const Versions& versions) {
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
  NewFile whole(target.file());
  STELE_TRY(journal.begin(target.size(), versions));
  ReadContext context;
  std::uint64_t end = 0;
  for (const auto& [offset, leaves] : order) {
    const LeafView old = base.leaf(leaves.first), now = next.leaf(leaves.second);
    if (offset < end) return not_in_place("tensors of the file share bytes").path(old.path());
    end = offset + old.byte_size();
    STELE_TRY(whole.unchanged_to(offset));
    ChangeSink changes(old, offset, journal, whole, context);
    STELE_TRY(now.stream(changes, context));
  }
  STELE_TRY(whole.unchanged_to(target.size()));
  STELE_TRY(target.check_current());
  return journal.finish(whole.digest());
}

/// A delta and its file.
struct Opened {
  std::string file;
  Snapshot delta;
};

/// Opens deltas. Returns them with the versions between which they lead.
Result<std::pair<std::vector<Opened>, Versions>> open_deltas(std::span<const std::string> files,
                                                             const LoadOptions& options) {
  std::vector<Opened> all;
  Versions versions;
  for (const std::string& file : files) {
    STELE_TRY_ASSIGN(Snapshot delta, open(file, options));
    const auto info = delta_info(delta);
    if (!info) {
      return Error(Errc::invalid_argument, "the file is not a delta of weights")
          .file(file)
          .hint("write a new file: in place, weight updates of other programs are not applied");
    }
    if (info->base.size() != digest_size || info->next.size() != digest_size) {
      return Error(Errc::malformed, "the delta has no digest").file(file);
    }
    if (all.empty()) versions.base = info->base;
    versions.next = info->next;
    all.push_back({file, std::move(delta)});
  }
  return std::pair(std::move(all), std::move(versions));
}

Status write_journal(const Target& target, const Snapshot& base, const std::vector<Opened>& deltas,
                     const Versions& versions) {
  Snapshot next = base;
  for (const auto& [file, delta] : deltas) {
    auto applied = apply_delta(next, delta);
    if (!applied) {
      Error error = std::move(applied).error();
      return error.file().empty() ? std::move(error).file(file) : std::move(error);
    }
    STELE_TRY_ASSIGN(next, split_composites(*applied));
  }
  return write_journal(target, detail::in_file_order(base), detail::in_file_order(next), versions);
}

}  // namespace

Result<bool> apply_in_place(const std::string& path, std::span<const std::string> deltas, const LoadOptions& options) {
  return detail::guarded(path, [&]() -> Result<bool> {
    LoadOptions whole = options;
    whole.part = {};
    STELE_TRY_ASSIGN(const Target target, Target::open(path));
    STELE_TRY_ASSIGN(const auto interrupted, target.interrupted());
    STELE_TRY_ASSIGN(const auto opened, open_deltas(deltas, whole));
    const auto& [opened_deltas, versions] = opened;
    if (interrupted) {
      const Versions& before = interrupted->versions();
      const bool asked = deltas.empty() || before.next == versions.next;
      if (!asked && before.next != versions.base) {
        return Error(Errc::checksum,
                     "another change of the file was interrupted, to whose result the deltas do not apply")
            .file(path)
            .expected(versions.base)
            .found(before.next)
            .hint("`stele apply " + path + " --in-place` completes it");
      }
      STELE_TRY(target.complete(*interrupted));
      if (asked) return true;
    }
    if (deltas.empty()) return false;
    STELE_TRY_ASSIGN(const Snapshot stored, open(path, whole));
    STELE_TRY_ASSIGN(const Snapshot base, split_composites(stored));
    if (auto written = write_journal(target, base, opened_deltas, versions); !written) {
      if (written.error().code() != Errc::checksum) return std::move(written).error();
      STELE_TRY_ASSIGN(const std::string digest, weights_digest(base, whole));
      if (digest == versions.next) return false;
      return std::move(written).error();
    }
    STELE_TRY(target.change());
    return true;
  });
}

}  // namespace stele::inline v0
