// A model around the initializers, for its export.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "model.hpp"
#include "stele/recorders/onnx.hpp"

namespace stele::inline v0::detail::onnx {

struct Structure {
  std::uint64_t ir_version = 0, opset = 0;
  std::vector<std::byte> nodes, values;  // fields of GraphProto, before and after the initializers
};

/// Saves a snapshot as the initializers of a new model.
class StructureFormat final : public Format {
 public:
  StructureFormat(Structure structure, OnnxOptions options)
      : onnx_(options), structure_(std::move(structure)), options_(std::move(options)) {}
  std::string_view name() const noexcept override { return onnx_.name(); }
  std::string_view extension() const noexcept override { return onnx_.extension(); }
  const Capabilities& capabilities() const noexcept override {
    static constexpr Capabilities can{.metadata = true, .holds = [](DType) { return true; }, .keeps = keeps_graph};
    return can;
  }
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override {
    return onnx_.recognises(head, size);
  }
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override {
    return onnx_.open(std::move(source), context);
  }
  Result<std::vector<Loss>> losses(const Snapshot& snapshot, std::string_view file) const override {
    return onnx_.losses(snapshot, file);
  }
  Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const override;

 private:
  OnnxFormat onnx_;
  Structure structure_;
  OnnxOptions options_;
};

}  // namespace stele::inline v0::detail::onnx
