// The C++ side of tests/interop/torch.sh: state_dicts.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "torch_net.hpp"

namespace {

struct TiedImpl : nn::Module {
  struct Out : nn::Module {
    explicit Out(const ::torch::Tensor& weight) { register_parameter("weight", weight); }
  };
  TiedImpl() {
    register_module("embed", embed);
    out = register_module("out", std::make_shared<Out>(embed->weight));
  }
  nn::Embedding embed{7, 5};
  std::shared_ptr<Out> out;
};
TORCH_MODULE(Tied);

/// One tensor "t" of the test's choice.
struct One : nn::Module {
  explicit One(::torch::Tensor tensor) { t = register_buffer("t", std::move(tensor)); }
  ::torch::Tensor t;
};

stele::Bytes saved(const nn::Module& module) {
  return stele::BytesRecorder<>{}.save(stele::torch::snapshot_of(module).value()).value();
}

}  // namespace

TEST_CASE("a state_dict of Python gives Python's output, and is saved as the same bytes") {
  Net net;
  stele::Report report;
  stele::torch::load_state_dict(*net, stele::open(folder() + "model.safetensors").value(), {.report = &report}).value();
  CHECK(report.count(stele::Report::What::applied) == 11);
  CHECK(report.size() == 11);
  CHECK(net->norm->num_batches_tracked.item<std::int64_t>() == 3);
  net->eval();
  const stele::Snapshot io = stele::open(folder() + "io.safetensors").value();
  const ::torch::NoGradGuard no_grad;
  CHECK(::torch::allclose(net->forward(read(io, "x")), read(io, "y")));

  stele::save(stele::torch::snapshot_of(*net).value(), folder() + "ours.safetensors").value();
  for (const char* name : {"net.stele", "ours.safetensors"}) {
    stele::save(stele::torch::snapshot_of(*net).value(), folder() + name).value();
    Net again;
    CHECK_FALSE(equal_state(*again, *net));
    stele::torch::load_state_dict(*again, stele::open(folder() + name).value()).value();
    CHECK(equal_state(*again, *net));
  }
}

TEST_CASE("a class of ours loads what a libtorch module saved") {
  struct Linear {
    stele::Tensor<float, 2> weight;
    stele::Tensor<float, 1> bias;
  };
  struct Head {
    std::vector<Linear> layers;
  };
  struct Stack : nn::Module {
    Stack() { register_module("layers", layers); }
    nn::Sequential layers{nn::Linear(3, 4), nn::Linear(4, 2)};
  } stack;
  for (const char* name : {"stack.stele", "stack.safetensors"}) {
    stele::save(stele::torch::snapshot_of(stack).value(), folder() + name).value();
    Head head = stele::load<Head>(folder() + name).value();
    CHECK(head.layers.size() == 2);
    CHECK(head.layers[1].weight(1, 3) == stack.layers->named_parameters()["1.weight"][1][3].item<float>());
    head.layers[0].bias[2] = 42;
    stele::torch::load_state_dict(stack, stele::snapshot_of(head).value()).value();
  }
  CHECK(stack.layers->named_parameters()["0.bias"][2].item<float>() == 42);
}

TEST_CASE("loading is strict, and changes nothing on error") {
  Net source;
  const stele::Bytes bytes = saved(*source);
  const auto code = [&](nn::Module& module, const stele::Snapshot& from, const stele::LoadOptions& options = {}) {
    const auto before = module.named_parameters().size() == 0 ? ::torch::Tensor() : module.parameters()[0].clone();
    const auto result = stele::torch::load_state_dict(module, from, options);
    REQUIRE_FALSE(result);
    CHECK_FALSE(result.error().partially_applied());
    if (before.defined()) CHECK(::torch::equal(before, module.parameters()[0]));
    return std::string(stele::name(result.error().code())) + " " + std::string(result.error().path());
  };
  const stele::Snapshot file = stele::open(bytes).value();

  struct Wider : NetImpl {
    Wider() { register_parameter("extra", ::torch::ones({2})); }
  } wider;
  CHECK(code(wider, file) == "missing extra");
  stele::LoadOptions options;
  options.allow_missing = {"extra"};
  stele::Report report;
  options.report = &report;
  stele::torch::load_state_dict(wider, file, options).value();
  CHECK(report.count(stele::Report::What::missing) == 1);
  CHECK(equal_state(*wider.conv, *source->conv));

  nn::Sequential none;
  CHECK(code(*none, file) == "unused scale");
  options.allow_unused = {"*"};
  CHECK(code(*none, file, options) == "nothing_applied ");
  options.allow_nothing = true;
  CHECK(stele::torch::load_state_dict(*none, file, options));

  Net other;
  other->head = other->replace_module("head", nn::Sequential(nn::Linear(4 * 6 * 6, 9)));
  CHECK(code(*other, file, options) == "shape_mismatch head.0.weight");

  One integers(::torch::zeros({2}, ::torch::kInt));
  const One floats(::torch::ones({2}));
  CHECK(code(integers, stele::torch::snapshot_of(floats).value()) == "dtype_mismatch t");
  options.convert.allow_kind_change = true;
  CHECK(stele::torch::load_state_dict(integers, stele::torch::snapshot_of(floats).value(), options));
  CHECK(integers.t[1].item<int>() == 1);

  One expanded(::torch::zeros({1}).expand({4}));
  CHECK(code(expanded, stele::torch::snapshot_of(One(::torch::ones({4}))).value()) == "not_loadable t");
}

TEST_CASE("every dtype, layout and kind of view") {
  for (const auto dtype : {::torch::kFloat, ::torch::kDouble, ::torch::kHalf, ::torch::kBFloat16, ::torch::kLong,
                           ::torch::kInt, ::torch::kShort, ::torch::kChar, ::torch::kByte, ::torch::kBool,
                           ::torch::kComplexFloat, ::torch::kComplexDouble}) {
    const auto values = [&] { return (::torch::arange(24).reshape({2, 3, 4}) % 5 - 2).abs().to(dtype); };
    CAPTURE(c10::toString(dtype));
    for (const auto& make : std::vector<std::function<::torch::Tensor(::torch::Tensor)>>{
             [](::torch::Tensor t) { return t; },
             [](::torch::Tensor t) {
               return t.permute({2, 0, 1});
             },
             [](::torch::Tensor t) { return t.slice(2, 0, 4, 2); },
             [](::torch::Tensor t) { return t[1][2][3]; },
             [](::torch::Tensor t) { return t.slice(0, 0, 0); },
             [](::torch::Tensor t) { return t.is_complex() ? t.conj() : t; },
         }) {
      const One from(make(values()));
      One to(make(::torch::zeros_like(values())));
      const stele::Bytes bytes = saved(from);
      const auto version = to.t._version();
      stele::torch::load_state_dict(to, stele::open(bytes).value()).value();
      CHECK(::torch::equal(to.t, from.t));
      CHECK(to.t._version() > version);
      CHECK(stele::open(bytes).value().leaf(0).byte_size() ==
            static_cast<std::uint64_t>(from.t.numel()) * from.t.element_size());
    }
  }
  const auto refused = [](::torch::Tensor t) {
    return std::string(stele::name(stele::torch::snapshot_of(One(std::move(t))).error().code()));
  };
  CHECK(refused(::torch::eye(3).to_sparse()) == "unsupported");
  CHECK(refused(::torch::empty({2}, ::torch::kMeta)) == "unsupported");
  CHECK(refused(::torch::quantize_per_tensor(::torch::ones({2}), 0.1, 0, ::torch::kQInt8)) == "unsupported");
  const ::torch::Tensor beyond = ::torch::ones({2});
  beyond.unsafeGetTensorImpl()->set_sizes_contiguous({3});  // more than its storage has, as after FSDP has freed it
  CHECK(refused(beyond) == "unsupported");
}

TEST_CASE("the snapshot keeps the tensors alive") {
  std::optional<stele::Snapshot> snapshot;
  {
    const One gone(::torch::full({3}, 7.0F));
    snapshot = stele::torch::snapshot_of(gone).value();
  }
  float value = 0;
  snapshot->leaf(0).read(8, std::as_writable_bytes(std::span(&value, 1))).value();
  CHECK(value == 7.0F);
}

TEST_CASE("a tied tensor is one tensor and an alias") {
  Tied tied;
  stele::torch::load_state_dict(*tied, stele::open(folder() + "tied.safetensors").value()).value();
  CHECK(tied->out->parameters()[0].is_same(tied->embed->weight));
  const stele::Snapshot snapshot = stele::torch::snapshot_of(*tied).value();
  CHECK(snapshot.leaf_count() == 1);
  CHECK(snapshot.find("out.weight")->path() == "embed.weight");
  stele::save(snapshot, folder() + "tied-ours.safetensors").value();
  stele::save(snapshot, folder() + "tied-ours.pth").value();

  for (const char* name : {"tied-ours.safetensors", "tied-ours.pth"}) {
    Tied again;
    stele::torch::load_state_dict(*again, stele::open(folder() + name).value()).value();
    CHECK(::torch::equal(again->embed->weight, tied->embed->weight));
  }
  // Either name will do, and both.
  for (const char* name : {"embed.weight", "out.weight"}) {
    stele::SnapshotBuilder builder;
    builder.set_flat();
    const stele::LeafView leaf = snapshot.leaf(0);
    builder.tensor(name, leaf.dtype(), leaf.shape(), leaf.byte_size(), leaf.provider());
    Tied one;
    stele::torch::load_state_dict(*one, builder.finish()).value();
    CHECK(::torch::equal(one->embed->weight, tied->embed->weight));
  }
  Tied neither;
  const auto missing = stele::torch::load_state_dict(*neither, stele::Snapshot(stele::SnapshotBuilder().finish()));
  CHECK(missing.error().path() == "embed.weight");
}
