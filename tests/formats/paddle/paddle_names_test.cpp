// Paddle: names from programs, layouts and models; their order.
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "paddle_support.hpp"

namespace stele_test::paddle_names_test {

using namespace paddle;
using stele::Errc;
using stele::PaddleOrder;
using stele::Snapshot;

namespace {
struct Fixed {
  std::array<float, 3> weight{3, 4, 5};
};
}  // namespace

TEST_CASE("paddle: names from a type, a module in place, a layout") {
  CHECK(image(good(plain.load<Net>(own(small_paddle_file())))) == image(net()));
  CHECK(stele::to_string(good(plain.load<stele::Record<Net>>(own(small_paddle_file()))).fc.b.shape()) == "[3]");
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

  // A layout has precedence over a program beside the file; so has PaddleNames::layout, with the names of the type.
  const Snapshot renamed = good(plain.open(paddle_golden("one.pdiparams"), named_as({"x"})));
  CHECK(renamed.leaf(0).path() == "x");
  CHECK(code_of(plain.load<Other>(paddle_golden("readable.pdiparams"))) == Errc::missing);
  const Other read = good(by({.names = PaddleNames::layout}).load<Other>(paddle_golden("readable.pdiparams")));
  CHECK(read.other[1] == -0.5F);
  // Numbers are converted as ever.
  CHECK(static_cast<float>(good(plain.load<Half>(paddle_golden("readable.pdiparams"))).w[1]) == -0.5F);
}

TEST_CASE("paddle: another order than that of names") {
  Net live{{Tensor<float, 2>({2, 3}), Tensor<float, 1>({3})}};
  const stele::Error error = bad(plain.load_into(live, own(declared_file())));
  CHECK(error.code() == Errc::shape_mismatch);
  CHECK(error.path() == "fc.b");
  CHECK(error.expected() == "[3]");
  CHECK(error.hint() == "use PaddleOrder::declared, whose order matches the shapes");
  CHECK(error.found() == "[2, 3]");
  REQUIRE(error.report());
  CHECK(error.report()->paths(stele::Report::What::suggested) == std::vector<std::string>{"fc.b"});
  good(by({.order = PaddleOrder::declared}).load_into(live, own(declared_file())));
  CHECK(image(live) == image(net()));
  // The other way round.
  const stele::Error back = bad(by({.order = PaddleOrder::declared}).load_into(live, own(small_paddle_file())));
  CHECK(back.expected() == "[2, 3]");
  CHECK(back.hint() == "use PaddleOrder::sorted, whose order matches the shapes");
  CHECK(back.report()->count(stele::Report::What::suggested) == 1);
  // If no order fits, none is suggested.
  live.fc.w = Tensor<float, 2>({2, 4});
  const stele::Error none = bad(plain.load_into(live, own(declared_file())));
  CHECK(none.expected() == "[3]");
  CHECK(!none.report());
  // A given program is sorted, as Paddle sorts; the order of the saved tensors does not matter to the check.
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

TEST_CASE("paddle: JSON beside the parameters that is no program") {
  const TempDir dir;
  good(stele::save(Fixed(), dir / "model.json", quick()));
  good(stele::save(Fixed(), dir / "model.pdiparams", quick()));
  CHECK(good(stele::load<Fixed>(dir / "model.pdiparams")).weight[2] == 5);
}

}  // namespace stele_test::paddle_names_test
