// LoRA adapters: merged into models, and taken out again.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "stele/recorders/any.hpp"
#include "stele/transforms/lora.hpp"
#include "support/models.hpp"
#include "support/temp_dir.hpp"

namespace {

using namespace stele;
using namespace stele_test;

struct Linear {
  Tensor<float, 2> weight;
  STELE_MODULE(Linear, weight)
};
struct Block {
  Linear q, head;
  STELE_MODULE(Block, q, head)
};
struct Model {
  Block model;
  Linear embed;
  STELE_MODULE(Model, model, embed)
};

Model model() {
  Model m;
  m.model.q.weight = Tensor<float, 2>({2, 3}, {1, 2, 3, 4, 5, 6});
  m.model.head.weight = Tensor<float, 2>({1, 2}, {7, 8});
  m.embed.weight = Tensor<float, 2>({3, 2}, {0, 1, 2, 3, 4, 5});
  return m;
}

/// An adapter of rank 2 for `q`, of rank 1 for the embedding, and a new `head`.
class Adapter {
 public:
  Adapter() { builder_.set_flat(); }
  Adapter& add(std::string_view name, std::vector<Extent> shape, std::vector<float> numbers) {
    auto kept = std::make_shared<std::vector<float>>(std::move(numbers));
    static constexpr LeafOps ops{
        .view = [](const void* at, std::uint64_t) { return static_cast<const std::byte*>(at); }};
    builder_.keep(kept);
    builder_.tensor(builder_.intern("base_model.model." + std::string(name)), DType::f32, shape,
                    kept->size() * sizeof(float), {&ops, kept->data(), 0});
    return *this;
  }
  Snapshot finish() { return builder_.finish(); }

 private:
  SnapshotBuilder builder_;
};

Snapshot adapter() {
  return Adapter()
      .add("model.q.lora_A.weight", {2, 3}, {1, 0, 1, 0, 1, 0})
      .add("model.q.lora_B.weight", {2, 2}, {1, 2, 3, 4})
      .add("embed.lora_embedding_A", {1, 3}, {1, 2, 3})
      .add("embed.lora_embedding_B", {2, 1}, {10, 20})
      .add("model.head.weight", {1, 2}, {-1, -2})
      .finish();
}

Value config(std::string_view text) { return good(parse_json(text)); }

std::vector<float> numbers(const Tensor<float, 2>& t) { return {t.data(), t.data() + t.size()}; }

}  // namespace

TEST_CASE("lora: merged into a model, and taken out") {
  const Model before = model();
  const Snapshot base = good(snapshot_of(before));
  const Snapshot merged = good(merge_lora(base, adapter(), config(R"({"peft_type":"LORA","r":2,"lora_alpha":4})")));
  const Model m = good(load<Model>(merged));
  // scale 2: B A = [1 2 1; 3 4 3]; of the embedding scale 4: [10 20; 20 40; 30 60].
  CHECK(numbers(m.model.q.weight) == std::vector<float>{3, 6, 5, 10, 13, 12});
  CHECK(numbers(m.embed.weight) == std::vector<float>{40, 81, 82, 163, 124, 245});
  CHECK(numbers(m.model.head.weight) == std::vector<float>{-1, -2});
  const Model out = good(load<Model>(good(merge_lora(merged, adapter(), config(R"({"lora_alpha":4})"), true))));
  CHECK(numbers(out.model.q.weight) == numbers(before.model.q.weight));
  CHECK(numbers(out.embed.weight) == numbers(before.embed.weight));
  CHECK(numbers(out.model.head.weight) == std::vector<float>{-1, -2});
  // A part of a weight.
  std::vector<float> part(3);
  good(merged.find("model.q.weight")->read(2 * sizeof(float), std::as_writable_bytes(std::span(part))));
  CHECK(part == std::vector<float>{5, 10, 13});
}

TEST_CASE("lora: scales and orientation") {
  const Model before = model();
  const Snapshot base = good(snapshot_of(before));
  const auto q = [&](std::string_view text, const Snapshot& adapter) {
    return numbers(good(load<Model>(good(merge_lora(base, adapter, config(text))))).model.q.weight);
  };
  CHECK(q(R"({"lora_alpha":4,"alpha_pattern":{"model.q":2}})", adapter())[0] == 2);
  CHECK(q(R"({"lora_alpha":4,"alpha_pattern":{"q":2}})", adapter())[0] == 2);
  CHECK(q(R"({"lora_alpha":4,"alpha_pattern":{"el.q":2}})", adapter())[0] == 3);
  CHECK(q(R"({"lora_alpha":2,"use_rslora":true})", adapter())[0] == doctest::Approx(1 + std::sqrt(2.0F)));
  // GPT-2's Conv1D has [in, out].
  const Snapshot turned = Adapter()
                              .add("model.q.lora_A.weight", {1, 2}, {1, 2})
                              .add("model.q.lora_B.weight", {3, 1}, {10, 20, 30})
                              .finish();
  CHECK(q(R"({"lora_alpha":1,"fan_in_fan_out":true})", turned) == std::vector<float>{11, 22, 33, 24, 45, 66});
}

TEST_CASE("lora: what does not fit is an error") {
  const Model before = model();
  const Snapshot base = good(snapshot_of(before));
  const auto refused = [&](const Snapshot& adapter, std::string_view text) {
    const auto merged = merge_lora(base, adapter, config(text));
    REQUIRE(!merged);
    return merged.error().code();
  };
  const auto pair = [](std::vector<Extent> a, std::vector<Extent> b, const std::string& name = "model.q") {
    return Adapter()
        .add(name + ".lora_A.weight", a, std::vector<float>(*element_count(a)))
        .add(name + ".lora_B.weight", b, std::vector<float>(*element_count(b)))
        .finish();
  };
  CHECK(refused(adapter(), "{}") == Errc::malformed);
  CHECK(refused(adapter(), R"({"lora_alpha":"4"})") == Errc::malformed);
  CHECK(refused(adapter(), R"({"lora_alpha":4,"use_dora":true})") == Errc::unsupported);
  CHECK(refused(adapter(), R"({"lora_alpha":4,"peft_type":"IA3"})") == Errc::unsupported);
  CHECK(refused(adapter(), R"({"lora_alpha":4,"alpha_pattern":{".*q":2}})") == Errc::unsupported);
  CHECK(refused(pair({2, 4}, {2, 2}), R"({"lora_alpha":4})") == Errc::shape_mismatch);
  CHECK(refused(pair({2, 3}, {2, 3}), R"({"lora_alpha":4})") == Errc::shape_mismatch);
  CHECK(refused(pair({0, 3}, {2, 0}), R"({"lora_alpha":4})") == Errc::shape_mismatch);
  CHECK(refused(pair({2, 3}, {2, 2}, "model.k"), R"({"lora_alpha":4})") == Errc::not_found);
  CHECK(refused(Adapter().add("model.q.lora_A.weight", {2, 3}, std::vector<float>(6)).finish(),
                R"({"lora_alpha":4})") == Errc::malformed);
  CHECK(refused(Adapter().add("model.q.lora_B.bias", {2}, {1, 2}).finish(), R"({"lora_alpha":4})") ==
        Errc::unsupported);
  CHECK(refused(Adapter().add("model.head.weight", {2, 1}, {1, 2}).finish(), R"({"lora_alpha":4})") ==
        Errc::shape_mismatch);
}
