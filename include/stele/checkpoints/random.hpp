// Saves and restores the state of random number generators, for a run that continues bit for bit.
#pragma once

#include <locale>
#include <sstream>
#include <string>

#include "stele/result.hpp"
#include "stele/value.hpp"

namespace stele::inline v0 {

/// Returns the state of an engine or a distribution of the standard header `random`, as the text that its operator<<
/// writes ([rand.req.eng], [rand.req.dist] of the C++ standard). Engines of the same type read each other's text on
/// every machine; the text of a distribution is specific to the standard library.
template <class Random>
Value random_state(const Random& random) {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text << random;
  return Value(std::move(text).str());
}

/// Sets the state from such a text. Errors: missing (null), value_mismatch (not a string), malformed; `random` is then
/// unchanged.
template <class Random>
Status set_random_state(Random& random, const Value* state) {
  if (state == nullptr) return Error(Errc::missing, "the checkpoint does not have the random state");
  const std::string* text = state->as_string();
  if (text == nullptr) {
    return Error(Errc::value_mismatch, "the random state is not a string").found(name(state->kind()));
  }
  std::istringstream in(*text);
  in.imbue(std::locale::classic());
  Random read;
  in >> read;
  if (in.fail()) return Error(Errc::malformed, "the text is not a state of this random generator");
  random = read;
  return {};
}

}  // namespace stele::inline v0
