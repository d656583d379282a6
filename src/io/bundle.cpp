#include "stele/bundle.hpp"

#include <algorithm>
#include <map>

#include "base/reserved_names.hpp"
#include "io/files.hpp"
#include "io/lfs_pointer.hpp"

namespace stele::inline v0 {

Bundle::~Bundle() = default;

std::string_view file_name(std::string_view path) noexcept {
  const std::size_t slash = path.find_last_of(detail::os::separators);
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

namespace detail {

FilePlace FilePlace::operator/(std::string_view leaf) const {
  const auto join = [&](const std::string& folder) {
    std::string text = folder;
    if (!text.empty() && !text.ends_with('/')) text += '/';
    return text.append(leaf);
  };
  return {root, join(path), join(name), old};
}

FolderAndName split_path(const std::string& path) {
  const std::size_t slash = path.rfind('/');  // without a slash: npos, and npos + 1 is 0
  return {slash == std::string::npos ? "." : path.substr(0, slash + 1), path.substr(slash + 1)};
}

FilePlace FilePlace::folder() const {
  const std::size_t leaf = file_name(path).size();
  return {root, path.substr(0, path.size() - leaf), name.substr(0, name.size() - std::min(leaf, name.size())), old};
}

namespace {

constexpr std::size_t max_entries = 1'000'000;

class Lister {
 public:
  Status list(const os::Folder& folder, const std::string& before, int level) {
    STELE_TRY_ASSIGN(const auto entries, os::entries(folder, max_entries - count_));
    count_ += entries.size();
    for (const os::Entry& entry : entries) {
      found.empty = false;
      if (is_temporary(entry.name)) continue;
      std::string name = before + entry.name;
      if (entry.kind == os::Kind::regular) {
        found.names.push_back(std::move(name));
      } else if (entry.kind == os::Kind::folder && !entry.link) {
        if (level == os::max_depth) {
          return Error(Errc::limit, "the folders nest too deeply")
              .file(folder.file.name())
              .expected("at most " + std::to_string(os::max_depth) + " levels");
        }
        STELE_TRY_ASSIGN(const os::Folder below, os::open_below(folder, entry.name));
        STELE_TRY_ASSIGN(const bool same, os::same_system(folder.file, below.file));
        if (!same) found.other = name;
        STELE_TRY(list(below, name + '/', level + 1));
      } else {
        found.other = std::move(name);
      }
    }
    return {};
  }
  Listing found;

 private:
  std::size_t count_ = 0;
};

}  // namespace

Result<Listing> list_all(const os::Folder& folder) {
  Lister lister;
  STELE_TRY(lister.list(folder, "", 1));
  std::sort(lister.found.names.begin(), lister.found.names.end());
  return std::move(lister.found);
}

namespace {

bool is_plain(std::string_view part) noexcept {
  constexpr std::string_view not_in_names("\\\0", 2);
  return !part.empty() && part != "." && part != ".." && part.find_first_of(not_in_names) == part.npos;
}

}  // namespace

Status check_name(std::string_view name) {
  std::string_view rest = name;
  for (int parts = 1; parts <= os::max_depth; ++parts) {
    const std::size_t slash = rest.find('/');
    if (!is_plain(rest.substr(0, slash))) break;
    if (slash == rest.npos) return {};
    rest.remove_prefix(slash + 1);
  }
  return Error(Errc::invalid_argument, "the name is not a plain relative path").found(std::string(name));
}

}  // namespace detail

namespace {

namespace os = detail::os;
using detail::check_name;
using detail::FilePlace;
using detail::Names;

/// Returns true if a file of Windows cannot have this name.
bool is_refused(std::string_view part) {
  const auto is_bad = [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || std::string_view("<>:\"|?*\\").find(c) != std::string_view::npos;
  };
  return detail::is_reserved(part) || std::any_of(part.begin(), part.end(), is_bad);
}

Status check_portable(std::string_view name) {
  for (std::string_view rest = name;;) {
    const std::size_t slash = rest.find('/');
    if (is_refused(rest.substr(0, slash))) {
      return Error(Errc::invalid_argument, "the name is reserved on Windows, where a file cannot have it")
          .found(std::string(name));
    }
    if (slash == rest.npos) return {};
    rest.remove_prefix(slash + 1);
  }
}

/// Calls `visit` for each folder in the name.
template <class Visit>
Status each_folder(std::string_view name, Visit&& visit) {
  for (std::size_t slash = name.find('/'); slash != name.npos; slash = name.find('/', slash + 1)) {
    STELE_TRY(visit(name.substr(0, slash)));
  }
  return {};
}

/// Reads the files of a folder. Sources have a const Bundle, so programs that save no files do not contain
/// FolderBundle, and the sinks of files.
class FolderReader : public Bundle {
 public:
  FolderReader(FilePlace place, bool mapped) : place_(std::move(place)), mapped_(mapped) {}

  Result<SourcePtr> open(std::string_view name) const override {
    STELE_TRY(check_existing(name));
    return detail::open_file(place_ / name, mapped_);
  }
  Result<std::shared_ptr<const Bundle>> beneath() const override {
    if (place_.root != nullptr) return std::shared_ptr<const Bundle>();
    return detail::guarded(place_.name, [&]() -> Result<std::shared_ptr<const Bundle>> {
      STELE_TRY_ASSIGN(os::Folder folder, os::open_folder(here()));
      FilePlace root{std::make_shared<const os::Folder>(std::move(folder)), "", place_.name};
      return detail::folder_reader(std::move(root), mapped_);
    });
  }
  Result<std::unique_ptr<Sink>> create(std::string_view /*name*/) override {
    return Error(Errc::unsupported, "the folder is only read").file(place_.name);
  }
  Result<bool> contains(std::string_view name) const override {
    STELE_TRY(check_existing(name));
    auto info = os::status((place_ / name).os());
    if (info) return info->kind != os::Kind::missing;
    if (info.error().code() == Errc::not_found) return false;  // the path leads through a file
    return std::move(info).error();
  }
  Result<std::vector<std::string>> names() const override {
    return detail::guarded(place_.name, [&]() -> Result<std::vector<std::string>> {
      os::Folder own;
      const os::Folder* folder = place_.root.get();
      if (folder == nullptr || !place_.path.empty()) {
        STELE_TRY_ASSIGN(own, os::open_folder(here()));
        folder = &own;
      }
      STELE_TRY_ASSIGN(detail::Listing all, detail::list_all(*folder));
      return std::move(all.names);
    });
  }
  void remove(std::string_view /*name*/) noexcept override {}

 protected:
  static Status check_existing(std::string_view name) {
    STELE_TRY(check_name(name));
    return os::reserves_names ? check_portable(name) : Status();
  }
  os::Path here() const { return {place_.root.get(), place_.path.empty() ? "." : place_.path, place_.name}; }
  const FilePlace& place() const noexcept { return place_; }

 private:
  FilePlace place_;
  bool mapped_;
};

class FolderBundle final : public FolderReader {
 public:
  FolderBundle(FilePlace place, FileSinkOptions options, bool mapped, Names names)
      : FolderReader(std::move(place), mapped), options_(options), names_(names) {}

  Result<std::unique_ptr<Sink>> create(std::string_view name) override {
    STELE_TRY(check_name(name));
    STELE_TRY(check_portable(name));  // on every system, so that the folder can be copied to any
    STELE_TRY(each_folder(name, [&](std::string_view folder) { return make(place() / folder); }));
    return detail::file_sink(place() / name, options_, names_);
  }
  void remove(std::string_view name) noexcept override {
    static_cast<void>(detail::guarded([&]() -> Status {
      STELE_TRY(check_existing(name));
      STELE_TRY_ASSIGN(const auto folder, os::open_folder(here()));
      os::remove(folder, std::string(name));
      return {};
    }));
  }

 private:
  /// Creates a folder if it does not exist. Its name is synced before its contents.
  Status make(const FilePlace& below) const {
    STELE_TRY_ASSIGN(const bool made, os::make_folder(below.os()));
    const bool lasts = options_.durability == Durability::full && names_ == Names::as_data;
    if (!made || (!lasts && below.old == nullptr)) return {};
    const FilePlace above = below.folder();
    STELE_TRY_ASSIGN(const os::Folder folder, os::open_folder(below.os()));
    if (below.old != nullptr) STELE_TRY(os::keep_permissions(*below.old, below.path, folder.file));
    if (!lasts) return {};
    STELE_TRY_ASSIGN(const os::Folder outer,
                     os::open_folder({above.root.get(), above.path.empty() ? "." : above.path, above.name}));
    return os::sync_folder(outer, folder.file);
  }

  FileSinkOptions options_;
  Names names_;
};

/// The files below `prefix_` of a set, which all bundles, sources and sinks of the set share.
class MemoryBundle final : public Bundle {
 public:
  using Files = std::map<std::string, std::shared_ptr<const Bytes>, std::less<>>;
  MemoryBundle(std::shared_ptr<Files> files, std::string prefix)
      : files_(std::move(files)), prefix_(std::move(prefix)) {}

  Result<SourcePtr> open(std::string_view name) const override {
    STELE_TRY(check_name(name));
    std::string full = full_name(name);
    const auto found = files_->find(full);
    if (found != files_->end()) return SourcePtr(std::make_shared<File>(std::move(full), found->second, files_));
    if (is_folder(full)) return Error(Errc::io, "the name belongs to a folder, not a file").file(full);
    return Error(Errc::not_found, "the bundle has no such file").file(full);
  }
  Result<std::unique_ptr<Sink>> create(std::string_view name) override {
    STELE_TRY(check_name(name));
    std::string full = full_name(name);
    STELE_TRY(check_place(full));
    return std::unique_ptr<Sink>(std::make_unique<NewFile>(std::move(full), files_));
  }
  Result<bool> contains(std::string_view name) const override {
    STELE_TRY(check_name(name));
    const std::string full = full_name(name);
    return files_->contains(full) || is_folder(full);
  }
  Result<std::vector<std::string>> names() const override {
    std::vector<std::string> found;
    for (auto at = files_->lower_bound(prefix_); at != files_->end() && at->first.starts_with(prefix_); ++at) {
      found.push_back(at->first.substr(prefix_.size()));
    }
    return found;
  }
  void remove(std::string_view name) noexcept override {
    static_cast<void>(detail::guarded([&]() -> Status {
      files_->erase(full_name(name));
      return {};
    }));
  }

 private:
  static std::shared_ptr<MemoryBundle> beside(const std::string& name, const std::shared_ptr<Files>& files) {
    return std::make_shared<MemoryBundle>(files, name.substr(0, name.size() - file_name(name).size()));
  }
  std::string full_name(std::string_view name) const { return std::string(prefix_).append(name); }
  bool is_folder(const std::string& full) const {
    const auto at = files_->lower_bound(full + '/');
    return at != files_->end() && at->first.starts_with(full + '/');
  }
  /// Checks that `full` can be a file: as in a file system, no name is both a file and a folder.
  Status check_place(const std::string& full) const {
    STELE_TRY(each_folder(full, [&](std::string_view folder) -> Status {
      if (files_->find(folder) == files_->end()) return {};
      return Error(Errc::not_found, "the name belongs to a file, not a folder").file(std::string(folder));
    }));
    if (is_folder(full)) return Error(Errc::invalid_argument, "the path names a folder, not a file").file(full);
    return {};
  }

  class File final : public Source {
   public:
    File(std::string name, std::shared_ptr<const Bytes> bytes, std::shared_ptr<Files> files)
        : Source(std::move(name)), bytes_(std::move(bytes)), files_(std::move(files)), inner_(borrow_bytes(*bytes_)) {}
    std::uint64_t size() const noexcept override { return bytes_->size(); }
    Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
      return inner_->read_at(offset, out);
    }
    std::span<const std::byte> view() const noexcept override { return bytes_->span(); }
    std::shared_ptr<const Bundle> bundle() const override { return beside(name(), files_); }

   private:
    static SourcePtr borrow_bytes(const Bytes& bytes) { return v0::borrow_bytes(bytes.span()); }
    std::shared_ptr<const Bytes> bytes_;
    std::shared_ptr<Files> files_;
    SourcePtr inner_;
  };

  class NewFile final : public Sink {
   public:
    NewFile(std::string name, std::shared_ptr<Files> files) : Sink(std::move(name)), files_(std::move(files)) {}
    using Sink::write;
    Status reserve(std::uint64_t total) override { return buffer_.reserve(total); }
    Status write(std::span<const std::span<const std::byte>> pieces) override { return buffer_.write(pieces); }
    Status commit() override {
      files_->insert_or_assign(name(), std::make_shared<const Bytes>(buffer_.take()));
      return {};
    }
    std::shared_ptr<Bundle> bundle() const override { return beside(name(), files_); }

   private:
    BufferSink buffer_;
    std::shared_ptr<Files> files_;
  };

  std::shared_ptr<Files> files_;
  std::string prefix_;
};

class BundleSource final : public Source {
 public:
  BundleSource(std::string name, std::shared_ptr<const Bundle> bundle, std::shared_ptr<const os::Folder> folder)
      : Source(std::move(name)), bundle_(std::move(bundle)), folder_(std::move(folder)) {}
  std::uint64_t size() const noexcept override { return 0; }
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    if (offset == 0 && out.empty()) return {};
    return Error(Errc::truncated, "the source is a folder, which has no bytes").file(name()).offset(offset);
  }
  std::shared_ptr<const Bundle> bundle() const override { return bundle_; }
  bool is_folder() const noexcept override { return true; }
  const os::File* file() const noexcept override { return folder_ != nullptr ? &folder_->file : nullptr; }

 private:
  std::shared_ptr<const Bundle> bundle_;
  std::shared_ptr<const os::Folder> folder_;
};

/// A file that is closed between reads.
class Reopened final : public Source {
 public:
  Reopened(const Source& open, const os::Info& info, std::shared_ptr<const Bundle> bundle, std::string entry)
      : Source(open.name()), size_(open.size()), id_(info.id), bundle_(std::move(bundle)), entry_(std::move(entry)) {}
  std::uint64_t size() const noexcept override { return size_; }
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    return detail::guarded(name(), [&]() -> Status {
      STELE_TRY_ASSIGN(const SourcePtr open, bundle_->open(entry_));
      STELE_TRY_ASSIGN(const os::Info info, os::status(*open->file()));
      if (open->size() == size_ && info.id == id_) return open->read_at(offset, out);
      return Error(Errc::io, "the file was changed since it was opened").file(name());
    });
  }

 private:
  std::uint64_t size_;
  decltype(os::Info::id) id_;  // detects a different file with the same name, whose bytes must not be mixed in
  std::shared_ptr<const Bundle> bundle_;
  std::string entry_;
};

class BundleSink final : public Sink {
 public:
  BundleSink(std::string name, std::shared_ptr<Bundle> bundle) : Sink(std::move(name)), bundle_(std::move(bundle)) {}
  using Sink::write;
  Status write(std::span<const std::span<const std::byte>> pieces) override {
    return detail::refuse_bytes(pieces, name());
  }
  std::shared_ptr<Bundle> bundle() const override { return bundle_; }
  bool is_folder() const noexcept override { return true; }

 private:
  std::shared_ptr<Bundle> bundle_;
};

}  // namespace

Result<SourcePtr> detail::open_of_set(const std::shared_ptr<const Bundle>& bundle, const std::string& name,
                                      std::size_t number) {
  constexpr std::size_t kept_open = 64;
  STELE_TRY_ASSIGN(SourcePtr source, bundle->open(name));
  char head[lfs_pointer_begin.size()];
  if (source->size() >= sizeof head && source->size() <= max_lfs_pointer) {
    STELE_TRY(source->read_at(0, std::as_writable_bytes(std::span(head))));
    if (std::string_view(head, sizeof head) == lfs_pointer_begin) {
      return Error(Errc::unsupported, "the file is not there").file(source->name()).found(lfs_pointer_text);
    }
  }
  if (number < kept_open || source->file() == nullptr || !source->view().empty()) return source;
  STELE_TRY_ASSIGN(const os::Info info, os::status(*source->file()));
  return SourcePtr(std::make_shared<Reopened>(*source, info, bundle, name));
}

Status detail::refuse_bytes(std::span<const std::span<const std::byte>> pieces, const std::string& name) {
  if (std::all_of(pieces.begin(), pieces.end(), [](const auto& piece) { return piece.empty(); })) return {};
  return Error(Errc::unsupported, "the sink is a folder, which stores files and no bytes").file(name);
}

std::shared_ptr<Bundle> detail::folder_bundle(FilePlace place, FileSinkOptions options, bool mapped, Names names) {
  return std::make_shared<FolderBundle>(std::move(place), options, mapped, names);
}

std::shared_ptr<const Bundle> detail::folder_reader(FilePlace place, bool mapped) {
  return std::make_shared<FolderReader>(std::move(place), mapped);
}

std::shared_ptr<Bundle> folder_bundle(std::string path, FileSinkOptions options, bool mapped) {
  return detail::folder_bundle(detail::file_place(std::move(path)), options, mapped);
}

std::shared_ptr<Bundle> memory_bundle() {
  return std::make_shared<MemoryBundle>(std::make_shared<MemoryBundle::Files>(), "");
}

SourcePtr bundle_source(std::shared_ptr<const Bundle> bundle, std::string name) {
  return std::make_shared<BundleSource>(std::move(name), std::move(bundle), nullptr);
}

SourcePtr detail::folder_source(const std::shared_ptr<const os::Folder>& folder, bool mapped) {
  const std::string& name = folder->file.name();
  auto bundle = folder_reader({folder, "", name}, mapped);
  return std::make_shared<BundleSource>(name, std::move(bundle), folder);
}

Result<bool> detail::replaced(const Source& folder) {
  if (!folder.is_folder() || folder.file() == nullptr) return false;
  STELE_TRY_ASSIGN(const bool same, os::leads_to(folder.name(), *folder.file()));
  return !same;
}

std::unique_ptr<Sink> bundle_sink(std::shared_ptr<Bundle> bundle, std::string name) {
  return std::make_unique<BundleSink>(std::move(name), std::move(bundle));
}

}  // namespace stele::inline v0
