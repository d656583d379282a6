// Writes HDF5 files, and `.keras` files, which contain one.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/parallel.hpp"
#include "encodings/zip/zip.hpp"
#include "hdf5/hdf5.hpp"
#include "json/json.hpp"
#include "keras.hpp"
#include "passes/byte_order.hpp"
#include "snapshot/data.hpp"
#include "snapshot/flat.hpp"
#include "snapshot/leaf_gather.hpp"
#include "snapshot/paths.hpp"
#include "snapshot/properties.hpp"
#include "snapshot/tree.hpp"
#include "stele/recorders/keras.hpp"
#include "stele/sink.hpp"

namespace stele::inline v0 {
namespace detail::keras {
namespace {

/// Returns the names of the groups and the dataset for a tensor's path; empty if the path is not one.
std::vector<std::string> groups_of(std::string_view path) {
  std::vector<std::string> names;
  while (!path.empty()) {
    std::string_view raw;
    std::string plain;
    if (!first_segment(path, raw, plain)) return {};
    names.push_back(std::move(plain));
    if (raw.size() == path.size()) return names;
    path.remove_prefix(raw.size() + 1);
    if (path.empty()) return {};  // a dot at the end
  }
  return names;
}

/// Returns the names of the groups for an object's path in a property's key.
std::vector<std::string> groups_of_key(std::string_view path) {
  std::vector<std::string> names;
  for (std::size_t slash = 0; slash != path.npos; path.remove_prefix(slash == path.npos ? path.size() : slash + 1)) {
    slash = path.find('/');
    names.emplace_back(path.substr(0, slash));
  }
  return names;
}

/// Returns false if HDF5 cannot represent the value.
bool add_attribute(hdf5::Plan& plan, const std::string& key, const Value& value) {
  const std::size_t mark = key.rfind(attribute_mark);
  const bool of_object = mark != key.npos && mark != 0;
  return (of_object &&
          plan.attribute(groups_of_key(std::string_view(key).substr(0, mark)), key.substr(mark + 1), value)) ||
         plan.attribute({}, key, value);
}

/// Adds metadata and properties as attributes. Properties that HDF5 cannot represent become one attribute of JSON.
Status add_attributes(const Snapshot& snapshot, const std::map<std::string, std::string>& metadata, hdf5::Plan& plan) {
  std::map<std::string, std::string> texts = metadata;
  Value::Map others;
  if (const Value::Map* properties = snapshot.properties().as_map()) {
    for (const auto& [key, value] : *properties) {
      const bool apart = key == config_entry || key == metadata_entry;
      const auto text = texts.find(key);
      if (text == texts.end() && apart) continue;
      const bool stored = add_attribute(plan, key, text != texts.end() ? Value(text->second) : value);
      if (stored && text != texts.end()) texts.erase(text);
      if (!stored && text == texts.end()) others.emplace_back(key, value);
    }
  }
  for (const auto& [key, text] : texts) {
    if (!add_attribute(plan, key, Value(text))) {
      return Error(Errc::not_representable, "HDF5 cannot store this metadata")
          .path(key)
          .expected("a name of 1 to 1024 bytes, and no zero bytes");
    }
  }
  if (others.empty()) return {};
  std::string text;
  json::Writer out(text);
  out.begin_object();
  out.key("values");
  STELE_TRY(json::write_value(out, Value(std::move(others))));
  out.end_object();
  plan.attribute({}, properties_key, Value(std::move(text)));
  return {};
}

class Writer {
 public:
  Writer(const Snapshot& snapshot, Sink& sink, const SaveOptions& options)
      : snapshot_(in_file_order(snapshot)), sink_(sink), out_(sink, zip::crc32), context_(workers_of(options)) {}

  Status weights() {
    STELE_TRY(plan(snapshot_.metadata()));
    STELE_TRY(sink_.reserve(plan_.size()));
    STELE_TRY(write(nullptr));
    return out_.flush();
  }

  Status model() {
    std::map<std::string, std::string> metadata = snapshot_.metadata();
    std::vector<std::pair<std::string_view, std::string>> texts;
    for (const std::string_view entry : {metadata_entry, config_entry}) {
      const auto found = metadata.find(std::string(entry));
      if (found != metadata.end()) {
        texts.emplace_back(entry, std::move(found->second));
        metadata.erase(found);
      } else if (entry == metadata_entry) {
        texts.emplace_back(entry, no_metadata);
      }
    }
    STELE_TRY(plan(metadata));
    zip::Plan size;
    for (const auto& [entry, text] : texts) size.add(entry, text.size());
    size.add(weights_entry, plan_.size(), 0, alignment);
    STELE_TRY(sink_.reserve(size.size()));
    zip::Writer zip(out_);
    for (const auto& [entry, text] : texts) STELE_TRY(zip.add(entry, std::as_bytes(std::span(text))));
    // The CRC-32 precedes the bytes: a sink that cannot be patched takes another pass over the tensors.
    std::uint32_t crc = 0;
    const bool patch = out_.can_patch();
    if (!patch) STELE_TRY(checksum(crc));
    STELE_TRY(zip.begin(weights_entry, zip::stored, plan_.size(), plan_.size(), crc, 0, alignment));
    STELE_TRY(write(&crc));
    if (patch) STELE_TRY(zip.set_crc(crc));
    STELE_TRY(zip.finish());
    return out_.flush();
  }

 private:
  static constexpr std::uint64_t alignment = 64;
  static constexpr std::byte no_bytes[alignment] = {};

  Status plan(std::map<std::string, std::string> metadata) {
    const LeafPaths paths(*snapshot_.data());
    STELE_TRY_ASSIGN(std::string extras, flat_extras(snapshot_));
    STELE_TRY(add_flat_key(metadata, std::move(extras)));
    for (std::size_t i = 0; i < snapshot_.leaf_count(); ++i) {
      const LeafView leaf = snapshot_.leaf(i);
      const auto added = plan_.add(groups_of(paths[i]), leaf.dtype(), leaf.shape(), leaf.byte_size());
      if (!added)
        return added.error().path().empty() ? Error(added.error()).path(std::string(paths[i])) : added.error();
    }
    STELE_TRY(add_attributes(snapshot_, metadata, plan_));
    plan_.finish();
    return {};
  }

  /// Returns the number of zeros after a tensor.
  static std::size_t padding(const LeafView& leaf) {
    return static_cast<std::size_t>((alignment - leaf.byte_size() % alignment) % alignment);
  }

  /// Writes the file. `crc`, unless it is null, receives the CRC-32 of its bytes.
  Status write(std::uint32_t* crc) {
    STELE_TRY(out_.write(plan_.head()));
    std::uint32_t sum = crc != nullptr ? zip::crc32(0, plan_.head().data(), plan_.head().size()) : 0;
    for (std::size_t i = 0; i < snapshot_.leaf_count(); ++i) {
      const LeafView leaf = snapshot_.leaf(i);
      std::uint64_t hash = 0;
      STELE_TRY(out_.leaf(leaf, context_, crc != nullptr ? &hash : nullptr));
      const std::size_t zeros = padding(leaf);
      STELE_TRY(out_.zeros(zeros));
      if (crc == nullptr) continue;
      sum = zip::crc32_joined(sum, static_cast<std::uint32_t>(hash), leaf.byte_size());
      sum = zip::crc32(sum, no_bytes, zeros);
    }
    if (crc != nullptr) *crc = sum;
    return {};
  }

  Status checksum(std::uint32_t& crc) {
    struct Sum final : PieceSink {
      std::uint32_t crc = 0;
      Status piece(std::span<const std::byte> bytes) override {
        crc = zip::crc32(crc, bytes.data(), bytes.size());
        return {};
      }
    } sum;
    sum.crc = zip::crc32(0, plan_.head().data(), plan_.head().size());
    for (std::size_t i = 0; i < snapshot_.leaf_count(); ++i) {
      const LeafView leaf = snapshot_.leaf(i);
      STELE_TRY(leaf.stream(sum, context_));
      sum.crc = zip::crc32(sum.crc, no_bytes, padding(leaf));
    }
    crc = sum.crc;
    return {};
  }

  Snapshot snapshot_;
  Sink& sink_;
  LeafGather out_;
  ReadContext context_;
  hdf5::Plan plan_;
};

/// Returns the tensors whose paths are not paths of datasets.
std::vector<Loss> losses_of(const Snapshot& snapshot) {
  constexpr const char* why = "the whole tensor: HDF5 cannot express its name";
  std::vector<Loss> losses;
  hdf5::Plan plan;
  const LeafPaths paths(*snapshot.data());
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const auto names = groups_of(paths[i]);
    if (names.empty() || !plan.add(names, DType::u8, {}, 1)) losses.push_back({snapshot.leaf(i).node(), why});
  }
  return losses;
}

}  // namespace
}  // namespace detail::keras

Result<std::vector<Loss>> Hdf5Format::losses(const Snapshot& snapshot, std::string_view /*file*/) const {
  return detail::keras::losses_of(snapshot);
}

Status Hdf5Format::write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const {
  return detail::keras::Writer(snapshot, sink, options).weights();
}

Result<std::vector<Loss>> KerasFormat::losses(const Snapshot& snapshot, std::string_view /*file*/) const {
  return detail::keras::losses_of(snapshot);
}

Status KerasFormat::write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const {
  return detail::keras::Writer(snapshot, sink, options).model();
}

}  // namespace stele::inline v0
