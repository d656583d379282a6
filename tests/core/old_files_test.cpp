// Files that are too old say so, and which release wrote them.
#include <doctest/doctest.h>
#include <flatbuffers/flatbuffers.h>

#include <string>
#include <vector>

#include "encodings/gzip/gzip.hpp"
#include "stele/recorders/any.hpp"
#include "stele/recorders/samediff.hpp"
#include "support/burn_bytes.hpp"

namespace old_files_test {

namespace {

using namespace burn_bytes;
using namespace std::string_literals;

std::string gzip(std::string_view text) {
  BufferSink packed;
  detail::gzip::GzipSink sink(packed, 6);
  sink.write(bytes_of(text)).value();
  sink.finish().value();
  const Bytes bytes = packed.take();
  return std::string(text_of(bytes.span()));
}

Error opened_by_anyone(const std::string& file) {
  const auto opened = stele::open(bytes_of(file));
  REQUIRE(!opened);
  return opened.error();
}

/// A graph of one node, with what tells the ages apart: a byte at id 7 or a vector, op_type beside it.
std::string graph(bool old) {
  flatbuffers::FlatBufferBuilder b;
  const auto slot = [](int field) { return static_cast<flatbuffers::voffset_t>(4 + 2 * field); };
  const auto name = b.CreateString("conv");
  const auto ints = b.CreateVector(std::vector<std::int32_t>{1, 2, 3});
  const auto node = b.StartTable();
  b.AddElement<std::int64_t>(slot(3), 12, 0);
  b.AddElement<std::int32_t>(slot(0), 1, 0);
  b.AddOffset(slot(1), name);
  if (old) {
    b.AddOffset(slot(8), ints);
    b.AddElement<std::int8_t>(slot(7), 5, 0);
  } else {
    b.AddOffset(slot(7), ints);
  }
  b.AddElement<std::int8_t>(slot(2), 21, 0);
  const auto ended = flatbuffers::Offset<flatbuffers::Table>(b.EndTable(node));
  const auto nodes = b.CreateVector(&ended, 1);
  const auto variables = b.CreateVector(std::vector<flatbuffers::Offset<flatbuffers::Table>>());
  const auto root = b.StartTable();
  b.AddElement<std::int64_t>(slot(0), 7, 0);
  b.AddOffset(slot(1), variables);
  b.AddOffset(slot(2), nodes);
  b.Finish(flatbuffers::Offset<flatbuffers::Table>(b.EndTable(root)));
  return {reinterpret_cast<const char*>(b.GetBufferPointer()), b.GetSize()};
}

}  // namespace

TEST_CASE("old files: of Burn before 0.6") {
  const std::string states =
      R"({"StateNamed":{"values":{"w":{"StateNamed":{"values":{"id":{"ParamId":"x"},"data":{"Data":{"value":[1.0]}}}}}}}})";
  for (const std::string& file : {states, gzip(states)}) {
    const Error error = opened_by_anyone(file);
    CHECK(error.code() == Errc::unsupported);
    CHECK(error.message().find("before 0.6") != std::string::npos);
    CHECK(error.expected() == "a release from 0.13 to 0.21");
  }
}

TEST_CASE("old files: of Burn before names were written") {
  const auto record = [](const std::string& version) {
    return list({list({str("f32"), str("i32"), str(format), str(version), str("FullPrecisionSettings")}),
                 list({list({str(id), list({list({"\xca\x3f\x80\0\0"s}), list({"\1"})})})})});
  };
  for (const std::string& file : {record("0.6.0"), gzip(record("0.6.0"))}) {
    const Error error = opened_by_anyone(file);
    CHECK(error.code() == Errc::unsupported);
    CHECK(error.found() == "0.6.0");
    CHECK(error.expected() == "a release from 0.13 to 0.21");
  }
  // Cut off before the version.
  CHECK(opened_by_anyone(record("0.6.0").substr(0, 40)).code() == Errc::unsupported);
}

TEST_CASE("old files: a record of Burn 0.8 that cannot be read says so") {
  const std::string item = map({{"w", map({{"id", str(id)}, {"param", map({{"data", "\1"}, {"w", bin("1")}})}})}});
  const Error error = opened_by_anyone(mpk(item, heading("0.8.0")));
  CHECK(error.code() == Errc::unsupported);
  CHECK(error.found() == "0.8.0");
  const auto bincode = along<One>().load<One>(bytes_of(binary("\7\7\7", "0.8.0")));
  REQUIRE(!bincode);
  CHECK(bincode.error().code() == Errc::unsupported);
  CHECK(bincode.error().found() == "0.8.0");
  // A release that is read: the reason itself.
  CHECK(opened_by_anyone(mpk(item, heading("0.15.0"))).code() == Errc::malformed);
}

TEST_CASE("old files: data of Burn 0.13 under a later version hint at the option") {
  const std::string uuid = "0a0b0c0d-0102-4304-8506-0708090a0b0c";
  const std::string numbers = list({"\xca\x3f\x80\0\0"s, "\xca\x40\0\0\0"s});
  const std::string item = map({{"w", map({{"id", str(uuid)}, {"param", map({{"value", numbers}, {"shape", two}})}})}});
  const std::string file = mpk(item, heading("0.14.0"));
  const Error error = opened_by_anyone(file);
  CHECK(error.code() == Errc::unsupported);
  CHECK(error.path() == "w");
  CHECK(error.hint().find("BurnEra::v0_13") != std::string::npos);
  CHECK(error.found() == "version 0.14.0");
  CHECK(good(recorder_of({.era = BurnEra::v0_13}).load<One>(bytes_of(file))).w.value.span()[1] == 2);

  const std::string packed = text(uuid) + "\2"s + "\0\0\x80\x3f\0\0\0\x40"s + "\1\2"s;
  const auto wrong = along<One>().load<One>(bytes_of(binary(packed, "0.14.0")));
  REQUIRE(!wrong);
  CHECK_MESSAGE(wrong.error().hint().find("BurnEra::v0_13") != std::string::npos, why(wrong));
  BurnOptions said{.encoding = BurnEncoding::bin, .era = BurnEra::v0_13};
  said.schema = schema_of<One>();
  CHECK(good(recorder_of(said).load<One>(bytes_of(binary(packed, "0.14.0")))).w.value.span()[1] == 2);
}

TEST_CASE("old files: a module of a later record may have fields of the old names") {
  // No id of Burn's: a module of C++ with these fields.
  const std::string numbers = list({"\xca\x3f\x80\0\0"s});
  const std::string item =
      map({{"m", map({{"id", str("mine")}, {"param", map({{"value", numbers}, {"shape", two}})}})}});
  CHECK(outcome(mpk(item)) == Errc::none);
}

TEST_CASE("old files: a graph of DL4J before 1.0.0-beta4") {
  const SameDiffRecorder<> recorder;
  const std::string old = graph(true);
  const auto opened = recorder.open(bytes_of(old));
  REQUIRE(!opened);
  CHECK(opened.error().code() == Errc::unsupported);
  CHECK(opened.error().message().find("1.0.0-beta4") != std::string::npos);
  // The same node as later releases write it is not refused for that; damaged, it is damaged.
  std::string later = graph(false);
  const auto fine = recorder.open(bytes_of(later));
  CHECK_MESSAGE((fine || fine.error().code() != Errc::unsupported), why(fine));
  for (std::size_t i = 0; i < later.size(); ++i) {
    std::string damaged = later;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x40);
    const auto refused = recorder.open(bytes_of(damaged));
    if (!refused) CHECK_MESSAGE(refused.error().message().find("before 1.0.0-beta4") == std::string::npos, i);
  }
}

}  // namespace old_files_test
