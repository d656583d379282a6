// Files that deltas change in place, and each form of a path in the functions of the library.
#include <stele/bundle.hpp>
#include <stele/delta.hpp>
#include <stele/deltas/updates.hpp>
#include <stele/recorders/any.hpp>
#include <stele/recorders/archive.hpp>
#include <stele/recorders/binary.hpp>
#include <stele/recorders/safetensors.hpp>
#include <stele/recover.hpp>

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "support/temp_dir.hpp"

namespace in_place_files_test {

namespace {

using namespace stele;
using stele_test::TempDir;
using Weights = std::map<std::string, std::vector<float>>;
using Files = std::map<std::string, std::string>;

std::string bytes_of(const std::string& path) {
  std::string bytes(std::filesystem::file_size(path), '\0');
  std::ifstream(path, std::ios::binary).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

void write(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

/// Works in a folder as long as it lives.
class In {
 public:
  explicit In(const std::string& folder) : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(folder);
  }
  In(const In&) = delete;
  In& operator=(const In&) = delete;
  ~In() { std::filesystem::current_path(before_); }

 private:
  std::filesystem::path before_;
};

Weights weights(float number) { return {{"a", {1, 2, number}}, {"b", std::vector<float>(70, number)}}; }

/// Makes old.safetensors, new.safetensors and delta.stele.
void make_versions(const std::string& folder) {
  save(weights(3), folder + "/old.safetensors").value();
  save(weights(4), folder + "/new.safetensors").value();
  const Snapshot old = open(folder + "/old.safetensors").value(), now = open(folder + "/new.safetensors").value();
  save(make_delta(old, now).value(), folder + "/delta.stele").value();
}

template <class Result>
Status done(const Result& result) {
  return result ? Status() : Status(result.error());
}

}  // namespace

TEST_CASE("paths: each form works in each function that writes or reads a file") {
  struct Row {
    std::string name;
    std::function<Status(const std::function<std::string(const char*)>&)> call;
  };
  using At = std::function<std::string(const char*)>;
  const std::vector<Row> rows{
      {"save, load",
       [](const At& at) -> Status {
         STELE_TRY(done(save(weights(5), at("x.stele"))));
         STELE_TRY_ASSIGN(const Weights found, load<Weights>(at("x.stele")));
         CHECK(found == weights(5));
         return {};
       }},
      {"save a folder",
       [](const At& at) -> Status {
         STELE_TRY(done(save(weights(5), at("hub"), {.format = HubFormat()})));
         return done(open(at("hub")));
       }},
      {"save shards", [](const At& at) { return done(save(weights(5), at("s.safetensors.index.json"))); }},
      {"an archive's tags",
       [](const At& at) -> Status {
         const Checkpoint content{open(at("old.safetensors")).value(), {}, {}, {}};
         const ArchiveRecorder<> recorder;
         STELE_TRY(done(save(weights(5), at("x.zip"))));
         STELE_TRY(done(recorder.edit(content, at("x.zip"), "two", ArchiveEdit::append)));
         return remove_archive_tag(at("x.zip"), "two");
       }},
      {"a change in place",
       [](const At& at) -> Status {
         const std::vector<std::string> deltas{at("delta.stele")};
         STELE_TRY_ASSIGN(const bool changed, apply_in_place(at("old.safetensors"), deltas));
         CHECK(changed);
         CHECK(bytes_of(at("old.safetensors")) == bytes_of(at("new.safetensors")));
         STELE_TRY_ASSIGN(const bool again, apply_in_place(at("old.safetensors"), deltas));
         CHECK_FALSE(again);
         STELE_TRY_ASSIGN(const bool interrupted, apply_in_place(at("old.safetensors"), {}));
         CHECK_FALSE(interrupted);
         return {};
       }},
      {"deltas", [](const At& at) { return done(open_with_deltas(at("old.safetensors"), {at("delta.stele")})); }},
      {"an update",
       [](const At& at) -> Status {
         const Snapshot old = open(at("old.safetensors")).value(), now = open(at("new.safetensors")).value();
         STELE_TRY(done(save_update(old, now, at("update"), {})));
         return done(apply_update(old, at("update")));
       }},
      {"recover", [](const At& at) { return done(recover(at("old.safetensors"))); }},
      {"sources and sinks",
       [](const At& at) -> Status {
         STELE_TRY_ASSIGN(const auto sink, file_sink(at("bytes")));
         STELE_TRY(sink->write(std::as_bytes(std::span("abc"))));
         STELE_TRY(sink->commit());
         STELE_TRY(done(map_file(at("bytes"))));
         return done(open_file(at("bytes")));
       }},
  };
  struct Form {
    std::string name;
    std::function<std::string(const std::string&, const char*)> path;
  };
  const std::vector<Form> forms{
      {"bare", [](const std::string&, const char* name) { return std::string(name); }},
      {"dot", [](const std::string&, const char* name) { return "./" + std::string(name); }},
      {"parent", [](const std::string&, const char* name) { return "sub/../" + std::string(name); }},
      {"absolute", [](const std::string& folder, const char* name) { return folder + "/" + name; }},
#ifndef _WIN32
      {"through a link", [](const std::string&, const char* name) { return "here/" + std::string(name); }},
#endif
  };
  for (const Form& form : forms) {
    for (const Row& row : rows) {
      CAPTURE(form.name);
      CAPTURE(row.name);
      const TempDir dir;
      const std::string folder = dir / "run";
      std::filesystem::create_directories(folder + "/sub");
#ifndef _WIN32
      std::filesystem::create_directory_symlink(".", folder + "/here");
#endif
      make_versions(folder);
      const In in(folder);
      const Status status = row.call([&](const char* name) { return form.path(folder, name); });
      REQUIRE_MESSAGE(status, status.error().to_string());
      for (const auto& name : stele_test::names_in(folder)) CHECK_FALSE(name.ends_with(".tmp"));
    }
  }
}

TEST_CASE("in place: a file with a journal beside it is not opened, and a save replaces both") {
  const TempDir dir;
  make_versions(dir / "");
  const std::string path = dir / "old.safetensors", journal = path + ".stele-journal";
  const std::string before = bytes_of(path);
  const std::vector<std::string> deltas{dir / "delta.stele"};
  for (const std::string& content :
       {std::string(), std::string("stele journal 1\n"), std::string("stele journal 2\n"), std::string(1000, 'x')}) {
    write(journal, content);
    LoadOptions mapped;
    mapped.storage = Storage::mmap;
    for (const LoadOptions& options : {LoadOptions(), mapped}) {
      const auto opened = open(path, options);
      REQUIRE_FALSE(opened);
      CHECK(opened.error().code() == Errc::malformed);
      CHECK(opened.error().hint().find("--in-place") != std::string::npos);
    }
    CHECK_FALSE(open_folder(dir / "").value()->bundle()->open("old.safetensors"));
    CHECK(apply_in_place(path, deltas).error().code() == Errc::malformed);
    CHECK(apply_in_place(path, {}).error().code() == Errc::malformed);
    CHECK(bytes_of(path) == before);
    CHECK(bytes_of(journal) == content);
  }
  save(weights(9), path).value();
  CHECK_FALSE(std::filesystem::exists(journal));
  CHECK(load<Weights>(path).value() == weights(9));
}

}  // namespace in_place_files_test
