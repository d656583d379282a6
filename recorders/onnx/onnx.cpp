// Reads the tensors of a model into a Snapshot, and writes them into a model.
#include "stele/recorders/onnx.hpp"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/parallel.hpp"
#include "encodings/onnx/fields.hpp"
#include "encodings/onnx/model.hpp"
#include "encodings/onnx/structure.hpp"
#include "encodings/protobuf/fields.hpp"
#include "encodings/protobuf/protobuf.hpp"
#include "external.hpp"
#include "json/json.hpp"
#include "passes/byte_order.hpp"
#include "passes/composites/composite.hpp"
#include "snapshot/data.hpp"
#include "snapshot/flat.hpp"
#include "snapshot/leaf_gather.hpp"
#include "snapshot/marks.hpp"
#include "snapshot/paths.hpp"
#include "snapshot/tensor_index.hpp"
#include "snapshot/undecoded.hpp"
#include "snapshot/unreadable.hpp"

namespace stele::inline v0 {
namespace {

using namespace detail::onnx;  // NOLINT(google-build-using-namespace): this file implements the format
namespace protobuf = detail::protobuf;

/// Returns the name of a leaf of a flat snapshot.
std::string_view name_of(const Snapshot& snapshot, std::uint32_t leaf) {
  const Node& node = snapshot.nodes()[snapshot.leaf(leaf).node()];
  return {node.name, node.name_size};
}

/// The tensors of a model as a flat Snapshot, in the file's order.
struct Opened {
  Model model;
  Snapshot snapshot;
};
Result<Opened> open_model(SourcePtr source, const LoadOptions& options, Wanted wanted) {
  detail::IndexBudget memory(options.limits, source->size());
  SnapshotBuilder builder;
  builder.set_flat();
  const std::string file = source->name();
  STELE_TRY_ASSIGN(Model model, read_model(std::move(source), memory, wanted, [&](const detail::TensorEntry& tensor) {
                     return detail::add_entry(builder, tensor, memory);
                   }));
  if (auto done = detail::finish_names(builder, std::move(model.metadata), memory); !done) {
    return std::move(done).error().file(file);
  }
  builder.set_capacity(model.capacity);
  builder.keep(model.files);
  if (model.has_operations) builder.data().left_out.emplace_back(detail::graph_part);
  if (model.has_texts && !model.has_operations) builder.data().left_out.emplace_back(texts_part);
  return Opened{std::move(model), builder.finish()};
}

/// Marks codes that an operator unpacks, and their scales, as such; adds a note for each operator.
Snapshot with_packed(const Snapshot& snapshot, const std::map<std::string, std::string>& packed) {
  auto data = detail::derived_data(snapshot);
  std::map<std::string, std::string> first;
  for (std::uint32_t i = 0; i < snapshot.leaf_count(); ++i) {
    const auto found = packed.find(std::string(name_of(snapshot, i)));
    if (found == packed.end() || detail::composites::composite_of(snapshot.leaf(i)) != nullptr) continue;
    detail::set_mark(*data, i, detail::undecoded_key, found->second);
    first.try_emplace(found->second, found->first);
  }
  for (const auto& [op, name] : first) {
    std::string& note = data->notes.emplace_back("the weights of ");
    note += op;
    note += " are not decoded: codes and scales stay as they are, the first of which is ";
    note += name;
  }
  return Snapshot(std::shared_ptr<const detail::SnapshotData>(std::move(data)));
}

// A model without operations declares the versions of ONNX 1.15.
constexpr std::uint64_t new_ir_version = 9, new_opset = 20;

/// Plans the file as a list of pieces before it writes them, because a message begins with its length.
class OnnxWriter {
 public:
  /// `structure` may be null.
  OnnxWriter(const Snapshot& snapshot, const OnnxOptions& format, const Structure* structure,
             const SaveOptions& options)
      : snapshot_(snapshot),
        structure_(structure),
        model_path_(format.model),
        options_(options),
        ordered_(detail::in_file_order(snapshot)),
        paths_(*snapshot.data()),
        context_(detail::workers_of(options)),
        external_(format.external) {}

  Status run(Sink& sink) {
    STELE_TRY(check());
    STELE_TRY(external_.prepare(sink, options_));
    STELE_TRY_ASSIGN(std::string extras, detail::flat_extras(snapshot_));
    metadata_ = snapshot_.metadata();
    STELE_TRY(detail::add_flat_key(metadata_, std::move(extras)));
    if (model_path_.empty()) {
      STELE_TRY(make_new());
    } else {
      STELE_TRY_ASSIGN(source_, open_file(model_path_));
      STELE_TRY_ASSIGN(from_, open_model(source_, default_load_options(), Wanted::places));
      STELE_TRY(make_from_model());
    }
    return write(sink);
  }

 private:
  /// A piece of the file: bytes from memory, then a range of the model or a leaf.
  struct Piece {
    std::size_t begin = 0, end = 0;  // a range of bytes_
    Range copied{};
    const Snapshot* leaf_of = nullptr;
    std::uint32_t leaf = 0;
  };

  Status check() const {
    for (std::size_t i = 0; i < snapshot_.leaf_count(); ++i) {
      const LeafView leaf = snapshot_.leaf(i);
      const std::string_view name = paths_[i];
      const auto refuse = [&](const char* why) {
        return Error(Errc::not_representable, "ONNX files cannot store the tensor").path(std::string(name)).found(why);
      };
      if (name.empty()) return refuse("a tensor without a name");
      if (!detail::json::valid_utf8(name)) return refuse("a name that is not UTF-8");
      if (std::any_of(leaf.shape().begin(), leaf.shape().end(), [](Extent e) { return e >> 63 != 0; })) {
        return refuse("an extent of 2^63 or more");
      }
    }
    for (const auto& [key, text] : snapshot_.metadata()) {
      if (!detail::json::valid_utf8(key) || !detail::json::valid_utf8(text)) {
        return Error(Errc::not_representable, "ONNX files store metadata in UTF-8 only");
      }
    }
    return {};
  }

  void copy(Range range) {
    if (range.begin == range.end) return;
    if (!pieces_.empty() && pieces_.back().leaf_of == nullptr && pieces_.back().copied.end == range.begin &&
        pieces_.back().end == bytes_.size()) {
      pieces_.back().copied.end = range.end;
    } else {
      pieces_.push_back({begin_, bytes_.size(), range});
      begin_ = bytes_.size();
    }
    size_ += range.end - range.begin;
  }
  /// Ends a piece with the bytes that were appended to bytes_ so far.
  void flush() { pieces_.push_back({std::exchange(begin_, bytes_.size()), bytes_.size()}); }

  /// Returns the number of bytes of the file so far, without the tags and lengths of open messages.
  std::uint64_t position() const { return size_ + bytes_.size(); }

  /// A message that has begun: its tag and length become a piece when it ends.
  struct Open {
    std::uint32_t field = 0;
    std::size_t piece = 0;
    std::uint64_t begin = 0;
  };
  Open begin_message(std::uint32_t field) {
    flush();
    pieces_.emplace_back();
    return {field, pieces_.size() - 1, position()};
  }
  void end_message(const Open& open) {
    flush();
    const std::uint64_t size = position() - open.begin;
    protobuf::put_length(bytes_, open.field, size);
    pieces_[open.piece].begin = std::exchange(begin_, bytes_.size());
    pieces_[open.piece].end = bytes_.size();
  }

  void put_leaf(const Snapshot& from, std::uint32_t leaf) {
    pieces_.push_back({std::exchange(begin_, bytes_.size()), bytes_.size(), {}, &from, leaf});
    size_ += from.leaf(leaf).byte_size();
  }

  /// Appends the elements of a leaf, or their location in the second file, to the open TensorProto.
  Status put_elements(const Snapshot& from, std::uint32_t number, bool external) {
    const LeafView leaf = from.leaf(number);
    if (!external) {
      protobuf::put_length(bytes_, tensor_field::raw_data, leaf.byte_size());
      put_leaf(from, number);
      return {};
    }
    STELE_TRY_ASSIGN(const std::uint64_t offset, external_.add(from, number));
    put_entry(bytes_, tensor_field::external_data, "location", external_.name());
    put_entry(bytes_, tensor_field::external_data, "offset", std::to_string(offset));
    put_entry(bytes_, tensor_field::external_data, "length", std::to_string(leaf.byte_size()));
    put_number(tensor_field::data_location, external_location);
    return {};
  }

  /// Appends the shape and the dtype of a leaf to the open TensorProto.
  void put_type(const LeafView& leaf) {
    for (const Extent e : leaf.shape()) put_number(tensor_field::dims, e);
    put_number(tensor_field::data_type, code_of(leaf.dtype()));
  }

  /// Appends a field with a StringStringEntryProto.
  static void put_entry(std::vector<std::byte>& to, std::uint32_t field, std::string_view key, std::string_view value) {
    protobuf::put_length(to, field, protobuf::field_bytes(1, key.size()) + protobuf::field_bytes(2, value.size()));
    protobuf::put_text(to, 1, key);
    protobuf::put_text(to, 2, value);
  }

  /// Writes the metadata. Called before the graph is written, so that a truncated file ends inside the graph, which
  /// readers detect.
  void put_metadata() {
    for (const auto& [key, value] : metadata_) put_entry(bytes_, model_field::metadata_props, key, value);
  }

  Status make_new() {
    put_number(model_field::ir_version, structure_ != nullptr ? structure_->ir_version : new_ir_version);
    protobuf::put_text(bytes_, model_field::producer_name, "stele");
    protobuf::put_length(bytes_, model_field::opset_import, 2);
    put_number(2, structure_ != nullptr ? structure_->opset : new_opset);  // OperatorSetIdProto.version
    put_metadata();
    const Open graph = begin_message(model_field::graph);
    if (structure_ != nullptr) bytes_.insert(bytes_.end(), structure_->nodes.begin(), structure_->nodes.end());
    protobuf::put_text(bytes_, graph_field::name, "stele");
    for (std::uint32_t i = 0; i < snapshot_.leaf_count(); ++i) {
      const LeafView leaf = ordered_.leaf(i);
      const Open tensor = begin_message(graph_field::initializer);
      put_type(leaf);
      protobuf::put_text(bytes_, tensor_field::name, paths_[i]);
      STELE_TRY(put_elements(ordered_, i, external_.takes(leaf.byte_size())));
      end_message(tensor);
    }
    if (structure_ != nullptr) bytes_.insert(bytes_.end(), structure_->values.begin(), structure_->values.end());
    end_message(graph);
    return {};
  }
  void put_number(std::uint32_t field, std::uint64_t number) { protobuf::put_number(bytes_, field, number); }

  Status make_from_model() {
    std::unordered_map<std::string_view, std::uint32_t> leaves;
    for (std::uint32_t i = 0; i < snapshot_.leaf_count(); ++i) leaves.emplace(paths_[i], i);
    theirs_ = detail::in_file_order(from_.snapshot);
    bool metadata = false;
    const auto put_metadata_before = [&](std::uint64_t offset) {
      if (metadata || offset < from_.model.graph.begin) return;
      go_to(no_index);
      copy_until(from_.model.graph.begin);
      put_metadata();
      metadata = true;
    };
    for (const Place& place : from_.model.places) {
      const LeafView theirs = from_.snapshot.leaf(place.tensor);
      const auto leaf = leaves.find(name_of(from_.snapshot, place.tensor));
      const bool ours = leaf != leaves.end();
      if (place.unreadable) {
        if (!ours && (!place.external || external_.name().empty())) continue;
        return Error(Errc::unsupported, ours ? "the model's tensor cannot be replaced"
                                             : "a tensor of the model cannot be moved into the second file")
            .path(theirs.path())
            .found(detail::shown_unreadable(detail::unreadable(theirs)));
      }
      const bool moves =
          (place.form == Place::Form::initializer || place.external) && external_.takes(theirs.byte_size());
      // Elements in another file of the model move into the files of this save.
      if (!ours && !place.external && !moves) continue;
      if (ours) STELE_TRY(same_type(snapshot_.leaf(leaf->second), theirs));
      put_metadata_before(place.range.begin);
      go_to(place.message);
      copy_until(place.range.begin);
      at_ = place.range.end;
      STELE_TRY(put_tensor(place, ours ? ordered_ : theirs_, ours ? leaf->second : place.tensor, moves));
    }
    put_metadata_before(source_->size());
    go_to(no_index);
    copy_until(source_->size());
    return {};
  }

  /// Appends a tensor of the model with the elements of a leaf.
  Status put_tensor(const Place& place, const Snapshot& from, std::uint32_t number, bool external) {
    const bool numbers = place.form == Place::Form::numbers;
    std::optional<Open> attribute;
    if (numbers) {
      constexpr std::uint64_t tensor_type = 4;  // AttributeProto.AttributeType.TENSOR
      attribute = begin_message(place.field);
      protobuf::put_text(bytes_, attribute_field::name, "value");
      put_number(attribute_field::type, tensor_type);
    }
    const Open tensor = begin_message(numbers ? attribute_field::t : place.field);
    put_type(from.leaf(number));
    for (const Range& range : place.kept) copy(range);
    STELE_TRY(put_elements(from, number, external));
    end_message(tensor);
    if (attribute) end_message(*attribute);
    return {};
  }

  /// Ends the open messages that do not contain `message`, and begins those that do.
  void go_to(std::uint32_t message) {
    std::vector<std::uint32_t> chain;
    for (; message != no_index; message = from_.model.messages[message].outer) chain.push_back(message);
    std::reverse(chain.begin(), chain.end());
    std::size_t same = 0;
    while (same < open_.size() && same < chain.size() && open_[same].first == chain[same]) ++same;
    for (; open_.size() > same; open_.pop_back()) {
      copy_until(from_.model.messages[open_.back().first].range.end);
      end_message(open_.back().second);
    }
    for (; same < chain.size(); ++same) {
      const Message& next = from_.model.messages[chain[same]];
      copy_until(next.range.begin);
      open_.emplace_back(chain[same], begin_message(next.field));
      at_ = next.begin;
    }
  }

  /// Copies fields of the model up to an offset, except properties that this save replaces.
  void copy_until(std::uint64_t end) {
    for (; property_ < from_.model.properties.size() && from_.model.properties[property_].field.begin < end;
         ++property_) {
      const Model::Property& property = from_.model.properties[property_];
      if (property.key != detail::flat_key && !metadata_.contains(property.key)) continue;
      copy({at_, property.field.begin});
      at_ = property.field.end;
    }
    copy({at_, end});
    at_ = end;
  }

  static Status same_type(const LeafView& ours, const LeafView& theirs) {
    if (ours.dtype() != theirs.dtype()) {
      return Error(Errc::dtype_mismatch, "the dtypes of the tensor and of the model's tensor differ")
          .path(ours.path())
          .expected(stele::name(theirs.dtype()))
          .found(stele::name(ours.dtype()))
          .hint("save with a precision that results in this dtype");
    }
    const auto a = ours.shape(), b = theirs.shape();
    if (std::equal(a.begin(), a.end(), b.begin(), b.end())) return {};
    return Error(Errc::shape_mismatch, "the shapes of the tensor and of the model's tensor differ")
        .path(ours.path())
        .expected(to_string(b))
        .found(to_string(a));
  }

  Status write(Sink& sink) {
    flush();
    const std::uint64_t total = position();
    if (total > max_message) {
      Error error = Error(Errc::not_representable, "the model exceeds the limit of protocol buffers")
                        .expected("at most 2147483647 bytes")
                        .found(std::to_string(total));
      return external_.name().empty()
                 ? std::move(error).hint("set OnnxOptions::external to store elements in a second file")
                 : std::move(error);
    }
    STELE_TRY(external_.write(sink, options_, context_));
    STELE_TRY(sink.reserve(total));
    detail::LeafGather gather(sink);
    for (const Piece& piece : pieces_) {
      STELE_TRY(gather.write(std::span(bytes_).subspan(piece.begin, piece.end - piece.begin)));
      if (piece.leaf_of != nullptr) {
        STELE_TRY(gather.leaf(piece.leaf_of->leaf(piece.leaf), context_));
      } else if (piece.copied.begin != piece.copied.end) {
        STELE_TRY(gather.copy(*source_, piece.copied.begin, piece.copied.end - piece.copied.begin));
      }
    }
    STELE_TRY(gather.flush());
    return external_.commit();
  }

  const Snapshot& snapshot_;
  const Structure* structure_;
  const std::string& model_path_;
  const SaveOptions& options_;
  const Snapshot ordered_;
  const detail::LeafPaths paths_;
  ReadContext context_;
  ExternalFile external_;
  std::map<std::string, std::string> metadata_;
  SourcePtr source_;  // the model
  Opened from_;
  Snapshot theirs_;
  std::vector<std::byte> bytes_;
  std::size_t begin_ = 0;  // start of the bytes that no piece has
  std::vector<Piece> pieces_;
  std::uint64_t size_ = 0;  // total size of copies and leaves
  // On a save into the model: the offset up to which the model is copied, the messages that are open there, and the
  // index of the next property.
  std::uint64_t at_ = 0;
  std::vector<std::pair<std::uint32_t, Open>> open_;
  std::size_t property_ = 0;
};

}  // namespace

bool OnnxFormat::recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept {
  // Protocol buffers have no magic number. Writers put the fields in the order of their numbers: ir_version, some
  // strings, the graph.
  constexpr std::uint64_t max_text = 512;
  const auto byte = [&](std::size_t i) { return std::to_integer<unsigned>(head[i]); };
  if (head.size() < 4 || byte(0) != 0x08 || byte(1) == 0 || byte(1) > 63) return false;
  for (std::size_t at = 2; at + 2 < head.size();) {
    const unsigned field = byte(at) >> 3, type = byte(at) & 7;
    if (field == 5 && type == 0) {  // model_version
      for (++at; at < head.size() && byte(at) >= 0x80;) ++at;
      ++at;
      continue;
    }
    if (type != 2 || field < 2 || (field > 8 && field != model_field::metadata_props)) return false;
    std::uint64_t length = 0;
    unsigned shift = 0;
    for (++at; at < head.size(); shift += 7) {
      length |= std::uint64_t{byte(at) & 0x7f} << shift;
      if (byte(at++) < 0x80) break;
      if (shift > 35) return false;
    }
    if (field >= model_field::graph) return length <= size;
    if (length > max_text) return false;
    at += static_cast<std::size_t>(length);
  }
  return false;
}

Result<Snapshot> OnnxFormat::open(SourcePtr source, const OpenContext& context) const {
  STELE_TRY_ASSIGN(Opened opened, open_model(std::move(source), context.options(), Wanted::tensors));
  STELE_TRY_ASSIGN(const Snapshot snapshot, detail::in_host_order(std::move(opened.snapshot)));
  std::vector<detail::composites::Scaled> quantized;
  for (Model::Dequantize& node : opened.model.dequantize) {
    quantized.push_back({std::move(node.codes), std::move(node.scale), std::move(node.zero), node.axis, node.blocks});
  }
  STELE_TRY_ASSIGN(Snapshot joined, detail::composites::joined(snapshot, quantized));
  const auto& packed = opened.model.packed;
  return packed.empty() ? joined : with_packed(joined, packed);
}

Result<std::vector<Loss>> OnnxFormat::losses(const Snapshot& snapshot, std::string_view file) const {
  std::vector<Loss> losses;
  if (!options_.external.empty()) STELE_TRY(check_external_name(options_.external, file));
  if (options_.model.empty()) return losses;
  STELE_TRY_ASSIGN(const SourcePtr source, open_file(options_.model));
  STELE_TRY_ASSIGN(const Opened theirs, open_model(source, default_load_options(), Wanted::tensors));
  std::unordered_set<std::string_view> names;
  for (std::uint32_t i = 0; i < theirs.snapshot.leaf_count(); ++i) names.insert(name_of(theirs.snapshot, i));
  const detail::LeafPaths paths(*snapshot.data());
  for (std::uint32_t i = 0; i < snapshot.leaf_count(); ++i) {
    if (!names.contains(paths[i])) losses.push_back({snapshot.leaf(i).node(), "a tensor that the model does not have"});
  }
  return losses;
}

Status OnnxFormat::write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const {
  return OnnxWriter(snapshot, options_, structure_.get(), options).run(sink);
}

}  // namespace stele::inline v0
