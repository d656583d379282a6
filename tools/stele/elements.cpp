#include "elements.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>

#include "statistics.hpp"

namespace stele::command {

namespace {

template <class T>
T read_as(const std::byte* at) {
  T value{};
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <class T>
std::string digits(T value) {
  std::array<char, 64> text{};
  const auto result = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), result.ptr};
}

/// The chosen indices of one axis.
struct Range {
  std::uint64_t begin = 0, count = 0;
  std::int64_t step = 1;
  bool dropped = false;  // one index: the axis is not printed

  std::uint64_t at(std::uint64_t i) const {
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(begin) + static_cast<std::int64_t>(i) * step);
  }
};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

Error bad_slice(std::string_view text) {
  return Error(Errc::invalid_argument, "not a slice").expected("as in NumPy: [0, 2:5, ::2, -1, ...]").found(text);
}

Result<std::int64_t> parse_integer(std::string_view text) {
  text = trimmed(text);
  std::int64_t number = 0;
  const auto [rest, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc() || rest != text.data() + text.size()) return bad_slice(text);
  return number;
}

Result<Range> parse_range(std::string_view text, std::uint64_t extent) {
  const auto length = static_cast<std::int64_t>(extent);
  const std::size_t colon = text.find(':');
  if (colon == text.npos) {
    STELE_TRY_ASSIGN(std::int64_t index, parse_integer(text));
    if (index < 0) index += length;
    if (index < 0 || index >= length) {
      return Error(Errc::invalid_argument, "an index outside the axis")
          .expected("less than " + std::to_string(extent))
          .found(text);
    }
    return Range{static_cast<std::uint64_t>(index), 1, 1, true};
  }
  const std::size_t second = text.find(':', colon + 1);
  const auto part = [](std::string_view t) -> Result<std::optional<std::int64_t>> {
    if (trimmed(t).empty()) return std::optional<std::int64_t>();
    STELE_TRY_ASSIGN(const std::int64_t number, parse_integer(t));
    return std::optional(number);
  };
  STELE_TRY_ASSIGN(const auto first, part(text.substr(0, colon)));
  STELE_TRY_ASSIGN(const auto last, part(text.substr(colon + 1, second == text.npos ? second : second - colon - 1)));
  STELE_TRY_ASSIGN(const auto step, part(second == text.npos ? "" : text.substr(second + 1)));
  const std::int64_t by = step.value_or(1);
  if (by == 0 || by == INT64_MIN) return bad_slice(text);
  // As in Python's slice.indices().
  const std::int64_t low = by < 0 ? -1 : 0;
  const std::int64_t high = by < 0 ? length - 1 : length;
  const auto clamp = [&](std::optional<std::int64_t> i, std::int64_t otherwise) {
    return i ? std::clamp(*i < 0 ? *i + length : *i, low, high) : otherwise;
  };
  const std::int64_t begin = clamp(first, by < 0 ? high : low);
  const std::int64_t end = clamp(last, by < 0 ? low : high);
  const std::int64_t way = by < 0 ? begin - end : end - begin;
  const std::int64_t stride = std::abs(by);
  const std::uint64_t count = way <= 0 ? 0 : static_cast<std::uint64_t>((way - 1) / stride + 1);
  return Range{static_cast<std::uint64_t>(begin < 0 ? 0 : begin), count, by, false};
}

Result<std::vector<Range>> parse_slice(std::string_view text, std::span<const Extent> shape) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size() && !trimmed(text).empty();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    parts.push_back(trimmed(text.substr(begin, comma - begin)));
    begin = comma + 1;
  }
  const auto dots = std::find(parts.begin(), parts.end(), "...");
  const std::size_t given = parts.size() - (dots != parts.end() ? 1 : 0);
  if (given > shape.size() || std::count(parts.begin(), parts.end(), "...") > 1) {
    return bad_slice(text).hint("the tensor has " + std::to_string(shape.size()) + " axes");
  }
  const std::size_t before = static_cast<std::size_t>(dots - parts.begin());
  std::vector<Range> ranges;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    const std::size_t from_end = shape.size() - axis;
    std::string_view part = ":";
    if (axis < before) {
      part = parts[axis];
    } else if (dots != parts.end() && from_end < parts.size() - before) {
      part = parts[parts.size() - from_end];
    }
    STELE_TRY_ASSIGN(const Range range, parse_range(part, shape[axis]));
    ranges.push_back(range);
  }
  return ranges;
}

/// Prints the chosen elements, like NumPy: the last axis in a line.
class Printer {
 public:
  Printer(const LeafView& leaf, std::vector<Range> ranges, std::uint64_t max_elements, Terminal& terminal)
      : leaf_(leaf), ranges_(std::move(ranges)), left_(max_elements), terminal_(terminal) {}

  Status run(Document& document) {
    if (terminal_.json()) {
      document.member("name", Value(leaf_.path()));
      document.member("dtype", Value(name(leaf_.dtype())));
      Value::List shape;
      for (const Range& range : ranges_) {
        if (!range.dropped) shape.emplace_back(Value(range.count));
      }
      document.member("shape", Value(std::move(shape)));
      document.begin_list("values");
      Status status = walk(0, 0, &document);
      document.end_list();
      return status;
    }
    terminal_.print(safe(leaf_.path()) + "  " + std::string(name(leaf_.dtype())) + " " + to_string(leaf_.shape()) +
                    "\n");
    STELE_TRY(walk(0, 0, nullptr));
    terminal_.print("\n");
    if (left_ == 0 && skipped_ != 0) terminal_.note("and more elements: --max-print N prints more");
    return {};
  }

 private:
  Status element(std::uint64_t index, Document* document) {
    if (left_ == 0) return ++skipped_, Status();
    --left_;
    const unsigned width = bits(leaf_.dtype());
    std::array<std::byte, 16> bytes{};
    STELE_TRY(leaf_.read(index * width / 8, std::span(bytes).first(std::max(1U, width / 8)), context_));
    const std::string text = element_text(leaf_.dtype(), bytes.data(), width == 4 && index % 2 != 0);
    if (document != nullptr) {
      document->item(Value(text));
    } else {
      terminal_.print(text);
    }
    return {};
  }

  // Recursion as deep as the tensor's rank.
  Status walk(std::size_t axis, std::uint64_t index, Document* document) {
    if (axis == ranges_.size()) return element(index, document);
    const Range& range = ranges_[axis];
    const auto extent = leaf_.shape()[axis];
    if (range.dropped) return walk(axis + 1, index * extent + range.begin, document);
    if (document == nullptr) terminal_.print("[");
    const bool lines = std::any_of(ranges_.begin() + static_cast<std::ptrdiff_t>(axis) + 1, ranges_.end(),
                                   [](const Range& r) { return !r.dropped; });
    ++depth_;
    for (std::uint64_t i = 0; i < range.count; ++i) {
      if (left_ == 0) {
        if (document == nullptr) terminal_.print(i == 0 ? "…" : " …");
        ++skipped_;
        break;
      }
      if (i != 0 && document == nullptr) terminal_.print(lines ? "\n" + std::string(depth_, ' ') : " ");
      STELE_TRY(walk(axis + 1, index * extent + range.at(i), document));
    }
    --depth_;
    if (document == nullptr) terminal_.print("]");
    return {};
  }

  const LeafView leaf_;
  std::vector<Range> ranges_;
  std::uint64_t left_;
  std::uint64_t skipped_ = 0;
  std::size_t depth_ = 0;
  Terminal& terminal_;
  ReadContext context_;
};

}  // namespace

std::string element_text(DType dtype, const std::byte* at, bool half) {
  const auto complex = [](auto real, auto imaginary) {
    return digits(real) + (std::signbit(imaginary) ? "" : "+") + digits(imaginary) + "j";
  };
  switch (dtype) {
    case DType::f64:
      return digits(read_as<double>(at));
    case DType::f32:
      return digits(read_as<float>(at));
    case DType::i64:
      return digits(read_as<std::int64_t>(at));
    case DType::u64:
      return digits(read_as<std::uint64_t>(at));
    case DType::c64:
      return complex(read_as<float>(at), read_as<float>(at + 4));
    case DType::c128:
      return complex(read_as<double>(at), read_as<double>(at + 8));
    case DType::boolean:
      return *at == std::byte{0} ? "false" : "true";
    default:
      break;
  }
  std::array<double, 2> numbers{};
  facts::to_doubles(dtype, at, bits(dtype) == 4 ? 2 : 1, numbers.data());
  return digits(static_cast<float>(numbers.at(half ? 1 : 0)));
}

Status print_elements(const Snapshot& snapshot, const std::string& what, std::uint64_t max_elements, Document& document,
                      Terminal& terminal) {
  std::string path = what;
  std::string_view slice;
  auto found = snapshot.find(path);
  if (!found && what.ends_with(']')) {  // a name may contain brackets itself
    const std::size_t open = what.rfind('[');
    if (open != what.npos) {
      path = what.substr(0, open);
      slice = std::string_view(what).substr(open + 1, what.size() - open - 2);
      found = snapshot.find(path);
    }
  }
  if (!found) return with_similar(Error(Errc::not_found, "no tensor has this name").path(path), snapshot);
  if (!facts::has_numbers(found->dtype())) {
    return Error(Errc::unsupported, "elements of this dtype are not printed").path(path).found(name(found->dtype()));
  }
  STELE_TRY_ASSIGN(auto ranges, parse_slice(slice, found->shape()));
  return Printer(*found, std::move(ranges), max_elements, terminal).run(document);
}

}  // namespace stele::command
