// Zip files of other programs: what stands before the first entry, and names.
#include <stele/recorders/any.hpp>
#include <stele/recorders/numpy.hpp>

#include "encodings/zip_support.hpp"
#include "support/models.hpp"

namespace zip_foreign_test {

namespace {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;

const std::string array = [] {
  const Bytes bytes = good(saved(NpyRecorder<>(), Tensor<float>({2}, {1, 2})));
  return std::string(text_of(bytes.span()));
}();

}  // namespace

TEST_CASE("zip: a deflated folder before the first file") {
  RawMember folder("d/", "\3\0"s);
  folder.method = 8, folder.size = 0, folder.crc = 0;
  RawMember described = folder;
  described.flags = 1U << 3;
  described.local_compressed = described.local_size = described.local_crc = 0;
  described.behind = "PK\7\10"s + std::string(4, '\0') + "\2\0\0\0"s + std::string(4, '\0');
  for (const RawMember& first : {folder, described}) {
    const std::string file = raw({first, RawMember("d/w.npy", array)}).make();
    const Snapshot opened = good(stele::open(bytes_of(file)));
    REQUIRE(opened.find("d/w"));
    CHECK(content(*opened.find("d/w")));
  }
}

TEST_CASE("zip: names with a colon") {
  const std::string file = raw({RawMember("W:0.npy", array), RawMember("b:0.npy", array)}).make();
  const Snapshot opened = good(stele::open(bytes_of(file)));
  CHECK(opened.find("W:0"));
  const Bytes again = good(saved(NpzRecorder<>(), opened));
  CHECK(text_of(again.span()).find("W:0.npy") != std::string_view::npos);
  // NumPy reads every name.
  CHECK(zip_error(raw({RawMember("C:", array)}).make()) == Errc::none);
  const std::string drive = raw({RawMember("C:/w.npy", array)}).make();
  const Snapshot read = good(stele::open(bytes_of(drive)));
  CHECK(read.find("C:/w"));
}

}  // namespace zip_foreign_test
