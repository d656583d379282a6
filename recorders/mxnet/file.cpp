// Reads lists of arrays and of their names.
#include "file.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/in_file.hpp"
#include "io/cursor.hpp"
#include "stele/detail/little_endian.hpp"

namespace stele::inline v0::detail::mxnet {
namespace {

/// By the number of a dtype in mshadow::TypeFlag (3rdparty/mshadow/mshadow/base.h).
constexpr std::array<DType, 13> dtypes = {DType::f32, DType::f64, DType::f16,     DType::u8,  DType::i32,
                                          DType::i8,  DType::i64, DType::boolean, DType::i16, DType::u16,
                                          DType::u32, DType::u64, DType::bf16};

/// Storage types (include/mxnet/ndarray.h).
constexpr std::int32_t dense = 0, row_sparse = 1, csr = 2;

constexpr std::int32_t cpu = 1;

class ParamsReader {
 public:
  ParamsReader(SourcePtr source, IndexBudget& memory) : in_(std::move(source)), memory_(memory) {}

  Result<Contents> run() {
    STELE_TRY_ASSIGN(const std::uint64_t begin, in_.little<std::uint64_t>());
    STELE_TRY_ASSIGN(const std::uint64_t reserved, in_.little<std::uint64_t>());
    if (begin != magic || reserved != 0) return Error(Errc::bad_magic, "the file is not a list of arrays").offset(0);
    STELE_TRY_ASSIGN(const std::uint64_t count, in_.little<std::uint64_t>());
    STELE_TRY(check_count(count, min_array_bytes));
    memory_.admit(header_bytes, index_rate::index);
    if (!memory_.take(count * sizeof(Array))) return too_many();
    out_.arrays.reserve(static_cast<std::size_t>(count));
    for (std::uint64_t i = 0; i < count; ++i) STELE_TRY(array());
    STELE_TRY(names());
    STELE_TRY_ASSIGN(const bool ended, in_.at_end());
    if (!ended) {
      return Error(Errc::malformed, "bytes follow the last name")
          .offset(in_.position())
          .found(std::to_string(in_.left()) + " bytes");
    }
    return std::move(out_);
  }

 private:
  /// Size of the smallest array: the number of its axes, 0, in the oldest layout.
  static constexpr std::uint64_t min_array_bytes = 4;

  static Error too_many() {
    return index_error("the arrays' names and shapes need more memory than the file's size allows");
  }
  /// Returns an error about the array that begins at begin_.
  Error bad(Errc code, const char* what) const { return Error(code, what).offset(begin_); }

  Status check_count(std::uint64_t count, std::uint64_t min_bytes) const {
    if (count <= in_.left() / min_bytes) return {};
    return Error(Errc::truncated, "the file is too short for the number of its entries")
        .offset(in_.position() - 8)
        .expected("at most " + std::to_string(in_.left() / min_bytes))
        .found(std::to_string(count));
  }

  /// Reads extents of type E, and appends them to `out`. Returns false if an extent is unknown (-1).
  template <class E>
  Result<bool> extents(std::uint32_t rank, std::vector<Extent>& out) {
    if (rank > max_rank) {
      return bad(Errc::malformed, "the array has too many axes")
          .expected("at most " + std::to_string(max_rank))
          .found(std::to_string(rank));
    }
    if (!memory_.take(3 * std::uint64_t{rank} * sizeof(Extent))) return too_many();
    bool known = true;
    for (std::uint32_t i = 0; i < rank; ++i) {
      STELE_TRY_ASSIGN(const E extent, in_.little<E>());
      if (std::is_signed_v<E> && extent < E{0}) {
        if (static_cast<std::int64_t>(extent) != -1) {
          return bad(Errc::malformed, "an extent is negative").found(std::to_string(extent));
        }
        known = false;
      }
      out.push_back(static_cast<Extent>(extent));
    }
    return known;
  }

  /// Reads the number of axes, and the extents. Returns nullopt if the shape is unknown.
  Result<std::optional<std::uint32_t>> shape(std::vector<Extent>& out) {
    STELE_TRY_ASSIGN(const std::uint32_t rank, in_.little<std::uint32_t>());
    if (rank == UINT32_MAX) return std::optional<std::uint32_t>();
    STELE_TRY_ASSIGN(const bool known, extents<std::int64_t>(rank, out));
    return known ? std::optional(rank) : std::nullopt;
  }

  /// Returns the size of an array whose dtype has the number `code`.
  Result<std::uint64_t> size_of(std::uint32_t code, std::span<const Extent> shape, DType& dtype) const {
    if (code >= dtypes.size()) {
      return bad(Errc::unsupported, "the dtype of an array is unknown, so that the place of the next array is, too")
          .expected("0 to " + std::to_string(dtypes.size() - 1))
          .found(std::to_string(static_cast<std::int32_t>(code)));
    }
    dtype = dtypes[code];
    const auto count = element_count(shape);
    const auto bytes = count ? byte_length(dtype, *count) : std::nullopt;
    if (!bytes) return bad(Errc::malformed, "the size of an array overflows 64 bits").found(to_string(shape));
    return *bytes;
  }

  Status array() {
    begin_ = in_.position();
    Array& array = out_.arrays.emplace_back();
    array.extents = out_.extents.size();
    STELE_TRY_ASSIGN(const std::uint32_t word, in_.little<std::uint32_t>());
    const auto version = static_cast<Version>(word);
    const bool typed = version == Version::v2 || version == Version::v3;
    out_.v3 = out_.v3 || version == Version::v3;
    std::int32_t storage = dense;
    std::vector<Extent> stored;  // the shape of the elements that a sparse array stores
    if (typed) {
      STELE_TRY_ASSIGN(storage, in_.little<std::int32_t>());
      if (storage < dense || storage > csr) {
        return bad(Errc::unsupported, "the storage type of an array is unknown")
            .expected("0 to 2")
            .found(std::to_string(storage));
      }
      if (storage != dense) STELE_TRY(shape(stored));
    }
    std::optional<std::uint32_t> rank = word;  // the oldest layout begins with it
    if (typed || version == Version::v1) {
      STELE_TRY_ASSIGN(rank, shape(out_.extents));
    } else {
      STELE_TRY(extents<std::uint32_t>(word, out_.extents));
    }
    if (!rank || (*rank == 0 && version != Version::v3)) {  // nothing follows
      out_.extents.resize(array.extents);
      array.offset = in_.position();
      array.reason = "an array without a shape";
      memory_.admit(in_.position() - begin_, index_rate::index);
      return {};
    }
    array.rank = *rank;
    STELE_TRY(in_.skip(8));  // device
    STELE_TRY_ASSIGN(const std::uint32_t code, in_.little<std::uint32_t>());
    if (storage == dense) {
      STELE_TRY_ASSIGN(array.bytes, size_of(code, out_.shape(array), array.dtype));
    } else {
      STELE_TRY(sparse(array, code, storage, std::move(stored)));
    }
    array.offset = in_.position();
    memory_.admit(array.offset - begin_, index_rate::index);
    return in_.skip(array.bytes);
  }

  /// Reads the dtypes and shapes of a sparse array's indices. The elements of the array and of its indices follow them.
  Status sparse(Array& array, std::uint32_t code, std::int32_t storage, std::vector<Extent> stored) {
    std::vector<Extent> extents;                  // of the last list of indices
    for (std::int32_t i = 0; i < storage; ++i) {  // row_sparse has one list of indices, csr has two
      STELE_TRY_ASSIGN(const std::uint32_t type, in_.little<std::uint32_t>());
      extents.clear();
      STELE_TRY_ASSIGN(const auto rank, shape(extents));
      if (!rank) return bad(Errc::malformed, "the shape of a sparse array's indices is unknown");
      DType dtype = DType::none;
      STELE_TRY_ASSIGN(const std::uint64_t bytes, size_of(type, extents, dtype));
      STELE_TRY(add_bytes(array, bytes));
    }
    // MXNet stores an empty shape if an array is saved before it is computed, and reads the number of elements from the
    // indices: of the rows, or of the columns.
    if (element_count(stored) == 0 && !extents.empty() && array.rank != 0) {
      if (storage == row_sparse) {
        const auto whole = out_.shape(array);
        stored.assign(whole.begin(), whole.end());
        stored[0] = extents[0];
      } else {
        stored = extents;
      }
    }
    DType dtype = DType::none;
    STELE_TRY_ASSIGN(const std::uint64_t bytes, size_of(code, stored, dtype));
    array.reason = storage == row_sparse ? "a sparse array (row_sparse)" : "a sparse array (csr)";
    return add_bytes(array, bytes);
  }

  Status add_bytes(Array& array, std::uint64_t bytes) const {
    if (!__builtin_add_overflow(array.bytes, bytes, &array.bytes)) return {};
    return bad(Errc::malformed, "the size of an array overflows 64 bits");
  }

  Status names() {
    STELE_TRY_ASSIGN(const std::uint64_t count, in_.little<std::uint64_t>());
    if (count != 0 && count != out_.arrays.size()) {
      return Error(Errc::malformed, "the number of names differs from that of arrays")
          .offset(in_.position() - 8)
          .expected(std::to_string(out_.arrays.size()))
          .found(std::to_string(count));
    }
    STELE_TRY(check_count(count, 8));
    memory_.admit(8 * count, index_rate::index);
    if (!memory_.take(count * sizeof(std::string))) return too_many();
    out_.names.reserve(static_cast<std::size_t>(count));
    for (std::uint64_t i = 0; i < count; ++i) {
      STELE_TRY_ASSIGN(const std::uint64_t size, in_.little<std::uint64_t>());
      memory_.admit(std::min(size, in_.left()), index_rate::index);
      if (!memory_.take(2 * size)) return too_many();
      STELE_TRY(in_.text(size, out_.names.emplace_back()));
    }
    return {};
  }

  Cursor in_;
  IndexBudget& memory_;
  Contents out_;
  std::uint64_t begin_ = 0;  // offset of the current array
};

}  // namespace

int code_of(DType dtype) noexcept {
  const auto* const found = std::find(dtypes.begin(), dtypes.end(), dtype);
  return found != dtypes.end() ? static_cast<int>(found - dtypes.begin()) : -1;
}

Result<Contents> read_file(const SourcePtr& source, IndexBudget& memory) {
  return in_file(ParamsReader(source, memory).run(), source->name());
}

std::vector<std::byte> head_of(DType dtype, std::span<const Extent> shape, bool v3) {
  std::vector<std::byte> out;
  const auto number = [&](auto value) {
    std::byte raw[sizeof value];
    store_le(raw, value);
    out.insert(out.end(), raw, raw + sizeof value);
  };
  number(static_cast<std::uint32_t>(v3 ? Version::v3 : Version::v2));
  number(dense);
  number(static_cast<std::int32_t>(shape.size()));
  for (const Extent extent : shape) number(std::uint64_t{extent});
  number(cpu);
  number(std::int32_t{0});
  number(static_cast<std::int32_t>(code_of(dtype)));
  return out;
}

}  // namespace stele::inline v0::detail::mxnet
