// Reads the text of .param files (ncnn, src/net.cpp and src/paramdict.cpp):
//
//  1. The magic number 7767517; the number of layers and the number of blobs.
//  2. For each layer: type, name, number of inputs, number of outputs, the names of the inputs, the names of the
//     outputs, attributes.
//  3. An attribute is id=value, with an id from 0 to 31. A value is an integer, a float, text or a list. An array of
//     old files is -23300-id=length,value,....
//
// Words are separated by white space.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "stele/result.hpp"

namespace stele::inline v0::detail::ncnn {

inline constexpr std::string_view magic = "7767517";
/// Maximum id of an attribute (NCNN_MAX_PARAM_COUNT - 1).
inline constexpr std::uint32_t max_id = 31;
/// Maximum length of a type or name in bytes (255): ncnn's own limit.
inline constexpr std::size_t max_word_bytes = 255;

/// Returns true for the text of a .param file.
bool is_param(std::string_view head) noexcept;
/// Returns true for a binary .param file, which has numbers instead of names.
bool is_binary_param(std::string_view head) noexcept;

struct Layer {
  std::string_view type, name;
  std::array<std::int32_t, max_id + 1> integers{};
  std::uint32_t given = 0;   // bits of the attributes that are present
  std::uint32_t others = 0;  // bits of the attributes that are not one integer
};

class ParamReader {
 public:
  /// `text` must outlive the reader and the layers.
  explicit ParamReader(std::string_view text) : text_(text) {}
  /// Reads the magic number and the counts. Errors: bad_magic, malformed, truncated.
  Status head();
  std::uint32_t layers() const noexcept { return layers_; }
  /// Reads the next layer. Errors: malformed, truncated, unsupported (a graph of pnnx).
  Status next(Layer& layer);
  /// Checks that no text follows the last layer. Errors: malformed.
  Status finish();
  /// Returns the offset of the last word.
  std::uint64_t offset() const noexcept { return word_; }

 private:
  void skip_space();
  std::string_view peek();
  Result<std::string_view> word(const char* what);
  Result<std::uint32_t> count(const char* what);
  Status attribute(Layer& layer, std::string_view key, std::string_view value);

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t word_ = 0;
  std::uint32_t layers_ = 0;
};

}  // namespace stele::inline v0::detail::ncnn
