// An opened PyTorch file: its objects and their storages.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/limits.hpp"
#include "base/skipped.hpp"
#include "encodings/pickle/pickle.hpp"
#include "encodings/zip/zip.hpp"
#include "storage.hpp"

namespace stele::inline v0::detail::pytorch {

/// The storages of a file by key. Snapshots keep it alive, because leaves point into it.
class Storages {
 public:
  virtual ~Storages() = default;
  /// Returns the storage of a key. Errors: malformed (unknown key), those of reading.
  virtual Result<Storage*> find(std::string_view key) = 0;
  /// Adds a storage without a key.
  Storage& add() { return all_.emplace_back(); }
  Gathered& add(const View& view) { return gathered_.emplace_back(view); }
  /// Returns the number of bytes of all storages so far.
  std::uint64_t bytes() const noexcept {
    std::uint64_t all = 0;
    for (const Storage& storage : all_) all += storage.lost ? 0 : storage.size;
    return all;
  }
  /// Returns true if storages should be read one after the other.
  virtual bool in_order() const noexcept { return false; }
  /// Returns true if the zip entry is one of these storages.
  virtual bool has(const zip::Entry& entry) const noexcept {
    static_cast<void>(entry);
    return false;
  }

 protected:
  std::deque<Storage> all_;

 private:
  std::deque<Gathered> gathered_;
};

struct File {
  std::string name;  // for messages
  pickle::Objects objects;
  std::shared_ptr<Storages> storages;
  std::unordered_map<std::int64_t, View> tensors{};  // by persistent id; tar files only
  Skipped extra_files{};                             // zip files only
};

/// Memory of a storage, including its entries in tables.
inline constexpr std::uint64_t storage_memory = sizeof(Storage) + 160;

// Each function opens one kind of file. Errors: those of Format::open.
/// `check`: verify the CRC-32 of records and storages.
Result<File> open_zip(const std::shared_ptr<const zip::Directory>& directory, std::string_view root, bool check,
                      IndexBudget& memory);
Result<File> open_stream(const SourcePtr& source, IndexBudget& memory);
Result<File> open_tar(const SourcePtr& source, const Limits& limits, IndexBudget& memory);

/// Returns the folder of a zip file's records: the first part of the first entry's path. Errors: malformed (an entry
/// outside that folder).
Result<std::string_view> root_of(const zip::Directory& directory);

}  // namespace stele::inline v0::detail::pytorch
