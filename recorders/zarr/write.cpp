// Writes a Snapshot as a folder of zarr v3.
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/parallel.hpp"
#include "base/shortened.hpp"
#include "encodings/zarr/metadata.hpp"
#include "json/json.hpp"
#include "passes/byte_order.hpp"
#include "snapshot/data.hpp"
#include "snapshot/flat.hpp"
#include "snapshot/paths.hpp"
#include "snapshot/tree.hpp"
#include "stele/bundle.hpp"
#include "stele/recorders/zarr.hpp"
#include "zarr.hpp"

namespace stele::inline v0 {
namespace detail::zarr {
namespace {

/// Returns the array's path in the folder. Errors: not_representable.
Result<std::string> name_of(std::string_view path) {
  const auto refuse = [&](std::string_view found) {
    return Error(Errc::not_representable, "the path has no name in zarr")
        .path(std::string(path))
        .expected("segments of UTF-8 without / and \\, that do not begin with __ or consist of dots")
        .found(shortened(found, 60))
        .hint("rename the tensor");
  };
  std::string name;
  std::string_view rest = path;
  for (bool more = true; more;) {
    std::string_view raw;
    std::string segment;
    if (!first_segment(rest, raw, segment)) return refuse("an invalid escape");
    const bool dots = segment.find_first_not_of('.') == std::string::npos;
    if (dots || segment.starts_with("__") || segment == v3_key || !json::valid_utf8(segment) ||
        segment.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos) {
      return refuse(segment);
    }
    name += name.empty() ? segment : '/' + segment;
    more = raw.size() < rest.size();
    if (more) rest.remove_prefix(raw.size() + 1);
  }
  return name;
}

const Value* note_of(const LeafView& leaf, std::string_view key) {
  if (leaf.annotations() == nullptr) return nullptr;
  const auto found = leaf.annotations()->find(std::string(key));
  return found != leaf.annotations()->end() ? &found->second : nullptr;
}

/// Returns a leaf's annotation if a document can contain it: a map of attributes, or a name or null for each axis.
const Value* written_note(const LeafView& leaf, std::string_view key) {
  const Value* const note = note_of(leaf, key);
  if (note == nullptr || !is_plain_json(*note)) return nullptr;
  if (key == attributes_note) return note->as_map() != nullptr ? note : nullptr;
  const Value::List* const names = note->as_list();
  const auto is_name = [](const Value& v) { return v.is_null() || v.as_string() != nullptr; };
  const bool fits =
      names != nullptr && names->size() == leaf.shape().size() && std::all_of(names->begin(), names->end(), is_name);
  return fits ? note : nullptr;
}

Status write_text(Bundle& bundle, const std::string& name, std::string_view text) {
  STELE_TRY_ASSIGN(const auto file, bundle.create(name));
  STELE_TRY(file->reserve(text.size()));
  STELE_TRY(file->write(std::as_bytes(std::span(text))));
  return file->commit();
}

/// Compresses chunks, one after the other.
class Compressor {
 public:
  explicit Compressor(int level) : context_(ZSTD_createCCtx()), buffer_(ZSTD_CStreamOutSize()) {
    if (context_ == nullptr) throw std::bad_alloc();
    ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_compressionLevel, level);
  }

  void begin(std::uint64_t size) {
    ZSTD_CCtx_reset(context_.get(), ZSTD_reset_session_only);
    ZSTD_CCtx_setPledgedSrcSize(context_.get(), size);
    used_ = 0;
    flushed_ = false;
  }
  /// Compresses bytes of a chunk. `last`: they are the last ones.
  Status put(std::span<const std::byte> bytes, bool last, Sink& to) {
    ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
    for (std::size_t left = 1; left != 0;) {
      ZSTD_outBuffer out{buffer_.data(), buffer_.size(), used_};
      left = ZSTD_compressStream2(context_.get(), &out, &in, last ? ZSTD_e_end : ZSTD_e_continue);
      if (ZSTD_isError(left) != 0) return Error(Errc::out_of_memory, "zstd has failed").found(ZSTD_getErrorName(left));
      if (!last) left = in.size - in.pos;
      used_ = out.pos;
      const bool ends = last && left == 0;
      if (ends && !flushed_) STELE_TRY(to.reserve(used_));
      if (!ends && used_ < buffer_.size()) continue;
      STELE_TRY(to.write(buffer_.span().first(used_)));
      used_ = 0;
      flushed_ = true;
    }
    return {};
  }

 private:
  struct Free {
    void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  };
  std::unique_ptr<ZSTD_CCtx, Free> context_;
  Bytes buffer_;
  std::size_t used_ = 0;
  bool flushed_ = false;
};

/// Writes the bytes of a leaf as chunks of whole rows.
class Chunks final : public PieceSink {
 public:
  /// `suffix`: the rest of each key after the first number; `chunk`: bytes of a chunk; `compressor`: null if chunks are
  /// not compressed.
  Chunks(Bundle& bundle, std::string prefix, std::string suffix, std::uint64_t chunk, Compressor* compressor)
      : bundle_(bundle),
        prefix_(std::move(prefix)),
        suffix_(std::move(suffix)),
        chunk_(chunk),
        compressor_(compressor) {}

  Status piece(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      if (file_ == nullptr) STELE_TRY(begin());
      const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), chunk_ - done_));
      const bool last = done_ + n == chunk_;
      STELE_TRY(compressor_ != nullptr ? compressor_->put(bytes.first(n), last, *file_) : file_->write(bytes.first(n)));
      done_ += n;
      bytes = bytes.subspan(n);
      if (!last) continue;
      done_ = 0;
      STELE_TRY(std::exchange(file_, nullptr)->commit());
    }
    return {};
  }
  /// Fills the last chunk up with zeros.
  Status finish() {
    static constexpr std::array<std::byte, 4096> zeros{};
    while (file_ != nullptr) {
      STELE_TRY(piece(
          std::span(zeros).first(static_cast<std::size_t>(std::min<std::uint64_t>(zeros.size(), chunk_ - done_)))));
    }
    return {};
  }

 private:
  Status begin() {
    const bool scalar = prefix_.ends_with('c');
    STELE_TRY_ASSIGN(file_, bundle_.create(scalar ? prefix_ : prefix_ + std::to_string(number_++) + suffix_));
    if (compressor_ == nullptr) return file_->reserve(chunk_);
    compressor_->begin(chunk_);
    return {};
  }

  Bundle& bundle_;
  std::string prefix_, suffix_;
  std::uint64_t chunk_, done_ = 0, number_ = 0;
  Compressor* compressor_;
  std::unique_ptr<Sink> file_;
};

class Writer {
 public:
  Writer(const Snapshot& snapshot, const ZarrOptions& options, Bundle& bundle)
      : snapshot_(snapshot), options_(options), level_(std::clamp(options.level, 0, 19)), bundle_(bundle) {
    if (level_ != 0) compressor_.emplace(level_);
  }

  Status run(std::map<std::string, std::string> metadata, const Workers& workers) {
    const LeafPaths paths(*snapshot_.data());
    std::vector<std::string> names;
    std::set<std::string> groups, arrays;
    for (std::size_t i = 0; i < snapshot_.leaf_count(); ++i) {
      STELE_TRY_ASSIGN(names.emplace_back(), name_of(paths[i]));
      const std::string& name = names.back();
      if (std::count(name.begin(), name.end(), '/') > 48) {  // a bundle's names have at most 64 parts
        return Error(Errc::not_representable, "the path has too many segments for a folder")
            .path(std::string(paths[i]));
      }
      arrays.insert(name);
      for (std::size_t slash = name.find('/'); slash != name.npos; slash = name.find('/', slash + 1)) {
        groups.insert(name.substr(0, slash));
      }
    }
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (!groups.contains(names[i])) continue;
      return Error(Errc::not_representable, "an array of zarr cannot contain other arrays")
          .path(std::string(paths[i]))
          .hint("rename the tensor");
    }
    STELE_TRY_ASSIGN(const std::string document, root(metadata));
    STELE_TRY(write_text(bundle_, std::string(v3_key), document));
    for (const std::string& group : groups) {
      STELE_TRY(write_text(bundle_, group + '/' + std::string(v3_key),
                           "{\"zarr_format\":3,\"node_type\":\"group\",\"attributes\":{}}"));
    }
    const Snapshot ordered = in_file_order(snapshot_);
    ReadContext context(workers);
    for (std::size_t i = 0; i < names.size(); ++i) STELE_TRY(array(names[i], ordered.leaf(i), context));
    return {};
  }

 private:
  Result<std::string> root(const std::map<std::string, std::string>& metadata) const {
    std::string text;
    json::Writer out(text);
    out.begin_object();
    out.key("zarr_format"), out.u64(3);
    out.key("node_type"), out.string("group");
    out.key("attributes"), out.begin_object();
    out.key(made_here_key), out.u64(1);
    if (const Value::Map* const map = snapshot_.properties().as_map()) {
      for (const auto& [key, value] : *map) {
        const bool kept = metadata.contains(key) || key == flat_key || key == made_here_key;
        if (kept || !is_plain_json(Value(Value::Map{{key, value}}))) continue;
        out.key(key);
        STELE_TRY(json::write_value(out, value));
      }
    }
    for (const auto& [key, value] : metadata) out.key(key), out.string(value);
    out.end_object();
    out.end_object();
    return text;
  }

  static void list(json::Writer& out, std::string_view key, std::span<const Extent> extents) {
    out.key(key), out.begin_array();
    for (const Extent extent : extents) out.u64(extent);
    out.end_array();
  }

  Status array(const std::string& name, const LeafView& leaf, ReadContext& context) {
    const ItemType& type = *type_of(leaf.dtype());
    std::vector<Extent> chunk(leaf.shape().begin(), leaf.shape().end());
    for (Extent& extent : chunk) extent = std::max<Extent>(extent, 1);
    std::uint64_t bytes = std::max<std::uint64_t>(leaf.byte_size(), element_size(type.dtype));
    if (options_.chunk_bytes != 0 && bytes > options_.chunk_bytes && !chunk.empty()) {
      const std::uint64_t row = bytes / chunk[0];
      chunk[0] = std::clamp<std::uint64_t>(options_.chunk_bytes / row, 1, chunk[0]);
      bytes = row * chunk[0];
    }
    const DTypeClass kind = dtype_class(type.dtype);
    std::string text;
    json::Writer out(text);
    out.begin_object();
    out.key("zarr_format"), out.u64(3);
    out.key("node_type"), out.string("array");
    list(out, "shape", leaf.shape());
    out.key("data_type"), out.string(type.name);
    out.key("chunk_grid"), out.begin_object();
    out.key("name"), out.string("regular");
    out.key("configuration"), out.begin_object();
    list(out, "chunk_shape", chunk);
    out.end_object(), out.end_object();
    out.key("chunk_key_encoding"), out.begin_object();
    out.key("name"), out.string("default");
    out.key("configuration"), out.begin_object();
    out.key("separator"), out.string("/");
    out.end_object(), out.end_object();
    out.key("fill_value");
    if (kind == DTypeClass::boolean) {
      out.boolean(false);
    } else if (kind == DTypeClass::complex) {
      out.begin_array(), out.f64(0), out.f64(0), out.end_array();
    } else if (kind == DTypeClass::floating) {
      out.f64(0);
    } else {
      out.u64(0);
    }
    out.key("codecs"), out.begin_array();
    out.begin_object();
    out.key("name"), out.string("bytes");
    if (type.swapped != 1) {
      out.key("configuration"), out.begin_object();
      out.key("endian"), out.string("little");
      out.end_object();
    }
    out.end_object();
    if (level_ != 0) {
      out.begin_object();
      out.key("name"), out.string("zstd");
      out.key("configuration"), out.begin_object();
      out.key("level"), out.i64(level_);
      out.key("checksum"), out.boolean(false);
      out.end_object(), out.end_object();
    }
    out.end_array();
    out.key("attributes");
    if (const Value* const note = written_note(leaf, attributes_note)) {
      STELE_TRY(json::write_value(out, *note));
    } else {
      out.begin_object(), out.end_object();
    }
    if (const Value* const note = written_note(leaf, dimensions_note)) {
      out.key("dimension_names");
      STELE_TRY(json::write_value(out, *note));
    }
    out.end_object();
    STELE_TRY(write_text(bundle_, name + '/' + std::string(v3_key), text));
    if (leaf.byte_size() == 0) return {};
    std::string suffix;
    for (std::size_t d = 1; d < chunk.size(); ++d) suffix += "/0";
    Chunks chunks(bundle_, name + (chunk.empty() ? "/c" : "/c/"), std::move(suffix), bytes,
                  compressor_ ? &*compressor_ : nullptr);
    STELE_TRY(with_path(leaf.stream(chunks, context), leaf));
    return chunks.finish();
  }

  const Snapshot& snapshot_;
  const ZarrOptions& options_;
  int level_;
  Bundle& bundle_;
  std::optional<Compressor> compressor_;
};

}  // namespace

bool is_plain_json(const Value& value) {
  if (value.as_bytes() != nullptr) return false;
  if (const double* const f = value.as_f64()) return std::isfinite(*f);
  if (const std::string* const text = value.as_string()) return json::valid_utf8(*text);
  if (const Value::List* const list = value.as_list()) {
    return std::all_of(list->begin(), list->end(), [](const Value& v) { return is_plain_json(v); });
  }
  if (const Value::Map* const map = value.as_map()) {
    std::set<std::string_view> keys;
    return std::all_of(map->begin(), map->end(), [&](const auto& entry) {
      return !entry.first.starts_with('$') && json::valid_utf8(entry.first) && keys.insert(entry.first).second &&
             is_plain_json(entry.second);
    });
  }
  return true;
}

}  // namespace detail::zarr

namespace zarr = detail::zarr;

const Capabilities& ZarrFormat::capabilities() const noexcept {
  static constexpr Capabilities can{
      .values = true,
      .aliases = true,
      .metadata = true,
      .properties = true,
      .composites = true,
      .max_rank = zarr::max_rank,
      .holds = [](DType dtype) { return zarr::type_of(dtype) != nullptr; },
      .keeps = [](std::string_view key) { return key == zarr::attributes_note || key == zarr::dimensions_note; }};
  return can;
}

Result<std::vector<Loss>> ZarrFormat::losses(const Snapshot& snapshot, std::string_view /*file*/) const {
  std::vector<Loss> losses;
  if (const Value::Map* const map = snapshot.properties().as_map()) {
    for (const auto& [key, value] : *map) {
      if (key == zarr::made_here_key || !zarr::is_plain_json(Value(Value::Map{{key, value}}))) {
        losses.push_back({0, "the property " + key + ", which JSON cannot store"});
      }
    }
  }
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    for (const std::string_view key : {zarr::attributes_note, zarr::dimensions_note}) {
      if (zarr::note_of(leaf, key) == nullptr || zarr::written_note(leaf, key) != nullptr) continue;
      losses.push_back({leaf.node(), "the annotation " + std::string(key) + ", which zarr cannot store"});
    }
  }
  return losses;
}

Status ZarrFormat::write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const {
  const auto bundle = sink.bundle();
  if (bundle == nullptr || !sink.is_folder()) {
    return Error(Errc::unsupported, "the sink cannot create a folder").hint("save to a path, or to bundle_sink()");
  }
  std::map<std::string, std::string> metadata = snapshot.metadata();
  for (const auto& [key, text] : metadata) {
    if (key != zarr::made_here_key && detail::json::valid_utf8(key) && detail::json::valid_utf8(text)) continue;
    return Error(Errc::not_representable, "the attributes of zarr store metadata in UTF-8 only")
        .path(detail::shortened(key, 100))
        .expected("UTF-8, and a key other than " + std::string(zarr::made_here_key));
  }
  STELE_TRY_ASSIGN(std::string extras, detail::flat_extras(snapshot));
  STELE_TRY(detail::add_flat_key(metadata, std::move(extras)));
  return zarr::Writer(snapshot, options_, *bundle).run(std::move(metadata), detail::workers_of(options));
}

}  // namespace stele::inline v0
