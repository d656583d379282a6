// Burn's records that are damaged, that lie, that are made to take long or much.
#include <stele/recorders/burn.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/burn_bytes.hpp"
#include "support/temp_dir.hpp"

namespace burn_hostile_test {

namespace {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;
using namespace burn_bytes;

struct Encoded {
  BurnOptions options;
  std::string file;
};
/// small() in all encodings.
std::vector<Encoded> encodings() {
  std::vector<Encoded> all;
  for (const bool gzip : {false, true}) {
    for (const BurnEncoding encoding : {BurnEncoding::mpk, BurnEncoding::bin, BurnEncoding::json}) {
      BurnOptions options{.encoding = encoding, .gzip = gzip};
      options.schema = schema_of<Small>();
      const std::string file(text_of(good(saved(recorder_of(options), small())).span()));
      all.push_back({std::move(options), file});
    }
  }
  return all;
}

}  // namespace

TEST_CASE("burn hostile: cut off and longer") {
  std::vector<Encoded> all = encodings();
  for (const char* name : {"0.21.0/sgd.mpk", "0.21.0/sgd.json", "0.20.1/optimizer.mpk", "0.21.0/primitives.mpk"}) {
    all.push_back({{}, read_text(test_data("burn") + "/" + std::string(name))});
  }
  for (const Encoded& e : all) {
    CAPTURE(e.options.gzip);
    CAPTURE(static_cast<int>(e.options.encoding));
    const BurnRecorder<> recorder = recorder_of(e.options);
    REQUIRE(outcome(e.file, recorder) == Errc::none);
    for (std::size_t size = 0; size < e.file.size(); ++size) {
      CAPTURE(size);
      CHECK(outcome(e.file.substr(0, size), recorder) != Errc::none);
    }
    for (const char c : {'\0', '\1', '}', '\xc0'}) CHECK(outcome(e.file + c, recorder) != Errc::none);
  }
  CHECK(refused(of(nil) + '\0', Errc::malformed).offset() == of(nil).size());
  CHECK(refused("", Errc::bad_magic).to_string().find("metadata") != std::string::npos);
}

TEST_CASE("burn hostile: every byte") {
  for (const Encoded& e : encodings()) {
    const BurnRecorder<> recorder = recorder_of(e.options);
    std::size_t refusals = 0;
    for (std::size_t i = 0; i < e.file.size(); ++i) {
      for (const int flip : {1, 0x80, 0xff}) {
        std::string damaged = e.file;
        damaged[i] = static_cast<char>(damaged[i] ^ flip);
        CAPTURE(i);
        refusals += outcome(damaged, recorder) != Errc::none ? 1U : 0U;
      }
    }
    CHECK(refusals > e.file.size() / 2);
  }
}

TEST_CASE("burn hostile: lengths beyond what remains") {
  const std::uint64_t at = item_at + 3;  // of w
  for (const char* head : {"\xc4\xff", "\xc5\xff\xff", "\xc6\xff\xff\xff\xff", "\xd9\xff", "\xda\xff\xff", "\xbf"}) {
    const std::string file = of(head);
    CHECK(refused(file, Errc::truncated).offset() == at + std::string(head).size());
  }
  for (const char* head :
       {"\xdc\xff\xff", "\xdd\xff\xff\xff\xff", "\xde\xff\xff", "\xdf\xff\xff\xff\xff", "\x9f", "\x8f"}) {
    const Error error = refused(of(head), Errc::truncated);
    CHECK(error.offset() == at);
    CHECK(error.expected() == "at most 4");
  }
  CHECK(refused(of("\xdb\xff\xff\xff\xff"), Errc::limit).offset() == at + 5);
  // Each of so many values takes memory, and the file is small: the caller's bound is kept.
  std::string many = "\xdd" + big(std::uint64_t{4} << 20U, 4);
  many.resize(many.size() + (std::size_t{4} << 20U), '\xc0');
  LoadOptions bounded;
  bounded.limits.index_bytes = std::uint64_t{16} << 20;
  CHECK(code_of(BurnRecorder<>().open(bytes_of(of(many)), bounded)) == Errc::limit);
  refused(of(tensor(bin(""), many)), Errc::malformed);

  const std::string beyond[] = {"\xfb\xff\xff"s, "\xfc\xff\xff\xff\xff"s, "\xfd" + std::string(8, '\xff')};
  for (const std::string& length : beyond) {
    CAPTURE(length.size());
    refused(binary(text(id) + length + "1234"), Errc::truncated, along<One>());        // bytes
    refused(binary(text(id) + "\0"s + length + "1"s), Errc::malformed, along<One>());  // extents
    refused(binary("\1" + length + "1234"), Errc::malformed, along<Small>());          // no id
    refused(binary("\0\0\0"s + length), Errc::malformed, along<State>());
    const bool may_be = length.size() == 3;  // a text of 65535 bytes
    refused(text("f32") + text("i32") + length + "123", may_be ? Errc::truncated : Errc::limit, along<One>());
  }
  CHECK(refused(binary(text(id) + "\xfe" + std::string(16, '\0')), Errc::malformed, along<One>()).offset() ==
        binary(text(id)).size());
  refused(binary(text(id) + "\xff"), Errc::malformed, along<One>());
}

TEST_CASE("burn hostile: depth and long texts") {
  const auto nested = [](std::size_t n, const std::string& open) {
    std::string item;
    for (std::size_t i = 0; i < n; ++i) item += open;
    return item;
  };
  const auto json = [](const std::string& item) {
    return R"({"metadata":{"float":"f32","int":"i32"},"item":{"w":)" + item + R"(},"_b":null})";
  };
  for (const std::size_t n : {62U, 63U, 10000U}) {  // the record and its item are two more
    CAPTURE(n);
    const Errc code = n == 62 ? Errc::none : Errc::limit;
    CHECK(outcome(of(nested(n, "\x91") + nil)) == code);
    CHECK(outcome(of(nested(n, "\x81\xa1x") + nil)) == code);
    CHECK(outcome(of(nested(n, "\x81\xa5param") + nil)) == code);
    CHECK(outcome(json(nested(n, "[") + "null" + nested(n, "]"))) == code);
    CHECK(outcome(json(nested(n, "{\"x\":") + "null" + nested(n, "}"))) == code);
    // The limit also applies to entries that are not read.
    CHECK(outcome(map({{"metadata", heading()}, {"item", nil}, {"x", nested(n + 1, "\x91") + nil}})) == code);
  }
  CHECK(refused(of(nested(63, "\x91") + nil), Errc::limit).offset() == item_at + 3 + 62);
  const std::string fits(std::size_t{64} << 10U, 'x');
  for (const std::string& word : {fits, fits + 'x'}) {
    const Errc code = word.size() == fits.size() ? Errc::none : Errc::limit;
    CHECK(outcome(of(str(word))) == code);
    CHECK(outcome(mpk(map({{word, nil}}))) == code);
    CHECK(outcome(map({{"metadata", heading()}, {"stele", map({{"k", str(word)}})}, {"item", nil}})) == code);
    CHECK(outcome(json('"' + word + '"')) == code);
  }
}

TEST_CASE("burn hostile: keys twice, keys missing, keys that are none") {
  const Entries whole = {{"metadata", heading()}, {"item", map({{"w", nil}})}, {"_b", list({})}};
  REQUIRE(outcome(map(whole)) == Errc::none);
  for (const std::size_t i : {0U, 1U}) {
    Entries twice = whole;
    twice.push_back(whole[i]);
    const Error error = refused(map(twice), Errc::duplicate);
    CHECK(error.path() == whole[i].first);
    CHECK(error.offset() == map(whole).size());
  }
  refused(map({whole[0], whole[2]}), Errc::malformed);
  CHECK(refused(mpk(map({{"w", param()}, {"v", nil}, {"w", nil}})), Errc::duplicate).path() == "w");
  CHECK(refused(of(map({{"a", list({map({{"b", nil}, {"b", nil}})})}})), Errc::duplicate).path() == "w.a.0.b");
  const std::string f = str("f32");
  CHECK(refused(mpk(nil, map({{"float", f}, {"float", f}})), Errc::duplicate).path() == "float");
  refused(mpk(nil, map({{"float", nil}})), Errc::malformed);
  refused(mpk(nil, list({})), Errc::malformed);
  CHECK(outcome(mpk(nil, map({}))) == Errc::none);

  // A map that Burn does not read as a tensor is no parameter, and only a tensor has bytes.
  const std::string bytes = bin("12345678");
  for (const Entries& keys : {Entries{{"bytes", bytes}, {"bytes", bytes}, {"shape", two}, {"dtype", f32}},
                              Entries{{"bytes", bytes}, {"shape", two}, {"shape", two}, {"dtype", f32}},
                              Entries{{"bytes", bytes}, {"shape", two}}, Entries{{"bytes", bytes}, {"dtype", f32}},
                              Entries{{"bytes", bytes}, {"shape", two}, {"dtype", f32}, {"more", nil}},
                              Entries{{"bytes", bytes}, {"shape", f32}, {"dtype", f32}},
                              Entries{{"bytes", bytes}, {"shape", two}, {"dtype", nil}}}) {
    CHECK(refused(of(map(keys)), Errc::malformed).path() == "w.bytes");
    CHECK(refused(of(map({{"id", str(id)}, {"param", map(keys)}})), Errc::malformed).path() == "w.param.bytes");
  }
  CHECK(refused(of(map({{"id", str(id)}, {"id", str(id)}, {"param", tensor()}})), Errc::duplicate).path() == "w.id");
  const LoadOptions options;
  for (const Entries& keys : {Entries{{"id", str(id)}}, Entries{{"id", nil}, {"param", tensor()}}}) {
    const std::string file = of(map(keys));
    CHECK(code_of(BurnRecorder<>().load<One>(bytes_of(file), options)) == Errc::kind_mismatch);
  }

  for (const std::string& key : {nil, "\1"s, "\xc3"s, "\x90"s, "\x91\xc0"s, "\x80"s, "\xca" + "1234"s, "\xc4\1x"s}) {
    CHECK(refused(mpk("\x82" + key + nil + str("w") + nil), Errc::malformed).offset() == item_at + 1);
  }
  for (const int mark : {0xc1, 0xc7, 0xc8, 0xc9, 0xd4, 0xd5, 0xd6, 0xd7, 0xd8}) {
    const Error error = refused(of(big(static_cast<unsigned>(mark), 1) + std::string(20, '\1')),
                                mark == 0xc1 ? Errc::malformed : Errc::unsupported);
    CHECK(error.offset() == item_at + 3);
    CHECK(error.found() == "byte " + std::to_string(mark));
  }
}

TEST_CASE("burn hostile: tensors that lie") {
  const std::string eight = bin("12345678");
  REQUIRE(outcome(of(param())) == Errc::none);
  const std::uint64_t tensor_at = item_at + 3 + 1 + 3 + 14 + 6 + 1;
  for (const std::string& shape :
       {list({"\1"}), list({"\3"}), list({}), list({"\2", "\2"}), list({"\0"s}),
        list({"\xcf" + big(UINT64_MAX / 2, 8), "\xcf" + big(UINT64_MAX / 2, 8)}),
        list({"\xcf" + big(std::uint64_t{1} << 62U, 8)}),
        list({"\xce" + big(std::uint64_t{1} << 31U, 4), "\xce" + big(std::uint64_t{1} << 31U, 4)})}) {
    const Error error = refused(of(param(tensor(eight, shape))), Errc::malformed);
    CHECK(error.path() == "w");
    CHECK(error.offset() == tensor_at);
    CHECK(error.found() == "8");
  }
  for (const std::string& extent : {"\xff"s, "\xd3" + big(UINT64_MAX, 8), "\xcf" + big(UINT64_MAX, 8),
                                    "\xcb" + big(0, 8), nil, "\xc3"s, str("2"), list({})}) {
    const Error error = refused(of(param(tensor(eight, list({extent})))), Errc::malformed);
    CHECK(error.path() == "w");
    CHECK(error.expected() == "an extent");
  }
  for (const std::string& dtype : {str("F99"), str(""), str("QFloat"), map({{"F32", nil}}), map({{"Bool", nil}}),
                                   map({{"Bool", str("U64")}}), map({{"Flex32", nil}})}) {
    CHECK(refused(of(param(tensor(eight, two, dtype))), Errc::unsupported).path() == "w");
  }
  for (const std::string& dtype :
       {map({}), map({{"Bool", str("U8")}, {"Bool", str("U8")}}), map({{"F32", nil}, {"F64", nil}})}) {
    CHECK(refused(of(param(tensor(eight, two, dtype))), Errc::malformed).path() == "w");
  }
  CHECK(outcome(of(param(tensor(eight, list({"\x08"}), map({{"Bool", str("Native")}}))))) == Errc::none);
  CHECK(outcome(of(param(tensor(eight, two, map({{"QFloat", list({map({{"any", nil}})})}}))))) == Errc::none);
  std::string ranks = "\xdd" + big(70000, 4);
  ranks.resize(ranks.size() + 70000, '\1');
  refused(of(param(tensor(bin("1234"), ranks))), Errc::limit);

  // In bincode: the same, along a class.
  for (const std::string& t : {bin_tensor("1234"), bin_tensor("12345678", "\2\2\2"), bin_tensor("12345678", "\0"s),
                               bin_tensor("12345678", "\2\xfd" + std::string(8, '\xff') + "\2"s)}) {
    CHECK(refused(binary(text(id) + t), Errc::malformed, along<One>()).path() == "w");
  }
  refused(binary(text(id) + bin_tensor("12345678", "\1\2", "\x0f")), Errc::unsupported, along<One>());
  refused(binary(text(id) + bin_tensor("12", "\1\2", "\x0d\3")), Errc::unsupported, along<One>());  // a store of bools
}

TEST_CASE("burn hostile: ids") {
  for (const std::string& wrong :
       {""s, id.substr(1), id + "0", "72D17eukbtkma"s, "72d17eukbtkmw"s, "72d17eukbtkm-"s, "72d17eukbtkmb"s,
        "000000000g00z"s, "0000000001"s, "123456789"s, "67e55044-10b1-426f-9247-bb680e5fe0c"s,
        "67e55044-10b1-426f-9247-bb680e5fe0cg"s, "67e55044x10b1-426f-9247-bb680e5fe0c8"s, std::string(13, '\0'),
        std::string(70, 'a')}) {
    CAPTURE(wrong);
    const Error error = refused(of(param(tensor(), wrong)), Errc::malformed);
    CHECK(error.path() == "w");
    CHECK(error.offset() == item_at + 3 + 1 + 3);
    refused(binary(text(wrong) + bin_tensor()), Errc::malformed, along<One>());
  }
  for (const std::string& kept : {id, "0123456780"s, "67e55044-10b1-426f-9247-bb680e5fe0c8"s, "vvvvvvvvvvvvu"s}) {
    CAPTURE(kept);
    const std::string files[] = {of(param(tensor(), kept)), binary(bin_param(kept))};
    for (const std::string& file : files) {
      BurnOptions options{.encoding = file == files[0] ? BurnEncoding::mpk : BurnEncoding::bin};
      options.schema = schema_of<One>();
      const BurnRecorder<> recorder = recorder_of(options);
      const Bytes again = good(saved(recorder, good(recorder.open(bytes_of(file)))));
      CHECK(text_of(again.span()).find(kept) != std::string_view::npos);
      const One module = good(recorder.load<One>(bytes_of(file)));
      const One same = good(recorder.load<One>(good(saved(recorder, module))));
      CHECK(module.w.id);
      CHECK(same.w.id == module.w.id);
    }
  }
}

namespace {

/// Fields named like Burn's own keys.
struct Params {
  Vec id, param, bytes, shape, dtype;
};
struct Structs {
  One id, param, bytes, shape, dtype;
};
struct Lists {
  std::vector<One> bytes, shape, value;
  std::string dtype, id;
  One param;
  STELE_MODULE(Lists, bytes, shape, value, dtype, id, param)
};
struct ShapeAndValue {
  std::vector<One> shape, value;
};
struct IdAndParam {
  std::string id;
  One param;
  STELE_MODULE(IdAndParam, id, param)
};
struct Named {
  Params params;
  Structs structs;
  Lists lists;
  ShapeAndValue shape_and_value;
  IdAndParam id_and_param;
  std::vector<IdAndParam> list;
};

/// All but the ids.
template <class M>
std::string told(const M& module) {
  const Snapshot snapshot = good(snapshot_of(module));
  std::string text = outline(snapshot);
  for (const Value& value : image(snapshot).values) text += value.as_string() != nullptr ? *value.as_string() : "?";
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) text += good(content(snapshot.leaf(i)));
  return text;
}

}  // namespace

TEST_CASE("burn hostile: fields named like keys of parameters") {
  float next = 0;
  const auto v = [&] { return Vec(vec({++next, next})); };
  Named n;
  n.params = {v(), v(), v(), v(), v()};
  n.structs = {{v()}, {v()}, {v()}, {v()}, {v()}};
  n.lists = {{{v()}, {v()}}, {{v()}}, {{v()}}, "F32", id, {v()}};
  n.shape_and_value = {{{v()}}, {{v()}, {v()}}};
  n.id_and_param = {id, {v()}};
  n.list.push_back({id, {v()}});
  for (const BurnEncoding encoding : {BurnEncoding::mpk, BurnEncoding::json}) {
    const BurnRecorder<> recorder = recorder_of({.encoding = encoding});
    const Bytes bytes = good(saved(recorder, n));
    const Named back = good(recorder.load<Named>(bytes));
    CHECK(told(back) == told(n));
    CHECK(good(recorder.open(bytes)).leaf_count() == good(snapshot_of(n)).leaf_count());
  }
}

TEST_CASE("burn hostile: damaged gzip, names that lie") {
  for (const Encoded& e : encodings()) {
    if (!e.options.gzip) continue;
    const BurnRecorder<> recorder = recorder_of(e.options);
    std::string damaged = e.file;
    damaged[damaged.size() - 8] ^= 1;  // of the CRC-32
    refused(damaged, Errc::checksum, recorder);
    damaged = e.file;
    damaged[damaged.size() - 1] ^= 1;  // of the length
    CHECK(outcome(damaged, recorder) != Errc::none);
    refused(e.file + e.file, Errc::malformed, recorder);  // two records
    refused(e.file.substr(0, e.file.size() - 1), Errc::truncated, recorder);
  }
  // The first bytes of a file determine its encoding, not its name.
  const TempDir dir;
  for (const Encoded& e : encodings()) {
    for (const char* name : {"m.mpk", "m.bin", "m.json", "m.mpk.gz", "m.bin.gz", "m.json.gz", "m"}) {
      write_text(dir / name, e.file);
      CHECK(image(good(BurnRecorder<>().load<Small>(dir / name))).values.empty());
    }
    CHECK(BurnFormat(e.options).recognises(bytes_of(e.file), e.file.size()));
    CHECK(BurnFormat().recognises(bytes_of(e.file), e.file.size()));
  }
}

}  // namespace burn_hostile_test
