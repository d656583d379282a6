// Helpers of the tests of safetensors.
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "support/recorders.hpp"
#include "support/stele_file.hpp"
#include "support/temp_dir.hpp"

namespace stele_test::safetensors {

using namespace stele;

inline const SafetensorsRecorder<> recorder;

inline std::string safetensors_golden(const std::string& name) {
  return read_text(test_data("safetensors") + "/" + name + ".safetensors");
}

inline std::string file_of(std::string_view header, std::string_view data = {}) {
  std::string file;
  put(file, std::uint64_t{header.size()});
  return file + std::string(header) + std::string(data);
}

}  // namespace stele_test::safetensors
