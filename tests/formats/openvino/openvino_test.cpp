// OpenVINO IR: files of OpenVINO, saves into a model, XML and constants by hand, and damaged files.
#include <stele/bundle.hpp>
#include <stele/composite.hpp>
#include <stele/recorders/any.hpp>
#include <stele/recorders/openvino.hpp>
#include <stele/recover.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "recorders/openvino/xml.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace openvino_test {

namespace {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;
namespace xml = stele::detail::xml;

struct Layer {
  Tensor<float, 1> bias;
};
struct Part {
  Layer fc;
};
struct Parts {
  Layer fc;
  Tensor<float, 1> norm1;
};
struct Wide {
  struct {
    Tensor<double, 1> bias;
  } fc;
};
struct Opaque {
  Tensor<std::uint8_t, 1> nf4;
};

std::string golden(const std::string& name) { return test_data("openvino") + "/" + name; }
OpenvinoRecorder<> into(const std::string& model) { return OpenvinoRecorder<>(OpenvinoFormat({.model = model})); }

std::string content_of(const Snapshot& snapshot, const std::string& name) {
  const auto leaf = snapshot.find(name);
  REQUIRE_MESSAGE(leaf.has_value(), name);
  return good(content(*leaf));
}
std::vector<float> floats_of(const std::string& bytes) {
  std::vector<float> floats(bytes.size() / sizeof(float));
  std::memcpy(floats.data(), bytes.data(), bytes.size());
  return floats;
}

/// Returns a bundle's model: both files.
std::shared_ptr<Bundle> bundle_of(const std::string& graph, const std::string& constants) {
  const auto bundle = memory_bundle();
  for (const auto& [name, text] : {std::pair("m.xml", &graph), std::pair("m.bin", &constants)}) {
    const auto sink = good(bundle->create(name));
    good(sink->write(bytes_of(*text)));
    good(sink->commit());
  }
  return bundle;
}
Result<Snapshot> opened(const std::string& graph, const std::string& constants, const char* name = "m.xml") {
  STELE_TRY_ASSIGN(SourcePtr source, bundle_of(graph, constants)->open(name));
  return OpenvinoRecorder<>().open(std::move(source));
}

/// Returns a layer of a constant.
std::string layer(const std::string& id, const std::string& name, const std::string& data) {
  return "<layer id=\"" + id + "\" name=\"" + name + "\" type=\"Const\"><data " + data + "/></layer>";
}
std::string place(const std::string& type, const std::string& shape, const std::string& offset,
                  const std::string& size) {
  return "element_type=\"" + type + "\" shape=\"" + shape + "\" offset=\"" + offset + "\" size=\"" + size + "\"";
}
std::string net(const std::string& layers, const std::string& version = "11") {
  return "<?xml version=\"1.0\"?><net name=\"n\" version=\"" + version + "\"><layers>" + layers + "</layers></net>";
}

/// Reads a whole document. Returns "<a<b>>" for <a><b/></a>.
Result<std::string> outline_of(std::string_view document) {
  xml::Reader in(document);
  std::string text;
  for (;;) {
    STELE_TRY_ASSIGN(const xml::Event event, in.next());
    if (event == xml::Event::finish) return text;
    text += event == xml::Event::begin ? "<" + std::string(in.name()) : ">";
  }
}

}  // namespace

TEST_CASE("openvino: constants of every type") {
  const Snapshot all = good(stele::open(golden("types.xml")));
  CHECK(all.leaf_count() == 30);
  const std::pair<const char*, DType> dtypes[] = {
      {"float64", DType::f64},    {"float32", DType::f32},
      {"float16", DType::f16},    {"int64", DType::i64},
      {"int32", DType::i32},      {"int16", DType::i16},
      {"int8", DType::i8},        {"uint64", DType::u64},
      {"uint32", DType::u32},     {"uint16", DType::u16},
      {"uint8", DType::u8},       {"bool", DType::boolean},
      {"bf16", DType::bf16},      {"f8e4m3", DType::f8_e4m3fn},
      {"f8e5m2", DType::f8_e5m2}, {"f8e8m0", DType::f8_e8m0},
      {"i4", DType::i4},          {"u4", DType::u4},
      {"f4e2m1", DType::f4_e2m1},
  };
  for (const auto& [name, dtype] : dtypes) {
    const auto leaf = all.find(name);
    REQUIRE(leaf);
    CHECK(leaf->dtype() == dtype);
  }
  CHECK(content_of(all, "int16") == in_file_order("\0\0\1\0\2\0\3\0\4\0\5\0"s, DType::i16));
  CHECK(content_of(all, "u4") == "\x01\x08\x0f\x16\x1d\x24\x2b\x32");
  CHECK(content_of(all, "f8e8m0") == "\x7f\x80\x7e\x81");
  CHECK(all.find("scalar")->shape().empty());
  CHECK(all.find("empty")->byte_size() == 0);
  CHECK(all.find("twice"));
  CHECK(all.find("twice#2"));
  CHECK(all.find("odd <&\"'> é\n\tname"));
  for (const std::string name : {"u1", "u2", "u3", "u6", "nf4", "strings"}) {
    CAPTURE(name);
    CHECK(all.find(name)->dtype() == DType::opaque);
    CHECK(unreadable_reason(*all.find(name)) == "elements of the type " + (name == "strings" ? "string" : name));
  }
}

TEST_CASE("openvino: either file opens the model") {
  const Snapshot graph = good(stele::open(golden("net.xml"))), constants = good(stele::open(golden("net.bin")));
  CHECK(graph.leaf_count() == 6);
  CHECK(constants.leaf_count() == 6);
  const Snapshot both[] = {graph, constants};
  for (const Snapshot& s : both) {
    CHECK(floats_of(content_of(s, "fc.bias")) == std::vector<float>{0, 1, 2});
    CHECK(floats_of(content_of(s, "branch.then_body.w")) == std::vector<float>{1, 2, 3});
    CHECK(floats_of(content_of(s, "branch.else_body.w")) == std::vector<float>{3, 4, 5});
    CHECK(content_of(s, "norm0") == content_of(s, "norm1"));
    const auto weight = s.find("fc\\.weight");
    CHECK(s.find("fc.weight").has_value());
    CHECK_FALSE(weight.has_value());
  }
  // A part of a tensor.
  std::vector<float> part(2);
  good(graph.find("fc.weight")->read(4, std::as_writable_bytes(std::span(part))));
  CHECK(part == std::vector<float>{0.125F, 0.25F});
  const TempDir dir;
  std::filesystem::copy_file(golden("net.xml"), dir / "net.xml");
  CHECK(code_of(stele::open(dir / "net.xml")) == Errc::not_found);
  std::filesystem::copy_file(golden("net.bin"), dir / "other.bin");
  CHECK(code_of(stele::open(dir / "other.bin")) == Errc::bad_magic);
  CHECK(code_of(OpenvinoRecorder<>().open(dir / "other.bin")) == Errc::not_found);
  const std::string text = read_text(golden("net.xml"));
  CHECK(code_of(OpenvinoRecorder<>().open(bytes_of(text))) == Errc::unsupported);
}

TEST_CASE("openvino: weights that the graph decompresses are composite tensors") {
  const Snapshot all = good(stele::open(golden("compressed.xml")));
  for (const char* name : {"asym8", "sym8", "sym4", "one4", "asym4"}) {
    CAPTURE(name);
    const auto leaf = all.find(name);
    REQUIRE(leaf);
    REQUIRE(composite(*leaf));
    CHECK(composite(*leaf)->scheme == "linear");
    CHECK(floats_of(content_of(all, name)) == floats_of(read_text(golden(name + ".f32"s))));
  }
  CHECK(composite(*all.find("asym8"))->parts.size() == 3);
  CHECK_FALSE(all.find("asym8/scale"));
  CHECK(all.find("one4")->shape().size() == 3);
  CHECK(all.notes().empty());
}

TEST_CASE("openvino: the order of a graph's products does not depend on a hash table") {
  std::string layers, edges, weights;
  std::size_t id = 0;
  const auto next = [&](const std::string& name, const std::string& data) {
    layers += layer(std::to_string(id), name, data);
    return id++;
  };
  const auto operation = [&](const std::string& type, const std::vector<std::size_t>& inputs) {
    layers +=
        "<layer id=\"" + std::to_string(id) + "\" name=\"" + type + std::to_string(id) + "\" type=\"" + type + "\"/>";
    for (std::size_t port = 0; port < inputs.size(); ++port) {
      edges += "<edge from-layer=\"" + std::to_string(inputs[port]) + "\" from-port=\"0\" to-layer=\"" +
               std::to_string(id) + "\" to-port=\"" + std::to_string(port) + "\"/>";
    }
    return id++;
  };
  std::vector<std::string> notes;
  for (int i = 0; i < 20; ++i) {
    const std::string name = "w" + std::to_string(i);
    const std::size_t codes = operation("Convert", {next(name, place("u8", "2", "0", "2"))});
    for (const char* const scale : {"a", "b"})
      operation("Multiply", {codes, next(name + scale, place("f32", "1", "4", "4"))});
    notes.push_back(name + ": several scales multiply it");
  }
  const std::size_t shared = operation("Convert", {next("shared", place("u8", "2", "0", "2"))});
  const std::size_t scale = next("scale", place("f32", "1", "4", "4"));
  for (int i = 0; i < 2; ++i) operation("Multiply", {shared, scale});
  const std::string graph =
      "<net name=\"n\" version=\"11\"><layers>" + layers + "</layers><edges>" + edges + "</edges></net>";
  const Snapshot all = good(opened(graph, "\1\2\0\0\0\0\0\x40"s));
  CHECK(all.notes() == notes);
  CHECK(floats_of(content_of(all, "shared")) == std::vector<float>{2, 4});
}

TEST_CASE("openvino: new constants in a model") {
  const TempDir dir;
  const std::string graph = read_text(golden("net.xml")), constants = read_text(golden("net.bin"));
  const Part some{{Tensor<float, 1>({3}, {7, 8, 9})}};
  good(into(golden("net.xml")).save(some, dir / "a.xml", quick()));
  CHECK(read_text(dir / "a.xml") == graph);
  std::string expected = constants;
  const float values[] = {7, 8, 9};
  const std::size_t bias = constants.find("\0\0\0\0\0\0\x80\x3f\0\0\0\x40"s);
  REQUIRE(bias != constants.npos);
  std::memcpy(expected.data() + bias, values, sizeof values);
  CHECK(read_text(dir / "a.bin") == expected);
  // The same graph: only the `.bin` is replaced, in one step.
  good(into(golden("net.xml")).save(some, dir / "a.xml", quick()));
  good(into(dir / "a.xml").save(some, dir / "a.xml", quick()));
  CHECK(read_text(dir / "a.bin") == expected);

  // A constant that shares its bytes moves to the end.
  const Parts both{some.fc, Tensor<float, 1>({3}, {1, 2, 3})};
  CHECK(code_of(into(golden("net.xml")).save(both, dir / "a.xml", quick())) == Errc::exists);
  CHECK(read_text(dir / "a.bin") == expected);
  SaveOptions over = quick();
  over.file.allow_nonatomic = true;
  good(into(golden("net.xml")).save(both, dir / "a.xml", over));
  const Snapshot moved = good(stele::open(dir / "a.bin"));
  CHECK(floats_of(content_of(moved, "norm0")) == std::vector<float>{5, 5, 5});
  CHECK(floats_of(content_of(moved, "norm1")) == std::vector<float>{1, 2, 3});
  CHECK(floats_of(content_of(moved, "fc.bias")) == std::vector<float>{7, 8, 9});
  CHECK(read_text(dir / "a.bin").size() == 128 + 12);
  CHECK(read_text(dir / "a.xml").size() == graph.size() + 1);

  // All constants of another file, and those of an archive of another format.
  good(stele::save(moved, dir / "w.safetensors", quick()));
  good(into(golden("net.xml")).save(good(stele::open(dir / "w.safetensors")), dir / "b.xml", quick()));
  CHECK(floats_of(content_of(good(stele::open(dir / "b.xml")), "norm1")) == std::vector<float>{1, 2, 3});
  // Composite tensors are written as their parts.
  good(into(golden("compressed.xml")).save(good(stele::open(golden("compressed.xml"))), dir / "c.xml", quick()));
  const Snapshot before = good(stele::open(golden("compressed.xml"))), after = good(stele::open(dir / "c.xml"));
  for (const char* name : {"asym8", "sym8", "sym4", "one4", "asym4"}) {
    CHECK(content_of(after, name) == content_of(before, name));
  }
}

TEST_CASE("openvino: saves that are refused change nothing") {
  const TempDir dir;
  const Part part{{Tensor<float, 1>({3})}};
  const auto refused = [&](const auto& module, const char* model = "net.xml", const char* name = "a.xml") {
    return code_of(into(golden(model)).save(module, dir / name, quick()));
  };
  CHECK(code_of(OpenvinoRecorder<>().save(part, dir / "a.xml", quick())) == Errc::unsupported);
  CHECK(code_of(saved(into(golden("net.xml")), part)) == Errc::unsupported);
  CHECK(refused(part, "net.xml", "a.bin") == Errc::invalid_argument);
  CHECK(refused(part, "none.xml") == Errc::not_found);
  CHECK(refused(Layer{Tensor<float, 1>({3})}) == Errc::not_representable);
  CHECK(refused(Part{{Tensor<float, 1>({4})}}) == Errc::shape_mismatch);
  CHECK(refused(Wide{{Tensor<double, 1>({3})}}) == Errc::dtype_mismatch);
  CHECK(refused(Opaque{Tensor<std::uint8_t, 1>({8})}, "types.xml") == Errc::unsupported);
  const Error kept = bad(into(golden("types.xml")).save(Opaque{Tensor<std::uint8_t, 1>({8})}, dir / "a.xml", quick()));
  CHECK(kept.path() == "nf4");
  CHECK(kept.found() == "an unreadable entry: elements of the type nf4");
  write_text(dir / "a.bin", "other");
  CHECK(refused(part) == Errc::exists);
  CHECK(dir.names() == std::vector<std::string>{"a.bin"});
  CHECK(read_text(dir / "a.bin") == "other");
}

TEST_CASE("openvino: constants by hand") {
  CHECK(good(opened(net(""), "")).leaf_count() == 0);
  const Snapshot one = good(opened(net(layer("0", "w", place("FP32", "1,2", "4", "8"))), std::string(12, '\1')));
  CHECK(one.find("w")->dtype() == DType::f32);
  CHECK(one.find("w")->shape()[1] == 2);
  // Layers without a name, and with names that occur twice.
  const std::string u8 = place("u8", "1", "0", "1");
  const Snapshot names = good(opened(net(layer("0", "", u8) + layer("1", "a", u8) + layer("2", "a", u8) +
                                         layer("3", "a#2", u8) + layer("4", "a.b", u8)),
                                     "x"));
  for (const char* name : {"#0", "a", "a#2", "a#2#3", "a.b"}) CHECK_MESSAGE(names.find(name), name);
  // A `.bin` may be longer than its constants, and a constant longer than its elements.
  CHECK(good(opened(net(layer("0", "w", place("i4", "3", "0", "3"))), "abcd")).find("w")->byte_size() == 2);
  CHECK(good(opened(net(layer("0", "w", place("u8", "-1", "0", "3"))), "abcd")).leaf(0).dtype() == DType::opaque);
  CHECK(good(opened(net(layer("0", "w", place("new", "2", "0", "3"))), "abcd")).leaf(0).byte_size() == 3);
  CHECK(good(opened(net(layer("0", "w", u8), "12"), "x", "m.bin")).leaf_count() == 1);

  const std::pair<const char*, std::string> graphs[] = {
      {"beyond the end", net(layer("0", "w", place("u8", "4", "1", "4")))},
      {"an offset of 2^64 - 1", net(layer("0", "w", place("u8", "4", "18446744073709551615", "4")))},
      {"an offset of 2^64", net(layer("0", "w", place("u8", "4", "18446744073709551616", "4")))},
      {"a negative offset", net(layer("0", "w", place("u8", "4", "-1", "4")))},
      {"too few bytes", net(layer("0", "w", place("u16", "3", "0", "4")))},
      {"a large shape", net(layer("0", "w", place("u8", "4294967296,4294967296", "0", "4")))},
      {"no size", net(layer("0", "w", "element_type=\"u8\" shape=\"\" offset=\"0\""))},
      {"no data", net("<layer id=\"0\" name=\"w\" type=\"Const\"/>")},
      {"no type", net("<layer id=\"0\" name=\"w\"/>")},
      {"no id", net(layer("", "", u8))},
      {"no version", "<net name=\"n\"><layers/></net>"},
      {"another version", net("", "x")},
      {"an edge", "<net version=\"11\"><edges><edge from-layer=\"a\" to-layer=\"0\" to-port=\"0\"/></edges></net>"},
      {"another root", "<model version=\"11\"/>"},
  };
  for (const auto& [what, graph] : graphs) {
    const std::string shown = what;
    CAPTURE(shown);
    CHECK(code_of(opened(graph, "abcd")) == Errc::malformed);
  }
  const Error old = bad(opened(net("", "7"), ""));
  CHECK(old.code() == Errc::unsupported);
  CHECK(old.expected() == "10 or later");
  CHECK(old.found() == "7");
  CHECK(good(opened(net("", "10"), "")).leaf_count() == 0);
  const auto beyond = opened(graphs[0].second, "abcd");
  CHECK(beyond.error().path() == "w");
  CHECK(beyond.error().offset() == 1);
  const auto few = opened(graphs[4].second, "abcd");
  CHECK(few.error().expected() == "at least 6");
  CHECK(few.error().found() == "4");
}

TEST_CASE("openvino: the content of a graph is recognised") {
  const OpenvinoFormat format;
  for (const char* head :
       {"<net name=\"a\" version=\"11\">", "\xef\xbb\xbf<?xml version=\"1.0\"?>\n<!-- a -->\n<net version='11'/>"}) {
    CHECK(format.recognises(bytes_of(head), 1000));
  }
  for (const char* head :
       {"", "<net", "<nets version=\"11\">", "<?xml version=\"1.0\"?><html>", "<net>", "net version"}) {
    CHECK_FALSE(format.recognises(bytes_of(head), 1000));
  }
  // A zip archive `.bin` is PyTorch's; a pointer of git-lfs is a pointer.
  const TempDir dir;
  std::filesystem::copy_file(golden("net.xml"), dir / "a.xml");
  write_text(dir / "a.bin", "version https://git-lfs.github.com/spec/v1\n");
  CHECK(code_of(stele::open(dir / "a.bin")) == Errc::unsupported);
}

TEST_CASE("openvino: XML") {
  CHECK(good(outline_of("<a/>")) == "<a>");
  CHECK(good(outline_of("<?xml version='1.0' encoding='UTF-8'?><!-- < --><a x = '1' y=\"'\"> t &lt;&#xe9; <b/>"
                        "<![CDATA[<c>]]><?p ?></a>\n<!---->")) == "<a<b>>");
  const std::pair<const char*, const char*> malformed[] = {
      {"nothing", ""},
      {"text", "a"},
      {"text before", "a<a/>"},
      {"text after", "<a/>a"},
      {"two roots", "<a/><a/>"},
      {"an open element", "<a>"},
      {"another end", "<a></b>"},
      {"an end alone", "</a>"},
      {"a document type", "<!DOCTYPE a [<!ENTITY e 'x'>]><a>&e;</a>"},
      {"an entity", "<a>&e;</a>"},
      {"a reference without an end", "<a>&#65</a>"},
      {"a zero byte", "<a>&#0;</a>"},
      {"a surrogate", "<a>&#xd800;</a>"},
      {"a large character", "<a>&#x110000;</a>"},
      {"a large number", "<a>&#99999999999;</a>"},
      {"a number with a sign", "<a>&#-5;</a>"},
      {"an attribute twice", "<a b='' b=''/>"},
      {"an attribute without a space", "<a b=''c=''/>"},
      {"an attribute without a value", "<a b/>"},
      {"an attribute without quotes", "<a b=c/>"},
      {"an attribute without an end", "<a b='c/>"},
      {"a tag in an attribute", "<a b='<'/>"},
      {"a tag without a name", "< a/>"},
      {"a tag without an end", "<a"},
      {"a comment without an end", "<a/><!-- "},
      {"no UTF-8", "<a>\xff</a>"},
  };
  for (const auto& [what, document] : malformed) {
    const std::string shown = what;
    CAPTURE(shown);
    CHECK(code_of(outline_of(document)) == Errc::malformed);
  }
  CHECK(code_of(outline_of("<?xml version='1.0' encoding='UTF-16'?><a/>")) == Errc::unsupported);
  std::string deep, wide = "<a";
  for (int i = 0; i < 300; ++i) deep += "<a>", wide += " b" + std::to_string(i) + "=''";
  CHECK(code_of(outline_of(deep)) == Errc::limit);
  CHECK(code_of(outline_of(wide + "/>")) == Errc::limit);
  xml::Reader in("<a b='&lt;&gt;&amp;&quot;&apos;&#65;&#x1F600;\r\nx\ty'/>");
  CHECK(good(in.next()) == xml::Event::begin);
  CHECK(good(in.attribute("b")) == "<>&\"'A\xf0\x9f\x98\x80 x y");
  CHECK_FALSE(good(in.attribute("c")));
}

TEST_CASE("openvino: damaged files are errors, or open") {
  const auto check = [&](const std::string& text, const std::string& bin) {
    const auto result = opened(text, bin);
    if (!result) {
      CHECK(result.error().code() != Errc::out_of_memory);
      return;
    }
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < result->leaf_count(); ++i) {
      if (const auto all = content(result->leaf(i))) total += all->size();
    }
    CHECK(total <= 64 * bin.size());
  };
  const std::string own = net(layer("0", "a&amp;b", place("u8", "2, 2", "0", "4")) +
                              "<layer id=\"1\" name=\"c\" type=\"Convert\"/>"
                              "<layer id=\"2\" name=\"loop\" type=\"Loop\"><body><layers>" +
                              layer("3", "w", place("f16", "", "4", "2")) + "</layers><edges/></body></layer>");
  const std::pair<std::string, std::string> models[] = {{own, "abcdef"},
                                                        {read_text(golden("net.xml")), read_text(golden("net.bin"))}};
  for (const auto& [graph, constants] : models) {
    CHECK(opened(graph, constants));
    const std::size_t step = graph.size() > 1000 ? 7 : 1;
    for (std::size_t n = 0; n < graph.size(); n += step) {
      check(graph.substr(0, n), constants);
      for (const char damage : {'\1', '"', '9', '<'}) {
        std::string damaged = graph;
        damaged[n] = damage;
        check(damaged, constants);
      }
    }
    for (std::size_t n = 0; n < constants.size(); ++n) {
      CHECK(code_of(opened(graph, constants.substr(0, n))) == Errc::malformed);
    }
  }
}

TEST_CASE("openvino: many layers, and names that grow") {
  std::string many, same, nested, ends;
  for (int i = 0; i < 2000; ++i) many += layer(std::to_string(i), "", place("u8", "", "0", "1"));
  CHECK(good(opened(net(many), "x")).leaf_count() == 2000);
  for (int i = 0; i < 20000; ++i) same += layer("0", "", place("u8", "", "0", "1"));
  CHECK(code_of(opened(net(same), "x")) == Errc::limit);
  for (int i = 0; i < 60; ++i) {
    nested += "<layer id=\"0\" name=\"" + std::string(i == 0 ? 10'000 : 1, 'n') + "\" type=\"Loop\"><body><layers>";
    ends += "</layers></body></layer>";
  }
  CHECK(good(opened(net(nested + layer("0", "w", place("u8", "", "0", "1")) + ends), "x")).leaf_count() == 1);
  for (int i = 0; i < 1000; ++i) nested += "<layer id=\"0\" name=\"a\" type=\"Loop\"/>";
  CHECK(code_of(opened(net(nested + ends), "x")) == Errc::limit);
}

}  // namespace openvino_test
