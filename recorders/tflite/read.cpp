// Reads the constants of TensorFlow Lite's models into a Snapshot. Field numbers: tensorflow/compiler/mlir/lite/schema/
// schema.fbs.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/limits.hpp"
#include "encodings/flatbuffers/flatbuffers.hpp"
#include "json/json.hpp"
#include "leaves/needs.hpp"
#include "leaves/provider.hpp"
#include "leaves/source_range.hpp"
#include "passes/byte_order.hpp"
#include "snapshot/data.hpp"
#include "snapshot/tensor_index.hpp"
#include "snapshot/unreadable.hpp"
#include "stele/detail/codes.hpp"
#include "stele/quantize.hpp"
#include "stele/recorders/read_only.hpp"

namespace stele::inline v0 {
namespace detail::tflite {
namespace {

constexpr std::string_view identifier = "TFL3";
constexpr std::uint32_t version = 3;
/// The annotation with the name of a dtype whose elements are unpacked.
constexpr std::string_view dtype_note = "tflite.dtype";
/// Maximum size of the metadata that are read (64 KiB each): texts, which are small.
constexpr std::uint64_t max_metadata = std::uint64_t{64} << 10;

/// A type of TensorFlow Lite: the dtype, and the bits of an element that is packed. Without a dtype, `name` is the
/// reason why the tensor is unreadable.
struct Type {
  DType dtype = DType::none;
  unsigned packed = 0;
  std::string_view name{};
};
constexpr Type types[] = {
    {DType::f32},
    {DType::f16},
    {DType::i32},
    {DType::u8},
    {DType::i64},
    {DType::none, 0, "a tensor of strings"},
    {DType::boolean},
    {DType::i16},
    {DType::c64},
    {DType::i8},
    {DType::f64},
    {DType::c128},
    {DType::u64},
    {DType::none, 0, "a resource"},
    {DType::none, 0, "a variant"},
    {DType::u32},
    {DType::u16},
    {DType::i8, 4, "int4"},
    {DType::bf16},
    {DType::i8, 2, "int2"},
    {DType::u8, 4, "uint4"},
};

/// A tensor of integers of 2 or 4 bits, the first element in the lowest bits, without padding of rows.
struct Packed {
  SourcePtr source;
  std::uint64_t offset = 0, bytes = 0;
  unsigned bits = 4;
  bool sign = true;

  Status read(std::uint64_t first, std::span<std::byte> out) const {
    std::byte packed[4096];
    const unsigned each = 8 / bits;
    std::uint8_t codes[sizeof packed * 4];
    while (!out.empty()) {
      const std::uint64_t begin = first / each;
      const auto skipped = static_cast<std::size_t>(first % each);
      const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(bytes - begin, sizeof packed));
      STELE_TRY(source->read_at(offset + begin, std::span(packed).first(n)));
      const std::size_t count = std::min(n * each - skipped, out.size());
      unpack_bits(packed, bits, CodeLayout::dense, codes, skipped + count);
      const auto top = static_cast<std::uint8_t>(sign ? 1U << (bits - 1) : 0U);
      for (std::size_t i = 0; i < count; ++i) {
        out[i] = static_cast<std::byte>((codes[skipped + i] ^ top) - top);  // extends the sign
      }
      out = out.subspan(count);
      first += count;
    }
    return {};
  }
};
void packed_needs(const void* at, std::uint64_t /*number*/, Needs& needs) {
  const auto& packed = *static_cast<const Packed*>(at);
  needs.add({&source_ops, packed.source.get(), packed.offset}, packed.bytes);
}
constexpr LeafOps packed_ops{
    .read = [](const void* at, std::uint64_t /*number*/, std::uint64_t offset, std::span<std::byte> out,
               ReadContext& /*context*/) -> Status { return static_cast<const Packed*>(at)->read(offset, out); },
    .encoding = "packed integers",
    .needs = packed_needs};

class Reader {
 public:
  Reader(const SourcePtr& source, const Limits& limits)
      : in_(source, source->size()), memory_(limits, source->size(), index_rate::entry) {}

  Result<Snapshot> run() {
    if (in_.source()->size() < 8) {
      return Error(Errc::truncated, "the file ends inside its header").file(in_.source()->name());
    }
    std::byte head[8];
    STELE_TRY(in_.source()->read_at(0, head));
    if (std::string_view(reinterpret_cast<const char*>(head) + 4, 4) != identifier) {
      return Error(Errc::bad_magic, "the file is not a model of TensorFlow Lite").file(in_.source()->name());
    }
    const fb::Table model = in_.root();
    STELE_TRY(in_.status());
    if (const auto found = in_.number<std::uint32_t>(model, 0); found != version && in_.status()) {
      return Error(Errc::unsupported, "the version of the model's schema is not supported")
          .file(in_.source()->name())
          .expected(std::to_string(version))
          .found(std::to_string(found));
    }
    buffers_ = in_.vector(model, 4, 4);
    const fb::Vector subgraphs = in_.vector(model, 2, 4);
    builder_.set_flat();
    for (std::uint64_t i = 0; i < subgraphs.size; ++i) {
      STELE_TRY(subgraph(in_.table(subgraphs, i), i));
    }
    STELE_TRY(metadata(model));
    STELE_TRY(in_.status());
    STELE_TRY(sort_names(builder_));
    // Several tensors may share bytes.
    builder_.set_capacity(std::min(stored_, add_scaled(0, in_.source()->size(), 4)));
    builder_.keep(in_.source());
    if (has_operators_) builder_.data().left_out.emplace_back(graph_part);
    return builder_.finish();
  }

 private:
  /// The data of a buffer; `size` is 0 if it has none.
  struct Data {
    std::uint64_t at = 0, size = 0;
  };
  /// A tensor with data.
  struct Constant {
    std::uint64_t number = 0;  // in its subgraph
    fb::Table tensor;
    std::uint32_t buffer = 0;
    Data data;
    bool external = false;  // the data are in another file
    std::string name{};     // which no other constant has
  };
  /// The first tensor with the data of a buffer.
  struct First {
    std::uint32_t node = 0;
    Value quantization;
  };

  Status take(std::uint64_t bytes) {
    if (memory_.take(bytes)) return {};
    return index_error("the model's tensors need more memory than the file's size allows").file(in_.source()->name());
  }

  Data data_of(std::uint32_t number) {
    if (number >= buffers_.size) {
      in_.fail(buffers_.at, "a buffer of the model does not exist", "less than " + std::to_string(buffers_.size),
               std::to_string(number));
      return {};
    }
    const fb::Table buffer = in_.table(buffers_, number);
    // Models of more than 2 GiB have the data after the FlatBuffer. Smaller offsets are placeholders.
    const auto offset = in_.number<std::uint64_t>(buffer, 1), size = in_.number<std::uint64_t>(buffer, 2);
    if (offset > 1) {
      const std::uint64_t end = in_.source()->size();
      if (offset > end || size > end - offset) {
        in_.fail(buffer.at, "the data of a buffer are outside the file", "at most " + std::to_string(end),
                 std::to_string(offset) + " + " + std::to_string(size));
        return {};
      }
      return {offset, size};
    }
    const fb::Vector bytes = in_.vector(buffer, 0, 1);
    return {bytes.at, bytes.size};
  }

  Status subgraph(const fb::Table& graph, std::uint64_t number) {
    const fb::Vector tensors = in_.vector(graph, 0, 4);
    has_operators_ = has_operators_ || in_.vector(graph, 3, 4).size != 0;
    prefix_.clear();
    if (number != 0) {
      prefix_ = in_.text(graph, 4);
      if (prefix_.empty()) prefix_ = "subgraph." + std::to_string(number);
      prefix_ += '/';
    }
    constants_.clear();
    for (std::uint64_t i = 0; i < tensors.size; ++i) {
      Constant constant;
      constant.number = i;
      constant.tensor = in_.table(tensors, i);
      constant.buffer = in_.number<std::uint32_t>(constant.tensor, 2);
      constant.external = in_.number<std::uint32_t>(constant.tensor, 10) != 0;
      if (constant.buffer != 0) constant.data = data_of(constant.buffer);
      STELE_TRY(in_.status());
      if (constant.data.size == 0 && !constant.external) continue;  // an input or an activation
      STELE_TRY(take(2 * sizeof(Constant)));
      STELE_TRY_ASSIGN(constant.name, name_of(constant.tensor, i));
      constants_.push_back(std::move(constant));
    }
    for (const Constant& constant : constants_) STELE_TRY(add(constant));
    return in_.status();
  }

  /// Returns a name that no other tensor has.
  Result<std::string> name_of(const fb::Table& tensor, std::uint64_t i) {
    std::string name = in_.text(tensor, 3);
    STELE_TRY(in_.status());
    if (name.empty()) name = "tensor." + std::to_string(i);
    name.insert(0, prefix_);
    if (name.size() > fb::max_text) return Error(Errc::limit, "a tensor's name is too long").expected("at most 64 KiB");
    STELE_TRY(take(2 * name.size() + 128));
    // Names are for debugging only, so files may repeat them.
    if (const std::string first = name; !names_.insert(name).second) {
      do {
        name = first + '#' + std::to_string(++repeated_[first]);
      } while (!names_.insert(name).second);
      STELE_TRY(take(3 * name.size() + 256));
    }
    return name;
  }

  Status add(const Constant& constant) {
    const auto& [number, tensor, buffer, data, external, name] = constant;
    const fb::Vector extents = in_.vector(tensor, 0, 4);
    STELE_TRY(take(3 * sizeof(Extent) * extents.size));
    std::vector<Extent> shape;
    bool negative = false;
    for (std::uint64_t d = 0; d < extents.size; ++d) {
      const auto extent = in_.number<std::int32_t>(extents, d);
      negative = negative || extent < 0;
      shape.push_back(static_cast<Extent>(std::max(extent, 0)));
    }
    const auto code = in_.number<std::int8_t>(tensor, 1);
    const bool known = code >= 0 && static_cast<std::size_t>(code) < std::size(types);
    const Type type = known ? types[static_cast<std::size_t>(code)] : Type();
    const bool sparse = static_cast<bool>(in_.table(tensor, 6));
    const auto count = element_count(shape);
    const auto bytes = count && !negative && type.dtype != DType::none
                           ? byte_length(type.packed == 4 ? DType::i4 : type.dtype, *count)
                           : std::nullopt;
    const std::uint64_t stored = type.packed == 2 ? (bytes.value_or(0) + 3) / 4 : bytes.value_or(0);
    STELE_TRY(in_.status());

    TensorEntry entry{.name = name, .dtype = type.dtype, .shape = shape};
    std::string reason(type.dtype != DType::none ? "" : known ? type.name : "");
    if (!known) reason = "a tensor of type " + std::to_string(code);
    if (external) reason = "its data are in another file";
    if (reason.empty() && sparse) reason = "a sparse tensor";
    if (reason.empty() && (!bytes || shape.size() > 0xffff)) reason = "a tensor with an invalid shape";
    if (reason.empty() && stored != data.size) {
      reason = "a tensor of " + std::to_string(stored) + " bytes with data of " + std::to_string(data.size);
    }
    entry.unreadable = reason;
    entry.bytes = reason.empty() ? type.packed != 0 ? *count : stored : data.size;
    entry.provider = {&source_ops, in_.source().get(), data.at};
    if (!reason.empty()) {
      stored_ += data.size;
      return add_entry(builder_, entry, memory_);
    }
    STELE_TRY_ASSIGN(Value quantization, quantization_of(tensor, type));
    if (const auto first = first_.find(buffer); first != first_.end()) {
      const LeafView leaf(builder_.data(), builder_.nodes()[first->second.node].index);
      if (leaf.dtype() == type.dtype && leaf.byte_size() == entry.bytes && std::ranges::equal(leaf.shape(), shape) &&
          first->second.quantization == quantization) {
        builder_.alias(builder_.intern(name), first->second.node);
        return take(sizeof(Node) + 32 + 3 * name.size());
      }
    }
    if (type.packed != 0) {
      STELE_TRY(take(sizeof(Packed) + 64));
      const auto packed =
          std::make_shared<Packed>(Packed{in_.source(), data.at, data.size, type.packed, type.dtype == DType::i8});
      entry.provider = {&packed_ops, packed.get(), 0};
      builder_.keep(packed);
    }
    STELE_TRY(add_entry(builder_, entry, memory_));
    const auto node = static_cast<std::uint32_t>(builder_.nodes().size() - 1);
    if (type.packed != 0) {
      STELE_TRY(take(256));
      builder_.annotate(std::string(dtype_note), Value(type.name));
    }
    if (!quantization.is_null()) builder_.annotate(std::string(quantization_key), quantization);
    STELE_TRY(take(sizeof(First) + 64));
    if (first_.emplace(buffer, First{node, std::move(quantization)}).second) stored_ += entry.bytes;
    return {};
  }

  /// Returns the annotation of a quantized tensor; null for other tensors.
  Result<Value> quantization_of(const fb::Table& tensor, const Type& type) {
    const DTypeClass kind = dtype_class(type.dtype);
    const fb::Table from = in_.table(tensor, 4);
    if (!from || (kind != DTypeClass::signed_int && kind != DTypeClass::unsigned_int)) return Value();
    const unsigned width = type.packed != 0 ? type.packed : bits(type.dtype);
    Value::Map note{{"scheme", Value("zero_point")}, {"bits", Value(std::int64_t{width})}};
    if (kind == DTypeClass::signed_int) note.emplace_back("signed", Value(true));
    STELE_TRY(take(1024));
    if (const auto details = in_.number<std::uint8_t>(from, 4); details != 0) {
      note[0].second = Value(details == 2 ? "blockwise" : "custom");
      if (details != 2) return Value(std::move(note));
      const fb::Table blocks = in_.table(from, 5);
      const auto named = [&](const char* key, std::int32_t index) -> Status {
        const auto found =
            std::ranges::lower_bound(constants_, static_cast<std::int64_t>(index), {},
                                     [](const Constant& c) { return static_cast<std::int64_t>(c.number); });
        if (found == constants_.end() || static_cast<std::int64_t>(found->number) != index) return {};
        STELE_TRY(take(3 * found->name.size()));
        note.emplace_back(key, Value(found->name));
        return {};
      };
      STELE_TRY(named("scales", in_.number<std::int32_t>(blocks, 0)));
      if (const auto zeros = in_.number<std::int32_t>(blocks, 1); zeros > 0) STELE_TRY(named("zero_points", zeros));
      note.emplace_back("block_size", Value(std::int64_t{in_.number<std::int32_t>(blocks, 2)}));
      STELE_TRY(in_.status());
      return Value(std::move(note));
    }
    const fb::Vector scales = in_.vector(from, 2, 4), zeros = in_.vector(from, 3, 8);
    if (scales.size == 0) return Value();
    // The annotation is kept twice until the tensor is added.
    STELE_TRY(take(2 * (scales.size + std::max(scales.size, zeros.size)) * sizeof(Value)));
    const auto zero = [&](std::uint64_t i) {
      if (zeros.size == 1) i = 0;
      return Value(i < zeros.size ? in_.number<std::int64_t>(zeros, i) : std::int64_t{0});
    };
    const auto scale = [&](std::uint64_t i) { return Value(static_cast<double>(in_.number<float>(scales, i))); };
    if (scales.size == 1) {
      note.emplace_back("scale", scale(0));
      note.emplace_back("zero_point", zero(0));
    } else {
      Value::List scale_list, zero_list;
      scale_list.reserve(static_cast<std::size_t>(scales.size));
      zero_list.reserve(static_cast<std::size_t>(scales.size));
      for (std::uint64_t i = 0; i < scales.size; ++i) {
        scale_list.push_back(scale(i));
        zero_list.push_back(zero(i));
      }
      note.emplace_back("axis", Value(std::int64_t{in_.number<std::int32_t>(from, 6)}));
      note.emplace_back("scale", Value(std::move(scale_list)));
      note.emplace_back("zero_point", Value(std::move(zero_list)));
    }
    STELE_TRY(in_.status());
    return Value(std::move(note));
  }

  /// Reads the description, and the metadata that are text. Other tensors get a note.
  Status metadata(const fb::Table& model) {
    std::map<std::string, std::string> texts;
    std::string description = in_.text(model, 3);
    STELE_TRY(take(3 * description.size() + 256));
    if (!description.empty() && json::valid_utf8(description)) texts.emplace("description", std::move(description));
    const fb::Vector all = in_.vector(model, 6, 4);
    for (std::uint64_t i = 0; i < all.size; ++i) {
      const fb::Table entry = in_.table(all, i);
      std::string name = in_.text(entry, 0);
      const Data data = data_of(in_.number<std::uint32_t>(entry, 1));
      STELE_TRY(in_.status());
      const std::uint64_t size = std::min(data.size, max_metadata);
      STELE_TRY(take(3 * (name.size() + size) + 256));
      std::string text(static_cast<std::size_t>(size), '\0');
      STELE_TRY(in_.source()->read_at(data.at, std::as_writable_bytes(std::span(text))));
      text.resize(text.find_last_not_of('\0') + 1);  // the version of the runtime is padded
      const bool is_text = data.size <= max_metadata && text.find('\0') == text.npos && json::valid_utf8(text);
      if (is_text && json::valid_utf8(name)) {
        texts.insert_or_assign(std::move(name), std::move(text));
      } else {
        builder_.data().notes.push_back("the metadata " + json::coded_key(name) + " are not text, and are not read");
      }
    }
    builder_.set_metadata(std::move(texts));
    return {};
  }

  fb::Reader in_;
  IndexBudget memory_;
  SnapshotBuilder builder_;
  bool has_operators_ = false;
  fb::Vector buffers_;
  std::string prefix_;                                       // prefix of the current subgraph's names
  std::vector<Constant> constants_;                          // of the current subgraph
  std::unordered_set<std::string> names_;                    // so far
  std::unordered_map<std::string, std::uint64_t> repeated_;  // names with their last number
  std::unordered_map<std::uint32_t, First> first_;           // by buffer
  std::uint64_t stored_ = 0;                                 // bytes of all leaves whose data differ
};

}  // namespace
}  // namespace detail::tflite

const Capabilities& TfliteFormat::capabilities() const noexcept {
  static constexpr Capabilities can{.aliases = true, .metadata = true, .holds = [](DType dtype) {
                                      using detail::tflite::types;
                                      return std::any_of(std::begin(types), std::end(types),
                                                         [&](const auto& type) { return type.dtype == dtype; });
                                    }};
  return can;
}

bool TfliteFormat::recognises(std::span<const std::byte> head, std::uint64_t /*size*/) const noexcept {
  return head.size() >= 8 &&
         std::string_view(reinterpret_cast<const char*>(head.data()) + 4, 4) == detail::tflite::identifier;
}

Result<Snapshot> TfliteFormat::open(SourcePtr source, const OpenContext& context) const {
  return detail::in_host_order(detail::tflite::Reader(source, context.options().limits).run());
}

}  // namespace stele::inline v0
