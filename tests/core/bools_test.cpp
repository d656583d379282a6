// Bytes of bools that are neither 0 nor 1: refused on save, by every format, before the old file is touched.
#include <stele/mdspan.hpp>
#include <stele/recorders/any.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <string>

#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace bools_test {

using namespace stele_test;
using stele::Errc;
using stele::Tensor;
using stele::TensorView;

namespace {

struct Switches {
  Tensor<bool, 1> on;
};
struct Views {
  TensorView<bool, 1> on;
};

void put_byte(bool* at, unsigned char byte) { std::memcpy(at, &byte, 1); }

}  // namespace

TEST_CASE("bools: other bytes than 0 and 1 are not saved") {
  for (const stele::Format* format : stele::formats()) {
    const std::string name(format->name());
    CAPTURE(name);
    if (!format->writes()) continue;
    if (format->capabilities().holds != nullptr && !format->capabilities().holds(stele::DType::boolean)) continue;
    const TempDir dir;
    const std::string path = dir / ("m" + std::string(format->extension()));
    Switches good_ones{Tensor<bool, 1>::zeros({5})};
    const stele::detail::Object whole = stele::detail::object_of(good_ones);
    good(stele::detail::save_object(*format, {}, whole, path, quick()));
    const auto names = dir.names();
    for (const int byte : {2, 128, 255}) {
      Switches bad_ones{Tensor<bool, 1>::zeros({5})};
      put_byte(&bad_ones.on.data()[3], static_cast<unsigned char>(byte));
      const Views views{TensorView<bool, 1>(bad_ones.on.data(), {5})};
      for (const stele::detail::Object object : {stele::detail::object_of(bad_ones), stele::detail::object_of(views)}) {
        for (const bool dry_run : {true, false}) {
          stele::SaveOptions options = quick();
          options.dry_run = dry_run;
          const stele::Error error = bad(stele::detail::save_object(*format, {}, object, path, options));
          CHECK(error.code() == Errc::not_representable);
          CHECK(error.path() == "on");
          CHECK(error.to_string().find("element 3") != std::string::npos);
        }
      }
    }
    CHECK(dir.names() == names);
    Switches live{Tensor<bool, 1>::filled({5}, true)};
    if (name.starts_with("burn-bin")) continue;  // needs the class's layout
    good(stele::detail::load_in_place({format}, path, *stele::detail::module_info<Switches>(), &live, {}));
    CHECK(!live.on.data()[3]);
  }
}

}  // namespace bools_test
