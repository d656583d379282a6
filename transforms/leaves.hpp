// What the transforms of tensors share.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string_view>

#include "stele/snapshot.hpp"

namespace stele {
inline namespace v0 {
namespace detail {

/// Reverses the axes of the tensors that are chosen by path (see transpose()).
Result<Snapshot> transpose_where(const Snapshot& snapshot, const std::function<bool(std::string_view path)>& chosen,
                                 std::span<const std::size_t> axes = {});

}  // namespace detail
}  // namespace v0
}  // namespace stele
