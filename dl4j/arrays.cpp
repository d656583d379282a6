#include "arrays.hpp"

#include <algorithm>
#include <bit>

#include "passes/byte_order.hpp"
#include "passes/transpose.hpp"
#include "snapshot/data.hpp"
#include "snapshot/tensor_index.hpp"
#include "stele/detail/little_endian.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail::samediff {
namespace {

/// Returns a string array as a Value: a string, or lists of strings that are nested by the shape.
Value value_of(const std::vector<std::string>& texts, std::span<const Extent> shape) {
  if (shape.empty()) return Value(texts.empty() ? std::string() : texts.front());
  // Nest the values from the innermost lists outwards.
  Value::List values;
  values.reserve(texts.size());
  for (const std::string& t : texts) values.emplace_back(t);
  for (std::size_t axis = shape.size(); axis-- > 1;) {
    const auto n = static_cast<std::size_t>(shape[axis]);
    if (n == 0) break;
    Value::List outer;
    for (std::size_t i = 0; i + n <= values.size(); i += n) {
      Value::List inner(std::make_move_iterator(values.begin() + static_cast<std::ptrdiff_t>(i)),
                        std::make_move_iterator(values.begin() + static_cast<std::ptrdiff_t>(i + n)));
      outer.emplace_back(std::move(inner));
    }
    values = std::move(outer);
  }
  return Value(std::move(values));
}

}  // namespace

Error wrong_length(std::uint64_t expected, std::uint64_t found) {
  return malformed("the array's length does not fit its dtype and shape")
      .expected(std::to_string(expected) + " bytes")
      .found(std::to_string(found));
}

Error too_much() { return index_error("the index takes more memory than a file of this size may use"); }

Result<std::vector<std::string>> texts_of(const ArrayFacts& facts, std::span<const std::byte> buffer) {
  const auto count = element_count(facts.shape);
  if (!count) return malformed("the number of elements exceeds 64 bits");
  if (*count == 0) return std::vector<std::string>();
  // The layout is a big-endian count and offsets, or only offsets in either byte order. The first offset is 0; the last
  // is the length of the text after the offsets.
  struct Layout {
    bool counted, big;
  };
  for (const Layout layout : {Layout{true, true}, Layout{false, false}, Layout{false, true}}) {
    const std::uint64_t words = *count + 1 + (layout.counted ? 1 : 0);
    if (words > buffer.size() / 8 || *count > buffer.size() / 8) continue;
    const auto word = [&](std::uint64_t i) {
      auto w = load_le<std::uint64_t>(buffer.data() + 8 * i);
      return layout.big ? __builtin_bswap64(w) : w;
    };
    const std::uint64_t first = layout.counted ? 1 : 0;
    const auto text = buffer.subspan(static_cast<std::size_t>(8 * words));
    bool fits = (!layout.counted || word(0) == *count) && word(first) == 0 && word(first + *count) == text.size();
    for (std::uint64_t i = 0; fits && i < *count; ++i) fits = word(first + i) <= word(first + i + 1);
    if (!fits) continue;
    std::vector<std::string> texts;
    texts.reserve(static_cast<std::size_t>(*count));
    for (std::uint64_t i = first; i < first + *count; ++i) {
      texts.emplace_back(reinterpret_cast<const char*>(text.data()) + word(i), word(i + 1) - word(i));
    }
    return texts;
  }
  return malformed("the offsets of the string array do not fit its strings");
}

Status check_arrays(const Graph& graph) {
  const auto check = [](const GraphOperation& operation, const GraphArray& array) -> Status {
    const auto count = element_count(array.shape);
    const bool texts = array.dtype == DType::string;
    const auto wanted = texts || !count ? count : byte_length(array.dtype, *count);
    const std::uint64_t stored = texts ? array.strings.size() : array.bytes.size();
    if (wanted == stored) return {};
    return Error(Errc::invalid_argument, "an array of the operation does not fit its dtype and shape")
        .path(operation.name)
        .expected(wanted ? std::to_string(*wanted) + (texts ? " strings" : " bytes") : "a dtype and a shape that fit")
        .found(std::to_string(stored));
  };
  for (const GraphOperation& operation : graph.operations) {
    if (operation.scalar) STELE_TRY(check(operation, *operation.scalar));
    for (const GraphProperty& property : operation.properties) {
      for (const GraphArray& array : property.arrays) STELE_TRY(check(operation, array));
    }
  }
  for (const auto& inner : graph.sub_graphs) STELE_TRY(check_arrays(inner.second));
  return {};
}

Status Arrays::add(std::string_view name, const ArrayFacts& facts, Provider provider) {
  if (facts.dtype == DType::none || facts.dtype == DType::string) return malformed("the array has no data type");
  const auto leaf = static_cast<std::uint32_t>(builder_.data().leaves.size());
  std::vector<Extent> shape = facts.shape;
  if (!facts.axes.empty()) {
    std::vector<std::size_t>& back = axes_[leaf];
    back.resize(facts.axes.size());
    for (std::size_t k = 0; k < back.size(); ++k) {
      shape[k] = facts.shape[facts.axes[k]];
      back[facts.axes[k]] = k;
    }
  }
  big_endian_.push_back(facts.big_endian != (std::endian::native == std::endian::big));
  const std::string_view own = builder_.intern(name);
  names_.insert(own);
  builder_.tensor(own, facts.dtype, shape, facts.bytes, provider);
  return {};
}

std::uint64_t Arrays::memory_of(std::string_view name, const ArrayFacts& facts) {
  // Arrays grow by doubling, and briefly hold three times their content. A string takes several times its bytes.
  const std::uint64_t texts = facts.dtype == DType::string ? 8 * facts.bytes : 0;
  return 3 * (sizeof(Node) + sizeof(LeafData) + name.size()) + 64 + 16 * facts.shape.size() + texts;
}

Status Arrays::add_texts(std::string_view name, const ArrayFacts& facts, std::span<const std::byte> buffer) {
  STELE_TRY_ASSIGN(const auto texts, texts_of(facts, buffer));
  const std::string_view own = builder_.intern(name);
  names_.insert(own);
  builder_.value(own, value_of(texts, facts.shape));
  return {};
}

Status Arrays::set_metadata(std::map<std::string, std::string> metadata, IndexBudget& memory) {
  return finish_names(builder_, std::move(metadata), memory);
}

void Arrays::leave_out(std::string_view part) { builder_.data().left_out.emplace_back(part); }

Result<Snapshot> Arrays::finish(std::shared_ptr<const void> keeper) {
  builder_.keep(std::move(keeper));
  Snapshot snapshot = builder_.finish();
  if (std::find(big_endian_.begin(), big_endian_.end(), true) != big_endian_.end()) {
    snapshot = with_bytes_swapped(snapshot, &big_endian_);
  }
  if (axes_.empty()) return snapshot;
  return transpose_where(snapshot, [&, leaf = std::uint32_t{0}](const LeafView&) mutable {
    const auto found = axes_.find(leaf++);  // called once for each leaf, in order
    return found != axes_.end() ? std::optional(found->second) : std::nullopt;
  });
}

}  // namespace stele::inline v0::detail::samediff
