// Finds the parts of quantized weights by their names, dtypes and shapes. Layouts: docs/guide/quantized-checkpoints.md.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "json/json.hpp"
#include "passes/composites/composite.hpp"
#include "passes/composites/tables.hpp"
#include "snapshot/items.hpp"
#include "snapshot/paths.hpp"
#include "stele/bundle.hpp"
#include "stele/parts.hpp"
#include "stele/precision/convert.hpp"
#include "stele/source.hpp"
#include "stele/value.hpp"

namespace stele::inline v0 {
namespace detail::composites {
namespace {

constexpr std::uint64_t max_read_at_once = std::uint64_t{64} << 10;  // bytes of shapes, tables and JSON

std::uint64_t divided_up(std::uint64_t a, std::uint64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

bool is_float8(DType d) {
  return d == DType::f8_e4m3fn || d == DType::f8_e5m2 || d == DType::f8_e4m3fnuz || d == DType::f8_e5m2fnuz;
}
bool is_word(DType d) { return d == DType::i32 || d == DType::u32; }

class Recogniser {
 public:
  Recogniser(const Snapshot& snapshot, Items items, const Value& config)
      : snapshot_(snapshot),
        items_(std::move(items)),
        index_(items_.list),
        config_(config),
        claimed_(snapshot.leaf_count()) {
    for (const Item& i : items_.list) {
      if (i.target) tied_.insert(*i.target);
    }
    if (const Value::Map* const all = config.as_map()) {
      for (const auto& [key, value] : *all) {
        if (value.as_map() != nullptr) config_layers_.emplace(key, &value);
      }
    }
    const auto text = snapshot.metadata().find("_quantization_metadata");
    if (text == snapshot.metadata().end()) return;
    const auto parsed = parse_json(text->second);
    const Value* const layers = parsed ? parsed->find("layers") : nullptr;
    if (layers == nullptr || layers->as_map() == nullptr) return;
    for (const auto& [layer, description] : *layers->as_map()) comfy_.insert(layer);
  }

  Result<Snapshot> run() {
    for (std::size_t i = 0; i < items_.list.size(); ++i) {
      if (items_.list[i].is_tensor()) STELE_TRY(noted(items_.list[i].path, item(items_.list[i].path)));
    }
    return finish();
  }
  Result<Snapshot> run(const std::vector<Scaled>& tensors) {
    for (const Scaled& s : tensors) STELE_TRY(noted(s.codes, linear(s)));
    return finish();
  }

 private:
  /// Makes a note of an error that is one of the parts.
  Status noted(const std::string& path, Status added) {
    if (added) return added;
    const Errc code = added.error().code();
    if (code != Errc::limit && code != Errc::dtype_mismatch && code != Errc::malformed) return added;
    add_note(path + ": " + std::string(added.error().message()));
    return {};
  }

  Result<Snapshot> finish() {
    if (made_at_.empty() && notes_.empty()) return snapshot_;
    Items result;
    result.keep(items_);
    result.metadata = items_.metadata;
    result.properties = items_.properties;
    result.left_out = items_.left_out;
    for (const Item& old : items_.list) {
      const std::uint32_t part = old.is_tensor() ? leaf_of(old) : no_index;
      if (const auto made = made_at_.find(part); made != made_at_.end()) {
        const auto& [name, composite] = made->second;
        Item& item = result.list.emplace_back(old);
        item.path = name;
        item.derived =
            DerivedLeaf{DType::f32, composite->shape, composite->size() * sizeof(float), provider_of(*composite)};
        result.keepers.push_back(composite);
      } else if (part == no_index || !claimed_[part]) {
        result.list.push_back(old);
      }
    }
    STELE_TRY_ASSIGN(const Snapshot joined, result.build());
    auto data = derived_data(joined);
    if (note_count_ > notes_.size()) notes_.push_back("and " + std::to_string(note_count_ - notes_.size()) + " more");
    data->notes = std::move(notes_);
    data->origin = snapshot_.origin();
    std::uint64_t bytes = 0;
    for (const LeafData& leaf : data->leaves) bytes += leaf.bytes;
    data->capacity = std::max(data->capacity, bytes);
    return Snapshot(std::shared_ptr<const SnapshotData>(std::move(data)));
  }

  using Made = std::shared_ptr<Composite>;

  // --- what is there ---

  const Item* find(std::string_view path) const {
    const auto at = index_.find(path);
    return at && items_.list[*at].is_tensor() ? &items_.list[*at] : nullptr;
  }
  /// Returns true for floats of whole bytes.
  static bool is_float(const LeafView& l) {
    return dtype_class(l.dtype()) == DTypeClass::floating && element_size(l.dtype()) != 0;
  }
  std::uint32_t leaf_of(const Item& item) const { return item.from->nodes[item.node].index; }
  LeafView leaf(std::uint32_t number) const { return snapshot_.leaf(number); }

  /// Reads a small part.
  Result<std::string> bytes_of(std::uint32_t number) const {
    const LeafView part = leaf(number);
    if (part.byte_size() > max_read_at_once) return Error(Errc::limit, "the part is too large").path(part.path());
    std::string text(static_cast<std::size_t>(part.byte_size()), '\0');
    STELE_TRY(part.read(0, std::as_writable_bytes(std::span(text))));
    return text;
  }
  Result<std::vector<float>> floats_of(std::uint32_t number) const {
    STELE_TRY_ASSIGN(const std::string text, bytes_of(number));
    const LeafView part = leaf(number);
    std::vector<float> floats(static_cast<std::size_t>(part.size()));
    const ConvertOutcome outcome =
        convert(part.dtype(), reinterpret_cast<const std::byte*>(text.data()), DType::f32,
                reinterpret_cast<std::byte*>(floats.data()), floats.size(), {.allow_kind_change = true});
    if (outcome.status != ConvertStatus::ok)
      return Error(Errc::dtype_mismatch, "the part has no numbers").path(part.path());
    return floats;
  }

  // --- names ---

  /// Makes the composite tensor of which this is the part that determines the scheme.
  Status item(const std::string& path) {
    const auto stem = [&](std::string_view suffix) {
      return path.ends_with(suffix) ? std::optional(path.substr(0, path.size() - suffix.size())) : std::nullopt;
    };
    const auto below = [&](std::string_view s, std::string_view suffix) {
      return find(std::string(s).append(suffix)) != nullptr;
    };
    if (const auto s = stem("_scale_inv")) return scaled(*s, {"", "_scale_inv"}, "fp8");
    if (const auto s = stem("._weight_scale")) return torchao(*s);
    if (const auto s = stem("_scale"); s && below(*s, "_packed")) return packed(*s);
    if (const auto s = stem("_scale"); s && below(*s, "_scale_2"))
      return halves(*s, "nvfp4", {"", "_scale", "_scale_2"});
    if (const auto s = stem(".weight_scale")) {
      return scaled(*s + ".weight", {"", "_scale", "_zero_point?", "_g_idx?"}, "");
    }
    if (const auto s = stem(".scale")) return deepseek(*s);
    if (const auto s = stem(".scale_weight")) return scaled(*s, {".weight", ".scale_weight"}, "scaled-fp8");
    if (const auto s = stem(".qweight")) return words(*s);
    if (const auto s = stem(".weight.absmax")) return bitsandbytes(*s);
    if (const auto s = stem(".SCB")) return bitsandbytes_8(*s);
    if (const auto s = stem("_blocks")) return blocks(*s);
    if (const auto s = stem(".scales"); s && !below(*s, ".qweight")) return mlx(*s);
    return {};
  }

  // --- making ---

  /// Returns the suffix of the weight that has this part.
  static std::string_view weight_suffix(std::string_view codes) {
    return codes == ".weight" || codes == "._weight_qdata" ? ".weight" : "";
  }

  using Suffixes = std::initializer_list<std::string_view>;

  /// Begins a composite tensor of the parts with these suffixes, the first of which has the codes; optional ones end
  /// with '?'. Returns null if one is missing, with a note if the names are sure to be those of the scheme.
  Made begin(const std::string& stem, std::string_view suffix, std::string_view scheme, Suffixes suffixes,
             bool sure = false) {
    auto made = std::make_shared<Composite>();
    made->base = snapshot_;
    made->scheme = scheme;
    made->suffix = suffix;
    for (std::string_view name : suffixes) {
      const bool optional = name.ends_with('?');
      if (optional) name.remove_suffix(1);
      const Item* const found = find(stem + std::string(name));
      if (found != nullptr) {
        made->parts.push_back({std::string(name), leaf_of(*found)});
      } else if (!optional) {
        if (sure) note(stem, *made, stem + std::string(name) + " is missing");
        return nullptr;
      }
    }
    made->codes = made->parts.front().leaf;
    return made;
  }
  static std::uint32_t part(const Composite& c, std::string_view suffix) {
    const auto at = std::find_if(c.parts.begin(), c.parts.end(), [&](const Part& p) { return p.suffix == suffix; });
    return at != c.parts.end() ? at->leaf : no_index;
  }

  void add_note(std::string text) {
    constexpr std::size_t max_notes = 100;
    if (notes_.size() < max_notes) notes_.push_back(std::move(text));
    ++note_count_;
  }
  void note(const std::string& stem, const Composite& c, std::string_view why) {
    add_note(stem + c.suffix + ": the parts of " + c.scheme + " stay tensors: " + std::string(why));
  }
  /// Adds a finished composite tensor, unless `why` says what is wrong.
  Status add(const std::string& stem, Made made, std::string_view why = {}) {
    if (why.empty() && !made->shape.element_count()) why = "too many elements";
    if (why.empty() && made->size() == 0) return {};
    if (why.empty() && made->size() > UINT64_MAX / 64) why = "too many elements";
    const std::string name = stem + made->suffix;
    if (why.empty()) {
      if (const Item* const other = find(name);
          other != nullptr && std::none_of(made->parts.begin(), made->parts.end(),
                                           [&](const Part& p) { return p.leaf == leaf_of(*other); })) {
        why = "a tensor with the weight's name exists";
      }
    }
    for (const Part& p : made->parts) {
      if (!why.empty()) break;
      if (claimed_[p.leaf]) why = "a part belongs to another weight";
      if (const std::string path = leaf(p.leaf).path(); path != name && tied_.contains(path))
        why = "a part has two names";
    }
    if (!why.empty()) return note(stem, *made, why), Status();
    if (made->suffix.empty() && stem.ends_with(".weight")) {  // other parts of the module belong to it
      made->suffix = ".weight";
      for (Part& p : made->parts) p.suffix.insert(0, p.whole ? std::string_view() : std::string_view(made->suffix));
      const Item* const marker = find(stem_of(stem, *made) + ".comfy_quant");
      if (marker != nullptr) made->parts.push_back({".comfy_quant", leaf_of(*marker)});
    }
    for (const Part& p : made->parts) claimed_[p.leaf] = true;
    const std::uint32_t codes = made->codes;
    made_at_.emplace(codes, std::pair(name, std::move(made)));  // its place is that of the codes
    return {};
  }

  /// Sets the matrix of a weight: leading axes are a stack.
  static void set_shape(Composite& c, std::span<const Extent> shape) {
    c.shape = Shape(shape);
    c.columns = shape.empty() ? 1 : shape.back();
    c.stack_rows = shape.size() < 2 ? 1 : shape[shape.size() - 2];
    c.rows = c.columns == 0 ? 0 : c.shape.element_count().value_or(0) / c.columns;
  }

  /// Sets the groups of a grid of scales, [stacks..., a, b] for a weight [stacks..., N, K]. Returns what is wrong.
  std::string set_grid(Composite& c, std::uint32_t scales, std::span<const std::uint64_t> block) {
    const auto shape = leaf(scales).shape();
    const std::uint64_t count = leaf(scales).size();
    const std::uint64_t stacks = c.stack_rows == 0 ? 0 : c.rows / c.stack_rows;
    c.scales.leaf = scales;
    if (count == 1) {
      c.scales.rows = c.scales.columns = 1;
      c.group = c.columns;
      c.row_group = c.rows;
      c.stack_rows = c.rows;
      return {};
    }
    std::uint64_t a = 0, b = 1;  // of a stack
    if (shape.size() == c.shape.size() && shape.size() >= 2) {
      a = shape[shape.size() - 2];
      b = shape[shape.size() - 1];
    } else if (shape.size() + 1 == c.shape.size()) {  // a scale for each row
      a = shape.empty() ? 1 : shape.back();
    }
    if (a == 0 || b == 0 || count != stacks * a * b) return "scales of the shape " + to_string(shape);
    const auto size_of = [](std::uint64_t extent, std::uint64_t groups, std::uint64_t known) -> std::uint64_t {
      if (groups == extent) return 1;
      if (groups == 1) return extent;
      if (known != 0 && divided_up(extent, known) == groups) return known;
      if (extent % groups == 0) return extent / groups;
      for (std::uint64_t size = 16; size < extent; size *= 2) {  // blocks, the last of which is incomplete
        if (divided_up(extent, size) == groups) return size;
      }
      return 0;
    };
    c.row_group = size_of(c.stack_rows, a, block.size() == 2 ? block[0] : 0);
    c.group = size_of(c.columns, b, block.size() == 2 ? block[1] : 0);
    if (c.row_group == 0 || c.group == 0) return "scales of the shape " + to_string(shape);
    c.scales.rows = stacks * a;
    c.scales.columns = b;
    return {};
  }

  /// Returns the rows and columns of a block that has a scale; empty if the configuration does not say.
  std::vector<std::uint64_t> block_size() const {
    auto list = config_.at("weight_block_size").to<std::vector<std::uint64_t>>();
    if (!list && first_weights() != nullptr) {
      list = first_weights()->at("block_structure").to<std::vector<std::uint64_t>>();
    }
    const bool good = list && list->size() == 2 && (*list)[0] != 0 && (*list)[1] != 0;
    return good ? *std::move(list) : std::vector<std::uint64_t>();
  }

  /// Sets the dtype of scales; bytes are those of `bytes`. Returns false if they are no numbers.
  bool set_dtype(Grid& scales, DType bytes = DType::f8_e8m0) const {
    const DType dtype = leaf(scales.leaf).dtype();
    if (dtype == DType::u8) scales.dtype = bytes;
    return dtype == DType::u8 || is_float(leaf(scales.leaf));
  }
  bool exponents(const Grid& scales) const {
    return scales.dtype == DType::f8_e8m0 || leaf(scales.leaf).dtype() == DType::f8_e8m0;
  }
  /// Returns true for a layer that ComfyUI describes.
  bool is_comfy(const std::string& weight) const {
    const std::string layer = weight.ends_with(".weight") ? weight.substr(0, weight.size() - 7) : weight;
    return comfy_.contains(layer) || find(layer + ".comfy_quant") != nullptr;
  }
  /// Returns true if the scales of a weight with groups of 16 or 32 elements are in tiles.
  bool in_tiles(const std::string& stem) const {
    if (is_comfy(stem)) return true;
    const auto text = snapshot_.metadata().find(stem + ".weight");
    if (text == snapshot_.metadata().end()) return false;
    const auto about = parse_json(text->second);
    const auto tiles = about ? about->at("_data").at("is_swizzled_scales").to<bool>() : Result<bool>(false);
    return tiles && *tiles;
  }
  /// Sets groups of `group` columns, whose scales are in tiles, if their number is that of whole tiles.
  bool set_tiles(Composite& c, std::uint32_t scales, std::uint64_t group) const {
    const std::uint64_t columns = divided_up(c.columns, group);
    if (c.rows > UINT32_MAX || columns > UINT32_MAX) return false;
    if (leaf(scales).size() != divided_up(c.rows, 128) * 128 * divided_up(columns, 4) * 4) return false;
    if (element_size(leaf(scales).dtype()) != 1) return false;
    c.scales.leaf = scales;
    c.scales.rows = c.rows;
    c.scales.columns = columns;
    c.scales.swizzled = true;
    c.stack_rows = c.rows;
    c.row_group = 1;
    c.group = group;
    return true;
  }
  /// Sets the number that multiplies or divides all scales.
  Result<std::string> set_global(float& number, std::uint32_t part) const {
    if (part == no_index) return std::string();
    STELE_TRY_ASSIGN(const std::vector<float> found, floats_of(part));
    if (found.size() != 1 || !(found[0] != 0)) return std::string("a global scale that is no number other than 0");
    number = found[0];
    return std::string();
  }

  // --- schemes ---

  /// Integers of 8 or 4 bits with scales of f32 for all, or for each index of an axis (ONNX's DequantizeLinear).
  Status linear(const Scaled& s) {
    const Item *const codes_item = find(s.codes), *const scale_item = find(s.scale), *const zero_item = find(s.zero);
    if (codes_item == nullptr || scale_item == nullptr) return {};  // the model computes them
    const LeafView codes = leaf(leaf_of(*codes_item));
    const bool halves = codes.dtype() == DType::i4 || codes.dtype() == DType::u4;
    const bool has_sign = codes.dtype() == DType::i4 || codes.dtype() == DType::i8;
    if (!halves && codes.dtype() != DType::i8 && codes.dtype() != DType::u8) return {};
    constexpr std::string_view ending = "_quantized";  // of onnxruntime's quantizer
    std::string name = s.codes;
    if (name.ends_with(ending) && name.size() > ending.size()) name.resize(name.size() - ending.size());
    if (name != s.codes && index_.find(name)) name = s.codes;
    auto c = std::make_shared<Composite>();
    c->base = snapshot_;
    c->scheme = "linear";
    c->by_names = false;
    for (const Item* const part : {codes_item, scale_item, zero_item}) {
      if (part == nullptr) continue;
      const bool below = part->path.starts_with(name);
      c->parts.push_back({below ? part->path.substr(name.size()) : part->path, leaf_of(*part), !below});
    }
    c->codes = leaf_of(*codes_item);
    set_shape(*c, codes.shape());
    if (c->rows == 0 || c->columns == 0) return {};
    c->bits = halves ? 4 : 8;
    c->packing = halves ? Packing::low_first : Packing::elements;
    c->table = has_sign ? signed_table(c->bits) : integer_table(c->bits, false);
    if (halves && c->columns % 2 != 0 && c->rows > 1) return add(name, c, "rows that are no whole bytes");
    if (s.blocks) return add(name, c, "scales of blocks");
    std::string why = set_axis(*c, leaf_of(*scale_item), s.axis);
    if (why.empty() && !is_float(leaf(c->scales.leaf))) why = "scales that are no floats";
    if (why.empty() && zero_item != nullptr) {
      const LeafView zeros = leaf(leaf_of(*zero_item));
      if (element_size(zeros.dtype()) != 0) {
        why = set_zeros(*c, leaf_of(*zero_item));
      } else if (zeros.dtype() == DType::u4 && codes.dtype() == DType::u4 && c->scales.columns == 1 &&
                 c->scales.rows > 1 && zeros.size() == c->scales.rows) {  // one string of bits
        c->zeros = c->scales;
        c->zeros.leaf = leaf_of(*zero_item);
        c->zeros.packing = Packing::column_words;
        c->zeros.bits = 4;
      } else {
        STELE_TRY_ASSIGN(const std::string bytes, bytes_of(leaf_of(*zero_item)));
        const bool one = zeros.size() == 1 && zeros.dtype() == codes.dtype();
        if (one) {  // the numbers of the codes contain it
          auto table = std::make_shared<Table>(*c->table);
          const float zero = (*table)[static_cast<unsigned char>(bytes[0]) & 0xf];
          for (float& number : *table) number -= zero;
          c->table = std::move(table);
        } else if (bytes.find_first_not_of('\0') != bytes.npos) {
          why = "zero points of 4 bits";
        }
      }
    }
    return add(name, c, why);
  }

  /// Sets the scales for the indices of an axis. Returns what is wrong.
  std::string set_axis(Composite& c, std::uint32_t scales, std::int64_t axis) {
    const LeafView leaf_of_scales = leaf(scales);
    if (leaf_of_scales.size() == 1) return set_grid(c, scales, {});
    const auto rank = static_cast<std::int64_t>(c.shape.rank());
    // [N, G, 1] for codes of [N, G, K], as in OpenVINO, and [N, G] for codes of [N, K * G], as in Core ML: scales for
    // the indices of the leading axes, the last of which may be in groups.
    const auto shape = leaf_of_scales.shape();
    const auto [scale, code] = std::mismatch(shape.begin(), shape.end(), c.shape.begin(), c.shape.end());
    if (rank > 1 && shape.size() == c.shape.rank() && scale != shape.end() && *scale != 0 && *code % *scale == 0 &&
        std::all_of(scale + 1, shape.end(), [](Extent e) { return e == 1; })) {
      set_rows(c, scales);
      if (*scale != 1 && scale + 1 == shape.end()) {
        c.scales.rows /= *scale;
        c.scales.columns = *scale;
        c.group = c.columns / *scale;
        c.row_group = 1;
      }
      return {};
    }
    if (axis < 0) axis += rank;
    if (axis < 0 || axis >= rank || leaf_of_scales.shape().size() != 1 ||
        leaf_of_scales.size() != c.shape[static_cast<std::size_t>(axis)]) {
      return "scales of the shape " + to_string(leaf_of_scales.shape());
    }
    const auto extents = c.shape.span().first(static_cast<std::size_t>(axis));
    c.scales.leaf = scales;
    c.stack_rows = c.rows;
    if (axis + 1 == rank) {
      c.group = 1;
      c.row_group = c.rows;
      c.scales.rows = 1;
      c.scales.columns = c.columns;
      return {};
    }
    if (std::any_of(extents.begin(), extents.end(), [](Extent e) { return e != 1; })) return "scales of an inner axis";
    set_rows(c, scales);
    return {};
  }
  /// Sets a scale for each part of consecutive rows.
  void set_rows(Composite& c, std::uint32_t scales) {
    c.scales.leaf = scales;
    c.scales.rows = leaf(scales).size();
    c.scales.columns = 1;
    c.stack_rows = c.rows;
    c.group = c.columns;
    c.row_group = c.rows / c.scales.rows;
  }

  /// 8-bit floats or integers, with scales for the tensor, its rows, groups or blocks.
  Status scaled(const std::string& stem, Suffixes suffixes, std::string_view scheme) {
    const auto* const names = suffixes.begin();
    const Made c = begin(stem, weight_suffix(names[0]), scheme, suffixes, names[1] == "_scale_inv");
    if (c == nullptr) return {};
    const LeafView codes = leaf(c->codes);
    const bool floats = is_float8(codes.dtype());
    if (!floats && codes.dtype() != DType::i8) return {};  // another meaning of the name
    c->table = floats ? float8_table(codes.dtype()) : signed_table(8);
    set_shape(*c, codes.shape());
    if (c->rows == 0 || c->columns == 0) return {};
    const std::uint32_t scales = part(*c, names[1]);
    std::string why;
    const bool bytes = element_size(leaf(scales).dtype()) == 1;
    if (!bytes || !in_tiles(stem) || !set_tiles(*c, scales, 32)) {
      auto block = block_size();
      if (block.empty() && (names[1] == "_scale_inv" || names[1] == ".scale")) block = {128, 128};
      why = set_grid(*c, scales, block);
    }
    if (why.empty() && !set_dtype(c->scales)) why = "scales that are no floats";
    if (c->scheme.empty()) {
      c->scheme = !floats                                   ? "int8"
                  : exponents(c->scales)                    ? "mxfp8"
                  : c->scales.rows * c->scales.columns == 1 ? "scaled-fp8"
                                                            : "fp8";
    }
    const bool has_zeros = suffixes.size() > 2 && names[2].ends_with("zero_point?");
    if (has_zeros && why.empty()) why = set_zeros(*c, part(*c, names[2].substr(0, names[2].size() - 1)));
    if (suffixes.size() > 3 && why.empty()) why = set_group_of(*c, part(*c, names[3].substr(0, names[3].size() - 1)));
    return add(stem, c, why);
  }

  /// Zero points, as many as scales, in the same order.
  std::string set_zeros(Composite& c, std::uint32_t zeros) {
    if (zeros == no_index) return {};
    c.zeros = c.scales;
    c.zeros.leaf = zeros;
    c.zeros.dtype = DType::none;
    if (c.scales.swizzled || leaf(zeros).size() != leaf(c.scales.leaf).size())
      return "zero points of the shape " + to_string(leaf(zeros).shape());
    if (element_size(leaf(zeros).dtype()) == 0) return "zero points of " + std::string(name(leaf(zeros).dtype()));
    return {};
  }

  /// DeepSeek V4: exponents as scales of 8-bit floats in blocks, or of pairs of 4-bit floats.
  Status deepseek(const std::string& stem) {
    const Item* const weight = find(stem + ".weight");
    const Item* const scale = find(stem + ".scale");
    if (weight == nullptr || leaf(leaf_of(*scale)).dtype() != DType::f8_e8m0) return {};
    if (leaf(leaf_of(*weight)).dtype() == DType::i8) return halves(stem, "mxfp4", {".weight", ".scale"});
    return scaled(stem, {".weight", ".scale"}, "fp8");
  }

  /// Pairs of 4-bit floats in bytes, the lower half first, with scales for groups of a row.
  Status halves(const std::string& stem, std::string_view scheme, Suffixes suffixes) {
    const auto* const names = suffixes.begin();
    const Made c = begin(stem, weight_suffix(names[0]), scheme, suffixes);
    if (c == nullptr) return {};
    const LeafView codes = leaf(c->codes);
    if (element_size(codes.dtype()) != 1 || codes.shape().empty() || codes.shape().back() > UINT32_MAX) return {};
    std::vector<Extent> extents(codes.shape().begin(), codes.shape().end());
    const std::uint32_t scales = part(*c, names[1]);
    c->bits = 4;
    c->packing = is_comfy(stem) ? Packing::high_first : Packing::low_first;
    c->table = e2m1_table();
    extents.back() *= 2;
    set_shape(*c, extents);
    if (c->rows == 0 || c->columns == 0) return {};
    const bool bytes = leaf(scales).dtype() == DType::u8 || leaf(scales).dtype() == DType::f8_e8m0;
    std::string why;
    const std::uint64_t group = bytes ? 32 : 16;
    if (!in_tiles(stem) || !set_tiles(*c, scales, group)) {
      why = set_grid(*c, scales, std::array<std::uint64_t, 2>{1, group});
    }
    if (why.empty() && !set_dtype(c->scales)) why = "scales that are no floats";
    if (why.empty() && exponents(c->scales)) c->scheme = "mxfp4";
    return finish_global(stem, c, std::move(why));
  }

  Status finish_global(const std::string& stem, const Made& c, std::string why) {
    for (const Part& p : c->parts) {
      if (!why.empty()) break;
      if (p.suffix == "_global_scale") {
        STELE_TRY_ASSIGN(why, set_global(c->divisor, p.leaf));
      } else if (p.suffix == "_scale_2" || p.suffix == "._weight_per_tensor_scale") {
        STELE_TRY_ASSIGN(why, set_global(c->scale_factor, p.leaf));
      }
    }
    return add(stem, c, why);
  }

  std::string set_group_of(Composite& c, std::uint32_t groups) {
    if (groups == no_index) return {};
    const LeafView list = leaf(groups);
    if (list.dtype() != DType::i32 || list.size() != c.columns)
      return "a list of groups that has not one for each column";
    c.group_of = groups;
    return {};
  }

  /// compressed-tensors' packed weights: integers in words, or floats of 4 or 6 bits in bytes.
  Status packed(const std::string& stem) {
    const Item* const codes = find(stem + "_packed");
    if (is_word(leaf(leaf_of(*codes)).dtype())) return packed_words(stem);
    const LeafView packed = leaf(leaf_of(*codes)), scales = leaf(leaf_of(*find(stem + "_scale")));
    const bool sixths = packed.shape().size() == 2 && scales.shape().size() == 2 && packed.dtype() == DType::u8 &&
                        scales.shape()[1] <= UINT32_MAX && packed.shape()[1] == scales.shape()[1] * 24;
    if (!sixths) return halves(stem, "nvfp4", {"_packed", "_scale", "_global_scale?"});
    const Made c = begin(stem, "", "mxfp6", {"_packed", "_scale"});
    set_shape(*c, std::array<Extent, 2>{packed.shape()[0], scales.shape()[1] * 32});
    if (c->rows == 0 || c->columns == 0) return {};
    c->bits = 6;
    c->packing = Packing::row_bytes;
    c->table = e2m3_table();
    std::string why = set_grid(*c, part(*c, "_scale"), {});
    if (why.empty() && !set_dtype(c->scales)) why = "scales that are no exponents";
    return add(stem, c, why);
  }

  Status packed_words(const std::string& stem) {
    const Made c = begin(stem, "", "pack-quantized", {"_packed", "_scale", "_shape?", "_zero_point?", "_g_idx?"});
    const LeafView codes = leaf(c->codes);
    const std::uint32_t shape_part = part(*c, "_shape");
    if (shape_part == no_index) return add(stem, c, "the shape is missing");
    std::vector<std::uint64_t> shape;
    STELE_TRY_ASSIGN(const std::vector<float> numbers, floats_of(shape_part));
    shape.reserve(numbers.size());
    for (const float x : numbers) shape.push_back(x >= 0 && x < 0x1p24F ? static_cast<std::uint64_t>(x) : 0);
    if (shape.size() != 2 || codes.shape().size() != 2 || shape[0] != codes.shape()[0] || shape[1] == 0) {
      return add(stem, c, "a shape that is not that of the codes");
    }
    set_shape(*c, shape);
    if (c->rows == 0) return {};
    const std::uint64_t words = codes.shape()[1];
    const auto asked = first_weights() != nullptr ? first_weights()->at("num_bits").to<std::uint64_t>()
                                                  : Result<std::uint64_t>(Error(Errc::not_found));
    c->bits = 0;
    std::array<CodeLayout, 2> layouts = {CodeLayout::dense, CodeLayout::padded};
    if (before_dense_words()) std::swap(layouts[0], layouts[1]);
    for (const CodeLayout layout : layouts) {
      for (const unsigned bits : {4U, 8U, 2U, 1U, 3U, 5U, 6U, 7U}) {  // padded words of 7 bits are as many as of 8
        if ((asked && *asked != bits) || c->bits != 0 || code_words(c->columns, bits, layout) != words) continue;
        c->bits = bits;
        c->layout = layout;
      }
    }
    if (c->bits == 0) return add(stem, c, "a width of the codes that is not 1 to 8 bits");
    c->packing = Packing::row_words;
    const float half = std::ldexp(1.0F, static_cast<int>(c->bits) - 1);
    c->table = integer_table(c->bits, true);
    std::string why = set_grid(*c, part(*c, "_scale"), {});
    if (why.empty() && !is_float(leaf(c->scales.leaf))) why = "scales that are no floats";
    if (const std::uint32_t zeros = part(*c, "_zero_point"); why.empty() && zeros != no_index) {
      c->zeros = c->scales;
      c->zeros.leaf = zeros;
      const auto zero_shape = leaf(zeros).shape();
      if (!is_word(leaf(zeros).dtype())) {
        if (leaf(zeros).size() != leaf(c->scales.leaf).size() || element_size(leaf(zeros).dtype()) == 0)
          why = "zero points of another shape";
      } else {
        c->zeros.packing = Packing::column_words;
        c->zeros.bits = c->bits;
        c->zeros.add = -half;
        c->zeros.layout = c->layout;
        if (zero_shape.size() != 2 || zero_shape[1] != c->scales.columns ||
            zero_shape[0] != code_words(c->scales.rows, c->bits, c->layout)) {
          why = "zero points of the shape " + to_string(zero_shape);
        }
      }
    }
    if (why.empty()) why = set_group_of(*c, part(*c, "_g_idx"));
    return add(stem, c, why);
  }

  /// Returns true if compressed-tensors before 0.18 wrote the file, which pads words.
  bool before_dense_words() const {
    const auto version = config_.at("version").to<std::string>();
    if (!version || !version->starts_with("0.")) return false;
    unsigned minor = 0;
    for (const char digit : std::string_view(*version).substr(2, 3)) {
      if (digit < '0' || digit > '9') break;
      minor = minor * 10 + static_cast<unsigned>(digit - '0');
    }
    return minor < 18;
  }

  /// Returns the weights' entry of compressed-tensors' groups, if there is one group.
  const Value* first_weights() const {
    const Value* const groups = config_.find("config_groups");
    if (groups == nullptr || groups->as_map() == nullptr || groups->as_map()->size() != 1) return nullptr;
    return groups->as_map()->front().second.find("weights");
  }

  /// GPTQ and AWQ: codes in words, transposed.
  Status words(const std::string& stem) {
    const Made c = begin(stem, ".weight", "gptq", {".qweight", ".scales", ".qzeros", ".g_idx?"}, true);
    if (c == nullptr) return {};
    const auto shape = leaf(c->codes).shape();
    const LeafView scales = leaf(part(*c, ".scales")), zeros = leaf(part(*c, ".qzeros"));
    if (!is_word(leaf(c->codes).dtype()) || !is_word(zeros.dtype()) || !is_float(scales)) {
      return add(stem, c, "dtypes other than i32 and floats");
    }
    if (shape.size() != 2 || scales.shape().size() != 2 || zeros.shape().size() != 2 ||
        zeros.shape()[0] != scales.shape()[0]) {
      return add(stem, c, "parts that are not matrices of as many groups");
    }
    const std::uint64_t groups = scales.shape()[0], rows = scales.shape()[1];
    if (groups == 0 || rows == 0 || shape[0] == 0 || shape[1] == 0 || shape[0] > UINT32_MAX || rows > UINT32_MAX)
      return {};
    const std::uint64_t zero_words = zeros.shape()[1];
    const auto bits_asked = config_.at("bits").to<std::uint64_t>();
    const std::uint32_t groups_part = part(*c, ".g_idx");
    c->bits = 0;
    for (const unsigned bits : {4U, 8U, 3U, 2U, 5U, 6U, 7U}) {  // small matrices leave several possible
      const bool fits = groups_part == no_index || divided_up(leaf(groups_part).size() * bits, 32) == shape[0];
      if (c->bits != 0 || divided_up(rows * bits, 32) != zero_words || (bits_asked && *bits_asked != bits) || !fits)
        continue;
      c->bits = bits;
    }
    if (c->bits == 0) return add(stem, c, "zero points of the shape " + to_string(zeros.shape()));
    const bool awq = shape[1] != rows && c->bits == 4 && shape[1] * 8 == rows;
    const std::uint64_t columns = awq                       ? shape[0]
                                  : groups_part != no_index ? leaf(groups_part).size()
                                                            : shape[0] * 32 / c->bits;
    if (!awq && (shape[1] != rows || columns > UINT32_MAX || divided_up(columns * c->bits, 32) != shape[0])) {
      return add(stem, c, "codes of the shape " + to_string(shape));
    }
    const auto format = config_.at("checkpoint_format").to<std::string>();
    if (format && *format != "gptq" && *format != "gptq_v2" && *format != "gptq_p") {
      return add(stem, c, "the layout " + *format);
    }
    const auto version = config_.at("version").to<std::string>();
    if (awq && version && *version != "gemm" && *version != "GEMM") return add(stem, c, "the layout " + *version);
    const bool planes = !awq && ((c->bits >= 5 && c->bits <= 7) || (format && *format == "gptq_p"));
    if (planes && (columns % 32 != 0 || rows % 32 != 0)) return add(stem, c, "an extent that is no multiple of 32");
    c->layout = planes ? CodeLayout::planes : CodeLayout::dense;
    const std::array<Extent, 2> extents = {rows, columns};
    set_shape(*c, extents);
    c->scheme = awq ? "awq" : "gptq";
    c->packing = awq ? Packing::interleaved : Packing::column_words;
    c->table = integer_table(c->bits, false);
    c->scales.leaf = part(*c, ".scales");
    c->scales.rows = rows;
    c->scales.columns = groups;
    c->scales.transposed = true;
    c->zeros = c->scales;
    c->zeros.leaf = part(*c, ".qzeros");
    c->zeros.bits = c->bits;
    c->zeros.packing = awq ? Packing::interleaved : Packing::row_words;
    c->zeros.layout = c->layout;
    c->zeros.less_one = !awq && !planes && !(format && *format == "gptq_v2");
    const auto asked = config_.at("group_size").to<std::int64_t>();
    c->group = asked && *asked > 0 && divided_up(c->columns, static_cast<std::uint64_t>(*asked)) == groups
                   ? static_cast<std::uint64_t>(*asked)
               : c->columns % groups == 0 ? c->columns / groups
                                          : 0;
    std::string why = c->group == 0 ? "scales of the shape " + to_string(scales.shape()) : "";
    if (why.empty()) why = set_group_of(*c, part(*c, ".g_idx"));
    return add(stem, c, why);
  }

  /// Returns a table of a file; most files have the same for all weights.
  TablePtr table_of(const std::vector<float>& numbers) {
    const auto same = [&](const TablePtr& t) {
      return std::memcmp(t->data(), numbers.data(), numbers.size() * sizeof(float)) == 0;
    };
    const auto known = std::find_if(tables_.begin(), tables_.end(), same);
    if (known != tables_.end()) return *known;
    auto table = make_table(static_cast<unsigned>(numbers.size()), [&](unsigned code) { return numbers[code]; });
    if (tables_.size() < 4) tables_.push_back(table);
    return table;
  }

  /// bitsandbytes' 4 bits: codes of a table, and the largest number of each block, which may be quantized, too.
  Status bitsandbytes(const std::string& stem) {
    const Made c =
        begin(stem, ".weight", "nf4",
              {".weight", ".weight.absmax", ".weight.quant_map", ".weight.nested_absmax?", ".weight.nested_quant_map?",
               ".weight.quant_state.bitsandbytes__nf4?", ".weight.quant_state.bitsandbytes__fp4?"},
              true);
    if (c == nullptr) return {};
    c->bits = 4;
    c->packing = Packing::high_first;
    std::uint32_t state_part = part(*c, ".weight.quant_state.bitsandbytes__nf4");
    if (state_part == no_index) {
      state_part = part(*c, ".weight.quant_state.bitsandbytes__fp4");
      c->scheme = "fp4";
    }
    if (state_part == no_index) return add(stem, c, "the quant_state is missing");
    STELE_TRY_ASSIGN(const std::string text, bytes_of(state_part));
    const auto state = parse_json(text);
    if (!state) return add(stem, c, "a quant_state that is not JSON");
    const auto shape = state->at("shape").to<std::vector<std::uint64_t>>();
    const auto block = state->at("blocksize").to<std::uint64_t>();
    const LeafView codes = leaf(c->codes), absmax = leaf(part(*c, ".weight.absmax"));
    if (!shape || !block || *block < 2 || *block % 2 != 0 || *block > (1U << 20) || element_size(codes.dtype()) == 0) {
      return add(stem, c, "a quant_state without shape and blocksize");
    }
    const auto count = element_count(*shape);
    if (!count || *count == 0 || divided_up(*count, 2) > codes.byte_size() ||
        codes.byte_size() - divided_up(*count, 2) >= 8 || divided_up(*count, *block) != absmax.size()) {
      return add(stem, c, "a shape that is not that of the codes");
    }
    c->shape = Shape(*shape);
    c->columns = c->group = *block;
    c->rows = c->stack_rows = divided_up(*count, *block);
    c->scales.leaf = part(*c, ".weight.absmax");
    c->scales.rows = c->rows;
    c->scales.columns = 1;
    STELE_TRY_ASSIGN(const std::vector<float> table, floats_of(part(*c, ".weight.quant_map")));
    if (table.size() != 16) return add(stem, c, "a quant_map that has not 16 numbers");
    c->table = table_of(table);
    const std::uint32_t nested = part(*c, ".weight.nested_absmax"), nested_map = part(*c, ".weight.nested_quant_map");
    if (nested == no_index) {
      if (!is_float(absmax)) return add(stem, c, "an absmax that has no floats");
      return add(stem, c);
    }
    const auto nested_block = state->at("nested_blocksize").to<std::uint64_t>();
    const auto offset = state->at("nested_offset").to<double>();
    if (nested_map == no_index || !nested_block || *nested_block == 0 || !offset || absmax.dtype() != DType::u8 ||
        divided_up(absmax.size(), *nested_block) != leaf(nested).size()) {
      return add(stem, c, "an incomplete nested quantization");
    }
    STELE_TRY_ASSIGN(const std::vector<float> scale_table, floats_of(nested_map));
    if (scale_table.size() != 256) return add(stem, c, "a nested_quant_map that has not 256 numbers");
    c->scale_table = table_of(scale_table);
    c->nested.leaf = nested;
    c->nested.rows = leaf(nested).size();
    c->nested.columns = 1;
    c->nested_group = *nested_block;
    c->scale_offset = static_cast<float>(*offset);
    return add(stem, c);
  }

  /// bitsandbytes' 8 bits: a row has the scale SCB / 127.
  Status bitsandbytes_8(const std::string& stem) {
    const Made c = begin(stem, ".weight", "int8", {".weight", ".SCB", ".weight_format?"}, true);
    if (c == nullptr) return {};
    const LeafView codes = leaf(c->codes), scales = leaf(part(*c, ".SCB"));
    if (codes.dtype() != DType::i8 || codes.shape().size() != 2) return {};
    set_shape(*c, codes.shape());
    if (c->rows == 0 || c->columns == 0) return {};
    c->table = signed_table(8);
    c->factor = 7.874015718698502e-3F;  // the constant of bitsandbytes for 1 / 127
    std::string why = set_grid(*c, part(*c, ".SCB"), {});
    if (why.empty() && !is_float(scales)) why = "an SCB that has no floats";
    return add(stem, c, why);
  }

  /// gpt-oss: [..., K / 32, 16] bytes of floats of 4 bits, [..., K / 32] exponents.
  Status blocks(const std::string& stem) {
    const Made c = begin(stem, "", "mxfp4", {"_blocks", "_scales"});
    if (c == nullptr) return {};
    const LeafView scales = leaf(part(*c, "_scales"));
    const auto shape = leaf(c->codes).shape();
    if (leaf(c->codes).dtype() != DType::u8 || shape.size() < 3 || scales.shape().size() + 1 != shape.size() ||
        !std::equal(scales.shape().begin(), scales.shape().end(), shape.begin()) || shape.back() > 1024) {
      return {};
    }
    std::vector<Extent> extents(shape.begin(), shape.end() - 1);
    const std::uint64_t block = shape.back() * 2;
    if (block == 0 || extents.back() > UINT32_MAX) return {};
    extents.back() *= block;
    set_shape(*c, extents);
    if (c->rows == 0 || c->columns == 0) return {};
    c->bits = 4;
    c->packing = Packing::low_first;
    c->table = e2m1_table();
    c->group = block;
    c->row_group = 1;
    c->scales.leaf = part(*c, "_scales");
    c->scales.rows = c->rows;
    c->scales.columns = c->columns / block;
    return add(stem, c, set_dtype(c->scales) ? "" : "scales that are no exponents");
  }

  /// Returns MLX's group size for rows of so many bits and groups, if only one of its sizes fits; otherwise 0: 4 bits
  /// in groups of 32 have the shapes of 2 bits in groups of 64.
  static std::uint64_t mlx_group(std::uint64_t bits, std::uint64_t groups) {
    std::uint64_t found = 0;
    for (const std::uint64_t group : {32U, 64U, 128U}) {
      const std::uint64_t numbers = group * groups, each = bits / numbers;
      const bool fits = bits % numbers == 0 && (each == 8 || (each >= 2 && each <= 6));
      if (fits && found != 0) return 0;
      if (fits) found = group;
    }
    return found;
  }

  /// MLX: number = code * scale + bias, or floats with scales for groups.
  Status mlx(const std::string& stem) {
    const Made c = begin(stem, ".weight", "mlx", {".weight", ".scales", ".biases?"});
    if (c == nullptr) return {};
    const LeafView codes = leaf(c->codes), scales = leaf(part(*c, ".scales"));
    const std::uint32_t bias_part = part(*c, ".biases");
    if (codes.dtype() != DType::u32 || codes.shape().size() < 2 || scales.shape().size() != codes.shape().size())
      return {};
    const auto layer = config_layers_.find(stem);  // a layer may have settings of its own
    const Value* const own = layer != config_layers_.end() ? layer->second : &config_;
    const auto mode = own->at("mode").to<std::string>();
    const bool affine = bias_part != no_index;
    const bool halves = !affine && mode && (*mode == "mxfp4" || *mode == "nvfp4"),
               bytes = !affine && mode && *mode == "mxfp8";
    if (!affine && !halves && !bytes) return {};
    const auto asked = own->at("group_size").to<std::uint64_t>();
    std::vector<Extent> extents(codes.shape().begin(), codes.shape().end());
    const std::uint64_t groups = scales.shape().back(), words = extents.back();
    if (groups == 0 || groups > UINT32_MAX || words > UINT32_MAX) return {};
    std::uint64_t group = affine ? 0 : *mode == "nvfp4" ? 16 : 32;
    if (asked && *asked != 0 && *asked < (1U << 20)) group = *asked;
    if (group == 0) group = mlx_group(words * 32, groups);
    if (group == 0) return note(stem, *c, "the group size is not in config.json, and the shapes fit several"), Status();
    extents.back() = groups * group;
    set_shape(*c, extents);
    if (c->rows == 0) return {};
    c->bits = static_cast<unsigned>(std::min<std::uint64_t>(words * 32 / c->columns, 9));
    if (c->bits < 1 || c->bits > 8 || std::uint64_t{c->bits} * c->columns != words * 32 || (halves && c->bits != 4) ||
        (bytes && c->bits != 8)) {
      return add(stem, c, "codes of the shape " + to_string(codes.shape()));
    }
    c->packing = Packing::row_words;
    c->table = affine ? integer_table(c->bits, false) : halves ? e2m1_table() : float8_table(DType::f8_e4m3fn);
    std::string why = set_grid(*c, part(*c, ".scales"), {});
    if (!affine) {
      c->scheme = *mode;
      if (why.empty() && !set_dtype(c->scales, *mode == "nvfp4" ? DType::f8_e4m3fn : DType::f8_e8m0))
        why = "scales that are no floats";
      return add(stem, c, why);
    }
    c->biases = c->scales;
    c->biases.leaf = bias_part;
    const LeafView biases = leaf(bias_part);
    if (why.empty() && (!is_float(scales) || !is_float(biases) || biases.size() != scales.size()))
      why = "scales that are no floats";
    return add(stem, c, why);
  }

  /// torchao, as torchao.prototype.safetensors writes it: the metadata describe each weight.
  Status torchao(const std::string& stem) {
    const auto text = snapshot_.metadata().find(stem + ".weight");
    const auto about =
        text != snapshot_.metadata().end() ? parse_json(text->second) : Result<Value>(Error(Errc::not_found));
    const auto type = about ? about->at("_type").to<std::string>() : Result<std::string>(Error(Errc::not_found));
    if (!type) return {};
    const Value* const data = about->find("_data");
    if (data == nullptr) return {};
    const auto element = data->at("elem_dtype").at("_data").to<std::string>();
    if (*type == "NVFP4Tensor" || (*type == "MXTensor" && element && *element == "float4_e2m1fn_x2")) {
      return halves(stem, "nvfp4", {"._weight_qdata", "._weight_scale", "._weight_per_tensor_scale?"});
    }
    if (*type == "Float8Tensor" || *type == "Int8Tensor" || *type == "MXTensor" ||
        *type == "IntxUnpackedToInt8Tensor") {
      return scaled(stem, {"._weight_qdata", "._weight_scale", "._weight_zero_point?"}, "");
    }
    const Made c =
        begin(stem, ".weight", "torchao " + *type, {"._weight_qdata", "._weight_scale", "._weight_zero_point?"});
    if (c == nullptr) return {};
    if (*type != "Int4Tensor") return note(stem, *c, "the type is not read"), Status();
    return torchao_int4(stem, c);
  }

  /// torchao's Int4Tensor: number = code * scale + zero, with a sign, both stored as [K / g, N].
  Status torchao_int4(const std::string& stem, const Made& c) {
    const LeafView codes = leaf(c->codes), scales = leaf(part(*c, "._weight_scale"));
    const std::uint32_t zeros = part(*c, "._weight_zero_point");
    if (zeros == no_index || codes.shape().size() != 2 || scales.shape().size() != 2 ||
        element_size(codes.dtype()) != 1 || scales.shape()[1] != codes.shape()[0] || codes.shape()[1] > UINT32_MAX ||
        leaf(zeros).size() != scales.size() || !is_float(scales) || !is_float(leaf(zeros))) {
      return add(stem, c, "parts that do not match");
    }
    set_shape(*c, std::array<Extent, 2>{codes.shape()[0], codes.shape()[1] * 2});
    const std::uint64_t groups = scales.shape()[0];
    if (c->rows == 0 || c->columns == 0 || groups == 0 || c->columns % groups != 0)
      return add(stem, c, "groups that do not match");
    c->scheme = "int4";
    c->bits = 4;
    c->packing = Packing::low_first;
    c->table = signed_table(4);
    c->group = c->columns / groups;
    c->scales.leaf = part(*c, "._weight_scale");
    c->scales.rows = c->rows;
    c->scales.columns = groups;
    c->scales.transposed = true;
    c->biases = c->scales;
    c->biases.leaf = zeros;
    return add(stem, c);
  }

  const Snapshot& snapshot_;
  Items items_;
  ItemIndex index_;
  const Value& config_;
  std::set<std::string> comfy_;                                    // layers that ComfyUI describes
  std::map<std::string_view, const Value*> config_layers_;         // of MLX: the settings of layers
  std::map<std::uint32_t, std::pair<std::string, Made>> made_at_;  // leaf of the codes -> name, tensor
  std::vector<bool> claimed_;                                      // leaves that are parts
  std::set<std::string> tied_;                                     // paths that have a second name
  std::vector<std::string> notes_;
  std::size_t note_count_ = 0;
  std::vector<TablePtr> tables_;
};

/// Returns false if no name can be that of a part: the usual case, which must cost little.
bool may_have_parts(const Snapshot& snapshot) {
  constexpr std::string_view last[] = {"weight_scale", "_weight_scale", "scale_weight", "qweight",
                                       "absmax",       "SCB",           "scales"};
  const auto nodes = snapshot.nodes();
  return std::any_of(nodes.begin(), nodes.end(), [&](const Node& node) {
    if (node.kind != NodeKind::tensor || node.name == nullptr) return false;
    std::string_view name(node.name, node.name_size);
    if (name.ends_with("_blocks") || name.ends_with("_scale_inv") || name.ends_with("_packed")) return true;
    if (const std::size_t dot = name.rfind('.'); dot != name.npos) name.remove_prefix(dot + 1);
    if (name == "scale") return snapshot.leaf(node.index).dtype() == DType::f8_e8m0;
    return std::find(std::begin(last), std::end(last), name) != std::end(last);
  });
}

/// Returns the part of a configuration that describes the quantization.
Value inner(Value config) {
  for (const char* const key : {config_key, "quantization"}) {
    if (const Value* const found = config.find(key)) return *found;
  }
  return config;
}

/// Returns the content of a JSON file; null if there is none, or none that can be understood. Errors: io.
Result<Value> json_of(const Bundle& bundle, const char* name) {
  constexpr std::uint64_t max_bytes = std::uint64_t{4} << 20;
  constexpr std::size_t max_memory = std::size_t{16} << 20;
  STELE_TRY_ASSIGN(const bool exists, bundle.contains(name));
  if (!exists) return Value();
  STELE_TRY_ASSIGN(const SourcePtr file, bundle.open(name));
  if (file->size() > max_bytes) return Value();
  std::string text(static_cast<std::size_t>(file->size()), '\0');
  STELE_TRY(file->read_at(0, std::as_writable_bytes(std::span(text))));
  json::Reader in(text);
  Value value;
  const bool read = json::read_value(in, value, max_memory) && in.finish();
  return read ? std::move(value) : Value();
}

}  // namespace

Snapshot as_stored(const Snapshot& snapshot) {
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    if (const Composite* const composite = composite_of(snapshot.leaf(i))) return composite->base;
  }
  return snapshot;
}

Result<Snapshot> joined(const Snapshot& snapshot, const std::vector<Scaled>& tensors) {
  if (tensors.empty()) return snapshot;
  auto items = Items::of(snapshot);
  if (!items) return snapshot;  // too many names
  const Value no_configuration;
  return Recogniser(snapshot, *std::move(items), no_configuration).run(tensors);
}

Result<Snapshot> joined(const Snapshot& snapshot, const Source& source) {
  if (!snapshot.flat() || !may_have_parts(snapshot)) return snapshot;  // joining makes names flat
  const auto bundle = source.bundle();
  if (bundle == nullptr || snapshot.metadata().contains(config_key)) return join_composites(snapshot);
  for (const char* const name : {"config.json", "quantize_config.json"}) {
    STELE_TRY_ASSIGN(const Value config, json_of(*bundle, name));
    if (config.as_map() == nullptr) continue;
    const bool whole = std::string_view(name) == "config.json";
    if (whole && config.find(config_key) == nullptr && config.find("quantization") == nullptr) continue;
    const Value quantization = inner(config);
    STELE_TRY_ASSIGN(const Snapshot all, join_composites(snapshot, quantization));
    if (!has_composites(all)) return all;
    STELE_TRY_ASSIGN(std::string text, to_json(quantization));
    return with_metadata(all, {{config_key, std::move(text)}});
  }
  return join_composites(snapshot);
}

}  // namespace detail::composites

namespace comp = detail::composites;

Result<Snapshot> join_composites(const Snapshot& snapshot, const Value& config) {
  return detail::guarded([&]() -> Result<Snapshot> {
    if (!comp::may_have_parts(snapshot)) return snapshot;
    Value own = config;
    if (own.is_null()) {
      const auto text = snapshot.metadata().find(comp::config_key);
      if (text != snapshot.metadata().end()) {
        if (auto parsed = parse_json(text->second)) own = *std::move(parsed);
      }
    }
    own = comp::inner(std::move(own));
    auto items = detail::Items::of(snapshot);
    if (!items) return snapshot;  // too many names
    return comp::Recogniser(snapshot, *std::move(items), own).run();
  });
}

Result<Snapshot> split_composites(const Snapshot& snapshot) {
  return detail::guarded([&]() -> Result<Snapshot> {
    if (!comp::has_composites(snapshot)) return snapshot;
    STELE_TRY_ASSIGN(detail::Items items, detail::Items::of(snapshot));
    detail::Items result;
    result.keep(items);
    result.metadata = items.metadata;
    result.properties = items.properties;
    for (const detail::Item& old : items.list) {
      const comp::Composite* const c = old.is_tensor() && !old.derived ? comp::composite_of(old.leaf()) : nullptr;
      if (c == nullptr) {
        result.list.push_back(old);
        continue;
      }
      result.keepers.push_back(c->base.data());
      for (const comp::Part& part : c->parts) {
        detail::Item& item = result.list.emplace_back();
        item.from = c->base.data().get();
        item.node = c->part(part.leaf).node();
        item.path = comp::path_of(comp::stem_of(old.path, *c), part);
      }
    }
    STELE_TRY_ASSIGN(const Snapshot parts, result.build());
    auto data = detail::derived_data(parts);
    data->origin = snapshot.origin();
    return Snapshot(std::shared_ptr<const detail::SnapshotData>(std::move(data)));
  });
}

Result<Tensor<float, 2>> detail::decode_parts(const Snapshot& layer) {
  return guarded([&]() -> Result<Tensor<float, 2>> {
    const auto below = [](std::string_view path, const LeafView*) { return "layer." + std::string(path); };
    STELE_TRY_ASSIGN(const Snapshot named, with_new_paths(layer, below));
    STELE_TRY_ASSIGN(const Snapshot joined, join_composites(named));
    const auto weight = joined.find("layer.weight");
    if (!weight || comp::composite_of(*weight) == nullptr) {
      return Error(Errc::malformed, "the parts are no quantized weight")
          .found(joined.notes().empty() ? "other names" : joined.notes().front());
    }
    Tensor<float, 2> numbers({weight->shape()[0], weight->shape()[1]});
    STELE_TRY(weight->read(0, std::as_writable_bytes(std::span(numbers.data(), numbers.size()))));
    return numbers;
  });
}

std::optional<CompositeInfo> composite(const LeafView& leaf) {
  const comp::Composite* const c = comp::composite_of(leaf);
  if (c == nullptr) return std::nullopt;
  CompositeInfo info{c->scheme, c->bits, c->group};
  const std::string stem = comp::stem_of(leaf.path(), *c);
  for (const comp::Part& part : c->parts) {
    const LeafView view = c->part(part.leaf);
    info.bytes += view.byte_size();
    info.parts.push_back({comp::path_of(stem, part), view.dtype(), Shape(view.shape())});
  }
  return info;
}

}  // namespace stele::inline v0
