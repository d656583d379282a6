#include "slices.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/crc32c.hpp"
#include "steps/blocks.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace tensorflow {
namespace {

/// Axes that slices of one tensor may cut: each doubles the number of corners of a slice.
constexpr unsigned max_cut_axes = 8;

/// Appends a number of 0 or more: as many bytes as it needs with a bit for each of them at its front, and a sign; or
/// UINT64_MAX, which stands for -1.
void put_signed(std::string& key, std::uint64_t number) {
  if (number == UINT64_MAX) {
    key += '\x7f';
    return;
  }
  const auto bits = static_cast<std::size_t>(std::bit_width(number));
  const std::size_t size = bits / 7 + 1;
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i < std::min<std::size_t>(size, 8); ++i) {
    bytes[size - 1 - i] = static_cast<char>(number >> 8 * i);
  }
  for (std::size_t i = 0; i < size; ++i) bytes[i / 8] = static_cast<char>(bytes[i / 8] | 0x80 >> i % 8);
  key += bytes;
}

/// Appends a number without a sign: the number of its bytes, then these.
void put_unsigned(std::string& key, std::uint64_t number) {
  const int size = (static_cast<int>(std::bit_width(number)) + 7) / 8;
  key += static_cast<char>(size);
  for (int i = size; i-- > 0;) key += static_cast<char>(number >> 8 * i);
}

/// Returns the axes along which a slice is smaller than the tensor.
std::vector<std::size_t> cut_axes(std::span<const Slice> slices, std::span<const Extent> shape) {
  std::vector<std::size_t> axes;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (std::any_of(slices.begin(), slices.end(), [&](const Slice& s) { return s.length[d] != shape[d]; })) {
      axes.push_back(d);
    }
  }
  return axes;
}

Error not_covered(const char* message) { return Error(Errc::malformed, message); }

/// A corner of rectangles, with the sum of their signs there.
struct Corner {
  std::vector<Extent> at;
  std::int64_t sign;
};

void add_corners(std::vector<Corner>& corners, const Slice& slice, std::span<const std::size_t> axes, int factor) {
  for (unsigned ends = 0; ends < 1U << axes.size(); ++ends) {
    Corner corner{std::vector<Extent>(axes.size()), factor};
    for (std::size_t i = 0; i < axes.size(); ++i) {
      const bool end = (ends >> i & 1) != 0;
      corner.at[i] = slice.start[axes[i]] + (end ? slice.length[axes[i]] : 0);
      if (end) corner.sign = -corner.sign;
    }
    corners.push_back(std::move(corner));
  }
}

}  // namespace

std::string slice_key(std::string_view name, const Slice& slice) {
  std::string key(1, '\0');
  for (const char c : name) {
    key += c;
    if (c == '\0') key += '\xff';
    if (c == '\xff') key += '\0';
  }
  key += std::string_view("\0\1", 2);
  put_unsigned(key, slice.start.size());
  for (std::size_t d = 0; d < slice.start.size(); ++d) {
    put_signed(key, slice.start[d]);
    put_signed(key, slice.length[d]);
  }
  return key;
}

std::string name_of_slice(std::string_view key) {
  key.remove_prefix(std::min<std::size_t>(key.size(), 1));
  return std::string(key.substr(0, key.find('\0')));
}

std::uint64_t cover_memory(std::span<const Slice> slices, std::span<const Extent> shape) {
  const std::size_t cut = cut_axes(slices, shape).size();
  return (slices.size() + 1) * (sizeof(Corner) + 16 + 8 * cut) << std::min<std::size_t>(cut, max_cut_axes);
}

Status check_cover(std::span<const Slice> slices, std::span<const Extent> shape) {
  bool empty = false;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    empty = empty || shape[d] == 0;
    for (const Slice& s : slices) {
      if (s.start[d] > shape[d] || s.length[d] > shape[d] - s.start[d]) {
        return not_covered("a slice ends after its tensor")
            .expected("at most " + std::to_string(shape[d]) + " along axis " + std::to_string(d))
            .found(std::to_string(s.length[d]) + " from " + std::to_string(s.start[d]) + " on");
      }
    }
  }
  if (empty) return {};
  const std::vector<std::size_t> axes = cut_axes(slices, shape);
  if (axes.size() > max_cut_axes) {
    return Error(Errc::unsupported, "the tensor is cut along too many axes")
        .expected("at most " + std::to_string(max_cut_axes))
        .found(std::to_string(axes.size()));
  }
  // A function that is 1 in a rectangle and 0 elsewhere is determined by its corners with alternating signs. The sum of
  // those of the slices is 1 in the whole tensor exactly if their corners without that of the tensor cancel out.
  std::vector<Corner> corners;
  corners.reserve((slices.size() + 1) << axes.size());
  for (const Slice& s : slices) add_corners(corners, s, axes, 1);
  add_corners(corners, {std::vector<Extent>(shape.size()), {shape.begin(), shape.end()}}, axes, -1);
  std::sort(corners.begin(), corners.end(), [](const Corner& a, const Corner& b) { return a.at < b.at; });
  for (std::size_t i = 0; i < corners.size();) {
    std::int64_t sum = 0;
    const std::size_t first = i;
    for (; i < corners.size() && corners[i].at == corners[first].at; ++i) sum += corners[i].sign;
    if (sum == 0) continue;
    std::string at;
    for (std::size_t k = 0; k < axes.size(); ++k) {
      at += (k != 0 ? ", " : "") + std::to_string(corners[first].at[k]) + " along axis " + std::to_string(axes[k]);
    }
    return not_covered("the slices overlap, or leave a part of the tensor out").found("at " + at);
  }
  return {};
}

Joined::Joined(const Entry& whole, std::span<const Entry* const> parts) : strides_(whole.shape.size()) {
  std::uint64_t stride = element_size(whole.type->dtype);
  for (std::size_t d = strides_.size(); d-- > 0;) {
    strides_[d] = stride;
    stride *= whole.shape[d];
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i]->size == 0) continue;
    const Slice& slice = whole.slices[i];
    std::size_t axis = strides_.size() - 1;
    while (axis > 0 && slice.length[axis] == whole.shape[axis]) --axis;
    std::uint64_t count = 1;
    for (std::size_t d = 0; d < axis; ++d) count *= slice.length[d];
    parts_.push_back({parts[i], &slice, parts[i]->size / count, count, axis});
  }
}

std::uint64_t Joined::place(const Part& part, std::uint64_t k) const {
  std::uint64_t at = part.slice->start[part.axis] * strides_[part.axis];
  for (std::size_t d = part.axis; d-- > 0; k /= part.slice->length[d]) {
    at += (part.slice->start[d] + k % part.slice->length[d]) * strides_[d];
  }
  return at;
}

Status Joined::fill(std::uint64_t first, std::span<std::byte> out, ReadContext& context, std::uint32_t* crcs) const {
  const std::uint64_t end = first + out.size();
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    const Part& part = parts_[p];
    // The first run that ends after `first`; runs are in the order of their places.
    std::uint64_t low = 0;
    for (std::uint64_t high = part.count; low < high;) {
      const std::uint64_t middle = low + (high - low) / 2;
      place(part, middle) + part.bytes > first ? high = middle : low = middle + 1;
    }
    for (std::uint64_t k = low; k < part.count; ++k) {
      const std::uint64_t at = place(part, k);
      if (at >= end) break;
      const std::uint64_t from = std::max(at, first), to = std::min(at + part.bytes, end);
      const std::uint64_t source_at = part.entry->offset + k * part.bytes + (from - at);
      const auto into = out.subspan(static_cast<std::size_t>(from - first), static_cast<std::size_t>(to - from));
      if (into.size() <= ReadContext::piece_size / 4) {
        STELE_TRY_ASSIGN(const auto bytes, context.window(*part.entry->source, source_at, into.size()));
        std::memcpy(into.data(), bytes.data(), into.size());
      } else {
        STELE_TRY(part.entry->source->read_at(source_at, into));
      }
      if (crcs != nullptr) crcs[p] = crc32c(crcs[p], into.data(), into.size());
    }
  }
  return {};
}

Status Joined::read(const void* at, std::uint64_t, std::uint64_t offset, std::span<std::byte> out,
                    ReadContext& context) {
  return static_cast<const Joined*>(at)->fill(offset, out, context, nullptr);
}

Status Joined::stream(const void* at, std::uint64_t, std::uint64_t size, PieceSink& sink, ReadContext& context) {
  /// Fills blocks in order, in which each part's bytes come in their order, too.
  struct Checked {
    const Joined& joined;
    mutable std::vector<std::uint32_t> crcs;
    Status fill(std::uint64_t first, std::span<std::byte> out, ReadContext& in) const {
      return joined.fill(first, out, in, crcs.data());
    }
  };
  const auto& self = *static_cast<const Joined*>(at);
  const Checked checked{self, std::vector<std::uint32_t>(self.parts_.size())};
  STELE_TRY(stream_blocks<Checked>(&checked, size, sink, context));
  for (std::size_t p = 0; p < self.parts_.size(); ++p) {
    const Entry& entry = *self.parts_[p].entry;
    if (checked.crcs[p] == entry.crc) continue;
    return Error(Errc::checksum, "the checksum of a slice does not match its bytes")
        .file(entry.source->name())
        .offset(entry.offset)
        .expected(std::to_string(entry.crc))
        .found(std::to_string(checked.crcs[p]));
  }
  return {};
}

}  // namespace tensorflow
}  // namespace detail
}  // namespace v0
}  // namespace stele
