// Reads and writes the headers of records.
#include "record.hpp"

#include <algorithm>
#include <limits>

#include "stele/bytes.hpp"
#include "stele/detail/little_endian.hpp"

namespace stele::inline v0::detail::paddle {
namespace {

constexpr std::array<std::pair<std::uint8_t, DType>, 17> dtypes = {{
    {0, DType::boolean},
    {1, DType::i16},
    {2, DType::i32},
    {3, DType::i64},
    {4, DType::f16},
    {5, DType::f32},
    {6, DType::f64},
    {20, DType::u8},
    {21, DType::i8},
    {22, DType::bf16},
    {23, DType::c64},
    {24, DType::c128},
    {32, DType::f8_e4m3fn},
    {33, DType::f8_e5m2},
    {37, DType::u32},
    {38, DType::u64},
    {19, DType::u64},  // SIZE_T; after UINT64, so that u64 is written as UINT64
}};

// Maximum number of LoD levels, checked before memory is allocated. Real files have two.
constexpr std::uint64_t max_levels = 64;
constexpr std::int64_t max_desc = 64 << 10;

/// Reads the bytes of a source in order, through a small read-ahead buffer.
class Cursor {
 public:
  Cursor(const Source& source, std::uint64_t at, std::uint64_t end) : source_(source), at_(at), end_(end) {}
  std::uint64_t at() const noexcept { return at_; }
  std::uint64_t left() const noexcept { return end_ - at_; }
  Status take(std::span<std::byte> out) {
    if (out.size() > left()) return cut_off(out.size());
    if (out.size() > buffer_.size()) {
      STELE_TRY(source_.read_at(at_, out));
    } else {
      if (at_ < begin_ || at_ + out.size() > begin_ + filled_) {
        begin_ = at_;
        filled_ = static_cast<std::size_t>(std::min<std::uint64_t>(left(), buffer_.size()));
        STELE_TRY(source_.read_at(begin_, {buffer_.data(), filled_}));
      }
      std::copy_n(buffer_.data() + (at_ - begin_), out.size(), out.data());
    }
    at_ += out.size();
    return {};
  }
  template <class T>
  Status take(T& out) {
    std::byte raw[sizeof(T)] = {};
    STELE_TRY(take(std::span<std::byte>(raw)));
    out = load_le<T>(raw);
    return {};
  }
  Error cut_off(std::uint64_t wanted) const {
    return Error(Errc::truncated, "the record is truncated")
        .offset(at_)
        .expected(std::to_string(wanted) + " bytes")
        .found(std::to_string(left()));
  }

 private:
  const Source& source_;
  std::uint64_t at_, end_;
  std::uint64_t begin_ = 0;
  std::size_t filled_ = 0;
  std::array<std::byte, 256> buffer_;
};

Error bad(const char* what, std::uint64_t at, std::string_view expected, std::string_view found) {
  return Error(Errc::malformed, what).offset(at).expected(expected).found(found);
}

/// Checks levels of detail, by the rules of CheckLoD (lod_tensor.cc): offsets begin at 0 and do not descend. The last
/// offset is the number of offset ranges on the next level; on the last level, the tensor's number of rows.
Status check_lod(const std::vector<std::vector<std::uint64_t>>& lod, std::span<const Extent> shape, std::uint64_t at) {
  for (std::size_t i = 0; i < lod.size(); ++i) {
    const auto& level = lod[i];
    const bool last = i + 1 == lod.size();
    const std::uint64_t wanted = !last ? lod[i + 1].size() - 1 : shape.empty() ? 1 : shape[0];
    if (level.size() >= 2 && level.front() == 0 && std::is_sorted(level.begin(), level.end()) && level.back() == wanted)
      continue;
    return bad("the LoD does not match the tensor", at, "offsets from 0 to " + std::to_string(wanted),
               "other offsets on level " + std::to_string(i));
  }
  return {};
}

Status read_lod(Cursor& in, std::uint64_t levels, std::vector<std::vector<std::uint64_t>>& lod, IndexBudget& memory) {
  for (std::uint64_t i = 0; i < levels; ++i) {
    const std::uint64_t at = in.at();
    std::uint64_t bytes = 0;
    STELE_TRY(in.take(bytes));
    if (bytes % 8 != 0)
      return bad("the size of a LoD level is not a multiple of 8", at, "a multiple of 8 bytes", std::to_string(bytes));
    if (bytes < 16) return bad("the LoD level is too short", at, "at least two offsets", std::to_string(bytes / 8));
    if (bytes > in.left()) return in.cut_off(bytes);
    // Charges the numbers, the Values of the record, and the Values of the Snapshot.
    const std::uint64_t cost = bytes / 8 * (2 * sizeof(Value) + 8) + 256;
    if (!memory.take(cost)) return index_error("the LoD is too large for a file of this size").offset(at);
    auto& level = lod.emplace_back(static_cast<std::size_t>(bytes / 8));
    STELE_TRY(in.take(std::as_writable_bytes(std::span(level))));
    for (std::uint64_t& offset : level) offset = load_le<std::uint64_t>(reinterpret_cast<const std::byte*>(&offset));
  }
  return {};
}

}  // namespace

DType dtype_of(std::uint64_t code) noexcept {
  const auto found = std::find_if(dtypes.begin(), dtypes.end(), [&](const auto& d) { return d.first == code; });
  return found != dtypes.end() ? found->second : DType::none;
}

std::uint8_t code_of(DType dtype) noexcept {
  const auto found = std::find_if(dtypes.begin(), dtypes.end(), [&](const auto& d) { return d.second == dtype; });
  return found != dtypes.end() ? found->first : std::uint8_t{0xff};
}

Status read_desc(protobuf::Reader in, DType& dtype, std::vector<std::int64_t>& extents) {
  bool typed = false;
  while (in.next()) {
    if (in.is(1)) {
      const std::uint64_t code = in.number();
      STELE_TRY(in.status());
      dtype = dtype_of(code);
      if (dtype == DType::none) {
        return Error(Errc::unsupported, "dense tensors cannot have the dtype").found("number " + std::to_string(code));
      }
      typed = true;
    } else if (in.is(2) && in.has_length()) {  // accepted, as protobuf requires: packed extents
      protobuf::Reader list = in.message();
      for (std::uint64_t extent = 0; extents.size() <= max_rank && list.varint(extent);) {
        extents.push_back(static_cast<std::int64_t>(extent));
      }
      STELE_TRY(list.status());
    } else if (in.is(2)) {
      extents.push_back(static_cast<std::int64_t>(in.number()));
    }
    if (extents.size() > max_rank) {
      return Error(Errc::limit, "the tensor has too many dimensions").expected("at most 9");
    }
  }
  STELE_TRY(in.status());
  if (!typed) return Error(Errc::malformed, "the tensor description has no dtype");
  return {};
}

Result<Entry> read_record(const Source& source, std::uint64_t offset, std::uint64_t end, IndexBudget& memory) {
  Cursor in(source, offset, end);
  Entry record;
  std::uint32_t version = 0;
  std::uint64_t levels = 0;
  STELE_TRY(in.take(version));
  const auto check_version = [&]() -> Status {
    if (version == 0) return {};
    return Error(Errc::unsupported, "the record version is not supported")
        .offset(in.at() - 4)
        .expected("0")
        .found(std::to_string(version));
  };
  STELE_TRY(check_version());
  STELE_TRY(in.take(levels));
  if (levels > max_levels) {
    return bad("the LoD has too many levels", in.at() - 8, "at most " + std::to_string(max_levels),
               std::to_string(levels));
  }
  std::vector<std::vector<std::uint64_t>> lod;
  const std::uint64_t lod_at = in.at();
  STELE_TRY(read_lod(in, levels, lod, memory));
  STELE_TRY(in.take(version));
  STELE_TRY(check_version());
  std::uint32_t raw = 0;
  STELE_TRY(in.take(raw));
  const auto size = static_cast<std::int32_t>(raw);
  if (size < 2 || size > max_desc) {
    return bad("the length of the tensor description is out of range", in.at() - 4, "2 to 65536 bytes",
               std::to_string(size));
  }
  const std::uint64_t desc_at = in.at();
  if (static_cast<std::uint64_t>(size) > in.left()) return in.cut_off(static_cast<std::uint64_t>(size));
  Bytes desc(static_cast<std::size_t>(size));
  STELE_TRY(in.take(desc.span()));
  std::vector<std::int64_t> extents;
  if (auto r = read_desc(protobuf::Reader(desc.span(), desc_at), record.dtype, extents); !r) {
    return r.error().offset() ? std::move(r).error() : std::move(r).error().offset(desc_at);
  }
  for (const std::int64_t extent : extents) {
    if (extent < 0) return bad("an extent is negative", desc_at, "at least 0", std::to_string(extent));
    record.extents[record.rank++] = static_cast<Extent>(extent);
  }
  STELE_TRY(check_lod(lod, record.shape(), lod_at));
  const auto count = element_count(record.shape());
  const auto bytes = count ? byte_length(record.dtype, *count) : std::nullopt;
  if (!bytes) {
    return bad("the size of the tensor overflows 64 bits", desc_at, "", to_string(record.shape()));
  }
  if (*bytes > in.left()) return in.cut_off(*bytes);
  record.data = in.at();
  record.bytes = *bytes;
  if (!lod.empty()) {
    Value::List all;
    for (const auto& level : lod) {
      Value::List numbers;
      numbers.reserve(level.size());
      for (const std::uint64_t n : level) numbers.emplace_back(n);
      all.emplace_back(std::move(numbers));
    }
    record.lod = Value(std::move(all));
  }
  return record;
}

Result<std::vector<std::byte>> head_of(DType dtype, std::span<const Extent> shape, const Value* lod) {
  std::vector<std::byte> out;
  const auto number = [&](auto value) {
    std::byte raw[sizeof value];
    store_le(raw, value);
    out.insert(out.end(), raw, raw + sizeof value);
  };
  std::vector<std::vector<std::uint64_t>> levels;
  const auto invalid_lod = [] {
    return Error(Errc::invalid_argument, "the annotation paddle.lod is not a valid LoD").expected("lists of offsets");
  };
  if (lod != nullptr) {
    if (lod->as_list() == nullptr) return invalid_lod();
    for (const Value& level : *lod->as_list()) {
      if (level.as_list() == nullptr) return invalid_lod();
      auto& numbers = levels.emplace_back();
      for (const Value& n : *level.as_list()) {
        if (n.as_i64() == nullptr || *n.as_i64() < 0) return invalid_lod();
        numbers.push_back(static_cast<std::uint64_t>(*n.as_i64()));
      }
      if (numbers.size() < 2) return invalid_lod();
    }
    if (levels.size() > max_levels) return invalid_lod();
    if (auto r = check_lod(levels, shape, 0); !r) return invalid_lod().found(r.error().found());
  }
  number(std::uint32_t{0});
  number(static_cast<std::uint64_t>(levels.size()));
  for (const auto& level : levels) {
    number(std::uint64_t{8} * level.size());
    for (const std::uint64_t offset : level) number(offset);
  }
  number(std::uint32_t{0});
  std::vector<std::byte> desc;
  protobuf::put_number(desc, 1, code_of(dtype));
  for (const Extent e : shape) {
    if (e > static_cast<Extent>(std::numeric_limits<std::int64_t>::max())) {
      return Error(Errc::not_representable, "an extent exceeds Paddle's maximum")
          .expected("at most " + std::to_string(std::numeric_limits<std::int64_t>::max()))
          .found(to_string(shape));
    }
    protobuf::put_number(desc, 2, e);
  }
  number(static_cast<std::uint32_t>(desc.size()));
  out.insert(out.end(), desc.begin(), desc.end());
  return out;
}

}  // namespace stele::inline v0::detail::paddle
