// Writes values as Python's numbers, strings, lists and dicts into a pickle.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "encodings/pickle/pickle.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail::pytorch {

/// A kind of container of a file: "d" dict, "o" OrderedDict, "l" list, "t" tuple, "x" a single tensor or value; "v" a
/// value that is a tuple. `integers`: keys of a dict that look like integers are integers.
struct ContainerKind {
  char kind = 'o';
  bool integers = false;
};
/// Maps unescaped paths to kinds of containers.
using ContainerKinds = std::map<std::string, ContainerKind, std::less<>>;

/// Returns the reason why a value has no Python form, or an empty string.
std::string obstacle(const Value& value);

/// Writes a value that has no obstacle(). If `kinds` is not null, it contains the kinds of the containers below `path`,
/// such as the lists that are tuples.
void write_value(pickle::Writer& out, std::string& text, const Value& value, const ContainerKinds* kinds = nullptr,
                 std::string path = {});

/// Writes a key of a dict: as an integer if `integers` is set and the key looks like an integer, else as a string.
void write_key(pickle::Writer& out, std::string& text, std::string_view key, bool integers);

}  // namespace stele::inline v0::detail::pytorch
