// Sinks of memory and streams; copies between sources and sinks.
#include "stele/sink.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "stele/source.hpp"
#include "support/temp_dir.hpp"

#include "sink_support.hpp"

namespace sink_test {

using namespace stele;
using namespace stele_test::sinks;
using stele_test::read_text;
using stele_test::TempDir;
using stele_test::write_text;
using Names = std::vector<std::string>;
namespace fs = std::filesystem;

TEST_CASE("buffer sink") {
  BufferSink sink;
  CHECK(sink.take().empty());
  const ManyPieces many(3000);
  SUBCASE("with its size known") {
    CHECK(sink.reserve(many.text.size()));
    CHECK(sink.write(many.pieces));
  }
  SUBCASE("with more than was said") {
    CHECK(sink.reserve(3));
    CHECK(sink.write(many.pieces));
  }
  SUBCASE("growing") {
    for (const auto& piece : many.pieces) CHECK(sink.write(piece));
  }
  CHECK(sink.commit());
  const Bytes bytes = sink.take();
  CHECK(text_of(bytes.span()) == many.text);
  CHECK(reinterpret_cast<std::uintptr_t>(bytes.data()) % 64 == 0);
  CHECK(sink.take().empty());
  // Used again.
  CHECK(sink.write(bytes_of("again")));
  CHECK(text_of(sink.take().span()) == "again");
}

TEST_CASE("buffer sink: grows far, refuses what no memory holds") {
  BufferSink sink;
  const std::string piece(100000, 'p');
  for (int i = 0; i < 100; ++i) CHECK(sink.write(bytes_of(piece)));
  CHECK(sink.reserve(std::numeric_limits<std::uint64_t>::max()).error().code() == Errc::out_of_memory);
  const std::span<const std::byte> endless(bytes_of(piece).data(), std::numeric_limits<std::size_t>::max() / 2);
  const std::array<std::span<const std::byte>, 3> pieces = {endless, endless, endless};
  CHECK(sink.write(pieces).error().code() == Errc::out_of_memory);
  const Bytes bytes = sink.take();
  REQUIRE(bytes.size() == 100 * piece.size());
  CHECK(text_of(bytes.span().last(piece.size())) == piece);
}

TEST_CASE("span sink") {
  std::array<std::byte, 10> memory = {};
  SpanSink sink(memory);
  CHECK(sink.reserve(10));
  const Status status = sink.reserve(11);
  REQUIRE(!status);
  CHECK(status.error().code() == Errc::no_space);
  CHECK(status.error().found() == "11");
  CHECK(sink.write(bytes_of("0123456")));
  CHECK(sink.size() == 7);
  const std::array<std::span<const std::byte>, 3> pieces = {bytes_of("ab"), std::span<const std::byte>(),
                                                            bytes_of("cd")};
  const Status full = sink.write(pieces);
  REQUIRE(!full);
  CHECK(full.error().code() == Errc::no_space);
  CHECK(full.error().found() == "11");
  CHECK(sink.size() == 7);  // refused whole
  CHECK(memory[7] == std::byte{0});
  CHECK(sink.write(bytes_of("789")));
  CHECK(sink.write(std::span<const std::byte>()));
  CHECK(sink.commit());
  CHECK(text_of(memory) == "0123456789");
  const std::span<const std::byte> endless(memory.data(), std::numeric_limits<std::size_t>::max());
  CHECK(sink.write(endless).error().code() == Errc::no_space);
  SpanSink none({});
  CHECK(none.write(std::span<const std::byte>()));
  CHECK(none.write(bytes_of("x")).error().found() == "1");
}

TEST_CASE("stream sink") {
  const ManyPieces many(3000);
  std::ostringstream stream;
  StreamSink sink(stream);
  CHECK(sink.reserve(5));
  CHECK(sink.write(many.pieces));
  CHECK(sink.write(bytes_of("!")));
  CHECK(sink.commit());
  CHECK(stream.str() == many.text + "!");

  const TempDir dir;
  std::ofstream closed(dir / "none/file");
  CHECK(StreamSink(closed).write(bytes_of("x")).error().code() == Errc::io);
  std::ofstream full("/dev/full");
  StreamSink to_full(full);
  CHECK(to_full.write(bytes_of("x")));  // still in the stream's buffer
  CHECK(to_full.commit().error().code() == Errc::io);
  std::ofstream throwing("/dev/full");
  throwing.exceptions(std::ios::badbit | std::ios::failbit);
  StreamSink to_throwing(throwing);
  CHECK(to_throwing.write(bytes_of("x")));
  CHECK(to_throwing.commit().error().code() == Errc::io);
  throwing.exceptions(std::ios::goodbit);
}

namespace {

/// Bytes that can be read, but are no file and no memory.
class Plain final : public Source {
 public:
  explicit Plain(std::string text) : Source("plain"), text_(std::move(text)) {}
  std::uint64_t size() const noexcept override { return text_.size(); }
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    if (fails_from <= offset + out.size()) return Error(Errc::io, "the line went dead");
    std::copy_n(bytes_of(text_).begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
    return {};
  }
  std::uint64_t fails_from = UINT64_MAX;

 private:
  std::string text_;
};

/// A sink in front of another, without a copy of its own.
class Front final : public Sink {
 public:
  explicit Front(Sink& sink) : Sink("front"), sink_(sink) {}
  using Sink::write;
  Status write(std::span<const std::span<const std::byte>> pieces) override { return sink_.write(pieces); }

 private:
  Sink& sink_;
};

std::string large_text() {
  std::string text(std::size_t{3} << 20, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 2654435761U >> 13U);
  return text;
}

}  // namespace

TEST_CASE("sinks: copies of parts of sources") {
  const TempDir dir;
  const std::string text = large_text();
  write_text(dir / "from", text);
  const SourcePtr sources[] = {open_file(dir / "from").value(), map_file(dir / "from").value(),
                               borrow_bytes(bytes_of(text)), std::make_shared<Plain>(text)};
  const std::uint64_t n = text.size();
  const std::pair<std::uint64_t, std::uint64_t> parts[] = {{0, n}, {1, 2 * n / 3}, {n - 1, 1}, {n, 0}, {0, 0}, {5, 3}};
  std::string all = "<";
  for (const auto& [offset, size] : parts) all += text.substr(offset, size) + "|";
  for (const SourcePtr& source : sources) {
    CAPTURE(source->name());
    const auto fill = [&](Sink& sink) {
      CHECK(sink.write(bytes_of("<")));
      for (const auto& [offset, size] : parts) {
        CHECK(sink.copy(*source, offset, size));
        CHECK(sink.write(bytes_of("|")));  // behind it
      }
    };
    for (const Durability durability : {Durability::full, Durability::process}) {
      auto sink = file_sink(dir / "to", {durability}).value();
      fill(*sink);
      CHECK(sink->commit());
      CHECK(read_text(dir / "to") == all);
    }
    BufferSink buffer;
    fill(buffer);
    CHECK(text_of(buffer.take().span()) == all);
    std::string memory(all.size(), 'x');
    SpanSink span(std::as_writable_bytes(std::span(memory)));
    fill(span);
    CHECK(memory == all);
    CHECK(span.copy(*source, 0, 1).error().code() == Errc::no_space);
    std::ostringstream stream;
    StreamSink to_stream(stream);
    Front front(to_stream);
    fill(front);
    CHECK(stream.str() == all);
    // Beyond the end, and where offset and size together are more than numbers go to.
    const std::pair<std::uint64_t, std::uint64_t> beyond[] = {{n, 1},          {n + 1, 0},      {0, n + 1},
                                                              {1, UINT64_MAX}, {UINT64_MAX, 1}, {n - 1, 2}};
    for (const auto& part : beyond) {
      const auto& [offset, size] = part;
      CAPTURE(part.first);
      CAPTURE(part.second);
      auto sink = file_sink(dir / "to", quick).value();
      const Status to_file = sink->copy(*source, offset, size);
      REQUIRE(!to_file);
      CHECK(to_file.error().code() == Errc::truncated);
      CHECK(to_file.error().file() == source->name());
      CHECK(buffer.copy(*source, offset, size).error().code() == Errc::truncated);
    }
  }
  CHECK(read_text(dir / "to") == all);
  CHECK(dir.names() == Names{"from", "to"});
  Plain dead(text);
  dead.fails_from = 2000000;
  auto sink = file_sink(dir / "to", quick).value();
  CHECK(sink->copy(dead, 0, text.size()).error().code() == Errc::io);
}

TEST_CASE("sinks: a copy into a FIFO, of a file that shrinks, of itself") {
  const TempDir dir;
  const std::string text = large_text();
  write_text(dir / "from", text);
  const SourcePtr from = open_file(dir / "from").value();
  REQUIRE(::mkfifo((dir / "fifo").c_str(), 0600) == 0);
  std::string got;
  std::thread reader([&] { got = read_text(dir / "fifo"); });
  auto fifo = file_sink(dir / "fifo").value();
  CHECK_FALSE(fifo->can_patch());
  CHECK(fifo->copy(*from, 7, 100000));
  CHECK(fifo->patch(0, bytes_of("x")).error().code() == Errc::unsupported);
  CHECK(fifo->write(bytes_of("end")));
  CHECK(fifo->commit());
  fifo.reset();
  reader.join();
  CHECK(got == text.substr(7, 100000) + "end");
  // Over the file that is copied from.
  auto over = file_sink(dir / "from", quick).value();
  CHECK(over->write(bytes_of("new ")));
  CHECK(over->copy(*from, 0, text.size()));
  CHECK(over->commit());
  CHECK(read_text(dir / "from") == "new " + text);
  CHECK(from->size() == text.size());  // the old one, as long as it is open
  write_text(dir / "shrinks", text);
  const SourcePtr shrinks = open_file(dir / "shrinks").value();
  fs::resize_file(dir / "shrinks", 1000);
  auto sink = file_sink(dir / "to", quick).value();
  CHECK(sink->copy(*shrinks, 0, text.size()).error().code() == Errc::truncated);
}

TEST_CASE("sinks: bytes that are written before are patched") {
  const TempDir dir;
  std::array<std::byte, 20> memory = {};
  const auto file = file_sink(dir / "file", quick).value();
  BufferSink buffer;
  SpanSink span(memory);
  for (Sink* const sink : {file.get(), static_cast<Sink*>(&buffer), static_cast<Sink*>(&span)}) {
    CAPTURE(sink->name());
    CHECK(sink->can_patch());
    CHECK(sink->write(bytes_of("0123456789")));
    CHECK(sink->patch(3, bytes_of("abc")));
    CHECK(sink->patch(0, {}));
    CHECK(sink->write(bytes_of("ABC")));  // goes on at the end
    CHECK(sink->patch(12, bytes_of("!")));
    CHECK(sink->patch(0, bytes_of("z")));
    CHECK(sink->commit());
  }
  const std::string expected = "z12abc6789AB!";
  CHECK(read_text(dir / "file") == expected);
  for (const std::uint64_t at : {std::uint64_t{13}, std::uint64_t{12} << 40U, UINT64_MAX}) {
    CHECK(buffer.patch(at, bytes_of("xx")).error().code() == Errc::invalid_argument);
    CHECK(span.patch(at, bytes_of("xx")).error().code() == Errc::invalid_argument);
  }
  CHECK(span.patch(12, bytes_of("xx")).error().code() == Errc::invalid_argument);
  CHECK(text_of(buffer.take().span()) == expected);
  CHECK(text_of(std::span(memory).first(13)) == expected);
  CHECK(memory[13] == std::byte{0});
  std::ostringstream stream;
  StreamSink plain(stream);
  CHECK_FALSE(plain.can_patch());
  const Status status = plain.patch(0, bytes_of("x"));
  REQUIRE(!status);
  CHECK(status.error().code() == Errc::unsupported);
  CHECK(status.error().file() == "stream");
  CHECK(file->patch(0, bytes_of("x")).error().code() == Errc::invalid_argument);  // committed
}

}  // namespace sink_test
