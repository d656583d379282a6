// Pointers to a base: what they hold is saved whole under its class's name, or refused.
#include <stele/module.hpp>
#include <stele/record.hpp>
#include <stele/tensor.hpp>

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

using namespace stele_test;
using stele::Errc;
using stele::Report;
using stele::Snapshot;

namespace {

using Paths = std::vector<std::string>;

// ---- without a declaration ------------------------------------------------------------------------------------------

class Undeclared {
 public:
  Undeclared() = default;
  explicit Undeclared(float n) : w(vec({n})) {}
  virtual ~Undeclared() = default;
  Vec w;
  STELE_MODULE(Undeclared, w)
};
class More : public Undeclared {
 public:
  More() = default;
  explicit More(float n) : Undeclared(n), more(vec({n, n})) {}
  Vec more;
  STELE_MODULE_DERIVED(More, (Undeclared), more)
};
/// Adds no field, but may compute something else.
class Renamed : public Undeclared {};

class Last final : public Undeclared {
 public:
  STELE_MODULE_DERIVED(Last, (Undeclared))
};
struct Plain {
  Vec w;
};

struct Holders {
  std::vector<std::unique_ptr<Undeclared>> layers;
  std::shared_ptr<Undeclared> head;
  STELE_MODULE(Holders, layers, head)
};
Holders holders(float n) {
  Holders m;
  m.layers.push_back(std::make_unique<Undeclared>(n));
  m.layers.push_back(std::make_unique<Undeclared>(n));
  m.head = std::make_shared<Undeclared>(n);
  return m;
}

void check_refused(const stele::Error& e, const std::string& path) {
  CHECK(e.code() == Errc::kind_mismatch);
  CHECK(e.path() == path);
  CHECK(e.message().find("stele::derived") != std::string::npos);
  CHECK(e.expected() == "Undeclared");
  CHECK(e.found().ends_with("::More"));
}

}  // namespace

TEST_CASE_TEMPLATE("derived: an object of a class that no pointer names is not saved", R, STELE_TEST_RECORDERS) {
  Holders m = holders(1);
  good(saved(R{}, m));
  m.layers[1] = std::make_unique<More>(2.0F);
  check_refused(bad(saved(R{}, m)), "layers.1");
  m = holders(1);
  m.head = std::make_shared<More>(2.0F);
  check_refused(bad(saved(R{}, m)), "head");
  m.head = std::make_shared<Renamed>();
  CHECK(bad(saved(R{}, m)).found().ends_with("::Renamed"));
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
    check_refused(bad(stele::load_snapshot(m, s, options, &report)), "layers.1");
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
  check_refused(bad(stele::load_snapshot<Undeclared>(target, good(stele::snapshot_of(plain)))), "");
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
