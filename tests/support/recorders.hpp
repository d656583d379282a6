// Lists of recorders with common behaviour, and the tests' expectations of all of them.
#pragma once

#include <stele/recorders/archive.hpp>
#include <stele/recorders/burn.hpp>
#include <stele/recorders/gguf.hpp>
#include <stele/recorders/numpy.hpp>
#include <stele/recorders/onnx.hpp>
#include <stele/recorders/pytorch.hpp>
#include <stele/stele.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

/// The recorders with common behaviour.
#define STELE_TEST_RECORDERS                                                                                  \
  stele::BinaryRecorder<>, stele::BytesRecorder<>, stele::CompressedRecorder<>, stele::SafetensorsRecorder<>, \
      stele::MemoryRecorder<stele::SafetensorsFormat>, stele::JsonRecorder<>,                                 \
      stele::Recorder<stele_test::ReadableJsonFormat>, stele::ArchiveRecorder<>, stele::BurnpackRecorder<>,   \
      stele::OnnxRecorder<>, stele::PytorchRecorder<>, stele::NpzRecorder<>

/// The formats whose files are read in parts.
#define STELE_TEST_FORMATS                                                                                 \
  stele::SteleFormat, stele::CompressedSteleFormat, stele::SafetensorsFormat, stele_test::PlainJsonFormat, \
      stele_test::ZstdJsonFormat, stele::ArchiveFormat, stele::BurnpackFormat, stele::OnnxFormat,          \
      stele::PytorchFormat, stele::NpzFormat

namespace stele_test {

struct PlainJsonFormat : stele::JsonFormat {
  PlainJsonFormat() : JsonFormat({.encoding = stele::JsonEncoding::plain}) {}
};
struct ZstdJsonFormat : stele::JsonFormat {
  ZstdJsonFormat() : JsonFormat({.encoding = stele::JsonEncoding::zstd}) {}
};
struct GzipJsonFormat : stele::JsonFormat {
  GzipJsonFormat() : JsonFormat({.encoding = stele::JsonEncoding::gzip}) {}
};
/// Writes numbers instead of base64 for all but large tensors, and one line for each member.
struct ReadableJsonFormat : stele::JsonFormat {
  ReadableJsonFormat() : JsonFormat({.encoding = stele::JsonEncoding::plain, .pretty = true, .numbers_up_to = 2000}) {}
};
/// True for text formats, in which some bytes have no meaning or are invalid in some places.
template <class F>
inline constexpr bool is_json_format = std::is_base_of_v<stele::JsonFormat, F>;
template <class R>
inline constexpr bool is_json = is_json_format<typename R::format_type>;

/// True for zip files, in which some bits do not matter: dates, versions and attributes.
template <class R>
inline constexpr bool is_zip = std::is_same_v<typename R::format_type, stele::ArchiveFormat> ||
                               std::is_same_v<typename R::format_type, stele::PytorchFormat> ||
                               std::is_same_v<typename R::format_type, stele::NpzFormat>;

/// The recorder R with another precision.
template <class R, class Settings>
struct at_precision;
template <class F, class Old, class Settings>
struct at_precision<stele::Recorder<F, Old>, Settings> {
  using type = stele::Recorder<F, Settings>;
};
template <class F, class Old, class Settings>
struct at_precision<stele::MemoryRecorder<F, Old>, Settings> {
  using type = stele::MemoryRecorder<F, Settings>;
};
template <class Old, class Settings>
struct at_precision<stele::ArchiveRecorder<Old>, Settings> {
  using type = stele::ArchiveRecorder<Settings>;
};
template <class F, class Old, class Settings>
struct at_precision<stele::CheckpointRecorder<F, Old>, Settings> {
  using type = stele::CheckpointRecorder<F, Settings>;
};
template <class R, class Settings>
using at_precision_t = typename at_precision<R, Settings>::type;

template <class R>
const stele::Capabilities& can() {
  static const R recorder;
  return recorder.format().capabilities();
}

template <class R>
bool holds(stele::DType dtype) {
  return can<R>().holds == nullptr || can<R>().holds(dtype);
}

inline std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

/// Returns options without durability, which takes time and is not needed by tests of bytes.
inline stele::SaveOptions quick() {
  stele::SaveOptions options;
  options.file.durability = stele::Durability::process;
  return options;
}

template <class R, class M>
stele::Result<stele::Bytes> saved(const R& recorder, const M& module, const stele::SaveOptions& options = {}) {
  stele::BufferSink sink;
  if (auto r = recorder.save(module, sink, options); !r) return std::move(r).error();
  return sink.take();
}

/// Returns the bytes of a leaf. Streams them, so that the format verifies them as far as it can.
inline stele::Result<std::string> content(const stele::LeafView& leaf) {
  class Collect final : public stele::PieceSink {
   public:
    stele::Status piece(std::span<const std::byte> bytes) override {
      all += text_of(bytes);
      return {};
    }
    std::string all;
  } sink;
  stele::ReadContext context;
  if (auto r = leaf.stream(sink, context); !r) return std::move(r).error();
  return std::move(sink.all);
}

/// Returns the bytes in file order.
inline std::string in_file_order(std::string bytes, stele::DType dtype) {
  const std::size_t unit = stele::swap_unit(dtype);
  for (std::size_t i = 0; std::endian::native == std::endian::big && i < bytes.size(); i += unit) {
    std::reverse(bytes.data() + i, bytes.data() + i + unit);
  }
  return bytes;
}

/// Returns true if the bytes are valid for the dtype: a bool must be 0 or 1.
inline bool means_something(stele::DType dtype, std::string_view bytes) {
  return dtype != stele::DType::boolean || bytes.find_first_not_of(std::string_view("\0\1", 2)) == bytes.npos;
}

template <class T>
stele::Errc code_of(const stele::Result<T>& result) {
  return result ? stele::Errc::none : result.error().code();
}

template <class T>
std::string why(const stele::Result<T>& result) {
  return result ? std::string("ok") : result.error().to_string();
}

}  // namespace stele_test
