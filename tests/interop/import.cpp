// For tests/interop/import.py: imports ONNX models and writes them for DL4J.
//
//   interop_import LIST    LIST: lines "MODEL.onnx OUT.fb ...", by tabs; prints a line "ok" or the error for each whose
//                          OUT.fb is not "-"
#include <stele/import.hpp>
#include <stele/recorders/samediff.hpp>

#include <chrono>
#include <fstream>
#include <iostream>
#include <string>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::ifstream list(argv[1]);
  for (std::string model, out, more; std::getline(list, model, '\t') && std::getline(list, out, '\t');) {
    std::getline(list, more);
    if (out == "-") continue;
    const auto begin = std::chrono::steady_clock::now();
    const auto imported = stele::import_onnx(model);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (!imported) {
      std::cout << imported.error().to_string() << '\n';
      continue;
    }
    const auto saved = stele::SameDiffRecorder<>().record(*imported, out);
    std::cout << (saved ? "ok " + std::to_string(took.count()) : saved.error().to_string()) << '\n';
  }
}
