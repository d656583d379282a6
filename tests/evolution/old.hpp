// The file of a group of changes, as write_old.cpp wrote it in one format.
#pragma once

#include <stele/recorders/binary.hpp>

#include <string>
#include <string_view>

namespace stele_test {

inline std::string old_file(const stele::Format& format, std::string_view group) {
  const bool compressed = dynamic_cast<const stele::CompressedSteleFormat*>(&format) != nullptr;
  return std::string(group) + (compressed ? ".compressed" : "") + std::string(format.extension());
}

}  // namespace stele_test
