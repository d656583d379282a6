// Output: the destination of a save.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

#include "stele/config.hpp"

namespace stele::inline v0 {

class Sink;  // stele/sink.hpp

/// The destination of a save: a path (a string, or std::filesystem::path) or a Sink. Borrowed.
class Output {
 public:
  Output(std::string_view path) noexcept : path_(path) {}
  Output(const std::string& path) noexcept : path_(path) {}
  Output(const char* path) noexcept : path_(path != nullptr ? path : "") {}
  template <class Path>
  requires requires(const Path& path) {
    { path.native() } -> std::same_as<const std::string&>;
  }
  Output(const Path& path) noexcept : path_(path.native()) {}
  template <class Path>
  requires requires(const Path& path) {  // on Windows
    { path.native() } -> std::same_as<const std::wstring&>;
    { path.generic_u8string() } -> std::same_as<std::u8string>;
  }
  Output(const Path& path) : converted_(reinterpret_cast<const char*>(path.generic_u8string().c_str())) {}
  Output(Sink& sink) noexcept : sink_(&sink) {}
  /// Returns the path; empty for a Sink.
  std::string_view path() const noexcept { return converted_.empty() ? path_ : std::string_view(converted_); }
  /// Returns the Sink; nullptr for a path.
  Sink* sink() const noexcept { return sink_; }

 private:
  std::string_view path_;
  std::string converted_;  // a path of Windows in UTF-8
  Sink* sink_ = nullptr;
};

}  // namespace stele::inline v0
