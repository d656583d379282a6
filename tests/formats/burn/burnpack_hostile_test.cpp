// Burnpack: each rule of the format broken once, limits, and damage of all kinds.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/burnpack.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"

namespace burnpack_hostile_test {

namespace {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;

void check_refused(const std::string& file, Errc code, const std::string& path = {}) {
  CAPTURE(file);
  const auto snapshot = burnpack.open(bytes_of(file));
  REQUIRE(!snapshot);
  CAPTURE(why(snapshot));
  CHECK(name(snapshot.error().code()) == name(code));
  CHECK(snapshot.error().path() == path);
  CHECK(snapshot.error().file() == "memory");
}

/// The same of a description; a ^ in it marks the place that the error must name.
void check_description(std::string description, Errc code, const std::string& path = {}) {
  const std::size_t mark = description.find('^');
  if (mark != std::string::npos) description.erase(mark, 1);
  const std::string file = pack_file(description, "");
  check_refused(file, code, path);
  if (mark == std::string::npos) return;
  const auto snapshot = burnpack.open(bytes_of(file));
  REQUIRE(snapshot.error().offset());
  CHECK(*snapshot.error().offset() == 10 + mark);
}

/// Returns the description of one tensor t, with the given keys and values.
std::string entry(const std::vector<std::string>& items) {
  return cbor_map({cbor("tensors"), cbor_map({cbor("t"), cbor_map(items)})});
}

const std::string u8 = cbor("U8");
const std::string dtype = cbor("dtype"), shape = cbor("shape"), offsets = cbor("data_offsets");
const std::string one = cbor_list({cbor(1)}), none = cbor_list({cbor(0), cbor(0)});

}  // namespace

TEST_CASE("burnpack: the header") {
  const std::string good = pack_file({{"t", u8, {1}, 0, 1}}, "1");
  REQUIRE(burnpack.verify(bytes_of(good)));
  for (std::size_t size = 0; size < 10; ++size) check_refused(good.substr(0, size), Errc::truncated);
  check_refused("BURN" + good.substr(4), Errc::bad_magic);
  check_refused(pack_file("\xa1\x67tensors\xa0", "", true, 2), Errc::unsupported);
  check_refused(pack_file("\xa1\x67tensors\xa0", "", true, 0xffff), Errc::unsupported);
  std::string file = good;
  put_at(file, 6, 0xffffffffU);
  check_refused(file, Errc::truncated);
  put_at(file, 6, static_cast<std::uint32_t>(file.size() - 9));
  check_refused(file, Errc::truncated);
  put_at(file, 6, static_cast<std::uint32_t>(file.size() - 10));
  check_refused(file, Errc::malformed);  // the tensor is no CBOR
  const auto& format = burnpack.format();
  CHECK(format.recognises(bytes_of(good), good.size()));
  CHECK_FALSE(format.recognises(bytes_of("NRUB"), 4));
  CHECK_FALSE(format.recognises(bytes_of("BURN\1\0\0\0\0\0"s), 10));
}

TEST_CASE("burnpack: descriptions that are no CBOR, or say something else") {
  const std::string tensors = cbor("tensors");
  check_description("^", Errc::truncated);
  check_description("^\x80", Errc::malformed);
  check_description("^\xf6", Errc::malformed);
  check_description("^\xa0", Errc::malformed);
  check_description("^\xa1", Errc::truncated);
  check_description("\xa1" + tensors + "^", Errc::truncated);
  check_description("\xa1" + tensors + "\xa0^\x00"s, Errc::malformed);
  check_description("^\xbf" + tensors + "\xa0\xff", Errc::unsupported);          // of indefinite length
  check_description("\xa1^\x7f\x67tensors\xff\xa0", Errc::unsupported);          // likewise
  check_description("^\xd9\xd9\xf7\xa1" + tensors + "\xa0", Errc::unsupported);  // a tag
  check_description("^\xbc\x01", Errc::malformed);                               // a reserved width
  check_description("^\xbb\x01", Errc::truncated);
  check_description("^\xbb\xff\xff\xff\xff\xff\xff\xff\xff", Errc::truncated);
  check_description("\xa1" + tensors + "^\xba\xff\xff\xff\xff", Errc::truncated);
  check_description("\xa1^\x7b\x80\0\0\0\0\0\0\0"s, Errc::truncated);
  check_description("^\xa1\x78", Errc::truncated);
  check_description("\xa1^\x78\x05", Errc::truncated);
  check_description("\xa1^\x01\xa0", Errc::malformed);  // a key that is no text
  for (const char* bad : {"\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80"}) {
    check_description(cbor_map({tensors, cbor_map({"^" + cbor(bad), "\xa0"s})}), Errc::malformed);
    check_description(cbor_map({"^" + cbor(bad), "\xa0"s, tensors, "\xa0"s}), Errc::malformed);
  }
  check_description("\xa2" + tensors + "\xa0^" + tensors + "\xa0", Errc::duplicate);
  // Unknown entries are ignored if they are CBOR and not too deep.
  const std::string more =
      cbor_map({cbor(1), cbor_list({"\xf6"s, "\xf9\x7c\x00"s, "\x38\xff"s, cbor("x"), "\x42\xff\xff"s, "\xf5"s})});
  CHECK(burnpack.open(bytes_of(pack_file(cbor_map({cbor("later"), more, tensors, "\xa0"s}), ""))));
  CHECK(burnpack.open(
      bytes_of(pack_file(cbor_map({tensors, cbor_map({cbor("t"), cbor_map({cbor("later"), more, dtype, u8, shape, one,
                                                                           offsets, cbor_list({cbor(0), cbor(1)})})})}),
                         "1"))));
  for (const char* level : {"\x81", "\xa1\x00"}) {
    const std::string open = level[1] == 0 && level[0] == '\xa1' ? "\xa1\x00"s : std::string(level);
    std::string deep;
    for (int i = 0; i < 60; ++i) deep += open;
    CHECK(burnpack.open(bytes_of(pack_file(cbor_map({cbor("later"), deep + "\x00"s, tensors, "\xa0"s}), ""))));
    for (int i = 0; i < 100000; ++i) deep += open;
    check_description(cbor_map({cbor("later"), deep + "\x00"s, tensors, "\xa0"s}), Errc::limit);
    check_description(entry({dtype, deep + "\x00"s}), open.size() == 1 ? Errc::limit : Errc::malformed, "t");
  }
  check_description(entry({dtype, cbor_map({cbor("QFloat"), cbor_map({cbor("a"), u8, cbor("a"), u8})})}),
                    Errc::duplicate, "t");
  // A list of a byte each here is forty times as much in memory.
  std::string nulls = "\x9a\x00\x10\x00\x00"s + std::string(1 << 20, '\xf6');
  check_description(entry({dtype, cbor_map({cbor("QFloat"), nulls})}), Errc::malformed, "t");
  LoadOptions bounded;
  bounded.limits.index_bytes = std::uint64_t{16} << 20;
  const std::string listed = pack_file(entry({dtype, cbor_map({cbor("QFloat"), nulls})}), "");
  CHECK(code_of(burnpack.open(bytes_of(listed), bounded)) == Errc::limit);
}

TEST_CASE("burnpack: the memory of annotations is counted") {
  // A quantized tensor's dimensions are kept as values, too.
  const std::string extents = cbor_head(4, 60000) + std::string(60000, '\1');
  const auto open = [&](const std::string& dtype_, std::uint64_t index_bytes) {
    LoadOptions options;
    options.limits.index_bytes = index_bytes;
    const std::string file =
        pack_file(entry({dtype, dtype_, shape, extents, offsets, cbor_list({cbor(0), cbor(1)})}), "1");
    return code_of(burnpack.open(bytes_of(file), options));
  };
  const std::string quantized = cbor_map({cbor("QFloat"), cbor_map({cbor("value"), cbor("Q8S")})});
  CHECK(open(u8, 3000000) == Errc::none);
  CHECK(open(quantized, 3000000) == Errc::limit);
  CHECK(open(quantized, 6000000) == Errc::none);
}

TEST_CASE("burnpack: what stands in a tensor's entry") {
  const auto list = [](std::uint64_t a, std::uint64_t b) { return cbor_list({cbor(a), cbor(b)}); };
  const std::vector<std::string> good = {dtype, u8, shape, one, offsets, list(0, 1)};
  for (std::size_t left = 0; left < 6; left += 2) {
    auto items = good;
    items.erase(items.begin() + static_cast<std::ptrdiff_t>(left),
                items.begin() + static_cast<std::ptrdiff_t>(left) + 2);
    check_description(entry(items), Errc::malformed, "t");
    items.insert(items.end(), good.begin(), good.end());
    check_description(entry(items), Errc::duplicate, "t");
  }
  for (const auto& [spelled, code] :
       {std::pair(cbor("f32"), Errc::unsupported), std::pair(cbor("F8"), Errc::unsupported),
        std::pair(cbor(1), Errc::malformed), std::pair("\xf6"s, Errc::malformed), std::pair("\xa0"s, Errc::malformed),
        std::pair(cbor("QFloat"), Errc::unsupported),
        std::pair(cbor_map({cbor("QFloat"), cbor("Q8S")}), Errc::malformed),
        std::pair(cbor_map({cbor("Bool"), cbor("U64")}), Errc::unsupported),
        std::pair(cbor_map({cbor("F32"), "\xf6"s}), Errc::unsupported),
        std::pair(cbor_map({cbor(1), cbor("U8")}), Errc::malformed)}) {
    check_description(entry({dtype, spelled, shape, one, offsets, list(0, 1)}), code, "t");
  }
  for (const std::string& bad : {"\x20"s, "\xf9\x3c\x00"s, cbor("1"), "\xf6"s, "\xf5"s, "\x80"s}) {
    CHECK(code_of(burnpack.open(bytes_of(pack_file(entry({dtype, u8, shape, cbor_list({bad}), offsets, none}), "")))) ==
          Errc::malformed);
    check_description(entry({dtype, u8, shape, one, offsets, cbor_list({cbor(0), bad})}), Errc::malformed, "t");
    if (bad != "\x80") check_description(entry({dtype, u8, shape, bad, offsets, none}), Errc::malformed, "t");
    check_description(entry({dtype, u8, shape, one, offsets, bad}), Errc::malformed, "t");
    if (bad != "\xf6")
      check_description(entry({dtype, u8, shape, one, offsets, none, cbor("param_id"), bad}), Errc::malformed, "t");
    if (bad != cbor("1"))
      check_description(entry({dtype, u8, shape, one, offsets, none, cbor("param_uuid"), bad}), Errc::malformed, "t");
  }
  check_description(entry({dtype, u8, shape, one, offsets, cbor_list({cbor(0)})}), Errc::malformed, "t");
  check_description(entry({dtype, u8, shape, one, offsets, cbor_list({cbor(0), cbor(1), cbor(1)})}), Errc::malformed,
                    "t");
  const std::string uuid = cbor("00000000-0000-0000-0000-000000000001");
  check_description(entry({dtype, u8, shape, one, offsets, none, cbor("param_uuid"), uuid, cbor("param_id"), cbor(1)}),
                    Errc::malformed, "t");
  check_description(entry({dtype, u8, shape, one, offsets, none, cbor("param_uuid"), cbor("72d17eukbtkma")}),
                    Errc::malformed, "t");
  check_description(entry({dtype, u8, shape, cbor_head(4, 70000) + std::string(70000, '\0'), offsets, none}),
                    Errc::limit, "t");
  // Scalars and metadata.
  const auto with = [](const std::string& key, const std::vector<std::string>& items) {
    return cbor_map({cbor("tensors"), pack_tensors({{"t", u8, {0}, 0, 0}}), cbor(key), cbor_map(items)});
  };
  check_description(with("metadata", {cbor("k"), cbor(1)}), Errc::malformed);
  check_description(with("metadata", {cbor("k"), cbor("\xff")}), Errc::malformed);
  check_description(with("metadata", {cbor("k"), cbor("1"), cbor("k"), cbor("1")}), Errc::duplicate);
  check_description(with("metadata", {cbor("stele"), cbor("{\"version\":1.0}")}), Errc::malformed, "stele");
  for (const auto& [value, code] :
       {std::pair(cbor(1), Errc::malformed), std::pair("\xa0"s, Errc::malformed),
        std::pair(cbor_map({cbor("Text"), cbor("1")}), Errc::unsupported),
        std::pair(cbor_map({cbor("Int"), cbor(INT64_MAX + std::uint64_t{1})}), Errc::out_of_range),
        std::pair(cbor_map({cbor("Int"), "\x3b\x80\0\0\0\0\0\0\0"s}), Errc::out_of_range),
        std::pair(cbor_map({cbor("UInt"), "\x20"s}), Errc::malformed),
        std::pair(cbor_map({cbor("Float"), cbor(1)}), Errc::malformed),
        std::pair(cbor_map({cbor("Bool"), cbor(1)}), Errc::malformed),
        std::pair(cbor_map({cbor("Int"), cbor(1), cbor("Int"), cbor(1)}), Errc::malformed)}) {
    check_description(with("scalars", {cbor("s"), value}), code, "s");
  }
  const std::string number = cbor_map({cbor("Int"), cbor(1)});
  check_description(with("scalars", {cbor("s"), number, cbor("s"), number}), Errc::duplicate, "s");
  check_description(with("scalars", {cbor("t"), number}), Errc::duplicate, "t");
  check_description(cbor_map({cbor("tensors"), pack_tensors({{"t", u8, {0}, 0, 0}, {"t", u8, {0}, 0, 0}})}),
                    Errc::duplicate, "t");
}

TEST_CASE("burnpack: one owner for every byte, and zeros between") {
  const std::string gap(255, '\0');
  const auto two = [](std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d) {
    return std::vector<PackTensor>{{"a", u8, {b - a}, a, b}, {"b", u8, {d - c}, c, d}};
  };
  CHECK(burnpack.verify(bytes_of(pack_file(two(0, 1, 256, 258), "1" + gap + "23"))));
  CHECK(burnpack.verify(bytes_of(pack_file(two(256, 257, 0, 1), "1" + gap + "2"))));
  // Burn up to 0.21 writes both of two tensors with one name, and describes the second.
  CHECK(burnpack.verify(bytes_of(pack_file(two(0, 1, 512, 513), "1" + gap + std::string(256, 'x') + "2"))));
  CHECK(burnpack.verify(bytes_of(pack_file(two(256, 257, 512, 513), std::string(257, 'x') + gap + "2"))));
  CHECK(burnpack.verify(bytes_of(pack_file(two(0, 1, 3, 4), "1xx2", false))));
  check_refused(pack_file(two(0, 257, 256, 258), std::string(258, '1')), Errc::malformed, "b");
  check_refused(pack_file(two(0, 1, 0, 1), "1"), Errc::malformed, "b");
  check_refused(pack_file(two(0, 2, 1, 3), "123", false), Errc::malformed, "b");
  check_refused(pack_file(two(0, 1, 1, 2), "123", false), Errc::malformed);  // bytes after the data
  check_refused(pack_file(two(0, 1, 1, 2), "12"), Errc::malformed, "");      // one after the other, but aligned data
  check_refused(pack_file(two(0, 1, 256, 257), "1" + gap + "23"), Errc::malformed);
  check_refused(pack_file(two(0, 1, 256, 257), "1" + gap), Errc::truncated, "b");
  check_refused(pack_file({{"t", u8, {1}, 1, 0}}, "1"), Errc::malformed, "t");
  check_refused(pack_file({{"t", u8, {1}, 0, UINT64_MAX}}, "1"), Errc::truncated, "t");
  check_refused(pack_file({{"t", u8, {1}, UINT64_MAX - 255, UINT64_MAX}}, "1"), Errc::truncated, "t");
  // Lengths.
  check_refused(pack_file({{"t", cbor("F32"), {1}, 0, 3}}, "123"), Errc::malformed, "t");
  check_refused(pack_file({{"t", u8, {2}, 0, 1}}, "1"), Errc::malformed, "t");
  check_refused(pack_file({{"t", cbor("F64"), {std::uint64_t{1} << 61}, 0, 0}}, ""), Errc::malformed, "t");
  check_refused(pack_file({{"t", u8, {std::uint64_t{1} << 32, std::uint64_t{1} << 32}, 0, 0}}, ""), Errc::malformed,
                "t");
  check_refused(pack_file({{"t", u8, {UINT64_MAX, 0, UINT64_MAX}, 0, 0}}, ""), Errc::malformed, "t");
  CHECK(burnpack.open(bytes_of(pack_file({{"t", u8, {UINT64_MAX, 0}, 0, 0}}, ""))));
  // Padding: before the first tensor at once, behind a tensor when it is read.
  std::string file = pack_file(two(0, 1, 256, 257), "1" + gap + "2");
  file[file.size() - 258] = '\1';
  check_refused(file, Errc::malformed);
  file = pack_file(two(0, 1, 256, 257), "1" + gap + "2");
  file[file.size() - 2] = '\1';
  const auto snapshot = burnpack.open(bytes_of(file));
  REQUIRE(snapshot);
  CHECK(code_of(content(snapshot->leaf(0))) == Errc::malformed);
  CHECK(content(snapshot->leaf(1)));
  CHECK_FALSE(burnpack.verify(bytes_of(file)));
  // Nothing but names.
  const std::string names[] = {"", "a/b", "../x", "nul\0x"s, std::string(70000, 'n'), "\xf0\x9f\x98\x80"};
  for (const std::string& name : names) {
    const Snapshot named = opened(pack_file({{name, u8, {1}, 0, 1}}, "1"));
    CHECK(named.leaf(0).path() == name);
    CHECK(written(named) == pack_file({{name, u8, {1}, 0, 1}}, "1"));
  }
}

TEST_CASE("burnpack: nothing is written that Burn refuses") {
  const auto fake = [](std::size_t count, std::uint64_t bytes, std::string_view name) {
    static const std::byte byte{};
    SnapshotBuilder builder;
    builder.set_flat();
    for (std::size_t i = 0; i < count; ++i) {
      const Extent extents[] = {bytes};
      builder.tensor(builder.intern(std::string(name) + std::to_string(i)), DType::u8, extents, bytes,
                     {&memory_ops, &byte, 0});
    }
    return builder.finish();
  };
  const auto code = [](const Snapshot& snapshot, const SaveOptions& options = {}) {
    return code_of(saved(burnpack, snapshot, options));
  };
  CHECK(code(fake(100000, 0, "t")) == Errc::none);
  CHECK(code(fake(100001, 0, "t")) == Errc::not_representable);
  CHECK(code(fake(1, (std::uint64_t{10} << 30) + 1, "t")) == Errc::not_representable);
  CHECK(code(fake(10, std::uint64_t{10} << 30, "t")) == Errc::not_representable);  // with the description above 100 GiB
  CHECK(code(fake(1, 1, "\xff")) == Errc::not_representable);
  SaveOptions options;
  options.metadata = {{"k", std::string(std::size_t{100} << 20, 'k')}};
  CHECK(code(fake(1, 1, "t"), options) == Errc::not_representable);
  options.metadata = {{"k", "\xff"}};
  CHECK(code(fake(1, 1, "t"), options) == Errc::not_representable);
  options.metadata = {{"stele", R"({"version":1})"}};
  CHECK(code(fake(1, 1, "t"), options) == Errc::not_representable);
}

TEST_CASE("burnpack: cut anywhere, damaged anywhere") {
  const std::string data = "\1\0"s + std::string(254, '\0') + "12345678";
  const std::vector<PackTensor> tensors = {{"m", cbor_map({cbor("Bool"), cbor("Native")}), {2}, 0, 2},
                                           {"w", cbor("F32"), {2}, 256, 264, cbor("param_id") + cbor(7), 1}};
  const std::string description =
      cbor_map({cbor("tensors"), pack_tensors(tensors), cbor("metadata"),
                cbor_map({cbor("stele"), cbor("{\"version\":1,\"aliases\":{\"x\":\"w\"}}")}), cbor("scalars"),
                cbor_map({cbor("s"), cbor_map({cbor("Float"), "\xf9\x3c\x00"s})})});
  for (const std::string& file :
       {pack_file(description, data), pack_file({{"a", u8, {3}, 0, 3}, {"b", u8, {2}, 3, 5}}, "12345", false)}) {
    REQUIRE(burnpack.verify(bytes_of(file)));
    for (std::size_t size = 0; size < file.size(); ++size) {
      CAPTURE(size);
      CHECK_FALSE(burnpack.verify(bytes_of(file.substr(0, size))));
      CHECK_FALSE(burnpack.verify(bytes_of(file + std::string(1 + size % 300, '\0'))));
    }
    std::size_t passed = 0;
    for (std::size_t at = 0; at < file.size(); ++at) {
      for (const int bits : {1, 2, 4, 8, 16, 32, 64, 128, 255}) {
        std::string damaged = file;
        damaged[at] = static_cast<char>(damaged[at] ^ bits);
        const auto snapshot = burnpack.open(bytes_of(damaged));
        passed += burnpack.verify(bytes_of(damaged)).has_value();
        if (snapshot) static_cast<void>(difference(facts(*snapshot, burnpack.format().capabilities()), {}));
      }
    }
    CHECK(passed != 0);  // there is no checksum
  }
}

}  // namespace burnpack_hostile_test
