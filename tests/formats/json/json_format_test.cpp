// JSON records: the documents themselves, and documents of other programs.
#include <doctest/doctest.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "stele/precision/base64.hpp"
#include "support/models.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"
#include "support/stele_file.hpp"
#include "support/temp_dir.hpp"

#include "json_documents.hpp"

namespace json_format_test {

using namespace stele;
using namespace stele_test;
using namespace stele_test::json_documents;

TEST_CASE("json: the document") {
  const std::string text(text_of(plain.save(all()).value().span()));
  CHECK(
      text ==
      R"({"format":"stele-json","version":1,"metadata":{},"record":{"layers":[)"
      R"({"weight":{"$dtype":"F32","shape":[2,3],"data":"AACAPwAAIEAAAACAzczMPQEAAADmsWF/"},"bias":null},)"
      R"({"weight":{"$dtype":"F32","shape":[1,1],"id":"18446744073709551615","data":"AADgQA=="},)"
      R"("bias":{"$dtype":"F32","shape":[0],"id":"01234567-89ab-cdef-fedc-ba9876543210","data":""}}],)"
      R"("choice":{"$variant":"Versioned","value":{"$version":3,"t":{"$dtype":"I16","shape":[2],"data":"//8sAQ=="}}},)"
      R"("tied":{"$version":3,"t":{"$dtype":"I16","shape":[1],"data":"BQA="}},"again":{"$ref":"tied"},)"
      R"("named":{"$$x":{"$dtype":"BOOL","shape":[2],"data":"AQA="},"a.b":{"$dtype":"BOOL","shape":[1],"data":"AQ=="}},)"
      R"("text":"line\nü\"","rate":0.5,"steps":-3,"on":true,"any":{"$value":{"k":[null,{"$f64":"inf"}]}}}})");
  const All again = plain.load<All>(bytes_of(text)).value();
  CHECK(again.any == all().any);
  CHECK(again.tied == again.again);
  CHECK(again.layers[1].bias->id == all().layers[1].bias->id);
  CHECK(std::signbit((*again.layers[0].weight)(0, 2)));
}

TEST_CASE("json: readable numbers") {
  const JsonRecorder<> recorder(JsonFormat({.encoding = JsonEncoding::plain, .pretty = true, .numbers_up_to = 6}));
  BufferSink sink;
  REQUIRE(recorder.save(all(), sink));
  const Bytes bytes = sink.take();
  const std::string text(text_of(bytes.span()));
  CHECK(text.starts_with(R"({
  "format": "stele-json",
  "version": 1,
  "metadata": {},
  "record": {
    "layers": [
      {
        "weight": {"$dtype": "F32", "shape": [2, 3], "data": [
          [1.0,2.5,-0.0],
          [0.1,1e-45,3e+38]]},
        "bias": null
      },
      {
        "weight": {"$dtype": "F32", "shape": [1, 1], "id": "18446744073709551615", "data": [
          [7.0]]},
        "bias": {"$dtype": "F32", "shape": [0], "id": "01234567-89ab-cdef-fedc-ba9876543210", "data": ""}
      }
    ],
    "choice": {
      "$variant": "Versioned",
      "value": {
        "$version": 3,
        "t": {"$dtype": "I16", "shape": [2], "data": [-1,300]}
      }
    },)"));
  const Snapshot back = plain.open(bytes).value();
  CHECK(text_of(plain.save(back).value().span()) == text_of(plain.save(all()).value().span()));
}

TEST_CASE("json: the encoding by name, or as it is told") {
  const TempDir dir;
  const All a = all();
  const std::string text(text_of(plain.save(a).value().span()));
  const JsonRecorder<> recorder;
  for (const char* name : {"m.json", "m.json.zst", "m.json.gz", "m.weights"}) {
    REQUIRE(recorder.save(a, dir / name, quick()));
    CHECK(image(load<All>(dir / name).value()) == image(a));
  }
  REQUIRE(recorder.save(a, dir / "none", quick()));
  CHECK(image(recorder.load<All>(dir / "none.json.zst").value()) == image(a));
  CHECK(read_text(dir / "m.json") == text);
  CHECK(decompressed(read_text(dir / "m.json.zst")) == text);
  CHECK(decompressed(read_text(dir / "m.weights")) == text);
  CHECK(inflated(read_text(dir / "m.json.gz")) == text);
  REQUIRE(save(a, dir / "front.json.gz", quick()));
  CHECK(read_text(dir / "front.json.gz") == read_text(dir / "m.json.gz"));
  CHECK(format_of_path("x.safetensors.index.json").value()->name() == "safetensors-sharded");
  CHECK(format_of_path("x.json").value()->name() == "json");
  const JsonRecorder<> told(JsonFormat({.encoding = JsonEncoding::gzip}));
  REQUIRE(told.save(a, dir / "told.json", quick()));
  CHECK(inflated(read_text(dir / "told.json")) == text);
}

TEST_CASE("json: documents of others") {
  // Spaces, another order of keys, data before the shape, names in escapes.
  const std::string text = R"( { "format" : "stele-json", "version" : 1,
    "record": { "layers": [ {"bias": null,
      "we\u0069ght": { "$dtype":"F32", "data":"AACAPwAAAEA=", "shape":[ 1, 2 ]} } ] } , "metadata" : { "by" : "hand" } }
  )";
  struct Model {
    std::vector<Dense> layers;
  };
  const auto loaded = load<Model>(bytes_of(text));
  REQUIRE_MESSAGE(loaded, why(loaded));
  CHECK((*loaded->layers.at(0).weight)(0, 1) == 2);
  CHECK(open(bytes_of(text)).value().metadata().at("by") == "hand");
}

TEST_CASE("json: base64, every character at every place") {
  for (std::size_t size : {0U, 1U, 2U, 3U, 11U, 12U, 13U, 24U, 47U, 48U, 49U, 100U}) {
    std::vector<std::byte> bytes(size);
    Random random(size + 1);
    random.fill(bytes);
    std::string text(base64_size(size), '?');
    base64_encode(bytes, text.data());
    std::vector<std::byte> again(size + 1, std::byte{7});
    REQUIRE(base64_decoded_size(text) == size);
    REQUIRE(base64_decode(text, again.data()));
    CHECK(std::equal(bytes.begin(), bytes.end(), again.begin()));
    CHECK(again.back() == std::byte{7});  // and no more was written
    for (std::size_t at = 0; at < text.size(); ++at) {
      for (int c = 0; c < 256; ++c) {
        std::string changed = text;
        changed[at] = static_cast<char>(c);
        again.assign(size + 3, std::byte{0});
        const std::size_t expected = base64_decoded_size(changed);
        if (!base64_decode(changed, again.data())) continue;
        // The only text accepted for those bytes is the one that the encoder writes.
        again.resize(expected);
        std::string back(base64_size(expected), '?');
        base64_encode(again, back.data());
        REQUIRE(back == changed);
      }
    }
  }
}

}  // namespace json_format_test
