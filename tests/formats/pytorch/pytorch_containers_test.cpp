// Nested containers of a file that a snapshot was opened from: written again, with the entries that it has now.
#include "pytorch_written.hpp"
#include "support/pytorch_outcome.hpp"

namespace pytorch_containers_test {

namespace {

using namespace stele_test;
using namespace stele_test::pytorch;

Value list(std::vector<Value> values) { return Value(std::move(values)); }

TEST_SUITE_BEGIN("pytorch");

TEST_CASE("pytorch containers: dicts, lists, tuples, integer keys") {
  Flat flat;
  flat.tensor("model.fc.weight").value("model.rate", Value(0.5)).tensor("items.0").value("items.1.a", Value());
  flat.tensor("state.7").tensor("state.x").tensor("loose.name").value("pair", list({Value(true), Value("b")}));
  flat.origin("containers", R"({"":"d","model":"o","none":"l","items":"t","items.1":"d","state":"di","pair":"v",)"
                            R"("gone":"d","gone.too":"t"})");
  CHECK(object_of(file_of(flat.snapshot())) ==
        "{'model': O{'fc.weight': T(Float '0' 2, (2), (1)), 'rate': f0.5}, 'none': [], "
        "'items': (T(Float '1' 2, (2), (1)), {'a': None}), 'state': {7: T(Float '2' 2, (2), (1)), "
        "'x': T(Float '3' 2, (2), (1))}, 'loose.name': T(Float '4' 2, (2), (1)), 'pair': (True, 'b'), "
        "'gone': {'too': ()}}");
}

TEST_CASE("pytorch containers: every value") {
  Flat flat;
  flat.value("n", Value()).value("t", Value(true)).value("i", Value(std::int64_t{-5}));
  flat.value("u", Value(UINT64_MAX)).value("f", Value(-0.5)).value("s", Value("text"));
  flat.value("b", Value(Value::Bytes{std::byte{0}, std::byte{0xff}})).value("l", list({Value("x"), list({})}));
  flat.value("m", Value(Value::Map{{"a", Value("b")}, {"c", list({Value(std::int64_t{1})})}}));
  flat.origin("containers", R"({"":"o","m":"oi","m.c":"v","l.1":"v"})");
  CHECK(object_of(file_of(flat.snapshot())) ==
        "O{'n': None, 't': True, 'i': -5, 'u': iffffffffffffffff00, 'f': f-0.5, 's': 'text', 'b': b00ff, "
        "'l': ['x', ()], 'm': O{'a': 'b', 'c': (1)}}");
}

TEST_CASE("pytorch containers: integers of any size") {
  const auto written = [](const std::string& digits) {
    Flat flat;
    flat.value("i", Value(Value::Map{{"__class__", Value("int")}, {"args", list({Value(digits)})}}));
    return object_of(file_of(flat.origin("containers", R"({"":"d"})").snapshot()));
  };
  // As int.to_bytes(…, signed=True) of Python.
  CHECK(written("0") == "{'i': 0}");
  CHECK(written("-1") == "{'i': -1}");
  CHECK(written("9223372036854775807") == "{'i': 9223372036854775807}");
  CHECK(written("9223372036854775808") == "{'i': i000000000000008000}");
  CHECK(written("-9223372036854775809") == "{'i': iffffffffffffff7fff}");
  CHECK(written("-18446744073709551616") == "{'i': i0000000000000000ff}");
  CHECK(written("340282366920938463463374607431768211456") == "{'i': i0000000000000000000000000000000001}");
}

TEST_CASE("pytorch containers: objects of Python and strings that are not UTF-8 are lost") {
  const auto integer = [](Value args) {
    return Value(Value::Map{{"__class__", Value("int")}, {"args", std::move(args)}});
  };
  struct Case {
    Value value;
    std::string what;
  };
  const Value object(Value::Map{{"__class__", Value("my.Config")}, {"args", list({})}});
  for (const Case& c :
       {Case{object, "an object of Python: my.Config"},
        Case{list({Value("a"), object}), "an object of Python: my.Config"},
        Case{Value(Value::Map{{"a", object}}), "an object of Python: my.Config"},
        Case{Value(Value::Map{{"__class__", Value()}}), "an object of Python"},
        Case{integer(list({Value("01")})), "an object of Python: int"},
        Case{integer(list({Value(std::string(700, '1'))})), "an object of Python: int"},
        Case{integer(list({})), "an object of Python: int"}, Case{Value("\xff"), "a string that is not UTF-8"},
        Case{Value(Value::Map{{"\xff", Value()}}), "a key that is not UTF-8"}}) {
    CAPTURE(c.what);
    Flat flat;
    flat.tensor("w").value("v", c.value).origin("containers", R"({"":"d"})");
    const Snapshot s = flat.snapshot();
    const Error error = refused(s);
    CHECK(error.code() == Errc::not_representable);
    CHECK(error.path() == "v");
    CHECK(error.found() == c.what);
    SaveOptions options;
    options.allow_loss = true;
    CHECK(object_of(file_of(s, options)) == "{'w': T(Float '0' 2, (2), (1))}");
    // Without containers, they are in the metadata.
    Flat plain;
    CHECK(object_of(file_of(plain.tensor("w").value("v", c.value).snapshot())).find("stele_metadata") !=
          std::string::npos);
  }
}

TEST_CASE("pytorch containers: new names go to the nearest container") {
  Flat flat;
  flat.tensor("a.b.new").tensor("a.other.x").tensor("list.2").tensor("list.0").tensor("list.name").tensor("new");
  flat.origin("containers", R"({"":"d","a":"d","a.b":"d","list":"l","end":"l"})");
  CHECK(object_of(file_of(flat.snapshot())) ==
        "{'a': {'b': {'new': T(Float '0' 2, (2), (1))}, 'other.x': T(Float '1' 2, (2), (1))}, "
        "'list': [T(Float '2' 2, (2), (1)), T(Float '3' 2, (2), (1))], 'list.name': T(Float '4' 2, (2), (1)), "
        "'new': T(Float '5' 2, (2), (1)), 'end': []}");
  Flat root;
  root.tensor("1").tensor("0").tensor("x").origin("containers", R"({"":"t"})");
  CHECK(object_of(file_of(root.snapshot())) ==
        "(T(Float '0' 2, (2), (1)), T(Float '1' 2, (2), (1)), T(Float '2' 2, (2), (1)))");
  Flat same;
  same.tensor("a").tensor("a.b").origin("containers", R"({"":"d","a":"d"})");
  const Error error = refused(same.snapshot());
  CHECK(error.code() == Errc::not_representable);
  CHECK(error.found() == "a");
}

TEST_CASE("pytorch containers: a dict with attributes becomes an OrderedDict") {
  Flat flat;
  flat.tensor("w").metadata({{"a", "b"}}).origin("containers", R"({"":"d"})");
  CHECK(object_of(file_of(flat.snapshot())) == "O{'w': T(Float '0' 2, (2), (1))}|{'stele_metadata': {'a': 'b'}}");
}

TEST_CASE("pytorch containers: a list, a tuple and a tensor have no attributes") {
  for (const char* kinds : {R"({"":"l"})", R"({"":"t"})"}) {
    Flat flat;
    const Snapshot s = flat.tensor("0").metadata({{"a", "b"}}).origin("containers", kinds).snapshot();
    CHECK(refused(s).code() == Errc::not_representable);
    SaveOptions options;
    options.allow_loss = true;
    CHECK(object_of(file_of(s, options)).find("stele_metadata") == std::string::npos);
  }
  const auto bare = [](std::map<std::string, std::string> metadata) {
    Flat flat;
    return flat.tensor("tensor").metadata(std::move(metadata)).origin("containers", R"({"":"x"})").snapshot();
  };
  CHECK(object_of(file_of(bare({}))) == "T(Float '0' 2, (2), (1))");
  CHECK(refused(bare({{"a", "b"}})).code() == Errc::not_representable);
  CHECK(object_of(file_of(Flat().value("tensor", Value(0.5)).origin("containers", R"({"":"x"})").snapshot())) ==
        "f0.5");
  CHECK(object_of(file_of(Flat().value("tensor", list({Value(0.5)})).origin("containers", R"({"":"v"})").snapshot())) ==
        "(f0.5)");
  // With another name, or beside another tensor, it needs a dict.
  CHECK(object_of(file_of(Flat().tensor("x").origin("containers", R"({"":"x"})").snapshot())) ==
        "O{'x': T(Float '0' 2, (2), (1))}");
}

TEST_CASE("pytorch containers: a value alone stays alone") {
  using namespace pytorch_files;
  const auto again = [](const std::string& object) { return object_of(file_of(good(opened(zip_file(object, {}))))); };
  CHECK(again(empty_list) == "[]");
  CHECK(again(empty_tuple) == "()");
  CHECK(again(empty_dict) == "{}");
  CHECK(again(pytorch_files::list({number(1), tuple({text("a"), empty_tuple})})) == "[1, ('a', ())]");
  CHECK(again(dict({{"a", pytorch_files::list({tuple({number(1)}), empty_list})}})) == "{'a': [(1), []]}");
  CHECK(again(tuple({number(1), real(0.5)})) == "(1, f0.5)");
  CHECK(again(none) == "None");
  CHECK(again(pytorch_files::list({dict({{"a", number(1)}})})) == "[{'a': 1}]");
  // An object of Python is a loss, not an empty dict.
  const Snapshot arguments =
      good(opened(zip_file(built(call("argparse", "Namespace", {}), dict({{"lr", real(0.1)}})))));
  const Error error = refused(arguments);
  CHECK(error.code() == Errc::not_representable);
  CHECK(error.path() == "tensor");
  CHECK(error.found() == "an object of Python: argparse.Namespace");
}

TEST_CASE("pytorch containers: keys that are tuples") {
  using namespace pytorch_files;
  const auto paths = [](const std::string& key) {
    const Snapshot file = good(opened(zip_file("}" + key + floats() + "s")));
    return file.leaf(0).path();
  };
  CHECK(paths(tuple({number(1), text("a"), tuple({real(0.5)})})) == "(1, 'a', (0.5,))");
  CHECK(paths(tuple({none, yes, empty_tuple})) == "(None, True, ())");
  CHECK(paths(tuple({text(std::string(2000, 'a'))})).starts_with("object "));
  CHECK(paths(tuple({empty_list})).starts_with("object "));
  std::string deep = empty_tuple;
  for (int i = 0; i < 400; ++i) deep += "\x85";
  CHECK(paths(deep).starts_with("object "));
}

TEST_CASE("pytorch containers: an invalid property is refused") {
  for (const char* kinds :
       {"", "[]", R"({"a":1})", R"({"a":"y"})", R"({"a":"dx"})", R"({"a":"dii"})", R"({"a":""})", R"({"a":"d"} x)"}) {
    CAPTURE(kinds);
    CHECK(refused(Flat().tensor("w").origin("containers", kinds).snapshot()).code() == Errc::malformed);
  }
}

TEST_CASE("pytorch containers: deep nesting is limited, and long paths take linear time") {
  const auto nested = [](int levels) {
    std::string kinds = R"({"":"d")", path;
    for (int i = 0; i < levels; ++i) {
      path += i == 0 ? "a" : ".a";
      kinds += ",\"" + path + "\":\"d\"";
    }
    return Flat().tensor(path + ".w").origin("containers", kinds + "}").snapshot();
  };
  CHECK(object_of(file_of(nested(500))).size() > 500);
  CHECK(refused(nested(1000)).code() == Errc::not_representable);
  std::string path;
  for (int i = 0; i < 30000; ++i) path += "a.";
  CHECK(object_of(file_of(Flat().tensor(path).origin("containers", R"({"":"d","a":"d"})").snapshot())).size() > 60000);
}

TEST_SUITE_END();

}  // namespace

}  // namespace pytorch_containers_test
