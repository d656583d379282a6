// Bytes that are read, not mapped, for fuzz targets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "stele/source.hpp"

namespace stele_test {

/// The bytes as a source without a view.
class Unmapped final : public stele::Source {
 public:
  explicit Unmapped(stele::SourcePtr bytes) : stele::Source("fuzz"), bytes_(std::move(bytes)) {}
  std::uint64_t size() const noexcept override { return bytes_->size(); }
  stele::Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    return bytes_->read_at(offset, out);
  }

 private:
  stele::SourcePtr bytes_;
};

}  // namespace stele_test
