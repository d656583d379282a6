// Opened files: their names, dtypes, shapes, values.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>

#include <stele/composite.hpp>
#include <stele/recorders/any.hpp>
#include <stele/recorders/archive.hpp>
#include <stele/transform.hpp>

#include "base/of_machine.hpp"
#include "bindings.hpp"
#include "commands.hpp"
#include "io/urls.hpp"
#include "passes/composites/composite.hpp"
#include "snapshot/adopt.hpp"
#include "snapshot/data.hpp"
#include "statistics.hpp"

namespace stele::python {

namespace {

/// Options of opening, with the names of the command's.
command::Opening opening_of(const nb::dict& options) {
  command::Opening opening;
  for (const auto& [key, value] : options) {
    const auto name = nb::cast<std::string>(key);
    if (name == "names") opening.names = string_of(value);
    if (name == "tag") opening.tag = string_of(value);
    if (name == "part") opening.part = string_of(value);
    if (name == "limit") opening.limit = string_of(value);
    if (name == "optimizer") opening.optimizer = string_of(value);
    if (name == "parameters") opening.parameters = string_of(value);
    if (name == "buffers") {
      for (const nb::handle pattern : nb::cast<nb::sequence>(value)) opening.buffers.push_back(string_of(pattern));
    }
    if (name == "void1") opening.void1 = string_of(value);
    if (name == "void2") opening.void2 = string_of(value);
    if (name == "parts") opening.parts = nb::cast<bool>(value);
    if (name == "raw") opening.raw = nb::cast<bool>(value);
    if (name == "ignore_checksums") opening.ignore_checksums = nb::cast<bool>(value);
  }
  return opening;
}

Result<Model> open_path(const std::string& path, const command::Opening& opening) {
  STELE_TRY_ASSIGN(const LoadOptions options, command::load_options(opening, 0));
  const auto source = Input(path).open("", options);
  const auto found = source ? format_of_content(**source) : source.error();
  if (!found && detail::is_of_machine(found.error())) return found.error();
  // Most formats have no settings: the file need not be opened again.
  if (found && !(*source)->is_folder() && (*found)->checkpoints() == nullptr && opening.tag.empty() &&
      opening.part.empty() && !opening.ignore_checksums && opening.void1.empty() && opening.void2.empty()) {
    STELE_TRY_ASSIGN(Snapshot snapshot, stele::open(**found, *source, options));
    if (opening.parts) snapshot = detail::composites::as_stored(snapshot);
    if (opening.raw) snapshot = raw_codes(snapshot);
    return Model(std::move(snapshot), {std::shared_ptr<const Format>(), *found});
  }
  STELE_TRY_ASSIGN(auto format, command::input_format(path, opening, options));
  STELE_TRY_ASSIGN(Snapshot snapshot, stele::open(*format, path, options));
  if (opening.parts) snapshot = detail::composites::as_stored(snapshot);
  if (opening.raw) snapshot = raw_codes(snapshot);
  if (!opening.part.empty()) {
    STELE_TRY_ASSIGN(snapshot, part(snapshot, opening.part));
  }
  return Model(std::move(snapshot), std::move(format));
}

Result<Model> open_source(const SourcePtr& source, const command::Opening& opening) {
  if (!opening.tag.empty() || opening.ignore_checksums) {
    return Error(Errc::invalid_argument,
                 "a tag, or checksums to ignore, can be chosen only for a file opened by its path")
        .file(source->name());
  }
  STELE_TRY_ASSIGN(const LoadOptions options, command::load_options(opening, 0));
  STELE_TRY_ASSIGN(const Format* const found, format_of_content(*source));
  STELE_TRY_ASSIGN(auto format, command::with_void_dtypes({std::shared_ptr<const Format>(), found}, opening));
  STELE_TRY_ASSIGN(Snapshot snapshot, stele::open(*format, source, options));
  if (opening.parts) snapshot = detail::composites::as_stored(snapshot);
  if (opening.raw) snapshot = raw_codes(snapshot);
  if (!opening.part.empty()) {
    STELE_TRY_ASSIGN(snapshot, part(snapshot, opening.part));
  }
  return Model(std::move(snapshot), std::move(format));
}

Model open_any(nb::object input, const nb::dict& options) {
  const command::Opening opening = opening_of(options);
  if (PyUnicode_Check(input.ptr())) {
    const std::string path = string_of(input);
    if (detail::is_url(path)) watch_urls();
    return unwrap(interruptible([&] { return detail::guarded([&] { return open_path(path, opening); }); }));
  }
  const bool file = nb::hasattr(input, "seek") && nb::hasattr(input, "read");
  const SourcePtr source =
      file ? source_of_file(input, string_of(nb::str(nb::getattr(input, "name", nb::str("file object")))))
           : source_of(input);
  return unwrap(without_gil([&] { return detail::guarded([&] { return open_source(source, opening); }); }));
}

/// Opens a part of an open file: its descriptor, or on Windows its HANDLE.
Model open_part(std::intptr_t file, std::uint64_t offset, std::optional<std::uint64_t> length, std::string name,
                const nb::dict& options) {
  const command::Opening opening = opening_of(options);
  const ByteRange part{offset, length.value_or(ByteRange::to_end)};
#ifdef _WIN32
  auto* const handle = reinterpret_cast<NativeFile>(file);
#else
  const auto handle = static_cast<NativeFile>(file);
#endif
  return unwrap(without_gil([&] {
    return detail::guarded([&]() -> Result<Model> {
      STELE_TRY_ASSIGN(const SourcePtr source, open_descriptor(handle, part, false, std::move(name)));
      return open_source(source, opening);
    });
  }));
}

nb::tuple shape_of(const LeafView& leaf) {
  nb::list extents;
  for (const Extent extent : leaf.shape()) extents.append(extent);
  return nb::tuple(extents);
}

/// Returns {name: number of its leaf}, in the order of the file.
nb::dict leaves(const Model& model) {
  const auto names = unwrap(command::names_of(model.snapshot()));
  nb::dict dict;
  for (const command::Named& named : names) dict[text(named.name)] = named.leaf;
  return dict;
}

/// Returns the names of the files that store the tensors, uncompressed.
nb::list files(const Model& model) {
  std::set<const Source*> sources;
  for (std::size_t i = 0; i < model.snapshot().leaf_count(); ++i) {
    if (const auto location = model.snapshot().leaf(i).location()) sources.insert(location->source);
  }
  nb::list names;
  for (const Source* source : sources) names.append(text(source->name()));
  return names;
}

/// Returns {path: value} of all nodes that are not tensors.
nb::dict values(const Model& model) {
  nb::dict dict;
  const auto nodes = model.snapshot().nodes();
  for (std::uint32_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].kind == NodeKind::value)
      dict[text(model.snapshot().path(i))] = to_python(model.snapshot().value(nodes[i]));
    if (nodes[i].kind == NodeKind::none) dict[text(model.snapshot().path(i))] = nb::none();
  }
  return dict;
}

/// Returns the dtype, the shape and the number of bytes of a leaf.
nb::tuple info(const Model& model, std::size_t leaf) {
  const LeafView view = unwrap(model.snapshot().checked_leaf(leaf));
  return nb::make_tuple(text(name(view.dtype())), shape_of(view), view.byte_size());
}

/// Returns true if an array of the Reader is not yet of its leaf's dtype.
bool has_other_dtypes(const Model& model) {
  for (std::size_t i = 0; i < model.snapshot().leaf_count(); ++i) {
    const DType dtype = model.snapshot().leaf(i).dtype();
    const bool plain = element_size(dtype) != 0 && dtype != DType::bf16 &&
                       (dtype_class(dtype) != DTypeClass::floating || bits(dtype) > 8);
    if (!plain) return true;
  }
  return false;
}

nb::object annotations(const Model& model, std::size_t leaf) {
  const LeafView view = unwrap(model.snapshot().checked_leaf(leaf));
  nb::dict dict;
  if (view.annotations() != nullptr) {
    for (const auto& [key, value] : *view.annotations()) dict[text(key)] = to_python(value);
  }
  return dict;
}

/// Returns the scheme and the parts of a quantized weight, or None.
nb::object composite_of(const Model& model, std::size_t leaf) {
  const auto info = composite(unwrap(model.snapshot().checked_leaf(leaf)));
  if (!info) return nb::none();
  nb::dict dict;
  dict["scheme"] = text(info->scheme);
  dict["bits"] = info->bits;
  dict["group"] = info->group;
  dict["bytes"] = info->bytes;
  nb::list parts;
  for (const auto& part : info->parts) parts.append(text(part.name));
  dict["parts"] = parts;
  return dict;
}

/// Returns the statistics of a leaf, or None if it has no numbers.
nb::object stats(const Model& model, std::size_t leaf) {
  const LeafView view = unwrap(model.snapshot().checked_leaf(leaf));
  const command::Statistics s = unwrap(interruptible([&]() -> Result<command::Statistics> {
    SnapshotBuilder alone;  // a step on the whole model would take time for every tensor
    alone.set_flat();
    alone.keep(model.snapshot().data());
    const std::string name = view.path();
    detail::add_leaf(alone, std::string_view(name), view);
    STELE_TRY_ASSIGN(const Snapshot numbers, command::with_numbers(alone.finish()));
    return command::statistics_of(numbers, 0);
  }));
  if (s.count == 0) return nb::none();
  nb::dict dict;
  dict["count"] = s.count;
  dict["min"] = s.finite() == 0 ? nb::object(nb::none()) : nb::float_(s.min);
  dict["max"] = s.finite() == 0 ? nb::object(nb::none()) : nb::float_(s.max);
  dict["mean"] = s.finite() == 0 ? nb::object(nb::none()) : nb::float_(s.mean);
  dict["std"] = s.finite() == 0 ? nb::object(nb::none()) : nb::float_(s.deviation());
  dict["norm"] = s.norm();
  dict["zeros"] = s.zeros;
  dict["nan"] = s.nans;
  dict["inf"] = s.infinities;
  return dict;
}

/// Returns the parts of a training checkpoint, or None if the file's format has none.
nb::object checkpoint(const Model& model, const nb::str& name, const nb::dict& options) {
  const std::string path = string_of(name);
  const command::Opening opening = opening_of(options);
  const auto found = unwrap(interruptible([&]() -> Result<std::optional<Checkpoint>> {
    const CheckpointFormat* const format = model.format()->checkpoints();
    if (format == nullptr) return std::optional<Checkpoint>();
    STELE_TRY_ASSIGN(const LoadOptions load, command::load_options(opening, 0));
    auto opened = open_checkpoint(*format, path, load);
    if (opened) return std::optional<Checkpoint>(*std::move(opened));
    const bool absent = opened.error().code() == Errc::not_found && opening.optimizer.empty();
    if (absent) return std::optional<Checkpoint>();
    return std::move(opened).error();
  }));
  if (!found) return nb::none();
  nb::dict dict;
  dict["model"] = Model(found->parameters, model.format());
  nb::dict optimizer;
  for (const auto& [kind, state] : found->optimizer.kinds()) optimizer[text(kind)] = Model(state, model.format());
  dict["optimizer"] = optimizer;
  dict["training"] = to_python_training(*found);
  dict["graph"] = found->graph.has_value();
  nb::list tags;
  if (model.format()->name() == "archive") {
    const auto all = unwrap(interruptible([&] { return archive_tags(path); }));
    for (const std::string& tag : all) tags.append(text(tag));
  }
  dict["tags"] = tags;
  dict["left_out"] = to_python(found->left_out);
  return dict;
}

}  // namespace

nb::object to_python_training(const Checkpoint& checkpoint) {
  return checkpoint.training ? to_python(unwrap(parse_json(checkpoint.training->json()))) : nb::object(nb::none());
}

void bind_model(nb::module_& module) {
  nb::class_<Model> model(module, "Model", nb::is_weak_referenceable());
  model.def_prop_ro("format", &Model::format_name)
      .def_prop_ro("metadata", [](const Model& m) { return to_python(m.snapshot().metadata()); })
      .def_prop_ro("properties", [](const Model& m) { return to_python(m.snapshot().properties()); })
      .def_prop_ro("origin", [](const Model& m) { return to_python(m.snapshot().origin()); })
      .def_prop_ro("nbytes", [](const Model& m) { return m.snapshot().byte_size(); })
      .def("leaves", leaves)
      .def("files", files)
      .def("values", values)
      .def("info", info, nb::arg("leaf"))
      .def("annotations", annotations, nb::arg("leaf"))
      .def("composite", composite_of, nb::arg("leaf"))
      .def_prop_ro("notes", [](const Model& m) { return m.snapshot().notes(); })
      .def("stats", stats, nb::arg("leaf"))
      .def("checkpoint", checkpoint, nb::arg("path"), nb::arg("options"))
      .def("has_other_dtypes", has_other_dtypes);
  bind_arrays(module);
  module.def("open", open_any, nb::arg("input"), nb::arg("options"));
  module.def("open_part", open_part, nb::arg("file"), nb::arg("offset"), nb::arg("length").none(), nb::arg("name"),
             nb::arg("options"));
  module.def("formats", [] {
    nb::list list;
    for (const Format* format : formats()) {
      list.append(nb::make_tuple(text(format->name()), text(format->extension()), format->writes()));
    }
    return list;
  });
}

}  // namespace stele::python
