// Names that Windows reserves: in models' folders on every system, and in the paths of users on Windows
// (windows_test.cpp saves to them there).
#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "base/reserved_names.hpp"
#include "support/temp_dir.hpp"

#include <stele/bundle.hpp>

namespace reserved_names_test {

using stele::Errc;
using stele::detail::is_reserved;
using stele::detail::reserved_part;

TEST_CASE("reserved names: devices with any extension, and ends that Windows removes") {
  for (const char* name : {"NUL",         "nul",         "NUL.safetensors",
                           "aux.x",       "prn",         "com7",
                           "COM0.tar.gz", "lpt9.bin",    "con",
                           "CoN.",        "nul .x",      "CONIN$",
                           "conout$.t",   "COM\xc2\xb9", "lpt\xc2\xb3.x",
                           "NUL:",        "nul:.bin",    "a.",
                           "a ",          "...",         " "}) {
    CAPTURE(name);
    CHECK(is_reserved(name));
    for (const char* folder : {"", "dir/", "dir\\", "./", "C:/dir/", "C:", "//server/share/", "\\\\server\\share\\"}) {
      CAPTURE(folder);
      CHECK(reserved_part(std::string(folder) + name) == name);
      CHECK(reserved_part(std::string(folder) + name + "/model.stele") == name);
    }
    for (const char* prefix : {"\\\\?\\C:\\dir\\", "\\\\.\\", "//?/C:/", "//./"}) {
      CAPTURE(prefix);
      CHECK(reserved_part(std::string(prefix) + name).empty());
    }
  }
}

TEST_CASE("reserved names: all other names") {
  for (const char* name : {"null", "nulla.x", "com", "COM10", "comx", "lpt", ".a", "a.b", ".nul", "console",
                           "auxiliary", "x.nul", "con-1", "COM\xc2\xb4", "CON\xc2\xb9", "", ".", ".."}) {
    CAPTURE(name);
    CHECK_FALSE((std::string_view(name).find_first_not_of('.') != std::string_view::npos && is_reserved(name)));
    for (const char* folder : {"", "dir/", "../", "C:\\dir\\", "//aux/nul/"}) {
      CAPTURE(folder);
      CHECK(reserved_part(std::string(folder) + name).empty());
    }
  }
}

TEST_CASE("reserved names: no file of a model's folder gets one, on any system") {
  const stele_test::TempDir dir;
  const auto folder = stele::folder_bundle(dir.path());
  for (const char* name : {"aux", "aux.bin", "layers/NUL", "com7/weights", "a./x", "a:b", "a\x01", "what?"}) {
    CAPTURE(name);
    const auto created = folder->create(name);
    REQUIRE_FALSE(created);
    CHECK(created.error().code() == Errc::invalid_argument);
  }
  CHECK(dir.names().empty());
}

}  // namespace reserved_names_test
