// NumPy's arrays among the objects of a pickle.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "encodings/npy/header.hpp"
#include "encodings/pickle/pickle.hpp"
#include "stele/snapshot.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail::numpy_pickle {

/// An array or a scalar.
struct PickledArray {
  numpy::Array array;
  Provider provider{};
  std::string unreadable{};  // the reason why it is not a tensor
};

/// An array among the objects, and its name if it is a tensor of Paddle.
struct Unwrapped {
  pickle::Ref object = pickle::no_ref;  // no_ref: the object is no array
  pickle::Ref name = pickle::no_ref;
  bool paddle = false;
};

/// Bytes that the pickle stores as text in UTF-8, one character below 256 for each byte. Decodes any range after at
/// most 64 KiB of other text.
class Latin1 {
 public:
  Latin1(SourcePtr source, std::uint64_t offset, std::uint64_t size)
      : source_(std::move(source)), offset_(offset), size_(size) {}
  /// Reads the text, counts its characters, and notes their positions. Errors: malformed, limit, io.
  Status scan(IndexBudget& memory);
  std::uint64_t count() const noexcept { return count_; }
  Provider provider() const noexcept;

 private:
  static constexpr std::size_t block = std::size_t{64} << 10;
  static Status read(const void* at, std::uint64_t number, std::uint64_t offset, std::span<std::byte> out,
                     ReadContext& context);
  SourcePtr source_;
  std::uint64_t offset_, size_, count_ = 0;
  std::vector<std::uint64_t> before_;  // for each block of the text: the number of characters that begin before it
};

/// Reads the arrays of one pickle, which read_in_place() has read.
class Arrays {
 public:
  Arrays(SourcePtr source, const pickle::Objects& objects, IndexBudget& memory)
      : source_(std::move(source)), objects_(objects), memory_(memory) {}

  /// Returns true for a call that makes an array or a scalar.
  bool is_array(pickle::Ref object) const;
  /// Returns the array that the object is, or that Paddle has wrapped in it: the call tuple((name, array)) or
  /// eval('data', {'data': array}).
  Unwrapped unwrapped(pickle::Ref object) const;
  /// Errors: malformed, unsupported (an unknown dtype class), limit, io.
  Result<PickledArray> read(pickle::Ref object);
  /// Returns the decoded strings that providers refer to.
  std::vector<std::shared_ptr<const void>> kept() const;

 private:
  enum class Form : std::uint8_t { none, array, buffer, scalar };
  Form form(pickle::Ref object) const;
  Status set_dtype(pickle::Ref dtype, PickledArray& to) const;
  Status set_shape(pickle::Ref shape, PickledArray& to) const;
  Status set_data(pickle::Ref data, PickledArray& to);
  /// Returns the items of a tuple; empty for another object.
  std::span<const pickle::Ref> tuple(pickle::Ref object) const;
  std::optional<std::string_view> text(pickle::Ref object) const;

  SourcePtr source_;
  const pickle::Objects& objects_;
  IndexBudget& memory_;
  std::map<pickle::Ref, std::shared_ptr<Latin1>> texts_;
};

}  // namespace stele::inline v0::detail::numpy_pickle
