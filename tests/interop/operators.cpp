// For dl4j.sh: `operators THEIRS OURS` reads DL4J's descriptors, and writes ours for DL4J.
#include <stele/operators.hpp>

#include <fstream>
#include <iostream>

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const auto theirs = stele::OperatorSet::open(argv[1]);
  if (!theirs || theirs->find("conv2d") == nullptr) {
    std::cerr << (theirs ? "no conv2d" : theirs.error().to_string()) << "\n";
    return 1;
  }
  std::cout << "operators of DL4J: " << theirs->all().size() << "\n";
  std::ofstream out(argv[2]);
  out << stele::OperatorSet::nd4j().to_text(true);
  return out.flush() ? 0 : 1;
}
