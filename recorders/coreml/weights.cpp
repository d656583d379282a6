// Reads files of weights, and adds tensors to the Snapshot.
#include <algorithm>
#include <cstring>
#include <utility>

#include "leaves/source_range.hpp"
#include "model.hpp"
#include "snapshot/tensor_index.hpp"
#include "stele/detail/little_endian.hpp"

namespace stele::inline v0::detail::coreml {
namespace {

constexpr std::uint64_t record_bytes = 64, alignment = 64;
constexpr std::uint32_t sentinel = 0xdeadbeef, version = 2;

/// mlmodel/src/MILBlob/Blob/BlobDataType.hpp of coremltools 9.0, by number.
struct BlobType {
  const char* name;
  DType dtype;
};
constexpr BlobType blob_types[] = {{"", DType::none},
                                   {"f16", DType::f16},
                                   {"f32", DType::f32},
                                   {"u8", DType::u8},
                                   {"i8", DType::i8},
                                   {"bf16", DType::bf16},
                                   {"i16", DType::i16},
                                   {"u16", DType::u16},
                                   {"i4", DType::i4},
                                   {"u1", DType::none},
                                   {"u2", DType::none},
                                   {"u4", DType::u4},
                                   {"u3", DType::none},
                                   {"u6", DType::none},
                                   {"i32", DType::i32},
                                   {"u32", DType::u32},
                                   {"f8e4m3fn", DType::f8_e4m3fn},
                                   {"f8e5m2", DType::f8_e5m2}};

}  // namespace

Status Tensors::spend(std::uint64_t bytes) {
  return memory_.take(bytes) ? Status()
                             : index_error("the model's index needs more memory than the file's size allows");
}

Result<std::string> Tensors::unique(std::string name) {
  const auto [at, is_new] = names_.try_emplace(name, 1);
  std::uint32_t& last = at->second;  // remains valid when the table grows
  STELE_TRY(spend(4 * name.size() + 128));
  if (is_new && !name.empty()) return name;
  for (;;) {
    std::string next = name + "#" + std::to_string(++last);
    STELE_TRY(spend(4 * next.size() + 128));
    if (names_.contains(next)) continue;
    names_.emplace(next, 1);
    return next;
  }
}

Result<std::string> Tensors::add(std::string name, DType dtype, const std::vector<Extent>& shape, std::uint64_t bytes,
                                 Provider provider, const std::string& unreadable) {
  STELE_TRY_ASSIGN(name, unique(std::move(name)));
  STELE_TRY(add_entry(to_, {name, dtype, shape, bytes, provider, unreadable}, memory_));
  return name;
}

Result<std::string> Tensors::add(std::string name, Value value) {
  STELE_TRY_ASSIGN(name, unique(std::move(name)));
  STELE_TRY(spend(3 * sizeof(Node) + 3 * sizeof(Value) + 2 * name.size()));
  to_.value(to_.intern(name), std::move(value));
  return name;
}

Result<Blob> read_blob(const Source& weights, std::uint64_t at) {
  const auto bad = [&](const char* message) { return Error(Errc::malformed, message).file(weights.name()).offset(at); };
  if (at % alignment != 0 || at > weights.size() || weights.size() - at < record_bytes) {
    return bad("the place of a blob is outside the file of weights, or not a multiple of 64");
  }
  std::byte record[record_bytes];
  STELE_TRY(weights.read_at(at, record));
  if (load_le<std::uint32_t>(record) != sentinel) return bad("a blob does not begin with 0xDEADBEEF");
  Blob blob{load_le<std::uint32_t>(record + 4), load_le<std::uint64_t>(record + 16), load_le<std::uint64_t>(record + 8),
            load_le<std::uint64_t>(record + 24)};
  if (blob.offset > weights.size() || blob.size > weights.size() - blob.offset) {
    return bad("a blob is larger than the file of weights")
        .expected(std::to_string(blob.size) + " bytes at " + std::to_string(blob.offset))
        .found("a file of " + std::to_string(weights.size()) + " bytes");
  }
  return blob;
}

bool is_weights(std::span<const std::byte> head, std::uint64_t size) noexcept {
  if (head.size() < record_bytes || load_le<std::uint32_t>(head.data() + 4) != version) return false;
  if (std::any_of(head.begin() + 8, head.begin() + record_bytes, [](std::byte b) { return b != std::byte{0}; })) {
    return false;
  }
  const std::uint32_t count = load_le<std::uint32_t>(head.data());
  if (size == record_bytes) return count == 0;
  return count != 0 && head.size() >= record_bytes + 4 &&
         load_le<std::uint32_t>(head.data() + record_bytes) == sentinel;
}

Status read_weights(const SourcePtr& weights, Tensors& to) {
  std::byte header[record_bytes];
  STELE_TRY(weights->read_at(0, header));
  const std::uint32_t count = load_le<std::uint32_t>(header);
  to.owned.sources.push_back(weights);
  std::uint64_t at = record_bytes;
  for (std::uint32_t i = 0; i < count; ++i) {
    STELE_TRY_ASSIGN(const Blob blob, read_blob(*weights, at));
    if (blob.offset < at + record_bytes) {
      return Error(Errc::malformed, "the elements of a blob precede its record").file(weights->name()).offset(at);
    }
    const BlobType type = blob.type < std::size(blob_types) ? blob_types[blob.type] : BlobType{"", DType::none};
    const unsigned width = bits(type.dtype);
    std::string unreadable;
    std::uint64_t elements = 0;
    if (width == 0) {
      unreadable = *type.name != '\0' ? "elements of the type " + std::string(type.name)
                                      : "elements of the type number " + std::to_string(blob.type);
    } else if (width < 8) {
      elements = blob.size > UINT64_MAX / 8 || blob.padding_bits > 7
                     ? 0
                     : (blob.size * 8 - std::min(blob.size * 8, blob.padding_bits)) / width;
      if (byte_length(type.dtype, elements) != blob.size) unreadable = "elements with padding of another size";
    } else if (blob.size % (width / 8) != 0) {
      unreadable = "a part of an element";
    } else {
      elements = blob.size / (width / 8);
    }
    STELE_TRY(to.add(std::to_string(i), type.dtype, {static_cast<Extent>(elements)}, blob.size,
                     {&source_ops, weights.get(), blob.offset}, unreadable));
    const std::uint64_t end = blob.offset + blob.size;  // at most the size of the file
    at = end + (alignment - end % alignment) % alignment;
  }
  return {};
}

}  // namespace stele::inline v0::detail::coreml
