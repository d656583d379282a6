// JSON records that are wrong: what is reported and where, and bombs.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <zstd.h>

#include <string>

#include "base/limits.hpp"
#include "support/child.hpp"
#include "support/recorders.hpp"
#include "support/sanitizers.hpp"
#include "support/stele_file.hpp"

#include "json_documents.hpp"

namespace json_hostile_test {

using namespace stele;
using namespace stele_test;
using namespace stele_test::json_documents;

TEST_CASE("json: what is wrong is said, and where") {
  struct Case {
    const char* record;
    Errc code;
    const char* path;
    const char* at;  // the offset is that of this text
  };
  const Case cases[] = {
      {R"({"v":{"$variant":"x"}})", Errc::malformed, "v", nullptr},
      {R"({"l":{"$elements":{"3":1,"2":1}}})", Errc::malformed, "l.2", "\"2\""},
      {R"({"l":{"$elements":{"3":1,"3":1}}})", Errc::duplicate, "l.3", "\"3\":1}"},
      {R"({"a":{"$dtype":"F32","shape":[1],"id":"07","data":"AAAAAA=="}})", Errc::malformed, "a", "\"07"},
      {R"({"a":{"$dtype":"F32","shape":[1],"id":"00","data":"AAAAAA=="}})", Errc::malformed, "a", "\"00"},
      {R"({"a":{"$dtype":"F32","shape":[1],"data":"AAAAA==="}})", Errc::malformed, "a", "AAAAA"},
      {R"({"a":{"$dtype":"F32","shape":[1],"data":"AAA*AA=="}})", Errc::malformed, "a", "AAA*"},
      {R"({"a":{"$dtype":"F32","shape":[1],"data":"AAAAAB=="}})", Errc::malformed, "a", "AAAAAB"},
      {R"({"a":{"$dtype":"F32","shape":[1],"data":"AAAAA"}})", Errc::malformed, "a", "\"AAAAA"},
      {R"({"a":{"$dtype":"F32","shape":[2],"data":"AAAAAA=="}})", Errc::malformed, "a", "\"AAAAAA"},
      {R"({"a":{"$dtype":"F32","data":"AAAAAA==","shape":[2]}})", Errc::malformed, "a", "\"AAAAAA"},
      {R"({"a":{"$dtype":"F31","shape":[1],"data":"AAAAAA=="}})", Errc::unsupported, "a", "\"F31"},
      {R"({"a":{"$dtype":"F32","shape":[-1],"data":"AAAAAA=="}})", Errc::out_of_range, "a", "-1"},
      {R"({"a":{"$dtype":"F32","shape":[4294967296,4294967296],"data":""}})", Errc::malformed, "a", "\"\""},
      {R"({"a":{"$dtype":"F32","shape":[1]}})", Errc::malformed, "a", nullptr},
      {R"({"a":{"$dtype":"F32","shape":[1],"data":null}})", Errc::malformed, "", "null}"},
      {R"({"a":{"$dtype":"F32","shape":[1],"data":7}})", Errc::malformed, "", "7}"},
      {R"({"a":{"$dtype":"F32","shape":[1],"shape":[1],"data":"AAAAAA=="}})", Errc::duplicate, "a",
       "\"shape\":[1],\"data"},
      {R"({"a":{"$dtype":"F32","shape":[1],"date":"AAAAAA=="}})", Errc::unsupported, "a", "\"date"},
      {R"({"a":{"shape":[1],"$dtype":"F32","data":"AAAAAA=="}})", Errc::unsupported, "a", "\"$dtype"},
      {R"({"a":{"\u0024dtype":"F32","shape":[1],"data":"AAAAAA=="}})", Errc::malformed, "a", "\"AAAA"},
      {R"({"a":{"$dtype":"F32","shape":[1],"d\u0061ta":"AAAAAA=="}})", Errc::malformed, "a", "\"AAAA"},
      {R"({"a":1,"a":2})", Errc::duplicate, "a", nullptr},
      {R"({"a":{"$ref":"b"},"b":1})", Errc::malformed, "a", nullptr},
      {R"({"a":{"b":{"$ref":"a"}}})", Errc::malformed, "a.b", nullptr},
      {R"({"a":{"$ref":"a"}})", Errc::malformed, "a", nullptr},
      {R"({"a":1,"b":{"$ref":"a"},"c":{"$ref":"b"}})", Errc::malformed, "c", nullptr},
      {R"({"a":{"$ref":"a","x":1}})", Errc::malformed, "a", "\"x\""},
      {R"({"a":{"$other":1}})", Errc::unsupported, "a", "\"$other"},
      {R"({"a":{"b":1,"$version":1}})", Errc::unsupported, "a", "\"$version"},
      {R"({"a":{"$version":4294967296}})", Errc::out_of_range, "a", "4294967296"},
      {R"({"a":{"$variant":null},"b":{"$variant":"x","other":1}})", Errc::malformed, "b", "\"other"},
      {R"({"a":{"$variant":"x","value":1,"more":1}})", Errc::malformed, "a", "\"more"},
      {R"({"a":{"$elements":{"1":1,"0":1}}})", Errc::malformed, "a.0", "\"0\""},
      {R"({"a":{"$elements":{"x":1}}})", Errc::malformed, "a", "\"x\""},
      {R"({"a":01})", Errc::malformed, "a", "01"},
      {R"({"a":+1})", Errc::malformed, "a", "+1"},
      {R"({"a":1e999})", Errc::out_of_range, "a", "1e999"},
      {R"({"a":tru})", Errc::malformed, "a", "tru"},
      {R"({"a":NaN})", Errc::malformed, "a", "NaN"},
      {R"({"a":[1,]})", Errc::malformed, "a.1", "]}"},
      {R"({"a":1,})", Errc::malformed, "", "}}"},
      {R"({"a" 1})", Errc::malformed, "", "1}"},
      {R"({"a":"\x"})", Errc::malformed, "a", "\\x"},
      {R"({"a":"\ud800"})", Errc::malformed, "a", "\\ud800"},
  };
  for (const Case& c : cases) {
    CAPTURE(std::string(c.record));
    const std::string text = document(c.record);
    for (const std::string& file : {text, compressed(text), deflated(text)}) {
      const auto opened = JsonRecorder<>().open(bytes_of(file));
      const auto read = opened ? JsonRecorder<>().verify(bytes_of(file)) : Result<Report>(opened.error());
      REQUIRE(!read);
      CHECK(read.error().code() == c.code);
      CHECK(read.error().path() == c.path);
      if (c.at == nullptr) continue;
      REQUIRE(read.error().offset());
      CHECK(*read.error().offset() == text.find(c.at));
    }
  }
}

TEST_CASE("json: documents that are none") {
  const std::string good = document("{}");
  CHECK(plain.open(bytes_of(good)));
  for (const std::string& bad :
       {std::string(),
        std::string("{}"),
        std::string("[]"),
        std::string("null"),
        good + "x",
        good + good,
        "\xef\xbb\xbf" + good,
        good.substr(0, good.size() - 1),
        std::string(R"({"format":"other","version":1,"record":{}})"),
        std::string(R"({"format":"stele-json","version":2,"record":{}})"),
        std::string(R"({"format":"stele-json","version":1})"),
        std::string(R"({"format":"stele-json","version":1,"record":{},"layout":"flat"})"),
        std::string(R"({"format":"stele-json","version":1,"layout":"round","record":{}})"),
        std::string(R"({"format":"stele-json","version":1,"metadata":{"a":1},"record":{}})"),
        std::string(R"({"format":"stele-json","version":1,"metadata":{"a":"1","a":"2"},"record":{}})"),
        std::string(R"({"format":"stele-json","version":1,"more":1,"record":{}})"),
        std::string(R"({"format":"stele-json","version":1,"record":{},"record":{}})"),
        std::string(R"({"format":"stele-json","version":1,"layout":"flat","record":{"a":{"b":1}}})"),
        std::string(R"({"format":"stele-json","version":1,"layout":"flat","record":[{"$f32":1},{"$f32":2}]})"),
        std::string(R"({"format":"stele-json","version":1,"layout":"flat","record":[1,2,3]})")}) {
    CAPTURE(bad);
    const auto opened = plain.open(bytes_of(bad));
    CHECK_FALSE(opened);
    CHECK_FALSE(zstd.open(bytes_of(compressed(bad))));
  }
}

namespace {

/// Runs `f` with `most` more bytes of address space than there are now.
template <class F>
std::string with_memory(std::uint64_t most, F f) {
  return in_child([&]() -> std::string {
    if (!sanitizers) {
      const std::uint64_t limit = address_space() + most;
      const rlimit address{static_cast<rlim_t>(limit), static_cast<rlim_t>(limit)};
      if (::setrlimit(RLIMIT_AS, &address) != 0) return "no limit";
    }
    return f();
  });
}

/// A zstd stream of `head`, `count` times `more`, and `tail`.
std::string stream(const std::string& head, const std::string& more, std::size_t count, const std::string& tail) {
  std::string packed(ZSTD_compressBound(std::size_t{1} << 20) + 1024, '\0');
  std::string all;
  const std::unique_ptr<ZSTD_CCtx, std::size_t (*)(ZSTD_CCtx*)> context(ZSTD_createCCtx(), ZSTD_freeCCtx);
  const auto put = [&](const std::string& text, ZSTD_EndDirective end) {
    ZSTD_inBuffer in{text.data(), text.size(), 0};
    std::size_t left = 1;
    while (left != 0 || in.pos != in.size) {
      ZSTD_outBuffer out{packed.data(), packed.size(), 0};
      left = ZSTD_compressStream2(context.get(), &out, &in, end);
      REQUIRE(!ZSTD_isError(left));
      all.append(packed, 0, out.pos);
      if (end == ZSTD_e_continue && in.pos == in.size) break;
    }
  };
  put(head, ZSTD_e_continue);
  for (std::size_t i = 0; i < count; ++i) put(more, ZSTD_e_continue);
  put(tail, ZSTD_e_end);
  return all;
}

}  // namespace

TEST_CASE("json: deep nesting, and bombs") {
  const std::string deep(1000000, '[');
  CHECK(code_of(plain.open(bytes_of(document(deep)))) == Errc::limit);
  CHECK(code_of(plain.open(bytes_of(document(R"({"a":{"$value":)" + deep)))) == Errc::limit);
  std::string objects;
  for (int i = 0; i < 200000; ++i) objects += R"({"a":)";
  CHECK(code_of(plain.open(bytes_of(document(objects)))) == Errc::limit);
  const std::string levels = std::string(63, '[') + std::string(63, ']');
  CHECK(plain.open(bytes_of(document(R"({"a":{"$value":)" + levels + "}}"))));
  CHECK(code_of(plain.open(bytes_of(document(R"({"a":{"$value":[[)" + levels + "]]}}")))) == Errc::limit);

  const std::string megabyte(std::size_t{1} << 20, ' ');
  const std::string head = R"({"format":"stele-json","version":1,"metadata":{},"record":{"a":)";
  const std::string tensor = R"({"$dtype":"F32","shape":[1],"data":)";
  const std::string a(std::size_t{1} << 20, 'A');
  std::string lists;
  for (int i = 0; i < 1 << 18; ++i) lists += "[],";
  const std::string bombs[] = {
      stream(head, megabyte, 4096, "1}}"),                   // spaces
      stream(head + tensor + "\"", a, 4096, "\"}}}"),        // more data than a tensor has
      stream(head + tensor + "[", megabyte, 4096, "1]}}}"),  // spaces between numbers
      stream(head + "\"", a, 4096, "\"}}"),                  // a text
      stream(head + "[", lists, 512, "1]}}"),                // nodes
      stream(head + R"({"$value":[)", lists, 512, "1]}}}"),  // values
      stream(R"({"format":"stele-json","version":1,"metadata":{"a":")", a, 4096, "\"}}"),
  };
  for (const std::string& bomb : bombs) {
    REQUIRE(bomb.size() < std::size_t{1} << 20);
    CHECK(with_memory(detail::compressed_index_base + (std::uint64_t{128} << 20), [&]() -> std::string {
            const auto opened = plain.open(bytes_of(bomb));
            if (opened) return "opened";
            const Errc code = opened.error().code();
            return code == Errc::limit || code == Errc::malformed ? "" : why(opened);
          }) == "");
  }
  // A tensor that is as large as it says is none; what it takes is up to Limits.
  const std::string zeros = stream(
      R"({"format":"stele-json","version":1,"metadata":{},"record":{"a":{"$dtype":"U8","shape":[805306368],"data":")",
      a, 1024, "\"}}}");
  struct Model {
    Tensor<std::uint8_t, 1> a;
  };
  LoadOptions options;
  options.limits.tensor_bytes = std::uint64_t{1} << 20;
  CHECK(code_of(plain.load<Model>(bytes_of(zeros), options)) == Errc::limit);
}

namespace {
struct Chain {
  Tensor<float, 1> t{{1}, {1.F}};
  std::unique_ptr<Chain> next;
  STELE_MODULE(Chain, t, next)
};
}  // namespace

TEST_CASE("json: modules as deep as they may be") {
  Chain first;
  Chain* last = &first;
  for (int i = 0; i < 250; ++i) last = (last->next = std::make_unique<Chain>()).get();
  const Bytes bytes = zstd.save(first).value();
  CHECK(zstd.load<Chain>(bytes));
}

TEST_CASE("json: a leaf below 512 modules, as in .stele") {
  const auto nested = [](int modules) {
    std::string text;
    for (int i = 1; i < modules; ++i) text += R"({"m":)";
    return document(text + R"({"v":1})" + std::string(static_cast<std::size_t>(modules) - 1, '}'));
  };
  const auto opened = plain.open(bytes_of(nested(512)));
  REQUIRE_MESSAGE(opened, why(opened));
  const Bytes again = BytesRecorder<>().save(*opened).value();
  CHECK(BytesRecorder<>().open(again.span()));
  CHECK(code_of(plain.open(bytes_of(nested(513)))) == Errc::limit);
}

}  // namespace json_hostile_test
