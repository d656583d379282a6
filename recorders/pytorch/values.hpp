// Values as Python's numbers, strings, lists and dicts in a pickle.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "encodings/pickle/pickle.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail::pytorch {

/// A kind of container of a file: "d" dict, "o" OrderedDict, "l" list, "t" tuple, "x" a tensor alone; "v" a value that
/// is a tuple. `integers`: the keys of a dict that look like integers are integers.
struct ContainerKind {
  char kind = 'o';
  bool integers = false;
};
/// By path, which is not escaped.
using ContainerKinds = std::map<std::string, ContainerKind, std::less<>>;

/// Returns the reason why a value is not written as a value of Python, or an empty string.
std::string obstacle(const Value& value);

/// Writes a value that has no obstacle(). `kinds` may be null; else it tells which lists below `path` are tuples.
void write_value(pickle::Writer& out, std::string& text, const Value& value, const ContainerKinds* kinds = nullptr,
                 std::string path = {});

/// Writes a key of a dict: an integer if `integers` and it looks like one, else a string.
void write_key(pickle::Writer& out, std::string& text, std::string_view key, bool integers);

}  // namespace stele::inline v0::detail::pytorch
