// Input: the source of a load.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stele/bytes.hpp"
#include "stele/options.hpp"
#include "stele/result.hpp"
#include "stele/source.hpp"

namespace stele::inline v0 {

/// The input of a load: a path (a string, or std::filesystem::path), a Source, or bytes. Objects opened from temporary
/// bytes own them; other bytes are borrowed and must outlive those objects.
class STELE_EXPORT Input {
 public:
  Input(std::string_view path) noexcept;
  Input(const std::string& path) : Input(std::string_view(path)) {}
  Input(const char* path) : Input(std::string_view(path != nullptr ? path : "")) {}
  template <class Path>
  requires requires(const Path& path) {
    { path.native() } -> std::same_as<const std::string&>;
  }
  Input(const Path& path) : Input(std::string_view(path.native())) {}
  template <class Path>
  requires requires(const Path& path) {  // on Windows
    { path.native() } -> std::same_as<const std::wstring&>;
    { path.generic_u8string() } -> std::same_as<std::u8string>;
  }
  Input(const Path& path) : Input(reinterpret_cast<const char*>(path.generic_u8string().c_str())) {}
  Input(SourcePtr source) : source_(std::move(source)) {}
  Input(std::span<const std::byte> bytes) : source_(borrow_bytes(bytes)) {}
  Input(const Bytes& bytes) : Input(bytes.span()) {}
  Input(Bytes&& bytes) : source_(own_bytes(std::move(bytes))) {}
  Input(const Bytes&& bytes) = delete;
  Input(const std::vector<std::byte>& bytes) : Input(std::span(bytes)) {}
  Input(std::vector<std::byte>&& bytes) : source_(own_bytes(std::move(bytes))) {}
  Input(const std::vector<std::byte>&& bytes) = delete;
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;
  ~Input();
  /// Opens the input. Errors: invalid_argument (an empty path, a null Source, a folder without a Bundle), those of
  /// open_file().
  Result<SourcePtr> open(std::string_view extension, const LoadOptions& options) const;
  /// Returns true if a save has replaced the folder of the last open(), so that the caller must read the folder again.
  /// Returns false for all other inputs, and after a bounded number of attempts.
  bool again() const;
  /// Returns the name for messages.
  const std::string& name() const noexcept { return source_ != nullptr ? source_->name() : path_; }

 private:
  std::string path_;
  bool is_path_ = false;
  bool no_memory_ = false;  // memory ran out while copying the path
  SourcePtr source_;
  mutable SourcePtr folder_;  // the folder that open() opened
  mutable int attempts_ = 0;
};

}  // namespace stele::inline v0
