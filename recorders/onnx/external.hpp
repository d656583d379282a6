// External data: stores the elements of a model's large tensors in a second file
// (https://github.com/onnx/onnx/blob/main/docs/ExternalData.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stele/bundle.hpp"
#include "stele/options.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail::onnx {

/// Checks OnnxOptions::external. Errors: invalid_argument.
Status check_external_name(std::string_view name, std::string_view model_path);

/// Writes the second file. Renames it into place after both files are complete, so that an old file of this name may be
/// a source of the save.
class ExternalFile {
 public:
  /// If `name` is empty, all elements stay in the model.
  explicit ExternalFile(std::string name) : name_(std::move(name)) {}

  const std::string& name() const noexcept { return name_; }
  /// Returns true if a tensor of this size is stored in the file.
  bool takes(std::uint64_t bytes) const noexcept { return !name_.empty() && bytes >= min_tensor_bytes; }
  /// Checks that the file can be created next to the model. Errors: invalid_argument, unsupported, exists, io.
  Status prepare(Sink& model, const SaveOptions& options);
  /// Plans a leaf of a snapshot that outlives the save. Returns its offset in the file. Errors: not_representable.
  Result<std::uint64_t> add(const Snapshot& from, std::uint32_t leaf);
  /// Writes the file if leaves are planned.
  Status write(Sink& model, const SaveOptions& options, ReadContext& context);
  /// Renames the file into place.
  Status commit() { return file_ != nullptr ? file_->commit() : Status(); }

 private:
  /// Minimum size of external tensors (1 KiB), the default `size_threshold` of the onnx package. Smaller tensors stay
  /// in the model.
  static constexpr std::uint64_t min_tensor_bytes = 1024;
  /// Tensors of this size begin at a multiple of 64 KiB, the granularity of memory mappings on Windows, which
  /// ExternalData.md recommends; at most a sixteenth of the file is then padding. The onnx_ir package has the same
  /// rule.
  static constexpr std::uint64_t min_mapped_bytes = std::uint64_t{1} << 20;
  static constexpr std::uint64_t mapped_alignment = std::uint64_t{64} << 10;
  /// Alignment of other tensors: enough for every dtype and for vector loads.
  static constexpr std::uint64_t alignment = 64;

  struct Part {
    const Snapshot* from;
    std::uint32_t leaf;
    std::uint64_t offset;
  };

  std::string name_;
  std::vector<Part> parts_;
  std::uint64_t size_ = 0;
  std::unique_ptr<Sink> file_;
};

}  // namespace stele::inline v0::detail::onnx
