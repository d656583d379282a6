// The keys and values that contain zarr's metadata and chunks.
#include "encodings/zarr/store.hpp"

#include <algorithm>

#include "json/json.hpp"

namespace stele::inline v0::detail::zarr {
namespace {

/// Maximum size of a JSON document (100 MB): consolidated metadata of a model with 100,000 arrays take about 60 MB.
constexpr std::uint64_t max_document_bytes = 100'000'000;

class FolderStore final : public Store {
 public:
  FolderStore(std::shared_ptr<const Bundle> folder, std::string prefix, std::vector<std::string> keys, std::string name)
      : Store(std::move(keys), std::move(name)), folder_(std::move(folder)), prefix_(std::move(prefix)) {}

  Result<Stored> open(std::size_t key) const override {
    STELE_TRY_ASSIGN(SourcePtr file, folder_->open(prefix_ + keys()[key]));
    const std::uint64_t size = file->size();
    return Stored{std::move(file), 0, size};
  }

 private:
  std::shared_ptr<const Bundle> folder_;
  std::string prefix_;
};

}  // namespace

std::optional<std::size_t> Store::find(std::string_view key) const noexcept {
  const auto at = std::lower_bound(keys_.begin(), keys_.end(), key);
  if (at == keys_.end() || *at != key) return std::nullopt;
  return static_cast<std::size_t>(at - keys_.begin());
}

std::pair<std::size_t, std::size_t> Store::range(std::string_view prefix) const noexcept {
  const auto first = std::lower_bound(keys_.begin(), keys_.end(), prefix);
  const auto last =
      std::partition_point(first, keys_.end(), [&](const std::string& key) { return key.starts_with(prefix); });
  return {static_cast<std::size_t>(first - keys_.begin()), static_cast<std::size_t>(last - keys_.begin())};
}

Result<std::shared_ptr<const Store>> open_folder_store(const std::shared_ptr<const Bundle>& folder,
                                                       std::string_view prefix, std::string name, IndexBudget& memory) {
  STELE_TRY_ASSIGN(auto names, folder->names());
  STELE_TRY_ASSIGN(auto within, folder->beneath());
  std::vector<std::string> keys;
  for (const std::string& file : names) {
    if (!file.starts_with(prefix)) continue;
    // A file of any size takes a block of the file system.
    memory.admit(4 * (sizeof(std::string) + file.size()));
    if (!memory.take(3 * sizeof(std::string) + file.size())) return index_error("the folder has too many files");
    keys.push_back(file.substr(prefix.size()));
  }
  return std::shared_ptr<const Store>(std::make_shared<const FolderStore>(
      within != nullptr ? within : folder, std::string(prefix), std::move(keys), std::move(name)));
}

Result<std::string> read_text(const Store& store, std::size_t key) {
  STELE_TRY_ASSIGN(const Stored stored, store.open(key));
  if (stored.size > max_document_bytes) {
    return Error(Errc::limit, "the metadata are too large")
        .file(stored.source->name())
        .expected("at most " + std::to_string(max_document_bytes) + " bytes")
        .found(std::to_string(stored.size));
  }
  std::string text(static_cast<std::size_t>(stored.size), '\0');
  STELE_TRY(stored.source->read_at(stored.offset, std::as_writable_bytes(std::span(text))));
  return text;
}

Result<Value> read_json(const Store& store, std::size_t key, IndexBudget& memory) {
  STELE_TRY_ASSIGN(const std::string text, read_text(store, key));
  memory.admit(text.size(), index_rate::index);
  json::Reader in(text, {.non_finite = true});
  Value value;
  auto read = json::read_value(in, value, static_cast<std::size_t>(memory.left()), true);
  if (read && !in.finish()) read = in.status();
  if (!read) return std::move(read).error().file(store.name() + '/' + store.keys()[key]);
  return value;
}

}  // namespace stele::inline v0::detail::zarr
