// Writes the document and the chunks of an array of zarr v3.
#include "encodings/zarr/chunk_writer.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "encodings/zstd/contexts.hpp"
#include "json/json.hpp"

namespace stele::inline v0::detail::zarr {
namespace {

void write_list(json::Writer& out, std::string_view key, std::span<const Extent> extents) {
  out.key(key), out.begin_array();
  for (const Extent extent : extents) out.u64(extent);
  out.end_array();
}

void write_zero(json::Writer& out, DTypeClass kind) {
  if (kind == DTypeClass::boolean) {
    out.boolean(false);
  } else if (kind == DTypeClass::complex) {
    out.begin_array(), out.f64(0), out.f64(0), out.end_array();
  } else if (kind == DTypeClass::floating) {
    out.f64(0);
  } else {
    out.u64(0);
  }
}

/// Begins {"name": name, "configuration": {
void begin_named(json::Writer& out, std::string_view name) {
  out.begin_object();
  out.key("name"), out.string(name);
  out.key("configuration"), out.begin_object();
}
void end_named(json::Writer& out) { out.end_object(), out.end_object(); }

}  // namespace

ArrayPlan plan_array(DType dtype, std::span<const Extent> shape, std::uint64_t max_chunk_bytes) {
  ArrayPlan plan{type_of(dtype), {shape.begin(), shape.end()}, {shape.begin(), shape.end()}, 0};
  for (Extent& extent : plan.chunk) extent = std::max<Extent>(extent, 1);
  // An array without elements has no chunks, and its other extents may be large.
  plan.chunk_bytes = element_count(shape).value_or(0) * element_size(dtype);
  if (max_chunk_bytes == 0 || plan.chunk_bytes <= max_chunk_bytes || shape.empty()) return plan;
  const std::uint64_t row = plan.chunk_bytes / plan.chunk[0];
  plan.chunk[0] = std::clamp<std::uint64_t>(max_chunk_bytes / row, 1, plan.chunk[0]);
  plan.chunk_bytes = row * plan.chunk[0];
  return plan;
}

Result<std::string> document_of(const ArrayPlan& plan, int level, const Value& attributes,
                                const Value* dimension_names) {
  std::string text;
  json::Writer out(text);
  out.begin_object();
  out.key("zarr_format"), out.u64(3);
  out.key("node_type"), out.string("array");
  write_list(out, "shape", plan.shape);
  out.key("data_type"), out.string(plan.type->name);
  out.key("chunk_grid"), begin_named(out, "regular");
  write_list(out, "chunk_shape", plan.chunk);
  end_named(out);
  out.key("chunk_key_encoding"), begin_named(out, "default");
  out.key("separator"), out.string("/");
  end_named(out);
  out.key("fill_value"), write_zero(out, dtype_class(plan.type->dtype));
  out.key("codecs"), out.begin_array();
  if (plan.type->swapped != 1) {
    begin_named(out, "bytes");
    out.key("endian"), out.string("little");
    end_named(out);
  } else {
    out.begin_object();
    out.key("name"), out.string("bytes");
    out.end_object();
  }
  if (level != 0) {
    begin_named(out, "zstd");
    out.key("level"), out.i64(level);
    out.key("checksum"), out.boolean(false);
    end_named(out);
  }
  out.end_array();
  out.key("attributes");
  STELE_TRY(json::write_value(out, attributes));
  if (dimension_names != nullptr) {
    out.key("dimension_names");
    STELE_TRY(json::write_value(out, *dimension_names));
  }
  out.end_object();
  return text;
}

struct Compressor::State {
  zstd::Compressor context = zstd::new_compressor();
};

Compressor::Compressor(int level) : state_(std::make_unique<State>()), buffer_(ZSTD_CStreamOutSize()) {
  ZSTD_CCtx_setParameter(state_->context.get(), ZSTD_c_compressionLevel, level);
}
Compressor::~Compressor() = default;

void Compressor::begin(std::uint64_t size) {
  ZSTD_CCtx_reset(state_->context.get(), ZSTD_reset_session_only);
  ZSTD_CCtx_setPledgedSrcSize(state_->context.get(), size);
  used_ = 0;
  flushed_ = false;
}

Status Compressor::put(std::span<const std::byte> bytes, bool last, Sink& to) {
  ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
  for (std::size_t left = 1; left != 0;) {
    ZSTD_outBuffer out{buffer_.data(), buffer_.size(), used_};
    left = ZSTD_compressStream2(state_->context.get(), &out, &in, last ? ZSTD_e_end : ZSTD_e_continue);
    if (ZSTD_isError(left) != 0) return Error(Errc::out_of_memory, "zstd has failed").found(ZSTD_getErrorName(left));
    if (!last) left = in.size - in.pos;
    used_ = out.pos;
    const bool ends = last && left == 0;
    if (ends && !flushed_) STELE_TRY(to.reserve(used_));
    if (!ends && used_ < buffer_.size()) continue;
    STELE_TRY(to.write(std::as_const(buffer_).span().first(used_)));
    used_ = 0;
    flushed_ = true;
  }
  return {};
}

ChunkWriter::ChunkWriter(Bundle& bundle, const std::string& name, const ArrayPlan& plan, Compressor* compressor)
    : bundle_(bundle),
      prefix_(name + (plan.chunk.empty() ? "/c" : "/c/")),
      chunk_(plan.chunk_bytes),
      compressor_(compressor) {
  for (std::size_t d = 1; d < plan.chunk.size(); ++d) suffix_ += "/0";
}

Status ChunkWriter::piece(std::span<const std::byte> bytes) {
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

Status ChunkWriter::finish() {
  static constexpr std::array<std::byte, 4096> zeros{};
  while (file_ != nullptr) {
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(zeros.size(), chunk_ - done_));
    STELE_TRY(piece(std::span(zeros).first(n)));
  }
  return {};
}

Status ChunkWriter::begin() {
  const bool scalar = prefix_.ends_with('c');
  STELE_TRY_ASSIGN(file_, bundle_.create(scalar ? prefix_ : prefix_ + std::to_string(number_++) + suffix_));
  if (compressor_ == nullptr) return file_->reserve(chunk_);
  compressor_->begin(chunk_);
  return {};
}

}  // namespace stele::inline v0::detail::zarr
