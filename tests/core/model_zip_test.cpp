// Zip files that contain one file of a model: the front door opens the file in place.
#include <stele/recorders/any.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace stele_test::model_zip_test {
namespace {

std::string file(const std::string& name) { return tests_folder() + "/core/data/zip/" + name; }

}  // namespace

TEST_CASE("model zip: a llamafile opens as its GGUF file") {
  for (const char* name : {"one.llamafile", "stored.zip", "behind_program.bin"}) {
    CAPTURE(name);
    const stele::Snapshot opened = good(stele::open(file(name)));
    CHECK(opened.leaf_count() == 1);
    const std::string numbers = good(content(*opened.find("token_embd.weight")));
    CHECK(numbers.substr(44) == std::string("\0\0\x30\x41", 4));
    CHECK(*good(opened.properties().at("general.architecture").to<std::string>()).data() == 'l');
    CHECK(good(stele::format_of_content(*good(stele::open_file(file(name)))))->name() == "zip");
  }
  // Stored entries are parts of the file.
  const std::string whole = read_text(file("one.llamafile"));
  const stele::Snapshot opened = good(stele::open(bytes_of(whole)));
  const auto view = opened.leaf(0).view();
  CHECK(reinterpret_cast<const char*>(view.data()) >= whole.data());
  CHECK(reinterpret_cast<const char*>(view.data()) < whole.data() + whole.size());
}

TEST_CASE("model zip: a deflated file in a folder") {
  const auto loaded = good(stele::load<std::map<std::string, stele::Tensor<float, 2>>>(file("deflated.zip")));
  CHECK(loaded.at("w")(1, 2) == 5);
  const stele::Format& format = *good(stele::format_of_content(*good(stele::open_file(file("deflated.zip")))));
  CHECK(format.name() == "zip");
  CHECK(stele::verify(format, file("deflated.zip")));
  stele::SaveOptions options;
  options.format = &format;
  CHECK(code_of(stele::save(loaded, "/none/x.zip", options)) == stele::Errc::unsupported);
}

TEST_CASE("model zip: a verification checks the CRC of a stored file") {
  std::string whole = read_text(file("one.llamafile"));
  const stele::Format& format = *good(stele::format_of_content(*good(stele::open_file(file("one.llamafile")))));
  CHECK(good(stele::verify(format, bytes_of(whole))).paths(stele::Report::What::unchecked).size() == 1);
  const auto at = whole.find(std::string("\0\0\x30\x41", 4));  // the last number, 11
  whole[at + 2] = '\x31';
  CHECK(stele::open(bytes_of(whole)));
  CHECK(code_of(stele::verify(format, bytes_of(whole))) == stele::Errc::checksum);
}

TEST_CASE("model zip: several files of models, and none") {
  const stele::Error several = bad(stele::open(file("two.llamafile")));
  CHECK(several.code() == stele::Errc::malformed);
  CHECK(several.found() == "model.gguf, mmproj.gguf");
  CHECK(several.hint() == "extract one of the files");
  CHECK(code_of(stele::open(file("nothing.zip"))) == stele::Errc::bad_magic);
}

TEST_CASE("model zip: damaged files are errors or open") {
  for (const char* name : {"one.llamafile", "behind_program.bin", "deflated.zip"}) {
    CAPTURE(name);
    const std::string whole = read_text(file(name));
    for (std::size_t n = 0; n < whole.size(); ++n) {
      CHECK_FALSE(stele::open(bytes_of(std::string_view(whole).substr(0, n))));
      std::string damaged = whole;
      damaged[n] = static_cast<char>(damaged[n] ^ 0xff);
      const auto opened = stele::open(bytes_of(damaged));
      if (!opened) continue;
      for (std::size_t i = 0; i < opened->leaf_count(); ++i) static_cast<void>(content(opened->leaf(i)));
    }
  }
}

TEST_CASE("model zip: archives and arrays keep their formats") {
  const TempDir dir;
  const std::map<std::string, std::vector<float>> model{{"w", {1, 2}}};
  for (const char* name : {"m.zip", "m.npz", "m.pt", "m.sdz"}) {
    CAPTURE(name);
    const auto format = stele::format_of_path(name);
    if (!format) continue;
    good(stele::save(model, dir / name, quick()));
    CHECK(good(stele::format_of_content(*good(stele::open_file(dir / name))))->name() == (*format)->name());
  }
}

}  // namespace stele_test::model_zip_test
