#include "stele/recover.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/limits.hpp"
#include "encodings/zip/rebuild.hpp"
#include "io/files.hpp"
#include "json/json.hpp"
#include "snapshot/adopt.hpp"
#include "snapshot/data.hpp"
#include "snapshot/unreadable.hpp"
#include "stele/bundle.hpp"
#include "stele/recorders/any.hpp"

namespace stele::inline v0 {
namespace {

/// Maximum size of an index of shards (100 MB), as for headers of safetensors.
constexpr std::uint64_t max_index = 100'000'000;

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
class IndexRecovery {
 public:
  IndexRecovery(SourcePtr index, const LoadOptions& options, Recovered& to)
      : index_(std::move(index)), options_(options), to_(to) {}

  Status run() {
    STELE_TRY(parse());
    builder_.set_flat();
    std::size_t number = 0;
    for (auto& [file, names] : files_) {
      if (auto added = add(file, number++); !added) {
        to_.notes.push_back(file + ": " + std::string(added.error().message()));
      }
      for (const std::string& name : names) {
        if (found_.contains(name)) continue;
        detail::add_unreadable(builder_, builder_.intern(name), "the tensor is not in its file " + file);
      }
    }
    builder_.set_capacity(held_);
    to_.snapshot = builder_.finish();
    return {};
  }

 private:
  Status parse() {
    if (index_->size() > max_index) return Error(Errc::limit, "the index is too large").file(index_->name());
    std::string text(static_cast<std::size_t>(index_->size()), '\0');
    STELE_TRY(index_->read_at(0, std::as_writable_bytes(std::span(text))));
    detail::json::Reader in(text);
    std::string key_scratch, scratch;
    std::string_view key, file;
    in.begin_object();
    while (in.next_key(key, scratch)) {
      if (key != "weight_map") {
        if (key == "metadata") to_.notes.emplace_back("the metadata of the index is not recovered");
        in.skip_value();
        continue;
      }
      in.begin_object();
      while (in.next_key(key, key_scratch) && in.read_string(file, scratch)) {
        files_[std::string(file)].emplace_back(key);
      }
    }
    if (!in.finish()) return in.error().file(index_->name());
    if (files_.empty()) return Error(Errc::malformed, "the file is no index of shards").file(index_->name());
    return {};
  }

  Status add(const std::string& file, std::size_t number) {
    const auto bundle = index_->bundle();
    if (bundle == nullptr) return Error(Errc::unsupported, "the source of the index cannot open other files");
    if (file.find('/') != std::string::npos) return Error(Errc::malformed, "not a plain file name");
    STELE_TRY_ASSIGN(const SourcePtr source, detail::open_of_set(bundle, file, number));
    STELE_TRY_ASSIGN(const Recovered shard, recover_file(source, options_, false));
    for (const std::string& note : shard.notes) to_.notes.push_back(std::string(file).append(": ").append(note));
    for (std::size_t i = 0; i < shard.snapshot.leaf_count(); ++i) {
      const LeafView leaf = shard.snapshot.leaf(i);
      const std::string_view name = builder_.intern(leaf.path());
      if (!found_.insert(name).second) continue;
      detail::add_leaf(builder_, name, leaf);
    }
    held_ = checked_add(held_, detail::held_bytes(*shard.snapshot.data())).value_or(UINT64_MAX);
    builder_.keep(shard.snapshot.data());
    return {};
  }

  SourcePtr index_;
  const LoadOptions& options_;
  Recovered& to_;
  SnapshotBuilder builder_;
  std::map<std::string, std::vector<std::string>> files_;
  std::set<std::string_view> found_;
  std::uint64_t held_ = 0;  // bytes of the shards for tensors
};

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
      if (!IndexRecovery(source, options, made).run()) return error;
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
