// Finds the objects of a file that contain tensors.
#pragma once

#include <cstdint>
#include <vector>

#include "tensors.hpp"

namespace stele::inline v0::detail::pytorch {

/// Decides for each object, once, whether it contains a tensor.
class Contents {
 public:
  Contents(const pickle::Objects& objects, const Tensors& tensors)
      : objects_(objects), tensors_(tensors), known_(objects.size()) {}

  /// Errors: limit.
  Result<bool> has_tensor(pickle::Ref r, int depth = 0) {
    if (r == pickle::no_ref) return false;
    if (known_[r] != State::unknown) return known_[r] == State::yes;
    if (depth > max_depth) return Error(Errc::limit, "objects are nested too deeply, or contain themselves");
    known_[r] = State::no;  // the result for an object inside itself
    if (tensors_.form(r) != Tensors::Form::other) {
      known_[r] = State::yes;
      return true;
    }
    bool found = false;
    const auto look = [&](pickle::Ref child) -> Status {
      if (found) return {};
      STELE_TRY_ASSIGN(found, has_tensor(child, depth + 1));
      return {};
    };
    for (const pickle::Ref child : objects_.items(r)) STELE_TRY(look(child));
    for (const pickle::Ref child : objects_.entries(r)) STELE_TRY(look(child));
    for (const pickle::Ref child : {objects_.args(r), objects_.state(r), objects_.callable(r)}) STELE_TRY(look(child));
    if (found) known_[r] = State::yes;
    return found;
  }

 private:
  enum class State : std::uint8_t { unknown, no, yes };
  const pickle::Objects& objects_;
  const Tensors& tensors_;
  std::vector<State> known_;
};

}  // namespace stele::inline v0::detail::pytorch
