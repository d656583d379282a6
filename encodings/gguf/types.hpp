// Numbers and names of GGUF's types.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "stele/dtype.hpp"

namespace stele::inline v0::detail::gguf {

/// Returns the dtype of a ggml type; DType::none for an unknown or removed type.
DType dtype_of(std::uint32_t ggml_type) noexcept;
/// Returns the ggml type of a dtype; no_type if there is none.
std::uint32_t type_of(DType dtype) noexcept;
inline constexpr std::uint32_t no_type = 0xffffffff;

/// Types of values (enum gguf_type).
enum class Type : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };
inline constexpr std::uint32_t type_count = 13;

/// Returns the size of a value in bytes; 0 for strings and arrays.
std::size_t size_of(Type type) noexcept;
/// Returns "u8", …
std::string_view type_name(Type type) noexcept;

inline constexpr std::uint32_t default_alignment = 32;
inline constexpr std::string_view alignment_key = "general.alignment";
constexpr bool valid_alignment(std::uint64_t bytes) noexcept {
  return std::has_single_bit(bytes) && bytes >= 8 && bytes <= (std::uint64_t{1} << 31);
}
/// Prefix of the keys that store a file's position in a split set.
inline constexpr std::string_view split_prefix = "split.";
inline constexpr std::string_view architecture_key = "general.architecture";
inline constexpr std::string_view file_type_key = "general.file_type";
inline constexpr std::string_view quantization_version_key = "general.quantization_version";
inline constexpr std::uint32_t quantization_version = 2;
/// The architecture of files that stele writes for other models.
inline constexpr std::string_view own_architecture = "stele";

/// Prefix of ComfyUI-GGUF's keys: the shape, outermost extent first, of a tensor that is stored with another one.
inline constexpr std::string_view original_shape_prefix = "comfy.gguf.orig_shape.";

/// Returns the number of general.file_type for files whose tensors mostly have this dtype; no_type if there is none.
std::uint32_t file_type_of(DType dtype) noexcept;
/// Returns the dtype of most tensors in a file with this general.file_type; DType::none if unknown.
DType dtype_of_file_type(std::uint64_t file_type) noexcept;

}  // namespace stele::inline v0::detail::gguf
