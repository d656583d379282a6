// Describes the results of the PyTorch recorder for a file: shared by its hostile tests.
#pragma once

#include <stele/recorders/pytorch.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <string_view>

#include "support/models.hpp"
#include "support/pytorch_file.hpp"

namespace stele_test::pytorch_files {

/// Returns a source that owns these bytes, as does everything opened from it.
inline stele::SourcePtr source_of(std::string_view file) {
  const auto bytes = bytes_of(file);
  return stele::own_bytes(std::vector<std::byte>(bytes.begin(), bytes.end()), "x.pt");
}
inline stele::Result<stele::Snapshot> opened(std::string_view file, const stele::PytorchOptions& options = {}) {
  const stele::PytorchRecorder<> recorder{stele::PytorchFormat(options)};
  return recorder.open(source_of(file));
}
inline stele::Result<stele::Checkpoint> checkpoint_of(std::string_view file,
                                                      const stele::PytorchOptions& options = {}) {
  const stele::PytorchRecorder<> recorder{stele::PytorchFormat(options)};
  return recorder.open_checkpoint(source_of(file));
}

/// Returns an empty string if `result` is an error with this code whose text contains `part`; otherwise a description
/// of `result`.
template <class T>
std::string unlike(const stele::Result<T>& result, stele::Errc code, std::string_view part) {
  if (!result) {
    const stele::Error& e = result.error();
    const bool named = e.file().starts_with("x.pt");
    if (e.code() == code && named && e.to_string().find(part) != std::string::npos) return {};
  }
  return std::string(name(code_of(result))) + ": " + why(result);
}
/// Does the same for opening a file, which open_checkpoint() must refuse too.
inline std::string refused(std::string_view file, stele::Errc code, std::string_view part,
                           const stele::PytorchOptions& options = {}) {
  if (checkpoint_of(file, options)) return "open_checkpoint() opens it";
  return unlike(opened(file, options), code, part);
}

/// Returns the floats of a leaf.
inline std::vector<float> floats_of(const stele::Snapshot& file, std::size_t leaf) {
  const std::string bytes = good(content(file.leaf(leaf)));
  std::vector<float> all(bytes.size() / sizeof(float));
  std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

}  // namespace stele_test::pytorch_files

/// Checks that opening a file gives this error.
#define CHECK_REFUSED(file, code, part) CHECK(stele_test::pytorch_files::refused(file, code, part) == "")
