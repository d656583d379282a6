// Burnpack files that Burn wrote: read whole, and written again byte by byte.
#include <doctest/doctest.h>

#include <bit>
#include <cctype>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "support/burn_net.hpp"
#include "support/burnpack.hpp"
#include "support/golden_text.hpp"
#include "support/left_out.hpp"
#include "support/random_model.hpp"
#include "support/temp_dir.hpp"

namespace burnpack_burn_test {

namespace {

using namespace stele;
using namespace stele_test;

}  // namespace

TEST_CASE("burnpack: a file of Burn's examples") {
  const auto path = shared_file("fixtures/burn/mnist-web-head.bpk");
  if (!path) return;
  const std::string file = read_text(*path);
  const Snapshot snapshot = opened(file);
  REQUIRE(snapshot.leaf_count() == 18);
  CHECK(snapshot.leaf(0).path() == "conv1.conv.weight");
  CHECK(snapshot.leaf(0).id() == ParamId::from_u64(10777079075451239370U));
  CHECK(Shape(snapshot.leaf(0).shape()) == Shape({64, 1, 3, 3}));
  CHECK(content(snapshot.leaf(0)).value() == in_file_order(file.substr(1536, 2304), DType::f32));
  CHECK(snapshot.leaf(1).path() == "conv1.conv.bias");
  CHECK(snapshot.leaf(1).id() == ParamId::from_u64(9505838338724798577U));
  CHECK(snapshot.leaf(17).path() == "fc3.bias");
  CHECK(content(snapshot.leaf(17)).value() == in_file_order(file.substr(1536 + 1043200), DType::f32));
  CHECK(content(*snapshot.find("fc1.weight")).value() == in_file_order(file.substr(1536 + 152320, 819200), DType::f32));
  CHECK(written(snapshot) == file);
  CHECK(burnpack.verify(bytes_of(file)));
  // Cut by as much as its padding has: as long as one of 0.19 would be.
  CHECK(burnpack.open(bytes_of(file.substr(0, file.size() - 128))).error().code() == Errc::truncated);
}

TEST_CASE("burnpack: files that releases of Burn wrote") {
  const std::string folder = test_data("burn");
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string path = entry.path().string();
    if (entry.path().extension() != ".bpk") continue;
    CAPTURE(path);
    ++files;
    const std::string file = read_text(path);
    const Snapshot snapshot = opened(file);
    const bool model = entry.path().filename().string().starts_with("net");
    const Snapshot compared = model ? stele::with_precision(snapshot, DType::f32) : snapshot;
    // products.json has the contents of the others.
    if (entry.path().parent_path().filename() != "products") CHECK(burn_net::difference(compared, path, model) == "");
    CHECK(burnpack.verify(bytes_of(file)));
    // Before 0.20 nothing was aligned. Some of the others hold positive scalars of the kind Int, or bools of 0.20
    // without a word of who wrote them.
    const bool other = path.find("dtypes") != path.npos || path.find("scalars") != path.npos;
    const bool exact = path.find("/0.19") == path.npos && (!other || path.find("/0.21") != path.npos);
    if (exact) CHECK(written(snapshot) == file);
    CHECK(difference(facts(snapshot, burnpack.format().capabilities()),
                     facts(opened(written(snapshot)), burnpack.format().capabilities())) == "");
  }
  CHECK(files != 0);
}

}  // namespace burnpack_burn_test
