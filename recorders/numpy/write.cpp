// Writes .npz files.
#include <functional>

#include "base/entry_names.hpp"
#include "base/parallel.hpp"
#include "encodings/npy/header.hpp"
#include "encodings/zip/zip.hpp"
#include "json/json.hpp"
#include "own_entry.hpp"
#include "passes/byte_order.hpp"
#include "snapshot/flat.hpp"
#include "snapshot/leaf_gather.hpp"
#include "snapshot/paths.hpp"
#include "stele/recorders/numpy.hpp"
#include "stele/sink.hpp"

namespace stele::inline v0 {
namespace detail::numpy {
namespace {

/// Maximum length of an entry's name (512 bytes): the first name must be in the 1024 bytes that recognize a file.
constexpr std::size_t max_name = 512;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

Error refused(const char* why) { return Error(Errc::not_representable, "npz files cannot store this").found(why); }

/// Returns true if an entry can have the tensor's path as its name.
bool is_entry_name(std::string_view path) {
  if (path == own_entry.substr(0, own_entry.size() - ending.size()) || path.starts_with(own_folder)) return false;
  const std::string entry = std::string(path).append(ending);
  return entry.size() <= max_name && zip::valid_name(entry) && is_numpy_zip_entry(entry);
}

class NpzWriter {
 public:
  NpzWriter(const Snapshot& snapshot, Sink& sink, const Workers& workers)
      : snapshot_(in_file_order(snapshot)), sink_(sink), out_(sink, zip::crc32), zip_(out_), context_(workers) {}

  Status run() {
    STELE_TRY(plan());
    zip::Plan plan;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      const LeafView leaf = snapshot_.leaf(i);
      const std::string header = header_text(leaf.dtype(), leaf.shape());
      plan.add(names_[i], header.size() + leaf.byte_size(), header.size(), alignment);
    }
    const Extent own_shape[] = {own_text_.size()};
    const std::string own_header = header_text(DType::u8, own_shape);
    const std::uint64_t own_size = own_header.size() + own_text_.size();
    if (!own_text_.empty()) plan.add(own_entry, own_size, own_header.size(), alignment);
    STELE_TRY(sink_.reserve(plan.size()));

    for (std::size_t i = 0; i < names_.size(); ++i) STELE_TRY(write_leaf(i));
    if (!own_text_.empty()) {
      const std::uint32_t crc = zip::crc32(0, own_header.data(), own_header.size());
      STELE_TRY(zip_.begin(own_entry, zip::stored, own_size, own_size,
                           zip::crc32(crc, own_text_.data(), own_text_.size()), own_header.size(), alignment));
      STELE_TRY(out_.write(bytes_of(own_header)));
      STELE_TRY(out_.write(bytes_of(own_text_)));
    }
    STELE_TRY(zip_.finish());
    return out_.flush();
  }

 private:
  /// Chooses the entries' names, and makes the JSON of the own entry.
  Status plan() {
    const LeafPaths paths(*snapshot_.data());
    OwnEntry own;
    own.metadata = snapshot_.metadata();
    for (const auto& [key, text] : own.metadata) {
      if (!json::valid_utf8(key) || !json::valid_utf8(text)) return refused("metadata that is not UTF-8");
    }
    STELE_TRY_ASSIGN(std::string extras, flat_extras(snapshot_));
    STELE_TRY(add_flat_key(own.metadata, std::move(extras)));
    for (std::size_t i = 0; i < snapshot_.leaf_count(); ++i) {
      std::string key(paths[i]);
      if (!json::valid_utf8(key)) return refused("a name that is not UTF-8").path(key);
      if (!is_entry_name(key)) {
        key = std::string(own_folder) + std::to_string(own.names.size());
        own.names.emplace(key, paths[i]);
      }
      const DType dtype = snapshot_.leaf(i).dtype();
      if (is_void(dtype)) own.dtypes.emplace(key, dtype);
      names_.push_back(std::move(key.append(ending)));
    }
    if (!own.empty()) own_text_ = to_text(own);
    return {};
  }

  Status write_leaf(std::size_t i) {
    const LeafView leaf = snapshot_.leaf(i);
    const std::string header = header_text(leaf.dtype(), leaf.shape());
    const std::uint64_t size = header.size() + leaf.byte_size();
    const auto whole = [&, crc = zip::crc32(0, header.data(), header.size())](std::uint64_t elements) {
      return zip::crc32_joined(crc, static_cast<std::uint32_t>(elements), leaf.byte_size());
    };
    const auto begin = [&](std::uint64_t crc) -> Status {
      STELE_TRY(zip_.begin(names_[i], zip::stored, size, size, whole(crc), header.size(), alignment));
      return out_.write(bytes_of(header));
    };
    const auto patch = [&](std::uint64_t crc) { return zip_.set_crc(whole(crc)); };
    // A std::function of a std::ref takes no memory.
    return out_.leaf_after_hash(leaf, context_, std::ref(begin), std::ref(patch));
  }

  Snapshot snapshot_;
  Sink& sink_;
  LeafGather out_;
  zip::Writer zip_;
  ReadContext context_;
  std::vector<std::string> names_;  // entry names, by leaf
  std::string own_text_;
};

}  // namespace
}  // namespace detail::numpy

Status NpzFormat::write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const {
  return detail::numpy::NpzWriter(snapshot, sink, detail::workers_of(options)).run();
}

}  // namespace stele::inline v0
