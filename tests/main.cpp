#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <stele/config.hpp>

#include <cfloat>  // DBL_EPSILON, which doctest does not include
//
#include <doctest/doctest.h>

#include <string>
#include <string_view>

// Declared here and in support/: temp_dir.hpp includes <random>, which does not compile after <cfloat> on macOS.
namespace stele_test {
const std::string& tests_folder();
const std::string& test_data();
std::string test_data(std::string_view format);
}  // namespace stele_test

// Only this file is compiled with the paths and the version, so that a compiler cache serves every checkout.
const std::string& stele_test::tests_folder() {
  static const std::string folder = STELE_TESTS_FOLDER;
  return folder;
}

const std::string& stele_test::test_data() {
  static const std::string folder = STELE_TEST_DATA;
  return folder;
}

std::string stele_test::test_data(std::string_view format) {
  return test_data() + "/formats/" + std::string(format) + "/data";
}

TEST_CASE("version: the macros are CMake's version") {
  CHECK(std::string_view(STELE_VERSION_STRING) == STELE_PROJECT_VERSION);
  CHECK(std::to_string(STELE_VERSION_MAJOR) + "." + std::to_string(STELE_VERSION_MINOR) + "." +
            std::to_string(STELE_VERSION_PATCH) ==
        STELE_PROJECT_VERSION);
#if STELE_VERSION < 200
  FAIL("STELE_VERSION is older than 0.2.0, which introduced it");
#endif
}
