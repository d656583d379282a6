// The core alone: modules, records, snapshots; no format. Calls something compiled of each of its headers.
#include <cstring>
#include <memory>
#include <sstream>

#include <stele/bundle.hpp>
#include <stele/bytes.hpp>
#include <stele/composite.hpp>
#include <stele/config.hpp>
#include <stele/derived.hpp>
#include <stele/dtype.hpp>
#include <stele/errc.hpp>
#include <stele/executor.hpp>
#include <stele/expansion.hpp>
#include <stele/format.hpp>
#include <stele/formatter.hpp>
#include <stele/input.hpp>
#include <stele/layout.hpp>
#include <stele/macros.hpp>
#include <stele/node.hpp>
#include <stele/optimizer_state.hpp>
#include <stele/options.hpp>
#include <stele/output.hpp>
#include <stele/param.hpp>
#include <stele/parts.hpp>
#include <stele/pattern.hpp>
#include <stele/quantize.hpp>
#include <stele/quantized.hpp>
#include <stele/record.hpp>
#include <stele/recorder.hpp>
#include <stele/reflect.hpp>
#include <stele/report.hpp>
#include <stele/result.hpp>
#include <stele/schema.hpp>
#include <stele/shape.hpp>
#include <stele/sink.hpp>
#include <stele/snapshot.hpp>
#include <stele/source.hpp>
#include <stele/value.hpp>

#include "model.hpp"

namespace {

class Turns final : public stele::Executor {
 public:
  unsigned concurrency() const noexcept override { return 1; }
  void run(std::size_t count, void (*part)(void*, std::size_t), void* context) override {
    for (std::size_t i = 0; i < count; ++i) part(context, i);
  }
};

struct Holder {
  stele::Param<stele::Tensor<float>> weight;
  stele::Value note;
};

struct Layer {
  virtual ~Layer() = default;
};
struct Scale : Layer {
  stele::Tensor<float> weight = stele::Tensor<float>::zeros({3});
  STELE_MODULE(Scale, weight)
};

void require(bool good, const char* what) {
  if (good) return;
  std::cerr << what << ": wrong\n";
  std::exit(1);
}

}  // namespace

template <>
struct stele::derived<Layer> : stele::derived_list<Scale> {};

int main() {
  const Model model = make_model();
  const stele::Snapshot snapshot = stele::snapshot_of(model).value();
  check(stele::load<Model>(snapshot).value(), "snapshot.hpp");
  check(stele::from_record<Model>(stele::load<stele::Record<Model>>(snapshot).value()).value(), "record.hpp");
  require(!stele::summary(stele::quantize(snapshot).value()).empty(), "quantize.hpp");
  require(!stele::to_text(stele::layout_of(snapshot).value()).value().empty(), "layout.hpp");
  require(!stele::layout_of(stele::schema_of<Model>()).has_value(), "schema.hpp");
  require(!stele::Input("missing.stele").open(".stele", {}).has_value(), "input.hpp");
  require(stele::check_expansion(snapshot).has_value(), "expansion.hpp");
  require(stele::Output("m.stele").path() == "m.stele", "output.hpp");
  require(stele::join_composites(snapshot).value().notes().empty(), "composite.hpp");
  require(!stele::decode(stele::parts::Awq{}), "parts.hpp");
  require(stele::BlockTensor(stele::DType::q8_0, {2, 32}).rows() == 2, "quantized.hpp");
  require(stele::matches("layers.*", "layers.0.weight"), "pattern.hpp");
  require(stele::to_string(stele::Shape{2, 3}.span()) == "[2, 3]", "shape.hpp");
  require(stele::name(stele::NodeKind::tensor) == "tensor" && stele::name(stele::DType::f32) == "f32", "names");

  stele::OptimizerState state;
  state.set("M", model).value();
  Model moment = make_model();
  state.load_into("M", moment).value();
  check(moment, "optimizer_state.hpp");

  stele::Report report;
  report.add(stele::Report::What::applied, "weight");
  require(report.count(stele::Report::What::applied) == 1, "report.hpp");
  require(stele::Error(stele::Errc::io, "text").to_string() == "io: text", "result.hpp");
  const stele::OpenContext context(stele::default_load_options(), {});
  require(!context.layout().has_value(), "format.hpp");
  require(stele::default_save_options().threads == 0, "options.hpp");

  stele::BufferSink sink;
  sink.write(std::as_bytes(std::span("bytes", 5))).value();
  const stele::SourcePtr source = stele::own_bytes(sink.take());
  require(std::memcmp(source->view().data(), "bytes", 5) == 0, "sink.hpp and source.hpp");
  const auto nothing = stele::open_descriptor(stele::NativeFile{}, {stele::ByteRange::to_end, 1});
  require(!nothing.has_value(), "open_descriptor");
  const auto bundle = stele::memory_bundle();
  require(bundle->names().value().empty(), "bundle.hpp");
  Turns turns;
  stele::Executor& executor = turns;
  require(executor.concurrency() == 1, "executor.hpp");

  Holder holder{{stele::Tensor<float>::zeros({2})}, stele::Value("text")};
  holder.weight.id = stele::ParamId{1, 2};
  require(stele::snapshot_of(holder).value().leaf(0).id() == holder.weight.id, "param.hpp and value.hpp");
  const std::unique_ptr<Layer> layer = std::make_unique<Scale>();
  require(stele::snapshot_of(layer).value().leaf(0).path() == "Scale.weight", "derived.hpp");
  return 0;
}
