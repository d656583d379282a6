// The file of a group of changes, as write_old.cpp wrote it in one format.
#pragma once

#include <stele/recorders/binary.hpp>

#include <string>
#include <string_view>
#include <type_traits>

namespace stele_test {

template <class Format>
std::string old_file(std::string_view group) {
  const char* kind = std::is_same_v<Format, stele::CompressedSteleFormat> ? ".compressed" : "";
  return std::string(group) + kind + std::string(Format().extension());
}

}  // namespace stele_test
