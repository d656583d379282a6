// Describes an open model as members of a JSON object.
#include "facts/describe.hpp"

#include <cmath>

#include <stele/composite.hpp>
#include <stele/source.hpp>

namespace stele::facts {

Value number(double d) { return std::isfinite(d) ? Value(d) : Value(); }

Value to_value(const Error& error,
               const std::function<std::string(std::string_view key, std::string_view text)>& reworded) {
  Value::Map map;
  const auto add = [&](const char* key, std::string_view text) {
    if (!text.empty()) map.emplace_back(key, reworded ? Value(reworded(key, text)) : Value(text));
  };
  add("code", name(error.code()));
  add("message", error.message());
  add("path", error.path());
  add("file", error.file());
  add("expected", error.expected());
  add("found", error.found());
  add("hint", error.hint());
  if (error.offset()) map.emplace_back("offset", Value(*error.offset()));
  return Value(std::move(map));
}

Value to_value(const Statistics& s) {
  return Value(Value::Map{{"min", number(s.finite() != 0 ? s.min : NAN)},
                          {"max", number(s.finite() != 0 ? s.max : NAN)},
                          {"mean", number(s.finite() != 0 ? s.mean : NAN)},
                          {"std", number(s.finite() != 0 ? s.deviation() : NAN)},
                          {"norm", number(s.norm())},
                          {"zeros", number(s.zeros)},
                          {"nan", number(s.nans)},
                          {"inf", number(s.infinities)}});
}

/// Returns the dtype, or the scheme of a weight that has several parts.
std::string dtype_text(const LeafView& leaf) {
  const auto parts = composite(leaf);
  return parts ? parts->scheme : std::string(name(leaf.dtype()));
}
/// Returns the number of bytes in the file.
std::uint64_t bytes_of(const LeafView& leaf) {
  const auto parts = composite(leaf);
  return parts ? parts->bytes : leaf.byte_size();
}

void Totals::add(const LeafView& leaf) {
  ++tensors;
  elements += leaf.size();
  bytes += bytes_of(leaf);
}

Sums sums_of(const Snapshot& snapshot, const std::vector<Named>& names) {
  Sums sums;
  for (const Named& named : names) {
    if (named.tied) continue;
    const LeafView leaf = snapshot.leaf(named.leaf);
    sums.all.add(leaf);
    sums.by_dtype[dtype_text(leaf)].add(leaf);
    const auto parts = segments(named.name);
    sums.by_module[std::string(parts.size() > 1 ? parts.front() : "")].add(leaf);
  }
  return sums;
}

namespace {

Value to_value(const Totals& totals) {
  return Value(Value::Map{
      {"tensors", number(totals.tensors)}, {"elements", number(totals.elements)}, {"bytes", number(totals.bytes)}});
}

Value tensor_value(const Snapshot& snapshot, const Named& named, const Statistics* statistics) {
  const LeafView leaf = snapshot.leaf(named.leaf);
  Value::List shape;
  for (const Extent e : leaf.shape()) shape.emplace_back(Value(static_cast<std::uint64_t>(e)));
  Value::Map map{{"name", Value(named.name)},
                 {"dtype", Value(name(leaf.dtype()))},
                 {"shape", Value(std::move(shape))},
                 {"elements", number(leaf.size())},
                 {"bytes", number(leaf.byte_size())}};
  if (const auto place = leaf.location()) {
    map.emplace_back("file", Value(place->source->name()));
    map.emplace_back("offset", number(place->offset));
    map.emplace_back("checksum", Value(place->hashed));
  }
  if (!leaf.encoding().empty()) map.emplace_back("encoding", Value(leaf.encoding()));
  if (named.tied) {
    map.emplace_back("tied", Value(true));
    map.emplace_back("tied_to", Value(leaf.path()));
  }
  if (const auto parts = composite(leaf)) {
    Value::List list;
    for (const auto& part : parts->parts) list.emplace_back(Value(part.name));
    map.emplace_back("composite", Value(Value::Map{{"scheme", Value(parts->scheme)},
                                                   {"bits", Value(parts->bits)},
                                                   {"group", number(parts->group)},
                                                   {"bytes", number(parts->bytes)},
                                                   {"parts", Value(std::move(list))}}));
  }
  if (const Annotations* annotations = leaf.annotations()) {
    Value::Map all;
    for (const auto& [key, value] : *annotations) all.emplace_back(key, value);
    map.emplace_back("annotations", Value(std::move(all)));
  }
  if (statistics != nullptr && statistics->count != 0) {
    map.emplace_back("stats", to_value(*statistics));
  }
  return Value(std::move(map));
}

}  // namespace

void describe(const Description& model, Members& out) {
  out.member("format", Value(model.format));
  Value::Map metadata, origin, values;
  for (const auto& [key, text] : model.snapshot.metadata()) metadata.emplace_back(key, Value(text));
  for (const auto& [key, text] : model.snapshot.origin()) origin.emplace_back(key, Value(text));
  const auto nodes = model.snapshot.nodes();
  for (std::uint32_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].kind == NodeKind::value) values.emplace_back(model.snapshot.path(i), model.snapshot.value(nodes[i]));
  }
  out.member("metadata", Value(std::move(metadata)));
  if (!model.snapshot.properties().is_null()) out.member("properties", model.snapshot.properties());
  out.member("values", Value(std::move(values)));
  out.member("origin", Value(std::move(origin)));
  for (const auto& [key, text] : model.more) out.member(key, Value(text));
  if (!model.snapshot.notes().empty()) out.member("notes", Value(model.snapshot.notes()));
  out.begin_list("tensors");
  for (std::size_t i = 0; i < model.names.size(); ++i) {
    out.item(tensor_value(model.snapshot, model.names[i], model.statistics.empty() ? nullptr : &model.statistics[i]));
  }
  out.end_list();
  out.member("total", to_value(model.sums.all));
  Value::Map by_dtype, by_module;
  for (const auto& [key, totals] : model.sums.by_dtype) by_dtype.emplace_back(key, to_value(totals));
  for (const auto& [key, totals] : model.sums.by_module) by_module.emplace_back(key, to_value(totals));
  out.member("by_dtype", Value(std::move(by_dtype)));
  out.member("by_module", Value(std::move(by_module)));
}

}  // namespace stele::facts
