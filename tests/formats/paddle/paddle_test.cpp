// Paddle's parameter files.
#include <stele/bundle.hpp>
#include <stele/recorders/paddle.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "support/golden_text.hpp"
#include "support/models.hpp"
#include "support/paddle.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

using namespace stele_test;
using namespace std::string_literals;
using stele::DType;
using stele::Errc;
using stele::LoadOptions;
using stele::PaddleFormat;
using stele::PaddleFraming;
using stele::PaddleNames;
using stele::PaddleOptions;
using stele::PaddleOrder;
using stele::PaddleRecorder;
using stele::PaddleVariable;
using stele::SaveOptions;
using stele::Snapshot;
using stele::Tensor;
using stele::Value;

namespace stele_test {
namespace {

std::string golden(const std::string& name) { return test_data() + "/paddle/" + name; }

/// A tensor as tests/interop/paddle_files.py describes it.
struct Fact {
  std::string name, dtype, shape, hex;
  std::vector<std::string> lod;
};

std::vector<Fact> facts(const std::string& name) {
  std::vector<Fact> list;
  std::ifstream in(golden(name + ".txt"));
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    Fact fact;
    std::string quoted;
    words >> quoted >> fact.dtype >> fact.shape >> fact.hex;
    for (std::size_t i = 0; i < quoted.size(); ++i) {
      if (quoted[i] != '%') {
        fact.name += quoted[i];
        continue;
      }
      fact.name += static_cast<char>(std::stoi(quoted.substr(i + 1, 2), nullptr, 16));
      i += 2;
    }
    for (std::string level; words >> level;) fact.lod.push_back(level);
    list.push_back(std::move(fact));
  }
  return list;
}

/// The annotation, as the facts have it.
std::vector<std::string> lod_of(const stele::LeafView& leaf) {
  std::vector<std::string> levels;
  if (leaf.annotations() == nullptr) return levels;
  for (const Value& level : *leaf.annotations()->at("paddle.lod").as_list()) {
    std::string& text = levels.emplace_back();
    for (const Value& n : *level.as_list()) text += (text.empty() ? "" : ",") + std::to_string(*n.as_i64());
  }
  return levels;
}

void check_facts(const Snapshot& snapshot, const std::vector<Fact>& wanted, bool named) {
  REQUIRE(!wanted.empty());
  REQUIRE(snapshot.leaf_count() == wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const stele::LeafView leaf = good(snapshot.checked_leaf(i));
    CAPTURE(wanted[i].name);
    CHECK(leaf.path() == (named ? wanted[i].name : std::to_string(i)));
    CHECK(stele::name(leaf.dtype()) == wanted[i].dtype);
    CHECK(shape_text(leaf.shape(), "scalar") == wanted[i].shape);
    CHECK(hex(in_file_order(good(content(leaf)), leaf.dtype())) == wanted[i].hex);
    CHECK(lod_of(leaf) == wanted[i].lod);
  }
}

PaddleRecorder<> by(PaddleOptions options) { return PaddleRecorder<>(PaddleFormat(std::move(options))); }
const PaddleRecorder<> plain;
const PaddleRecorder<> counting = by({.names = PaddleNames::counter});

/// The bytes of what is saved.
template <class M>
std::string file_of(const PaddleRecorder<>& recorder, const M& module) {
  return std::string(text_of(good(saved(recorder, module)).span()));
}

stele::SourcePtr own(std::string_view text) {
  stele::Bytes bytes(text.size());
  std::copy(text.begin(), text.end(), reinterpret_cast<char*>(bytes.data()));
  return stele::own_bytes(std::move(bytes));
}

/// A layout of names alone.
LoadOptions named_as(const std::vector<std::string>& names) {
  LoadOptions options;
  options.layout.emplace();
  for (const std::string& name : names) options.layout->tensors.push_back({name});
  return options;
}

std::map<std::string, std::string> files_in(const stele::Bundle& bundle) {
  std::map<std::string, std::string> files;
  for (const std::string& name : good(bundle.names())) {
    const auto source = good(bundle.open(name));
    std::string& text = files[name];
    text.resize(static_cast<std::size_t>(source->size()));
    good(source->read_at(0, std::as_writable_bytes(std::span(text))));
  }
  return files;
}

struct Fc {
  Tensor<float, 2> w;
  Tensor<float, 1> b;
  STELE_MODULE(Fc, w, b)
};
struct Net {
  Fc fc;
  STELE_MODULE(Net, fc)
};
struct List {
  std::vector<Fc> layers;
};
struct Other {
  Tensor<float, 2> other;
};
struct Half {
  Tensor<stele::float16, 2> w;
};
struct WithValue {
  Tensor<float, 1> w;
  std::string label;
  STELE_MODULE(WithValue, w, label)
};
struct Two {
  Tensor<float, 1> a;
  Tensor<float, 0> b;
};
Net net() { return {{Tensor<float, 2>({2, 3}, {0, 1, 2, 3, 4, 5}), vec({9, 8, 7})}}; }

/// The same file in the order of the class: fc.w, fc.b.
std::string declared_file() {
  const std::string sorted = small_paddle_file();
  return sorted.substr(36) + sorted.substr(0, 36);
}

std::vector<PaddleVariable> net_program() { return {{"fc.b", DType::f32, {3}}, {"fc.w", DType::f32, {2, 3}}}; }

}  // namespace

TEST_CASE("paddle: golden files with their programs") {
  for (const char* name : {"lenet", "lenet_old", "ernie_f32", "ernie_f16", "ernie_bf16", "ernie_i8", "adam", "adam_old",
                           "blocks", "buffers", "buffers_old", "readable", "dtypes_old", "names"}) {
    CAPTURE(name);
    const std::string path = golden(name) + ".pdiparams";
    const Snapshot snapshot = good(plain.open(path));
    check_facts(snapshot, facts(name), true);
    CHECK(file_of(plain, snapshot) == read_text(path));
    good(plain.verify(path));
    // The program, read alone.
    const std::string beside = golden(name) + (std::filesystem::exists(golden(name) + ".json") ? ".json" : ".pdmodel");
    const std::vector<PaddleVariable> program = good(stele::paddle_program(beside));
    CHECK(program.size() == snapshot.leaf_count());
    CHECK(file_of(by({.program = program}), snapshot) == read_text(path));
    // By .stele, which keeps all of it.
    const stele::Bytes between = good(saved(stele::BinaryRecorder<>(), snapshot));
    CHECK(file_of(plain, good(stele::BinaryRecorder<>().open(between))) == read_text(path));
  }
}

TEST_CASE("paddle: golden files without a program") {
  for (const char* name : {"dtypes", "shapes", "lod", "one"}) {
    CAPTURE(name);
    const std::string path = golden(name) + ".pdiparams";
    const std::vector<Fact> wanted = facts(name);
    const Snapshot counted = good(counting.open(path));
    check_facts(counted, wanted, false);
    // They stand in no order of names, so that of the layout counts.
    const PaddleRecorder<> declared = by({.order = PaddleOrder::declared});
    LoadOptions options;
    options.layout.emplace();
    for (const Fact& fact : wanted) options.layout->tensors.push_back({fact.name});
    const Snapshot named = good(declared.open(path, options));
    check_facts(named, wanted, true);
    CHECK(file_of(declared, named) == read_text(path));
    CHECK(file_of(by({.names = PaddleNames::counter, .order = PaddleOrder::declared}), counted) == read_text(path));
    CHECK(code_of(plain.open(path)) == Errc::needs_layout);
  }
  for (const char* name : {"single_bf16", "single_f32", "single_f8", "single_lod", "single_scalar"}) {
    CAPTURE(name);
    const std::string path = golden(name) + ".pdtensor";
    const Snapshot snapshot = good(counting.open(path));
    check_facts(snapshot, facts(name), false);
    CHECK(file_of(plain, snapshot) == read_text(path));
  }
  CHECK(code_of(counting.open(golden("selected_rows.bin"))) == Errc::malformed);  // another kind of record
}

TEST_CASE("paddle: golden folders") {
  for (const char* name : {"lenet_folder", "lenet_separate", "nested_folder"}) {
    CAPTURE(name);
    const std::vector<Fact> wanted = facts(name);
    const PaddleRecorder<> folders = by({.folder = true});
    const Snapshot snapshot = good(plain.open(golden(name)));
    check_facts(snapshot, wanted, true);
    check_facts(good(folders.open(golden(name))), wanted, true);
    good(folders.verify(golden(name)));
    const auto bundle = stele::memory_bundle();
    good(folders.record(snapshot, *stele::bundle_sink(bundle)));
    const auto files = files_in(*bundle);
    CHECK(files.size() == wanted.size());
    for (const auto& file : files) {
      CAPTURE(file.first);
      CHECK(file.second == read_text(golden(name) + "/" + file.first));
    }
    // Without the program, its files are what there is.
    check_facts(good(plain.open(stele::bundle_source(bundle))), wanted, true);
    // And what it says is not what another one says.
    CHECK(PaddleFormat({.folder = true}).recognises_folder(*good(stele::open_folder(golden(name)))->bundle()));
    CHECK(PaddleFormat({.folder = true}).recognises_folder(*bundle));
    CHECK(!PaddleFormat().recognises_folder(*bundle));
  }
  const std::string path = golden("lenet_params/__params__");
  const Snapshot combined = good(plain.open(path));
  check_facts(combined, facts("lenet_params"), true);
  CHECK(file_of(plain, combined) == read_text(path));
  CHECK(good(stele::paddle_program(golden("lenet_params/__model__"))).size() == combined.leaf_count());
}

TEST_CASE("paddle: programs as they are") {
  const auto dtypes = good(stele::paddle_program(golden("dtypes_old.pdmodel")));
  const auto e5m2 = std::find_if(dtypes.begin(), dtypes.end(), [](const auto& v) { return v.name == "f8_e5m2"; });
  REQUIRE(e5m2 != dtypes.end());
  CHECK(*e5m2 == PaddleVariable{"f8_e5m2", DType::f8_e5m2, {-1, 3}});
  // The attribute `persistable` may stand before or behind the name and the result.
  const auto adam = good(stele::paddle_program(golden("adam.json")));
  CHECK(adam == good(stele::paddle_program(golden("adam_old.pdmodel"))));
  CHECK(adam[0] == PaddleVariable{"learning_rate_0", DType::f32, {}});
}

TEST_CASE("paddle: bytes by hand") {
  const std::string file = small_paddle_file();
  CHECK(file.size() == 86);
  CHECK(hex(file) ==
        "00000000000000000000000000000000040000000805100300001041000000410000e040"
        "0000000000000000000000000000000006000000080510021003000000000000803f0000004000004040000080400000a040");
  CHECK(file_of(plain, net()) == file);
  const std::string b = file.substr(0, 36);
  const std::string w = file.substr(36);
  CHECK(file_of(by({.framing = PaddleFraming::sized}), net()) == sized_frame(b) + sized_frame(w));
  CHECK(file_of(by({.framing = PaddleFraming::named}), net()) == named_frame("fc.b", b) + named_frame("fc.w", w));
  CHECK(file_of(by({.order = PaddleOrder::declared}), net()) == w + b);
  const auto bundle = stele::memory_bundle();
  good(by({.folder = true}).record(net(), *stele::bundle_sink(bundle)));
  CHECK(files_in(*bundle) == std::map<std::string, std::string>{{"fc.b", b}, {"fc.w", w}});

  const auto loads = [&](const PaddleRecorder<>& recorder, const std::string& text) {
    CHECK(image(good(recorder.load<Net>(own(text)))) == image(net()));
  };
  loads(plain, file);
  loads(plain, sized_frame(b) + sized_frame(w));  // by the content
  loads(plain, named_frame("fc.w", w) + named_frame("fc.b", b));
  loads(by({.framing = PaddleFraming::sized}), sized_frame(b) + sized_frame(w));
  loads(by({.framing = PaddleFraming::named}), named_frame("fc.w", w) + named_frame("fc.b", b));
  loads(by({.order = PaddleOrder::declared}), w + b);
  CHECK(code_of(by({.framing = PaddleFraming::sized}).load<Net>(own(file))) == Errc::truncated);
  CHECK(code_of(by({.framing = PaddleFraming::named}).load<Net>(own(file))) == Errc::truncated);
  // Of a first tensor with an empty name, or with levels, the framing is known too.
  const std::string lod = paddle_record(5, {2}, std::string(8, 'x'), {{0, 2}});
  CHECK(good(plain.open(own(named_frame("", w)))).leaf(0).path().empty());
  CHECK(good(plain.open(own(named_frame("", lod)))).leaf(0).path().empty());
  CHECK(good(counting.open(own(sized_frame(lod)))).leaf(0).shape().size() == 1);
  // A scalar has no extents; empty ones have no bytes.
  CHECK(good(counting.open(own(paddle_record(6, {}, "12345678")))).leaf(0).byte_size() == 8);
  CHECK(good(counting.open(own(paddle_record(6, {3, 0}, "")))).leaf(0).byte_size() == 0);
  CHECK(good(counting.open(own(""))).leaf_count() == 0);
  // SIZE_T is read, and written as UINT64.
  const Snapshot size = good(counting.open(own(paddle_record(19, {1}, "12345678"))));
  CHECK(size.leaf(0).dtype() == DType::u64);
  CHECK(file_of(plain, size) == paddle_record(38, {1}, "12345678"));
}

TEST_CASE("paddle: names from a type, a module in place, a layout") {
  CHECK(image(good(plain.load<Net>(own(small_paddle_file())))) == image(net()));
  CHECK(stele::to_string(good(plain.load_record<Net>(own(small_paddle_file()))).fc.b.shape()) == "[3]");
  Net live{{Tensor<float, 2>({2, 3}), Tensor<float, 1>({3})}};
  good(plain.load_into(live, own(small_paddle_file())));
  CHECK(image(live) == image(net()));
  Net other{{Tensor<float, 2>({1, 3}), Tensor<float, 1>({7})}};
  CHECK(bad(plain.load_into(other, own(small_paddle_file()))).code() == Errc::shape_mismatch);
  LoadOptions rebuild;
  rebuild.rebuild = true;
  good(plain.load_into(other, own(small_paddle_file()), rebuild));
  CHECK(image(other) == image(net()));

  const stele::Error open = bad(plain.load<List>(own(small_paddle_file())));
  CHECK(open.code() == Errc::needs_layout);
  CHECK(open.path() == "layers");
  const List loaded = good(plain.load<List>(own(small_paddle_file()), named_as({"layers.0.w", "layers.0.b"})));
  CHECK(loaded.layers.at(0).b[0] == 9);
  CHECK(code_of(plain.open(own(small_paddle_file()))) == Errc::needs_layout);
  CHECK(bad(plain.open(own(small_paddle_file()), named_as({"a", "a"}))).code() == Errc::duplicate);

  // A layout goes before a program that lies beside; so does PaddleNames::layout, with the names of the type.
  const Snapshot renamed = good(plain.open(golden("one.pdiparams"), named_as({"x"})));
  CHECK(renamed.leaf(0).path() == "x");
  CHECK(code_of(plain.load<Other>(golden("readable.pdiparams"))) == Errc::missing);
  const Other read = good(by({.names = PaddleNames::layout}).load<Other>(golden("readable.pdiparams")));
  CHECK(read.other[1] == -0.5F);
  // Numbers are converted as ever.
  CHECK(static_cast<float>(good(plain.load<Half>(golden("readable.pdiparams"))).w[1]) == -0.5F);
}

TEST_CASE("paddle: another order than that of names") {
  Net live{{Tensor<float, 2>({2, 3}), Tensor<float, 1>({3})}};
  const stele::Error error = bad(plain.load_into(live, own(declared_file())));
  CHECK(error.code() == Errc::shape_mismatch);
  CHECK(error.path() == "fc.b");
  CHECK(error.expected() == "[3], or PaddleOrder::declared, which fits");
  CHECK(error.found() == "[2, 3]");
  REQUIRE(error.report());
  CHECK(error.report()->paths(stele::Report::What::suggested) == std::vector<std::string>{"fc.b"});
  good(by({.order = PaddleOrder::declared}).load_into(live, own(declared_file())));
  CHECK(image(live) == image(net()));
  // The other way round.
  const stele::Error back = bad(by({.order = PaddleOrder::declared}).load_into(live, own(small_paddle_file())));
  CHECK(back.expected() == "[2, 3], or PaddleOrder::sorted, which fits");
  CHECK(back.report()->count(stele::Report::What::suggested) == 1);
  // Where none fits, none is suggested.
  live.fc.w = Tensor<float, 2>({2, 4});
  const stele::Error none = bad(plain.load_into(live, own(declared_file())));
  CHECK(none.expected() == "[3]");
  CHECK(!none.report());
  // A program of its own is sorted, as Paddle sorts; and the order of what is saved does not matter to the check.
  const PaddleRecorder<> both = by({.order = PaddleOrder::declared, .program = net_program()});
  CHECK(file_of(both, net()) == declared_file());
}

TEST_CASE("paddle: a program that is given") {
  const PaddleRecorder<> checked = by({.program = net_program()});
  CHECK(file_of(checked, net()) == small_paddle_file());
  const Snapshot s = good(checked.open(own(small_paddle_file())));
  CHECK(s.leaf(0).path() == "fc.b");
  const auto change = [](auto edit) {
    auto program = net_program();
    edit(program);
    return by({.program = program});
  };
  const auto any_extent = change([](auto& p) { p[1].shape = {-1, 3}; });
  good(any_extent.open(own(small_paddle_file())));
  CHECK(file_of(any_extent, net()) == small_paddle_file());
  const auto any_dtype = change([](auto& p) { p[1].dtype = DType::none; });
  good(any_dtype.open(own(small_paddle_file())));
  const auto unsorted = change([](auto& p) { std::swap(p[0], p[1]); });
  good(unsorted.open(own(small_paddle_file())));

  struct Case {
    PaddleRecorder<> recorder;
    Errc load, save;
    std::string path;
  };
  const Case cases[] = {
      {change([](auto& p) {
         p[1].shape = {-1, 4};
       }),
       Errc::shape_mismatch, Errc::shape_mismatch, "fc.w"},
      {change([](auto& p) { p[1].shape = {6}; }), Errc::shape_mismatch, Errc::shape_mismatch, "fc.w"},
      {change([](auto& p) { p[0].dtype = DType::f16; }), Errc::dtype_mismatch, Errc::dtype_mismatch, "fc.b"},
      {change([](auto& p) {
         p.push_back({"x", DType::f32, {}});
       }),
       Errc::truncated, Errc::missing, "x"},
      {change([](auto& p) { p.pop_back(); }), Errc::malformed, Errc::unused, "fc.w"},
      {change([](auto& p) { p.push_back(p[0]); }), Errc::duplicate, Errc::duplicate, "fc.b"},
  };
  for (const Case& c : cases) {
    const stele::Error load = bad(c.recorder.open(own(small_paddle_file())));
    CAPTURE(load.to_string());
    CHECK(load.code() == c.load);
    const stele::Error save = bad(saved(c.recorder, net()));
    CHECK(save.code() == c.save);
    CHECK(save.path() == c.path);
    if (c.load != Errc::malformed) CHECK(load.path() == c.path);
  }
  const auto other_name = change([](auto& p) { p[0].name = "fc.c"; });
  CHECK(bad(saved(other_name, net())).code() == Errc::unused);
  // A file that says its names is checked too, by them.
  const std::string b = small_paddle_file().substr(0, 36);
  const std::string w = small_paddle_file().substr(36);
  CHECK(good(checked.open(own(named_frame("fc.w", w) + named_frame("fc.b", b)))).leaf_count() == 2);
  CHECK(bad(checked.open(own(named_frame("fc.b", w) + named_frame("fc.w", b)))).code() == Errc::shape_mismatch);
  CHECK(bad(checked.open(own(named_frame("fc.b", b)))).code() == Errc::missing);
  CHECK(bad(checked.open(own(named_frame("fc.b", b) + named_frame("fc.w", w) + named_frame("x", b)))).code() ==
        Errc::unused);
}

TEST_CASE("paddle: as many tensors as names, to the end of the file") {
  const std::string file = small_paddle_file();
  const stele::Error few = bad(plain.open(own(file), named_as({"a", "b", "c"})));
  CHECK(few.code() == Errc::truncated);
  CHECK(few.path() == "c");
  CHECK(few.offset() == 86U);
  const stele::Error many = bad(plain.open(own(file), named_as({"a"})));
  CHECK(many.code() == Errc::malformed);
  CHECK(many.offset() == 36U);
  CHECK(bad(plain.open(own(file), named_as({}))).code() == Errc::malformed);
  const stele::Error more = bad(plain.open(own(file + '\0'), named_as({"a", "b"})));
  CHECK(more.code() == Errc::malformed);
  CHECK(more.offset() == 86U);
  const stele::Error less = bad(plain.open(own(file.substr(0, 85)), named_as({"a", "b"})));
  CHECK(less.code() == Errc::truncated);
  CHECK(less.path() == "b");
}

TEST_CASE("paddle: a tied tensor stands under each of its names") {
  const TiedLayers tied = tied_layers(3);
  SaveOptions options = quick();
  stele::BufferSink sink;
  const stele::Report report = good(plain.record(tied, sink, options));
  CHECK(report.paths(stele::Report::What::lost) == std::vector<std::string>{"head", "decoder"});
  const auto names = std::vector<std::string>{"embedding",    "middle",         "head",        "encoder.weight",
                                              "encoder.bias", "decoder.weight", "decoder.bias"};
  const stele::Bytes bytes = sink.take();
  const Snapshot opened = good(plain.open(bytes, named_as(names)));
  CHECK(opened.leaf_count() == 7);
  CHECK(opened.leaf(0).path() == "decoder.bias");
  const TiedLayers back = good(stele::from_snapshot<TiedLayers>(opened));
  CHECK((**back.embedding)[1] == 3);
  CHECK((**back.head)[1] == 3);
  CHECK((**back.decoder->bias)[0] == 3);
  TiedLayers live = tied_layers(0);
  good(plain.load_into(live, bytes));
  CHECK(image(live) == image(tied));
}

TEST_CASE("paddle: what the files cannot hold") {
  const WithValue module{vec({1}), "text"};
  const stele::Error error = bad(saved(plain, module));
  CHECK(error.code() == Errc::not_representable);
  CHECK(error.path() == "label");
  SaveOptions options;
  options.metadata = {{"made", "here"}};
  CHECK(bad(saved(plain, net(), options)).code() == Errc::not_representable);
  options.allow_loss = true;
  stele::BufferSink sink;
  const stele::Report report = good(plain.record(module, sink, options));
  CHECK(report.count(stele::Report::What::lost) == 2);
  CHECK(text_of(sink.take().span()) == paddle_record(5, {1}, "\0\0\x80\x3f"s));

  const auto of = [](DType dtype, const std::vector<stele::Extent>& shape) {
    stele::SnapshotBuilder builder;
    builder.set_flat();
    static constexpr std::byte bytes[16]{};
    builder.tensor("t", dtype, shape, *stele::byte_length(dtype, *stele::element_count(shape)),
                   {&memory_ops, bytes, 0});
    return builder.finish();
  };
  for (const DType dtype : {DType::u16, DType::i4, DType::f8_e8m0, DType::f8_e4m3fnuz, DType::f4_e2m1}) {
    CAPTURE(stele::name(dtype));
    CHECK(bad(saved(plain, of(dtype, {4}))).code() == Errc::not_representable);
  }
  CHECK(saved(plain, of(DType::f32, std::vector<stele::Extent>(9, 1))));
  CHECK(bad(saved(plain, of(DType::f32, std::vector<stele::Extent>(10, 1)))).code() == Errc::not_representable);
  CHECK(bad(saved(plain, of(DType::f32, {0, std::uint64_t{1} << 63U}))).code() == Errc::not_representable);
}

TEST_CASE("paddle: levels of detail") {
  const auto with = [](Value lod, std::vector<stele::Extent> shape = {5, 2}) {
    stele::SnapshotBuilder builder;
    builder.set_flat();
    static constexpr std::byte bytes[40]{};
    builder.tensor("t", DType::f32, shape, 4 * *stele::element_count(shape), {&memory_ops, bytes, 0});
    builder.annotate("paddle.lod", std::move(lod));
    return saved(plain, builder.finish());
  };
  const auto lists = [](const Lod& lod) {
    Value::List all;
    for (const auto& level : lod) {
      Value::List numbers;
      for (const std::uint64_t n : level) numbers.emplace_back(n);
      all.emplace_back(std::move(numbers));
    }
    return Value(std::move(all));
  };
  CHECK(text_of(good(with(lists({{0, 2, 5}}))).span()) == paddle_record(5, {5, 2}, std::string(40, '\0'), {{0, 2, 5}}));
  CHECK(with(lists({{0, 2, 2}, {0, 0, 5}})));
  CHECK(with(lists({})));
  CHECK(with(lists({{0, 1}}), {}));
  const Lod wrong[] = {{{1, 5}}, {{0, 4}},         {{0, 6}},      {{0, 3, 2, 5}},    {{0}},
                       {{}},     {{0, 3}, {0, 5}}, {{0, 2}, {5}}, {{0, UINT64_MAX}}, Lod(65, {0, 5})};
  for (const Lod& lod : wrong) {
    CHECK(bad(with(lists(lod))).code() == Errc::invalid_argument);
    const auto read = counting.open(own(paddle_record(5, {5, 2}, std::string(40, '\0'), lod)));
    CHECK(bad(read).code() == Errc::malformed);
  }
  for (const char* text : {"text", ""}) CHECK(bad(with(Value(text))).code() == Errc::invalid_argument);
  CHECK(bad(with(Value(Value::List{Value(1.0)}))).code() == Errc::invalid_argument);
  CHECK(bad(with(Value(Value::List{Value(Value::List{Value(0.0), Value(5.0)})}))).code() == Errc::invalid_argument);
}

TEST_CASE("paddle: another precision") {
  const PaddleRecorder<stele::HalfPrecision> half;
  stele::BufferSink sink;
  good(half.record(net(), sink));
  const std::string text(text_of(sink.take().span()));
  CHECK(text == paddle_record(4, {3}, "\x80\x48\x00\x48\x00\x47"s) +
                    paddle_record(4, {2, 3}, "\0\0\0\x3c\0\x40\0\x42\0\x44\0\x45"s));
  CHECK(image(good(plain.load<Net>(own(text)))) == image(net()));
}

TEST_CASE("paddle: what is written is read back the same") {
  const stele::Capabilities& can = PaddleFormat().capabilities();
  std::vector<DType> dtypes;
  for (const DType dtype : all_dtypes) {
    if (can.holds(dtype)) dtypes.push_back(dtype);
  }
  CHECK(dtypes.size() == 16);
  std::size_t empty = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    stele::SnapshotBuilder builder;
    builder.set_flat();
    std::set<std::string> names;
    LoadOptions options;
    options.layout.emplace();
    for (std::size_t i = random.below(12); i != 0; --i) {
      // Plain parts, no one's folder another one's file.
      std::string name = random.chance(30) ? "in/" : "";
      name += (random.chance(20) ? "\u65e5\u672c" : "w") + std::to_string(random.below(50));
      if (!names.insert(name).second) continue;
      const DType dtype = dtypes[random.below(dtypes.size())];
      std::vector<stele::Extent> shape(random.below(10));
      for (auto& e : shape) e = random.chance(5) ? 0 : 1 + random.below(shape.size() > 4 ? 2 : 5);
      if (random.chance(5)) shape = {200, 130};
      const std::uint64_t size = *stele::byte_length(dtype, *stele::element_count(shape));
      empty += size == 0 ? 1U : 0U;
      auto memory = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(size) + 1);
      random.fill(*memory);
      builder.tensor(builder.intern(name), dtype, shape, size,
                     {random.chance(50) ? &memory_ops : &read_only_ops, memory->data(), 0});
      builder.keep(std::move(memory));
      if (!shape.empty() && random.chance(20)) {
        Value::List level{Value(std::uint64_t{0}), Value(std::uint64_t{shape[0]})};
        builder.annotate("paddle.lod", Value(Value::List{Value(std::move(level))}));
      }
      options.layout->tensors.push_back({name, dtype, stele::Shape(shape)});
    }
    const Snapshot before = builder.finish();
    stele::Capabilities all = can;
    all.annotations = true;
    const auto wanted = facts(before, all);
    for (const PaddleFraming framing : {PaddleFraming::none, PaddleFraming::sized, PaddleFraming::named}) {
      for (const PaddleOrder order : {PaddleOrder::sorted, PaddleOrder::declared}) {
        const PaddleRecorder<> recorder = by({.order = order, .framing = framing});
        const std::string text = file_of(recorder, before);
        const Snapshot after = good(recorder.open(own(text), options));
        CHECK(difference(facts(after, all), wanted).empty());
        CHECK(file_of(recorder, after) == text);
        // Found by itself.
        CHECK(difference(facts(good(by({.order = order}).open(own(text), options)), all), wanted).empty());
      }
    }
    const PaddleRecorder<> folders = by({.folder = true});
    const auto bundle = stele::memory_bundle();
    if (names.empty()) {  // an empty folder is no model
      CHECK(bad(folders.record(before, *stele::bundle_sink(bundle))).code() == Errc::not_representable);
      CHECK(bad(plain.open(stele::bundle_source(bundle))).code() == Errc::missing);
      continue;
    }
    good(folders.record(before, *stele::bundle_sink(bundle)));
    CHECK(difference(facts(good(plain.open(stele::bundle_source(bundle))), all), wanted).empty());
    if (seed % 10 != 0) continue;
    const TempDir dir;
    good(folders.record(before, dir / "model", quick()));
    CHECK(difference(facts(good(plain.open(dir / "model")), all), wanted).empty());
    CHECK(files_in(*stele::folder_bundle(dir / "model")) == files_in(*bundle));
  }
  CHECK(empty > 20);
}

TEST_CASE("paddle: tensors by their number") {
  const Snapshot s = good(counting.open(golden("shapes.pdiparams")));
  CHECK(good(s.checked_leaf(2)).path() == "2");
  CHECK(stele::to_string(good(s.checked_leaf(3)).shape()) == "[2, 0, 3]");
  CHECK(code_of(s.checked_leaf(s.leaf_count())) == Errc::not_found);
}

TEST_CASE("paddle: what is there and what replaces it") {
  const TempDir dir;
  SaveOptions once = quick();
  once.file.overwrite = false;
  good(plain.record(net(), dir / "m", once));
  CHECK(dir.names() == std::vector<std::string>{"m.pdiparams"});
  CHECK(bad(plain.record(net(), dir / "m", once)).code() == Errc::exists);
  good(plain.record(net(), dir / "m", quick()));

  const PaddleRecorder<> folders = by({.folder = true});
  good(folders.record(net(), dir / "folder", once));
  CHECK(names_in(dir / "folder") == std::vector<std::string>{"fc.b", "fc.w"});
  CHECK(bad(folders.record(net(), dir / "folder", once)).code() == Errc::exists);
  const Fc other{Tensor<float, 2>({1, 1}, {1}), vec({2})};
  good(folders.record(other, dir / "folder", quick()));
  CHECK(names_in(dir / "folder") == std::vector<std::string>{"b", "w"});
  CHECK(image(good(folders.load<Fc>(dir / "folder"))) == image(other));

  // Anything else that lies there is not thrown away.
  write_text(dir / "folder/__model__", program_desc({var_desc("b", tensor_desc(5, {1}))}));
  const stele::Error error = bad(folders.record(net(), dir / "folder", quick()));
  CHECK(error.code() == Errc::exists);
  CHECK(error.found() == "__model__");
  CHECK(names_in(dir / "folder") == std::vector<std::string>{"__model__", "b", "w"});
  SaveOptions beside = quick();
  beside.file.allow_nonatomic = true;
  good(folders.record(net(), dir / "folder", beside));
  CHECK(names_in(dir / "folder") == std::vector<std::string>{"__model__", "b", "fc.b", "fc.w", "w"});
  CHECK(good(plain.open(dir / "folder")).leaf_count() == 1);  // what the program has
  // A program without parameters has none, whatever lies beside.
  write_text(dir / "folder/__model__", program_desc({}));
  CHECK(good(plain.open(dir / "folder")).leaf_count() == 0);
}

TEST_CASE("paddle: names that no file can have") {
  const PaddleRecorder<> folders = by({.folder = true});
  for (const std::string& name :
       {"../x"s, "a/../../x"s, ".."s, "/x"s, ""s, "a\\b"s, "a\0b"s, "__model__"s, "__model__.json"s}) {
    CAPTURE(name);
    stele::SnapshotBuilder builder;
    builder.set_flat();
    builder.tensor(builder.intern(name), DType::f32, std::vector<stele::Extent>{0}, 0, {&memory_ops, nullptr, 0});
    const TempDir dir;
    const stele::Error error = bad(folders.record(builder.finish(), dir / "folder", quick()));
    CHECK((error.code() == Errc::invalid_argument || error.code() == Errc::not_representable));
    CHECK(error.path() == name);
    CHECK(dir.names().empty());
  }
}

namespace {

/// A file that does not exist: what stands in it by place, zeros between.
class Sparse final : public stele::Source {
 public:
  explicit Sparse(std::uint64_t size) : Source("sparse"), size_(size) {}
  std::map<std::uint64_t, std::string> parts;
  std::uint64_t size() const noexcept override { return size_; }
  stele::Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    REQUIRE(offset + out.size() <= size_);
    std::fill(out.begin(), out.end(), std::byte{});
    for (auto part = parts.lower_bound(offset < 4096 ? 0 : offset - 4096);
         part != parts.end() && part->first < offset + out.size(); ++part) {
      for (std::size_t i = 0; i < part->second.size(); ++i) {
        const std::uint64_t at = part->first + i;
        if (at >= offset && at < offset + out.size()) {
          out[static_cast<std::size_t>(at - offset)] = static_cast<std::byte>(part->second[i]);
        }
      }
    }
    read_ += out.size();
    ++calls_;
    return {};
  }
  std::uint64_t take() const { return read_.exchange(0); }
  std::uint64_t calls() const { return calls_.exchange(0); }

 private:
  std::uint64_t size_;
  mutable std::atomic<std::uint64_t> read_{0}, calls_{0};
};

}  // namespace

TEST_CASE("paddle: opening reads heads only") {
  constexpr std::uint64_t elements = 1 << 18;
  const std::string head = paddle_record(5, {elements}, "");
  const std::uint64_t step = head.size() + 4 * elements;
  const auto source = std::make_shared<Sparse>(1000 * step);
  for (std::uint64_t i = 0; i < 1000; ++i) source->parts[i * step] = head;
  source->parts[999 * step + head.size()] = "\0\0\x80\x3f"s;
  const Snapshot s = good(counting.open(stele::SourcePtr(source)));
  CHECK(s.leaf_count() == 1000);
  CHECK(s.byte_size() == 4000 * elements);
  CHECK(source->take() <= 1000 * 256 + 64);  // of 1,000,000 KiB
  CHECK(source->calls() <= 1001);
  float first = 0;
  good(good(s.checked_leaf(999)).read(0, std::as_writable_bytes(std::span(&first, 1))));
  CHECK(first == 1);
  CHECK(source->take() <= 4);
}

TEST_CASE("paddle: a file of 2 GiB, of holes") {
  const TempDir dir;
  const std::string path = dir / "holes.pdiparams";
  constexpr std::uint64_t elements = 1 << 27;
  {
    std::ofstream file(path, std::ios::binary);
    const std::string head = paddle_record(5, {elements}, "");
    for (std::uint64_t i = 0; i < 4; ++i) {
      file.seekp(static_cast<std::streamoff>(i * (head.size() + 4 * elements)));
      file << head;
    }
    REQUIRE(file.flush());
    std::filesystem::resize_file(path, 4 * (head.size() + 4 * elements));
  }
  /// Counts what is read of a file.
  class Counted final : public stele::Source {
   public:
    explicit Counted(stele::SourcePtr base) : Source(base->name()), base_(std::move(base)) {}
    std::uint64_t size() const noexcept override { return base_->size(); }
    stele::Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
      read += out.size();
      return base_->read_at(offset, out);
    }
    mutable std::atomic<std::uint64_t> read{0};

   private:
    stele::SourcePtr base_;
  };
  const auto counted = std::make_shared<Counted>(good(stele::open_file(path)));
  const Snapshot s = good(counting.open(stele::SourcePtr(counted)));
  CHECK(s.byte_size() == std::uint64_t{1} << 31U);
  CHECK(counted->read < 4096);
  LoadOptions view;
  view.storage = stele::storage::view;
  CHECK(good(counting.open(path, view)).leaf_count() == 4);
}

TEST_CASE("paddle: views where the elements lie aligned") {
  const TempDir dir;
  // A head of 20 bytes, a description of `n`: floats lie aligned where that is a multiple of 4.
  const std::string aligned = paddle_record(5, {3}, std::string(12, 'a'));  // 24
  const std::string shifted = paddle_record(5, {}, "bbbb");                 // 22
  CHECK(aligned.size() % 4 == 0);
  write_text(dir / "m.pdiparams", aligned + shifted);
  LoadOptions options;
  options.storage = stele::storage::view;
  stele::Report report;
  const Two two = good(plain.load<Two>(dir / "m.pdiparams", options, &report));
  CHECK(report.paths(stele::Report::What::copied) == std::vector<std::string>{"b"});
  CHECK(two.a.is_view());
  CHECK(!two.b.is_view());
  CHECK(std::memcmp(two.a.data(), "aaaaaaaaaaaa", 12) == 0);
  CHECK(std::memcmp(two.b.data(), "bbbb", 4) == 0);
  const Two mapped = good(plain.load<Two>(good(stele::map_file(dir / "m.pdiparams")), options));
  CHECK(mapped.a.is_view());
}

namespace {
struct Fixed {
  std::array<float, 3> weight{3, 4, 5};
};
}  // namespace

TEST_CASE("paddle: JSON beside the parameters that is no program") {
  const TempDir dir;
  good(stele::save(Fixed(), dir / "model.json", quick()));
  good(stele::save(Fixed(), dir / "model.pdiparams", quick()));
  CHECK(good(stele::load<Fixed>(dir / "model.pdiparams")).weight[2] == 5);
}

TEST_CASE("paddle: a folder into a sink that has none") {
  stele::BufferSink sink;
  const Net model = net();
  const Snapshot snapshot = good(stele::snapshot_of(model));
  CHECK(code_of(PaddleFormat({.folder = true}).write(snapshot, sink, {})) == Errc::unsupported);
}

}  // namespace stele_test
