// One recorder alone: Core ML's models, which it only reads.
#include <stele/recorders/read_only.hpp>

#include <cstdlib>

int main() {
  const stele::CoremlRecorder<> recorder;
  const auto opened = recorder.open("none.mlpackage");
  return !opened && opened.error().code() == stele::Errc::not_found ? EXIT_SUCCESS : EXIT_FAILURE;
}
