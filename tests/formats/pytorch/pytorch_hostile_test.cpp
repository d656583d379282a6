// Objects of PyTorch's zip files that lie, or that are made to take long or much.
#include <stele/recorders/any.hpp>
#include <stele/recorders/archive.hpp>
#include <stele/recover.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "json/json.hpp"
#include "snapshot/unreadable.hpp"
#include "support/pytorch_outcome.hpp"
#include "support/temp_dir.hpp"

namespace pytorch_hostile_test {

namespace {

using namespace stele;
using namespace stele_test;
using namespace stele_test::pytorch_files;
using namespace std::string_literals;
using namespace std::string_view_literals;

constexpr std::int64_t most = INT64_MAX;

/// A file of {"w": object}.
std::string file_of(const std::string& object, Records more = {{"data/0", eight}}) {
  return zip_file(ordered({{"w", object}}), std::move(more));
}
std::string with_view(std::vector<std::int64_t> size, std::vector<std::int64_t> stride, std::int64_t offset = 0) {
  return file_of(tensor(floats_storage("0", 2), {offset, std::move(size), std::move(stride)}));
}
std::string with_storage(const std::string& storage) { return file_of(tensor(storage)); }

/// Checks that the tensor `w` is an unreadable entry for a reason with this text, and the tensor next to it is not.
void check_unreadable(const std::string& object, std::string_view reason, Records records = {{"data/0", eight}}) {
  records.emplace_back("data/beside", eight);
  const std::string file =
      zip_file(ordered({{"w", object}, {"beside", tensor(floats_storage("beside", 2))}}), std::move(records));
  const Snapshot s = good(opened(file));
  REQUIRE(s.leaf_count() == 2);
  CHECK(good(content(*s.find("beside"))) == eight);
  CAPTURE(unreadable_reason(*s.find("w")));
  CHECK(unreadable_reason(*s.find("w")).find(reason) != std::string::npos);
  CHECK(s.find("w")->dtype() == DType::opaque);
}

}  // namespace

TEST_CASE("pytorch hostile: the file that the others change opens") {
  const Snapshot file = good(opened(file_of(floats())));
  REQUIRE(file.leaf_count() == 1);
  CHECK(file.leaf(0).path() == "w");
  CHECK(good(content(file.leaf(0))) == eight);
}

TEST_CASE("pytorch hostile: keys and sizes of storages") {
  for (const std::string_view key : {"../data/0"sv, ".."sv, "/0"sv, "a/0"sv, ""sv, "0/"sv, "."sv, "0\0"sv}) {
    CHECK_REFUSED(with_storage(floats_storage(key, 2)), Errc::malformed, "no record for the storage");
  }
  CHECK_REFUSED(with_storage(floats_storage(std::string(5000, '1'), 2)), Errc::malformed, "storage");
  CHECK_REFUSED(with_storage(storage_of("FloatStorage", list({}), 2)), Errc::malformed, "key of a storage");
  CHECK_REFUSED(with_storage(storage_of("FloatStorage", none, 2)), Errc::malformed, "key of a storage");
  for (const std::int64_t count : {std::int64_t{1}, std::int64_t{3}, std::int64_t{1} << 61, most}) {
    CHECK_REFUSED(with_storage(floats_storage("0", count)), Errc::malformed, "size of the storage differs");
  }
  CHECK_REFUSED(with_storage(floats_storage("0", -1)), Errc::malformed, "not a number of 0 or more");
  check_unreadable(tensor(storage_of("NoStorage", text("0"), 2)), "class of a storage is unknown: NoStorage");
  CHECK_REFUSED(with_storage(storage_of("UntypedStorage", text("0"), 8)), Errc::malformed, "storage has no dtype");
  CHECK_REFUSED(with_storage(text("0") + "Q"), Errc::malformed, "id of a storage");
  CHECK_REFUSED(with_storage(tuple({text("storage")}) + "Q"), Errc::malformed, "id of a storage");
  CHECK_REFUSED(with_storage(tuple({text("module"), global("a", "b"), text("0"), text("cpu"), number(2)}) + "Q"),
                Errc::malformed, "id of a storage");
  CHECK_REFUSED(with_storage(none), Errc::malformed, "id of a storage");
  check_unreadable(tensor(call("torch.storage", "TypedStorage", {})), "pickled as an object");
}

TEST_CASE("pytorch hostile: one storage with two dtypes") {
  const auto two = [](std::int64_t count, const std::string& bytes) {
    return zip_file(ordered({{"a", tensor(storage_of("FloatStorage", text("0"), count), {0, {0}, {1}})},
                             {"b", tensor(storage_of("IntStorage", text("0"), count), {0, {0}, {1}})}}),
                    {{"data/0", bytes}});
  };
  CHECK_REFUSED(two(2, eight), Errc::malformed, "one storage has two dtypes");
  CHECK(opened(two(0, "")));  // PyTorch stores all empty storages as one
}

TEST_CASE("pytorch hostile: views beyond their storage") {
  const std::string_view outside = "outside its storage";
  CHECK_REFUSED(with_view({2}, {1}, 1), Errc::malformed, outside);
  CHECK_REFUSED(with_view({2}, {2}), Errc::malformed, outside);
  CHECK_REFUSED(with_view({3}, {1}), Errc::malformed, outside);
  CHECK_REFUSED(with_view({1}, {1}, 2), Errc::malformed, outside);
  CHECK_REFUSED(with_view({2}, {most}), Errc::malformed, outside);
  CHECK_REFUSED(with_view({2}, {1}, most), Errc::malformed, outside);
  CHECK_REFUSED(with_view({2, 2}, {most, most}, 2), Errc::malformed, "beyond 64 bits");
  CHECK_REFUSED(with_view({2, 2, 2}, {most, most, 2}), Errc::malformed, "beyond 64 bits");
  CHECK_REFUSED(with_view({std::int64_t{1} << 32, 1}, {std::int64_t{1} << 33, 1}), Errc::malformed, "beyond 64 bits");
  CHECK_REFUSED(with_view({std::int64_t{1} << 40}, {0}, 2), Errc::malformed, outside);
  const std::string_view size = "does not fit 64 bits";
  CHECK_REFUSED(with_view({most}, {0}), Errc::malformed, size);
  CHECK_REFUSED(with_view({std::int64_t{1} << 32, std::int64_t{1} << 32}, {0, 0}), Errc::malformed, size);
  CHECK_REFUSED(with_view({std::int64_t{1} << 61}, {0}), Errc::malformed, size);
  CHECK_REFUSED(with_view({1, 2}, {1}), Errc::malformed, "numbers of strides and extents");
  CHECK_REFUSED(with_view({-1}, {1}), Errc::malformed, "not a number of 0 or more");
  CHECK_REFUSED(with_view({2}, {-1}), Errc::malformed, "not a number of 0 or more");
  CHECK_REFUSED(with_view({2}, {1}, -1), Errc::malformed, "not a number of 0 or more");
  const std::vector<std::int64_t> ones(70'000, 1);
  CHECK_REFUSED(with_view(ones, ones), Errc::limit, "65535 dimensions");
  const auto with_size = [](const std::string& size) {
    return file_of(call("torch._utils", "_rebuild_tensor_v2", {floats_storage("0", 2), number(0), size, numbers({1})}));
  };
  CHECK(opened(with_size(numbers({2}))));
  CHECK_REFUSED(with_size(tuple({big(std::string(255, '\x7f'))})), Errc::malformed, "not a number of 0 or more");
  CHECK_REFUSED(with_size(tuple({big(std::string(9, '\x7f'))})), Errc::malformed, "not a number of 0 or more");
  CHECK_REFUSED(with_size(tuple({real(2)})), Errc::malformed, "not a number of 0 or more");
  CHECK_REFUSED(with_size(tuple({yes})), Errc::malformed, "not a number of 0 or more");
  CHECK_REFUSED(with_size(none), Errc::malformed, "no list of sizes");
  CHECK_REFUSED(with_size(dict({})), Errc::malformed, "no list of sizes");
  CHECK_REFUSED(with_size(call("torch", "Size", {})), Errc::malformed, "no list of sizes");
  // No elements: no bytes are needed, wherever they would be.
  const Snapshot empty = good(opened(with_view({0, most}, {most, most}, most)));
  CHECK(empty.leaf(0).byte_size() == 0);
  CHECK(good(content(empty.leaf(0))).empty());
}

TEST_CASE("pytorch hostile: calls without their arguments") {
  for (const char* name : {"_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_qtensor",
                           "_rebuild_sparse_tensor", "_rebuild_nested_tensor", "_rebuild_device_tensor_from_numpy"}) {
    CAPTURE(name);
    CHECK(code_of(opened(file_of(call("torch._utils", name, {})))) == Errc::malformed);
    const std::string nothing = file_of(call("torch._utils", name, {none, none, none, none, none, none, none}));
    CHECK(code_of(opened(nothing)) == (name == "_rebuild_nested_tensor"sv ? Errc::none : Errc::malformed));
    // A subclass: the builder, the class, its arguments, its state.
    for (const std::string& args : {none, empty_tuple, tuple({none})}) {
      const std::string subclass =
          call("torch._tensor", "_rebuild_from_type_v2", {global("torch._utils", name), global("a", "b"), args, none});
      CHECK(code_of(opened(file_of(subclass))) == Errc::malformed);
    }
    CHECK(code_of(opened(file_of(call("torch._tensor", "_rebuild_from_type_v2", {global("torch._utils", name)})))) ==
          Errc::malformed);
  }
  CHECK_REFUSED(file_of(call("torch._utils", "_rebuild_device_tensor_from_numpy", {call("torch._tensor", "x", {})})),
                Errc::malformed, "");
  CHECK_REFUSED(file_of(call("torch._utils", "_rebuild_device_tensor_from_numpy",
                             {call("numpy.core.multiarray", "_reconstruct", {})})),
                Errc::malformed, "");
  CHECK_REFUSED(file_of(call("torch._utils", "_rebuild_device_tensor_from_numpy",
                             {call("numpy._core.multiarray", "scalar", {})})),
                Errc::malformed, "");
}

TEST_CASE("pytorch hostile: dtypes and metadata of tensors") {
  const std::string untyped = storage_of("UntypedStorage", text("0"), 8);
  CHECK(opened(file_of(tensor_of_type(untyped, global("torch", "float32")))));
  check_unreadable(tensor_of_type(untyped, global("torch", "float31")), "float31");
  check_unreadable(tensor_of_type(untyped, global("numpy", "float32")), "dtype of a tensor");
  check_unreadable(tensor_of_type(untyped, text("float32")), "dtype of a tensor");
  CHECK_REFUSED(file_of(tensor_of_type(untyped, global("torch", "float64"))), Errc::malformed, "outside its storage");
  const auto described = [](const std::string& metadata) { return tensor(floats_storage("0", 2), {}, {metadata}); };
  const auto with = [&](const std::string& metadata) { return file_of(described(metadata)); };
  CHECK(opened(with(dict({{"neg", no}}))));
  CHECK_REFUSED(with(dict({{"conj", yes}})), Errc::malformed, "not complex");
  check_unreadable(described(dict({{"conj", number(1)}})), "metadata");
  check_unreadable(described(dict({{"other", yes}})), "other");
  CHECK_REFUSED(with(list({})), Errc::malformed, "metadata of a tensor");
  const std::string integers = tensor(storage_of("IntStorage", text("0"), 2), {}, {dict({{"neg", yes}})});
  check_unreadable(integers, "not floats");
  // Elements of two numbers of 16 bits, whose bytes and signs are changed like those of other complex numbers.
  const auto half = [](const Values& metadata) {
    return ordered({{"w", tensor(storage_of("ComplexHalfStorage", text("0"), 2), {}, metadata)}});
  };
  const auto first = [](const std::string& file) { return good(content(good(opened(file)).leaf(0))); };
  CHECK(first(zip_file(half({dict({{"conj", yes}})}), {{"data/0", "1234abcd"}})) ==
        "123\xb4"
        "abc\xe4"s);
  CHECK(first(zip_file(half({dict({{"neg", yes}})}), {{"data/0", "1234abcd"}})) ==
        "1\xb2"
        "3\xb4"
        "a\xe2"
        "c\xe4"s);
  Records swapped = records(pickled(half({})), {{"data/0", "1234abcd"}});
  swapped[1].second = "big";
  CHECK(first(zipped(swapped)) == "2143badc");
  // A copy of the bytes, each of which has two elements of the last axis.
  const std::string bytes = "\x01\x23\x45\x67\x10\x32\x54\x76";
  struct Strided {
    View view;
    std::string expected;
  };
  for (const Strided& row : {Strided{{0, {2, 4}, {4, 1}}, bytes},
                             {{0, {4, 2}, {1, 4}}, "\x01\x10\x23\x32\x45\x54\x67\x76"},
                             {{1, {2, 2}, {4, 2}}, "\x23\x67\x32\x76"},
                             {{0, {3}, {3}}, "\x01\x67\x54"}}) {
    const Snapshot s = good(
        opened(file_of(tensor_of_type(untyped, global("torch", "float4_e2m1fn_x2"), row.view), {{"data/0", bytes}})));
    CHECK(s.leaf(0).dtype() == DType::f4_e2m1);
    CHECK(s.leaf(0).shape().back() == 2 * static_cast<Extent>(row.view.size.back()));
    CHECK(good(content(s.leaf(0))) == row.expected);
  }
}

TEST_CASE("pytorch hostile: modules of torch.fx have the names of their state_dict") {
  const auto module = [](const std::string& parameters, const std::string& buffers, const std::string& modules) {
    return dict({{"training", yes}, {"_parameters", parameters}, {"_buffers", buffers}, {"_modules", modules}});
  };
  const std::string one = tensor(floats_storage("0", 2)), two = tensor(floats_storage("1", 2));
  const auto made = [](const char* name, const Values& args) { return call("torch.fx.graph_module", name, args); };
  const std::string body = module(dict({{"w", one}}), dict({{"b", two}}), dict({}));
  const Records records{{"data/0", eight}, {"data/1", eight}};
  for (const std::string& root :
       {made("reduce_graph_module", {body, text("import torch")}),
        made("reduce_package_graph_module", {call("importer", "Importer", {}), body, text("name")}),
        made("reduce_deploy_graph_module", {call("importer", "Importer", {}), body, text("import torch")})}) {
    for (const bool inside : {false, true}) {
      const std::string parts = module(dict({}), dict({}), dict({{"inner", root}}));
      const Snapshot s =
          good(opened(zip_file(inside ? made("reduce_graph_module", {parts, text("import torch")}) : root, records)));
      REQUIRE(s.leaf_count() == 2);
      CHECK(s.leaf(0).path() == (inside ? "inner.w" : "w"));
      CHECK(s.leaf(1).path() == (inside ? "inner.b" : "b"));
    }
  }
  for (const Values& args : {Values{}, Values{one}, Values{dict({{"w", one}})}}) {
    CHECK(good(opened(zip_file(made("reduce_graph_module", args)))).leaf_count() <= 1);
  }
}

TEST_CASE("pytorch hostile: quantized tensors") {
  const Records parts{{"data/0", "ab"},
                      {"data/1", std::string(16, '\0')},  // two f64
                      {"data/2", std::string(16, '\0')},  // two i64
                      {"data/3", std::string(24, '\0')},  // three f64
                      {"data/4", "ab"}};
  const std::string values = storage_of("QInt8Storage", text("0"), 2);
  const auto with = [&](const std::string& quantizer, const std::string& storage = {}) {
    return file_of(quantized(storage.empty() ? values : storage, quantizer), parts);
  };
  const std::string per_tensor = global("torch", "per_tensor_affine"), channels = global("torch", "per_channel_affine");
  CHECK(opened(with(tuple({per_tensor, real(0.5), number(0)}))));
  CHECK_REFUSED(with(tuple({per_tensor, number(1), number(0)})), Errc::malformed, "no scale and zero point");
  CHECK_REFUSED(with(tuple({per_tensor, real(1)})), Errc::malformed, "no scale and zero point");
  CHECK_REFUSED(with(tuple({per_tensor, real(1), big(std::string(20, '\1'))})), Errc::malformed, "no scale and zero");
  check_unreadable(quantized(values, tuple({global("torch", "per_planet"), real(1), number(0)})), "per_planet", parts);
  check_unreadable(quantized(values, none), "quantization scheme", parts);
  CHECK_REFUSED(
      file_of(quantized(storage_of("CharStorage", text("0"), 2), tuple({per_tensor, real(1), number(0)})), parts),
      Errc::malformed, "does not have a quantized dtype");

  const auto reals = [](std::string_view key, std::int64_t count, View view = {}) {
    return tensor(storage_of("DoubleStorage", text(key), count), view);
  };
  const std::string scales = reals("1", 2), zeros = tensor(storage_of("LongStorage", text("2"), 2));
  CHECK(opened(with(tuple({channels, scales, zeros, number(0)}))));
  const std::string_view no_scale = "no scale for each index";
  CHECK_REFUSED(with(tuple({channels, scales, zeros, number(1)})), Errc::malformed, no_scale);
  CHECK_REFUSED(with(tuple({channels, scales, zeros, number(most)})), Errc::malformed, no_scale);
  CHECK_REFUSED(with(tuple({channels, scales, zeros, number(-1)})), Errc::malformed, "not a number of 0 or more");
  CHECK_REFUSED(with(tuple({channels, scales, zeros})), Errc::malformed, "not a number of 0 or more");
  const std::string one = reals("1", 2, {0, {1}, {1}}), three = reals("3", 3, {0, {3}, {1}});
  CHECK_REFUSED(with(tuple({channels, one, one, number(0)})), Errc::malformed, no_scale);
  CHECK_REFUSED(with(tuple({channels, three, three, number(0)})), Errc::malformed, no_scale);
  const std::string_view no_list = "not a list of numbers";
  CHECK_REFUSED(with(tuple({channels, scales, one, number(0)})), Errc::malformed, no_list);
  CHECK_REFUSED(with(tuple({channels, tensor(storage_of("BoolStorage", text("4"), 2)), zeros, number(0)})),
                Errc::malformed, no_list);
  CHECK_REFUSED(with(tuple({channels, reals("1", 2, {0, {1, 2}, {1, 1}}), zeros, number(0)})), Errc::malformed,
                no_list);
  CHECK_REFUSED(with(tuple({channels, real(1), zeros, number(0)})), Errc::malformed, "not a dense tensor");
  // Lists of 2^40 scales, and of so many that their memory does not fit 64 bits.
  for (const std::int64_t count :
       {std::int64_t{1} << 40, std::int64_t{148'763'976'706'383'489}, std::int64_t{1} << 58}) {
    const std::string many = reals("1", 2, {0, {count}, {0}});
    CHECK_REFUSED(with(tuple({channels, many, many, number(0)})), Errc::limit, "memory");
    const std::string narrow = tensor(storage_of("FloatStorage", text("1"), 4), {0, {count}, {0}});
    CHECK_REFUSED(with(tuple({channels, narrow, narrow, number(0)})), Errc::limit, "memory");
  }
}

TEST_CASE("pytorch hostile: tensors inside tensors, deeper than any stack") {
  constexpr std::size_t depth = 300'000;
  const std::string around = global("torch._utils", "_rebuild_device_tensor_from_numpy");
  const std::string calls = repeated(get(1), depth) + floats() + repeated("\x85R", depth);
  CHECK_REFUSED(zip_file(ordered({{"w", put(around, 1) + "0" + calls}})), Errc::limit, "");
  // The scales of a quantized tensor are one, whose scales are one…
  const std::string before = put(global("torch._utils", "_rebuild_qtensor"), 1) + "0" +
                             put(storage_of("QInt8Storage", text("0"), 8), 2) + "0" + put(numbers({1}), 3) + "0" +
                             put(global("torch", "per_channel_affine"), 4) + "0";
  const std::string head = get(1) + "(" + get(2) + number(0) + get(3) + get(3) + "(" + get(4);
  CHECK_REFUSED(file_of(before + repeated(head, depth) + none + repeated(number(0) + number(0) + "ttR", depth)),
                Errc::limit, "");
}

TEST_CASE("pytorch hostile: sparse and nested tensors") {
  const std::string layout = call("torch.serialization", "_get_layout", {text("torch.sparse_coo")});
  const auto sparse = [](const std::string& layout, const std::string& parts) {
    return file_of(call("torch._utils", "_rebuild_sparse_tensor", {layout, parts}));
  };
  CHECK(opened(sparse(layout, tuple({floats(), floats(), numbers({2}), yes}))));
  const std::string_view few = "too few parts";
  CHECK_REFUSED(sparse(layout, tuple({floats(), floats()})), Errc::malformed, few);
  CHECK_REFUSED(sparse(global("torch", "sparse_csr"), tuple({floats(), floats(), floats()})), Errc::malformed, few);
  CHECK_REFUSED(sparse(layout, none), Errc::malformed, "no parts");
  CHECK_REFUSED(sparse(global("torch", "sparse_round"), tuple({})), Errc::unsupported, "torch.sparse_round");
  CHECK_REFUSED(sparse(number(7), tuple({})), Errc::unsupported, "layout");
  CHECK_REFUSED(sparse(call("torch.serialization", "_get_layout", {}), tuple({})), Errc::unsupported, "layout");
  CHECK_REFUSED(sparse(layout, tuple({tensor(floats_storage("9", 2)), floats(), numbers({2})})), Errc::malformed,
                "no record for the storage");
  const auto nested = [](const Values& parts) {
    return file_of(call("torch._utils", "_rebuild_nested_tensor", parts));
  };
  CHECK(opened(nested({floats(), floats(), floats(), floats()})));
  CHECK_REFUSED(nested({floats(), floats(), floats()}), Errc::malformed, few);
}

TEST_CASE("pytorch hostile: objects that contain themselves") {
  const std::string_view itself = "nested too deep";
  CHECK_REFUSED(zip_file(put("]", 0) + get(0) + "a"), Errc::limit, itself);
  CHECK_REFUSED(zip_file(put("}", 0) + text("self") + get(0) + "s"), Errc::limit, itself);
  CHECK_REFUSED(zip_file(put("}", 0) + text("w") + floats() + "s" + text("self") + get(0) + "s"), Errc::limit, itself);
  CHECK_REFUSED(zip_file(built(put(call("a", "B", {}), 0), dict({{"self", get(0)}, {"w", floats()}}))), Errc::limit,
                itself);
  const std::string script = put(call("__torch__.Net", "M", {}), 0);
  CHECK_REFUSED(zip_file(built(script, dict({{"self", get(0)}, {"w", floats()}}))), Errc::limit, itself);
  const std::string module = built(
      put(call("net", "Net", {}), 0),
      dict({{"_parameters", dict({{"w", floats()}})}, {"_buffers", dict({})}, {"_modules", dict({{"self", get(0)}})}}));
  CHECK_REFUSED(zip_file(module), Errc::limit, itself);
}

TEST_CASE("pytorch hostile: values that contain themselves") {
  const auto value = [](const std::string& file) {
    const Snapshot snapshot = good(opened(file));
    std::string text;
    for (const Node& node : snapshot.nodes()) {
      detail::json::Writer out(text);
      if (node.kind == NodeKind::value) good(detail::json::write_value(out, snapshot.value(node)));
    }
    return text;
  };
  const std::string around = R"({"__class__":"an object that contains this one"})";
  CHECK(value(zip_file(built(put(call("a", "B", {}), 0), dict({{"self", get(0)}})))) ==
        R"({"__class__":"a.B","state":{"self":)" + around + "}}");
  CHECK(value(zip_file(put("\x8f", 0) + "(" + get(0) + "\x90", {{"data/0", eight}}, 4)) ==
        R"({"__class__":"set","args":[)" + around + "]}");
  // OmegaConf: each node of a list has the list as its parent. A wide configuration takes linear memory.
  const auto node = [](int n) {
    return built(put(call("omegaconf.nodes", "AnyNode", {}), 1), dict({{"_parent", get(0)}, {"_val", number(n)}}));
  };
  const std::string shown = R"({"__class__":"omegaconf.nodes.AnyNode","state":{"_parent":)" + around + R"(,"_val":)";
  CHECK(value(zip_file(built(put(call("omegaconf.listconfig", "ListConfig", {}), 0),
                             dict({{"_content", list({node(1), node(2)})}})))) ==
        R"({"__class__":"omegaconf.listconfig.ListConfig","state":{"_content":[)" + shown + "1}}," + shown + "2}}]}}");
  CHECK(opened(zip_file(built(put(call("omegaconf.dictconfig", "DictConfig", {}), 0),
                              dict({{"_content", list(Values(1000, node(3)))}})))));
}

TEST_CASE("pytorch hostile: deep and wide objects") {
  CHECK_REFUSED(zip_file(nested_lists(100'000)), Errc::limit, "nested too deep");
  CHECK_REFUSED(zip_file(empty_tuple + repeated("\x85", 1'000'000)), Errc::limit, "nested too deep");
  CHECK_REFUSED(zip_file(ordered({{"w", floats()}, {"l", nested_lists(100'000)}})), Errc::limit, "nested too deep");
  // 2^60 lists, dicts and tuples of tensors, and of numbers.
  for (const std::string& leaf : {floats(), number(1), text("x")}) {
    CAPTURE(leaf.size());
    std::string lists = put(list({leaf, leaf}), 0), dicts = put(dict({{"a", leaf}}), 0), tuples = put(tuple({leaf}), 0);
    for (std::uint32_t i = 0; i < 60; ++i) {
      lists = put("](" + lists + get(i) + "e", i + 1);
      dicts = put("}(" + text("a") + dicts + text("b") + get(i) + "u", i + 1);
      tuples = put(tuples + get(i) + "\x86", i + 1);
    }
    CHECK_REFUSED(zip_file(lists), Errc::limit, "");
    CHECK_REFUSED(zip_file(dicts), Errc::limit, "");
    CHECK_REFUSED(zip_file(tuples), Errc::limit, "");
  }
  // Lists of 1000 lists of 1000 lists… of one number: 1000^12 numbers.
  std::string wide = put(number(1), 0);
  for (std::uint32_t i = 0; i < 12; ++i) wide = put("](" + wide + repeated(get(i), 999) + "e", i + 1);
  CHECK_REFUSED(zip_file(wide), Errc::limit, "memory");
  CHECK_REFUSED(zip_file(ordered({{"w", floats()}, {"l", wide}})), Errc::limit, "memory");
  // One string of a megabyte, a thousand times.
  const std::string megabyte = put(text(std::string(1 << 20, 'x')), 0) + "0";
  CHECK_REFUSED(zip_file(megabyte + list(Values(1000, get(0)))), Errc::limit, "memory");
  CHECK_REFUSED(zip_file(megabyte + "](" + "](" + get(0) + floats() + "e" + repeated(get(0), 1000) + "e"), Errc::limit,
                "memory");
  // The same as a key, of dicts in dicts: each name is as long as all keys above it.
  std::string deep;
  for (int i = 0; i < 400; ++i) deep += "}" + get(0);
  CHECK_REFUSED(zip_file(megabyte + deep + floats() + repeated("s", 400)), Errc::limit, "memory");
}

TEST_CASE("pytorch hostile: operations that ask for too much") {
  CHECK_REFUSED(zip_file(none + "r" + little(0xfffffffe, 4)), Errc::limit, "memo");
  CHECK_REFUSED(zip_file(get(0)), Errc::malformed, "memo");
  CHECK_REFUSED(zip_file(floats() + "\x85"s + "R"), Errc::malformed, "");  // calls a tensor's tuple
  CHECK_REFUSED(zip_file(text("os") + empty_tuple + "R"), Errc::malformed, "operand of another kind");
  CHECK_REFUSED(zip_file(call("os", "system", {text("true")}) + "}b}b"), Errc::malformed, "second state");
  CHECK_REFUSED(zip_file("X" + little(0xffffffff, 4)), Errc::truncated, "more bytes than the file");
  CHECK_REFUSED(zip_file("\x8d" + little(UINT64_MAX, 8)), Errc::truncated, "more bytes than the file");
  CHECK_REFUSED(zip_file("\x8a\xff"), Errc::truncated, "");
  CHECK_REFUSED(zip_file("("), Errc::malformed, "");
  CHECK_REFUSED(zip_file(""), Errc::malformed, "STOP");
  CHECK_REFUSED(zip_file("\xff"), Errc::malformed, "not a pickle operation");
  CHECK_REFUSED(zip_file(none, {}, 6), Errc::bad_magic, "protocol 2 to 5");
  CHECK_REFUSED(zip_file(none, {}, 1), Errc::bad_magic, "protocol 2 to 5");
}

TEST_CASE("pytorch hostile: calls of unknown names are values, whatever they are") {
  const std::string reduced = call("os", "system", {text("rm")}) + empty_tuple + "R";  // REDUCE of an opaque object
  const Snapshot file =
      good(opened(zip_file(ordered({{"w", floats()}, {"evil", reduced}, {"name", global("a", "b")}}))));
  CHECK(file.leaf_count() == 1);
  std::vector<std::string> values;
  for (std::uint32_t i = 1; i < file.nodes().size(); ++i) {
    if (file.nodes()[i].kind == NodeKind::value) values.push_back(file.path(i));
  }
  CHECK(values == std::vector<std::string>{"evil", "name"});
  const Value evil = file.value(file.nodes()[2]);
  REQUIRE(evil.find("__class__") != nullptr);
  REQUIRE(evil.find("__class__")->find("args") != nullptr);
  CHECK(*evil.find("__class__")->find("__class__") == Value("os.system"));

  struct Module {
    Tensor<float, 1> w;
  };
  const PytorchRecorder<> recorder;
  const std::string bytes = zip_file(ordered({{"w", floats()}, {"evil", reduced}, {"name", global("a", "b")}}));
  CHECK(code_of(recorder.load<Module>(bytes_of(bytes))) == Errc::unused);
  LoadOptions options;
  options.allow_unused = {"*"};
  Report report;
  const Module module = good(recorder.load<Module>(bytes_of(bytes), reporting(options, report)));
  CHECK(text_of(std::as_bytes(module.w.span())) == eight);
  CHECK(report.paths(Report::What::unused) == std::vector<std::string>{"evil", "name"});
}

TEST_CASE("pytorch hostile: values in the shards of an index") {
  const TempDir dir;
  const std::string index = dir.path() + "/pytorch_model.bin.index.json";
  const auto write = [&](const std::string& second) {
    write_text(dir.path() + "/1.bin", zip_file(dict({{"a", floats()}, {"epoch", number(3)}})));
    write_text(dir.path() + "/2.bin", zip_file(dict({{"b", floats()}, {second, number(4)}})));
    write_text(index, R"({"weight_map": {"a": "1.bin", "b": "2.bin"}})");
  };
  write("step");
  const Snapshot model = good(open(index));
  CHECK(model.leaf_count() == 2);
  std::map<std::string, Value> values;
  for (const Node& node : model.nodes()) {
    if (node.kind == NodeKind::value) values.emplace(std::string(node.name, node.name_size), model.value(node));
  }
  CHECK(values == std::map<std::string, Value>{{"epoch", Value(std::int64_t{3})}, {"step", Value(std::int64_t{4})}});
  write("epoch");
  const Error same = bad(open(index));
  CHECK(same.code() == Errc::duplicate);
  CHECK(same.path() == "epoch");

  // Each file fits in the bound alone.
  std::string map;
  for (const char number : {'1', '2', '3', '4'}) {
    const std::string name(1, number);
    write_text(dir.path() + "/" + name + ".bin",
               zip_file(dict({{"t" + name, floats()}, {"v" + name, text(std::string(60'000, 'n'))}})));
    map.append(map.empty() ? "\"t" : ", \"t").append(name).append("\": \"").append(name).append(".bin\"");
  }
  write_text(index, R"({"weight_map": {)" + map + "}}");
  LoadOptions options;
  options.limits.index_bytes = 220'000;
  CHECK(good(open(dir.path() + "/4.bin", options)).leaf_count() == 1);
  CHECK(bad(open(index, options)).code() == Errc::limit);
  CHECK(good(open(index)).leaf_count() == 4);
}

TEST_CASE("pytorch hostile: names that meet") {
  using Names = std::vector<std::string>;
  const auto names = [](const Snapshot& file) {
    Names all;
    for (std::uint32_t i = 1; i < file.nodes().size(); ++i) all.push_back(file.path(i));
    return all;
  };
  const auto is_unreadable = [](const LeafView& leaf) { return !detail::unreadable(leaf).empty(); };
  const std::string meeting = zip_file(dict({{"a.b", floats()}, {"a", dict({{"b", floats("1")}})}, {"c", floats("1")}}),
                                       {{"data/0", eight}, {"data/1", eight}});
  const Snapshot file = good(opened(meeting));
  CHECK(names(file) == Names{"a.b", "a.b (2)", "c"});
  CHECK_FALSE(is_unreadable(file.leaf(0)));
  REQUIRE(is_unreadable(file.leaf(1)));
  CHECK(file.leaf(1).shape()[0] == 8);
  CHECK(good(content(file.leaf(1))) == eight);
  CHECK_FALSE(is_unreadable(file.leaf(2)));  // the same tensor under a name of its own
  // A load and a save of the rest; the entry is unchecked.
  const PytorchRecorder<> recorder;
  const Report checked = good(recorder.verify(source_of(meeting)));
  const Names rows = checked.paths(Report::What::unchecked);
  CHECK(std::count(rows.begin(), rows.end(), "a.b (2)") == 1);
  BufferSink sink;
  const Error lost = bad(recorder.save(file, sink));
  CHECK(lost.code() == Errc::not_representable);
  CHECK(lost.path() == "a.b (2)");
  SaveOptions options;
  options.allow_loss = true;
  CHECK(good(recorder.save(file, sink, options)).paths(Report::What::lost) == Names{"a.b (2)"});
  // Three of one name, values, and a name that is taken.
  const std::string pair = "}(" + number(1) + number(5) + text("1") + number(6) + "u";
  CHECK(names(good(opened(zip_file(dict({{"seen", pair}, {"seen.1", none}}))))) ==
        Names{"seen.1", "seen.1 (2)", "seen.1 (3)"});
  CHECK(names(good(opened(zip_file(dict({{"a", dict({{"b", floats()}, {"b", number(1)}})}}))))) ==
        Names{"a.b", "a.b (2)"});
  CHECK_REFUSED(zip_file(dict({{"a", none}, {"a", none}, {"a (2)", none}})), Errc::duplicate, "a (2)");
  // Keys of a value: in a list, an object, the versions of modules.
  const Snapshot value = good(opened(zip_file(dict({{"l", built(call("my", "Config", {}), pair)}}))));
  CHECK(value.value(value.nodes()[1]).find("state")->find("1 (2)")->find("__class__") != nullptr);
  CHECK(good(opened(zip_file(built(ordered({{"w", floats()}}), dict({{"_metadata", pair}}))))).leaf_count() == 1);
  // Exported programs: a weight and a constant, and two names of one weight, one of which is taken.
  const std::string one = Weight().json();
  const Records constants{{"data/weights/weight_0", eight},
                          {"data/constants/weight_0", eight},
                          {"data/constants/model_constants_config.json", weights({{"w", one}, {"v", one}})}};
  const Snapshot exported = good(opened(zipped(program(weights({{"u", one}, {"w", one}}), constants))));
  CHECK(names(exported) == Names{"u", "w", "w (2)", "v"});
  CHECK(is_unreadable(exported.leaf(1)));
  CHECK_FALSE(is_unreadable(exported.leaf(2)));
  CHECK(good(content(exported.leaf(2))) == eight);
  // Settings of an optimizer whose keys meet.
  const std::string group = dict({{"params", list({text("w"), text("w")})}, {"params", list({text("w")})}});
  const Checkpoint settings = good(checkpoint_of(zip_file(dict(
      {{"m", ordered({{"w", floats()}})}, {"o", dict({{"state", empty_dict}, {"param_groups", list({group})}})}}))));
  CHECK(settings.left_out.paths(Report::What::lost) == Names{"o.param_groups.0.params (2)"});
  // A save of the checkpoint repeats the row.
  BufferSink copy;
  const Report saved = good(stele::save(settings, copy, {.format = stele::ArchiveFormat()}));
  CHECK(saved.paths(Report::What::lost) == Names{"o.param_groups.0.params (2)"});
}

TEST_CASE("pytorch hostile: scripts and modules without their parts") {
  CHECK(good(opened(zip_file(call("__torch__.Net", "M", {})))).leaf_count() == 0);
  CHECK(good(opened(zip_file(built(call("__torch__.Net", "M", {}), none)))).leaf_count() <= 1);
  CHECK(good(opened(zip_file(built(call("__torch__.Net", "M", {}), dict({{"w", floats()}}))))).leaf_count() == 1);
  // The list of an nn.LSTM's weights, with its type and before them: no further names.
  const std::string weight = put(floats(), 7);
  const std::string typed = call("torch.jit._pickle", "restore_type_tag", {list({weight}), text("List[Tensor]")});
  for (const std::string& flat : {typed, call("torch.jit._pickle", "build_tensorlist", {list({weight})})}) {
    const Snapshot script =
        good(opened(zip_file(built(call("__torch__.Net", "M", {}), dict({{"_flat_weights", flat}, {"w", get(7)}})))));
    CHECK(script.nodes().size() == 2);
    CHECK(script.leaf(0).path() == "w");
  }
  CHECK(code_of(opened(zip_file(built(call("__torch__.Net", "M", {}), floats())))) != Errc::out_of_memory);
}

TEST_CASE("pytorch hostile: time is linear where one object has many names") {
  // A module with 30,000 other attributes, 30,000 times: each visit must not look at all of them.
  Items attributes{{"_parameters", dict({})}, {"_buffers", dict({})}, {"_modules", dict({})}};
  for (int i = 0; i < 30'000; ++i) attributes.emplace_back(std::to_string(i), none);
  const std::string module = put(built(call("net", "Net", {}), dict(attributes)), 0);
  CHECK_REFUSED(zip_file("](" + module + repeated(get(0), 30'000) + floats() + "e"), Errc::limit, "memory");
  attributes.erase(attributes.begin(), attributes.begin() + 3);
  const std::string script = put(built(call("__torch__.Net", "M", {}), dict(attributes)), 0);
  const std::string root = built(call("__torch__.Net", "M", {}),
                                 "}" + text("l") + "](" + script + repeated(get(0), 30'000) + floats() + "es");
  CHECK_REFUSED(zip_file(root), Errc::limit, "memory");
  // A state with 30,000 attributes, of 30,000 dicts.
  const std::string state = put(dict(attributes), 0) + "0";
  CHECK_REFUSED(zip_file(state + "](" + repeated("}" + get(0) + "b", 30'000) + floats() + "e"), Errc::limit, "memory");
  // A tied path of a megabyte of dots, beside names that begin alike.
  const std::string dots(1 << 20, '.');
  const std::string tied = R"({"version":1,"aliases":{")" + dots + R"(a":"w"}})";
  const Snapshot file =
      good(opened(zip_file(built(ordered({{"w", floats()}, {dots, floats("1")}, {dots + "b", floats()}}),
                                 dict({{"stele_metadata", dict({{"stele", text(tied)}})}})),
                           {{"data/0", eight}, {"data/1", eight}})));
  CHECK(file.leaf_count() == 2);
  // A key of a megabyte, which a script has below itself.
  const std::string key = put(text(std::string(1 << 20, 'k')), 0) + "0";
  CHECK_REFUSED(
      zip_file(key + put(call("__torch__.Net", "M", {}), 1) + "}(" + get(0) + get(1) + text("w") + floats() + "ub"),
      Errc::limit, "");
}

TEST_CASE("pytorch hostile: optimizers whose parameters share a long name") {
  const std::string name = put(text(std::string(1 << 20, 'n')), 0) + "0";
  const auto file = [&](const std::string& group, const std::string& state = dict({})) {
    return zip_file(name + dict({{"model", ordered({{"w", floats()}})},
                                 {"optimizer", dict({{"state", state}, {"param_groups", list({group})}})}}));
  };
  CHECK(good(checkpoint_of(file(dict({{"params", list({get(0)})}})))).parameters.leaf_count() == 1);
  const std::string many = list(Values(1000, get(0)));
  CHECK(unlike(checkpoint_of(file(dict({{"params", many}}))), Errc::limit, "memory") == "");
  const std::string ids = list(Values(1000, number(0)));
  CHECK(unlike(checkpoint_of(file(dict({{"params", ids}, {"param_names", many}}))), Errc::limit, "memory") == "");
  const std::string states = "}(" + repeated(get(0) + dict({}), 1000) + "u";
  CHECK(unlike(checkpoint_of(file(dict({{"params", list({get(0)})}}), states)), Errc::limit, "memory") == "");
  // A group of 30,000 settings, 30,000 times; a state of 30,000 Nones, of 30,000 parameters.
  Items settings{{"params", list({})}}, nones;
  Values ids_of_all;
  std::string states_of_all = "}(";
  for (int i = 0; i < 30'000; ++i) {
    settings.emplace_back(std::to_string(i), none);
    nones.emplace_back(std::to_string(i), none);
    ids_of_all.push_back(number(i));
    states_of_all += number(i) + get(1);
  }
  const std::string groups = "](" + put(dict(settings), 1) + repeated(get(1), 30'000) + "e";
  const auto optimizer = [](const std::string& state, const std::string& list) {
    return zip_file(
        dict({{"model", ordered({{"w", floats()}})}, {"optimizer", dict({{"state", state}, {"param_groups", list}})}}));
  };
  CHECK(unlike(checkpoint_of(optimizer(dict({}), groups)), Errc::limit, "memory") == "");
  const std::string shared = put(dict(nones), 1) + "0";
  const PytorchOptions named{.parameters = std::vector<std::string>(30'000, "w")};
  CHECK(unlike(
            checkpoint_of(optimizer(shared + states_of_all + "u", list({dict({{"params", list(ids_of_all)}})})), named),
            Errc::limit, "memory") == "");
  // The same optimizer, and a large dict, under 20,000 keys.
  Items keys;
  for (int i = 0; i < 20'000; ++i) keys.emplace_back(std::to_string(i), none);
  const std::string large = put(dict(keys), 1);
  std::string root = "}(" + text("x") + large;
  for (int i = 0; i < 20'000; ++i) root += text(std::to_string(i)) + get(1);
  const auto checkpoint = good(checkpoint_of(zip_file(root + "u")));
  CHECK(checkpoint.parameters.nodes().size() == 20'001);
}

TEST_CASE("pytorch hostile: states of optimizers that are no states") {
  const auto file = [](const std::string& state, const std::string& groups) {
    return zip_file(dict(
        {{"model", ordered({{"w", floats()}})}, {"optimizer", dict({{"state", state}, {"param_groups", groups}})}}));
  };
  const std::string group = dict({{"params", list({text("w")})}});
  const auto with = [&](const std::string& state) { return checkpoint_of(file(state, list({group}))); };
  const auto moments = [](const Items& of_w) { return dict({{"w", dict(of_w)}}); };
  CHECK(good(with(moments({{"m", floats()}}))).optimizer.find("m") != nullptr);
  CHECK(unlike(checkpoint_of(file(dict({}), list({none}))), Errc::malformed, "no parameters") == "");
  CHECK(unlike(checkpoint_of(file(dict({}), list({dict({{"params", none}})}))), Errc::malformed, "no parameters") ==
        "");
  CHECK(unlike(with(dict({{"v", dict({})}})), Errc::malformed, "in none of its groups") == "");
  CHECK(unlike(with(dict({{"w", none}})), Errc::malformed, "not a dict") == "");
  CHECK(unlike(with(moments({{"m", text("x")}})), Errc::unsupported, "neither a tensor nor a number") == "");
  CHECK(unlike(with(moments({{"m", floats()}, {"m", floats()}})), Errc::duplicate, "") == "");
  CHECK(unlike(with(dict({{"w", dict({{"m", floats()}})}, {"w", dict({{"m", floats()}})}})), Errc::duplicate, "") ==
        "");
  CHECK(unlike(with(moments({{"m", tensor(floats_storage("9", 2))}})), Errc::malformed, "no record") == "");
  const std::string twice = dict({{"params", list({text("w"), text("w")})}});
  CHECK(code_of(checkpoint_of(file(moments({{"m", floats()}}), list({twice})))) != Errc::out_of_memory);
  // By order: another number of parameters, another shape.
  const std::string by_number = dict({{"params", list({number(0), number(1)})}});
  CHECK(unlike(checkpoint_of(file(dict({}), list({by_number}))), Errc::invalid_argument, "another number") == "");
  const std::string one = dict({{"params", list({number(0)})}});
  const std::string state = "}" + number(0) + dict({{"m", tensor(floats_storage("0", 2), {0, {1}, {1}})}}) + "s";
  CHECK(unlike(checkpoint_of(file(state, list({one}))), Errc::invalid_argument, "shape") == "");
}

}  // namespace pytorch_hostile_test
