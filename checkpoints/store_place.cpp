// Steps as objects of a store, which has no renames. The files of a step have names that are never used again,
// step-00000100/ID/NAME; the manifest, step-00000100/manifest.json, is written last, and only if the stored manifest
// has not changed since the save began. Only the manifest makes a step visible.
#include <algorithm>
#include <map>
#include <random>
#include <utility>

#include "base/hash.hpp"
#include "base/hex.hpp"
#include "base/threads.hpp"
#include "io/urls.hpp"
#include "place.hpp"

namespace stele::inline v0::detail::steps {
namespace {

/// A sink that hashes the bytes that pass through it.
class HashedSink final : public Sink {
 public:
  using Done = std::function<void(std::uint64_t bytes, std::uint64_t hash)>;
  HashedSink(std::unique_ptr<Sink> next, std::shared_ptr<Bundle> bundle, Done done)
      : Sink(next->name()), next_(std::move(next)), bundle_(std::move(bundle)), done_(std::move(done)) {}
  using Sink::write;
  Status reserve(std::uint64_t total) override { return next_->reserve(total); }
  Status write(std::span<const std::span<const std::byte>> pieces) override {
    for (const auto piece : pieces) {
      hasher_.update(piece.data(), piece.size());
      bytes_ += piece.size();
    }
    return next_->write(pieces);
  }
  Status commit() override {
    STELE_TRY(next_->commit());
    done_(bytes_, hasher_.digest());
    return {};
  }
  std::shared_ptr<Bundle> bundle() const override { return bundle_; }

 private:
  std::unique_ptr<Sink> next_;
  std::shared_ptr<Bundle> bundle_;
  Done done_;
  Hasher hasher_;
  std::uint64_t bytes_ = 0;
};

/// Sets the version of a file that was written.
Status note_version(const Store& store, const std::string& object, ManifestFile& file) {
  STELE_TRY_ASSIGN(const auto now, store.stat(object));
  if (!now) return Error(Errc::not_found, "a file that was just saved is missing").file(store.name(object));
  STELE_TRY(check_size(file, now->bytes, store.name(object)));
  file.version = now->version;
  return {};
}

/// The files of a new step, with their sizes and checksums. Files that are not committed with the manifest are removed.
class NewFiles final : public Bundle, public std::enable_shared_from_this<NewFiles> {
 public:
  NewFiles(std::shared_ptr<Bundle> objects, std::string folder)
      : objects_(std::move(objects)), folder_(std::move(folder)) {}
  ~NewFiles() override {
    if (kept) return;
    for (const auto& [name, file] : files_) objects_->remove(folder_ + name);
    if (!shared) return;
    const auto all = guarded([&] { return objects_->names(); });
    if (!all) return;
    for (const std::string& name : *all) {
      if (name.starts_with(folder_)) objects_->remove(name);  // also objects of processes that have ended
    }
  }
  Result<SourcePtr> open(std::string_view name) const override { return objects_->open(full(name)); }
  Result<std::unique_ptr<Sink>> create(std::string_view name) override {
    STELE_TRY_ASSIGN(auto sink, objects_->create(full(name)));
    return std::unique_ptr<Sink>(std::make_unique<HashedSink>(
        std::move(sink), shared_from_this(), [this, name = std::string(name)](std::uint64_t bytes, std::uint64_t hash) {
          const Lock lock(mutex_);
          files_[name] = {name, bytes, hash};
        }));
  }
  Result<bool> contains(std::string_view name) const override { return objects_->contains(full(name)); }
  Result<std::vector<std::string>> names() const override {
    std::vector<std::string> found;
    for (const ManifestFile& file : files()) found.push_back(file.name);
    return found;
  }
  void remove(std::string_view name) noexcept override {
    objects_->remove(full(name));
    const Lock lock(mutex_);
    files_.erase(std::string(name));
  }
  std::vector<ManifestFile> files() const {
    const Lock lock(mutex_);
    std::vector<ManifestFile> all;
    for (const auto& [name, file] : files_) all.push_back(file);
    return all;
  }

  bool kept = false;
  bool shared = false;                  // other processes write files, too
  std::optional<std::string> before{};  // the version of the manifest when the save began
  std::vector<std::string> left{};      // objects that older saves of the step have left, without the manifest

 private:
  std::string full(std::string_view name) const { return folder_ + std::string(name); }
  std::shared_ptr<Bundle> objects_;
  std::string folder_;
  mutable Mutex mutex_;
  std::map<std::string, ManifestFile> files_;
};

class StoreShare final : public Share {
 public:
  StoreShare(std::shared_ptr<Store> store, std::string folder)
      : store_(std::move(store)),
        folder_(std::move(folder)),
        files_(std::make_shared<NewFiles>(store_->bundle(), folder_)) {}
  Bundle& files() override { return *files_; }
  Status complete(ManifestFile& file) const override { return note_version(*store_, folder_ + file.name, file); }
  void keep(bool visible) noexcept override { files_->kept = visible; }

 private:
  std::shared_ptr<Store> store_;
  std::string folder_;
  std::shared_ptr<NewFiles> files_;
};

/// Returns a name that no other save uses.
std::string new_id() {
  std::random_device device;
  return detail::hex(device(), 8) + detail::hex(device(), 8);
}

class StorePlace final : public Place {
 public:
  explicit StorePlace(std::shared_ptr<Store> store) : store_(std::move(store)) {}
  Status start(bool) override { return {}; }
  Result<bool> replaced() override { return false; }
  Result<std::vector<std::int64_t>> numbers() const override {
    STELE_TRY_ASSIGN(const auto names, store_->bundle()->names());
    std::vector<std::int64_t> found;
    for (const std::string_view name : names) {
      const std::size_t slash = name.find('/');
      if (slash == name.npos || name.substr(slash + 1) != manifest_name) continue;
      if (const auto step = step_of(name.substr(0, slash))) found.push_back(*step);
    }
    std::sort(found.begin(), found.end());
    return found;
  }
  Result<Manifest> manifest(std::int64_t step, Check check) const override {
    const std::string name = folder_name(step) + "/" + std::string(manifest_name);
    STELE_TRY_ASSIGN(const SourcePtr source, store_->bundle()->open(name));
    STELE_TRY_ASSIGN(Manifest found, read_manifest_of(*source, step));
    STELE_TRY(adopt(found));
    STELE_TRY(this->check(found, check));
    return found;
  }
  Status adopt(Manifest& manifest) const override {
    manifest.info.folder = path(manifest.info.step);
    return {};
  }
  Status check(const Manifest& manifest, Check check) const override {
    const auto bundle = store_->bundle();
    for (const ManifestFile& file : manifest.files) {
      const std::string object = object_of(manifest, file.name);
      STELE_TRY_ASSIGN(const auto now, store_->stat(object));
      if (!now) return Error(Errc::not_found, "a file of the step is missing").file(store_->name(object));
      STELE_TRY(check_size(file, now->bytes, store_->name(object)));
      const bool same = !file.version.empty() && file.version == now->version;
      if (check == Check::sizes || (check == Check::unchanged && same)) continue;
      STELE_TRY(check_contents(*bundle, object, file, store_->name(object)));
    }
    return {};
  }
  Result<SourcePtr> part(const Manifest& manifest, const std::string& name, bool) const override {
    const std::string object = object_of(manifest, name);
    const bool file = std::any_of(manifest.files.begin(), manifest.files.end(),
                                  [&](const ManifestFile& f) { return f.name == name; });
    return file ? store_->bundle()->open(object) : store_->open_folder(object);
  }
  Status check_space(std::uint64_t, std::uint64_t) const override { return {}; }
  Result<std::unique_ptr<Sink>> create(std::int64_t step, Durability) override {
    const std::string folder = folder_name(step) + "/";
    id_ = new_id();
    auto files = std::make_shared<NewFiles>(store_->bundle(), folder + id_ + "/");
    STELE_TRY_ASSIGN(const auto now, store_->stat(folder + std::string(manifest_name)));
    if (now) files->before = now->version;
    STELE_TRY_ASSIGN(files->left, files_below(folder));
    return bundle_sink(std::move(files), path(step));
  }
  Status list(Sink& sink, Manifest& manifest) const override {
    manifest.objects = id_;
    manifest.files = static_cast<NewFiles&>(*sink.bundle()).files();
    for (ManifestFile& file : manifest.files) {
      STELE_TRY(note_version(*store_, object_of(manifest, file.name), file));
    }
    return {};
  }
  Status commit(Sink& sink, const Manifest& manifest) override {
    auto& files = static_cast<NewFiles&>(*sink.bundle());
    STELE_TRY_ASSIGN(const std::string text, to_text(manifest));
    const std::string name = folder_name(manifest.info.step) + "/" + std::string(manifest_name);
    files.kept = true;  // the manifest may exist even if the answer is lost
    auto done = store_->replace(name, text, files.before);
    if (!done && done.error().code() == Errc::exists) {
      files.kept = false;
      return Error(Errc::exists, "another program has saved this step at the same time").file(path(manifest.info.step));
    }
    STELE_TRY(std::move(done));
    // Another save of this step that has not ended yet will fail: its manifest cannot replace this one.
    remove_files(files.left);
    return {};
  }
  std::string share(Sink& sink, Manifest& manifest) const override {
    static_cast<NewFiles&>(*sink.bundle()).shared = true;
    return manifest.objects = id_;
  }
  std::unique_ptr<Share> join(std::int64_t step, const std::string& shared, Durability) const override {
    return std::make_unique<StoreShare>(store_, folder_name(step) + "/" + shared + "/");
  }
  Status check_removable(std::int64_t) const override { return {}; }  // other objects remain
  Status remove(std::int64_t step) override {
    const std::string folder = folder_name(step) + "/";
    STELE_TRY_ASSIGN(const auto left, files_below(folder));
    STELE_TRY(store_->remove(folder + std::string(manifest_name)));  // first: no step without its files is ever listed
    remove_files(left);
    return {};
  }
  std::string path(std::int64_t step) const override { return store_->name(folder_name(step)); }

 private:
  static std::string object_of(const Manifest& manifest, const std::string& name) {
    const std::string folder = folder_name(manifest.info.step) + "/";
    return folder + (manifest.objects.empty() ? name : manifest.objects + "/" + name);
  }
  /// Returns the objects of a step without its manifest, including objects of killed saves.
  Result<std::vector<std::string>> files_below(const std::string& folder) const {
    STELE_TRY_ASSIGN(auto names, store_->bundle()->names());
    std::erase_if(names, [&](const std::string& name) {
      return !name.starts_with(folder) || name == folder + std::string(manifest_name);
    });
    return names;
  }
  void remove_files(const std::vector<std::string>& objects) noexcept {
    for (const std::string& object : objects) {
      static_cast<void>(guarded([&] { return store_->remove(object); }));
    }
  }

  std::shared_ptr<Store> store_;
  std::string id_{};  // ID of the step that is being saved
};

}  // namespace

Result<std::unique_ptr<Place>> store_place(const std::string& url) {
  STELE_TRY_ASSIGN(const Urls* const urls, urls_for(url));
  STELE_TRY_ASSIGN(auto store, urls->store(url));
  return std::unique_ptr<Place>(std::make_unique<StorePlace>(std::move(store)));
}

}  // namespace stele::inline v0::detail::steps
