// Values that need no cereal: enums by name, and containers of values, in every recorder.
#include <stele/stele.hpp>
#include <stele/value.hpp>

#include <doctest/doctest.h>
#include <boost/describe/enum.hpp>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "support/any_recorder.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"

namespace values_test {

using namespace stele;
using namespace stele_test;

namespace values_test {

enum class Activation : std::uint8_t { relu, gelu = 7, tanh = 200 };
BOOST_DESCRIBE_ENUM(Activation, relu, gelu, tanh)
enum class Plain : std::int16_t { low = -3, high = 3 };
enum class Sign : std::int8_t { minus = -1, none, plus };
BOOST_DESCRIBE_ENUM(Sign, minus, none, plus)
enum Old { old_a, old_b };
BOOST_DESCRIBE_ENUM(Old, old_a, old_b)
// Two names of one value.
enum class Twice { first = 1, again = 1 };
BOOST_DESCRIBE_ENUM(Twice, first, again)
enum class Hidden { a };
BOOST_DESCRIBE_ENUM(Hidden)
BOOST_DEFINE_ENUM_CLASS(Many, e0, e1, e2, e3, e4, e5, e6, e7, e8, e9, e10, e11, e12, e13, e14, e15, e16, e17, e18, e19,
                        e20, e21)

class Enums {
 public:
  enum class Inner { one = 1, two };
  BOOST_DESCRIBE_NESTED_ENUM(Inner, one, two)
  Activation activation = Activation::gelu, unknown = static_cast<Activation>(9);
  Plain plain = Plain::low;
  Sign sign = Sign::minus;
  Old old = old_b;
  Inner inner = Inner::two;
  Twice twice = Twice::again;
  Hidden hidden = Hidden::a;
  bool operator==(const Enums&) const = default;
  STELE_MODULE(Enums, activation, unknown, plain, sign, old, inner, twice, hidden)
};

/// The same names with numbers, as they were written before the enums were described.
class Numbers {
 public:
  int activation = 200, unknown = 77, plain = 3, sign = 1, old = 0, inner = 1, twice = 1, hidden = 0;
  STELE_MODULE(Numbers, activation, unknown, plain, sign, old, inner, twice, hidden)
};

template <class T>
struct One {
  T field{};
  STELE_MODULE(One, field)
};

class Containers {
 public:
  std::vector<std::string> texts{"a", "", "c\n"}, no_texts;
  std::vector<Activation> enums{Activation::tanh, Activation::relu};
  std::vector<double> doubles{0.5, -0.0};
  std::vector<float16> halves{float16(1.5F)};
  std::map<std::string, int> counts{{"a", 1}, {"", -2}, {"x.y", 3}}, no_counts;
  std::map<std::string, std::string> words{{"k", "v"}, {"e", ""}};
  std::unordered_map<std::string, bool> flags{{"t", true}, {"f", false}};
  std::optional<std::string> some = "text", none;
  std::optional<std::vector<std::string>> gone, empty{std::in_place}, full{{"x"}};
  std::array<bool, 3> bits{true, false, true};
  std::array<std::string, 2> pair_of_texts{"l", "r"};
  std::vector<std::vector<std::string>> nested{{}, {"a", "b"}, {""}};
  std::map<std::string, std::vector<std::string>> lists{{"none", {}}, {"two", {"a", "b"}}};
  std::map<std::string, std::vector<int>> tensors{{"i", {1, 2}}, {"j", {}}};
  std::map<std::string, std::optional<int>> holes{{"yes", 1}, {"no", std::nullopt}};
  std::vector<std::optional<std::string>> gaps{std::nullopt, "b", std::nullopt};
  std::variant<int, std::string, Activation> either{"s"}, other{Activation::tanh};
  std::tuple<int, std::string, bool> tuple{1, "t", true};
  std::pair<std::string, double> pair{"p", 0.25};
  std::unique_ptr<std::string> pointer = std::make_unique<std::string>("p"), null;
  std::shared_ptr<std::string> tied = std::make_shared<std::string>("tied"), again = tied;
  std::vector<std::map<std::string, std::int64_t>> maps{{}, {{"a", INT64_MIN}}};
  std::vector<bool> not_listed{true};
  STELE_MODULE(Containers, texts, no_texts, enums, doubles, halves, counts, no_counts, words, flags, some, none, gone,
               empty, full, bits, pair_of_texts, nested, lists, tensors, holes, gaps, either, other, tuple, pair,
               pointer, null, tied, again, maps)
};

struct Model {
  std::vector<float> weight{1, 2};
  std::vector<std::string> texts{"a", "b"};
  Activation activation = Activation::gelu;
  STELE_MODULE(Model, weight, texts, activation)
};

/// A format of tensors only.
class Bare final : public SteleFormat {
 public:
  const Capabilities& capabilities() const noexcept override {
    static const Capabilities can = [&] {
      Capabilities c = SteleFormat().capabilities();
      c.values = false;
      return c;
    }();
    return can;
  }
};

Value only_value(const Snapshot& s) {
  for (const Node& node : s.nodes()) {
    if (node.kind == NodeKind::value) return s.value(node);
  }
  return {};
}
template <class T>
Value value_of(const T& field) {
  const One<T> one{field};
  return only_value(good(snapshot_of(one)));
}
template <class T>
Snapshot holding(const T& field) {
  const One<T> one{field};
  return good(BytesRecorder<>{}.open(own_bytes(good(BytesRecorder<>{}.save(one)))));
}
template <class To>
Error refused(const Value& value) {
  const Error fresh = bad(load<One<To>>(holding(value)));
  One<To> live;
  const Error in_place = bad(load_into(live, holding(value)));
  CHECK(live.field == To{});
  CHECK(in_place.to_string() == fresh.to_string());
  CHECK(fresh.code() == Errc::value_mismatch);
  CHECK(fresh.path() == "field");
  return fresh;
}
template <class To>
To taken(const Value& value) {
  return good(load<One<To>>(holding(value))).field;
}

}  // namespace values_test

using namespace values_test;

TEST_CASE("values: a described enum is its name, another one its number") {
  CHECK(value_of(Activation::gelu) == Value("gelu"));
  CHECK(value_of(static_cast<Activation>(9)) == Value(std::int64_t{9}));
  CHECK(value_of(Plain::low) == Value(std::int64_t{-3}));
  CHECK(value_of(Sign::minus) == Value("minus"));
  CHECK(value_of(old_b) == Value("old_b"));
  CHECK(value_of(Enums::Inner::two) == Value("two"));
  CHECK(value_of(Twice::again) == Value("first"));
  CHECK(value_of(Hidden::a) == Value(std::int64_t{0}));
}

TEST_CASE("values: an enum is read by name, and by number too") {
  CHECK(taken<Activation>(Value("tanh")) == Activation::tanh);
  CHECK(taken<Activation>(Value(std::int64_t{7})) == Activation::gelu);
  CHECK(taken<Activation>(Value(std::int64_t{9})) == static_cast<Activation>(9));
  CHECK(taken<Sign>(Value("minus")) == Sign::minus);
  CHECK(taken<Sign>(Value(std::int64_t{-1})) == Sign::minus);
  CHECK(taken<Twice>(Value("again")) == Twice::first);
  CHECK(taken<Plain>(Value(std::int64_t{3})) == Plain::high);
  const Error name = refused<Activation>(Value("sigmoid"));
  CHECK(name.expected() == "one of relu, gelu, tanh");
  CHECK(name.found() == "string");
  CHECK(refused<Activation>(Value("RELU")).expected() == "one of relu, gelu, tanh");
  CHECK(refused<Activation>(Value(std::int64_t{256})).expected() == "an unsigned integer of 8 bits");
  CHECK(refused<Activation>(Value(1.0)).expected() == "an unsigned integer of 8 bits");
  CHECK(refused<Plain>(Value("low")).expected() == "an integer of 16 bits");
  CHECK(refused<Hidden>(Value("a")).code() == Errc::value_mismatch);
  const std::string many(refused<Many>(Value("e22")).expected());
  CHECK(many.starts_with("one of e0, e1, "));
  CHECK(many.ends_with(", e19, …"));
}

STELE_TEST_EACH_RECORDER("values: enums in every recorder") {
  if (!can(recorder).values) return;
  const Enums before;
  const Bytes bytes = good(saved(recorder, before));
  CHECK(good(recorder.load<Enums>(bytes)) == before);
  const Bytes numbers = good(saved(recorder, Numbers{}));
  const Enums old = good(recorder.load<Enums>(numbers));
  CHECK(old.activation == Activation::tanh);
  CHECK(old.unknown == static_cast<Activation>(77));
  CHECK(old.plain == Plain::high);
  CHECK(old.sign == Sign::plus);
  CHECK(old.old == old_a);
  CHECK(old.inner == Enums::Inner::one);
  const auto record = good(recorder.load<Record<Enums>>(bytes));
  CHECK(get<"sign">(record) == Sign::minus);
  CHECK(good(recorder.open(bytes)).find("activation").has_value() == false);  // no tensor
}

STELE_TEST_EACH_RECORDER("values: containers of values in every recorder") {
  if (!can(recorder).values) return;
  const Containers before;
  const Bytes bytes = good(saved(recorder, before));
  Containers after;
  after.texts = {"other"}, after.counts = {{"z", 1}}, after.some.reset(), after.none = "x", after.gone.emplace();
  after.either = 1, after.null = std::make_unique<std::string>(), after.pointer.reset();
  SUBCASE("a new module") { after = good(recorder.load<Containers>(bytes)); }
  SUBCASE("in place") {
    LoadOptions options;
    options.rebuild = true;
    REQUIRE_MESSAGE(recorder.load_into(after, bytes, options), why(recorder.load_into(after, bytes, options)));
  }
  CHECK(after.texts == before.texts);
  CHECK(after.no_texts.empty());
  CHECK(after.enums == before.enums);
  CHECK(after.doubles == before.doubles);
  CHECK(after.counts == before.counts);
  CHECK(after.no_counts.empty());
  CHECK(after.words == before.words);
  CHECK(after.flags == before.flags);
  CHECK(after.some == before.some);
  CHECK(after.none == before.none);
  CHECK(after.gone == before.gone);
  CHECK(after.empty == before.empty);
  CHECK(after.full == before.full);
  CHECK(after.bits == before.bits);
  CHECK(after.pair_of_texts == before.pair_of_texts);
  CHECK(after.nested == before.nested);
  CHECK(after.lists == before.lists);
  CHECK(after.tensors == before.tensors);
  CHECK(after.holes == before.holes);
  CHECK(after.gaps == before.gaps);
  CHECK(after.either == before.either);
  CHECK(after.other == before.other);
  CHECK(after.tuple == before.tuple);
  CHECK(after.pair == before.pair);
  REQUIRE(after.pointer != nullptr);
  CHECK(*after.pointer == "p");
  CHECK(after.null == nullptr);
  CHECK(*after.tied == "tied");
  CHECK(after.tied == after.again);
  CHECK(after.maps == before.maps);
  // The bytes depend on the content alone.
  CHECK(text_of(good(saved(recorder, after)).span()) == text_of(bytes.span()));
}

TEST_CASE("values: lists and maps of sequences of numbers are tensors, the rest are values") {
  const Containers m;
  const std::string text = outline(m);
  for (const char* line :
       {"tensor doubles\n", "tensor halves\n", "tensor bits\n", "tensor tensors.i\n", "value texts.0\n",
        "value enums.1\n", "value counts.\\e\n", "value counts.x\\.y\n", "value nested.1.0\n", "value lists.two.1\n",
        "value either.1\n", "alias again\n", "none gone\n"}) {
    CHECK_MESSAGE(text.find(line) != text.npos, line);
  }
}

TEST_CASE("values: a format that holds none names the first, unless loss is allowed") {
  const Recorder<Bare> recorder;
  const Model model;
  const Error error = bad(saved(recorder, model));
  CHECK(error.code() == Errc::not_representable);
  CHECK(error.path() == "texts.0");
  CHECK(error.message().find("and 2 more") != std::string::npos);
  SaveOptions options;
  options.allow_loss = true;
  BufferSink sink;
  const Report report = good(recorder.save(model, sink, options));
  CHECK(report.count(Report::What::lost) == 3);
  const Bytes bytes = sink.take();
  CHECK(outline(good(BytesRecorder<>{}.open(bytes))).find("value") == std::string::npos);
}

}  // namespace values_test
