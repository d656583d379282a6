#include "stele/sink.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>
#include <ostream>
#include <utility>

#include "io/files.hpp"
#include "io/os/os.hpp"
#include "stele/bundle.hpp"
#include "stele/source.hpp"

namespace stele::inline v0 {

Sink::~Sink() = default;
Status Sink::reserve(std::uint64_t /*total*/) { return {}; }
Status Sink::commit() { return {}; }
void Sink::remove_parts(bool committing) noexcept {
  const auto status = detail::guarded(name_, [&]() -> Status {
    const std::string own(file_name(name_));
    const bool is_new = std::any_of(parts_.begin(), parts_.end(), [&](const Part& part) { return part.name == own; });
    if (parts_.empty() || (committing && !is_new)) return {};
    const auto files = bundle();
    for (const Part& part : parts_) {
      if (part.new_file) files->remove(part.name);
      if (part.name != own) continue;
      STELE_TRY_ASSIGN(const bool exists, files->contains(own));
      if (exists) return {};
    }
    return {};
  });
  static_cast<void>(status);  // the caller reports the error of the save itself
  parts_.clear();
}
std::vector<std::string> Sink::parts() const {
  std::vector<std::string> names;
  for (const Part& part : parts_) {
    if (part.name != file_name(name_)) names.push_back(part.name);
  }
  return names;
}
Status Sink::patch(std::uint64_t /*offset*/, std::span<const std::byte> /*bytes*/) {
  return Error(Errc::unsupported, "the sink cannot change bytes that it has written").file(name_);
}

namespace {

Status check_copied(const Source& from, std::uint64_t offset, std::uint64_t size) {
  if (offset <= from.size() && size <= from.size() - offset) return {};
  return Error(Errc::truncated, "the range to copy exceeds the source").file(from.name()).offset(offset);
}

}  // namespace

Status Sink::copy(const Source& from, std::uint64_t offset, std::uint64_t size) {
  return detail::guarded(name_, [&]() -> Status {
    constexpr std::size_t limit = std::size_t{1} << 20;
    STELE_TRY(check_copied(from, offset, size));
    const auto all = from.view();
    Bytes staging(all.empty() ? static_cast<std::size_t>(std::min<std::uint64_t>(size, limit)) : 0);
    while (size != 0) {
      const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(size, limit));
      std::span<const std::byte> piece = staging.span().first(all.empty() ? n : 0);
      if (all.empty()) {
        STELE_TRY(from.read_at(offset, staging.span().first(n)));
      } else {
        piece = all.subspan(static_cast<std::size_t>(offset), n);
      }
      STELE_TRY(write(piece));
      offset += n;
      size -= n;
    }
    return {};
  });
}

namespace {

namespace os = detail::os;
using detail::FilePlace;
using detail::Names;
using Pieces = std::span<const std::span<const std::byte>>;

/// Returns the size of all pieces plus `used`, or the largest number if the sum overflows.
std::size_t total_size(Pieces pieces, std::size_t used) noexcept {
  constexpr std::size_t limit = std::numeric_limits<std::size_t>::max();
  for (const auto& piece : pieces) used = piece.size() > limit - used ? limit : used + piece.size();
  return used;
}

void append(std::byte* memory, std::size_t& used, Pieces pieces) noexcept {
  for (const auto& piece : pieces) {
    if (!piece.empty()) std::memcpy(memory + used, piece.data(), piece.size());
    used += piece.size();
  }
}

/// The unfinished new file. The destructor removes it unless it has replaced the target.
class Temporary {
 public:
  Temporary(os::Folder folder, std::string leaf, os::File file) noexcept
      : folder_(std::move(folder)), leaf_(std::move(leaf)), file_(std::move(file)) {}
  Temporary(Temporary&&) noexcept = default;
  Temporary& operator=(Temporary&&) = delete;
  ~Temporary() { discard(); }

  const os::File& file() const noexcept { return file_; }
  bool is_open() const noexcept { return file_.is_open(); }
  Status keep_permissions(const std::string& target) { return os::keep_permissions(folder_, target, file_); }

  /// Replaces `target` with this file. The file remains open, and thus locked, until it has its final name. After the
  /// rename, removes the journal of an in-place change of the old file; until then, the old file may need it.
  Status replace(const std::string& target, FileSinkOptions options, Names names) {
    const bool full = options.durability == Durability::full;
    const os::Path journal(&folder_, target + std::string(detail::journal_ending), file_.name());
    STELE_TRY(full ? os::sync(file_) : os::flush(file_));
    STELE_TRY((options.overwrite ? os::rename : os::rename_new)(folder_, leaf_, target, file_.name()));
    // From here on the file is saved: nothing may fail because memory has run out.
    const os::File placed = std::move(file_);
    if (names == Names::later) return {};  // the file is in a new folder
    if (full) STELE_TRY(os::sync_folder(folder_, placed));
    if (!is_there(journal)) return {};
    os::remove(folder_, journal.text);
    return !is_there(journal) ? Status()
                              : Error(Errc::io, "the file is saved, but the journal of its older version remains")
                                    .file(placed.name())
                                    .hint("remove " + journal.text + " beside it");
  }

  void discard() noexcept {
    if (!is_open()) return;
    os::remove(folder_, leaf_);
    file_.close();
  }

 private:
  static bool is_there(const os::Path& path) {
    const auto exists = detail::guarded([&] { return os::exists(path); });
    return exists && *exists;
  }

  os::Folder folder_;
  std::string leaf_;
  os::File file_;
};

Result<Temporary> create_temporary(os::Folder folder, const std::string& prefix, bool secret, const std::string& name) {
  for (int i = 0; i < detail::max_tries; ++i) {
    std::string leaf = detail::temporary_name(prefix);
    STELE_TRY_ASSIGN(os::File file, os::create(folder, leaf, secret, name));
    if (file.is_open()) return Temporary(std::move(folder), std::move(leaf), std::move(file));
  }
  return Error(Errc::io, "this process has too many temporary files next to it").file(name);
}

/// Replaces a file in one step.
class FileSink final : public Sink {
 public:
  FileSink(const FilePlace& place, FileSinkOptions options, Names names, std::string target, Temporary temporary)
      : Sink(place.name),
        folder_(place.folder()),
        options_(options),
        names_(names),
        target_(std::move(target)),
        temporary_(std::move(temporary)) {
    // Writing out early helps only if the save waits for the disk at the end.
    progress_.write_behind = options.durability == Durability::full;
  }

  Status reserve(std::uint64_t total) override {
    return attempt([&] {
      reserved_ = total;
      return os::reserve(temporary_.file(), total);
    });
  }

  Status write(Pieces pieces) override {
    return attempt([&] { return os::write(temporary_.file(), pieces, progress_); });
  }

  Status copy(const Source& from, std::uint64_t offset, std::uint64_t size) override {
    if (from.file() == nullptr) return Sink::copy(from, offset, size);
    STELE_TRY(check_copied(from, offset, size));
    std::uint64_t copied = 0;
    STELE_TRY(attempt([&]() -> Status {
      STELE_TRY_ASSIGN(copied, os::copy(*from.file(), offset, temporary_.file(), size, progress_));
      return {};
    }));
    return Sink::copy(from, offset + copied, size - copied);  // copies the rest, which the system could not copy
  }

  bool can_patch() const noexcept override { return true; }
  Status patch(std::uint64_t offset, std::span<const std::byte> bytes) override {
    return attempt([&] { return os::write_at(temporary_.file(), offset, bytes); });
  }

  Status commit() override {
    return detail::guarded(name(), [&]() -> Status {
      if (committed_) return {};
      if (!temporary_.is_open()) return closed();
      // Sets them again: writing removes permissions (setuid), and they may have changed meanwhile.
      Status status = temporary_.keep_permissions(target_);
      if (status && reserved_ > progress_.written) status = os::release_above(temporary_.file(), progress_.written);
      if (status) status = temporary_.replace(target_, options_, names_);
      temporary_.discard();
      committed_ = status.has_value();
      return status;
    });
  }
  std::shared_ptr<Bundle> bundle() const override {
    return detail::folder_bundle(folder_, {options_.durability, false, options_.overwrite}, false, names_);
  }

 private:
  /// Runs `body` on the open file. On an error, closes and removes the file.
  template <class Body>
  Status attempt(Body&& body) {
    return detail::guarded(name(), [&]() -> Status {
      if (!temporary_.is_open()) return closed();
      Status status = body();
      if (!status) temporary_.discard();
      return status;
    });
  }

  Error closed() const {
    return committed_ ? Error(Errc::invalid_argument, "the file is already saved").file(name())
                      : Error(Errc::io, "an earlier write failed").file(name());
  }

  FilePlace folder_;
  FileSinkOptions options_;
  Names names_;
  bool committed_ = false;
  std::string target_;
  Temporary temporary_;
  os::Progress progress_;
  std::uint64_t reserved_ = 0;
};

/// A FIFO or device, which stores no bytes that could be overwritten.
class DeviceSink final : public Sink {
 public:
  DeviceSink(os::File file, Durability durability)
      : Sink(file.name()), file_(std::move(file)), durability_(durability) {}

  Status write(Pieces pieces) override {
    return detail::guarded(name(), [&] { return os::write(file_, pieces, progress_); });
  }
  Status commit() override {
    return detail::guarded(name(), [&] { return durability_ == Durability::full ? os::sync(file_) : Status(); });
  }

 private:
  os::File file_;
  Durability durability_;
  os::Progress progress_;
};

/// Returns true if the folder to be replaced has a regular file, not a link, at this path.
Result<bool> has_old(const FilePlace& place) {
  if (place.old == nullptr) return false;
  const os::Path path(place.old.get(), place.path, place.name);
  STELE_TRY_ASSIGN(const os::Info info, os::status(path));
  if (info.kind != os::Kind::regular) return false;
  STELE_TRY_ASSIGN(const std::string resolved, os::resolve_links(path));
  return resolved == place.path;
}

Result<std::unique_ptr<Sink>> open_file_sink(const FilePlace& place, FileSinkOptions options, Names names,
                                             const std::string& like) {
  if (place.path.empty()) return Error(Errc::invalid_argument, "the path is empty");
  const auto a_folder = [&]() -> Error {
    return Error(Errc::invalid_argument, "the path names a folder, not a file").file(place.name);
  };
  const os::Path path = place.os();
  STELE_TRY_ASSIGN(const os::Info target, os::status(path));
  if (target.kind != os::Kind::missing && !options.overwrite) return detail::target_exists(place.name);
  if (target.kind == os::Kind::folder) return a_folder();
  if (target.kind == os::Kind::other) {
    STELE_TRY_ASSIGN(os::File file, os::open_for_writing(path));
    return std::unique_ptr<Sink>(std::make_unique<DeviceSink>(std::move(file), options.durability));
  }

  // Links are kept; their target is replaced.
  STELE_TRY_ASSIGN(const std::string resolved, os::resolve_links(path));
  const bool exists = target.kind == os::Kind::regular;
  if (exists) {
    // In a writable folder the rename would succeed even if the file's owner protected the file.
    STELE_TRY(os::check_writable(path));
    // Links in /proc can lead to files without a name, such as standard output redirected to a deleted file.
    if (resolved != place.path) {
      STELE_TRY_ASSIGN(const os::Info named, os::status({place.root.get(), resolved, place.name}));
      if (named.kind != os::Kind::regular) {
        return Error(Errc::io, "the link leads to a file without a name").file(place.name);
      }
    }
  }
  auto [folder_path, leaf] = detail::split_path(resolved);
  if (leaf.empty()) return a_folder();

  STELE_TRY_ASSIGN(os::Folder folder, os::open_folder({place.root.get(), folder_path, place.name}));
  const std::string prefix = detail::temporary_prefix(leaf, os::longest_name(folder));
  if (names == Names::as_data) {  // otherwise the folder is new and has no leftovers
    detail::remove_leftovers(folder, folder_path, prefix, os::Kind::regular);
  }
  STELE_TRY_ASSIGN(const bool takes_over, has_old(place));
  const bool secret = exists || takes_over || !like.empty();
  STELE_TRY_ASSIGN(Temporary temporary, create_temporary(std::move(folder), prefix, secret, place.name));
  // Done before any data is written, so that users who could not read the old file cannot read the unfinished one.
  if (exists) STELE_TRY(temporary.keep_permissions(leaf));
  if (!exists && !like.empty()) STELE_TRY(temporary.keep_permissions(like));
  if (!exists && takes_over) STELE_TRY(os::keep_permissions(*place.old, place.path, temporary.file()));
  return std::unique_ptr<Sink>(
      std::make_unique<FileSink>(place, options, names, std::move(leaf), std::move(temporary)));
}

}  // namespace

Result<std::unique_ptr<Sink>> detail::file_sink(const FilePlace& place, FileSinkOptions options, Names names,
                                                const std::string& like) {
  return guarded(place.name, [&] { return open_file_sink(place, options, names, like); });
}

Result<std::unique_ptr<Sink>> file_sink(const std::string& path, FileSinkOptions options) {
  return detail::guarded(path, [&] { return open_file_sink(detail::file_place(path), options, Names::as_data, {}); });
}

// ---- memory

namespace {

// Initial size of a buffer if the size was not announced.
constexpr std::size_t smallest_buffer = std::size_t{64} << 10;

void grow(Bytes& bytes, std::size_t used, std::size_t size) {
  if (size <= bytes.size()) return;
  Bytes larger(size);
  if (used != 0) std::memcpy(larger.data(), bytes.data(), used);
  bytes = std::move(larger);
}

Status replace(std::span<std::byte> memory, std::uint64_t offset, std::span<const std::byte> bytes,
               const std::string& name) {
  if (offset > memory.size() || bytes.size() > memory.size() - offset) {
    return Error(Errc::invalid_argument, "the range to change has not been written").file(name).offset(offset);
  }
  if (!bytes.empty()) std::memcpy(memory.data() + offset, bytes.data(), bytes.size());
  return {};
}

Error too_small(const std::string& name, std::size_t capacity, std::uint64_t needed) {
  return Error(Errc::no_space, "the buffer is too small")
      .file(name)
      .expected("at most " + std::to_string(capacity))
      .found(std::to_string(needed));
}

}  // namespace

Status BufferSink::reserve(std::uint64_t total) {
  return detail::guarded(name(), [&]() -> Status {
    if (total > std::numeric_limits<std::size_t>::max() / 2) return Error(Errc::out_of_memory).file(name());
    grow(bytes_, used_, static_cast<std::size_t>(total));
    return {};
  });
}

Status BufferSink::write(Pieces pieces) {
  return detail::guarded(name(), [&]() -> Status {
    const std::size_t needed = total_size(pieces, used_);
    if (needed > std::numeric_limits<std::size_t>::max() / 2) return Error(Errc::out_of_memory).file(name());
    // Grows by at least half, so that many small writes copy each byte a bounded number of times.
    if (needed > bytes_.size()) {
      grow(bytes_, used_, std::max({needed, bytes_.size() + bytes_.size() / 2, smallest_buffer}));
    }
    append(bytes_.data(), used_, pieces);
    return {};
  });
}

Status BufferSink::patch(std::uint64_t offset, std::span<const std::byte> bytes) {
  return replace({bytes_.data(), used_}, offset, bytes, name());
}

Bytes BufferSink::take() noexcept {
  bytes_.truncate(std::exchange(used_, 0));
  return std::exchange(bytes_, Bytes());
}

Status SpanSink::reserve(std::uint64_t total) {
  return detail::guarded(name(), [&]() -> Status {
    if (total > memory_.size()) return too_small(name(), memory_.size(), total);
    return {};
  });
}

Status SpanSink::write(Pieces pieces) {
  return detail::guarded(name(), [&]() -> Status {
    const std::size_t needed = total_size(pieces, used_);
    if (needed > memory_.size()) return too_small(name(), memory_.size(), needed);
    append(memory_.data(), used_, pieces);
    return {};
  });
}

Status SpanSink::patch(std::uint64_t offset, std::span<const std::byte> bytes) {
  return replace(memory_.first(used_), offset, bytes, name());
}

// ---- streams

namespace {

/// Runs `body`. Converts exceptions of a stream or its buffer to an Error.
template <class Body>
Status stream_call(const std::string& name, const char* what, std::ostream& stream, Body&& body) {
  return detail::guarded(name, [&]() -> Status {
    auto done = detail::guarded([&]() -> Status {
      body();
      return stream.good() ? Status() : Error(Errc::io);
    });
    if (done || done.error().code() == Errc::out_of_memory) return done;
    const std::string_view why = done.error().message();
    return Error(Errc::io, why.empty() ? what : std::string(what) + ": " + std::string(why)).file(name);
  });
}

}  // namespace

Status StreamSink::write(Pieces pieces) {
  return stream_call(name(), "cannot write to the stream", *stream_, [&] {
    for (const auto& piece : pieces) {
      if (piece.empty()) continue;
      stream_->write(reinterpret_cast<const char*>(piece.data()), static_cast<std::streamsize>(piece.size()));
      if (!stream_->good()) return;
    }
  });
}

Status StreamSink::commit() {
  return stream_call(name(), "cannot flush the stream", *stream_, [&] { stream_->flush(); });
}

}  // namespace stele::inline v0
