// Reads the header of one GGUF file.
#include "file.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "io/cursor.hpp"
#include "leaves/tensor_entry.hpp"
#include "pairs.hpp"
#include "types.hpp"

namespace stele::inline v0::detail::gguf {
namespace {

constexpr std::string_view split_number = "split.no", split_count = "split.count",
                           split_tensors = "split.tensors.count";

/// Maximum of split.count, which is a u16 in the files of llama.cpp.
constexpr std::uint64_t max_split_files = 0xffff;

class FileReader {
 public:
  FileReader(SourcePtr source, IndexBudget& memory) : in_(source), memory_(memory) { file_.source = std::move(source); }

  Result<File> run() {
    STELE_TRY(head());
    STELE_TRY(read_pairs(in_, pairs_, file_.pairs, memory_));
    STELE_TRY(settings());
    for (std::uint64_t i = 0; i < tensors_; ++i) STELE_TRY(entry());
    STELE_TRY(place());
    return std::move(file_);
  }

 private:
  Status head() {
    if (in_.left() < 24) {
      return Error(Errc::truncated, "the file is too short for its header")
          .expected("24 bytes")
          .found(std::to_string(in_.left()));
    }
    STELE_TRY_ASSIGN(const std::byte* magic, in_.take(4));
    if (std::memcmp(magic, "GGUF", 4) != 0)
      return Error(Errc::bad_magic, "the file does not begin with GGUF").offset(0);
    STELE_TRY_ASSIGN(const std::uint32_t version, in_.little<std::uint32_t>());
    if ((version & 0xffff) == 0) {
      return Error(Errc::unsupported, "the file is big-endian")
          .expected("little-endian GGUF")
          .offset(4)
          .hint("convert it with gguf-convert-endian of Python's gguf package");
    }
    if (version != 2 && version != 3) {
      return Error(Errc::unsupported, "this version of GGUF is unknown")
          .expected("2 or 3")
          .found(std::to_string(version))
          .offset(4);
    }
    STELE_TRY_ASSIGN(tensors_, in_.little<std::uint64_t>());
    STELE_TRY_ASSIGN(pairs_, in_.little<std::uint64_t>());
    // The smallest pair has 14 bytes; the smallest tensor entry has 25.
    if (tensors_ > in_.left() / 25 || pairs_ > in_.left() / 14) {
      return Error(Errc::truncated, "the file is too short for its tensors and key-value pairs")
          .expected(std::to_string(tensors_) + " tensors and " + std::to_string(pairs_) + " pairs")
          .found(std::to_string(in_.left()) + " bytes")
          .offset(8);
    }
    return {};
  }

  /// Returns an integer of the pairs, or nothing if it is absent. Errors: malformed.
  Result<std::optional<std::uint64_t>> integer(std::string_view key) const {
    const Value* const value = file_.pairs.values.find(key);
    if (value == nullptr) return std::optional<std::uint64_t>();
    const std::int64_t* const number = value->as_i64();
    if (number == nullptr || *number < 0) {
      return Error(Errc::malformed, "a key of the key-value pairs has another kind of value")
          .path(std::string(key))
          .expected("an integer of at least 0")
          .found(std::string(v0::name(value->kind())));
    }
    return std::optional(static_cast<std::uint64_t>(*number));
  }

  Status settings() {
    STELE_TRY_ASSIGN(const auto alignment, integer(alignment_key));
    if (alignment) {
      if (!valid_alignment(*alignment)) {
        return Error(Errc::malformed, "the alignment is invalid")
            .path(std::string(alignment_key))
            .expected("a power of two of at least 8")
            .found(std::to_string(*alignment));
      }
      alignment_ = *alignment;
    }
    STELE_TRY_ASSIGN(const auto count, integer(split_count));
    if (count) STELE_TRY(place_in_set(*count));
    auto& map = *file_.pairs.values.as_map();
    std::erase_if(map, [](const auto& pair) { return pair.first.starts_with(split_prefix); });
    std::erase_if(file_.pairs.types, [](const auto& pair) { return pair.first.starts_with(split_prefix); });
    return {};
  }

  Status place_in_set(std::uint64_t count) {
    STELE_TRY_ASSIGN(const auto number, integer(split_number));
    STELE_TRY_ASSIGN(const auto tensors, integer(split_tensors));
    if (count == 0 || count > max_split_files || !number || *number >= count || !tensors) {
      const auto shown = [](const std::optional<std::uint64_t>& n) { return n ? std::to_string(*n) : "none"; };
      return Error(Errc::malformed, "the file's position in its split set is invalid")
          .path(std::string(split_count))
          .expected("split.count from 1 to 65535, split.no below it, split.tensors.count")
          .found(std::to_string(count) + ", " + shown(number) + ", " + shown(tensors));
    }
    file_.split = {count, *number, *tensors};
    return {};
  }

  Error bad(Errc code, const char* text) const { return Error(code, text).path(name_).offset(start_); }

  Status entry() {
    start_ = in_.position();
    STELE_TRY_ASSIGN(name_, read_string(in_, memory_, "a name"));
    if (const char* const why = bad_name(name_)) {
      return bad(Errc::malformed, "a tensor's name is invalid").expected("UTF-8 without a zero byte").found(why);
    }
    STELE_TRY_ASSIGN(const std::uint32_t rank, in_.little<std::uint32_t>());
    if (rank > max_rank) {
      return bad(Errc::malformed, "the tensor has too many dimensions")
          .expected("at most 4")
          .found(std::to_string(rank));
    }
    // The vector of entries grows: it temporarily needs three times its content.
    if (!memory_.take(3 * sizeof(TensorEntry) + leaf_memory + rank * sizeof(Extent) + name_.size())) {
      return index_error("the tensors' names and shapes need more memory than the file's size allows");
    }
    TensorEntry& entry = file_.tensors.emplace_back();
    entry.name = file_.names.add(name_);
    entry.rank = static_cast<std::uint8_t>(rank);
    ElementCounter counter;
    for (std::uint32_t i = rank; i-- > 0;) {
      STELE_TRY_ASSIGN(entry.extents[i], in_.little<std::uint64_t>());
      counter.add(entry.extents[i]);
    }
    STELE_TRY_ASSIGN(const std::uint32_t type, in_.little<std::uint32_t>());
    STELE_TRY_ASSIGN(entry.offset, in_.little<std::uint64_t>());
    entry.dtype = dtype_of(type);
    entry.type = type;
    memory_.admit(in_.position() - start_ - name_.size(), index_rate::index);  // read_string() has admitted the name
    if (entry.dtype == DType::none) {                                          // place() computes its size
      if (memory_.take(unreadable_memory + unknown_type(type).size())) return {};
      return index_error("the tensors' names and shapes need more memory than the file's size allows");
    }
    const std::span<const Extent> shape(entry.extents, rank);
    if (const std::uint64_t row = block_size(entry.dtype).elements; row != 0) {
      const Extent last = rank != 0 ? entry.extents[rank - 1] : 1;
      if (last % row != 0) {
        return bad(Errc::malformed, "the tensor's rows are not whole blocks")
            .expected("a multiple of " + std::to_string(row) + " for " + std::string(v0::name(entry.dtype)))
            .found(to_string(shape));
      }
    }
    const auto count = counter.count();
    const auto bytes = count ? byte_length(entry.dtype, *count) : std::nullopt;
    if (!bytes || *bytes > UINT64_MAX / 2) {
      return bad(Errc::malformed, "the tensor's size overflows 64 bits").found(to_string(shape));
    }
    entry.bytes = *bytes;
    return {};
  }

  std::uint64_t aligned(std::uint64_t n) const { return (n + alignment_ - 1) / alignment_ * alignment_; }

  /// Checks that every byte of the data belongs to exactly one tensor or its padding, in order. After the last tensor,
  /// MLX writes no padding.
  Status place() {
    const std::uint64_t size = file_.source->size();
    if (file_.tensors.empty()) {
      if (size > aligned(in_.position())) return trailing(in_.position());
      return {};
    }
    const std::uint64_t data = aligned(in_.position());
    std::uint64_t at = 0;
    for (std::size_t i = 0; i < file_.tensors.size(); ++i) {
      TensorEntry& entry = file_.tensors[i];
      name_ = entry.name;
      start_ = data + at;
      if (entry.offset != at) {
        return bad(Errc::malformed, "the tensor does not begin directly after the previous tensor and its padding")
            .expected(std::to_string(at))
            .found(std::to_string(entry.offset));
      }
      const bool last = i + 1 == file_.tensors.size();
      if (entry.dtype == DType::none) {  // ends at the next tensor
        const std::uint64_t end = !last ? file_.tensors[i + 1].offset : size > data ? size - data : 0;
        entry.bytes = end > at ? end - at : 0;
      }
      const std::uint64_t left = data > size || at > size - data ? 0 : size - data - at;
      const std::uint64_t padded =
          last ? std::max(entry.bytes, std::min(aligned(entry.bytes), left)) : aligned(entry.bytes);
      if (data > size || padded > left) {
        return bad(Errc::truncated,
                   last ? "the file ends before the tensor does" : "the file ends before the tensor and its padding do")
            .expected(std::to_string(padded) + " bytes")
            .found(std::to_string(left));
      }
      entry.offset = data + at;
      at += padded;
    }
    return size == data + at ? Status() : Status(trailing(data + at));
  }
  Error trailing(std::uint64_t end) const {
    return Error(Errc::malformed, "bytes follow the last tensor")
        .expected(std::to_string(end) + " bytes")
        .found(std::to_string(file_.source->size()))
        .offset(end);
  }

  Cursor in_;
  IndexBudget& memory_;
  File file_;
  std::uint64_t tensors_ = 0, pairs_ = 0;
  std::uint64_t alignment_ = default_alignment;
  std::string name_;         // name of the current tensor, for errors
  std::uint64_t start_ = 0;  // offset of its entry or data
};

}  // namespace

Result<File> read_file(const SourcePtr& source, IndexBudget& memory) {
  auto file = FileReader(source, memory).run();
  if (file || !file.error().file().empty()) return file;
  return std::move(file).error().file(source->name());
}

}  // namespace stele::inline v0::detail::gguf
