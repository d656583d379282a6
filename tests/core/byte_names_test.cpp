// Names that are not UTF-8: a format that cannot hold one refuses it when it saves, so that what was saved opens.
#include <doctest/doctest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "stele/recorders/nnef.hpp"
#include "stele/recorders/samediff.hpp"
#include "support/any_recorder.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"
#include "support/test_data.hpp"

namespace byte_names_test {

namespace {

using namespace stele;
using namespace stele_test;
using Numbers = std::vector<float>;

constexpr SameDiffContainer containers[] = {SameDiffContainer::fb, SameDiffContainer::sdnb, SameDiffContainer::sdz};
const std::string byte_key = "\xff\x80";

struct Inner {
  static constexpr Attribute stele_attributes[] = {attr::version(3)};
  Numbers w{1, 2};
  STELE_MODULE(Inner, w)
};

struct Values {
  Numbers weight{1, 2, 3};
  std::map<std::string, std::string> texts;
  STELE_MODULE(Values, weight, texts)
};

struct Tensors {
  std::map<std::string, Numbers> tensors;
  STELE_MODULE(Tensors, tensors)
};

struct Empties {
  Numbers weight{1, 2, 3};
  std::map<std::string, std::vector<Inner>> lists;
  STELE_MODULE(Empties, weight, lists)
};

struct Versions {
  std::map<std::string, Inner> inner;
  STELE_MODULE(Versions, inner)
};

struct Ties {
  std::map<std::string, std::shared_ptr<Numbers>> tied;
  STELE_MODULE(Ties, tied)
};

template <class M, class Same>
void check(const AnyRecorder& recorder, const M& module, Same same) {
  BufferSink sink;
  const auto report = recorder.save(module, sink);
  if (!report) {
    CHECK_MESSAGE((report.error().code() == Errc::not_representable), why(report));
    CHECK_FALSE(report.error().path().empty());
    return;
  }
  const Bytes file = sink.take();
  const auto after = recorder.load<M>(file);
  REQUIRE_MESSAGE(after, why(after));
  CHECK(same(*after));
}

void check_all(const AnyRecorder& recorder) {
  {
    INFO("a value");
    const Values m{.weight = {1}, .texts = {{byte_key, "x"}}};
    check(recorder, m, [&](const Values& copy) { return copy.texts == m.texts; });
  }
  {
    INFO("a tensor");
    const Tensors m{.tensors = {{byte_key, {1, 2}}}};
    check(recorder, m, [&](const Tensors& copy) { return copy.tensors == m.tensors; });
  }
  {
    INFO("an empty container");
    const Empties m{.weight = {1}, .lists = {{byte_key, {}}}};
    check(recorder, m, [&](const Empties& copy) { return copy.lists.contains(byte_key); });
  }
  {
    INFO("a version");
    const Versions m{.inner = {{byte_key, {}}}};
    check(recorder, m, [&](const Versions& copy) { return copy.inner.contains(byte_key); });
  }
  {
    INFO("a tie");
    const auto shared = std::make_shared<Numbers>(Numbers{1, 2});
    const Ties m{.tied = {{"a", shared}, {byte_key, shared}}};
    check(recorder, m,
          [&](const Ties& copy) { return copy.tied.contains(byte_key) && *copy.tied.at(byte_key) == *shared; });
  }
}

}  // namespace

TEST_CASE_TEMPLATE("byte names: refused, or they come back", R, STELE_TEST_RECORDERS, BurnRecorder<>, GgufRecorder<>) {
  check_all(any_recorder<R>());
}

TEST_CASE("byte names: refused, or they come back, in NNEF and SameDiff files") {
  const NnefFormat archive({.container = NnefContainer::tgz});
  check_all(AnyRecorder(AnyFormat(archive)));
  for (const SameDiffContainer container : containers) {
    const SameDiffFormat format({.container = container});
    check_all(AnyRecorder(AnyFormat(format)));
  }
}

TEST_CASE("byte names: a SameDiff file of another program has texts under such a name") {
  for (const char* found : {"texts_name_not_utf8", "scalar_text_name_not_utf8"}) {
    CAPTURE(found);
    const std::string file = read_text(test_data() + "/formats/samediff/fuzz/corpus/samediff_fuzz/" + found);
    const auto checkpoint = open_samediff(bytes_of(file));
    REQUIRE_MESSAGE(checkpoint, why(checkpoint));
    for (const SameDiffContainer container : containers) {
      const SameDiffRecorder<> recorder({.container = container});
      const auto bytes = saved(recorder, checkpoint->parameters);
      REQUIRE_MESSAGE(bytes, why(bytes));
      const auto again = recorder.open(*bytes);
      REQUIRE_MESSAGE(again, why(again));
      const Capabilities& can = recorder.format().capabilities();
      CHECK(difference(facts(checkpoint->parameters, can), facts(*again, can)).empty());
    }
  }
}

}  // namespace byte_names_test
