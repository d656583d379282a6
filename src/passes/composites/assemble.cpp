// Begins and finishes composite tensors, and reads their small parts.
#include <algorithm>
#include <array>
#include <cstring>

#include "passes/composites/recogniser.hpp"
#include "stele/precision/convert.hpp"

namespace stele::inline v0::detail::composites {
namespace {

constexpr std::uint64_t max_read_at_once = std::uint64_t{64} << 10;  // bytes of shapes, tables and JSON

}  // namespace

const Item* Recogniser::find(std::string_view path) const {
  const auto at = index_.find(path);
  return at && items_.list[*at].is_tensor() ? &items_.list[*at] : nullptr;
}

Result<std::string> Recogniser::bytes_of(std::uint32_t number) const {
  const LeafView part = leaf(number);
  if (part.byte_size() > max_read_at_once) return Error(Errc::limit, "the part is too large").path(part.path());
  std::string text(static_cast<std::size_t>(part.byte_size()), '\0');
  STELE_TRY(part.read(0, std::as_writable_bytes(std::span(text))));
  return text;
}

Result<std::vector<float>> Recogniser::floats_of(std::uint32_t number) const {
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

Recogniser::Made Recogniser::begin(const std::string& stem, std::string_view suffix, std::string_view scheme,
                                   Suffixes suffixes, bool sure) {
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

void Recogniser::add_note(std::string text) {
  constexpr std::size_t max_notes = 100;
  if (notes_.size() < max_notes) notes_.push_back(std::move(text));
  ++note_count_;
}

void Recogniser::note(const std::string& stem, const Composite& c, std::string_view why) {
  add_note(stem + c.suffix + ": the parts of " + c.scheme + " stay tensors: " + std::string(why));
}

Status Recogniser::add(const std::string& stem, Made made, std::string_view why) {
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
  const std::string layer = name.ends_with(".weight") ? name.substr(0, name.size() - 7) : std::string();
  std::string factors;  // `why` points to it
  if (why.empty() && !layer.empty() && made->by_names) why = factors = set_factors(*made, layer);
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
  if (made->factors != no_index) made->parts.push_back({".pre_quant_scale", made->factors});
  for (const Part& p : made->parts) claimed_[p.leaf] = true;
  const std::uint32_t codes = made->codes;
  made_at_.emplace(codes, std::pair(name, std::move(made)));  // takes the position of the codes
  return {};
}

TablePtr Recogniser::table_of(const std::vector<float>& numbers) {
  const auto same = [&](const TablePtr& t) {
    return std::memcmp(t->data(), numbers.data(), numbers.size() * sizeof(float)) == 0;
  };
  const auto known = std::find_if(tables_.begin(), tables_.end(), same);
  if (known != tables_.end()) return *known;
  auto table = make_table(static_cast<unsigned>(numbers.size()), [&](unsigned code) { return numbers[code]; });
  if (tables_.size() < 4) tables_.push_back(table);
  return table;
}

std::string Recogniser::set_orientation(const std::string& stem, Composite& c) const {
  constexpr std::string_view names[] = {"c_attn", "c_proj", "c_fc", "c_fc2", "q_attn"};
  const std::string_view name = std::string_view(stem).substr(stem.rfind('.') + 1);
  if (std::find(std::begin(names), std::end(names), name) == std::end(names)) return {};
  if (orientation_ == Orientation::open)
    return "whether the weight is stored as [inputs, outputs] depends on model_type, which is not known";
  c.transposed = orientation_ == Orientation::columns;
  if (!c.transposed) return {};
  if (c.shape.rank() != 2) return "a weight of the shape " + to_string(c.shape);
  c.shape = Shape(std::array<Extent, 2>{c.shape[1], c.shape[0]});
  return {};
}

bool Recogniser::is_comfy(const std::string& weight) const {
  const std::string layer = weight.ends_with(".weight") ? weight.substr(0, weight.size() - 7) : weight;
  return comfy_.contains(layer) || find(layer + ".comfy_quant") != nullptr;
}

bool Recogniser::in_tiles(const std::string& stem) const {
  if (is_comfy(stem)) return true;
  const auto text = snapshot_.metadata().find(stem + ".weight");
  if (text == snapshot_.metadata().end()) return false;
  const auto about = parse_json(text->second);
  const auto tiles = about ? about->at("_data").at("is_swizzled_scales").to<bool>() : Result<bool>(false);
  return tiles && *tiles;
}

}  // namespace stele::inline v0::detail::composites
