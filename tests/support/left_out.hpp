// Support for tests that need resources that may be missing: files of the shared folder, mounts, abilities of a file
// system.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "support/temp_dir.hpp"

namespace stele_test {

/// Prints that the rest of a test case does not run, and the reason. With STELE_NEVER_SKIP=1, the test case fails.
inline void left_out(std::string_view why) {
  const std::string text(why);
  if (std::getenv("STELE_NEVER_SKIP") != nullptr) FAIL("left out: " << text);
  MESSAGE("left out: " << text);
}

/// Returns the path of a file or folder in the shared folder: STELE_SHARED, or `shared` next to the checkout. If it is
/// missing, calls left_out() and returns nullopt.
inline std::optional<std::string> shared_file(std::string_view name) {
  const char* const shared = std::getenv("STELE_SHARED");
  const auto path =
      (shared != nullptr ? std::filesystem::path(shared) : std::filesystem::path(tests_folder()) / "../../shared") /
      name;
  if (std::filesystem::exists(path)) return path.string();
  left_out("missing: " + path.string());
  return std::nullopt;
}

}  // namespace stele_test
