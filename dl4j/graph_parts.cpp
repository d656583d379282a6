#include "graph_parts.hpp"

namespace stele::inline v0::detail::samediff {

Result<std::vector<GraphProperty>> read_properties(
    const flatbuffers::Vector<flatbuffers::Offset<stele_fb::Property>>* properties, Dialect hint) {
  std::vector<GraphProperty> all;
  if (properties == nullptr) return all;
  all.reserve(properties->size());
  for (const auto* p : *properties) {
    GraphProperty& out = all.emplace_back();
    out.name = text_of(p->name());
    out.ints = numbers_of<std::int32_t>(p->ints());
    out.longs = numbers_of<std::int64_t>(p->longs());
    out.doubles = numbers_of<double>(p->doubles());
    if (p->bools() != nullptr) {
      for (const auto b : *p->bools()) out.bools.push_back(b != 0);
    }
    out.strings = texts_of(p->strings());
    out.shape = numbers_of<std::int32_t>(p->shape());
    if (p->arrays() == nullptr) continue;
    for (const auto* array : *p->arrays()) {
      STELE_TRY_ASSIGN(GraphArray a, read_array(*array, hint));
      out.arrays.push_back(std::move(a));
    }
  }
  return all;
}

flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<stele_fb::Property>>> write_properties(
    flatbuffers::FlatBufferBuilder& to, const std::vector<GraphProperty>& properties) {
  std::vector<flatbuffers::Offset<stele_fb::Property>> all;
  for (const GraphProperty& p : properties) {
    std::vector<flatbuffers::Offset<stele_fb::Array>> arrays;
    for (const GraphArray& a : p.arrays) arrays.push_back(write_array(to, a));
    const std::vector<std::uint8_t> bools(p.bools.begin(), p.bools.end());
    // Write all lists, even empty ones: DL4J writes and requires them.
    const auto name = to.CreateString(p.name);
    const auto ints = to.CreateVector(p.ints);
    const auto longs = to.CreateVector(p.longs);
    const auto doubles = to.CreateVector(p.doubles);
    const auto array_list = to.CreateVector(arrays);
    const auto bool_list = to.CreateVector(bools);
    const auto strings = to.CreateVectorOfStrings(p.strings);
    const auto shape = to.CreateVector(p.shape);
    all.push_back(stele_fb::CreateProperty(to, name, ints, longs, doubles, array_list, bool_list, strings, shape));
  }
  return to.CreateVector(all);
}

}  // namespace stele::inline v0::detail::samediff
