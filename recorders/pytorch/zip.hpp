// The records of PyTorch's zip files.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "file.hpp"

namespace stele::inline v0::detail::pytorch {

/// The storages in `<root>/data/`. find() and storage() use `memory` while the file is being opened.
class ZipStorages final : public Storages {
 public:
  ZipStorages(std::shared_ptr<const zip::Directory> directory, std::string_view root, bool check, bool big_endian,
              IndexBudget& memory)
      : directory_(std::move(directory)),
        heads_(directory_, usual_extra),
        folder_(std::string(root) + "/data/"),
        check_(check),
        big_endian_(big_endian),
        memory_(memory) {}

  Result<Storage*> find(std::string_view key) override;
  /// Returns the storage of an entry. Errors: limit, those of reading.
  Result<Storage*> storage(const zip::Entry& entry);
  bool in_order() const noexcept override { return in_order_; }
  bool has(const zip::Entry& entry) const noexcept override {
    if (known_.empty()) return false;
    const zip::Entry* const own = directory_->find(entry.name);  // `entry` may be another Directory's
    return own != nullptr && known_[index_of(*own)] != nullptr;
  }

 private:
  Result<Storage*> lost(std::string_view key);
  std::size_t index_of(const zip::Entry& entry) const noexcept {
    return static_cast<std::size_t>(&entry - directory_->entries().data());
  }

  /// Number of bytes after a name that are read with the local header: the padding of most programs.
  static constexpr std::uint64_t usual_extra = 128;

  const std::shared_ptr<const zip::Directory> directory_;
  zip::HeadReader heads_;
  const std::string folder_;
  const bool check_, big_endian_;
  IndexBudget& memory_;
  bool in_order_ = false;
  std::size_t next_ = 0;                  // index of the entry after the one found last
  std::vector<Storage*> known_;           // storages of the entries found so far; empty before the first
  std::map<std::string, Storage*> lost_;  // storages that have no entry because the file lost its end
};

/// Returns the record `<root>/<name>`, or nullptr.
const zip::Entry* find_entry(const zip::Directory& directory, std::string_view root, std::string_view name);

/// Returns the names of the files that torch.jit.save and torch.export.save add for their callers (`_extra_files`).
Skipped extra_files(const zip::Directory& directory, std::string_view root);
/// Reads the record `byteorder`. Errors: malformed.
Result<bool> is_big_endian(const zip::Directory& directory, std::string_view root, bool check);
/// Returns the bytes of a record of at most `limit` bytes. `check`: verify its CRC-32. Errors: those of
/// Directory::read.
Result<Bytes> read_record(const zip::Directory& directory, const zip::Entry& entry, std::uint64_t limit, bool check);

}  // namespace stele::inline v0::detail::pytorch
