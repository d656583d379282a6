// Folders of torch.distributed.checkpoint for tests: copies of golden ones, and metadata as a program wants them.
#pragma once

#include <stele/bundle.hpp>
#include <stele/recorders/pytorch.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "encodings/pickle/pickle.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace stele_test::dcp {

using namespace stele;
using Extents = std::vector<Extent>;

inline const PytorchRecorder<> recorder;

inline std::string dcp_golden(const std::string& name) { return test_data("pytorch") + "/" + name; }

inline void put_file(Bundle& bundle, const std::string& name, std::string_view text) {
  const auto sink = good(bundle.create(name));
  good(sink->write(bytes_of(text)));
  good(sink->commit());
}

/// Copies a golden folder to memory, without one of its files.
inline std::shared_ptr<Bundle> copied(const std::string& folder, const std::string& without = "") {
  auto bundle = memory_bundle();
  for (const auto& entry : std::filesystem::directory_iterator(dcp_golden(folder))) {
    const std::string name = entry.path().filename().string();
    if (name != without) put_file(*bundle, name, read_text(entry.path().string()));
  }
  return bundle;
}

inline SourcePtr source_of(const std::shared_ptr<Bundle>& bundle) { return bundle_source(bundle); }

template <class T>
std::vector<T> numbers_of(const std::string& bytes) {
  std::vector<T> numbers(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

/// A chunk that PyTorch wrote: the file tensor.pt, f32 of [2, 3], with the numbers 0 to 5.
inline std::uint64_t chunk_size() { return std::filesystem::file_size(dcp_golden("tensor.pt")); }
inline std::string chunk_elements() {
  const float numbers[] = {0, 1, 2, 3, 4, 5};
  return {reinterpret_cast<const char*>(numbers), sizeof numbers};
}

struct Chunk {
  Extents offsets, sizes;
};
struct TensorItem {
  std::string name, dtype;
  Extents size;
  std::vector<Chunk> chunks{};
  std::string layout = "torch.strided";
};
struct Place {
  std::string name;
  std::optional<Extents> offset;
  std::string file;
  std::uint64_t at = 0, length = 0;
  std::vector<std::string> transforms{};
};

/// Writes what PyTorch pickles, with calls in place of NEWOBJ.
struct Metadata {
  std::vector<TensorItem> tensors;
  std::vector<std::string> objects;
  std::vector<Place> places;
  std::string module = "torch.distributed.checkpoint.metadata";

  std::string pickled() const {
    std::string text;
    detail::pickle::Writer out(text);
    begin(out, module, "Metadata");
    out.string("state_dict_metadata");
    out.empty_dict();
    out.mark();
    for (const TensorItem& tensor : tensors) put(out, tensor);
    for (const std::string& name : objects) {
      out.string(name);
      begin(out, module, "BytesStorageMetadata");
      end(out);
    }
    out.set_items();
    out.string("storage_data");
    out.empty_dict();
    out.mark();
    for (const Place& place : places) put(out, place);
    out.set_items();
    end(out);
    out.finish();
    return text;
  }

 private:
  using Writer = detail::pickle::Writer;
  static void begin(Writer& out, const std::string& in, const std::string& name) {
    out.global(in, name);
    out.empty_tuple();
    out.reduce();
    out.empty_dict();
    out.mark();
  }
  static void end(Writer& out) {
    out.set_items();
    out.build();
  }
  static void size(Writer& out, const Extents& extents) {
    out.global("torch", "Size");
    out.mark();
    for (const Extent e : extents) out.unsigned_integer(e);
    out.tuple();
    out.tuple(1);
    out.reduce();
  }
  void put(Writer& out, const TensorItem& tensor) const {
    out.string(tensor.name);
    begin(out, module, "TensorStorageMetadata");
    out.string("properties");
    out.global(module, "TensorProperties");
    out.empty_tuple();
    out.reduce();
    out.mark();
    out.global("torch", tensor.dtype);
    out.global("torch.serialization", "_get_layout");
    out.string(tensor.layout);
    out.tuple(1);
    out.reduce();
    out.boolean(false);
    out.integer(0);
    out.boolean(false);
    out.tuple();
    out.build();
    out.string("size");
    size(out, tensor.size);
    out.string("chunks");
    out.empty_list();
    out.mark();
    for (const Chunk& chunk : tensor.chunks) {
      begin(out, module, "ChunkStorageMetadata");
      out.string("offsets");
      size(out, chunk.offsets);
      out.string("sizes");
      size(out, chunk.sizes);
      end(out);
    }
    out.appends();
    end(out);
  }
  void put(Writer& out, const Place& place) const {
    begin(out, module, "MetadataIndex");
    out.string("fqn");
    out.string(place.name);
    if (place.offset) {
      out.string("offset");
      size(out, *place.offset);
    }
    end(out);
    begin(out, "torch.distributed.checkpoint.filesystem", "_StorageInfo");
    out.string("relative_path");
    out.string(place.file);
    out.string("offset");
    out.unsigned_integer(place.at);
    out.string("length");
    out.unsigned_integer(place.length);
    if (!place.transforms.empty()) {
      out.string("transform_descriptors");
      out.empty_list();
      out.mark();
      for (const std::string& transform : place.transforms) out.string(transform);
      out.appends();
    }
    end(out);
  }
};

}  // namespace stele_test::dcp
