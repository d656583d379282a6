// Models: Model.proto and NeuralNetwork.proto of mlmodel/format of coremltools 9.0.
#include "model.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/varint.hpp"
#include "encodings/protobuf/fields.hpp"
#include "leaves/source_range.hpp"
#include "program.hpp"

namespace stele::inline v0::detail::coreml {
namespace {

using protobuf::each;
using protobuf::Fields;

namespace field {
constexpr std::uint32_t network = 500, classifier = 403, regressor = 303, program = 502;
constexpr std::uint32_t first_kind = 200;  // smaller numbers are not kinds of models
}  // namespace field

/// A field with weights in a layer's parameters.
struct Parameter {
  std::uint32_t layer, number;
  const char* name;
};
constexpr Parameter parameters[] = {
    {100, 90, "weights"},
    {100, 91, "bias"},
    {140, 20, "weights"},
    {140, 21, "bias"},
    {150, 20, "weights"},
    {150, 21, "bias"},
    {160, 15, "gamma"},
    {160, 16, "beta"},
    {160, 17, "mean"},
    {160, 18, "variance"},
    {245, 2, "scale"},
    {245, 5, "bias"},
    {250, 2, "bias"},
    {290, 2, "data"},
    {400, 30, "weightMatrix"},
    {400, 31, "recursionMatrix"},
    {400, 32, "biasVector"},
    {410, 30, "updateGateWeightMatrix"},
    {410, 31, "resetGateWeightMatrix"},
    {410, 32, "outputGateWeightMatrix"},
    {410, 50, "updateGateRecursionMatrix"},
    {410, 51, "resetGateRecursionMatrix"},
    {410, 52, "outputGateRecursionMatrix"},
    {410, 70, "updateGateBiasVector"},
    {410, 71, "resetGateBiasVector"},
    {410, 72, "outputGateBiasVector"},
    {500, 20, "weights"},
    {1040, 20, "weights"},
    {1040, 21, "bias"},
    {1045, 8, "weights"},
    {1045, 9, "bias"},
    {1070, 2, "data"},
    {1350, 3, "gamma"},
    {1350, 4, "beta"},
    {1471, 60, "weights"},
    {1471, 61, "bias"},
};
/// The fields of LSTMWeightParams, which the layers 420 and 430 have in their field 20.
constexpr std::uint32_t lstm = 420, bidirectional_lstm = 430, lstm_weights = 20;
constexpr Parameter lstm_parameters[] = {
    {lstm, 1, "inputGateWeightMatrix"},      {lstm, 2, "forgetGateWeightMatrix"},
    {lstm, 3, "blockInputWeightMatrix"},     {lstm, 4, "outputGateWeightMatrix"},
    {lstm, 20, "inputGateRecursionMatrix"},  {lstm, 21, "forgetGateRecursionMatrix"},
    {lstm, 22, "blockInputRecursionMatrix"}, {lstm, 23, "outputGateRecursionMatrix"},
    {lstm, 40, "inputGateBiasVector"},       {lstm, 41, "forgetGateBiasVector"},
    {lstm, 42, "blockInputBiasVector"},      {lstm, 43, "outputGateBiasVector"},
    {lstm, 60, "inputGatePeepholeVector"},   {lstm, 61, "forgetGatePeepholeVector"},
    {lstm, 62, "outputGatePeepholeVector"},
};

class NetworkReader {
 public:
  NetworkReader(const SourcePtr& model, Tensors& to) : model_(model), to_(to) {}

  Status run(Fields& network) {
    return each(network.message(), [&](Fields& f) -> Status {
      if (f.field() != 1 || !f.has_length()) return {};  // a layer
      name_.clear();
      return each(f.message(), [&](Fields& l) -> Status {
        if (!l.has_length()) return {};
        if (l.field() == 1) return l.text(name_);
        const std::uint32_t layer = l.field();
        const bool is_lstm = layer == lstm || layer == bidirectional_lstm;
        const bool has_weights = std::any_of(std::begin(parameters), std::end(parameters),
                                             [&](const Parameter& p) { return p.layer == layer; });
        if (!is_lstm && !has_weights) return {};
        return each(l.message(), [&](Fields& p) -> Status {
          if (!p.has_length()) return {};
          if (!is_lstm) return parameter(p, layer, parameters);
          if (p.field() != lstm_weights) return {};
          return each(p.message(),
                      [&](Fields& w) { return w.has_length() ? parameter(w, lstm, lstm_parameters) : Status(); });
        });
      });
    });
  }

 private:
  Status parameter(Fields& weights, std::uint32_t layer, std::span<const Parameter> of) {
    const auto found = std::find_if(
        of.begin(), of.end(), [&](const Parameter& p) { return p.layer == layer && p.number == weights.field(); });
    if (found == of.end()) return {};
    struct {
      std::uint32_t field = 0;
      std::uint64_t begin = 0, size = 0;
      bool pieces = false, quantized = false;
    } stored;
    STELE_TRY(each(weights.message(), [&](Fields& f) -> Status {
      if (f.field() == 40) stored.quantized = true;
      if (f.field() != 1 && f.field() != 2 && f.field() != 30 && f.field() != 31) return {};
      if (f.has_length() && f.size() == 0) return {};
      stored.pieces = stored.pieces || stored.field != 0 || !f.has_length();
      stored.field = f.field();
      stored.begin = f.begin();
      stored.size = f.size();
      return {};
    }));
    if (stored.field == 0) return {};  // no numbers
    const DType dtype = stored.field == 1 ? DType::f32 : stored.field == 2 ? DType::f16 : DType::u8;
    const std::uint64_t width = element_size(dtype);
    const char* const unreadable = stored.quantized || stored.field > 2 ? "quantized weights of a neural network"
                                   : stored.pieces                      ? "numbers in several pieces"
                                   : stored.size % width != 0           ? "a part of an element"
                                                                        : "";
    auto added = to_.add(name_ + "." + found->name, dtype, {static_cast<Extent>(stored.size / width)}, stored.size,
                         {&source_ops, model_.get(), stored.begin}, unreadable);
    return added ? Status() : Status(std::move(added).error());
  }

  const SourcePtr& model_;
  Tensors& to_;
  std::string name_;  // name of the layer
};

/// Reads a varint of a head in memory; nullopt if it does not end there.
std::optional<std::uint64_t> varint(std::span<const std::byte> head, std::size_t& at) {
  auto rest = head.subspan(at);
  std::uint64_t value = 0;
  if (!take_varint(rest, value)) return std::nullopt;
  at = head.size() - rest.size();
  return value;
}

}  // namespace

bool is_model(std::span<const std::byte> head, std::uint64_t size) noexcept {
  // specificationVersion 1; description 2, which begins with an input {name 1}; a kind of model, 200 or more. ONNX has
  // a string in field 2 and a graph in field 7.
  constexpr std::uint64_t max_version = 63;
  std::size_t at = 0;
  const auto is = [&](std::uint64_t tag) { return varint(head, at) == tag; };
  if (!is(0x08)) return false;
  const auto version = varint(head, at);
  if (!version || *version == 0 || *version > max_version || !is(0x12)) return false;
  const auto length = varint(head, at);
  if (!length || *length > size - std::min<std::uint64_t>(at, size)) return false;
  if (*length < head.size() - at) {
    at += static_cast<std::size_t>(*length);
    const auto next = varint(head, at);
    return next && (*next >> 3) >= field::first_kind && (*next >> 3) <= 3000 && (*next & 7) == 2;
  }
  return is(0x0a) && varint(head, at) && is(0x0a);
}

Status read_model(const SourcePtr& model, const std::shared_ptr<const Bundle>& folder, const std::string& prefix,
                  Tensors& to) {
  to.owned.sources.push_back(model);
  Cursor in(model);
  std::uint32_t kind = 0;
  bool known = false;
  STELE_TRY(each(Fields(in, model->size()), [&](Fields& f) -> Status {
    if (!f.has_length() || f.field() < field::first_kind) return {};
    kind = f.field();
    if (kind == field::program) {
      known = true;
      return read_program(model, folder, prefix, f.begin(), f.end(), to);
    }
    if (kind != field::network && kind != field::classifier && kind != field::regressor) return {};
    known = true;
    return NetworkReader(model, to).run(f);
  }));
  if (known) return {};
  if (kind == 0) return Error(Errc::malformed, "the Core ML model has no content").offset(model->size());
  return Error(Errc::unsupported, "the Core ML model is neither an ML program nor a neural network")
      .found(kind < 300 ? "a pipeline of models" : "a model of the kind " + std::to_string(kind))
      .hint("only ML programs and neural networks have tensors");
}

}  // namespace stele::inline v0::detail::coreml
