// Saves a model into memory, for a network, a database or a buffer of the program, and loads it from there.
#include <cstddef>
#include <cstdio>
#include <span>
#include <vector>

#include <stele/stele.hpp>

struct Model {
  std::vector<float> weight;
};

int main() {
  const stele::BytesRecorder<> recorder;
  const Model model{{1, 2, 3}};
  const stele::Bytes bytes = recorder.save(model).value();  // one block, aligned to 64 bytes
  const Model same = stele::load<Model>(bytes).value();     // bytes of any format
  std::printf("%zu bytes, last parameter %g\n", bytes.size(), double{same.weight[2]});

  std::vector<std::byte> buffer(1024);  // the caller's memory; if it is too small, the error is no_space
  const std::size_t used = recorder.save(model, std::span(buffer)).value();
  const Model third = stele::load<Model>(std::span<const std::byte>(buffer).first(used)).value();
  std::printf("%zu bytes, last parameter %g\n", used, double{third.weight[2]});
}

// Output:
// 424 bytes, last parameter 3
// 424 bytes, last parameter 3
