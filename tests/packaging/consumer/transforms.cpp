// The transforms alone: a snapshot's names and layouts changed.
#include <stele/record.hpp>
#include <stele/transform.hpp>
#include <stele/transforms/keras.hpp>
#include <stele/transforms/llama_cpp.hpp>
#include <stele/transforms/lora.hpp>
#include <stele/transforms/pytorch.hpp>

#include "model.hpp"

int main() {
  const Model model = make_model();
  const stele::Snapshot snapshot = stele::snapshot_of(model).value();
  const stele::Snapshot there = stele::rename(snapshot, {{"^layers", "blocks"}}).value();
  check(stele::load<Model>(stele::rename(there, {{"^blocks", "layers"}}).value()).value(), "transform.hpp");
  const std::vector rules = {stele::pytorch::linear_in_out("Linear")};
  const stele::Snapshot torch = stele::pytorch::restore(snapshot, rules).value();
  check(stele::load<Model>(stele::pytorch::adapt<Model>(torch, rules).value()).value(), "pytorch.hpp");
  check(stele::load<Model>(stele::keras::to_pytorch(snapshot, {}).value()).value(), "keras.hpp");
  const stele::Value config = stele::Value::Map{{"lora_alpha", 1.0}};
  check(stele::load<Model>(stele::merge_lora(snapshot, stele::Snapshot(), config).value()).value(), "lora.hpp");
  const auto none = stele::llama_cpp::from_hub(snapshot);
  if (none || none.error().code() != stele::Errc::invalid_argument) return 1;
  return 0;
}
