// Bundles in memory and in folders: names with folders in them, links, depth.
#include <stele/bundle.hpp>

#include <doctest/doctest.h>
#ifndef _WIN32
#include <sys/stat.h>
#endif

#include <filesystem>

#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

#include "folder_support.hpp"

namespace bundle_test {

using namespace stele_test;
using namespace stele_test::folders;
using stele::Bundle;
using stele::Errc;
using stele::Sink;
using stele::SourcePtr;
namespace fs = std::filesystem;

namespace {

struct InMemory {
  std::shared_ptr<Bundle> bundle = stele::memory_bundle();
};
struct InFolder {
  TempDir dir;
  std::shared_ptr<Bundle> bundle = stele::folder_bundle(dir.path(), fast);
};
struct InMappedFolder {
  TempDir dir;
  std::shared_ptr<Bundle> bundle = stele::folder_bundle(dir.path() + "/", fast, true);
};
struct InOpenFolder {
  TempDir dir;
  std::unique_ptr<Sink> sink = good(stele::folder_sink(dir / "new", fast));
  std::shared_ptr<Bundle> bundle = sink->bundle();
};

}  // namespace

TEST_CASE_TEMPLATE("bundle: names with folders in them", Place, InMemory, InFolder, InMappedFolder, InOpenFolder) {
  const Place place;
  const auto& bundle = place.bundle;
  std::string deep;
  for (int i = 0; i < 63; ++i) deep += "d/";
  for (const std::string& name :
       {std::string("/a"), std::string("a/"), std::string("a//b"), std::string("./a"), std::string("a/.."),
        std::string("a/../b"), std::string("a/b\\c"), std::string("a/b\0c", 5), deep + "d/e"}) {
    CAPTURE(name);
    CHECK(bad(bundle->open(name)).code() == Errc::invalid_argument);
    CHECK(bad(bundle->create(name)).code() == Errc::invalid_argument);
    CHECK(bad(bundle->contains(name)).code() == Errc::invalid_argument);
  }
  CHECK(good(bundle->names()).empty());
  good(put(*bundle, "b.dat", "top"));
  good(put(*bundle, "x/y/z.dat", "low"));
  good(put(*bundle, "x/a.dat", "middle"));
  good(put(*bundle, deep + "e", "deep"));
  CHECK(good(bundle->names()) == Names{"b.dat", deep + "e", "x/a.dat", "x/y/z.dat"});
  CHECK(text_in(*bundle, "x/y/z.dat") == "low");
  CHECK(text_in(*bundle, deep + "e") == "deep");
  for (const char* name : {"x", "x/y", "x/y/z.dat", "b.dat"}) CHECK(good(bundle->contains(name)));
  for (const char* name : {"y", "x/z", "x/y/z", "b.dat/c", "b"}) CHECK(!good(bundle->contains(name)));
  CHECK(bad(bundle->open("x/none")).code() == Errc::not_found);
  CHECK(bad(bundle->open("b.dat/c")).code() == Errc::not_found);
  CHECK(bad(bundle->open("x")).code() == Errc::io);
  CHECK(bad(bundle->create("b.dat/c")).code() == Errc::not_found);
  CHECK(bad(bundle->create("x/y")).code() == Errc::invalid_argument);

  // A file in a folder finds the files beside it.
  const auto below = good(bundle->open("x/y/z.dat"))->bundle();
  CHECK(good(below->names()) == Names{"z.dat"});
  CHECK(text_in(*below, "z.dat") == "low");
  const auto sink = good(bundle->create("x/new"));
  const auto beside = sink->bundle();
  CHECK(text_in(*beside, "a.dat") == "middle");
  good(put(*beside, "c/d", "beside"));
  CHECK(text_in(*bundle, "x/c/d") == "beside");
  CHECK(!good(bundle->contains("x/new")));
  CHECK(good(bundle->names()).size() == 5);  // without the unfinished one
  good(put(*bundle, "x/a.dat", "again"));
  CHECK(text_in(*bundle, "x/a.dat") == "again");
  bundle->remove("x/c/d");
  bundle->remove("x/none");
  bundle->remove("..");
  CHECK(good(bundle->names()).size() == 4);
}

#ifndef _WIN32  // links need a privilege there
TEST_CASE("bundle: links in a folder, and what is no file") {
  const TempDir dir;
  const TempDir other;
  write_text(other / "file", "x");
  fs::create_symlink(other / "file", dir / "link");
  fs::create_directory_symlink(other.path(), dir / "folder");
  fs::create_directory_symlink(dir.path(), dir / "round");
  fs::create_symlink("nothing", dir / "dangling");
  fs::create_directories(dir / "empty/below");
  REQUIRE(::mkfifo((dir / "fifo").c_str(), 0600) == 0);
  write_text(dir / "file", "x");
  CHECK(names_of(dir.path()) == Names{"file", "link"});
  CHECK(bad(stele::folder_bundle(dir / "none")->names()).code() == Errc::not_found);
  CHECK(bad(stele::folder_bundle(dir / "file")->names()).code() == Errc::not_found);
}
#endif

TEST_CASE("bundle: folders too deep to be listed") {
  const TempDir dir;
  std::string path = dir.path();
  for (int i = 0; i < 63; ++i) path += "/d";
  fs::create_directories(path);
  write_text(path + "/last", "x");
  CHECK(names_of(dir.path()).size() == 1);
  fs::create_directory(path + "/d");
  CHECK(bad(stele::folder_bundle(dir.path())->names()).code() == Errc::limit);
}

TEST_CASE("bundle: as a source and a sink") {
  const auto bundle = stele::memory_bundle();
  const auto sink = stele::bundle_sink(bundle, "place");
  CHECK(sink->name() == "place");
  CHECK(sink->is_folder());
  CHECK(sink->bundle() == bundle);
  good(sink->write(bytes_of("")));
  CHECK(bad(sink->write(bytes_of("x"))).code() == Errc::unsupported);
  good(sink->commit());
  const SourcePtr source = stele::bundle_source(bundle);
  CHECK(source->name() == "bundle");
  CHECK(source->is_folder());
  CHECK(source->size() == 0);
  CHECK(source->bundle() == bundle);
  std::byte one{};
  good(source->read_at(0, {&one, 0}));
  CHECK(bad(source->read_at(0, {&one, 1})).code() == Errc::truncated);
  CHECK(!stele::borrow_bytes({})->is_folder());
  CHECK(!stele::BufferSink().is_folder());
}

}  // namespace bundle_test
