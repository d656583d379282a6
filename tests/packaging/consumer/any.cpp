// The front door alone.
#include <stele/plugin.hpp>
#include <stele/recorders/any.hpp>
#include <stele/recover.hpp>

#include "model.hpp"

int main() {
  const Model model = make_model();
  for (const char* name : {"one.stele", "one.safetensors", "one.json", "one.zip"}) {
    stele::save(model, name).value();
    check(stele::load<Model>(name).value(), name);
  }
  check(stele::load<Model>(stele::recover("one.stele").value().snapshot).value(), "recovered");
  const auto recovered = stele::recover(*stele::find_format("stele"), "one.stele");
  check(stele::load<Model>(recovered.value().snapshot).value(), "recovered in a format");
  if (stele::load_plugin("missing.so").error().code() != stele::Errc::not_found) return 1;
  return stele::unreadable_reason(recovered.value().snapshot.leaf(0)).empty() ? 0 : 1;
}
