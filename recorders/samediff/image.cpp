// Makes and writes the contents of one file of a model.
#include "image.hpp"

#include <algorithm>

#include "container.hpp"
#include "dl4j/checkpoint.hpp"
#include "dl4j/graph_parts.hpp"
#include "encodings/zip/zip.hpp"
#include "manifest.hpp"
#include "stele/detail/little_endian.hpp"

namespace stele::inline v0::detail::samediff {

namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;
using flatbuffers::Vector;

std::uint64_t total(const std::vector<std::string>& all) {
  std::uint64_t n = 0;
  for (const std::string& s : all) n += s.size() + 16;
  return n;
}

/// Returns an upper bound of an operation's size in the file.
std::uint64_t size_of(const GraphOperation& o) {
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

/// A nested graph: its name, and its FlatBuffer.
using SubGraph = std::pair<std::string, std::string>;

/// Builds the FlatBuffer of a file. Leaves space for the bytes of tensors, which are read when the file is written.
class ImageBuilder {
 public:
  ImageBuilder(const ModelPlan& plan, const ImageParts& parts)
      : plan_(plan),
        parts_(parts),
        dialect_(plan.container() == SameDiffContainer::fb ? Dialect::a : Dialect::b),
        has_(plan.variables().size()),
        json_(plan.training() ? plan.training()->json() : std::string()) {
    for (const std::size_t i : parts.arrays) has_[i] = true;
  }

  Result<Image> run() {
    if (parts_.graph) STELE_TRY(add_sub_graphs());
    STELE_TRY_ASSIGN(const std::size_t size, buffer_size());
    const auto builder = std::make_shared<FlatBufferBuilder>(size);
    to_ = builder.get();
    STELE_TRY(write_root());
    Image out = image();
    out.keepers.push_back(builder);
    return out;
  }

 private:
  struct Reserved {
    std::uint64_t from_end;
    LeafView leaf;
  };

  bool appended(const LeafView& leaf) const { return dialect_ == Dialect::b && leaf.byte_size() >= append_threshold; }
  bool in_file(std::size_t i) const { return parts_.graph || has_[i]; }

  /// Makes the nested graphs, without arrays: SameDiff stores all arrays in the outermost graph.
  Status add_sub_graphs() {
    for (const auto& [name, inner] : plan_.graph().sub_graphs) {
      Checkpoint checkpoint;
      checkpoint.graph = inner;
      ModelPlan plan(checkpoint, plan_.container(), true);
      STELE_TRY(plan.run());
      STELE_TRY_ASSIGN(const Image image, make_image(plan, {}));
      std::string bytes;
      for (const Image::Piece& p : image.pieces)
        bytes.append(reinterpret_cast<const char*>(p.bytes.data()), p.bytes.size());
      sub_graphs_.emplace_back(name, std::move(bytes));
    }
    return {};
  }

  /// Returns a sufficient size, so that the builder never moves its content. Memory that is not touched, such as the
  /// space for the tensors' bytes, costs nothing.
  Result<std::size_t> buffer_size() const {
    std::uint64_t tables = 4096, inside = 0;
    std::uint64_t largest = 0;
    std::string largest_name;
    for (const std::size_t i : parts_.arrays) {
      const PlannedVariable& v = plan_.variables()[i];
      std::uint64_t bytes = v.leaf && !appended(plan_.leaf(v)) ? plan_.leaf(v).byte_size() : 0;
      if (v.texts) bytes += 2 * total(v.texts->strings) + 64;
      for (const auto& [key, leaf] : v.states) bytes += leaf.byte_size() + 512 + 24 * leaf.shape().size() + key.size();
      if (bytes > largest) largest = bytes, largest_name = v.about.name;
      inside += bytes;
    }
    for (std::size_t i = 0; i < plan_.variables().size(); ++i) {
      const GraphVariable& v = plan_.variables()[i].about;
      if (in_file(i)) tables += 768 + 2 * v.name.size() + 32 * (v.shape ? v.shape->size() : 0);
      tables += total(v.control_dependencies) + total(v.control_dependency_of) + total(v.control_dependencies_of_var);
    }
    for (const GraphOperation& o : plan_.graph().operations) tables += parts_.graph ? size_of(o) : 0;
    for (const auto& [key, value] : plan_.metadata()) tables += key.size() + value.size() + 64;
    tables += json_.size() + total(plan_.graph().loss_variables) + total(plan_.graph().outputs);
    for (const auto& [name, bytes] : sub_graphs_) tables += name.size() + bytes.size() + 128;
    if (inside > max_buffer || tables > max_buffer - inside) {
      return Error(Errc::limit, "the FlatBuffer exceeds 2 GiB")
          .path(largest_name)
          .expected("at most " + std::to_string(max_buffer) + " bytes")
          .found(std::to_string(inside) + " bytes in all, " + std::to_string(largest) + " of them in this tensor")
          .hint(dialect_ == Dialect::a ? "save as .sdnb, .stele or an archive" : "save as .stele or an archive");
    }
    return static_cast<std::size_t>(tables + inside);
  }

  Status write_root() {
    FlatBufferBuilder& to = *to_;
    const Graph& graph = plan_.graph();
    const auto variable_list = write_variables();
    Offset<Vector<Offset<stele_fb::Node>>> node_list;
    std::vector<Offset<stele_fb::IntPair>> outputs;
    if (parts_.graph) {
      STELE_TRY_ASSIGN(node_list, write_nodes());
      for (const std::string& name : graph.outputs) {
        STELE_TRY_ASSIGN(const std::size_t i, plan_.index_of(name, "an output of the graph is not a variable"));
        outputs.push_back(stele_fb::CreateIntPair(to, plan_.variables()[i].id, plan_.variables()[i].output));
      }
    }
    const auto output_list = to.CreateVector(outputs);
    // The same values as in DL4J's own files. DL4J does not read them.
    const auto configuration = stele_fb::CreateConfiguration(to, -1, 0, 0, 3, true, 0, 0, 0);
    std::vector<std::string> placeholders;
    for (std::size_t i = 0; i < plan_.variables().size(); ++i) {
      const GraphVariable& v = plan_.variables()[i].about;
      if (in_file(i) && v.kind == VariableKind::placeholder) placeholders.push_back(v.name);
    }
    const auto placeholder_list = to.CreateVectorOfStrings(placeholders);
    const auto loss = to.CreateVectorOfStrings(graph.loss_variables);
    const auto config = json_.empty() ? Offset<flatbuffers::String>() : to.CreateString(json_);
    const auto state_list = write_states();
    Offset<Texts> keys, values;
    write_metadata(keys, values);
    std::vector<Offset<stele_fb::SubGraph>> subs;
    for (const auto& [name, bytes] : sub_graphs_) {
      const auto text = to.CreateString(name);
      const auto content = to.CreateVector(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
      subs.push_back(stele_fb::CreateSubGraph(to, text, content));
    }
    const auto sub_list = subs.empty() ? Offset<Vector<Offset<stele_fb::SubGraph>>>() : to.CreateVector(subs);
    to.Finish(stele_fb::CreateSameDiffGraph(to, 0, variable_list, node_list, output_list, configuration,
                                            placeholder_list, loss, config, state_list, keys, values, sub_list));
    return {};
  }

  Offset<Vector<Offset<stele_fb::Variable>>> write_variables() {
    FlatBufferBuilder& to = *to_;
    std::vector<Offset<stele_fb::Variable>> variables;
    for (std::size_t i = 0; i < plan_.variables().size(); ++i) {
      const PlannedVariable& v = plan_.variables()[i];
      if (!in_file(i)) continue;
      Offset<stele_fb::Array> made;
      if (has_[i] && v.texts) {
        made = write_array(to, *v.texts);
      } else if (has_[i]) {
        const LeafView leaf = plan_.leaf(v);
        if (appended(leaf)) {
          made = extents(leaf, {}, blob_bytes_, leaf.byte_size());
          manifest_.push_back({v.about.name, blob_bytes_, leaf.byte_size()});
          blobs_.push_back(leaf);
          blob_bytes_ += leaf.byte_size();
        } else {
          made = array(leaf, v.scalar);
        }
      }
      const auto id = stele_fb::CreateIntPair(to, v.id, v.output);
      const auto name = to.CreateString(v.about.name);
      // In .fb files, the array stores the shape.
      const bool shaped = v.about.shape && (dialect_ == Dialect::b || made.IsNull());
      const auto shape = shaped ? to.CreateVector(*v.about.shape) : Offset<Vector<std::int64_t>>();
      const auto deps = texts(to, v.about.control_dependencies);
      const auto of_op = texts(to, v.about.control_dependency_of);
      const auto of_var = texts(to, v.about.control_dependencies_of_var);
      variables.push_back(stele_fb::CreateVariable(to, id, name, type_of(v.about.dtype), shape, made, -1,
                                                   static_cast<std::int8_t>(v.about.kind), deps, of_op, of_var));
    }
    return to.CreateVector(variables);
  }

  Result<Offset<Vector<Offset<stele_fb::Node>>>> write_nodes() const {
    FlatBufferBuilder& to = *to_;
    std::vector<Offset<stele_fb::Node>> list;
    for (std::size_t i = 0; i < plan_.graph().operations.size(); ++i) {
      const GraphOperation& o = plan_.graph().operations[i];
      std::vector<Offset<stele_fb::IntPair>> inputs;
      for (const std::string& name : o.inputs) {
        STELE_TRY_ASSIGN(const std::size_t input, plan_.index_of(name, "an input of an operation is not a variable"));
        const PlannedVariable& v = plan_.variables()[input];
        inputs.push_back(stele_fb::CreateIntPair(to, v.id, v.output));
      }
      std::vector<std::int32_t> outputs;
      for (const std::string& name : o.outputs) {
        STELE_TRY_ASSIGN(const std::size_t output, plan_.index_of(name, "an output of the graph is not a variable"));
        outputs.push_back(static_cast<std::int32_t>(output));
      }
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
      list.push_back(stele_fb::CreateNode(to, plan_.operation_ids()[i], name, static_cast<std::int8_t>(o.family),
                                          number_of(o), properties, 0, input_paired, output, t_args, i_args, b_args,
                                          dimensions, 0, 0, 0, output_names, op_name, output_types, scalar, deps,
                                          var_deps, dep_of, d_args, s_args));
    }
    return to.CreateVector(list);
  }

  Offset<Vector<Offset<stele_fb::State>>> write_states() {
    FlatBufferBuilder& to = *to_;
    std::vector<Offset<stele_fb::State>> states;
    const auto known_keys = plan_.training() ? updater_state_keys(plan_.training()->updater.type) : std::nullopt;
    const bool stateless = known_keys && known_keys->empty();
    for (const std::size_t i : parts_.arrays) {
      const PlannedVariable& v = plan_.variables()[i];
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
        list.push_back(array(leaf));
      }
      const auto parameter = to.CreateString(v.about.name);
      const auto key_list = to.CreateVectorOfStrings(keys);
      const auto state_list = to.CreateVector(list);
      states.push_back(stele_fb::CreateState(to, parameter, key_list, state_list));
    }
    return to.CreateVector(states);
  }

  void write_metadata(Offset<Texts>& keys, Offset<Texts>& values) {
    std::map<std::string, std::string> metadata = parts_.metadata;
    if (dialect_ == Dialect::b) {
      metadata.emplace("nd4j.format.version", "1");
      metadata.emplace("nd4j.format.type", "APPENDED_BLOB");
    }
    if (parts_.graph) metadata.insert(plan_.metadata().begin(), plan_.metadata().end());
    if (metadata.empty() && sub_graphs_.empty()) return;
    std::vector<std::string> key_list, value_list;
    for (const auto& [key, value] : metadata) {
      key_list.push_back(key);
      value_list.push_back(value);
    }
    keys = to_->CreateVectorOfStrings(key_list);
    values = to_->CreateVectorOfStrings(value_list);
  }

  /// Adds an array whose bytes are read from a leaf when the file is written.
  Offset<stele_fb::Array> array(const LeafView& leaf, bool scalar = false) {
    FlatBufferBuilder& to = *to_;
    const std::uint64_t size = leaf.byte_size();
    std::uint64_t content = 0;
    Offset<stele_fb::Array> made;
    if (size != 0) to.ForceVectorAlignment(static_cast<std::size_t>(size), 1, 32);  // 32: FlatBuffers' maximum
    if (dialect_ == Dialect::a) {
      made = make_array(to, leaf.dtype(), scalar ? std::span<const Extent>() : leaf.shape(), size, &content);
    } else {
      Offset<Vector<std::int8_t>> buffer;
      if (size != 0) {
        std::uint8_t* memory = nullptr;
        buffer = to.CreateUninitializedVector(static_cast<std::size_t>(size), 1, &memory);
        content = to.GetSize() - sizeof(flatbuffers::uoffset_t);
      }
      made = extents(leaf, buffer, 0, 0);
    }
    if (size != 0) places_.push_back({content, leaf});
    return made;
  }
  Offset<stele_fb::Array> extents(const LeafView& leaf, Offset<Vector<std::int8_t>> buffer,
                                  std::uint64_t appended_offset, std::uint64_t appended_length) const {
    FlatBufferBuilder& to = *to_;
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

  /// Returns the file: the buffer with the tensors in their places; for an .sdnb also the header, the appended tensors
  /// and the manifest. A nested graph is only the buffer.
  Image image() {
    Image out;
    const std::span<const std::byte> memory(reinterpret_cast<const std::byte*>(to_->GetBufferPointer()),
                                            to_->GetSize());
    std::string tail;
    if (dialect_ == Dialect::b && !plan_.inner()) {
      const std::uint64_t begin = sdnb_header + memory.size();
      for (ManifestEntry& e : manifest_) e.offset += begin;
      tail = make_manifest(manifest_);
      std::byte head[sdnb_header]{};
      std::copy_n(bytes_of(sdnb_magic).begin(), 4, head);
      store_le(head + 4, __builtin_bswap32(1));
      store_le(head + 8, __builtin_bswap64(begin + blob_bytes_));
      store_le(head + 16, __builtin_bswap64(std::uint64_t{tail.size()}));
      store_le(head + 24, __builtin_bswap64(std::uint64_t{sdnb_header}));
      out.add(std::string(reinterpret_cast<const char*>(head), sizeof head));
    }
    std::sort(places_.begin(), places_.end(),
              [](const Reserved& a, const Reserved& b) { return a.from_end > b.from_end; });
    std::size_t at = 0;
    for (const Reserved& place : places_) {
      const auto begin = static_cast<std::size_t>(memory.size() - place.from_end);
      out.add(memory.subspan(at, begin - at));
      out.add(place.leaf);
      at = begin + static_cast<std::size_t>(place.leaf.byte_size());
    }
    out.add(memory.subspan(at));
    for (const LeafView& blob : blobs_) out.add(blob);
    out.add(std::move(tail));
    return out;
  }

  const ModelPlan& plan_;
  const ImageParts& parts_;
  Dialect dialect_;
  std::vector<bool> has_;  // by variable: true if its array is in this file
  std::string json_;       // the training configuration
  std::vector<SubGraph> sub_graphs_;
  FlatBufferBuilder* to_ = nullptr;
  std::vector<Reserved> places_;         // locations of tensors in the buffer
  std::vector<ManifestEntry> manifest_;  // entries of tensors after the buffer
  std::vector<LeafView> blobs_;
  std::uint64_t blob_bytes_ = 0;
};

}  // namespace

Result<Image> make_image(const ModelPlan& plan, const ImageParts& parts) { return ImageBuilder(plan, parts).run(); }

Status write(const Image& image, LeafGather& out, ReadContext& context, std::uint32_t* crc) {
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

}  // namespace stele::inline v0::detail::samediff
