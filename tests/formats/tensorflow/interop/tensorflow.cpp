// For check_tensorflow.py: prints each tensor and string tensor of a checkpoint, by its key in hexadecimal digits.
//
//   interop_tensorflow PREFIX
//
// A line is KEY DTYPE SHAPE BYTES, or KEY string and the strings, in hexadecimal digits.
#include <stele/recorders/tensorflow.hpp>
#include <stele/value.hpp>

#include <iostream>
#include <span>
#include <string>
#include <string_view>

namespace {

std::string hex(std::string_view bytes) {
  std::string text = "x";
  for (const char c : bytes) {
    text += "0123456789abcdef"[static_cast<unsigned char>(c) >> 4];
    text += "0123456789abcdef"[static_cast<unsigned char>(c) & 15];
  }
  return text;
}

class Print final : public stele::PieceSink {
 public:
  stele::Status piece(std::span<const std::byte> bytes) override {
    all.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return {};
  }
  std::string all;
};

void print(const stele::Value& value) {
  if (const std::string* text = value.as_string()) std::cout << ' ' << hex(*text);
  if (const auto* bytes = value.as_bytes()) {
    std::cout << ' ' << hex({reinterpret_cast<const char*>(bytes->data()), bytes->size()});
  }
  if (const auto* list = value.as_list()) {
    for (const stele::Value& element : *list) print(element);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  using stele::TensorBundleNames;
  const stele::TensorBundleRecorder<> recorder(stele::TensorBundleFormat({.names = TensorBundleNames::keys}));
  const auto opened = recorder.open(argv[1]);
  if (!opened) {
    std::cerr << opened.error().to_string() << '\n';
    return 1;
  }
  stele::ReadContext context;
  for (const stele::Node& node : opened->nodes().subspan(1)) {
    std::cout << hex({node.name, node.name_size});
    if (node.kind == stele::NodeKind::value) {
      std::cout << " string";
      print(opened->value(node));
    } else {
      const stele::LeafView leaf = opened->leaf(node.index);
      Print bytes;
      if (const auto read = leaf.stream(bytes, context); !read) {
        std::cerr << read.error().to_string() << '\n';
        return 1;
      }
      std::cout << ' ' << name(leaf.dtype()) << " [";
      for (const stele::Extent n : leaf.shape()) std::cout << n << ',';
      std::cout << "] " << hex(bytes.all);
    }
    std::cout << '\n';
  }
  return 0;
}
