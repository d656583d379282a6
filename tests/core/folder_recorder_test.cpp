// Recorders whose files are folders.
#include <stele/bundle.hpp>
#include <stele/recorder.hpp>
#include <stele/recorders/any.hpp>
#include <stele/recorders/archive.hpp>
#include <stele/recorders/safetensors.hpp>
#include <stele/recorders/samediff.hpp>

#include <doctest/doctest.h>
#include <signal.h>

#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

#include "folder_support.hpp"

namespace folder_recorder_test {

using namespace stele_test;
using namespace stele_test::folders;
using stele::Bundle;
using stele::Durability;
using stele::Errc;
using stele::FileSinkOptions;
using stele::Result;
using stele::Sink;
using stele::SourcePtr;
using stele::Status;

namespace {

/// A model as a folder: an index, and its tensors in a folder below.
class FolderFormat final : public stele::Format {
 public:
  explicit FolderFormat(bool folders = true) : folders_(folders) {}
  std::string_view name() const noexcept override { return "folder"; }
  std::string_view extension() const noexcept override { return ".model"; }
  const stele::Capabilities& capabilities() const noexcept override { return tensors_.capabilities(); }
  bool recognises(std::span<const std::byte>, std::uint64_t) const noexcept override { return false; }
  bool is_folder() const noexcept override { return folders_; }
  bool recognises_folder(const Bundle& folder) const override { return folder.contains("index").value_or(false); }
  Status may_replace(const Bundle& folder) const override {
    STELE_TRY_ASSIGN(const Names names, folder.names());
    for (const std::string& name : names) {
      if (name == "index" || name == "tensors/all") continue;
      return stele::Error(Errc::exists, "a folder with something else in it").found(name);
    }
    return {};
  }
  Result<stele::Snapshot> open(SourcePtr source, const stele::OpenContext& context) const override {
    STELE_TRY_ASSIGN(SourcePtr tensors, source->bundle()->open("tensors/all"));
    return tensors_.open(std::move(tensors), context);
  }
  Status write(const stele::Snapshot& snapshot, Sink& sink, const stele::SaveOptions& options) const override {
    const auto bundle = sink.bundle();
    STELE_TRY_ASSIGN(const auto tensors, bundle->create("tensors/all"));
    STELE_TRY(tensors_.write(snapshot, *tensors, options));
    STELE_TRY(tensors->commit());
    return put(*bundle, "index", "all\n");
  }

 private:
  stele::SafetensorsFormat tensors_;
  bool folders_;
};

using FolderRecorder = stele::Recorder<FolderFormat>;

stele::Result<stele::Report> saved_by(const FolderRecorder& recorder, float first, const std::string& path,
                                      FileSinkOptions file = fast) {
  stele::SaveOptions options;
  options.file = file;
  return recorder.save(small_mlp(first), path, options);
}

}  // namespace

TEST_CASE("folders: a recorder whose files are folders") {
  const TempDir dir;
  const FolderRecorder recorder;
  const std::string path = dir / "net";
  good(saved_by(recorder, 1, path));
  CHECK(dir.names() == Names{"net.model"});
  CHECK(names_of(dir / "net.model") == Names{"index", "tensors/all"});
  for (const auto storage : {stele::Storage::owned, stele::Storage::mmap}) {
    stele::LoadOptions options;
    options.storage = storage;
    CHECK(image(good(recorder.load<Mlp>(path, options))) == image(small_mlp(1)));
    Mlp live = small_mlp(9);
    good(recorder.load_into(live, path, options));
    CHECK(image(live) == image(small_mlp(1)));
    good(recorder.verify(path, options));
  }
  good(saved_by(recorder, 2, path));  // over its own
  CHECK(image(good(recorder.load<Mlp>(path))) == image(small_mlp(2)));
  CHECK(bad(saved_by(recorder, 3, path, {Durability::process, false, false})).code() == Errc::exists);
  write_text(dir / "net.model/mine", "x");
  const stele::Error error = bad(saved_by(recorder, 3, path));
  CHECK(error.code() == Errc::exists);
  CHECK(error.found() == "mine");
  CHECK(image(good(recorder.load<Mlp>(path))) == image(small_mlp(2)));
  good(saved_by(recorder, 3, path, {Durability::process, true}));
  CHECK(image(good(recorder.load<Mlp>(path))) == image(small_mlp(3)));
  CHECK(read_text(dir / "net.model/mine") == "x");

  stele::SaveOptions dry = quick();
  dry.dry_run = true;
  good(recorder.save(small_mlp(1), dir / "dry", dry));
  CHECK(dir.names() == Names{"net.model"});

  const auto memory = stele::memory_bundle();
  good(recorder.save(small_mlp(4), *stele::bundle_sink(memory)));
  CHECK(image(good(recorder.load<Mlp>(stele::bundle_source(memory)))) == image(small_mlp(4)));
}

TEST_CASE("folders: a format that does not know its own folders replaces none") {
  struct Unaware final : stele::Format {
    std::string_view name() const noexcept override { return "unaware"; }
    std::string_view extension() const noexcept override { return ".unaware"; }
    const stele::Capabilities& capabilities() const noexcept override { return FolderFormat().capabilities(); }
    bool recognises(std::span<const std::byte>, std::uint64_t) const noexcept override { return false; }
    bool is_folder() const noexcept override { return true; }
    Result<stele::Snapshot> open(SourcePtr, const stele::OpenContext&) const override {
      return stele::Error(Errc::unsupported);
    }
    Status write(const stele::Snapshot&, Sink& sink, const stele::SaveOptions&) const override {
      return put(*sink.bundle(), "tensors", "none");
    }
  };
  const TempDir dir;
  const stele::Recorder<Unaware> recorder;
  std::filesystem::create_directories(dir / "thesis/chapter");
  write_text(dir / "thesis/chapter/text", "years");
  const auto save = [&](const std::string& path, bool beside = false) {
    stele::SaveOptions options = quick();
    options.file.allow_nonatomic = beside;
    return code_of(recorder.save(small_mlp(1), path, options));
  };
  CHECK(save(dir / "thesis") == Errc::exists);
  CHECK(names_of(dir / "thesis") == Names{"chapter/text"});
  CHECK(save(dir / "new") == Errc::none);
  CHECK(save(dir / "new") == Errc::exists);
  CHECK(save(dir / "thesis", true) == Errc::none);
  CHECK(names_of(dir / "thesis") == Names{"chapter/text", "tensors"});
  std::filesystem::create_directory(dir / "empty");
  CHECK(save(dir / "empty") == Errc::none);
}

TEST_CASE("folders: a folder is no file, and a file no folder") {
  const TempDir dir;
  const FolderRecorder folders;
  const stele::SafetensorsRecorder<> files;
  good(saved_by(folders, 1, dir / "folder"));
  good(files.save(small_mlp(1), dir / "file", quick()));
  CHECK(bad(folders.open(dir / "file.safetensors")).code() == Errc::io);
  const stele::Error error = bad(files.load<Mlp>(dir / "folder.model"));
  CHECK(error.code() == Errc::io);
  CHECK(error.file() == dir / "folder.model");
  CHECK(error.message().find("a folder") != std::string::npos);
  CHECK(bad(folders.verify(stele::borrow_bytes({}))).code() == Errc::io);
  CHECK(bad(stele::open_archive(dir / "folder.model")).code() == Errc::io);
  CHECK(bad(stele::archive_tags(dir / "folder.model")).code() == Errc::io);

  stele::BufferSink bytes;
  CHECK(bad(folders.save(small_mlp(1), bytes)).code() == Errc::io);
  const auto memory = stele::memory_bundle();
  CHECK(bad(files.save(small_mlp(1), *stele::bundle_sink(memory))).code() == Errc::io);
  CHECK(good(memory->names()).empty());
  CHECK(bad(folders.save(small_mlp(1), dir / "file.safetensors", quick())).code() == Errc::invalid_argument);
  CHECK(bad(files.save(small_mlp(1), dir / "folder.model", quick())).code() == Errc::invalid_argument);
  CHECK(bad(stele::format_of_content(*good(stele::open_folder(dir.path())))).code() == Errc::bad_magic);
}

}  // namespace folder_recorder_test
