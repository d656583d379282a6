// For check_onnx.py.
//
//   copy IN OUT       the initializers of IN as a new model
//   into IN OUT       the initializers of IN into IN
//   train IN OUT      the golden mlp.onnx, with 1 added to each weight
//   external IN OUT   nothing into IN; large tensors are in the file OUT.data
//   large OUT         a new model with zeros and a pattern of 3 GB in the file OUT.data
//   check IN          that IN is the model of "large"
#include <stele/bundle.hpp>
#include <stele/recorders/any.hpp>
#include <stele/recorders/onnx.hpp>
#include <stele/stele.hpp>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace {

struct Layer {
  stele::Tensor<float, 2> weight;
};
struct Network {
  std::map<std::string, Layer> net;
};

/// Returns the recorder that puts large tensors into the file OUT.data.
stele::OnnxRecorder<> external(const std::string& out, const std::string& model = {}) {
  return stele::OnnxRecorder<>(
      stele::OnnxFormat({.model = model, .external = std::string(stele::file_name(out)) + ".data"}));
}

// ---- a model of 3 GB, which takes no memory

constexpr stele::Extent rows = 10'000, columns = 25'000;  // 1 GB of floats
constexpr const char* names[] = {"zeros", "pattern", "more"};

/// Computes the elements of the tensor `number`: element i is number × (i mod 1000).
stele::Status compute(const void*, std::uint64_t number, std::uint64_t offset, std::span<std::byte> out,
                      stele::ReadContext&) {
  for (std::size_t at = 0; at < out.size(); at += sizeof(float)) {
    const auto value = static_cast<float>(number * ((offset + at) / sizeof(float) % 1000));
    std::memcpy(out.data() + at, &value, sizeof value);
  }
  return {};
}
constexpr stele::LeafOps computed{.read = compute};

stele::Snapshot large() {
  stele::SnapshotBuilder builder;
  builder.begin(stele::NodeKind::module, "");
  const stele::Extent shape[] = {rows, columns};
  for (std::uint64_t i = 0; i < std::size(names); ++i) {
    builder.tensor(names[i], stele::DType::f32, shape, sizeof(float) * rows * columns, {&computed, nullptr, i});
  }
  builder.end();
  return builder.finish();
}

/// Compares all elements with those of large().
stele::Status check_large(const std::string& in) {
  class Compare final : public stele::PieceSink {
   public:
    explicit Compare(stele::LeafView expected) : expected_(expected) {}
    stele::Status piece(std::span<const std::byte> bytes) override {
      std::vector<std::byte> wanted(bytes.size());
      STELE_TRY(expected_.read(at_, wanted));
      at_ += bytes.size();
      if (std::equal(bytes.begin(), bytes.end(), wanted.begin())) return {};
      return stele::Error(stele::Errc::malformed, "the elements differ").path(expected_.path());
    }

   private:
    stele::LeafView expected_;
    std::uint64_t at_ = 0;
  };
  STELE_TRY_ASSIGN(const stele::Snapshot file, stele::open(in));
  const stele::Snapshot wanted = large();
  stele::ReadContext context;
  for (std::size_t i = 0; i < wanted.leaf_count(); ++i) {
    const auto leaf = file.find(names[i]);
    if (!leaf) return stele::Error(stele::Errc::missing, "the tensor is absent").path(names[i]);
    Compare compare(wanted.leaf(i));
    STELE_TRY(leaf->stream(compare, context));
  }
  return {};
}

/// Prints the most memory that was resident, in which the program that started this one does not count.
void print_peak() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM")) std::printf("     %s\n", line.c_str());
  }
}

stele::Result<stele::Report> run(const std::string& command, const std::string& in, const std::string& out) {
  if (command == "external") return external(out, in).save(stele::Snapshot(), out);
  if (command == "large") return external(in).save(large(), in);
  if (command == "check") {
    STELE_TRY(check_large(in));
    return stele::Report();
  }
  const stele::OnnxRecorder<> into(stele::OnnxFormat({.model = in}));
  if (command == "copy" || command == "into") {
    STELE_TRY_ASSIGN(const stele::Snapshot file, stele::open(in));
    return command == "copy" ? stele::save(file, out) : into.save(file, out);
  }
  stele::LoadOptions some;
  some.allow_unused = {"*"};
  STELE_TRY_ASSIGN(Network network, stele::load<Network>(in, some));
  for (auto& [name, layer] : network.net) {
    for (std::size_t i = 0; i < layer.weight.size(); ++i) layer.weight.data()[i] += 1;
  }
  return into.save(network, out);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc > 4) return 2;
  const auto done = run(argv[1], argv[2], argc == 4 ? argv[3] : "");
  if (argc == 3) print_peak();
  if (!done) std::fprintf(stderr, "%s\n", done.error().to_string().c_str());
  return done ? 0 : 1;
}
