// Names of tensors, and loops over tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <stele/snapshot.hpp>

namespace stele::facts {

/// A tensor's name, with the number of its leaf; a tied tensor has several names.
struct Named {
  std::string name;
  std::uint32_t leaf = 0;
  bool tied = false;  // an additional name of the leaf
};
/// Returns every name of every tensor, in the order of the file. Errors: limit.
Result<std::vector<Named>> names_of(const Snapshot& snapshot);
/// Splits a path at its dots; `\.` is part of a segment.
std::vector<std::string_view> segments(std::string_view path);

/// Returns the snapshot with tensors of blocks as f32. Leaves keep their numbers.
Result<Snapshot> with_numbers(const Snapshot& snapshot);

/// Counts bytes that were read; returns false to cancel. May be empty.
using Advance = std::function<bool(std::uint64_t bytes)>;
/// Returns the error of a cancelled read.
Error cancelled();
/// Errors: cancelled.
Status advanced(const Advance& advance, std::uint64_t bytes);

/// Calls work(i, context) for each i below `count`, in any order, perhaps from several threads. Returns the error with
/// the smallest i.
using Work = std::function<Status(std::size_t i, ReadContext& context)>;
using Loop = std::function<Status(std::size_t count, const Work& work)>;
/// A Loop of one thread.
Status in_order(std::size_t count, const Work& work);

}  // namespace stele::facts
