#include "stele/source.hpp"

#include <doctest/doctest.h>
#ifndef _WIN32
#include <sys/stat.h>
#endif

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <new>
#include <sstream>
#include <streambuf>
#include <string>
#include <thread>
#include <vector>

#include "support/temp_dir.hpp"

namespace source_test {

namespace {

using namespace stele;
using stele_test::TempDir;
using stele_test::write_text;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// `size` bytes from `offset` on.
std::string text_at(const Source& source, std::uint64_t offset, std::size_t size) {
  std::string text(size, '\0');
  source.read_at(offset, std::as_writable_bytes(std::span(text.data(), text.size()))).value();
  return text;
}

Status read(const Source& source, std::uint64_t offset, std::size_t size) {
  std::vector<std::byte> out(size);
  return source.read_at(offset, out);
}

/// Byte i of a large test file.
std::byte pattern(std::uint64_t i) { return static_cast<std::byte>((i * 2654435761U) >> 16U); }

std::string pattern_text(std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(pattern(i));
  return text;
}

using Opener = Result<SourcePtr> (*)(const std::string&);

/// A stream that cannot seek, gives at most `step` bytes a call and at the end does as told.
class SlowBuffer : public std::streambuf {
 public:
  SlowBuffer(std::string text, std::size_t step) : text_(std::move(text)), step_(step) {}
  bool fails_at_end = false;
  bool out_of_memory_at_end = false;

 private:
  int_type underflow() override {
    if (at_ == text_.size()) {
      if (out_of_memory_at_end) throw std::bad_alloc();
      if (fails_at_end) throw std::runtime_error("the line went dead");
      return traits_type::eof();
    }
    const std::size_t size = std::min(step_, text_.size() - at_);
    setg(text_.data() + at_, text_.data() + at_, text_.data() + at_ + size);
    at_ += size;
    return traits_type::to_int_type(*gptr());
  }
  std::string text_;
  std::size_t step_;
  std::size_t at_ = 0;
};

}  // namespace

TEST_CASE("bytes: aligned, movable, of any size") {
  for (const std::size_t size : {std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{1000},
                                 (std::size_t{2} << 20) + 1, std::size_t{4} << 20, (std::size_t{9} << 20) + 5}) {
    Bytes bytes(size);
    CHECK(reinterpret_cast<std::uintptr_t>(bytes.data()) % 64 == 0);
    bytes.data()[0] = std::byte{1};
    bytes.data()[size - 1] = std::byte{2};
    Bytes other = std::move(bytes);
    CHECK(other.size() == size);
    CHECK(other.data()[size - 1] == std::byte{2});
    CHECK(bytes.empty());  // NOLINT(bugprone-use-after-move)
    other.truncate(size / 2);
    CHECK(other.size() == size / 2);
    other = Bytes(3);
    CHECK(other.size() == 3);
  }
  CHECK(Bytes(0).data() == nullptr);
}

TEST_CASE("source: read and mapped files") {
  const TempDir dir;
  for (const Opener open : {Opener(&open_file), Opener(&map_file)}) {
    const std::string path = dir / "file";
    write_text(path, "0123456789");
    const SourcePtr source = open(path).value();
    CHECK(source->size() == 10);
    CHECK(source->name() == path);
    CHECK(text_at(*source, 0, 10) == "0123456789");
    CHECK(text_at(*source, 7, 3) == "789");
    CHECK(text_at(*source, 10, 0).empty());

    const Status beyond = read(*source, 8, 3);
    REQUIRE(!beyond);
    CHECK(beyond.error().code() == Errc::truncated);
    CHECK(beyond.error().offset() == 8);
    CHECK(beyond.error().expected() == "3 bytes");
    CHECK(beyond.error().found() == "2 bytes");
    CHECK(beyond.error().file() == path);
    CHECK(read(*source, 11, 0).error().code() == Errc::truncated);
    CHECK(read(*source, 11, 1).error().found() == "0 bytes");
    // Here offset + size wraps around.
    CHECK(read(*source, std::numeric_limits<std::uint64_t>::max(), 2).error().code() == Errc::truncated);

    // The bytes stay readable after the name has gone.
    std::filesystem::remove(path);
    CHECK(text_at(*source, 3, 2) == "34");

    const std::string empty = dir / "empty";
    write_text(empty, "");
    const SourcePtr nothing = open(empty).value();
    CHECK(nothing->size() == 0);
    CHECK(nothing->view().empty());
    CHECK(read(*nothing, 0, 0));
    CHECK(read(*nothing, 0, 1).error().code() == Errc::truncated);
  }
}

TEST_CASE("source: a mapping has memory that may be written to without changing the file") {
  const TempDir dir;
  const std::string path = dir / "file";
  const std::string text = pattern_text(5'000'000);
  write_text(path, text);
  const SourcePtr read = open_file(path).value();
  CHECK(read->view().empty());
  CHECK(read->writable_view({0, 10}) == nullptr);
  const SourcePtr mapped = map_file(path).value();
  REQUIRE(text_of(mapped->view()) == text);
  // In any order, in overlapping parts, at both ends.
  std::string changed = text;
  for (const std::uint64_t at : {2'500'000ULL, 0ULL, 4'999'990ULL, 2'097'150ULL, 2'500'005ULL}) {
    CAPTURE(at);
    std::byte* const memory = mapped->writable_view({at, 10});
    REQUIRE(memory != nullptr);
    CHECK(text_of({memory, 10}) == changed.substr(static_cast<std::size_t>(at), 10));
    for (std::size_t i = 0; i < 10; ++i) {
      memory[i] = std::byte{'X'};
      changed[static_cast<std::size_t>(at) + i] = 'X';
    }
  }
  std::byte* const all = mapped->writable_view({0, text.size()});
  REQUIRE(all != nullptr);
  all[1'000'000] = std::byte{'Y'};
#ifndef _WIN32  // whose writable memory is another mapping of these bytes
  changed[1'000'000] = 'Y';
  CHECK(text_of(mapped->view()) == changed);
#endif
  CHECK(stele_test::read_text(path) == text);
  CHECK(text_of(map_file(path).value()->view()) == text);
  for (const ByteRange outside : {ByteRange{0, 0}, ByteRange{text.size() - 9, 10}, ByteRange{text.size() + 1, 0},
                                  ByteRange{1, std::numeric_limits<std::uint64_t>::max()}}) {
    CHECK(mapped->writable_view(outside) == nullptr);
  }
}

TEST_CASE("source: what cannot be opened") {
  const TempDir dir;
#ifndef _WIN32
  REQUIRE(::mkfifo((dir / "fifo").c_str(), 0600) == 0);
#endif
  write_text(dir / "file", "x");
  for (const Opener open : {Opener(&open_file), Opener(&map_file)}) {
    const auto code = [&](const std::string& path) { return open(path).error().code(); };
    CHECK(code(dir / "none") == Errc::not_found);
    CHECK(code(dir / "file/none") == Errc::not_found);
    CHECK(code("") == Errc::invalid_argument);
    CHECK(code(dir.path()) == Errc::io);
#ifdef _WIN32
    CHECK(code(R"(\\.\NUL)") == Errc::io);
#else
    CHECK(code(dir / "fifo") == Errc::io);  // and no waiting for a writer
    CHECK(code("/dev/null") == Errc::io);
#endif
    CHECK(code((dir / "file") + std::string(1, '\0') + "more") == Errc::invalid_argument);
    const Error error = open(dir / "none").error();
    CHECK(error.file() == dir / "none");
    CHECK(error.message().find("No such file") != std::string::npos);
  }
}

TEST_CASE("source: a file that has shrunk is an error when it is read, not a crash") {
  const TempDir dir;
  const std::string path = dir / "file";
  write_text(path, pattern_text(100000));
  const SourcePtr source = open_file(path).value();
  std::filesystem::resize_file(path, 5000);
  CHECK(source->size() == 100000);
  CHECK(text_at(*source, 4990, 10) == pattern_text(5000).substr(4990));
  const Status status = read(*source, 4000, 2000);
  REQUIRE(!status);
  CHECK(status.error().code() == Errc::truncated);
  CHECK(status.error().offset() == 4000);
  CHECK(status.error().found() == "1000 bytes");
  CHECK(read(*source, 6000, 1).error().code() == Errc::truncated);
}

TEST_CASE("source: memory, borrowed and owned") {
  const std::string text = "hello";
  const SourcePtr borrowed = borrow_bytes(bytes_of(text));
  CHECK(borrowed->name() == "memory");
  CHECK(borrowed->view().data() == bytes_of(text).data());
  CHECK(borrowed->writable_view({0, 1}) == nullptr);
  CHECK(text_at(*borrowed, 1, 3) == "ell");
  CHECK(read(*borrowed, 1, 5).error().code() == Errc::truncated);

  Bytes bytes(5);
  std::copy_n(bytes_of(text).data(), 5, bytes.data());
  const std::byte* const place = bytes.data();
  const SourcePtr owned = own_bytes(std::move(bytes), "mine");
  CHECK(owned->name() == "mine");
  CHECK(owned->view().data() == place);
  CHECK(owned->writable_view({1, 4}) == place + 1);
  CHECK(owned->writable_view({2, 4}) == nullptr);
  CHECK(text_at(*owned, 0, 5) == "hello");

  CHECK(borrow_bytes({})->size() == 0);
  CHECK(read(*own_bytes(Bytes()), 0, 0));
}

TEST_CASE("source: a stream is read to its end") {
  for (const std::size_t size : {0UL, 1UL, 65535UL, 65536UL, 65537UL, 1000000UL}) {
    CAPTURE(size);
    const std::string text = pattern_text(size);
    // One that knows its length, from its start and from further on, and one that does not.
    std::istringstream seekable(text);
    const SourcePtr known = spool(seekable, size).value();
    CHECK(known->size() == size);
    CHECK(text_of(known->view()) == text);
    std::istringstream advanced("#" + text);
    advanced.get();
    CHECK(text_of(spool(advanced, size).value()->view()) == text);
    for (const std::size_t step : {7UL, 4096UL}) {
      SlowBuffer buffer(text, step);
      std::istream slow(&buffer);
      const SourcePtr source = spool(slow, size + 1, "socket").value();
      CHECK(source->name() == "socket");
      CHECK(text_of(source->view()) == text);
      CHECK(source->writable_view({0, size}) == source->view().data());
    }
  }
  const TempDir dir;
  write_text(dir / "file", "from a file");
  std::ifstream file(dir / "file", std::ios::binary);
  CHECK(text_of(spool(file, 1000).value()->view()) == "from a file");
}

TEST_CASE("source: a stream is read within its limit") {
  const std::string text = pattern_text(200000);
  for (const std::uint64_t limit : {std::uint64_t{0}, std::uint64_t{65536}, std::uint64_t{199999}}) {
    CAPTURE(limit);
    std::istringstream seekable(text);
    CHECK(spool(seekable, limit).error().code() == Errc::limit);
    SlowBuffer buffer(text, 1000);
    std::istream slow(&buffer);
    const Error error = spool(slow, limit).error();
    CHECK(error.code() == Errc::limit);
    CHECK(error.expected() == "at most " + std::to_string(limit) + " bytes");
    CHECK(error.file() == "stream");
  }
  for (const std::uint64_t limit : {std::uint64_t{200000}, std::numeric_limits<std::uint64_t>::max()}) {
    CAPTURE(limit);
    std::istringstream seekable(text);
    CHECK(spool(seekable, limit).value()->size() == 200000);
    SlowBuffer buffer(text, 1000);
    std::istream slow(&buffer);
    CHECK(spool(slow, limit).value()->size() == 200000);
  }
}

TEST_CASE("source: a stream that fails") {
  const TempDir dir;
  std::ifstream none(dir / "none");
  CHECK(spool(none, 100).error().code() == Errc::io);
  std::ifstream folder(dir.path());  // opens; reading it fails
  CHECK(spool(folder, std::uint64_t{1} << 20).error().code() != Errc::none);
  std::istream nothing(nullptr);
  CHECK(spool(nothing, 100).error().code() == Errc::io);

  SlowBuffer buffer("abc", 2);
  buffer.fails_at_end = true;
  std::istream slow(&buffer);
  const Error error = spool(slow, 100).error();
  CHECK(error.code() == Errc::io);
  CHECK(error.message() == "the line went dead");

  SlowBuffer greedy("abc", 2);
  greedy.out_of_memory_at_end = true;
  std::istream starved(&greedy);
  CHECK(spool(starved, 100).error().code() == Errc::out_of_memory);

  std::istringstream throwing("abc");
  throwing.exceptions(std::ios::failbit | std::ios::badbit | std::ios::eofbit);
  CHECK(text_of(spool(throwing, 100).value()->view()) == "abc");
  throwing.clear(std::ios::goodbit);
  throwing.exceptions(std::ios::goodbit);
  throwing.setstate(std::ios::failbit);
  CHECK(spool(throwing, 100).error().code() == Errc::io);
}

TEST_CASE("source: read from many threads at a time") {
  const TempDir dir;
  constexpr std::size_t size = 1 << 20;
  write_text(dir / "file", pattern_text(size));
  for (const Opener open : {Opener(&open_file), Opener(&map_file)}) {
    const SourcePtr source = open(dir / "file").value();
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < 16; ++t) {
      threads.emplace_back([&, t] {
        std::array<std::byte, 777> out;
        std::uint64_t offset = t * 61;
        for (int i = 0; i < 500; ++i, offset = (offset * 31 + 4099) % (size - out.size())) {
          if (!source->read_at(offset, out)) ++wrong;
          for (std::size_t k = 0; k < out.size(); ++k) wrong += out[k] != pattern(offset + k);
        }
      });
    }
    for (auto& thread : threads) thread.join();
    CHECK(wrong == 0);
  }
}

TEST_CASE("source: mapped from what is open") {
  const TempDir dir;
  const std::string text = pattern_text(100000);
  write_text(dir / "file", text);
  const SourcePtr read = open_file(dir / "file").value();
  CHECK(read->view().empty());
  CHECK(read->file() != nullptr);
  std::filesystem::remove(dir / "file");  // it is still open
  write_text(dir / "file", "another");
  const SourcePtr mapped = read->mapped();
  REQUIRE(mapped != nullptr);
  CHECK(mapped->name() == read->name());
  CHECK(text_of(mapped->view()) == text);
  CHECK(mapped->writable_view({99990, 10}) != nullptr);
  CHECK(text_at(*read, 99990, 10) == text.substr(99990));
  // A source without bytes; sources that are in memory already.
  write_text(dir / "empty", "");
  const SourcePtr empty = open_file(dir / "empty").value()->mapped();
  REQUIRE(empty != nullptr);
  CHECK(empty->size() == 0);
  CHECK(borrow_bytes(bytes_of(text))->mapped() == nullptr);
  CHECK(borrow_bytes(bytes_of(text))->file() == nullptr);
  CHECK(map_file(dir / "file").value()->mapped() == nullptr);
}

}  // namespace source_test
