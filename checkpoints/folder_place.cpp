// Steps as folders of a folder. A step is renamed into place when it is complete.
#include <algorithm>
#include <utility>

#include "io/urls.hpp"
#include "place.hpp"

namespace stele::inline v0::detail::steps {
namespace {

class FolderShare final : public Share {
 public:
  FolderShare(std::string folder, FileSinkOptions options)
      : folder_(std::move(folder)), files_(v0::folder_bundle(folder_, options)) {}
  Bundle& files() override { return *files_; }
  std::string folder() const override { return folder_; }

 private:
  std::string folder_;
  std::shared_ptr<Bundle> files_;
};

class FolderPlace final : public Place {
 public:
  explicit FolderPlace(std::string folder) : folder_(std::move(folder)) {}

  Status start(bool only_look) override {
    if (!only_look) STELE_TRY(os::make_folder(folder_));
    STELE_TRY_ASSIGN(const os::Folder folder, root());
    if (!only_look) remove_leftover_folders(folder);
    return {};
  }
  Result<bool> replaced() override {
    STELE_TRY_ASSIGN(const os::Folder folder, root());
    STELE_TRY_ASSIGN(const os::Info info, os::status(folder.file));
    return std::exchange(id_, info.id) != info.id;
  }
  Result<std::vector<std::int64_t>> numbers() const override {
    STELE_TRY_ASSIGN(const os::Folder folder, root());
    std::vector<std::int64_t> found;
    STELE_TRY_ASSIGN(const auto entries, os::entries(folder, static_cast<std::size_t>(-1)));
    for (const os::Entry& entry : entries) {
      const auto step = step_of(entry.name);
      if (step && entry.kind == os::Kind::folder && !entry.link) found.push_back(*step);
    }
    std::sort(found.begin(), found.end());
    return found;
  }
  Result<Manifest> manifest(std::int64_t step, Check check) const override {
    STELE_TRY_ASSIGN(const FilePlace folder, open_folder(path(step)));
    STELE_TRY_ASSIGN(Manifest found, read_manifest(folder, step));
    STELE_TRY(this->check(found, check));
    return found;
  }
  Status check(const Manifest& manifest, Check check) const override {
    return check_files(manifest.folder, manifest, check != Check::sizes);
  }
  Status adopt(Manifest& manifest) const override {
    STELE_TRY_ASSIGN(manifest.folder, open_folder(path(manifest.info.step)));
    manifest.info.folder = manifest.folder.name;
    return {};
  }
  Result<SourcePtr> part(const Manifest& manifest, const std::string& name, bool mapped) const override {
    return open_any(manifest.folder / name, mapped);  // relative to the verified folder
  }
  Status check_space(std::uint64_t bytes, std::uint64_t spare) const override {
    STELE_TRY_ASSIGN(const os::Folder folder, root());
    STELE_TRY_ASSIGN(const std::uint64_t free, os::free_bytes(folder));
    if (free >= bytes && free - bytes >= spare) return {};
    return Error(Errc::no_space, "the file system has too little free space for the step")
        .file(folder_)
        .expected(std::to_string(bytes) + " bytes, and " + std::to_string(spare) + " to spare")
        .found(std::to_string(free));
  }
  Result<std::unique_ptr<Sink>> create(std::int64_t step, Durability durability) override {
    STELE_TRY(put_aside_broken(step));
    return folder_sink(path(step), {durability}, check_nothing_else);
  }
  Status list(Sink& sink, Manifest& manifest) const override {
    STELE_TRY_ASSIGN(manifest.files, list_files(*sink.bundle()));
    return {};
  }
  Status commit(Sink& sink, const Manifest& manifest) override {
    STELE_TRY_ASSIGN(const std::string text, to_text(manifest));
    STELE_TRY_ASSIGN(const auto last, sink.bundle()->create(manifest_name));
    STELE_TRY(last->write(std::as_bytes(std::span(text))));
    STELE_TRY(last->commit());
    return sink.commit();
  }
  std::string share(Sink& sink, Manifest&) const override { return temporary_path(sink); }
  std::unique_ptr<Share> join(std::int64_t, const std::string& shared, Durability durability) const override {
    return folder_share(shared, {durability});
  }
  Status check_removable(std::int64_t step) const override {
    return check_nothing_else(*v0::folder_bundle(path(step)));
  }
  Status remove(std::int64_t step) override {
    const std::string name = folder_name(step);
    STELE_TRY_ASSIGN(const os::Folder folder, root());
    STELE_TRY(os::open_below(folder, name));  // rejects a link
    const std::string temporary = temporary_name(temporary_prefix(name, os::longest_name(folder)));
    STELE_TRY(os::rename_new(folder, name, temporary, path(step)));
    os::remove_tree(folder, temporary, os::max_depth);
    return {};
  }
  std::string path(std::int64_t step) const override { return folder_ + "/" + folder_name(step); }

 private:
  /// Opens the folder, each time by its path, because it may have been moved away and created again.
  Result<os::Folder> root() const { return os::open_folder(folder_); }
  /// Renames a step that does not verify, so that its number can be saved again. Errors: errors of the machine, after
  /// which the step may verify.
  Status put_aside_broken(std::int64_t step) const {
    STELE_TRY_ASSIGN(const os::Folder folder, root());
    const auto found = manifest(step, Check::contents);
    if (found) return {};
    if (is_of_machine(found.error())) return found.error();
    const std::string name = folder_name(step);
    for (int i = 1;; ++i) {
      auto moved = os::rename_new(folder, name, name + ".broken-" + std::to_string(i), path(step));
      if (!moved && moved.error().code() == Errc::not_found) return {};  // the step does not exist
      if (moved || moved.error().code() != Errc::exists || i == max_tries) return moved;
    }
  }

  std::string folder_;
  decltype(os::Info::id) id_{};
};

}  // namespace

std::unique_ptr<Place> folder_place(std::string folder) { return std::make_unique<FolderPlace>(std::move(folder)); }

std::unique_ptr<Share> folder_share(std::string folder, FileSinkOptions options) {
  return std::make_unique<FolderShare>(std::move(folder), options);
}

Result<std::unique_ptr<Place>> place_at(const std::string& folder) {
  if (is_url(folder)) return store_place(folder);
  return folder_place(folder);
}

}  // namespace stele::inline v0::detail::steps
