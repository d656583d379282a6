// Param: a learned tensor with an identity that files preserve.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "stele/config.hpp"

namespace stele::inline v0 {

/// The identity of a parameter: 128 bits and their written form.
struct ParamId {
  enum class Form : std::uint8_t {
    u64 = 1,   // `low` only, as Burn writes it
    uuid = 2,  // RFC 4122; `high` holds the first eight bytes, big-endian
  };
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  Form form = Form::u64;

  static constexpr ParamId from_u64(std::uint64_t id) noexcept { return {0, id, Form::u64}; }
  static constexpr ParamId from_uuid(std::uint64_t high, std::uint64_t low) noexcept { return {high, low, Form::uuid}; }
  friend bool operator==(const ParamId&, const ParamId&) = default;
};

/// A learned tensor of any tensor type, with an optional identity. Behaves like a pointer to the tensor.
template <class T>
struct Param {
  T value{};
  std::optional<ParamId> id{};

  Param() = default;
  Param(T tensor) : value(std::move(tensor)) {}  // NOLINT(google-explicit-constructor)
  Param(T tensor, ParamId identity) : value(std::move(tensor)), id(identity) {}

  T& operator*() noexcept { return value; }
  const T& operator*() const noexcept { return value; }
  T* operator->() noexcept { return &value; }
  const T* operator->() const noexcept { return &value; }
};

}  // namespace stele::inline v0
