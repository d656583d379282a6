// The golden files and fuzz seeds, which CMake unpacks from tests/**/data.zip and tests/**/corpus.zip.
#pragma once

#include <string>

namespace stele_test {

/// Returns the path of the unpacked files; below it, each file has its path below tests/.
const std::string& test_data();

}  // namespace stele_test
