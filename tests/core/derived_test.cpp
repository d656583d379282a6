// Pointers to a base: what they hold is saved whole under its class's name, or refused.
#include <stele/schema.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "core/derived_models.hpp"

namespace derived_test {

using namespace derived_models;

STELE_TEST_EACH_RECORDER("derived: an object of a class that no pointer names is not saved") {
  Holders m = holders(1);
  good(saved(recorder, m));
  m.layers[1] = std::make_unique<More>(2.0F);
  check_refused(bad(saved(recorder, m)), "layers.1");
  m = holders(1);
  m.head = std::make_shared<More>(2.0F);
  check_refused(bad(saved(recorder, m)), "head");
  m.head = std::make_shared<Renamed>();
  CHECK(bad(saved(recorder, m)).found().ends_with("::Renamed"));
}

TEST_CASE("derived: nothing is written where an object is refused") {
  const TempDir folder;
  Holders m = holders(1);
  m.layers[0] = std::make_unique<More>(2.0F);
  check_refused(bad(stele::save(m, folder / "m.stele")), "layers.0");
  CHECK(folder.names().empty());
}

TEST_CASE("derived: an object of a class that no pointer names is not loaded, and nothing changes") {
  const Holders file = holders(1);
  const Snapshot s = good(stele::snapshot_of(file));
  Holders m = holders(5);
  m.layers[1] = std::make_unique<More>(6.0F);
  for (const bool rebuild : {false, true}) {
    stele::LoadOptions options;
    options.rebuild = rebuild;
    Report report;
    check_refused(bad(stele::load_into(m, s, reporting(options, report))), "layers.1");
    CHECK(report.paths(Report::What::mismatched) == Paths{"layers.1"});
    CHECK((*m.layers[0]->w)[0] == 5);
    CHECK((*m.layers[1]->w)[0] == 6);
    check_refused(bad(stele::dry_run(m, s, options)), "layers.1");
  }
}

TEST_CASE("derived: a reference to a base") {
  const More derived(3);
  const Undeclared& base = derived;
  check_refused(bad(stele::snapshot_of(base)), "");
  More target(4);
  const Undeclared plain(1);
  check_refused(bad(stele::load_into<Undeclared>(target, good(stele::snapshot_of(plain)))), "");
  CHECK((*target.w)[0] == 4);
  CHECK(tensor_paths(derived) == Paths{"w", "more"});
}

TEST_CASE("derived: only classes that may have derived ones are asked for theirs") {
  const auto asked = []<class T>(std::type_identity<T>) {
    return stele::detail::type_info<T, true>::value.other_class != nullptr;
  };
  CHECK(asked(std::type_identity<Undeclared>()));
  CHECK(!asked(std::type_identity<Last>()));
  CHECK(!asked(std::type_identity<Plain>()));
  CHECK(!asked(std::type_identity<Vec>()));
}

// ---- with a declaration ---------------------------------------------------------------------------------------------

TEST_CASE("derived: each object stands under its class's name, as a variant's alternative") {
  CHECK(outline(net(1)) == net_outline);
  CHECK(outline(tensors(1)).starts_with("list layers\nvariant layers.0\nmodule layers.0.Dense\n"));
}

STELE_TEST_EACH_RECORDER("derived: the bytes are those of variants") {
  Short pointers;
  pointers.layers.push_back(std::make_unique<Dense>(1.0F));
  pointers.layers.push_back(std::make_unique<Dropout>(0.5));
  Twin variants;
  variants.layers.emplace_back(Dense(1.0F));
  variants.layers.emplace_back(Dropout(0.5));
  const stele::Bytes bytes = good(saved(recorder, pointers));
  if (!is_zip_file(recorder)) CHECK(text_of(bytes.span()) == text_of(good(saved(recorder, variants)).span()));
  const Twin twin = good(recorder.load<Twin>(bytes));
  CHECK(image(twin) == image(variants));
  const stele::Bytes other = good(saved(recorder, variants));
  CHECK(image(good(recorder.load<Short>(other))) == image(variants));
}

STELE_TEST_EACH_RECORDER("derived: a new module") {
  const Net m = net(1);
  const stele::Bytes bytes = good(saved(recorder, m));
  Report report;
  const Net back = good(recorder.load<Net>(bytes, {.report = &report}));
  CHECK(image(back) == image(m));
  CHECK(back.layers.at(0)->kind() == "dense");
  CHECK(back.layers.at(1)->kind() == "dropout");
  CHECK(back.layers.at(2)->kind() == "stack");
  CHECK(static_cast<Stack&>(*back.layers[2]).layers.at(1)->kind() == "dense");
  CHECK(back.fixed[1]->kind() == "dropout");
  CHECK(back.none == nullptr);
  CHECK(report.paths(Report::What::missing).empty());
  good(recorder.verify(bytes));
  CHECK(good(recorder.open(bytes)).find("layers.2.Stack.layers.1.Dense.bias").has_value());
}

STELE_TEST_EACH_RECORDER("derived: in place, the objects stay") {
  const stele::Bytes bytes = good(saved(recorder, net(1)));
  Net m = net(100);
  const auto* first = m.layers[0].get();
  const auto* inner = static_cast<Stack&>(*m.layers[2]).layers[1].get();
  good(recorder.load_into(m, bytes));
  CHECK(image(m) == image(net(1)));
  CHECK(m.layers[0].get() == first);
  CHECK(static_cast<Stack&>(*m.layers[2]).layers[1].get() == inner);
}

STELE_TEST_EACH_RECORDER("derived: in place, another class") {
  const stele::Bytes bytes = good(saved(recorder, net(1)));
  Net m = net(100);
  std::swap(m.layers[0], m.layers[1]);
  m.head = nullptr;
  m.none = std::make_unique<Dropout>(0.5);
  const Image before = image(m);
  const stele::Error e = bad(recorder.load_into(m, bytes));
  CHECK(e.code() == Errc::kind_mismatch);
  CHECK(e.path() == "layers.0.Dense");
  CHECK(e.expected() == "Dropout");
  CHECK(e.found() == "Dense");
  CHECK(image(m) == before);
  // Null here and an object there, and the reverse, are in the report too.
  CHECK(e.report()->paths(Report::What::mismatched) == Paths{"layers.0.Dense", "layers.1.Dropout", "head"});
  CHECK(e.report()->paths(Report::What::missing) == Paths{"none"});

  good(recorder.load_into(m, bytes, rebuilding));
  CHECK(image(m) == image(net(1)));
  CHECK(m.layers[0]->kind() == "dense");
  CHECK(m.none == nullptr);
}

STELE_TEST_EACH_RECORDER("derived: an object whose class is not listed") {
  Net m = net(1);
  static_cast<Stack&>(*m.layers[2]).layers[1] = std::make_unique<Unlisted>(5.0F);
  stele::Error e = bad(saved(recorder, m));
  CHECK(e.code() == Errc::kind_mismatch);
  CHECK(e.path() == "layers.2.Stack.layers.1");
  CHECK(e.expected() == "Dense or Dropout or Stack");
  CHECK(e.found().ends_with("::Unlisted"));
  const stele::Bytes bytes = good(saved(recorder, net(1)));
  e = bad(recorder.load_into(m, bytes));
  CHECK(e.path() == "layers.2.Stack.layers.1");
  CHECK(e.found().ends_with("::Unlisted"));

  Graph g = graph(1);
  const auto ring = std::make_shared<Ring>();
  g.blocks[1] = ring;
  e = bad(saved(recorder, g));
  CHECK(e.path() == "blocks.1");
  CHECK(e.expected() == "Block or Wide or Both or Virtual");
  // A pointer to a listed class may hold one derived from it.
  struct Deeper {
    std::shared_ptr<Dense> dense;
  };
  e = bad(saved(recorder, Deeper{std::make_shared<Unlisted>(1.0F)}));
  CHECK(e.path() == "dense");
  CHECK(e.expected() == "Dense");
}

TEST_CASE("derived: hooks, const members and names of one's own") {
  const Parts m = parts(1);
  CHECK(outline(m) ==
        "list own\nvariant own.0\nmodule own.0.Fixed\ntensor own.0.Fixed.w\nvariant own.1\nmodule own.1.Long\n"
        "tensor own.1.Long.w\nvariant own.2\nmodule own.2.Sized\ntensor own.2.Sized.w\nvariant shared\n"
        "module shared.Fixed\ntensor shared.Fixed.w\nvariant again\nalias again.Fixed\n");
  const auto check = [&](const Parts& back) {
    CHECK(image(back) == image(m));
    CHECK(back.shared == back.again);
    CHECK(back.own.at(1)->sum() == 2);
    CHECK(back.shared->sum() == 4);
  };
  check(good(stele::load<Parts>(good(stele::snapshot_of(m)))));
  check(good(stele::from_record(good(stele::record_of(m)))));
  // An object that is made by its hook cannot be written, only replaced.
  Parts target = parts(5);
  const stele::Error e = bad(stele::load_into(target, good(stele::snapshot_of(m))));
  CHECK(e.path() == "own.0.Fixed");
  good(stele::load_into(target, good(stele::snapshot_of(m)), rebuilding));
  check(target);
  // Nor one that has a name of its own class.
  struct Plains {
    std::shared_ptr<Fixed> shared, again;
  };
  Plains plains, file;
  plains.shared = plains.again = std::make_shared<Fixed>(1.0F);
  file.shared = file.again = std::make_shared<Fixed>(2.0F);
  good(stele::load_into(plains, good(stele::snapshot_of(file)), rebuilding));
  CHECK(plains.again->sum() == 2);
  CHECK(plains.shared == plains.again);
  file.again = std::make_shared<Fixed>(3.0F);
  good(stele::load_into(plains, good(stele::snapshot_of(file)), rebuilding));
  CHECK(plains.shared->sum() == 2);
  CHECK(plains.again->sum() == 3);
}

STELE_TEST_EACH_RECORDER("derived: classes made by a hook, with names of their own, and without parameters") {
  Parts m = parts(1);
  m.own.insert(m.own.begin() + 1, std::make_unique<Relu>());
  m.own.push_back(std::make_unique<Relu>());
  const stele::Bytes bytes = good(saved(recorder, m));
  const Parts back = good(recorder.load<Parts>(bytes));
  CHECK(image(back) == image(m));
  REQUIRE(back.own.size() == 5);
  CHECK(back.own[1]->sum() == -1);
  CHECK(back.own[4]->sum() == -1);
  CHECK(back.shared == back.again);
  // Each Fixed is made anew.
  Parts target = parts(5);
  good(recorder.load_into(target, bytes, rebuilding));
  CHECK(image(target) == image(m));
  CHECK(target.shared == target.again);
}

STELE_TEST_EACH_RECORDER("derived: records") {
  using NetRecord = stele::Record<Net>;
  static_assert(std::is_same_v<
                decltype(NetRecord::head),
                std::unique_ptr<std::variant<stele::Record<Dense>, stele::Record<Dropout>, stele::Record<Stack>>>>);
  const stele::Bytes bytes = good(saved(recorder, net(1)));
  NetRecord record = good(recorder.load<stele::Record<Net>>(bytes));
  CHECK(good(std::get<stele::Record<Dense>>(*record.layers.at(0)).bias->load()).value[0] == 1);
  CHECK(std::get<stele::Record<Dropout>>(*record.layers.at(1)).rate == 0.5);
  CHECK(record.none == nullptr);
  CHECK(image(record) == image(net(1)));
  CHECK(image(good(stele::from_record(std::move(record)))) == image(net(1)));

  const Graph m = graph(1);
  const stele::Bytes tied = good(saved(recorder, m));
  stele::Record<Graph> shared = good(recorder.load<stele::Record<Graph>>(tied));
  const auto& first = std::get<stele::SharedRecord<Both>>(*shared.first);
  CHECK(first == std::get<stele::SharedRecord<Both>>(*shared.tagged));
  CHECK(first == shared.both);
  CHECK(image(shared) == image(m));
  const stele::Bytes again = good(saved(recorder, shared));
  if (!is_zip_file(recorder)) CHECK(text_of(again.span()) == text_of(tied.span()));
  check_tied(good(stele::from_record(std::move(shared))));
  check_tied(good(stele::from_record(good(stele::record_of(graph(1))))));
}

TEST_CASE("derived: the Schema shows a variant") {
  const stele::Schema layer = stele::schema_of<Net>().field(0).type.element();
  CHECK(layer.kind() == stele::TypeKind::pointer);
  CHECK(layer.open());
  const stele::Schema variant = layer.element();
  CHECK(variant.kind() == stele::TypeKind::variant);
  REQUIRE(variant.field_count() == 3);
  CHECK(variant.field(0).name == "Dense");
  CHECK(variant.field(0).type == stele::schema_of<Dense>());
  CHECK(variant.field(2).name == "Stack");
  const stele::Schema shared = stele::schema_of<Graph>().field(0).type.element();
  CHECK(shared.kind() == stele::TypeKind::variant);
  CHECK(shared.field(1).name == "Wide");
  CHECK(shared.field(1).type.kind() == stele::TypeKind::shared);
  CHECK(shared.field(1).type.element() == stele::schema_of<Wide>());
  CHECK(code_of(stele::layout_of(stele::schema_of<Net>())) == Errc::needs_layout);
  CHECK(good(stele::layout_of(tensors(1))).tensors.at(1).path == "layers.0.Dense.weight");
}

STELE_TEST_EACH_RECORDER("derived: dry runs, lazy loads and views") {
  const stele::Bytes bytes = good(saved(recorder, net(1)));
  const Snapshot s = good(recorder.open(bytes));
  const Report report = good(stele::dry_run<Net>(s));
  const Paths applied = report.paths(Report::What::applied);
  CHECK(std::find(applied.begin(), applied.end(), "layers.2.Stack.layers.1.Dense.weight") != applied.end());
  stele::LoadOptions options;
  options.storage = stele::Storage::mmap;
  CHECK(image(good(recorder.load<Net>(bytes, options))) == image(net(1)));
  options = {};
  options.threads = 1;
  CHECK(image(good(recorder.load<Net>(bytes, options))) == image(net(1)));
}

TEST_CASE("derived: a cycle, and too deep a nesting") {
  auto knot = std::make_shared<Knot>();
  knot->next = knot;
  std::shared_ptr<Cell> cell = knot;
  const stele::Error e = bad(stele::snapshot_of(cell));
  CHECK(e.code() == Errc::cycle);
  CHECK(e.path() == "Knot.next.Knot");
  knot->next = nullptr;

  std::unique_ptr<Layer> top = std::make_unique<Stack>();
  auto* inner = static_cast<Stack*>(top.get());
  for (int i = 0; i < 100; ++i) {
    inner->layers.push_back(std::make_unique<Stack>());
    inner = static_cast<Stack*>(inner->layers[0].get());
  }
  for (const bool too_deep : {false, true}) {
    const auto s = stele::snapshot_of(top);
    CHECK(code_of(s) == (too_deep ? Errc::limit : Errc::none));
    if (!too_deep) {
      std::unique_ptr<Layer> back;
      good(stele::load_into(back, good(s), rebuilding));
      CHECK(image(back) == image(top));
    }
    for (int i = 0; i < 100 && !too_deep; ++i) {
      inner->layers.push_back(std::make_unique<Stack>());
      inner = static_cast<Stack*>(inner->layers[0].get());
    }
  }
}

}  // namespace derived_test
