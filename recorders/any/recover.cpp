// Recovers damaged and incomplete files.
#include "stele/recover.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "base/hash.hpp"
#include "base/limits.hpp"
#include "base/of_machine.hpp"
#include "io/continued.hpp"
#include "io/files.hpp"
#include "snapshot/data.hpp"
#include "snapshot/properties.hpp"
#include "snapshot/shard_set.hpp"
#include "snapshot/unreadable.hpp"
#include "stele/recorders/any.hpp"
#include "stele/recorders/stele_reader.hpp"

#ifdef STELE_ZIP
#include "encodings/zip/rebuild.hpp"
#endif

namespace stele::inline v0 {
namespace {

std::uint64_t leading_number(std::string_view text) {
  std::uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

Result<Snapshot> open_resized(const Format& format, const SourcePtr& source, std::uint64_t size,
                              const LoadOptions& options) {
  return detail::open({&format}, SourcePtr(std::make_shared<detail::Continued>(source, size)), options);
}

/// Returns the size of a `.stele` file's index with this header, or nullopt if the header is invalid.
std::optional<std::uint64_t> index_size(std::span<const std::byte> head) {
  const auto small = [&](std::size_t at) -> std::uint64_t { return format::load_le<std::uint32_t>(head.data() + at); };
  const auto large = [&](std::size_t at) { return format::load_le<std::uint64_t>(head.data() + at); };
  const std::uint64_t nodes = small(0), entries = small(4), flags = small(44);
  if (nodes == 0 || flags > (format::flat_names | format::guessed_kinds | format::stored_blocks)) return std::nullopt;
  std::uint64_t size = format::index_header_size + nodes * format::node_size + small(40) * format::type_size +
                       entries * format::entry_size;
  if ((flags & format::stored_blocks) != 0) size += entries * format::stored_size;
  for (const std::uint64_t section :
       {detail::add_scaled(0, large(8), sizeof(Extent)), large(16), large(24), large(32)}) {
    const auto padded = format::round_up(section, 8);
    const auto sum = padded ? checked_add(size, *padded) : std::nullopt;
    if (!sum) return std::nullopt;
    size = *sum;
  }
  return size;
}

/// Returns the trailer of a `.stele` file whose index is at `begin` and has `size` bytes.
Result<std::string> trailer_of(const Source& source, std::uint64_t begin, std::uint64_t size) {
  Bytes all(static_cast<std::size_t>(size + format::trailer_size));
  std::byte* const trailer = all.data() + size;
  STELE_TRY(source.read_at(begin, all.span().first(static_cast<std::size_t>(size))));
  std::fill(trailer, trailer + format::trailer_size, std::byte{0});
  format::store_le(trailer, begin);
  format::store_le(trailer + 8, size);
  format::store_le(trailer + 16, begin + size + format::trailer_size);
  format::store_le(trailer + 48, detail::hash64(all.data(), static_cast<std::size_t>(size + 48)));
  std::reverse_copy(std::begin(format::magic), std::end(format::magic), reinterpret_cast<unsigned char*>(trailer + 56));
  return std::string(reinterpret_cast<const char*>(trailer), format::trailer_size);
}

/// Opens a `.stele` file whose trailer is lost or damaged, in whole or in part. Searches for an index header whose
/// sizes make the index end where the trailer would begin, and accepts the index if the file then opens.
Result<Snapshot> open_without_trailer(const Format& format, const SourcePtr& source, const LoadOptions& options,
                                      std::vector<std::string>& notes) {
  constexpr std::uint64_t window = std::uint64_t{1} << 20, step = format::block_alignment;
  unsigned tries = 8;  // bounds the time for a file with many such headers
  const Error none(Errc::truncated, "the file has no whole index");
  std::uint64_t end = source->size();
  Bytes bytes(static_cast<std::size_t>(window));
  format::Header header;
  if (end < format::header_size) return none;
  STELE_TRY(source->read_at(0, bytes.span().first(format::header_size)));
  if (format::parse_header(bytes.span().first(format::header_size), detail::hash64, header)) return none;
  if (header.total != 0) {
    end = std::min(end, header.total);  // other bytes may follow the file's
    if (header.total - end > format::trailer_size) return none;
  }
  for (std::uint64_t at = end / window * window;; at -= window) {
    const auto count = static_cast<std::size_t>(std::min(window, end - at));
    STELE_TRY(source->read_at(at, bytes.span().first(count)));
    for (std::uint64_t place = count / step * step; place != 0;) {
      place -= step;
      const auto size = index_size(bytes.span().subspan(static_cast<std::size_t>(place), step));
      const std::uint64_t left = end - at - place;
      if (!size || *size > left || left - *size > format::trailer_size || tries == 0) continue;
      --tries;
      STELE_TRY_ASSIGN(std::string trailer, trailer_of(*source, at + place, *size));
      const auto whole = std::make_shared<detail::Continued>(source, at + place + *size, std::move(trailer));
      auto opened = detail::open({&format}, SourcePtr(whole), options);
      if (!opened) continue;
      if (whole->size() > end) {
        notes.emplace_back("the file ends early");
        notes.emplace_back("the trailer is lost, and with it the checksum of names, shapes and values");
      } else {
        notes.emplace_back("the index or its trailer is damaged: names, shapes and values are not checked");
      }
      return opened;
    }
    if (at == 0) break;
  }
  return none;
}

/// Opens a file that ends early, if its index is at the beginning. Opens it with a declared size far above any real
/// file's: formats that check the size then report the size that the index declares.
Result<Snapshot> open_truncated(const Format& format, const SourcePtr& source, LoadOptions options, Error error) {
  constexpr std::uint64_t far = std::uint64_t{1} << 62;
  if (options.limits.index_bytes == 0) {  // the default bound must not depend on that size
    options.limits.index_bytes = detail::add_scaled(detail::index_base, source->size(), detail::index_rate::file);
  }
  auto opened = open_resized(format, source, far, options);
  if (opened) return opened;
  const std::uint64_t declared = leading_number(opened.error().expected());
  if (declared <= source->size() || declared >= far) return error;
  return open_resized(format, source, declared, options);
}

/// Opens a file that is followed by other bytes. The format's error contains the file's real size.
Result<Snapshot> open_followed(const Format& format, const SourcePtr& source, const LoadOptions& options, Error error,
                               std::vector<std::string>& notes) {
  const std::uint64_t expected = leading_number(error.expected()), offset = error.offset().value_or(0);
  for (const std::uint64_t size : {expected, offset, detail::add_scaled(offset, expected, 1)}) {
    if (size == 0 || size >= source->size()) continue;
    auto opened = open_resized(format, source, size, options);
    if (!opened) continue;
    notes.push_back("ignored " + std::to_string(source->size() - size) + " bytes that follow byte " +
                    std::to_string(size));
    return opened;
  }
  return error;
}

/// Returns a snapshot whose leaves do not check that the bytes after them are zeros.
Snapshot without_padding(const Snapshot& snapshot) {
  static constexpr LeafOps ops{.locate = [](const void* at, std::uint64_t number) -> SourceRange {
    SourceRange range =
        *LeafView(*static_cast<const detail::SnapshotData*>(at), static_cast<std::uint32_t>(number)).location();
    range.zeros = 0;
    return range;
  }};
  std::unique_ptr<detail::SnapshotData> data;
  for (std::uint32_t i = 0; i < snapshot.leaf_count(); ++i) {
    const auto place = snapshot.leaf(i).location();
    if (!place || place->zeros == 0) continue;
    if (data == nullptr) data = detail::derived_data(snapshot);
    data->leaves[i].provider = {&ops, snapshot.data().get(), i};
  }
  return data == nullptr ? snapshot : Snapshot(std::shared_ptr<const detail::SnapshotData>(std::move(data)));
}

Result<Recovered> recover_file(const SourcePtr& source, const LoadOptions& options, bool may_be_index);
/// Returns the source of a zip file with a directory made from the headers of its entries.
Result<SourcePtr> with_new_directory(const SourcePtr& source) {
#ifdef STELE_ZIP
  return detail::zip::with_new_directory(source);
#else
  return Error(Errc::unsupported, "this build has no format of zip files").file(source->name());
#endif
}

/// Adds a note for each entry that a new directory lacks.
void note_omitted([[maybe_unused]] const Source& rebuilt, [[maybe_unused]] std::vector<std::string>& notes) {
#ifdef STELE_ZIP
  constexpr std::size_t max_notes = 100;
  const auto* const omitted = detail::zip::omitted_entries(rebuilt);
  for (std::size_t i = 0; omitted != nullptr && i < omitted->size(); ++i) {
    if (i == max_notes) {
      notes.push_back(std::to_string(omitted->size() - i) + " more entries are lost");
      return;
    }
    const auto& [name, reason, cut] = (*omitted)[i];
    notes.push_back(cut ? "the file ends inside the entry " + name
                        : std::string("the entry ").append(name).append(" is lost: ").append(reason));
  }
#endif
}

Result<Recovered> recover_as(const Format& format, const SourcePtr& source, const LoadOptions& options,
                             bool may_be_index);

/// Joins the shards that an index names and that can be opened.
Result<Snapshot> recover_shards(const SourcePtr& index, const LoadOptions& options, std::vector<std::string>& notes) {
  const auto open = [&](const SourcePtr& source) -> Result<Snapshot> {
    STELE_TRY_ASSIGN(Recovered shard, recover_file(source, options, false));
    for (const std::string& note : shard.notes) {
      notes.push_back(std::string(file_name(source->name())).append(": ").append(note));
    }
    return std::move(shard.snapshot);
  };
  STELE_TRY_ASSIGN(const Snapshot set, detail::recover_shard_set(index, options.limits, open, notes));
  return detail::properties_from_metadata(set, options.limits, index->size());
}

Result<Recovered> recover_file(const SourcePtr& source, const LoadOptions& options, bool may_be_index) {
  const auto found = format_of_content(*source);
  if (!found && detail::is_of_machine(found.error())) return found.error();
  const auto format = found ? found : format_of_path(source->name());
  if (!format) return found.error();
  return recover_as(**format, source, options, may_be_index);
}

Result<Recovered> recover_as(const Format& format, const SourcePtr& source, const LoadOptions& options,
                             bool may_be_index) {
  Recovered made;
  made.format = format.name();
  auto opened = detail::open({&format}, source, options);
  if (!opened && !source->is_folder()) {
    Error error = std::move(opened).error();
    std::byte head[4]{};
    if (source->size() >= sizeof head) STELE_TRY(source->read_at(0, head));
    const std::string_view text(reinterpret_cast<const char*>(head), sizeof head);
    if (text == "PK\3\4") {
      const auto rebuilt = with_new_directory(source);
      if (!rebuilt) return error;
      opened = detail::open({&format}, *rebuilt, options);
      if (!opened) return error;
      made.notes.emplace_back("the file's directory is refused: its entries were found by their headers");
      note_omitted(**rebuilt, made.notes);
    } else if (text[0] == '{' && may_be_index) {
      auto set = recover_shards(source, options, made.notes);
      if (!set) return error;
      made.snapshot = *std::move(set);
      return made;
    } else if (format.name() == "stele") {
      opened = open_without_trailer(format, source, options, made.notes);
      if (!opened && error.code() == Errc::truncated) {
        return std::move(error).hint("the index, which locates the tensors, is missing or incomplete");
      }
      if (!opened) return error;
    } else if (error.code() == Errc::truncated) {
      made.notes.emplace_back("the file ends early");
      opened = open_truncated(format, source, options, std::move(error));
    } else {
      opened = open_followed(format, source, options, std::move(error), made.notes);
    }
  }
  if (!opened) return std::move(opened).error();
  made.snapshot = without_padding(*opened);
  return made;
}

}  // namespace

std::string_view unreadable_reason(const LeafView& leaf) noexcept { return detail::unreadable(leaf); }

Result<Recovered> recover(const Input& from, const LoadOptions& options) {
  return detail::guarded(from.name(), [&]() -> Result<Recovered> {
    STELE_TRY_ASSIGN(const SourcePtr source, from.open("", options));
    return recover_file(source, options, true);
  });
}

Result<Recovered> recover(const Format& format, const Input& from, const LoadOptions& options) {
  return detail::guarded(from.name(), [&]() -> Result<Recovered> {
    STELE_TRY_ASSIGN(const SourcePtr source, from.open(format.extension(), options));
    return recover_as(format, source, options, true);
  });
}

}  // namespace stele::inline v0
