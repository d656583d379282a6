// Pointers to a base: ties between bases and classes.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/derived_models.hpp"

namespace derived_ties_test {

using namespace derived_models;

STELE_TEST_EACH_RECORDER("derived: ties hold across bases and classes") {
  const Graph m = graph(1);
  check_tied(m);
  CHECK(stele::num_params(m) == 4 + 3 + 2 + 1);
  const stele::Bytes bytes = good(saved(recorder, m));
  Report report;
  const Graph back = good(recorder.load<Graph>(bytes, {.report = &report}));
  check_tied(back);
  CHECK(image(back) == image(m));
  CHECK(report.paths(Report::What::tied) ==
        Paths{"second.Both", "tagged.Both", "both", "tags.a.Virtual", "tags.b.Both", "wide", "last.Block"});

  Graph target = graph(50);
  const auto* object = target.both.get();
  good(recorder.load_into(target, bytes));
  check_tied(target);
  CHECK(target.both.get() == object);
  CHECK(image(target) == image(m));

  // Rebuilding ties the objects that the file has tied, and separates the others.
  Graph apart = untied(50);
  good(recorder.load_into(apart, bytes, rebuilding));
  CHECK(image(apart) != image(graph(50)));
  const stele::Bytes loose = good(saved(recorder, untied(7)));
  const Graph fresh = good(recorder.load<Graph>(loose));
  CHECK(image(fresh) == image(untied(7)));
  CHECK(fresh.first != fresh.second);
  CHECK((*fresh.second->w)[0] == 8);
}

TEST_CASE("derived: ties, module tied, file not") {
  const Graph file = untied(7);
  Graph m = graph(1);
  const stele::Error e = bad(stele::load_into(m, good(stele::snapshot_of(file))));
  CHECK(e.code() == Errc::unused);
  CHECK(e.path() == "second.Both.w");
  CHECK(e.expected() == "the same as first.Both.w");
  // Equal objects under further names are accepted.
  Graph same = graph(7);
  same.second = std::make_shared<Both>(7.0F);
  same.tagged = std::make_shared<Both>(7.0F);
  same.tags["b"] = std::make_shared<Both>(7.0F);
  Report report;
  good(stele::load_into(m, good(stele::snapshot_of(same)), {.report = &report}));
  check_tied(m);
  CHECK((*m.both->w)[0] == 7);
  CHECK(report.paths(Report::What::tied) ==
        Paths{"second.Both", "tagged.Both", "both", "tags.a.Virtual", "tags.b.Both", "wide", "last.Block"});
}

TEST_CASE("derived: ties, module tied, the file has one of the names") {
  struct Both1 {
    std::shared_ptr<Block> first, second;
    std::shared_ptr<Tagged> tagged;
    std::shared_ptr<Both> both;
  };
  struct Only {
    std::shared_ptr<Tagged> tagged;
  };
  Both1 m;
  m.both = std::make_shared<Both>(1.0F);
  m.first = m.second = m.both;
  m.tagged = m.both;
  const Only file{std::make_shared<Both>(7.0F)};
  for (const bool flat : {false, true}) {
    CAPTURE(flat);
    (*m.both->w)[0] = 1;
    const stele::Bytes bytes =
        flat ? good(saved(stele::SafetensorsRecorder<>{}, file)) : good(saved(stele::BytesRecorder<>{}, file));
    Report report;
    good(stele::load_into(m, good(stele::open(bytes)), {.report = &report}));
    CHECK((*m.both->w)[0] == 7);
    CHECK(m.first == m.both);
    CHECK(report.paths(Report::What::tied) == Paths{"both", "first", "second"});
  }
  // A `none` under one of the names, and nothing under any.
  struct Nulls {
    std::shared_ptr<Block> first, second;
    std::shared_ptr<Tagged> tagged;
  };
  const Nulls nulls{nullptr, nullptr, file.tagged};
  Report report;
  good(stele::load_into(m, good(stele::snapshot_of(nulls)), {.report = &report}));
  CHECK(m.first == m.both);
  const Nulls nothing;
  const stele::Error e = bad(stele::load_into(m, good(stele::snapshot_of(nothing))));
  CHECK(e.code() == Errc::missing);
  CHECK(e.path() == "first");
  CHECK((*m.both->w)[0] == 7);
  // A second name of another class does not fit.
  Nulls other{file.tagged == nullptr ? nullptr : std::make_shared<Both>(1.0F), std::make_shared<Wide>(1.0F), nullptr};
  CHECK(bad(stele::load_into(m, good(stele::snapshot_of(other)))).path() == "second.Wide");
}

namespace {
/// The constructor ties three of them.
struct Made {
  Made() : first(std::make_shared<Both>(1.0F)), second(first), head(std::make_shared<Wide>(1.0F)) {
    tagged = std::dynamic_pointer_cast<Both>(first);
  }
  std::shared_ptr<Block> first, second, head, none;
  std::shared_ptr<Tagged> tagged;
  STELE_MODULE(Made, first, second, head, none, tagged)
};
}  // namespace

TEST_CASE("derived: a file with one name of a tie that the constructor makes") {
  struct First {
    std::shared_ptr<Block> first;
  };
  struct Tag {
    std::shared_ptr<Tagged> tagged;
  };
  const First first{std::make_shared<Both>(7.0F)};
  const Tag tag{std::make_shared<Both>(7.0F)};
  const auto check = [](const auto& file, const Paths& tied) {
    const stele::Bytes flat = good(saved(stele::SafetensorsRecorder<>{}, file));
    for (const Snapshot& snapshot : {good(stele::snapshot_of(file)), good(stele::open(flat))}) {
      Report report;
      const Made made = good(stele::load<Made>(snapshot, {.report = &report}));
      REQUIRE(made.first != nullptr);
      CHECK(made.first == made.second);
      CHECK(dynamic_cast<const void*>(made.tagged.get()) == dynamic_cast<const void*>(made.first.get()));
      CHECK((*made.first->w)[0] == 7);
      CHECK(report.paths(Report::What::tied) == tied);
      // The file has nothing of these, and they may be names of the object, too.
      CHECK(made.head == nullptr);
      CHECK(report.paths(Report::What::missing) == Paths{"head", "none"});

      Made live;
      const auto* object = live.first.get();
      stele::LoadOptions rebuild;
      rebuild.rebuild = true;
      report = {};
      good(stele::load_into(live, snapshot, reporting(rebuild, report)));
      CHECK(live.first.get() == object);
      CHECK(live.first == live.second);
      CHECK((*live.second->w)[0] == 7);
      CHECK(report.paths(Report::What::tied) == tied);
    }
  };
  check(first, {"second", "tagged"});
  check(tag, {"first", "second"});
}

STELE_TEST_EACH_RECORDER("derived: ties hold between a field list and a plain aggregate") {
  Mixed m;
  m.loose.wide = std::make_shared<Wide>(1.0F);
  m.block = m.loose.wide;
  m.tensor = m.loose.tensor = std::make_shared<Vec>(vec({1, 2}));
  CHECK(stele::num_params(m) == 3 + 2);
  const stele::Bytes bytes = good(saved(recorder, m));
  const Mixed back = good(recorder.load<Mixed>(bytes));
  CHECK(back.block == back.loose.wide);
  CHECK(back.tensor == back.loose.tensor);
}

TEST_CASE("derived: ties, the file lacks the module's first name") {
  struct Names {
    std::shared_ptr<Block> first, second, third;
  };
  struct Plains {
    std::shared_ptr<Wide> first, second, third;
  };
  const auto check = [](auto m, auto file) {
    m.first = m.second = m.third = std::make_shared<Wide>(1.0F);
    file.second = std::make_shared<Wide>(7.0F);
    file.third = std::make_shared<Wide>(7.0F);
    good(stele::load_into(m, good(stele::snapshot_of(file))));
    CHECK((*m.first->w)[0] == 7);
    (*file.third->w)[0] = 8;
    const stele::Error e = bad(stele::load_into(m, good(stele::snapshot_of(file))));
    CHECK(e.code() == Errc::unused);
    CHECK(e.path().starts_with("third"));
    CHECK(e.expected().starts_with("the same as second"));
  };
  check(Names(), Names());
  check(Plains(), Plains());
}

}  // namespace derived_ties_test
