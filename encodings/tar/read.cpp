// Opens the archive as a Bundle of its files.
#include <algorithm>
#include <utility>

#include "base/limits.hpp"
#include "blocks.hpp"
#include "encodings/gzip/entry.hpp"
#include "encodings/gzip/gzip.hpp"
#include "headers.hpp"
#include "io/os/os.hpp"
#include "stele/bytes.hpp"
#include "tar.hpp"

namespace stele::inline v0::detail::tar {
namespace {

constexpr std::uint64_t mebi = std::uint64_t{1} << 20;
// The data of an extended header twice, and the read buffer; the states that gzip::Gzip keeps.
constexpr std::uint64_t plain_memory = 3 * mebi;
constexpr std::uint64_t gzip_memory = 13 * mebi;

class PlainInput final : public Input {
 public:
  explicit PlainInput(const Source& source) : source_(source) {}
  Result<std::size_t> next(std::span<std::byte> out) override {
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), source_.size() - at_));
    STELE_TRY(source_.read_at(at_, out.first(n)));
    at_ += n;
    return n;
  }
  Result<std::uint64_t> skip(std::uint64_t count) override {
    const std::uint64_t n = std::min(count, source_.size() - at_);
    at_ += n;
    return n;
  }

 private:
  const Source& source_;
  std::uint64_t at_ = 0;
};

class GzipInput final : public Input {
 public:
  explicit GzipInput(gzip::Gzip& gzip) : gzip_(gzip), skipped_(piece_size) {}
  Result<std::size_t> next(std::span<std::byte> out) override { return gzip_.next(out); }
  Result<std::uint64_t> skip(std::uint64_t count) override {
    std::uint64_t done = 0;
    while (done != count) {
      const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(count - done, skipped_.size()));
      STELE_TRY_ASSIGN(const std::size_t got, gzip_.next(skipped_.span().first(n)));
      done += got;
      if (got != n) break;
    }
    return done;
  }

 private:
  gzip::Gzip& gzip_;
  Bytes skipped_;
};

// ---- the files

struct Files {
  std::string archive;
  SourcePtr bytes;  // the bytes of the tar archive, inflated if it is compressed
  std::vector<Entry> entries;
};
using FilesPtr = std::shared_ptr<const Files>;

/// The files whose names begin with `prefix_`.
class Archive final : public Bundle {
 public:
  Archive(FilesPtr files, std::string prefix) : files_(std::move(files)), prefix_(std::move(prefix)) {}

  Result<SourcePtr> open(std::string_view name) const override;
  Result<std::unique_ptr<Sink>> create(std::string_view name) override {
    return Error(Errc::unsupported, "the tar archive is open for reading and cannot be written")
        .file(files_->archive)
        .path(std::string(name));
  }
  Result<bool> contains(std::string_view name) const override {
    return guarded(files_->archive, [&]() -> Result<bool> {
      STELE_TRY(check_name(name));
      const std::string full = prefix_ + std::string(name);
      return find(full) != nullptr || is_folder(full);
    });
  }
  Result<std::vector<std::string>> names() const override {
    return guarded(files_->archive, [&]() -> Result<std::vector<std::string>> {
      std::vector<std::string> names;
      for (auto at = from(prefix_); at != files_->entries.end() && at->name.starts_with(prefix_); ++at) {
        names.push_back(at->name.substr(prefix_.size()));
      }
      return names;
    });
  }
  void remove(std::string_view) noexcept override {}

 private:
  std::vector<Entry>::const_iterator from(std::string_view name) const {
    return std::lower_bound(files_->entries.begin(), files_->entries.end(), name,
                            [](const Entry& entry, std::string_view n) { return entry.name < n; });
  }
  const Entry* find(std::string_view full) const {
    const auto at = from(full);
    return at != files_->entries.end() && at->name == full ? &*at : nullptr;
  }
  bool is_folder(const std::string& full) const {
    const auto at = from(full + '/');
    return at != files_->entries.end() && at->name.starts_with(full + '/');
  }
  static Status check_name(std::string_view name) {
    const char* const why = bad_name(name);
    return why == nullptr ? Status() : Error(Errc::invalid_argument, why).found(std::string(name));
  }

  FilesPtr files_;
  std::string prefix_;
};

/// A file of the archive: a part of the archive's bytes.
class File final : public gzip::StoredSource {
 public:
  /// `bytes`: the archive, or a mapping of it.
  File(FilesPtr files, SourcePtr bytes, const Entry& entry)
      : StoredSource(std::move(bytes), files->archive + '/' + entry.name, {entry.offset, entry.size, entry.size, 0}),
        files_(std::move(files)),
        entry_(entry) {}

  std::shared_ptr<const Bundle> bundle() const override {
    return std::make_shared<Archive>(files_, entry_.name.substr(0, entry_.name.size() - file_name(entry_.name).size()));
  }
  std::shared_ptr<const Source> mapped() const override {
    auto all = source_->mapped();
    return all != nullptr ? std::make_shared<File>(files_, std::move(all), entry_) : nullptr;
  }

 private:
  FilesPtr files_;
  const Entry& entry_;  // points into files_
};

Result<SourcePtr> Archive::open(std::string_view name) const {
  return guarded(files_->archive, [&]() -> Result<SourcePtr> {
    STELE_TRY(check_name(name));
    const std::string full = prefix_ + std::string(name);
    if (const Entry* const entry = find(full)) {
      return SourcePtr(std::make_shared<File>(files_, files_->bytes, *entry));
    }
    const std::string path = files_->archive + '/' + full;
    if (is_folder(full)) return Error(Errc::io, "the path is a folder, not a file").file(path);
    return Error(Errc::not_found, "the archive does not contain the file").file(path);
  });
}

Result<std::shared_ptr<const Bundle>> archive(std::string name, SourcePtr bytes, std::vector<Entry> entries) {
  Files files{std::move(name), std::move(bytes), std::move(entries)};
  return std::shared_ptr<const Bundle>(std::make_shared<Archive>(std::make_shared<Files>(std::move(files)), ""));
}

}  // namespace

const char* bad_name(std::string_view name) noexcept {
  constexpr std::string_view forbidden("\\\0", 2);
  if (name.empty()) return "the name is empty";
  if (name.find_first_of(forbidden) != name.npos) return "the name contains a backslash or a NUL";
  if (name.starts_with('/')) return "the name is an absolute path";
  std::string_view rest = name;
  for (int parts = 1; parts <= os::max_depth; ++parts) {
    const std::size_t slash = rest.find('/');
    const std::string_view part = rest.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return "the name has a segment that is empty, . or ..";
    if (slash == rest.npos) return nullptr;
    rest.remove_prefix(slash + 1);
  }
  return "the name has more than 64 segments";
}

Result<std::shared_ptr<const Bundle>> open(SourcePtr source, const Limits& limits) {
  return guarded(source->name(), [&]() -> Result<std::shared_ptr<const Bundle>> {
    std::byte head[3]{};
    STELE_TRY(source->read_at(
        0, std::span(head).first(static_cast<std::size_t>(std::min<std::uint64_t>(source->size(), sizeof head)))));
    if (!gzip::is_gzip(head)) {
      PlainInput input(*source);
      IndexBudget budget(limits, source->size());
      budget.take(plain_memory);
      STELE_TRY_ASSIGN(auto entries, read_headers(*source, input, budget));
      return archive(source->name(), source, std::move(entries));
    }
    gzip::Gzip inflated(source);
    GzipInput input(inflated);
    IndexBudget budget(limits, source->size(), index_rate::compressed);
    budget.admit_compressed();
    budget.take(gzip_memory);
    STELE_TRY_ASSIGN(auto entries, read_headers(*source, input, budget));
    return archive(source->name(), inflated.source(), std::move(entries));
  });
}

bool looks_like_tar(std::span<const std::byte> head) noexcept {
  return head.size() >= magic_field.at + 6 && text(head.subspan(magic_field.at)).starts_with("ustar");
}

}  // namespace stele::inline v0::detail::tar
