#include "passes/composites/encode.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "io/text.hpp"
#include "leaves/needs.hpp"
#include "leaves/provider.hpp"
#include "leaves/region.hpp"
#include "passes/composites/composite.hpp"
#include "passes/composites/tables.hpp"
#include "passes/differences.hpp"
#include "passes/precision.hpp"
#include "snapshot/converting.hpp"
#include "snapshot/items.hpp"
#include "snapshot/paths.hpp"
#include "snapshot/side_files.hpp"
#include "snapshot/undecoded.hpp"
#include "stele/detail/codes.hpp"
#include "stele/detail/little_endian.hpp"
#include "stele/pattern.hpp"
#include "stele/precision/convert.hpp"
#include "stele/source.hpp"

namespace stele::inline v0 {
namespace detail::composites {
namespace {

/// How a number becomes a code.
enum class Coding : std::uint8_t { integer, float4, float8, table };
/// The numbers that determine the scale of a group.
enum class Scaling : std::uint8_t {
  largest,    ///< the largest size
  range,      ///< the lowest and the highest number; there is a zero point
  exponent,   ///< the largest size, as a power of 2
  of_weight,  ///< the largest size, relative to the largest size in the weight
};
enum class Package : std::uint8_t { deepseek, compressed_tensors, gptq, awq, bitsandbytes };

struct Scheme {
  std::string_view name, format;  // of compressed-tensors
  Package package;
  Coding coding;
  Scaling scaling;
  unsigned bits;
  std::uint64_t group, row_group;  // 0: a whole row
  bool any_group;
  DType scales;  // none: the dtype of the weight
};

constexpr Scheme schemes[] = {
    {"fp8", "", Package::deepseek, Coding::float8, Scaling::largest, 8, 128, 128, false, DType::f32},
    {"int4", "pack-quantized", Package::compressed_tensors, Coding::integer, Scaling::largest, 4, 128, 1, true,
     DType::none},
    {"int8", "pack-quantized", Package::compressed_tensors, Coding::integer, Scaling::largest, 8, 0, 1, true,
     DType::none},
    {"nvfp4", "nvfp4-pack-quantized", Package::compressed_tensors, Coding::float4, Scaling::of_weight, 4, 16, 1, false,
     DType::f8_e4m3fn},
    {"mxfp4", "mxfp4-pack-quantized", Package::compressed_tensors, Coding::float4, Scaling::exponent, 4, 32, 1, false,
     DType::u8},
    {"mxfp8", "mxfp8-quantized", Package::compressed_tensors, Coding::float8, Scaling::exponent, 8, 32, 1, false,
     DType::u8},
    {"gptq", "", Package::gptq, Coding::integer, Scaling::largest, 4, 128, 1, true, DType::f16},
    {"awq", "", Package::awq, Coding::integer, Scaling::range, 4, 128, 1, true, DType::f16},
    {"nf4", "", Package::bitsandbytes, Coding::table, Scaling::largest, 4, 64, 1, false, DType::f32},
};

constexpr float max_e2m1 = 6, max_e4m3 = 448;

enum class Kind : std::uint8_t { codes, scales, zeros, global, constant };

/// A weight and its parts. A matrix; nf4 has rows of 64 elements, the last of which may be shorter.
struct Weight {
  const Scheme* scheme = nullptr;
  Snapshot base;
  std::uint32_t leaf = 0;
  std::string path;
  std::uint64_t rows = 0, columns = 0, elements = 0;
  std::uint64_t group = 0, row_group = 1;
  DType scales = DType::none;
  DType floats_of_model = DType::none;  // f32, f16 or bf16
  TablePtr table;
  struct PartData {
    Kind kind;
    std::string suffix;
    DType dtype;
    Shape shape;
    std::uint64_t unit = 0;  // bytes of a part that are encoded together: of row_group rows, or of a group of columns
    std::vector<std::byte> constant{};
    std::uint64_t bytes() const { return *shape.element_count() * element_size(dtype); }
  };
  std::vector<PartData> parts;
  mutable std::mutex mutex;
  mutable float global = 0;  // 0: not computed yet; guarded by the mutex
  mutable SharedDifferences differences;

  LeafView floats() const { return base.leaf(leaf); }
  bool by_columns() const { return scheme->package == Package::gptq || scheme->package == Package::awq; }
  std::uint64_t units() const { return by_columns() ? columns / group : (rows + row_group - 1) / row_group; }
};

/// The part of a Coding that decoding needs: an integer's code without a sign has this added.
float zero_of(const Weight& w) {
  const bool centered = w.scheme->package == Package::gptq;
  return centered ? static_cast<float>(1U << (w.scheme->bits - 1)) : 0;
}

/// Encodes blocks of units.
class Encoder {
 public:
  Encoder(const Weight& weight, ReadContext& context) : w_(weight), context_(context) {}

  /// Calls put(first unit, bytes) for blocks of units [first, end) of a part.
  template <class Put>
  Status run(const Weight::PartData& part, std::uint64_t first, std::uint64_t end, const Put& put) {
    if (w_.scheme->scaling == Scaling::of_weight) {
      STELE_TRY_ASSIGN(global_, global_of(w_, context_));
    }
    const std::uint64_t floats = w_.by_columns() ? w_.rows * w_.group : w_.columns * w_.row_group;
    const std::uint64_t at_once = w_.by_columns() ? std::uint64_t{4} << 20 : std::uint64_t{1} << 20;
    const std::uint64_t units = std::max<std::uint64_t>(1, at_once / floats);
    for (std::uint64_t u = first; u < end; u += units) {
      const std::uint64_t n = std::min(units, end - u);
      STELE_TRY(w_.by_columns() ? load_columns(u * w_.group, n * w_.group) : load_rows(u * w_.row_group, n));
      STELE_TRY(encode(part.kind == Kind::codes));
      STELE_TRY(pack(part));
      STELE_TRY(put(u, packed_));
    }
    return {};
  }
  const Differences& differences() const { return differences_; }

  /// Returns the scale of the whole weight.
  static Result<float> global_of(const Weight& w, ReadContext& context) {
    const std::lock_guard lock(w.mutex);
    if (w.global != 0) return w.global;
    Encoder reader(w, context);
    float largest = 0;
    const std::uint64_t rows = std::max<std::uint64_t>(1, (std::uint64_t{1} << 18) / w.columns);
    for (std::uint64_t row = 0; row < w.rows; row += rows) {
      STELE_TRY(reader.load_rows(row, std::min(rows, w.rows - row)));
      const Extremes found = extremes(reader.floats_.data(), reader.floats_.size());
      if (!found.finite) return not_finite(w);
      largest = std::max({largest, -found.low, found.high});
    }
    const float global = largest > 0 ? max_e4m3 * max_e2m1 / largest : 1;
    w.global = std::isfinite(global) ? global : 1;
    return w.global;
  }

 private:
  static Error not_finite(const Weight& w) {
    return Error(Errc::out_of_range, "the tensor has a number that is not finite, and cannot be quantized")
        .path(w.path);
  }

  /// Reads elements [first, first + count) of the weight to `out`.
  Status read(std::uint64_t first, std::uint64_t count, float* out) {
    const LeafView leaf = w_.floats();
    const std::size_t element = element_size(leaf.dtype());
    const auto size = static_cast<std::size_t>(count) * element;
    if (bytes_.size() < size) bytes_ = Bytes(size);
    const auto bytes = bytes_.span().first(size);
    STELE_TRY(with_path(read_bytes(leaf.provider(), leaf.byte_size(), first * element, bytes, context_), leaf));
    return to_floats(bytes.data(), first, static_cast<std::size_t>(count), out);
  }
  Status to_floats(const std::byte* bytes, std::uint64_t first, std::size_t count, float* out) {
    const DType from = w_.floats().dtype();
    const ConvertOutcome outcome = convert(from, bytes, DType::f32, reinterpret_cast<std::byte*>(out), count);
    if (outcome.status == ConvertStatus::ok) return {};
    return convert_error(outcome, from, DType::f32, first).path(w_.path);
  }

  /// Loads `units` units of rows.
  Status load_rows(std::uint64_t row, std::uint64_t units) {
    const std::uint64_t first = row * w_.columns;
    const std::uint64_t count = std::min(w_.elements, first + units * w_.row_group * w_.columns) - first;
    width_ = w_.columns;
    floats_.resize(static_cast<std::size_t>(count));
    return read(first, count, floats_.data());
  }

  /// Loads columns of all rows.
  Status load_columns(std::uint64_t column, std::uint64_t count) {
    const LeafView leaf = w_.floats();
    width_ = count;
    floats_.resize(static_cast<std::size_t>(w_.rows * count));
    if (leaf.location() || !leaf.view().empty()) {
      const std::size_t element = element_size(leaf.dtype());
      const std::array<Extent, 2> shape = {w_.rows, w_.columns};
      const RegionLeaf region(leaf.provider(), shape, element, {{0, column}, {w_.rows, count}});
      if (bytes_.size() < floats_.size() * element) bytes_ = Bytes(floats_.size() * element);
      const auto bytes = bytes_.span().first(floats_.size() * element);
      STELE_TRY(with_path(read_bytes(region.provider(), bytes.size(), 0, bytes, context_), leaf));
      return to_floats(bytes.data(), column, floats_.size(), floats_.data());
    }
    // Computed numbers: whole rows.
    const std::uint64_t at_once = std::max<std::uint64_t>(1, (std::uint64_t{1} << 20) / w_.columns);
    rows_.resize(static_cast<std::size_t>(std::min(at_once, w_.rows) * w_.columns));
    for (std::uint64_t row = 0; row < w_.rows; row += at_once) {
      const std::uint64_t n = std::min(at_once, w_.rows - row);
      STELE_TRY(read(row * w_.columns, n * w_.columns, rows_.data()));
      for (std::uint64_t r = 0; r < n; ++r) {
        std::copy_n(rows_.data() + r * w_.columns + column, count, floats_.data() + (row + r) * count);
      }
    }
    return {};
  }

  /// Calls f(cell, pointer, count) for each run of elements of a row in each group.
  template <class F>
  void each_run(const F& f) {
    const auto width = static_cast<std::size_t>(width_), group = static_cast<std::size_t>(w_.group);
    for (std::size_t at = 0, row = 0; at < floats_.size(); ++row) {
      const std::size_t line = row / static_cast<std::size_t>(w_.row_group) * (width / group);
      for (std::size_t c = 0; c < width && at < floats_.size(); c += group) {
        const std::size_t n = std::min({group, width - c, floats_.size() - at});
        f(line + c / group, at, n);
        at += n;
      }
    }
  }

  /// Determines the scales and the codes of the loaded numbers.
  Status encode(bool measure) {
    const std::uint64_t units_of_rows = w_.by_columns() ? w_.rows : (floats_.size() + width_ - 1) / width_;
    const std::uint64_t lines = (units_of_rows + w_.row_group - 1) / w_.row_group;
    const auto cells = static_cast<std::size_t>(lines * (width_ / w_.group));
    found_.assign(cells, Extremes{});
    bool finite = true;
    each_run([&](std::size_t cell, std::size_t at, std::size_t n) {
      const Extremes e = extremes(floats_.data() + at, n);
      found_[cell].low = std::min(found_[cell].low, e.low);
      found_[cell].high = std::max(found_[cell].high, e.high);
      finite = finite && e.finite;
    });
    if (!finite) return not_finite(w_);
    stored_.resize(cells);
    for (std::size_t i = 0; i < cells; ++i) stored_[i] = scale_of(found_[i]);
    STELE_TRY(round_scales());
    scales_ = stored_;
    zeros_.assign(cells, zero_of(w_));
    for (std::size_t i = 0; i < cells; ++i) {
      if (w_.scheme->scaling == Scaling::of_weight) scales_[i] /= global_;
      if (w_.scheme->scaling == Scaling::range)
        zeros_[i] = std::clamp(std::nearbyint(-found_[i].low / scales_[i]), 0.0F, 15.0F);
    }
    codes_.resize(floats_.size());
    each_run([&](std::size_t cell, std::size_t at, std::size_t n) {
      encode_run(floats_.data() + at, scales_[cell], zeros_[cell], codes_.data() + at, n);
      if (measure) add_differences(cell, at, n);
    });
    return {};
  }

  /// Returns the scale of a group before it is rounded to its dtype.
  float scale_of(const Extremes& e) const {
    const float largest = std::max(-e.low, e.high);
    const auto steps = static_cast<float>((1U << w_.scheme->bits) - 1U);
    const float max = w_.scheme->coding == Coding::float4 ? max_e2m1 : max_e4m3;
    switch (w_.scheme->scaling) {
      case Scaling::range:
        return (e.high - e.low) / steps;
      case Scaling::exponent: {
        if (largest == 0) return 0x1p-127F;
        int exponent = 0;
        // Numbers above 1.75 * 2^e are at least as near to 2^(e + 1) as to the largest code.
        const float mantissa = std::frexp(largest, &exponent);  // in [0.5, 1)
        const int top = w_.scheme->coding == Coding::float4 ? 2 : 8;
        return std::ldexp(1.0F, std::clamp(exponent - 1 - top + (mantissa >= 0.875F ? 1 : 0), -127, 127));
      }
      case Scaling::of_weight:
        return std::min(largest / max * global_, max_e4m3);
      case Scaling::largest:
        break;
    }
    if (w_.scheme->coding == Coding::table) return largest;
    return w_.scheme->coding == Coding::integer ? largest / (steps / 2) : largest / max;
  }

  /// Rounds the scales to the dtype that stores them. Replaces a scale of 0 by one with which all codes are 0.
  Status round_scales() {
    const DType to = w_.scales;
    if (to != DType::f32 && to != DType::u8) {
      bytes_of_scales_.resize(stored_.size() * element_size(to));
      STELE_TRY(convert_scales(to, bytes_of_scales_.data()));
      const ConvertOutcome back = convert(to, bytes_of_scales_.data(), DType::f32,
                                          reinterpret_cast<std::byte*>(stored_.data()), stored_.size());
      if (back.status != ConvertStatus::ok) return convert_error(back, to, DType::f32, 0).path(w_.path);
    }
    for (float& s : stored_) {
      if (s == 0) s = w_.scheme->scaling == Scaling::of_weight ? 0.125F : 1;
    }
    return {};
  }
  Status convert_scales(DType to, std::byte* out) const {
    const ConvertOutcome outcome =
        convert(DType::f32, reinterpret_cast<const std::byte*>(stored_.data()), to, out, stored_.size());
    if (outcome.status == ConvertStatus::ok) return {};
    return Error(Errc::out_of_range, "the tensor has a number that is too large for its group's scale")
        .path(w_.path)
        .expected("a scale in the range of " + std::string(name(to)));
  }

  void encode_run(const float* x, float scale, float zero, std::uint8_t* codes, std::size_t n) {
    switch (w_.scheme->coding) {
      case Coding::integer: {
        const auto half = static_cast<float>(1U << (w_.scheme->bits - 1));
        if (w_.scheme->scaling == Scaling::range) {
          encode_integers(x, scale, -zero, 2 * half - 1 - zero, zero, codes, n);
        } else {
          encode_integers(x, scale, -half, half - 1, half, codes, n);
        }
        return;
      }
      case Coding::float4:
        return encode_e2m1(x, scale, codes, n);
      case Coding::float8: {
        divided_.resize(n);
        for (std::size_t i = 0; i < n; ++i) divided_[i] = std::clamp(x[i] / scale, -max_e4m3, max_e4m3);
        convert(DType::f32, reinterpret_cast<const std::byte*>(divided_.data()), DType::f8_e4m3fn,
                reinterpret_cast<std::byte*>(codes), n);
        return;
      }
      case Coding::table:
        return encode_between(x, scale, nf4_bounds().data(), codes, n);
    }
  }
  /// The midpoints between the numbers of nf4.
  static const std::array<float, 15>& nf4_bounds() {
    static const auto bounds = [] {
      std::array<float, 15> all{};
      const Table& table = *nf4_table();
      for (std::size_t i = 0; i < all.size(); ++i) all[i] = (table[i] + table[i + 1]) / 2;
      return all;
    }();
    return bounds;
  }

  void add_differences(std::size_t cell, std::size_t at, std::size_t n) {
    divided_.resize(n);
    decode_codes(codes_.data() + at, w_.table->data(), {scales_[cell], zeros_[cell]}, divided_.data(), n);
    for (std::size_t i = 0; i < n; ++i) {
      differences_.add(static_cast<double>(divided_[i]) - static_cast<double>(floats_[at + i]));
    }
  }

  /// Sets `packed_` to the bytes of a part.
  Status pack(const Weight::PartData& part) {
    switch (part.kind) {
      case Kind::codes:
        w_.by_columns() ? pack_columns() : pack_rows(part);
        break;
      case Kind::scales:
        return pack_scales(part);
      case Kind::zeros:
        pack_zeros();
        break;
      case Kind::global:
      case Kind::constant:
        break;
    }
    swap_big_endian(packed_, element_size(part.dtype));
    return {};
  }

  void pack_rows(const Weight::PartData& part) {
    if (w_.scheme->bits == 8) {
      const auto* const bytes = reinterpret_cast<const std::byte*>(codes_.data());
      packed_.assign(bytes, bytes + codes_.size());
      if (w_.scheme->coding == Coding::integer && part.dtype == DType::i8) {
        for (std::byte& b : packed_) b ^= std::byte{0x80};
      }
      return;
    }
    if (codes_.size() % 2 != 0) codes_.push_back(0);
    packed_.resize(codes_.size() / 2);
    pack_halves(codes_.data(), w_.scheme->package != Package::bitsandbytes, packed_.data(), codes_.size());
  }

  /// GPTQ: a column of the part has 8 codes of a row in a word. AWQ: a word has the codes of 8 rows.
  void pack_columns() {
    const auto rows = static_cast<std::size_t>(w_.rows), width = static_cast<std::size_t>(width_);
    packed_.resize(codes_.size() / 2);
    if (w_.scheme->package == Package::gptq) {
      std::vector<std::byte> words(packed_.size());
      pack_halves(codes_.data(), true, words.data(), codes_.size());
      return transpose_words(words.data(), rows, width / 8, packed_.data());
    }
    for (std::size_t k = 0; k < width; ++k) {
      for (std::size_t j = 0; j < rows / 8; ++j) {
        store_interleaved(packed_.data() + (k * (rows / 8) + j) * 4,
                          [&](std::size_t i) { return codes_[(j * 8 + i) * width + k]; });
      }
    }
  }
  template <class Code>
  static void store_interleaved(std::byte* to, const Code& code) {
    std::uint32_t word = 0;
    for (unsigned i = 0; i < 8; ++i) word |= std::uint32_t{code(interleaved_columns[i])} << (4 * i);
    store_le(to, word);
  }

  Status pack_scales(const Weight::PartData& part) {
    const std::size_t element = element_size(part.dtype);
    packed_.resize(stored_.size() * element);
    if (part.dtype == DType::u8) {  // exponents
      for (std::size_t i = 0; i < stored_.size(); ++i)
        packed_[i] = static_cast<std::byte>(std::ilogb(stored_[i]) + 127);
      return {};
    }
    if (w_.by_columns()) {
      const std::size_t groups = static_cast<std::size_t>(width_ / w_.group), rows = stored_.size() / groups;
      turned_.resize(stored_.size());
      for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t g = 0; g < groups; ++g) turned_[g * rows + r] = stored_[r * groups + g];
      }
      std::swap(turned_, stored_);
    }
    return convert_scales(part.dtype, packed_.data());
  }

  /// The zero points of all rows, for each group of columns. GPTQ stores one less.
  void pack_zeros() {
    const std::size_t groups = static_cast<std::size_t>(width_ / w_.group), rows = zeros_.size() / groups;
    packed_.resize(zeros_.size() / 2);
    for (std::size_t g = 0; g < groups; ++g) {
      for (std::size_t j = 0; j < rows / 8; ++j) {
        std::byte* const to = packed_.data() + (g * (rows / 8) + j) * 4;
        const auto zero = [&](std::size_t i) { return static_cast<std::uint32_t>(zeros_[(j * 8 + i) * groups + g]); };
        if (w_.scheme->package == Package::awq) {
          store_interleaved(to, zero);
        } else {
          std::uint32_t word = 0;
          for (unsigned i = 0; i < 8; ++i) word |= (zero(i) - 1) << (4 * i);
          store_le(to, word);
        }
      }
    }
  }

  const Weight& w_;
  ReadContext& context_;
  float global_ = 1;
  std::uint64_t width_ = 0;  // columns of the loaded numbers
  std::vector<float> floats_, rows_, stored_, scales_, zeros_, divided_, turned_;
  std::vector<Extremes> found_;
  std::vector<std::uint8_t> codes_;
  std::vector<std::byte> packed_, bytes_of_scales_;
  Bytes bytes_;
  Differences differences_;
};

const std::byte* part_view(const void* at, std::uint64_t number) {
  const Weight::PartData& part = static_cast<const Weight*>(at)->parts[static_cast<std::size_t>(number)];
  return part.kind == Kind::constant ? part.constant.data() : nullptr;
}

Status part_read(const void* at, std::uint64_t number, std::uint64_t offset, std::span<std::byte> out,
                 ReadContext& context) {
  const auto& w = *static_cast<const Weight*>(at);
  const Weight::PartData& part = w.parts[static_cast<std::size_t>(number)];
  if (part.kind == Kind::global) {
    STELE_TRY_ASSIGN(const float global, Encoder::global_of(w, context));
    std::memcpy(out.data(), &global, out.size());  // the whole part: it has one element
    return {};
  }
  if (out.empty()) return {};
  Encoder encoder(w, context);
  const std::uint64_t end = offset + out.size();
  return encoder.run(part, offset / part.unit, (end + part.unit - 1) / part.unit,
                     [&](std::uint64_t unit, std::span<const std::byte> bytes) -> Status {
                       const std::uint64_t begin = unit * part.unit;
                       const std::uint64_t from = std::max(begin, offset);
                       const std::uint64_t to = std::min<std::uint64_t>(begin + bytes.size(), end);
                       std::memcpy(out.data() + (from - offset), bytes.data() + (from - begin),
                                   static_cast<std::size_t>(to - from));
                       return {};
                     });
}

Status part_stream(const void* at, std::uint64_t number, std::uint64_t size, PieceSink& sink, ReadContext& context) {
  const auto& w = *static_cast<const Weight*>(at);
  const Weight::PartData& part = w.parts[static_cast<std::size_t>(number)];
  if (part.kind == Kind::constant) return sink.piece(part.constant);
  if (part.kind == Kind::global) {
    std::array<std::byte, sizeof(float)> bytes{};
    STELE_TRY(part_read(at, number, 0, std::span(bytes).first(static_cast<std::size_t>(size)), context));
    return sink.piece(bytes);
  }
  const LeafView floats = w.floats();
  const auto location = floats.location();
  if (part.kind == Kind::codes && (location ? location->hashed : floats.view().empty())) {
    struct Discard final : PieceSink {  // later reads of parts are not checked
      Status piece(std::span<const std::byte>) override { return {}; }
    } discard;
    STELE_TRY(with_path(floats.stream(discard, context), floats));
  }
  Encoder encoder(w, context);
  STELE_TRY(encoder.run(part, 0, w.units(),
                        [&](std::uint64_t, std::span<const std::byte> bytes) { return sink.piece(bytes); }));
  if (part.kind == Kind::codes) w.differences.set(encoder.differences());
  return {};
}

void part_needs(const void* at, std::uint64_t number, Needs& needs) {
  const auto& w = *static_cast<const Weight*>(at);
  if (w.parts[static_cast<std::size_t>(number)].kind != Kind::constant) needs.add(w.floats());
}

constexpr LeafOps part_ops{.view = part_view, .read = part_read, .stream = part_stream, .needs = part_needs};

template <class T>
std::vector<std::byte> bytes_of(std::span<const T> numbers) {
  std::vector<std::byte> bytes(numbers.size_bytes());
  if (!numbers.empty()) std::memcpy(bytes.data(), numbers.data(), numbers.size_bytes());
  return bytes;
}

/// Lists the parts of a weight [N, K].
void add_parts(Weight& w, std::uint64_t n, std::uint64_t k) {
  const std::uint64_t groups = k / w.group;
  const auto add = [&](Kind kind, std::string suffix, DType dtype, std::initializer_list<Extent> shape,
                       std::uint64_t unit) {
    w.parts.push_back({kind, std::move(suffix), dtype, Shape(shape), unit});
  };
  const auto constant = [&](std::string suffix, DType dtype, std::initializer_list<Extent> shape,
                            std::vector<std::byte> bytes) {
    w.parts.push_back({Kind::constant, std::move(suffix), dtype, Shape(shape), 0, std::move(bytes)});
  };
  const std::size_t element = element_size(w.scales);
  const std::uint64_t bits = w.scheme->bits;
  switch (w.scheme->package) {
    case Package::deepseek:
      add(Kind::codes, ".weight", DType::f8_e4m3fn, {n, k}, w.row_group * k);
      add(Kind::scales, ".weight_scale_inv", w.scales, {n / w.row_group, groups}, groups * element);
      return;
    case Package::compressed_tensors:
      if (w.scheme->coding == Coding::integer) {
        add(Kind::codes, ".weight_packed", DType::i32, {n, k * bits / 32}, k * bits / 8);
        constant(".weight_shape", DType::i64, {2},
                 bytes_of<std::int64_t>(std::array{static_cast<std::int64_t>(n), static_cast<std::int64_t>(k)}));
      } else if (w.scheme->coding == Coding::float4) {
        add(Kind::codes, ".weight_packed", DType::u8, {n, k / 2}, k / 2);
      } else {
        add(Kind::codes, ".weight", DType::f8_e4m3fn, {n, k}, k);
      }
      add(Kind::scales, ".weight_scale", w.scales, {n, groups}, groups * element);
      if (w.scheme->scaling == Scaling::of_weight)
        add(Kind::global, ".weight_global_scale", DType::f32, {1}, sizeof(float));
      return;
    case Package::gptq:
    case Package::awq: {
      const bool gptq = w.scheme->package == Package::gptq;
      if (gptq) {
        add(Kind::codes, ".qweight", DType::i32, {k / 8, n}, w.group / 8 * n * 4);
      } else {
        add(Kind::codes, ".qweight", DType::i32, {k, n / 8}, w.group * (n / 8) * 4);
      }
      add(Kind::zeros, ".qzeros", DType::i32, {groups, n / 8}, n / 8 * 4);
      add(Kind::scales, ".scales", w.scales, {groups, n}, n * element);
      if (!gptq) return;
      std::vector<std::int32_t> index(static_cast<std::size_t>(k));
      for (std::size_t i = 0; i < index.size(); ++i) index[i] = static_cast<std::int32_t>(i / w.group);
      constant(".g_idx", DType::i32, {k}, bytes_of<std::int32_t>(index));
      return;
    }
    case Package::bitsandbytes: {
      add(Kind::codes, ".weight", DType::u8, {(w.elements + 1) / 2, 1}, w.columns / 2);
      add(Kind::scales, ".weight.absmax", w.scales, {w.rows}, element);
      constant(".weight.quant_map", DType::f32, {16}, bytes_of<float>(std::span(*w.table).first(16)));
      const char* const dtype = w.floats_of_model == DType::f16    ? "float16"
                                : w.floats_of_model == DType::bf16 ? "bfloat16"
                                                                   : "float32";
      const std::string state = R"({"quant_type": "nf4", "blocksize": 64, "dtype": ")" + std::string(dtype) +
                                R"(", "shape": [)" + std::to_string(n) + ", " + std::to_string(k) + "]}";
      constant(".weight.quant_state.bitsandbytes__nf4", DType::u8, {state.size()}, bytes_of<char>(state));
      return;
    }
  }
}

/// Returns why a weight [N, K] cannot have the scheme, or an empty string.
std::string obstacle(const Scheme& scheme, std::uint64_t group, std::uint64_t n, std::uint64_t k) {
  const auto multiple = [](const char* what, std::uint64_t extent, std::uint64_t of) {
    return extent % of == 0 ? std::string()
                            : std::string(what) + " of " + std::to_string(extent) + " elements, no multiple of " +
                                  std::to_string(of);
  };
  if (n == 0 || k == 0) return "no elements";
  if (scheme.package == Package::bitsandbytes) return {};
  if (std::string why = multiple("rows", k, group != 0 ? group : 32 / scheme.bits); !why.empty()) return why;
  const bool words = scheme.package == Package::gptq || scheme.package == Package::awq;
  return multiple("columns", n, words ? 8 : scheme.row_group);
}

Value list_of(const std::vector<std::string>& texts) {
  Value::List list;
  for (const std::string& text : texts) list.emplace_back(text);
  return Value(std::move(list));
}

/// The names of modules that are quantized, and of those that are not.
struct Modules {
  std::vector<std::string> quantized, kept;
  bool unfit = false;  // a kept module fits the scheme
};

/// Adds a pattern for each kept module, so that gptqmodel leaves it unchanged.
void add_exceptions(Value::Map& config, const Modules& modules) {
  Value::Map exceptions;
  for (const std::string& module : modules.kept) {
    std::string pattern = "-:^";
    for (const char c : module) {
      if (std::string_view(".+*?()[]{}|^$\\").find(c) != std::string_view::npos) pattern += '\\';
      pattern += c;
    }
    exceptions.emplace_back(pattern + "$", Value(Value::Map()));
  }
  config.emplace_back("dynamic", Value(std::move(exceptions)));
}

/// Returns the configuration that the scheme's package reads.
Value config_of(const Scheme& scheme, std::uint64_t group, const Modules& modules) {
  const std::vector<std::string>& kept = modules.kept;
  const auto integer = [](std::uint64_t number) { return Value(static_cast<std::int64_t>(number)); };
  switch (scheme.package) {
    case Package::deepseek:
      return Value(Value::Map{{"activation_scheme", Value("dynamic")},
                              {"fmt", Value("e4m3")},
                              {"modules_to_not_convert", list_of(kept)},
                              {"quant_method", Value("fp8")},
                              {"weight_block_size", Value(Value::List{integer(128), integer(128)})}});
    case Package::compressed_tensors: {
      Value::Map weights{{"dynamic", Value(false)},
                         {"group_size", group != 0 ? integer(group) : Value()},
                         {"num_bits", integer(scheme.bits)}};
      if (scheme.scaling == Scaling::of_weight) weights.emplace_back("scale_dtype", Value("torch.float8_e4m3fn"));
      if (scheme.scaling == Scaling::exponent) weights.emplace_back("scale_dtype", Value("torch.uint8"));
      const bool tensor = scheme.scaling == Scaling::of_weight;
      weights.emplace_back("strategy", Value(group == 0 ? "channel" : tensor ? "tensor_group" : "group"));
      weights.emplace_back("symmetric", Value(true));
      weights.emplace_back("type", Value(scheme.coding == Coding::integer ? "int" : "float"));
      const Value format{std::string(scheme.format)};
      Value::Map one{{"format", format},
                     {"input_activations", Value()},
                     {"output_activations", Value()},
                     {"targets", Value(Value::List{Value("Linear")})},
                     {"weights", Value(std::move(weights))}};
      return Value(Value::Map{{"config_groups", Value(Value::Map{{"group_0", Value(std::move(one))}})},
                              {"format", format},
                              {"ignore", list_of(kept)},
                              {"quant_method", Value("compressed-tensors")},
                              {"quantization_status", Value("compressed")},
                              {"version", Value("0.20.0")}});
    }
    case Package::gptq: {
      Value::Map config{{"bits", integer(scheme.bits)},  {"checkpoint_format", Value("gptq")},
                        {"desc_act", Value(false)},      {"group_size", integer(group)},
                        {"lm_head", Value(false)},       {"pack_dtype", Value("int32")},
                        {"quant_method", Value("gptq")}, {"sym", Value(true)}};
      if (modules.unfit) {  // gptqmodel reads the first key, transformers the second
        add_exceptions(config, modules);
        config.emplace_back("modules_in_block_to_quantize", Value(Value::List{list_of(modules.quantized)}));
      }
      return Value(std::move(config));
    }
    case Package::awq: {
      Value::Map config{
          {"bits", integer(scheme.bits)}, {"group_size", integer(group)}, {"modules_to_not_convert", list_of(kept)},
          {"quant_method", Value("awq")}, {"version", Value("gemm")},     {"zero_point", Value(true)}};
      if (modules.unfit) add_exceptions(config, modules);
      return Value(std::move(config));
    }
    case Package::bitsandbytes:
      return Value(Value::Map{{"_load_in_4bit", Value(true)},
                              {"_load_in_8bit", Value(false)},
                              {"bnb_4bit_compute_dtype", Value("bfloat16")},
                              {"bnb_4bit_quant_storage", Value("uint8")},
                              {"bnb_4bit_quant_type", Value("nf4")},
                              {"bnb_4bit_use_double_quant", Value(false)},
                              {"llm_int8_skip_modules", list_of(kept)},
                              {"load_in_4bit", Value(true)},
                              {"load_in_8bit", Value(false)},
                              {"quant_method", Value("bitsandbytes")}});
  }
  return {};
}

Result<const Scheme*> find_scheme(const WeightScheme& asked) {
  std::string all;
  for (const Scheme& s : schemes) {
    if (s.name == asked.name) {
      const bool fits = asked.group == 0 || asked.group == s.group || (s.any_group && asked.group % 32 == 0);
      if (fits && asked.group <= (1U << 20)) return &s;
      return Error(Errc::invalid_argument, "the scheme has no such group")
          .expected(s.any_group ? "a multiple of 32" : std::to_string(s.group))
          .found(std::to_string(asked.group));
    }
    all += (all.empty() ? "" : ", ") + std::string(s.name);
  }
  return Error(Errc::invalid_argument, "no such scheme of quantized weights").expected(all).found(asked.name);
}

bool any_matches(const std::vector<std::string>& patterns, std::string_view path) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& p) { return matches(p, path); });
}

constexpr std::string_view weight_ending = ".weight";

/// Makes the parts of a model's weights.
class Quantizer {
 public:
  Quantizer(const WeightScheme& how, const Scheme& scheme, Report* report)
      : how_(how), scheme_(scheme), report_(report), group_(how.group != 0 ? how.group : scheme.group) {}

  Result<Snapshot> run(const Snapshot& snapshot) {
    STELE_TRY(read_config(snapshot));
    if (floats_of_model_ == DType::none) floats_of_model_ = most_common(snapshot);
    STELE_TRY_ASSIGN(const Snapshot base, without_old_schemes(snapshot));
    STELE_TRY_ASSIGN(const Items items, Items::of(base));
    Items result;
    result.keep(items);
    result.metadata = items.metadata;
    result.properties = items.properties;
    for (const Item& old : items.list) {
      const bool weight = is_weight(old);
      if (weight && chosen_[leaf_of(old)]) {
        add_weight(base, old, result);
      } else {
        if (weight) modules_.kept.push_back(stem_of(old));
        result.list.push_back(old);
      }
    }
    auto& kept = modules_.kept;
    std::sort(kept.begin(), kept.end());
    if (!std::binary_search(kept.begin(), kept.end(), "lm_head")) kept.emplace_back("lm_head");
    const Value config = config_of(scheme_, group_, modules_);
    STELE_TRY_ASSIGN(result.metadata[config_key], to_json(config));
    STELE_TRY_ASSIGN(const Snapshot parts, result.build());
    return join_composites(parts, config);
  }

 private:
  static bool is_weight(const Item& item) {
    return item.is_tensor() && item.path.ends_with(weight_ending) && item.path.size() > weight_ending.size() &&
           is_plain_float(item.leaf().dtype()) && item.leaf().shape().size() == 2;
  }
  static std::string stem_of(const Item& item) { return item.path.substr(0, item.path.size() - weight_ending.size()); }
  static std::uint32_t leaf_of(const Item& item) { return item.from->nodes[item.node].index; }

  /// Reads config.json, if the model is from a folder of the hub.
  Status read_config(const Snapshot& snapshot) {
    const auto& beside = snapshot.data()->beside;
    if (beside == nullptr || !std::binary_search(beside->names.begin(), beside->names.end(), "config.json")) return {};
    constexpr std::uint64_t max_bytes = std::uint64_t{16} << 20;
    STELE_TRY_ASSIGN(const SourcePtr file, beside->folder->open("config.json"));
    if (file->size() > max_bytes) return {};
    STELE_TRY_ASSIGN(const std::string text, read_text(*file, max_bytes));
    const auto config = parse_json(text);
    if (!config) return {};
    if (auto type = config->at("model_type").to<std::string>()) model_type_ = *std::move(type);
    for (const char* const key : {"dtype", "torch_dtype"}) {
      const auto dtype = config->at(key).to<std::string>();
      if (!dtype) continue;
      if (*dtype == "float16") floats_of_model_ = DType::f16;
      if (*dtype == "bfloat16") floats_of_model_ = DType::bf16;
      if (*dtype == "float32") floats_of_model_ = DType::f32;
    }
    return {};
  }

  /// Returns the dtype of most numbers that are not quantized.
  static DType most_common(const Snapshot& snapshot) {
    std::map<DType, std::uint64_t> counts;
    for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
      const LeafView leaf = snapshot.leaf(i);
      if (composite_of(leaf) == nullptr && is_plain_float(leaf.dtype())) counts[leaf.dtype()] += leaf.size();
    }
    counts.erase(DType::f64);
    const auto most = std::max_element(counts.begin(), counts.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    return most != counts.end() ? most->first : DType::bf16;
  }

  /// Chooses the weights. Returns the snapshot with the quantized weights that are not chosen as floats: a model has
  /// one scheme.
  Result<Snapshot> without_old_schemes(const Snapshot& snapshot) {
    STELE_TRY_ASSIGN(const Items items, Items::of(snapshot));
    const ItemIndex index(items.list);
    std::set<std::string> tied;
    for (const Item& item : items.list) {
      if (item.target) tied.insert(*item.target);
    }
    chosen_.resize(snapshot.leaf_count());
    std::vector<DType> dtypes;
    for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) dtypes.push_back(snapshot.leaf(i).dtype());
    for (const Item& item : items.list) {
      if (!item.is_tensor()) continue;
      const std::uint32_t leaf = leaf_of(item);
      if (is_weight(item) && any_matches(how_.patterns, item.path) && !any_matches(how_.except, item.path)) {
        STELE_TRY(check_orientation(item, index, items));
        const auto shape = item.leaf().shape();
        const std::string why =
            tied.contains(item.path) ? "it has two names" : obstacle(scheme_, group_, shape[0], shape[1]);
        chosen_[leaf] = why.empty();
        modules_.unfit = modules_.unfit || !why.empty();
        if (!why.empty() && report_ != nullptr) {
          report_->add(Report::What::quantized, item.path, "not as " + how_.name + ": " + why);
        }
      }
      const Composite* const old = composite_of(item.leaf());
      if (old == nullptr || chosen_[leaf]) continue;
      dtypes[leaf] = floats_of_model_;
      if (report_ != nullptr) {
        report_->add(Report::What::converted, item.path, old->scheme + " -> " + std::string(name(floats_of_model_)));
      }
    }
    return with_dtypes(snapshot, std::move(dtypes), {});
  }

  /// Refuses models whose weights are transposed: the Conv1D of GPT-2 has a bias for each column.
  Status check_orientation(const Item& weight, const ItemIndex& index, const Items& items) const {
    const auto shape = weight.leaf().shape();
    const auto bias = index.find(stem_of(weight) + ".bias");
    if (scheme_.package == Package::awq) {
      // transformers 5.24, AWQ_SCALES_MAPPINGS: these need scales of activations, which only AWQ itself finds.
      constexpr std::string_view scaled[] = {"starcoder2", "RefinedWebModel", "falcon",      "mpt",
                                             "gptj",       "gpt_neox",        "gpt_bigcode", "bloom"};
      if (std::find(std::begin(scaled), std::end(scaled), model_type_) != std::end(scaled)) {
        return Error(Errc::unsupported, "AWQ scales activations in models of this type")
            .path(weight.path)
            .found(model_type_);
      }
    }
    if (!bias || !items.list[*bias].is_tensor()) return {};
    const std::uint64_t count = items.list[*bias].leaf().size();
    if (count == shape[0] || count != shape[1]) return {};
    return Error(Errc::unsupported,
                 "the weight is stored as [inputs, outputs], which no package of these schemes reads")
        .path(weight.path)
        .found("a bias of " + std::to_string(count) + " beside a weight of " + to_string(shape))
        .hint("transpose the weights first, for a model whose layers are Linear");
  }

  void add_weight(const Snapshot& base, const Item& old, Items& result) {
    const auto shape = old.leaf().shape();
    const std::uint64_t n = shape[0], k = shape[1];
    auto made = std::make_shared<Weight>();
    made->scheme = &scheme_;
    made->base = base;
    made->leaf = leaf_of(old);
    made->path = old.path;
    made->elements = n * k;
    made->group = group_ != 0 ? group_ : k;
    made->row_group = scheme_.row_group;
    made->rows = n;
    made->columns = k;
    if (scheme_.package == Package::bitsandbytes) {
      made->columns = group_;
      made->rows = (made->elements + group_ - 1) / group_;
    }
    const DType own = old.leaf().dtype();
    const bool model_only = composite_of(old.leaf()) != nullptr;
    made->floats_of_model = model_only ? floats_of_model_ : own == DType::f64 ? DType::f32 : own;
    made->scales = scheme_.scales != DType::none ? scheme_.scales : made->floats_of_model;
    made->table = table();
    add_parts(*made, n, k);
    for (std::size_t p = 0; p < made->parts.size(); ++p) {
      const auto& part = made->parts[p];
      Item& item = result.list.emplace_back(old);
      item.path = stem_of(old) + part.suffix;
      item.derived = DerivedLeaf{part.dtype, part.shape, part.bytes(), {&part_ops, made.get(), p}};
    }
    result.keepers.push_back(std::move(made));
    modules_.quantized.push_back(stem_of(old));
  }

  TablePtr table() const {
    switch (scheme_.coding) {
      case Coding::integer:
        return integer_table(scheme_.bits, scheme_.package == Package::compressed_tensors);
      case Coding::float4:
        return e2m1_table();
      case Coding::float8:
        return float8_table(DType::f8_e4m3fn);
      case Coding::table:
        break;
    }
    return nf4_table();
  }

  const WeightScheme& how_;
  const Scheme& scheme_;
  Report* report_;
  std::uint64_t group_;  // 0: a row
  std::string model_type_;
  DType floats_of_model_ = DType::none;
  std::vector<bool> chosen_;  // by leaf
  Modules modules_;
};

}  // namespace

bool is_encoded(const LeafView& leaf) noexcept {
  if (leaf.provider().ops != &part_ops) return false;
  const auto& w = *static_cast<const Weight*>(leaf.provider().at);
  return w.parts[static_cast<std::size_t>(leaf.provider().number)].kind == Kind::codes;
}

void add_encoded_row(const LeafView& codes, Report& report) {
  const auto& w = *static_cast<const Weight*>(codes.provider().at);
  std::uint64_t bytes = 0;
  for (const Weight::PartData& part : w.parts) bytes += part.bytes();
  char text[64];
  std::snprintf(text, sizeof text, ", %.3g bits", static_cast<double>(bytes) * 8 / static_cast<double>(w.elements));
  const Composite* const from = composite_of(w.floats());
  report.add(Report::What::quantized, w.path,
             (from != nullptr ? from->scheme : std::string(name(w.floats().dtype()))) + " -> " +
                 std::string(w.scheme->name) + text + w.differences.get().text(w.elements));
}

}  // namespace detail::composites

namespace comp = detail::composites;

std::vector<std::string> WeightScheme::default_except() {
  return {"*embed*", "shared.weight", "*pos_emb*",     "*relative_attention_bias*", "*wte*", "*wpe*", "*lm_head*",
          "*norm*",  "*router*",      "*.gate.weight", "*shared_expert_gate*"};
}

Result<Snapshot> quantize_weights(const Snapshot& snapshot, const WeightScheme& how, Report* report) {
  return detail::guarded([&]() -> Result<Snapshot> {
    STELE_TRY_ASSIGN(const comp::Scheme* const scheme, comp::find_scheme(how));
    STELE_TRY(detail::check_decoded(snapshot));  // a model has one scheme
    return comp::Quantizer(how, *scheme, report).run(snapshot);
  });
}

}  // namespace stele::inline v0
