// Digests of tensors: XXH3-64, XXH64, SHA-1, SHA-256.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <stele/result.hpp>

namespace stele::command {

/// A running digest.
class Digest {
 public:
  /// `algorithm`: "xxh3", "xxh64", "sha1" or "sha256". Errors: unsupported.
  static Result<Digest> make(std::string_view algorithm);
  Digest(Digest&&) noexcept;
  Digest& operator=(Digest&&) noexcept;
  ~Digest();
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) { update(std::as_bytes(std::span(text))); }
  /// Returns the digest in hexadecimal digits, and starts a new one.
  std::string finish();

 private:
  struct State;
  explicit Digest(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace stele::command
