// Precision settings: the types of a model's numbers in a saved file. They do not affect loads.
#pragma once

#include <span>
#include <string_view>
#include <type_traits>

#include "stele/dtype.hpp"
#include "stele/precision/element.hpp"

namespace stele::inline v0 {

/// Saves everything unchanged.
struct NativePrecision {
  using Float = void;
  using Int = void;
};

/// Saves floats as f32.
struct FullPrecision {
  using Float = float;
  using Int = void;
};

/// Saves floats as f64.
struct DoublePrecision {
  using Float = double;
  using Int = void;
};

/// Saves floats as f16.
struct HalfPrecision {
  using Float = float16;
  using Int = void;
};

/// Saves floats as bf16.
struct BrainPrecision {
  using Float = bfloat16;
  using Int = void;
};

/// Saves floats as integers of 8 or 4 bits (stele/quantize.hpp); a load with LoadOptions::dequantize converts them back
/// to floats.
struct Quantized8 : NativePrecision {
  static constexpr unsigned quantized_bits = 8;
};
struct Quantized4 : NativePrecision {
  static constexpr unsigned quantized_bits = 4;
};

/// The dtype of floats in tensors whose path matches a pattern (stele/pattern.hpp): a block dtype or a plain float.
struct BlockRule {
  std::string_view pattern;
  DType dtype = DType::none;
};

/// Saves the floats of matrices as blocks of a dtype (stele/quantize.hpp), and the floats of vectors unchanged. Only
/// some formats can store blocks (GGUF, .stele).
template <DType Blocks>
struct BlockPrecision : NativePrecision {
  static constexpr BlockRule block_rules[] = {{"*", Blocks}};
};

/// A settings type defines a `Float` and a signed `Int` element type; void leaves that kind unchanged. User settings
/// may combine any two: `struct Mine { using Float = stele::bfloat16; using Int = std::int32_t; };`. They may also
/// define `quantized_bits`, 2 to 8, or `block_rules`, an array of BlockRule.
template <class T>
concept PrecisionSettings = requires {
  typename T::Float;
  typename T::Int;
};

/// Settings as values; DType::none leaves the kind unchanged. Settings types convert implicitly: `.precision =
/// HalfPrecision{}`.
struct PrecisionSpec {
  constexpr PrecisionSpec() noexcept = default;
  constexpr PrecisionSpec(DType floats, DType integers = DType::none) noexcept  // NOLINT(google-explicit-constructor)
      : floating(floats), integer(integers) {}
  template <PrecisionSettings Settings>
  constexpr PrecisionSpec(Settings /*settings*/) noexcept;  // NOLINT(google-explicit-constructor)

  DType floating = DType::none;
  DType integer = DType::none;
  unsigned quantized_bits = 0;               // 0: floats stay floats
  std::span<const BlockRule> block_rules{};  // applied to floats; the first matching rule counts; not owned

  /// Returns the dtype in which to save `stored`. Only f64 f32 f16 bf16 and i64 i32 i16 i8 can change.
  constexpr DType apply(DType stored) const noexcept {
    if (is_plain_float(stored)) return floating == DType::none ? stored : floating;
    if (stored >= DType::i64 && stored <= DType::i8) return integer == DType::none ? stored : integer;
    return stored;
  }

  /// Compares the rules by address.
  friend constexpr bool operator==(PrecisionSpec a, PrecisionSpec b) noexcept {
    return a.floating == b.floating && a.integer == b.integer && a.quantized_bits == b.quantized_bits &&
           a.block_rules.data() == b.block_rules.data() && a.block_rules.size() == b.block_rules.size();
  }
};

template <PrecisionSettings Settings>
constexpr PrecisionSpec precision_spec() noexcept {
  constexpr DType floating = dtype_of_v<typename Settings::Float>;
  constexpr DType integer = dtype_of_v<typename Settings::Int>;
  static_assert(std::is_void_v<typename Settings::Float> || is_plain_float(floating),
                "Float of a precision settings type must be double, float, stele::float16, stele::bfloat16 or void");
  static_assert(std::is_void_v<typename Settings::Int> || (integer >= DType::i64 && integer <= DType::i8),
                "Int of a precision settings type must be a signed integer of 8 to 64 bits or void");
  PrecisionSpec spec(floating, integer);
  if constexpr (requires { Settings::quantized_bits; }) {
    static_assert(Settings::quantized_bits >= 2 && Settings::quantized_bits <= 8,
                  "quantized_bits of a precision settings type must be 2 to 8");
    spec.quantized_bits = Settings::quantized_bits;
  } else if constexpr (requires { Settings::block_rules; }) {
    spec.block_rules = Settings::block_rules;
  }
  return spec;
}

template <PrecisionSettings Settings>
constexpr PrecisionSpec::PrecisionSpec(Settings /*settings*/) noexcept : PrecisionSpec(precision_spec<Settings>()) {}

}  // namespace stele::inline v0
