// Imports a model of ONNX or TensorFlow as a graph of DL4J and saves it: model.fb for DL4J, model.zip with the graph,
// model.onnx, and the weights at half precision as model.safetensors. --details prints its operations with the names
// and the positions of their arguments.
//
//   import_model MODEL [FOLDER] [--details]   MODEL: a file .onnx, a frozen GraphDef (.pb), or the folder of a
//   SavedModel
#include <stele/export.hpp>
#include <stele/import.hpp>
#include <stele/recorders/archive.hpp>
#include <stele/recorders/safetensors.hpp>
#include <stele/recorders/samediff.hpp>
#include <stele/stele.hpp>

#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

namespace {

/// "kH=3 kW=3": the arguments of one type, with their names.
template <class T>
void print(const stele::GraphArguments<T>& arguments) {
  for (const auto& [name, value] : arguments) std::cout << ' ' << name << '=' << value;
}
/// "[3 3]": the same by position alone, as DL4J stores them.
template <class T>
void print_ordered(std::string_view type, const stele::GraphArguments<T>& arguments) {
  if (arguments.empty()) return;
  std::cout << ' ' << type << '[';
  for (std::size_t i = 0; i < arguments.size(); ++i) std::cout << (i != 0 ? " " : "") << arguments[i].second;
  std::cout << ']';
}

stele::Status print_operations(const stele::Checkpoint& model) {
  for (const stele::GraphOperation& operation : model.graph->operations) {
    std::cout << operation.outputs.front() << " = " << operation.op_name << ':';
    STELE_TRY_ASSIGN(const auto names, stele::named(*stele::OperatorSet::nd4j().find(operation.op_name), operation));
    print(names.inputs);
    print(names.ints);
    print(names.doubles);
    print(names.bools);
    if (names.scalar) std::cout << " scalar";
    for (const std::int32_t axis : names.dimensions) std::cout << " dimensions=" << axis;
    std::cout << "  |";
    print_ordered("i", operation.ints);
    print_ordered("t", operation.doubles);
    print_ordered("b", operation.bools);
    std::cout << '\n';
  }
  return {};
}

stele::Status run(const std::string& path, const std::string& folder, bool details) {
  const bool onnx = path.ends_with(".onnx");
  STELE_TRY_ASSIGN(const stele::Checkpoint model, onnx ? stele::import_onnx(path) : stele::import_tensorflow(path));
  if (details) STELE_TRY(print_operations(model));
  std::filesystem::create_directories(folder);
  const std::string base = (std::filesystem::path(folder) / "model").string();
  STELE_TRY(stele::SameDiffRecorder<>().save(model, base + ".fb"));
  STELE_TRY(stele::ArchiveRecorder<>().save(model, base + ".zip"));
  STELE_TRY(stele::export_onnx(model, base + ".onnx"));
  STELE_TRY(stele::SafetensorsRecorder<stele::HalfPrecision>().save(model.parameters, base + ".safetensors"));
  std::cout << "   " << (onnx ? "ONNX" : "TensorFlow") << ", " << std::filesystem::path(path).filename().string()
            << ":";
  for (const stele::GraphOperation& operation : model.graph->operations) std::cout << ' ' << operation.op_name;
  std::cout
      << "\n   saved as model.fb and model.zip for DL4J, as model.onnx, and its weights as f16 in model.safetensors\n";
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool details = std::erase(arguments, "--details") != 0;
  if (arguments.empty() || arguments.size() > 2) {
    std::cerr << "usage: import_model MODEL [FOLDER] [--details]\n";
    return 2;
  }
  const stele::Status status = run(arguments[0], arguments.size() > 1 ? arguments[1] : ".", details);
  if (!status) std::cerr << status.error() << '\n';
  return status ? 0 : 1;
}
