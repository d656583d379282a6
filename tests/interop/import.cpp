// For tests/interop/import.py: imports models and writes them for DL4J.
//
//   interop_import LIST    LIST: lines "MODEL OUT.fb ...", by tabs; prints a line "ok" or the error for each whose
//                          OUT.fb is not "-". A MODEL that ends in .onnx is ONNX's; others are TensorFlow's, with the
//                          outputs that outputs.txt beside OUT.fb tells
#include <stele/export.hpp>
#include <stele/import.hpp>
#include <stele/recorders/samediff.hpp>

#include <chrono>
#include <filesystem>
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
    stele::ImportOptions options;
    std::ifstream outputs(std::filesystem::path(out).replace_filename("outputs.txt"));
    for (std::string name, rest; std::getline(outputs, name, '\t') && std::getline(outputs, rest);) {
      options.outputs.push_back(name);
    }
    const auto imported =
        model.ends_with(".onnx") ? stele::import_onnx(model) : stele::import_tensorflow(model, options);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (!imported) {
      std::cout << imported.error().to_string() << '\n';
      continue;
    }
    const auto exported =
        stele::export_onnx(*imported, std::filesystem::path(out).replace_filename("exported.onnx").string());
    if (!exported) std::cerr << model << ": " << exported.error().to_string() << '\n';
    const auto saved = stele::SameDiffRecorder<>().save(*imported, out);
    std::cout << (saved ? "ok " + std::to_string(took.count()) : saved.error().to_string()) << '\n';
  }
}
