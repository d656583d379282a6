#include <algorithm>
#include <set>

#include "base/meter.hpp"
#include "base/parallel.hpp"
#include "dl4j/record.hpp"
#include "encodings/zip/zip.hpp"
#include "json/json.hpp"
#include "model.hpp"
#include "snapshot/data.hpp"
#include "snapshot/flat.hpp"
#include "snapshot/leaf_gather.hpp"
#include "snapshot/paths.hpp"
#include "stele/bundle.hpp"
#include "stele/detail/little_endian.hpp"
#include "stele/recorders/samediff.hpp"
#include "steps/byte_order.hpp"
#include "steps/progress.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace samediff {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;
using Texts = flatbuffers::Vector<Offset<flatbuffers::String>>;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

/// The contents of a file: memory and leaves in turn.
struct Image {
  struct Piece {
    std::span<const std::byte> bytes;
    std::optional<LeafView> leaf;
  };
  std::vector<Piece> pieces;
  std::uint64_t size = 0;
  std::vector<std::shared_ptr<const void>> keepers;

  void add(std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    pieces.push_back({bytes, {}});
    size += bytes.size();
  }
  void add(std::string text) {
    auto kept = std::make_shared<const std::string>(std::move(text));
    add(bytes_of(*kept));
    keepers.push_back(std::move(kept));
  }
  void add(const LeafView& leaf) {
    if (leaf.byte_size() == 0) return;
    pieces.push_back({{}, leaf});
    size += leaf.byte_size();
  }
};

class CrcSink final : public PieceSink {
 public:
  Status piece(std::span<const std::byte> bytes) override {
    crc = zip::crc32(crc, bytes.data(), bytes.size());
    return {};
  }
  std::uint32_t crc = 0;
};

/// Writes a file; sets `crc` to its CRC-32 if given.
Status write(const Image& image, LeafGather& out, ReadContext& context, std::uint32_t* crc = nullptr) {
  for (const Image::Piece& piece : image.pieces) {
    if (!piece.leaf) {
      if (crc != nullptr) *crc = zip::crc32(*crc, piece.bytes.data(), piece.bytes.size());
      STELE_TRY(out.write(piece.bytes));
      continue;
    }
    std::uint64_t hash = 0;
    STELE_TRY(with_path(out.leaf(*piece.leaf, context, crc != nullptr ? &hash : nullptr), *piece.leaf));
    if (crc != nullptr) *crc = zip::crc32_joined(*crc, static_cast<std::uint32_t>(hash), piece.leaf->byte_size());
  }
  return {};
}

Result<std::uint32_t> crc_of(const Image& image, ReadContext& context) {
  CrcSink sink;
  for (const Image::Piece& piece : image.pieces) {
    STELE_TRY(piece.leaf ? piece.leaf->stream(sink, context) : sink.piece(piece.bytes));
  }
  return sink.crc;
}

/// Leaves out an empty list.
Offset<Texts> texts(FlatBufferBuilder& to, const std::vector<std::string>& all) {
  return all.empty() ? Offset<Texts>() : to.CreateVectorOfStrings(all);
}

std::uint64_t total(const std::vector<std::string>& all) {
  std::uint64_t n = 0;
  for (const std::string& s : all) n += s.size() + 16;
  return n;
}

/// Returns the approximate size of an operation in the file, at least its real size.
std::uint64_t room_of(const GraphOperation& o) {
  std::uint64_t n = 1024 + o.name.size() + o.op_name.size() + 12 * o.inputs.size() + total(o.outputs);
  n += 8 * (o.ints.size() + o.doubles.size() + o.bools.size() + o.dtypes.size() + o.dimensions.size());
  for (const auto& [name, text] : o.strings) n += text.size() + 16;
  n += total(o.control_dependencies) + total(o.var_control_dependencies) + total(o.control_dependency_of);
  const auto array = [&](const GraphArray& a) {
    n += 256 + 24 * a.shape.size() + a.bytes.size() + 2 * total(a.strings);
  };
  if (o.scalar) array(*o.scalar);
  for (const GraphProperty& p : o.properties) {
    n +=
        512 + p.name.size() + 8 * (p.ints.size() + p.longs.size() + p.doubles.size() + p.bools.size() + p.shape.size());
    n += total(p.strings);
    for (const GraphArray& a : p.arrays) array(a);
  }
  return n;
}

/// Reads a value as the strings of an array of that shape, row by row. Returns false if it does not fit.
bool texts_of_value(const Value& value, std::vector<std::string>& texts, std::vector<std::uint64_t>& shape,
                    std::size_t axis = 0) {
  if (const std::string* text = value.as_string()) {
    texts.push_back(*text);
    return axis == shape.size();
  }
  const auto* list = value.as_list();
  if (list == nullptr || axis > 31) return false;
  if (axis == shape.size()) {
    if (!texts.empty()) return false;
    shape.push_back(list->size());
  }
  if (shape[axis] != list->size()) return false;
  return std::all_of(list->begin(), list->end(),
                     [&](const Value& v) { return texts_of_value(v, texts, shape, axis + 1); });
}

/// Lays out the files of one model.
class Planner {
 public:
  Planner(const Content& content, SameDiffContainer container)
      : content_(content),
        parameters_(in_file_order(content.parameters)),
        paths_(*parameters_.data()),
        dialect_(container == SameDiffContainer::fb ? Dialect::a : Dialect::b) {}
  Planner(Content&& content, SameDiffContainer container) = delete;  // `content` is borrowed

  Status plan() {
    STELE_TRY(check_arrays(graph()));
    STELE_TRY(plan_variables());
    STELE_TRY(plan_states());
    metadata_ = content_.parameters.metadata();
    STELE_TRY_ASSIGN(std::string extras, flat_extras(content_.parameters, [&](const std::string& path, const Value&) {
                       const auto variable = numbers_.find(path);
                       return variable != numbers_.end() && variables_[variable->second].texts;
                     }));
    if (!extras.empty()) metadata_.emplace(flat_key, std::move(extras));
    return {};
  }

  /// Returns the variables with arrays for each file: as many as fit in `most` bytes.
  std::vector<std::vector<std::size_t>> shards(std::uint64_t most) const {
    std::vector<std::vector<std::size_t>> all(1);
    std::uint64_t size = 0;
    for (std::size_t i = 0; i < variables_.size(); ++i) {
      const std::uint64_t bytes = bytes_with_state(i);
      if (!has_array(i)) continue;
      if (!all.back().empty() && (size > most || bytes > most - size)) {
        all.emplace_back();
        size = 0;
      }
      all.back().push_back(i);
      size += bytes;
    }
    return all;
  }

  /// Returns a file with the graph and all arrays.
  Result<Image> whole() { return image(true, all_arrays(), {}); }
  /// Returns a file with the graph only; `count` - 1 other files have the arrays of its variables.
  Result<Image> graph_shard(std::size_t count) {
    return image(true, {}, {{"shard.count", std::to_string(count)}, {"shard.index", "0"}, {"shard.type", "graph"}});
  }
  Result<Image> array_shard(const std::vector<std::size_t>& arrays, std::size_t index, std::size_t count) {
    return image(
        false, arrays,
        {{"shard.count", std::to_string(count)}, {"shard.index", std::to_string(index)}, {"shard.type", "weights"}});
  }

 private:
  struct Variable {
    GraphVariable about;
    std::optional<std::uint32_t> leaf;
    std::optional<GraphArray> texts;
    std::int32_t id = 0, output = 0;
    std::vector<std::pair<std::string, LeafView>> states;
    bool scalar = false;  // an empty scalar
  };
  struct Place {
    std::uint64_t from_end;
    LeafView leaf;
  };

  Error refuse(Errc code, const char* why, const std::string& name) const { return Error(code, why).path(name); }
  const Graph& graph() const {
    static const Graph none;
    return content_.more != nullptr && content_.more->graph ? *content_.more->graph : none;
  }
  bool has_array(std::size_t i) const { return variables_[i].leaf || variables_[i].texts; }
  std::vector<std::size_t> all_arrays() const {
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < variables_.size(); ++i) {
      if (has_array(i)) all.push_back(i);
    }
    return all;
  }
  std::uint64_t bytes_with_state(std::size_t i) const {
    std::uint64_t n = variables_[i].leaf ? parameters_.leaf(*variables_[i].leaf).byte_size() : 0;
    for (const auto& [key, leaf] : variables_[i].states) n += leaf.byte_size();
    return n;
  }

  Status plan_variables() {
    std::map<std::string_view, std::uint32_t> leaves;
    for (std::uint32_t i = 0; i < parameters_.leaf_count(); ++i) {
      const std::string name(paths_[i]);
      if (!json::valid_utf8(name)) return refuse(Errc::not_representable, "SameDiff has names in UTF-8 only", name);
      if (!leaves.emplace(paths_[i], i).second) return refuse(Errc::duplicate, "two tensors have the same name", name);
    }
    std::map<std::string, std::uint32_t, std::less<>> values;
    const auto nodes = parameters_.nodes();
    for (std::uint32_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i].kind == NodeKind::value) values.emplace(parameters_.path(i), i);
    }
    for (const GraphVariable& v : graph().variables) {
      if (!numbers_.emplace(v.name, variables_.size()).second) {
        return refuse(Errc::duplicate, "two variables have the same name", v.name);
      }
      Variable& out = variables_.emplace_back(Variable{v, {}, {}, 0, 0, {}, false});
      if (v.kind != VariableKind::variable && v.kind != VariableKind::constant) {
        if (leaves.contains(v.name))
          return refuse(Errc::not_representable, "a tensor of a variable that the graph computes", v.name);
        continue;
      }
      if (const auto leaf = leaves.find(v.name); leaf != leaves.end()) {
        out.leaf = leaf->second;
        leaves.erase(leaf);
        const LeafView view = parameters_.leaf(*out.leaf);
        out.about.dtype = view.dtype();
        out.scalar = v.shape && v.shape->empty() && view.byte_size() == 0;
        if (!out.scalar) out.about.shape.emplace(view.shape().begin(), view.shape().end());
      } else if (const auto value = values.find(v.name); v.dtype == DType::string && value != values.end()) {
        GraphArray array{DType::string, {}, {}, {}};
        if (!texts_of_value(parameters_.value(nodes[value->second]), array.strings, array.shape)) {
          return refuse(Errc::not_representable, "a constant of texts whose value is no array of texts", v.name);
        }
        out.texts = std::move(array);
      } else if (!inner_) {
        return refuse(Errc::missing, "a variable of the graph has no tensor", v.name);
      }
    }
    for (std::uint32_t i = 0; i < parameters_.leaf_count(); ++i) {
      if (!leaves.contains(paths_[i])) continue;
      const LeafView leaf = parameters_.leaf(i);
      GraphVariable about;
      about.name = paths_[i];
      about.kind = VariableKind::variable;
      about.dtype = leaf.dtype();
      about.shape.emplace(leaf.shape().begin(), leaf.shape().end());
      numbers_.emplace(about.name, variables_.size());
      variables_.push_back({std::move(about), i, {}, 0, 0, {}, false});
    }
    // Variables and operations share one counter; the outputs of an operation have its id.
    std::int32_t id = 0;
    for (const GraphOperation& o : graph().operations) {
      const std::int32_t own = ++id;
      operation_ids_.push_back(own);
      for (std::size_t k = 0; k < o.outputs.size(); ++k) {
        const auto found = numbers_.find(o.outputs[k]);
        if (found == numbers_.end()) return refuse(Errc::malformed, "an output that is no variable", o.outputs[k]);
        Variable& made = variables_[found->second];
        if (made.id != 0) return refuse(Errc::malformed, "a variable that two operations make", o.outputs[k]);
        made.id = own;
        made.output = static_cast<std::int32_t>(k);
      }
    }
    for (Variable& v : variables_) {
      if (v.id == 0) v.id = ++id;
    }
    return {};
  }

  Status plan_states() {
    if (content_.more == nullptr) return {};
    for (const auto& [key, arrays] : content_.more->optimizer.kinds()) {
      const Snapshot& metered = states_.emplace_back(in_file_order(with_progress(arrays, *content_.meter)));
      const LeafPaths names(*metered.data());
      for (std::uint32_t i = 0; i < metered.leaf_count(); ++i) {
        const std::string name(names[i]);
        const LeafView leaf = metered.leaf(i);
        const auto found = numbers_.find(name);
        if (found == numbers_.end() || !variables_[found->second].leaf) {
          return refuse(Errc::not_representable, "optimizer state of a tensor that is no parameter", name).found(key);
        }
        Variable& v = variables_[found->second];
        const auto shape = parameters_.leaf(*v.leaf).shape();
        if (!std::equal(shape.begin(), shape.end(), leaf.shape().begin(), leaf.shape().end())) {
          return refuse(Errc::not_representable, "optimizer state of another shape than its parameter", name)
              .expected(to_string(shape))
              .found(to_string(leaf.shape()));
        }
        if (!holds(leaf.dtype())) {
          return refuse(Errc::not_representable, "optimizer state of a dtype that SameDiff has none for", name)
              .found(std::string(stele::name(leaf.dtype())));
        }
        v.states.emplace_back(key, leaf);
      }
    }
    return {};
  }

  /// Adds an array whose bytes are read from a leaf when the file is written.
  Offset<stele_fb::Array> array(FlatBufferBuilder& to, const LeafView& leaf, std::vector<Place>& places,
                                bool scalar = false) const {
    const std::uint64_t size = leaf.byte_size();
    std::uint64_t content = 0;
    Offset<stele_fb::Array> made;
    if (size != 0) to.ForceVectorAlignment(static_cast<std::size_t>(size), 1, 32);  // FlatBuffers' maximum
    if (dialect_ == Dialect::a) {
      made = make_array(to, leaf.dtype(), scalar ? std::span<const Extent>() : leaf.shape(), size, &content);
    } else {
      Offset<flatbuffers::Vector<std::int8_t>> buffer;
      if (size != 0) {
        std::uint8_t* memory = nullptr;
        buffer = to.CreateUninitializedVector(static_cast<std::size_t>(size), 1, &memory);
        content = to.GetSize() - sizeof(flatbuffers::uoffset_t);
      }
      made = extents(to, leaf, buffer, 0, 0);
    }
    if (size != 0) places.push_back({content, leaf});
    return made;
  }
  static Offset<stele_fb::Array> extents(FlatBufferBuilder& to, const LeafView& leaf,
                                         Offset<flatbuffers::Vector<std::int8_t>> buffer, std::uint64_t appended_offset,
                                         std::uint64_t appended_length) {
    const std::vector<std::int64_t> list(leaf.shape().begin(), leaf.shape().end());
    const auto shape = to.CreateVector(list);
    stele_fb::ArrayBuilder made(to);
    made.add_shape(shape);
    if (!buffer.IsNull()) made.add_buffer(buffer);
    made.add_dtype(type_of(leaf.dtype()));
    if (appended_length != 0) {
      made.add_total_size(static_cast<std::int64_t>(appended_length));
      made.add_appended_offset(static_cast<std::int64_t>(appended_offset));
      made.add_appended_length(static_cast<std::int64_t>(appended_length));
    }
    return made.Finish();
  }
  bool appended(const LeafView& leaf) const { return dialect_ == Dialect::b && leaf.byte_size() >= append_threshold; }

  Result<Offset<flatbuffers::Vector<Offset<stele_fb::Node>>>> nodes(FlatBufferBuilder& to) const {
    std::vector<Offset<stele_fb::Node>> list;
    for (std::size_t i = 0; i < graph().operations.size(); ++i) {
      const GraphOperation& o = graph().operations[i];
      std::vector<Offset<stele_fb::IntPair>> inputs;
      for (const std::string& name : o.inputs) {
        const auto found = numbers_.find(name);
        if (found == numbers_.end()) return refuse(Errc::malformed, "an input that is no variable", name);
        const Variable& v = variables_[found->second];
        inputs.push_back(stele_fb::CreateIntPair(to, v.id, v.output));
      }
      std::vector<std::int32_t> outputs;
      for (const std::string& name : o.outputs)
        outputs.push_back(static_cast<std::int32_t>(numbers_.find(name)->second));
      std::vector<double> doubles;
      for (const auto& [name, x] : o.doubles) doubles.push_back(x);
      std::vector<std::int64_t> ints;
      for (const auto& [name, x] : o.ints) ints.push_back(x);
      std::vector<std::uint8_t> bools;
      for (const auto& [name, x] : o.bools) bools.push_back(static_cast<std::uint8_t>(x));
      std::vector<stele_fb::Type> dtypes, types;
      for (const auto& [name, x] : o.dtypes) dtypes.push_back(type_of(x));
      for (const DType d : o.output_dtypes) types.push_back(type_of(d));
      std::vector<std::string> strings;
      for (const auto& [name, x] : o.strings) strings.push_back(x);
      const auto name = to.CreateString(o.name);
      const auto properties = write_properties(to, o.properties);
      const auto input_paired = to.CreateVector(inputs);
      const auto output = to.CreateVector(outputs);
      const auto t_args = to.CreateVector(doubles);
      const auto i_args = to.CreateVector(ints);
      const auto b_args = to.CreateVector(bools);
      const auto dimensions = to.CreateVector(o.dimensions);
      const auto output_names = to.CreateVectorOfStrings(o.outputs);
      const auto op_name = to.CreateString(o.op_name);
      const auto output_types = to.CreateVector(types);
      const auto scalar = o.scalar ? write_array(to, *o.scalar) : Offset<stele_fb::Array>();
      const auto deps = texts(to, o.control_dependencies);
      const auto var_deps = texts(to, o.var_control_dependencies);
      const auto dep_of = texts(to, o.control_dependency_of);
      const auto d_args = to.CreateVector(dtypes);
      const auto s_args = texts(to, strings);
      const std::int64_t number = o.number == 0 && o.family == OpFamily::custom ? operation_hash(o.op_name) : o.number;
      list.push_back(stele_fb::CreateNode(to, operation_ids_[i], name, static_cast<std::int8_t>(o.family), number,
                                          properties, 0, input_paired, output, t_args, i_args, b_args, dimensions, 0, 0,
                                          0, output_names, op_name, output_types, scalar, deps, var_deps, dep_of,
                                          d_args, s_args));
    }
    return to.CreateVector(list);
  }

  Result<Image> image(bool with_graph, const std::vector<std::size_t>& arrays, std::map<std::string, std::string> own) {
    // Reserve space for everything, so that the builder never moves its content. Untouched memory, such as that of the
    // tensors' bytes, costs nothing.
    std::uint64_t room = 4096, inside = 0;
    std::uint64_t largest = 0;
    std::string largest_name;
    std::vector<bool> has(variables_.size());
    for (const std::size_t i : arrays) {
      has[i] = true;
      const Variable& v = variables_[i];
      std::uint64_t bytes = v.leaf && !appended(parameters_.leaf(*v.leaf)) ? parameters_.leaf(*v.leaf).byte_size() : 0;
      if (v.texts) bytes += 2 * total(v.texts->strings) + 64;
      for (const auto& [key, leaf] : v.states) bytes += leaf.byte_size() + 512 + 24 * leaf.shape().size() + key.size();
      if (bytes > largest) largest = bytes, largest_name = v.about.name;
      inside += bytes;
    }
    for (std::size_t i = 0; i < variables_.size(); ++i) {
      const GraphVariable& v = variables_[i].about;
      if (with_graph || has[i]) room += 768 + 2 * v.name.size() + 32 * (v.shape ? v.shape->size() : 0);
      room += total(v.control_dependencies) + total(v.control_dependency_of) + total(v.control_dependencies_of_var);
    }
    for (const GraphOperation& o : graph().operations) room += with_graph ? room_of(o) : 0;
    for (const auto& [key, value] : metadata_) room += key.size() + value.size() + 64;
    const TrainingConfig* training =
        content_.more != nullptr && content_.more->training ? &*content_.more->training : nullptr;
    const std::string json = training != nullptr ? training->json() : std::string();
    room += json.size() + total(graph().loss_variables) + total(graph().outputs);
    std::vector<std::pair<std::string, std::string>> sub_graphs;
    if (with_graph) {
      STELE_TRY_ASSIGN(sub_graphs, inner_graphs());
      for (const auto& [name, bytes] : sub_graphs) room += name.size() + bytes.size() + 128;
    }
    if (inside > max_buffer || room > max_buffer - inside) {
      return refuse(Errc::limit, "a FlatBuffer ends at 2 GiB", largest_name)
          .expected(dialect_ == Dialect::a ? "less, or an archive, .sdnb or .stele" : "less, or an archive or .stele")
          .found(std::to_string(inside) + " bytes in all, " + std::to_string(largest) + " of them of this tensor");
    }
    auto builder = std::make_shared<FlatBufferBuilder>(static_cast<std::size_t>(room + inside));
    FlatBufferBuilder& to = *builder;

    std::vector<Place> places;
    std::vector<ManifestEntry> manifest;
    std::vector<LeafView> blobs;
    std::uint64_t blob_bytes = 0;
    std::vector<Offset<stele_fb::Variable>> variables;
    std::vector<std::string> placeholders;
    for (std::size_t i = 0; i < variables_.size(); ++i) {
      const Variable& v = variables_[i];
      if (!with_graph && !has[i]) continue;
      if (v.about.kind == VariableKind::placeholder) placeholders.push_back(v.about.name);
      Offset<stele_fb::Array> made;
      if (has[i] && v.texts) {
        made = write_array(to, *v.texts);
      } else if (has[i]) {
        const LeafView leaf = parameters_.leaf(*v.leaf);
        if (appended(leaf)) {
          made = extents(to, leaf, {}, blob_bytes, leaf.byte_size());
          manifest.push_back({v.about.name, blob_bytes, leaf.byte_size()});
          blobs.push_back(leaf);
          blob_bytes += leaf.byte_size();
        } else {
          made = array(to, leaf, places, v.scalar);
        }
      }
      const auto id = stele_fb::CreateIntPair(to, v.id, v.output);
      const auto name = to.CreateString(v.about.name);
      // In .fb files, an array's shape is stored in the array.
      const bool shaped = v.about.shape && (dialect_ == Dialect::b || made.IsNull());
      const auto shape = shaped ? to.CreateVector(*v.about.shape) : Offset<flatbuffers::Vector<std::int64_t>>();
      const auto deps = texts(to, v.about.control_dependencies);
      const auto of_op = texts(to, v.about.control_dependency_of);
      const auto of_var = texts(to, v.about.control_dependencies_of_var);
      variables.push_back(stele_fb::CreateVariable(to, id, name, type_of(v.about.dtype), shape, made, -1,
                                                   static_cast<std::int8_t>(v.about.kind), deps, of_op, of_var));
    }
    const auto variable_list = to.CreateVector(variables);
    Offset<flatbuffers::Vector<Offset<stele_fb::Node>>> node_list;
    if (with_graph) {
      STELE_TRY_ASSIGN(node_list, nodes(to));
    }
    std::vector<Offset<stele_fb::IntPair>> outputs;
    for (const std::string& name : with_graph ? graph().outputs : std::vector<std::string>()) {
      const auto found = numbers_.find(name);
      if (found == numbers_.end()) return refuse(Errc::malformed, "an output that is no variable", name);
      outputs.push_back(stele_fb::CreateIntPair(to, variables_[found->second].id, variables_[found->second].output));
    }
    const auto output_list = to.CreateVector(outputs);
    // The values in DL4J's own files; DL4J does not read them.
    const auto configuration = stele_fb::CreateConfiguration(to, -1, 0, 0, 3, true, 0, 0, 0);
    const auto placeholder_list = to.CreateVectorOfStrings(placeholders);
    const auto loss = to.CreateVectorOfStrings(graph().loss_variables);
    const auto config = json.empty() ? Offset<flatbuffers::String>() : to.CreateString(json);
    std::vector<Offset<stele_fb::State>> states;
    const auto known_keys = training != nullptr ? updater_state_keys(training->updater.type) : std::nullopt;
    const bool stateless = known_keys && known_keys->empty();
    for (const std::size_t i : arrays) {
      const Variable& v = variables_[i];
      if (v.states.empty()) {
        // DL4J stores an entry without states for a stateless updater.
        if (stateless && v.about.kind == VariableKind::variable) {
          states.push_back(stele_fb::CreateState(to, to.CreateString(v.about.name)));
        }
        continue;
      }
      std::vector<std::string> keys;
      std::vector<Offset<stele_fb::Array>> list;
      for (const auto& [key, leaf] : v.states) {
        keys.push_back(key);
        list.push_back(array(to, leaf, places));
      }
      const auto parameter = to.CreateString(v.about.name);
      const auto key_list = to.CreateVectorOfStrings(keys);
      const auto state_list = to.CreateVector(list);
      states.push_back(stele_fb::CreateState(to, parameter, key_list, state_list));
    }
    const auto state_list = to.CreateVector(states);
    if (dialect_ == Dialect::b) {
      own.emplace("nd4j.format.version", "1");
      own.emplace("nd4j.format.type", "APPENDED_BLOB");
    }
    if (with_graph) own.insert(metadata_.begin(), metadata_.end());
    Offset<Texts> keys, values;
    if (!own.empty() || !sub_graphs.empty()) {
      std::vector<std::string> key_list, value_list;
      for (const auto& [key, value] : own) {
        key_list.push_back(key);
        value_list.push_back(value);
      }
      keys = to.CreateVectorOfStrings(key_list);
      values = to.CreateVectorOfStrings(value_list);
    }
    std::vector<Offset<stele_fb::SubGraph>> subs;
    for (const auto& [name, bytes] : sub_graphs) {
      const auto text = to.CreateString(name);
      const auto content = to.CreateVector(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
      subs.push_back(stele_fb::CreateSubGraph(to, text, content));
    }
    const auto sub_list =
        subs.empty() ? Offset<flatbuffers::Vector<Offset<stele_fb::SubGraph>>>() : to.CreateVector(subs);
    to.Finish(stele_fb::CreateSameDiffGraph(to, 0, variable_list, node_list, output_list, configuration,
                                            placeholder_list, loss, config, state_list, keys, values, sub_list));

    Image out;
    const std::span<const std::byte> memory(reinterpret_cast<const std::byte*>(to.GetBufferPointer()), to.GetSize());
    std::string tail;
    if (dialect_ == Dialect::b) {
      const std::uint64_t begin = sdnb_header + memory.size();
      for (ManifestEntry& e : manifest) e.offset += begin;
      tail = make_manifest(manifest);
      std::byte head[sdnb_header]{};
      std::copy_n(bytes_of(sdnb_magic).begin(), 4, head);
      store_le(head + 4, __builtin_bswap32(1));
      store_le(head + 8, __builtin_bswap64(begin + blob_bytes));
      store_le(head + 16, __builtin_bswap64(std::uint64_t{tail.size()}));
      store_le(head + 24, __builtin_bswap64(std::uint64_t{sdnb_header}));
      out.add(std::string(reinterpret_cast<const char*>(head), sizeof head));
    }
    std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) { return a.from_end > b.from_end; });
    std::size_t at = 0;
    for (const Place& place : places) {
      const auto begin = static_cast<std::size_t>(memory.size() - place.from_end);
      out.add(memory.subspan(at, begin - at));
      out.add(place.leaf);
      at = begin + static_cast<std::size_t>(place.leaf.byte_size());
    }
    out.add(memory.subspan(at));
    for (const LeafView& blob : blobs) out.add(blob);
    out.add(std::move(tail));
    out.keepers.push_back(std::move(builder));
    return out;
  }

  /// Returns the nested graphs, each in a buffer of its own. They have no arrays: SameDiff stores those in the
  /// outermost graph.
  Result<std::vector<std::pair<std::string, std::string>>> inner_graphs() const {
    std::vector<std::pair<std::string, std::string>> all;
    for (const auto& [name, inner] : graph().sub_graphs) {
      Checkpoint checkpoint;
      checkpoint.graph = inner;
      ProgressCallback nobody;
      Meter meter(nobody, 0);
      const Content content{checkpoint.parameters, checkpoint.parameters, &checkpoint, &meter};
      Planner planner(content, dialect_ == Dialect::a ? SameDiffContainer::fb : SameDiffContainer::sdnb);
      planner.inner_ = true;
      STELE_TRY(planner.plan());
      STELE_TRY_ASSIGN(const Image image, planner.image(true, {}, {}));
      std::string bytes;
      for (const Image::Piece& p : image.pieces)
        bytes.append(reinterpret_cast<const char*>(p.bytes.data()), p.bytes.size());
      all.emplace_back(name, std::move(bytes));
    }
    return all;
  }

  const Content& content_;
  Snapshot parameters_;
  LeafPaths paths_;
  Dialect dialect_;
  bool inner_ = false;
  std::vector<Variable> variables_;
  std::map<std::string, std::size_t, std::less<>> numbers_;
  std::vector<std::int32_t> operation_ids_;
  std::vector<Snapshot> states_;
  std::map<std::string, std::string> metadata_;
};

Status check_texts(const Snapshot& snapshot) {
  for (const auto& [key, text] : snapshot.metadata()) {
    if (key == flat_key || std::find(std::begin(own_metadata), std::end(own_metadata), key) != std::end(own_metadata)) {
      return Error(Errc::not_representable, "a metadata key that is the format's own").found(key);
    }
    if (!json::valid_utf8(key) || !json::valid_utf8(text)) {
      return Error(Errc::not_representable, "SameDiff has metadata in UTF-8 only").found("another text");
    }
  }
  return {};
}

Status write_files(const SameDiffFormat& format, const Content& content, Sink& sink, const SaveOptions& options) {
  STELE_TRY(check_texts(content.parameters));
  SameDiffOptions own = format.options();
  if (own.container == SameDiffContainer::by_name) {
    own.container = sink.name().ends_with(".sdnb")  ? SameDiffContainer::sdnb
                    : sink.name().ends_with(".sdz") ? SameDiffContainer::sdz
                                                    : SameDiffContainer::fb;
  }
  Planner planner(content, own.container);
  STELE_TRY(planner.plan());
  ReadContext context(workers_of(options));
  const auto shards = own.container == SameDiffContainer::fb ? std::vector<std::vector<std::size_t>>(1)
                                                             : planner.shards(own.shard_bytes);
  const std::size_t count = shards.size() == 1 ? 1 : shards.size() + 1;
  const auto image = [&](std::size_t i) -> Result<Image> {
    if (count == 1) return planner.whole();
    return i == 0 ? planner.graph_shard(count) : planner.array_shard(shards[i - 1], i, count);
  };
  if (own.container == SameDiffContainer::sdz) {
    STELE_TRY(reserve_arrays(sink, content));
    LeafGather out(sink, zip::crc32);
    zip::Writer zip(out);
    for (std::size_t i = 0; i < count; ++i) {
      STELE_TRY_ASSIGN(const Image file, image(i));
      const std::string name = count == 1 ? "model" : shard_name("model", i, count);
      std::uint32_t crc = 0;
      if (!out.can_patch()) {
        STELE_TRY_ASSIGN(crc, crc_of(file, context));
      }
      STELE_TRY(zip.begin(name, zip::stored, file.size, file.size, crc, 0, 64));
      STELE_TRY(write(file, out, context, out.can_patch() ? &crc : nullptr));
      STELE_TRY(out.can_patch() ? zip.set_crc(crc) : Status());
      STELE_TRY(out.flush());  // before the image is destroyed
    }
    STELE_TRY(zip.finish());
    return out.flush();
  }
  const auto write_one = [&](std::size_t i, Sink& to) -> Status {
    STELE_TRY_ASSIGN(const Image file, image(i));
    STELE_TRY(to.reserve(file.size));
    LeafGather out(to);
    STELE_TRY(write(file, out, context));
    return out.flush();
  };
  if (count > 1) {
    const auto bundle = sink.bundle();
    if (bundle == nullptr) {
      return Error(Errc::unsupported, "several files need a place")
          .expected("a path, a sink of a bundle, or larger shards");
    }
    const std::string own(file_name(sink.name()));
    std::string base = own;
    if (base.ends_with(".sdnb")) base.resize(base.size() - 5);
    for (std::size_t i = 0; i < count && !options.file.allow_nonatomic; ++i) {
      STELE_TRY_ASSIGN(const bool there, bundle->contains(shard_name(base, i, count)));
      if (!there) continue;
      return Error(Errc::exists, "a set of files is there already, and cannot be replaced in one step")
          .file(shard_name(base, i, count))
          .expected("another place, or FileSinkOptions::allow_nonatomic");
    }
    STELE_TRY_ASSIGN(const bool over_old, bundle->contains(own));
    if (!over_old && !options.file.allow_nonatomic) sink.add_part(own);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t shard = (i + 1) % count;  // the graph is last
      const std::string name = shard_name(base, shard, count);
      if (!options.file.allow_nonatomic) sink.add_part(name);
      STELE_TRY_ASSIGN(const auto file, bundle->create(name));
      STELE_TRY(write_one(shard, *file));
      STELE_TRY(file->commit());
    }
  }
  return write_one(0, sink);
}

}  // namespace
}  // namespace samediff

Result<Report> record_samediff(const SameDiffFormat& format, PrecisionSpec precision, const Checkpoint& checkpoint,
                               Sink& sink, const SaveOptions& options) {
  return guarded([&]() -> Result<Report> {
    return record_checkpoint(format, precision, checkpoint, &sink, options, [&](const Content& content) {
      return samediff::write_files(format, content, sink, options);
    });
  });
}

Result<Report> record_samediff(const SameDiffFormat& format, PrecisionSpec precision, const Checkpoint& checkpoint,
                               const std::string& path, const SaveOptions& options) {
  return guarded([&]() -> Result<Report> {
    if (options.dry_run) {
      BufferSink nothing;
      return record_samediff(format, precision, checkpoint, nothing, options);
    }
    STELE_TRY_ASSIGN(const auto sink, file_sink(with_extension(path, format.extension()), options.file));
    return record_samediff(format, precision, checkpoint, *sink, options);
  });
}

}  // namespace detail

std::string_view SameDiffFormat::name() const noexcept {
  return options_.container == SameDiffContainer::sdnb  ? "sdnb"
         : options_.container == SameDiffContainer::sdz ? "sdz"
                                                        : "samediff";
}

std::string_view SameDiffFormat::extension() const noexcept {
  return options_.container == SameDiffContainer::sdnb  ? ".sdnb"
         : options_.container == SameDiffContainer::sdz ? ".sdz"
                                                        : ".fb";
}

const Capabilities& SameDiffFormat::capabilities() const noexcept {
  static constexpr Capabilities can{false, true, true, false, false, false, true, false, 32, detail::samediff::holds};
  return can;
}

bool SameDiffFormat::recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept {
  if (options_.container == SameDiffContainer::by_name) {
    const auto is = [&](SameDiffContainer one) { return SameDiffFormat({.container = one}).recognises(head, size); };
    return is(SameDiffContainer::fb) || is(SameDiffContainer::sdnb) || is(SameDiffContainer::sdz);
  }
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  if (options_.container == SameDiffContainer::sdnb) return text.starts_with(detail::samediff::sdnb_magic);
  if (options_.container == SameDiffContainer::sdz) {
    if (text.size() < 35 || !text.starts_with(std::string_view("PK\3\4", 4))) return false;
    const auto length = static_cast<std::size_t>(static_cast<unsigned char>(text[26])) |
                        static_cast<std::size_t>(static_cast<unsigned char>(text[27])) << 8;
    const std::string_view name = text.substr(30, length);
    return name == "model" || (length <= text.size() - 30 && name.ends_with(".sdnb")) ||
           name.starts_with("model.shard");
  }
  // There is no magic number. Require a root table near the beginning, after a vtable with a plausible size for a graph
  // of 9 to 12 fields.
  if (head.size() < 24 || size > detail::samediff::max_buffer || size % 4 != 0) return false;
  const auto root = detail::load_le<std::uint32_t>(head.data());
  if (root < 8 || root % 4 != 0 || root > head.size() - 4) return false;
  const auto back = static_cast<std::int32_t>(detail::load_le<std::uint32_t>(head.data() + root));
  if (back < 4 || static_cast<std::uint32_t>(back) > root - 4) return false;
  const std::byte* vtable = head.data() + root - back;
  const auto length = detail::load_le<std::uint16_t>(vtable), table = detail::load_le<std::uint16_t>(vtable + 2);
  return length >= 8 && length <= 4 + 2 * 16 && length % 2 == 0 && length <= back && table >= 4 && table <= 128;
}

Status SameDiffFormat::write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const {
  return detail::samediff::write_files(*this, {snapshot, snapshot}, sink, options);
}

}  // namespace v0
}  // namespace stele
