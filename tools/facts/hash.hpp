// The digest of all tensors of a model, which does not depend on its format.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "facts/names.hpp"

namespace stele::facts {

/// A running digest.
class Digest {
 public:
  virtual ~Digest() = default;
  virtual void update(std::span<const std::byte> bytes) = 0;
  void update(std::string_view text) { update(std::as_bytes(std::span(text))); }
  /// Returns the digest in hexadecimal digits.
  virtual std::string finish() = 0;
};
/// Makes a new digest.
using DigestMaker = std::function<Result<std::unique_ptr<Digest>>()>;
/// Makes an XXH3-64.
Result<std::unique_ptr<Digest>> xxh3();

struct Hashed {
  std::vector<Named> names{};
  std::vector<std::string> digests{};  // of leaves
  std::string total{};
};
/// Returns the digests of all tensors. Errors: those of `make`, io, checksum, cancelled.
Result<Hashed> hashed(const Snapshot& snapshot, const DigestMaker& make, const Loop& loop, const Advance& advance);

}  // namespace stele::facts
