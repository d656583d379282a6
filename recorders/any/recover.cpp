#include "stele/recover.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "base/limits.hpp"
#include "encodings/zip/rebuild.hpp"
#include "io/files.hpp"
#include "snapshot/data.hpp"
#include "snapshot/properties.hpp"
#include "snapshot/shard_set.hpp"
#include "snapshot/unreadable.hpp"
#include "stele/recorders/any.hpp"

namespace stele::inline v0 {
namespace {

/// A file with another size: reads beyond its bytes fail.
class Resized final : public Source {
 public:
  Resized(SourcePtr file, std::uint64_t size) : Source(file->name()), file_(std::move(file)), size_(size) {}
  std::uint64_t size() const noexcept override { return size_; }
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    if (offset > size_ || out.size() > size_ - offset) {
      return Error(Errc::truncated, "the file ends early").file(name()).offset(offset);
    }
    return file_->read_at(offset, out);
  }
  std::shared_ptr<const Bundle> bundle() const override { return file_->bundle(); }

 private:
  SourcePtr file_;
  std::uint64_t size_;
};

std::uint64_t leading_number(std::string_view text) {
  std::uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

Result<Snapshot> open_resized(const Format& format, const SourcePtr& source, std::uint64_t size,
                              const LoadOptions& options) {
  return detail::open({&format}, SourcePtr(std::make_shared<Resized>(source, size)), options);
}

/// Opens a file that ends early, if its index is at its beginning. With far more bytes than any file has, the formats
/// that check the size report the one that the index declares.
Result<Snapshot> open_truncated(const Format& format, const SourcePtr& source, LoadOptions options, Error error) {
  constexpr std::uint64_t far = std::uint64_t{1} << 62;
  if (options.limits.index_bytes == 0) {  // not bounded by the declared size
    options.limits.index_bytes = detail::add_scaled(detail::index_base, source->size(), detail::index_rate::file);
  }
  auto opened = open_resized(format, source, far, options);
  if (opened) return opened;
  if (format.name() == "stele") {
    return std::move(error).hint("the file has lost its index, without which no tensor can be found");
  }
  const std::uint64_t declared = leading_number(opened.error().expected());
  if (declared <= source->size() || declared >= far) return error;
  return open_resized(format, source, declared, options);
}

/// Opens a file that other bytes follow, whose size is in the format's error.
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

/// Returns the snapshot whose leaves do not compare the bytes after them with zeros.
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
      std::string cut;
      STELE_TRY_ASSIGN(const SourcePtr rebuilt, detail::zip::with_new_directory(source, cut));
      opened = detail::open({&format}, rebuilt, options);
      if (!opened) return error;
      made.notes.emplace_back("the directory of the zip file is damaged: its entries were found by their headers");
      if (!cut.empty()) made.notes.push_back("the file ends inside the entry " + cut);
    } else if (text[0] == '{' && may_be_index) {
      auto set = recover_shards(source, options, made.notes);
      if (!set) return error;
      made.snapshot = *std::move(set);
      return made;
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
