// Loads the encoder of a trained model into a model with another head.
#include <cstdio>
#include <vector>

#include <stele/stele.hpp>

struct Layer {
  std::vector<float> weight;
};
struct Trained {
  Layer encoder, decoder;
};
struct Classifier {
  Layer encoder, head;
};

int main() {
  stele::save(Trained{{{1, 2}}, {{3, 4}}}, "trained.safetensors").value();

  Classifier model{{{0, 0}}, {{7, 8}}};
  // A load is strict: nothing changes until missing and unused parameters are allowed by name.
  const stele::Error error = stele::load_into(model, "trained.safetensors").error();
  std::printf("%s: %s\n", std::string(name(error.code())).c_str(), std::string(error.path()).c_str());

  stele::LoadOptions options;
  options.allow_missing = {"head.*"};
  options.allow_unused = {"decoder.*"};
  stele::Report report;
  options.report = &report;
  stele::load_into(model, "trained.safetensors", options).value();
  std::printf("encoder %g, head %g\n", double{model.encoder.weight[1]}, double{model.head.weight[1]});
  std::printf("%s", report.to_string().c_str());
}

// Output:
// missing: head.weight
// encoder 2, head 8
// missing head.weight
// unused decoder.weight
// 1 applied, 1 missing, 1 unused
