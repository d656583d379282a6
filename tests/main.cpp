#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include "support/temp_dir.hpp"

// Only this file is compiled with the path, so that a compiler cache serves every checkout.
const std::string& stele_test::tests_folder() {
  static const std::string folder = STELE_TESTS_FOLDER;
  return folder;
}

std::string stele_test::test_data(std::string_view format) {
  return tests_folder() + "/formats/" + std::string(format) + "/data";
}
