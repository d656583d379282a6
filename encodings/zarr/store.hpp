// Keys and values, as zarr's metadata and chunks are stored: the files of a folder, or the entries of another store.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/limits.hpp"
#include "stele/bundle.hpp"
#include "stele/result.hpp"
#include "stele/source.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail::zarr {

/// A value: a range of a source.
struct Stored {
  SourcePtr source;
  std::uint64_t offset = 0, size = 0;
};

/// Keys and values. Immutable and thread-safe.
class Store {
 public:
  virtual ~Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  /// Returns the keys, sorted by bytes.
  std::span<const std::string> keys() const noexcept { return keys_; }
  /// Returns the number of a key.
  std::optional<std::size_t> find(std::string_view key) const noexcept;
  /// Returns the numbers of the keys that begin with `prefix`, as [first, last).
  std::pair<std::size_t, std::size_t> range(std::string_view prefix) const noexcept;
  /// Opens the value of a key by its number. Errors: not_found, io, those of the store.
  virtual Result<Stored> open(std::size_t key) const = 0;
  /// Returns the name for messages.
  const std::string& name() const noexcept { return name_; }

 protected:
  Store(std::vector<std::string> keys, std::string name) : keys_(std::move(keys)), name_(std::move(name)) {}

 private:
  std::vector<std::string> keys_;
  std::string name_;
};

/// Returns the files of a folder as a store. `prefix`: only the files whose names begin with it, which the keys lack.
/// Takes the memory of the keys from `memory`. Errors: limit, those of Bundle::names().
Result<std::shared_ptr<const Store>> open_folder_store(const std::shared_ptr<const Bundle>& folder,
                                                       std::string_view prefix, std::string name, IndexBudget& memory);

/// Reads a JSON document. Admits its bytes to `memory`. Errors: malformed, limit, those of the store.
Result<Value> read_json(const Store& store, std::size_t key, IndexBudget& memory);

/// Reads the text of a value. Errors: limit, those of the store.
Result<std::string> read_text(const Store& store, std::size_t key);

}  // namespace stele::inline v0::detail::zarr
