// Written files of PyTorch as text: the pickle and the zip's entries.
#pragma once

#include <doctest/doctest.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <stele/recorders/pytorch.hpp>

#include "encodings/pickle_support.hpp"
#include "encodings/zip_support.hpp"
#include "support/models.hpp"

namespace stele_test::pytorch {

using namespace stele;
using namespace std::string_literals;

inline std::string file_of(const Snapshot& snapshot, const SaveOptions& options = {}) {
  BufferSink sink;
  good(PytorchRecorder<>().save(snapshot, sink, options));
  return std::string(text_of(sink.take().span()));
}
inline std::string file_of(const Checkpoint& checkpoint, PytorchOptions options = {}) {
  BufferSink sink;
  good(PytorchRecorder<>(PytorchFormat(std::move(options))).save(checkpoint, sink));
  return std::string(text_of(sink.take().span()));
}

inline std::string entry_of(std::string_view file, std::string_view name) {
  const auto zip = good(open_zip(file));
  const auto* const entry = zip->find("archive/" + std::string(name));
  REQUIRE(entry != nullptr);
  return std::string(text_of(good(zip->read(*entry, enough)).span()));
}

inline std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size()) text.replace(at, from.size(), to);
  return text;
}
/// Returns data.pkl as Python writes it; a tensor is `T(class 'key' numel, offset, size, stride)`, v3's with the dtype.
inline std::string object_of(std::string_view file) {
  std::string text = pickles::show(entry_of(file, "data.pkl"));
  text = replaced(text, "torch._utils._rebuild_tensor_v2(@('storage', torch.", "T(");
  text = replaced(text, "torch._utils._rebuild_tensor_v3(@('storage', torch.storage.UntypedStorage, ", "T(");
  text = replaced(text, "torch._utils._rebuild_qtensor(@('storage', torch.", "Q(");
  text = replaced(text, "Storage, '", " '");
  text = replaced(text, "', 'cpu', ", "' ");
  text = replaced(text, "), 0, (", ", (");
  text = replaced(text, ", False, collections.OrderedDict{}", "");
  return replaced(text, "collections.OrderedDict{", "O{");
}

/// Collects the leaves of a flat snapshot.
class Flat {
 public:
  Flat() { builder_.set_flat(); }
  Flat& tensor(std::string_view name, DType dtype, std::vector<Extent> shape, std::string bytes) {
    static constexpr LeafOps ops{.view = [](const void* at, std::uint64_t) {
      return reinterpret_cast<const std::byte*>(static_cast<const std::string*>(at)->data());
    }};
    const auto kept = std::make_shared<const std::string>(std::move(bytes));
    builder_.keep(kept);
    last_ = builder_.tensor(builder_.intern(name), dtype, shape, kept->size(), {&ops, kept.get(), 0});
    return *this;
  }
  /// Adds a tensor of two numbers.
  Flat& tensor(std::string_view name, float first = 1) {
    const float numbers[] = {first, first + 1};
    return tensor(name, DType::f32, {2}, std::string(reinterpret_cast<const char*>(numbers), sizeof numbers));
  }
  Flat& value(std::string_view name, Value value) {
    last_ = builder_.value(builder_.intern(name), std::move(value));
    return *this;
  }
  Flat& alias(std::string_view name) {
    builder_.alias(builder_.intern(name), last_);
    return *this;
  }
  Flat& note(Value::Map quantization) { return note(Value(std::move(quantization)), "quantization"); }
  Flat& note(Value value, std::string key) {
    builder_.annotate(std::move(key), std::move(value));
    return *this;
  }
  Flat& origin(std::string_view key, std::string text) {
    builder_.set_origin("pytorch." + std::string(key), std::move(text));
    return *this;
  }
  Flat& metadata(std::map<std::string, std::string> metadata) {
    builder_.set_metadata(std::move(metadata));
    return *this;
  }
  Snapshot snapshot() { return builder_.finish(); }

 private:
  SnapshotBuilder builder_;
  std::uint32_t last_ = 0;
};

inline Error refused(const Snapshot& snapshot, bool allow_loss = false) {
  BufferSink sink;
  SaveOptions options;
  options.allow_loss = allow_loss;
  return bad(PytorchRecorder<>().save(snapshot, sink, options));
}
inline Error refused(const Checkpoint& checkpoint, PytorchOptions options = {}) {
  BufferSink sink;
  return bad(PytorchRecorder<>(PytorchFormat(std::move(options))).save(checkpoint, sink));
}

}  // namespace stele_test::pytorch
