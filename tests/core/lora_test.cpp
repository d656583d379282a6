// LoRA adapters: merged into models, and taken out again.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "stele/recorders/any.hpp"
#include "stele/transforms/lora.hpp"
#include "support/models.hpp"
#include "support/temp_dir.hpp"
#include "support/test_data.hpp"

namespace lora_test {

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
  explicit Adapter(std::string prefix = "base_model.model.") : prefix_(std::move(prefix)) { builder_.set_flat(); }
  Adapter& add(std::string_view name, std::vector<Extent> shape, std::vector<float> numbers) {
    auto kept = std::make_shared<std::vector<float>>(std::move(numbers));
    static constexpr LeafOps ops{
        .view = [](const void* at, std::uint64_t) { return static_cast<const std::byte*>(at); }};
    builder_.keep(kept);
    builder_.tensor(builder_.intern(prefix_ + std::string(name)), DType::f32, shape, kept->size() * sizeof(float),
                    {&ops, kept->data(), 0});
    return *this;
  }
  Snapshot finish() { return builder_.finish(); }

 private:
  std::string prefix_;
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

/// An adapter of `q`, which has the shape [2, 3].
Adapter of_q() {
  Adapter adapter;
  adapter.add("model.q.lora_A.weight", {1, 3}, {1, 2, 3}).add("model.q.lora_B.weight", {2, 1}, {1, 1});
  return adapter;
}

Value config(std::string_view text) { return good(parse_json(text)); }

std::vector<float> numbers(const Tensor<float, 2>& t) { return {t.data(), t.data() + t.size()}; }

std::vector<float> numbers(const Snapshot& snapshot, std::string_view name) {
  const Snapshot floats = with_precision(snapshot, DType::f32);
  const LeafView leaf = *floats.find(name);
  std::vector<float> out(static_cast<std::size_t>(leaf.size()));
  good(leaf.read(0, std::as_writable_bytes(std::span(out))));
  return out;
}

std::string text_of(const Error& error) { return std::string(name(error.code())) + ": " + std::string(error.path()); }

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
  CHECK(q(R"({"lora_alpha":4,"alpha_pattern":{".*\\.[pq]":2,"q":9}})", adapter())[0] == 2);  // the first counts
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
  CHECK(refused(adapter(), R"({"lora_alpha":4,"alpha_pattern":{"(?=q)q":2
}
})") == Errc::unsupported);
  CHECK(refused(adapter(), R"({"lora_alpha":4,"alpha_pattern":{"q":"2"}})") == Errc::malformed);
  CHECK(refused(pair({2, 4}, {2, 2}), R"({"lora_alpha":4})") == Errc::shape_mismatch);
  CHECK(refused(pair({2, 3}, {2, 3}), R"({"lora_alpha":4})") == Errc::shape_mismatch);
  CHECK(refused(pair({0, 3}, {2, 0}), R"({"lora_alpha":4})") == Errc::shape_mismatch);
  CHECK(refused(pair({2, 3}, {2, 2}, "model.k"), R"({"lora_alpha":4})") == Errc::not_found);
  CHECK(refused(Adapter().add("model.q.lora_A.weight", {2, 3}, std::vector<float>(6)).finish(),
                R"({"lora_alpha":4})") == Errc::malformed);
  CHECK(refused(Adapter().add("model.q.lora_B.bias", {2}, {1, 2}).finish(), R"({"lora_alpha":4})") == Errc::malformed);
  CHECK(refused(Adapter().add("model.head.weight", {2, 1}, {1, 2}).finish(), R"({"lora_alpha":4})") ==
        Errc::shape_mismatch);
}

TEST_CASE("lora: f64 is computed in f64") {
  const Model before = model();
  const Snapshot base = with_precision(good(snapshot_of(before)), DType::f64);
  const Snapshot adapter = Adapter()
                               .add("model.q.lora_A.weight", {1, 3}, {0x1p-40F, 0, 0})
                               .add("model.q.lora_B.weight", {2, 1}, {1, 0})
                               .finish();
  const Snapshot merged = good(merge_lora(base, adapter, config(R"({"lora_alpha":1})")));
  double first = 0;
  good(merged.find("model.q.weight")->read(0, std::as_writable_bytes(std::span(&first, 1))));
  CHECK(first == 1 + 0x1p-40);
  std::vector<double> all(6);
  const TempDir dir;
  good(save(merged, dir / "m.stele"));
  good(good(open(dir / "m.stele")).find("model.q.weight")->read(0, std::as_writable_bytes(std::span(all))));
  CHECK(all == std::vector<double>{1 + 0x1p-40, 2, 3, 4, 5, 6});
}

TEST_CASE("lora: modules that are tied as a whole") {
  const TempDir dir;
  write_text(dir / "m.json",
             R"({"format":"stele-json","version":1,"record":{)"
             R"("emb":{"weight":{"$dtype":"F32","shape":[1,2],"data":[[1.0,2.0]]}},"head":{"$ref":"emb"}}})");
  const Snapshot base = good(open(dir / "m.json"));
  for (const std::string name : {"emb", "head"}) {
    const auto settings = config("{\"lora_alpha\":1,\"modules_to_save\":[\"" + name + "\"]}");
    const auto merged = merge_lora(base, Adapter().add(name + ".weight", {1, 2}, {3, 4}).finish(), settings);
    REQUIRE(!merged);
    CHECK(text_of(merged.error()) == "unsupported: " + name + ".weight");
  }
}

TEST_CASE("lora: equal to PEFT") {
  const std::string data = test_data() + "/core/data/lora/";
  for (const std::string name : {"bias_all", "lora_bias", "saved_head", "saved_embedding", "tied_embedding", "tokens",
                                 "patterns", "conv1d_and_linear"}) {
    CAPTURE(name);
    const std::string folder = data + name + "/";
    const Snapshot base = good(open(folder + "base.pt")), expected = good(open(folder + "expect.safetensors"));
    const Value settings = config(read_text(folder + "adapter_config.json"));
    const Snapshot found = good(merge_lora(base, good(open(folder + "adapter_model.safetensors")), settings));
    for (std::size_t i = 0; i < found.leaf_count(); ++i) CHECK(expected.find(found.leaf(i).path()));
    for (std::size_t i = 0; i < expected.leaf_count(); ++i) {
      const std::string path = expected.leaf(i).path();
      CAPTURE(path);
      const auto theirs = numbers(expected, path), ours = numbers(found, path);
      CHECK(found.find(path)->dtype() == expected.leaf(i).dtype());
      const float step = expected.leaf(i).dtype() == DType::bf16 ? 0x1p-7F : 0x1p-23F;
      float largest = 0;
      for (const float x : theirs) largest = std::max(largest, std::abs(x));
      REQUIRE(ours.size() == theirs.size());
      for (std::size_t k = 0; k < ours.size(); ++k) CHECK(std::abs(ours[k] - theirs[k]) <= 2 * step * largest);
    }
  }
}

TEST_CASE("lora: every key of the configuration is used, harmless or an error") {
  const Model before = model();
  const Snapshot base = good(snapshot_of(before));
  const Snapshot adapter = of_q().finish();
  const auto outcome = [&](const std::string& member) {
    const auto merged = merge_lora(base, adapter, config("{\"lora_alpha\":1," + member + "}"));
    return merged ? "ok" : text_of(merged.error());
  };
  struct Row {
    const char *member, *outcome;
  };
  for (const Row& row : {
           Row{R"("use_dora":true)", "unsupported: use_dora"},
           {R"("use_dora":false)", "ok"},
           {R"("use_qalora":true)", "unsupported: use_qalora"},
           {R"("use_bdlora":{"nblocks":2})", "unsupported: use_bdlora"},
           {R"("alora_invocation_tokens":[1])", "unsupported: alora_invocation_tokens"},
           {R"("arrow_config":{"top_k":3})", "unsupported: arrow_config"},
           {R"("kasa_config":{"beta":1.0})", "unsupported: kasa_config"},
           {R"("layer_replication":[[0,2]])", "unsupported: layer_replication"},
           {R"("target_parameters":["experts.w"])", "unsupported: target_parameters"},
           {R"("target_parameters":[])", "ok"},
           {R"("megatron_config":{"a":1})", "unsupported: megatron_config"},
           {R"("init_lora_weights":"pissa")", "unsupported: init_lora_weights"},
           {R"("init_lora_weights":"PiSSA_niter_16")", "unsupported: init_lora_weights"},
           {R"("init_lora_weights":"olora")", "unsupported: init_lora_weights"},
           {R"("init_lora_weights":"corda")", "unsupported: init_lora_weights"},
           {R"("init_lora_weights":"loftq")", "unsupported: init_lora_weights"},
           {R"("init_lora_weights":"gaussian")", "ok"},
           {R"("init_lora_weights":"lora_ga")", "ok"},
           {R"("init_lora_weights":"of tomorrow")", "malformed: init_lora_weights"},
           {R"("init_lora_weights":7)", "malformed: init_lora_weights"},
           {R"("trainable_token_indices":[1])", "malformed: trainable_token_indices"},
           {R"("modules_to_save":["head"])", "malformed: modules_to_save"},
           {R"("modules_to_save":["score"])", "ok"},  // the model has no such module
           {R"("modules_to_save":"head")", "malformed: modules_to_save"},
           {R"("use_rslora":1)", "malformed: use_rslora"},
           {R"("lora_dropout":0.5,"target_modules":["q"],"corda_config":{"a":1},"velora_config":{"scale":1.0})", "ok"},
           {R"("of_tomorrow":null,"also":[],"third":{})", "ok"},
           {R"("of_tomorrow":false)", "unsupported: of_tomorrow"},
       }) {
    CAPTURE(row.member);
    CHECK(outcome(row.member) == row.outcome);
  }
  const auto ga = good(merge_lora(base, adapter, config(R"({"lora_alpha":1,"init_lora_weights":"lora_ga"})")));
  REQUIRE(ga.notes().size() == 1);
  CHECK(ga.notes()[0].find("lora_ga") != std::string::npos);
}

TEST_CASE("lora: every tensor of the adapter is used or an error") {
  const Model before = model();
  const Snapshot base = good(snapshot_of(before));
  const auto outcome = [&](const char* name, std::vector<Extent> shape, const char* members = "") {
    const std::string settings = std::string("{\"lora_alpha\":1") + members + "}";
    const Snapshot adapter = of_q().add(name, shape, std::vector<float>(*element_count(shape), 5)).finish();
    const auto merged = merge_lora(base, adapter, config(settings));
    return merged ? "ok" : text_of(merged.error());
  };
  CHECK(outcome("model.head.weight", {1, 2}) == "ok");
  CHECK(outcome("model.tail.weight", {1, 2}) == "not_found: model.tail.weight");
  CHECK(outcome("model.tail.weight", {1, 2}, R"(,"modules_to_save":["tail"])") == "ok");  // a new head
  CHECK(outcome("model.q.lora_B.bias", {2}) == "not_found: model.q.bias");
  CHECK(outcome("model.head.lora_B.bias", {1}) == "malformed: model.head");
  CHECK(outcome("model.q.lora_magnitude_vector", {2}) == "unsupported: base_model.model.model.q.lora_magnitude_vector");
  CHECK(outcome("model.q.lora_velora_embed", {2}) == "ok");  // of the training alone
  const char* const tokens = R"(,"trainable_token_indices":[2])";
  CHECK(outcome("embed.token_adapter.trainable_tokens_delta", {1, 2}, tokens) == "ok");
  CHECK(outcome("embed.token_adapter.trainable_tokens_delta", {2, 2}, tokens) == "shape_mismatch: embed.weight");
  CHECK(outcome("embed.token_adapter.trainable_tokens_delta", {1, 2}, R"(,"trainable_token_indices":[3])") ==
        "out_of_range: embed.weight");
  CHECK(outcome("embed.token_adapter.trainable_tokens_delta", {1, 2}, R"(,"trainable_token_indices":[-1])") ==
        "malformed: trainable_token_indices");
  CHECK(outcome("embed.token_adapter.trainable_tokens_delta", {1, 2}, R"(,"trainable_token_indices":{"other":[2]})") ==
        "malformed: trainable_token_indices");
  CHECK(outcome("model.q.token_adapter.trainable_tokens_delta", {1, 3}, R"(,"trainable_token_indices":[1])") ==
        "unsupported: model.q.weight");
  const Snapshot grown = good(merge_lora(base, of_q().add("score.weight", {1, 2}, {8, 9}).finish(),
                                         config(R"({"lora_alpha":1,"modules_to_save":["score"]})")));
  CHECK(numbers(grown, "score.weight") == std::vector<float>{8, 9});
  REQUIRE(grown.notes().size() == 1);
  CHECK(grown.notes()[0] == "score.weight: new, from the adapter (modules_to_save)");
}

TEST_CASE("lora: the class of a layer with a square weight") {
  // q has a square weight; wide shows by its bias whether the model has a Conv1D, a Linear, or none with a bias.
  struct Row {
    const char* settings;
    bool bias;
    Extent wide;  // the length of the bias of `wide`, which has the weight [2, 3]; 0: none
    LoraOptions options;
    const char* outcome;
  };
  // B A = [10 30; 20 60].
  const std::vector<float> linear = {11, 32, 23, 64}, conv1d = {11, 22, 33, 64};
  const char* const gpt2 = R"(,"auto_mapping":{"parent_library":"transformers.models.gpt2.modeling_gpt2"})";
  const char* const bert = R"(,"auto_mapping":{"parent_library":"transformers.models.bert.modeling_bert"})";
  const char* const flagged = R"(,"fan_in_fan_out":true)";
  const std::vector<std::string> all = {"*"};
  for (const Row& row : {Row{"", true, 0, {}, "linear"},
                         {flagged, true, 0, {}, "conv1d"},
                         {flagged, false, 0, {}, "linear"},  // a Conv1D has a bias
                         {"", true, 2, {}, "linear"},
                         {"", true, 3, {}, "unsupported: h.c_proj"},
                         {flagged, true, 3, {}, "conv1d"},
                         {flagged, true, 2, {}, "unsupported: h.c_proj"},
                         {"", true, 3, {.conv1d = all}, "conv1d"},
                         {"", true, 3, {.linear = {"*.c_proj"}}, "linear"},
                         {"", true, 3, {.conv1d = all, .linear = all}, "invalid_argument: h.c_proj"},
                         {gpt2, true, 3, {}, "conv1d"},
                         {bert, true, 2, {}, "linear"}}) {
    CAPTURE(row.settings);
    CAPTURE(row.bias);
    CAPTURE(row.wide);
    Adapter base("");
    base.add("h.c_proj.weight", {2, 2}, {1, 2, 3, 4}).add("wide.weight", {2, 3}, std::vector<float>(6));
    if (row.bias) base.add("h.c_proj.bias", {2}, {0, 0});
    if (row.wide != 0) base.add("wide.bias", {row.wide}, std::vector<float>(row.wide));
    const Snapshot adapter = Adapter()
                                 .add("h.c_proj.lora_A.weight", {1, 2}, {1, 3})
                                 .add("h.c_proj.lora_B.weight", {2, 1}, {10, 20})
                                 .finish();
    const auto merged =
        merge_lora(base.finish(), adapter, config(std::string("{\"lora_alpha\":1") + row.settings + "}"), row.options);
    const auto weight = merged ? numbers(*merged, "h.c_proj.weight") : std::vector<float>();
    const std::string outcome = !merged ? text_of(merged.error()) : weight == linear ? "linear" : "conv1d";
    CHECK(outcome == row.outcome);
    if (merged && outcome == "conv1d") CHECK(weight == conv1d);
  }
}

}  // namespace lora_test
