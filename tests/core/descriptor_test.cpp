// Parts of open files as sources: models inside other files, mapped and read.
#include <stele/recorders/any.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "io/os/os.hpp"
#include "support/models.hpp"
#include "support/temp_dir.hpp"
#ifndef _WIN32
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

namespace descriptor_test {

namespace {

using namespace stele;
namespace os = detail::os;
using stele_test::bad;
using stele_test::good;
using stele_test::TempDir;
using stele_test::write_text;

/// Opens a part of the file at a path; its own handle is closed at once.
Result<SourcePtr> open_part(const std::string& path, ByteRange part, bool mapped) {
  const os::File file = good(os::open_for_reading(path));
  return open_descriptor(file.handle(), part, mapped, "part");
}

std::string text_of(const Source& source) {
  std::string text(static_cast<std::size_t>(source.size()), '\0');
  good(source.read_at(0, std::as_writable_bytes(std::span(text))));
  return text;
}

/// The tensors and the metadata of a model, or the error of opening it.
struct Outcome {
  Errc error = Errc::none;
  std::vector<std::tuple<std::string, DType, std::vector<Extent>, std::string>> tensors;
  std::map<std::string, std::string> metadata;
  bool operator==(const Outcome&) const = default;
};

Outcome outcome_of(const SourcePtr& source) {
  const auto format = format_of_content(*source);
  if (!format) return {format.error().code(), {}, {}};
  const auto snapshot = open(**format, source);
  if (!snapshot) return {snapshot.error().code(), {}, {}};
  Outcome outcome;
  for (std::size_t i = 0; i < snapshot->leaf_count(); ++i) {
    const LeafView leaf = snapshot->leaf(i);
    std::string bytes(static_cast<std::size_t>(leaf.byte_size()), '\0');
    const Status read = leaf.read(0, std::as_writable_bytes(std::span(bytes)));
    if (!read) bytes = std::string(name(read.error().code()));
    outcome.tensors.emplace_back(leaf.path(), leaf.dtype(),
                                 std::vector<Extent>(leaf.shape().begin(), leaf.shape().end()), bytes);
  }
  for (const auto& [key, value] : snapshot->metadata()) outcome.metadata.emplace(key, value);
  return outcome;
}

struct Model {
  Tensor<float, 2> weight;
  Tensor<std::int32_t, 1> steps;
};

Model model() {
  Model m{Tensor<float, 2>({40, 50}), Tensor<std::int32_t, 1>({3}, {1, 2, 3})};
  for (std::size_t i = 0; i < m.weight.size(); ++i) m.weight.data()[i] = static_cast<float>(i);
  return m;
}

}  // namespace

TEST_CASE("descriptor: a model inside another file opens as it does alone") {
  const TempDir dir;
  std::vector<std::string> files;
  for (const char* const format : {"gguf", "numpy", "pytorch", "safetensors"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(stele_test::test_data(format))) {
      if (entry.is_regular_file() && entry.file_size() < 100'000) files.push_back(entry.path().string());
    }
  }
  for (const char* const name : {"m.stele", "m.json", "m.npz", "m.pt"}) {
    good(save(model(), dir / name));
    files.push_back(dir / name);
  }
  std::sort(files.begin(), files.end());
  const std::string path = dir / "larger";
  std::size_t opened = 0;
  for (const std::string& file : files) {
    const std::string text = stele_test::read_text(file);
    // The same name, which is that of an .npy file's array.
    const auto bytes = std::as_bytes(std::span(text));
    const Outcome alone = outcome_of(own_bytes(std::vector<std::byte>(bytes.begin(), bytes.end()), "part"));
    opened += alone.error == Errc::none;
    for (const std::size_t offset : {std::size_t{8}, std::size_t{4097}}) {
      write_text(path, std::string(offset, '#') + text + std::string(100, '#'));
      for (const bool mapped : {false, true}) {
        CAPTURE(file);
        CAPTURE(offset);
        CAPTURE(mapped);
        const SourcePtr source = good(open_part(path, {offset, text.size()}, mapped));
        CHECK(source->view().empty() == (!mapped || text.empty()));
        CHECK(outcome_of(source) == alone);
      }
    }
  }
  CHECK(opened > files.size() / 2);
}

TEST_CASE("descriptor: tensors view a part that is aligned, and change no file") {
  const TempDir dir;
  const std::string path = dir / "larger";
  good(save(model(), dir / "m.safetensors"));
  const std::string text = stele_test::read_text(dir / "m.safetensors");
  for (const std::size_t offset : {std::size_t{64}, std::size_t{4097}}) {
    CAPTURE(offset);
    const std::string all = std::string(offset, '#') + text;
    write_text(path, all);
    Report report;
    Model loaded = good(load<Model>(good(open_part(path, {offset, text.size()}, true)), {.report = &report}));
    CHECK(!loaded.weight.is_view());
    loaded = good(
        load<Model>(good(open_part(path, {offset, text.size()}, true)), {.storage = Storage::mmap, .report = &report}));
    CHECK(loaded.weight.is_view() == (offset == 64));
    CHECK(report.count(Report::What::copied) == (offset == 64 ? 0 : 2));
    CHECK(loaded.weight(1, 2) == 52);
    loaded.weight(1, 2) = -1;
    loaded.steps.data()[0] = 9;
    CHECK(loaded.weight(1, 2) == -1);
    CHECK(stele_test::read_text(path) == all);
  }
}

TEST_CASE("descriptor: the range is checked against the file") {
  const TempDir dir;
  const std::string path = dir / "file";
  write_text(path, "0123456789");
  struct Row {
    ByteRange part;
    Errc error;
    std::string text;
  };
  constexpr std::uint64_t end = ByteRange::to_end;
  const Row rows[] = {
      {{0, 10}, Errc::none, "0123456789"},
      {{0, end}, Errc::none, "0123456789"},
      {{7, end}, Errc::none, "789"},
      {{2, 3}, Errc::none, "234"},
      {{10, 0}, Errc::none, ""},
      {{10, end}, Errc::none, ""},
      {{0, 0}, Errc::none, ""},
      {{0, 11}, Errc::truncated, ""},
      {{5, 6}, Errc::truncated, ""},
      {{11, 0}, Errc::truncated, ""},
      {{11, end}, Errc::truncated, ""},
      {{5, end - 1}, Errc::truncated, ""},  // the sum wraps around
      {{end, end}, Errc::truncated, ""},
      {{end, 1}, Errc::truncated, ""},
  };
  for (const Row& row : rows) {
    for (const bool mapped : {false, true}) {
      CAPTURE(row.part.offset);
      CAPTURE(row.part.size);
      CAPTURE(mapped);
      const auto source = open_part(path, row.part, mapped);
      CHECK((source ? Errc::none : source.error().code()) == row.error);
      if (!source) {
        CHECK(source.error().file() == "part");
        continue;
      }
      CHECK(text_of(**source) == row.text);
      CHECK((*source)->name() == "part");
      CHECK((*source)->bundle() == nullptr);
      // Its bytes are at the same offsets as the file's.
      CHECK(((*source)->file() != nullptr) == (!mapped && row.part.offset == 0));
      std::byte byte{};
      CHECK(bad((*source)->read_at(row.text.size(), {&byte, 1})).code() == Errc::truncated);
      if (mapped) continue;
      const auto view = (*source)->mapped();
      REQUIRE(view != nullptr);
      CHECK(text_of(*view) == row.text);
    }
  }
}

#ifndef _WIN32
TEST_CASE("descriptor: what is not an open regular file, and what the source leaves alone") {
  const TempDir dir;
  write_text(dir / "file", "0123456789");
  REQUIRE(::mkfifo((dir / "fifo").c_str(), 0600) == 0);
  CHECK(bad(open_descriptor(-1)).code() == Errc::invalid_argument);
  CHECK(bad(open_descriptor(100'000)).code() == Errc::invalid_argument);
  CHECK(bad(open_part(dir.path(), {}, false)).code() == Errc::io);
  CHECK(bad(open_part(dir / "fifo", {}, false)).code() == Errc::io);
  const int only_written = ::open((dir / "file").c_str(), O_WRONLY | O_CLOEXEC);
  for (const bool mapped : {false, true}) {
    std::byte byte{};
    CHECK(bad(good(open_descriptor(only_written, {0, 1}, mapped))->read_at(0, {&byte, 1})).code() == Errc::io);
  }
  ::close(only_written);

  const int file = ::open((dir / "file").c_str(), O_RDONLY);
  REQUIRE(::lseek(file, 4, SEEK_SET) == 4);
  const SourcePtr source = good(open_descriptor(file, {2, 5}));
  CHECK(text_of(*source) == "23456");
  CHECK(::lseek(file, 0, SEEK_CUR) == 4);
  CHECK((::fcntl(source->mapped() != nullptr ? file : -1, F_GETFD) & FD_CLOEXEC) == 0);  // of the caller's own
  ::close(file);
  CHECK(text_of(*source) == "23456");
}

TEST_CASE("descriptor: a part beyond 4 GiB") {
  const TempDir dir;
  good(save(model(), dir / "m.safetensors"));
  const std::string text = stele_test::read_text(dir / "m.safetensors");
  const std::uint64_t offset = (std::uint64_t{1} << 32) + 4096;
  {
    std::ofstream file(dir / "sparse", std::ios::binary);
    file.seekp(static_cast<std::streamoff>(offset));
    file.write(text.data(), static_cast<std::streamsize>(text.size()));
    REQUIRE(file.flush());
  }
  for (const bool mapped : {false, true}) {
    LoadOptions options;
    options.storage = mapped ? Storage::mmap : Storage::owned;
    const Model loaded = good(load<Model>(good(open_part(dir / "sparse", {offset, text.size()}, mapped)), options));
    CHECK(loaded.weight.is_view() == mapped);
    CHECK(loaded.weight(39, 49) == 1999);
  }
}
#endif

}  // namespace descriptor_test
