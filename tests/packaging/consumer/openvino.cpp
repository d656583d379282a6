// One recorder alone: OpenVINO's models.
#include <stele/recorders/openvino.hpp>

#include <cstdlib>

int main() {
  const stele::OpenvinoRecorder<> recorder;
  const auto opened = recorder.open("none.xml");
  return !opened && opened.error().code() == stele::Errc::not_found ? EXIT_SUCCESS : EXIT_FAILURE;
}
