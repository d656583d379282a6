// Uses the operators of DL4J's graphs.
#include <stele/export.hpp>
#include <stele/import.hpp>
#include <stele/operators.hpp>

int main() {
  if (stele::MappingSet::onnx().size() == 0 || stele::import_onnx("no.onnx")) return 1;
  if (stele::import_tensorflow("no.pb") || stele::export_onnx({}, "no.onnx")) return 1;
  const stele::OperatorDescriptor* const matmul = stele::OperatorSet::nd4j().find("matmul");
  stele::NamedArguments arguments;
  arguments.inputs = {{"y", "b"}, {"input", "a"}};
  arguments.outputs = {{"outputs", "c"}};
  const stele::GraphOperation operation = stele::ordered(*matmul, arguments).value();
  return operation.inputs.front() == "a" && stele::named(*matmul, operation).value().inputs.size() == 2 ? 0 : 1;
}
