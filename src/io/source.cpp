#include "stele/source.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <istream>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/threads.hpp"
#include "io/files.hpp"
#include "io/os/os.hpp"
#include "io/text.hpp"

namespace stele::inline v0 {

Source::~Source() = default;

namespace {

namespace os = detail::os;
using detail::FilePlace;

std::string bytes_text(std::uint64_t count) { return std::to_string(count) + (count == 1 ? " byte" : " bytes"); }

Error truncated(const Source& source, const char* why, std::uint64_t offset, std::uint64_t wanted, std::uint64_t got) {
  return Error(Errc::truncated, why)
      .file(source.name())
      .offset(offset)
      .expected(bytes_text(wanted))
      .found(bytes_text(got));
}

/// Returns an error if the source ends before `wanted` bytes from `offset` on.
Status check_range(const Source& source, std::uint64_t offset, std::uint64_t wanted) {
  const std::uint64_t available = offset < source.size() ? source.size() - offset : 0;
  if (offset <= source.size() && wanted <= available) return {};
  return truncated(source, "the bytes end before", offset, wanted, available);
}

bool is_inside(const Source& source, ByteRange range) noexcept {
  return range.offset <= source.size() && range.size <= source.size() - range.offset;
}

/// A part of a file, or the whole file. Files next to it are found if `folder` is set.
class FileSource final : public Source {
 public:
  FileSource(os::File file, ByteRange part, std::optional<FilePlace> folder)
      : Source(file.name()), file_(std::move(file)), part_(part), folder_(std::move(folder)) {}
  std::uint64_t size() const noexcept override { return part_.size; }
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    return detail::guarded(name(), [&]() -> Status {
      STELE_TRY(check_range(*this, offset, out.size()));
      STELE_TRY_ASSIGN(const std::size_t got, os::read_at(file_, part_.offset + offset, out));
      if (got < out.size()) {
        return truncated(*this, "the file has shrunk since it was opened", offset, out.size(), got);
      }
      return {};
    });
  }
  std::shared_ptr<const Bundle> bundle() const override { return folder_ ? folder_reader(*folder_, false) : nullptr; }
  std::shared_ptr<const Source> mapped() const override;
  const os::File* file() const noexcept override { return part_.offset == 0 ? &file_ : nullptr; }

 private:
  os::File file_;
  ByteRange part_;
  std::optional<FilePlace> folder_;
};

/// Memory that a source borrows, or owns by `keeper`.
template <class Keeper>
class MemorySource final : public Source {
 public:
  MemorySource(std::string name, std::span<const std::byte> bytes, Keeper keeper, bool owned)
      : Source(std::move(name)), bytes_(bytes), keeper_(std::move(keeper)), owned_(owned) {}
  std::uint64_t size() const noexcept override { return bytes_.size(); }
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    return detail::guarded(name(), [&]() -> Status {
      STELE_TRY(check_range(*this, offset, out.size()));
      if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
      return {};
    });
  }
  std::span<const std::byte> view() const noexcept override { return bytes_; }
  std::byte* writable_view(ByteRange range) const noexcept override {
    if (!owned_ || !is_inside(*this, range)) return nullptr;
    return const_cast<std::byte*>(bytes_.data()) + range.offset;
  }

 private:
  std::span<const std::byte> bytes_;
  Keeper keeper_;
  bool owned_;
};

/// A mapped part of a file.
class MappedSource final : public Source {
 public:
  MappedSource(std::string name, os::Mapping mapping, std::optional<FilePlace> folder)
      : Source(std::move(name)), mapping_(std::move(mapping)), folder_(std::move(folder)) {}
  std::uint64_t size() const noexcept override { return view().size(); }
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    return detail::guarded(name(), [&]() -> Status {
      STELE_TRY(check_range(*this, offset, out.size()));
      if (!out.empty()) std::memcpy(out.data(), view().data() + offset, out.size());
      return {};
    });
  }
  std::span<const std::byte> view() const noexcept override { return mapping_.bytes(); }
  std::byte* writable_view(ByteRange range) const noexcept override {
    if (range.size == 0 || !is_inside(*this, range)) return nullptr;
    const detail::Lock lock(mutex_);
    return mapping_.writable(static_cast<std::size_t>(range.offset), static_cast<std::size_t>(range.size));
  }
  std::shared_ptr<const Bundle> bundle() const override { return folder_ ? folder_reader(*folder_, true) : nullptr; }

 private:
  mutable os::Mapping mapping_;
  mutable detail::Mutex mutex_;
  std::optional<FilePlace> folder_;
};

/// Returns a part of a file, mapped.
Result<SourcePtr> map(const os::File& file, ByteRange part, const std::optional<FilePlace>& folder) {
  if (!os::maps_files) return Error(Errc::unsupported);
  if (part.size > std::numeric_limits<std::size_t>::max()) return Error(Errc::out_of_memory);
  os::Mapping mapping;
  if (part.size != 0) {  // an empty range cannot be mapped
    STELE_TRY_ASSIGN(mapping, os::map(file, part.offset, static_cast<std::size_t>(part.size)));
  }
  return SourcePtr(std::make_shared<MappedSource>(file.name(), std::move(mapping), folder));
}

/// Returns a part of a file, mapped if that is wanted and possible.
Result<SourcePtr> source_of(os::File file, ByteRange part, std::optional<FilePlace> folder, bool mapped) {
  if (mapped) {
    if (auto source = map(file, part, folder)) return source;
  }
  return SourcePtr(std::make_shared<FileSource>(std::move(file), part, std::move(folder)));
}

std::shared_ptr<const Source> FileSource::mapped() const {
  auto source = detail::guarded(name(), [&] { return map(file_, part_, folder_); });
  return source ? *source : nullptr;
}

enum class Wanted : std::uint8_t { file, folder, any };

Result<SourcePtr> open_place(const FilePlace& place, Wanted wanted, bool mapped) {
  if (place.root == nullptr && place.path.empty()) return Error(Errc::invalid_argument, "the path is empty");
  STELE_TRY_ASSIGN(os::File file, os::open_for_reading(place.os()));
  STELE_TRY_ASSIGN(const os::Info info, os::status(file));
  if (info.kind == os::Kind::folder) {
    if (wanted == Wanted::file) return Error(Errc::io, "the path names a folder, not a file").file(place.name);
    return detail::folder_source(std::make_shared<os::Folder>(os::Folder{std::move(file), true}), mapped);
  }
  if (wanted == Wanted::folder) return Error(Errc::io, "the path names a file, not a folder").file(place.name);
  if (info.kind != os::Kind::regular) {
    return Error(Errc::io, "the path does not name a regular file")
        .file(place.name)
        .hint("read a FIFO or device as a stream, with stele::spool");
  }
  STELE_TRY(detail::check_no_journal(place));
  return source_of(std::move(file), {0, info.size}, place.folder(), mapped);
}

Result<SourcePtr> open_guarded(const FilePlace& place, Wanted wanted, bool mapped) {
  return detail::guarded(place.name, [&] { return open_place(place, wanted, mapped); });
}

/// Returns the number of bytes left in the stream if the stream knows it without reading.
std::optional<std::uint64_t> remaining(std::streambuf& buffer) {
  const auto none = std::streampos(std::streamoff(-1));
  const std::streampos here = buffer.pubseekoff(0, std::ios_base::cur, std::ios_base::in);
  if (here == none) return std::nullopt;
  const std::streampos end = buffer.pubseekoff(0, std::ios_base::end, std::ios_base::in);
  if (buffer.pubseekpos(here, std::ios_base::in) != here || end == none || end < here) return std::nullopt;
  return static_cast<std::uint64_t>(end - here);
}

// Size of the first piece read from a stream of unknown length; keeps memory small for short messages.
constexpr std::size_t first_piece = std::size_t{64} << 10;
// Maximum size of a piece: bounds the memory that the last one wastes.
constexpr std::size_t largest_piece = std::size_t{64} << 20;

/// Reads to the end, at most `limit` bytes. Reads pieces and joins them at the end: one growing block would need its
/// old and its new memory at the same time, without a bound on unused memory.
Result<Bytes> read_all(std::istream& stream, std::uint64_t limit, const std::string& name) {
  const std::istream::sentry ready(stream, true);
  if (!ready || stream.rdbuf() == nullptr) return Error(Errc::io, "the stream cannot be read").file(name);
  std::streambuf& buffer = *stream.rdbuf();
  const auto too_long = [&]() -> Error {
    return Error(Errc::limit, "the stream is too long").file(name).expected("at most " + bytes_text(limit));
  };

  const std::optional<std::uint64_t> known = remaining(buffer);
  if (known && *known > limit) return too_long();
  std::vector<Bytes> pieces;
  std::uint64_t total = 0;
  // Requesting one byte more than expected or allowed detects the end, or an excess, without another read.
  std::uint64_t wanted = known ? *known + 1 : first_piece;
  for (bool ended = false; !ended;) {
    const std::uint64_t allowed = limit - total;
    if (allowed < std::numeric_limits<std::uint64_t>::max()) wanted = std::min(wanted, allowed + 1);
    if (wanted > std::numeric_limits<std::size_t>::max() / 2) return Error(Errc::out_of_memory).file(name);
    Bytes piece(static_cast<std::size_t>(wanted));
    std::size_t filled = 0;
    while (filled < piece.size() && !ended) {
      const std::streamsize got = buffer.sgetn(reinterpret_cast<char*>(piece.data()) + filled,
                                               static_cast<std::streamsize>(piece.size() - filled));
      ended = got <= 0;
      if (!ended) filled += static_cast<std::size_t>(got);
    }
    if (filled > allowed) return too_long();
    piece.truncate(filled);
    total += filled;
    if (filled != 0) pieces.push_back(std::move(piece));
    wanted = std::clamp<std::uint64_t>(total / 4, first_piece, largest_piece);
  }

  if (pieces.empty()) return Bytes();
  if (pieces.size() == 1) return std::move(pieces.front());
  Bytes all(static_cast<std::size_t>(total));
  std::byte* to = all.data();
  for (Bytes& piece : pieces) {
    std::memcpy(to, piece.data(), piece.size());
    to += piece.size();
    piece = Bytes();
  }
  return all;
}

}  // namespace

Result<SourcePtr> detail::open_file(const FilePlace& place, bool mapped) {
  return open_guarded(place, Wanted::file, mapped);
}
std::string detail::with_extension(const std::string& path, std::string_view extension) {
  const std::size_t name = path.size() - file_name(path).size();
  // A name between double underscores needs no extension: Paddle's __params__.
  if (const std::string_view leaf = std::string_view(path).substr(name);
      leaf.starts_with("__") && leaf.ends_with("__")) {
    return path;
  }
  // A dot at the beginning of the name (".weights") does not begin an extension.
  const std::size_t dot = path.find_last_of('.');
  if (path.size() == name || (dot != std::string::npos && dot > name)) return path;
  const auto found = os::status(path);
  if (found && found->kind != os::Kind::missing) return path;
  return path + std::string(extension);
}

Result<std::string> detail::read_text(const Source& source, std::uint64_t max_bytes, const char* too_large) {
  if (source.size() > max_bytes) {
    return Error(Errc::limit, too_large)
        .file(source.name())
        .expected("at most " + bytes_text(max_bytes))
        .found(std::to_string(source.size()));
  }
  std::string text(static_cast<std::size_t>(source.size()), '\0');
  STELE_TRY(source.read_at(0, std::as_writable_bytes(std::span(text))));
  return text;
}

Status detail::check_no_journal(const FilePlace& place) {
  STELE_TRY_ASSIGN(const std::string file, os::resolve_links(place.os()));
  const std::string journal = file + std::string(journal_ending);
  STELE_TRY_ASSIGN(const bool exists, os::exists({place.root.get(), journal, place.name}));
  if (!exists) return {};
  return Error(Errc::malformed, "a change of the file in place is not complete")
      .file(place.name)
      .found(std::string(file_name(journal)) + " beside it")
      .hint("`stele apply " + place.name +
            " --in-place` completes the change; if the file was replaced since, remove the journal");
}

Result<SourcePtr> detail::open_any(const FilePlace& place, bool mapped) {
  return open_guarded(place, Wanted::any, mapped);
}

Result<SourcePtr> open_file(const std::string& path) {
  return open_guarded(detail::file_place(path), Wanted::file, false);
}
Result<SourcePtr> map_file(const std::string& path) {
  return open_guarded(detail::file_place(path), Wanted::file, true);
}
Result<SourcePtr> open_folder(const std::string& path, bool mapped) {
  return open_guarded(detail::file_place(path), Wanted::folder, mapped);
}

Result<SourcePtr> open_descriptor(NativeFile file, ByteRange part, bool mapped, std::string name) {
  return detail::guarded(name, [&]() -> Result<SourcePtr> {
    STELE_TRY_ASSIGN(os::File own, os::duplicate(file, name));
    STELE_TRY_ASSIGN(const os::Info info, os::status(own));
    if (info.kind != os::Kind::regular) return Error(Errc::io, "the descriptor is not of a regular file").file(name);
    const std::uint64_t available = part.offset <= info.size ? info.size - part.offset : 0;
    if (part.offset <= info.size && part.size == ByteRange::to_end) part.size = available;
    if (part.offset > info.size || part.size > available) {
      return Error(Errc::truncated, "the file ends before the part does")
          .file(name)
          .offset(part.offset)
          .expected(part.size == ByteRange::to_end ? "an offset in the file" : bytes_text(part.size))
          .found(bytes_text(available));
    }
    return source_of(std::move(own), part, {}, mapped);
  });
}

SourcePtr borrow_bytes(std::span<const std::byte> bytes, std::string name) {
  struct Nobody {};
  return std::make_shared<MemorySource<Nobody>>(std::move(name), bytes, Nobody(), false);
}

SourcePtr own_bytes(Bytes bytes, std::string name) {
  const std::span<const std::byte> view = bytes.span();
  return std::make_shared<MemorySource<Bytes>>(std::move(name), view, std::move(bytes), true);
}

SourcePtr own_bytes(std::vector<std::byte> bytes, std::string name) {
  const std::span<const std::byte> view = bytes;
  return std::make_shared<MemorySource<std::vector<std::byte>>>(std::move(name), view, std::move(bytes), true);
}

Result<SourcePtr> spool(std::istream& stream, std::uint64_t limit, std::string name) {
  return detail::guarded(name, [&]() -> Result<SourcePtr> {
    // An exception is one of a stream buffer, or of a stream with exceptions enabled.
    auto bytes = detail::guarded([&] { return read_all(stream, limit, name); });
    if (bytes) return own_bytes(*std::move(bytes), name);
    if (bytes.error().code() != Errc::user_exception) return std::move(bytes).error();
    return Error(Errc::io, bytes.error().message()).file(name);
  });
}

}  // namespace stele::inline v0
