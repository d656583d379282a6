// Reads the constants of a model into a Snapshot, and writes them into a model.
#include "stele/recorders/openvino.hpp"

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/in_file.hpp"
#include "base/parallel.hpp"
#include "io/text.hpp"
#include "ir.hpp"
#include "leaves/source_range.hpp"
#include "passes/byte_order.hpp"
#include "passes/composites/composite.hpp"
#include "snapshot/data.hpp"
#include "snapshot/leaf_gather.hpp"
#include "snapshot/paths.hpp"
#include "snapshot/tensor_index.hpp"
#include "snapshot/unreadable.hpp"
#include "stele/bundle.hpp"

namespace stele::inline v0 {
namespace {

using namespace detail::openvino;  // NOLINT(google-build-using-namespace): this file implements the format

/// Aligns constants that a save moves to the end of the file: enough for every dtype and for vector loads.
constexpr std::uint64_t alignment = 64;

Result<Snapshot> snapshot_of(const Ir& ir, detail::IndexBudget& memory) {
  SnapshotBuilder builder;
  builder.set_flat();
  const SourcePtr& file = ir.bin != nullptr ? ir.bin : ir.xml;  // without a `.bin`, all constants are empty
  for (const Constant& c : ir.constants) {
    const Provider provider{&detail::source_ops, file.get(), c.offset};
    STELE_TRY(detail::add_entry(builder, {c.name, c.dtype, c.shape, c.bytes, provider, c.unreadable}, memory));
  }
  STELE_TRY(detail::sort_names(builder));
  builder.keep(file);
  builder.set_capacity(std::max<std::uint64_t>(file->size(), 1));  // equal constants share their bytes
  builder.data().left_out.emplace_back(detail::graph_part);
  return builder.finish();
}

/// Writes a model with its constants replaced by a snapshot's.
class OpenvinoWriter {
 public:
  OpenvinoWriter(const Snapshot& snapshot, const SaveOptions& options)
      : ordered_(detail::in_file_order(snapshot)),
        paths_(*snapshot.data()),
        options_(options),
        context_(detail::workers_of(options)) {}

  Status run(const std::string& model_path, Sink& sink) {
    const auto bundle = sink.bundle();
    if (bundle == nullptr) {
      return Error(Errc::unsupported, "a model takes two files, which this sink cannot create")
          .hint("save to a path or to a bundle's sink");
    }
    STELE_TRY_ASSIGN(const SourcePtr source, open_file(model_path));
    detail::IndexBudget memory(default_load_options().limits, source->size());
    STELE_TRY_ASSIGN(ir_, read_ir(source, memory));
    STELE_TRY(plan());
    STELE_TRY_ASSIGN(const auto file, create(*bundle, sink));
    if (file != nullptr) {
      STELE_TRY(write_constants(*file));
      STELE_TRY(file->commit());
    }
    STELE_TRY(sink.reserve(text_.size()));
    return sink.write(std::as_bytes(std::span(text_)));
  }

 private:
  /// Elements of a leaf in the new `.bin`.
  struct Part {
    std::uint64_t offset = 0;
    std::uint32_t leaf = 0;
  };

  static Status same_type(const LeafView& ours, const Constant& theirs) {
    if (ours.dtype() != theirs.dtype) {
      return Error(Errc::dtype_mismatch, "the dtypes of the tensor and of the model's constant differ")
          .path(ours.path())
          .expected(stele::name(theirs.dtype))
          .found(stele::name(ours.dtype()))
          .hint("save with a precision that results in this dtype");
    }
    const auto a = ours.shape();
    if (std::equal(a.begin(), a.end(), theirs.shape.begin(), theirs.shape.end())) return {};
    return Error(Errc::shape_mismatch, "the shapes of the tensor and of the model's constant differ")
        .path(ours.path())
        .expected(to_string(std::span<const Extent>(theirs.shape)))
        .found(to_string(a));
  }

  /// Returns, for each constant, true if it shares bytes with another one.
  std::vector<bool> shared() const {
    std::vector<std::uint32_t> order;
    for (std::uint32_t i = 0; i < ir_.constants.size(); ++i) {
      if (ir_.constants[i].size != 0) order.push_back(i);
    }
    std::sort(order.begin(), order.end(),
              [&](std::uint32_t a, std::uint32_t b) { return ir_.constants[a].offset < ir_.constants[b].offset; });
    std::vector<bool> shares(ir_.constants.size());
    std::uint64_t end = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      const Constant& c = ir_.constants[order[i]];
      const bool with_next = i + 1 < order.size() && ir_.constants[order[i + 1]].offset < c.offset + c.size;
      shares[order[i]] = c.offset < end || with_next;
      end = std::max(end, c.offset + c.size);
    }
    return shares;
  }

  Status plan() {
    std::unordered_map<std::string_view, std::uint32_t> leaves;
    for (std::uint32_t i = 0; i < ordered_.leaf_count(); ++i) leaves.emplace(paths_[i], i);
    const std::vector<bool> shares = shared();
    size_ = ir_.bin != nullptr ? ir_.bin->size() : 0;
    std::uint64_t at = 0;  // offset in the old text
    for (std::uint32_t i = 0; i < ir_.constants.size(); ++i) {
      const Constant& c = ir_.constants[i];
      const auto leaf = leaves.find(c.name);
      if (leaf == leaves.end()) continue;
      if (!c.unreadable.empty()) {
        return Error(Errc::unsupported, "the model's constant cannot be replaced")
            .path(c.name)
            .found(detail::shown_unreadable(c.unreadable));
      }
      STELE_TRY(same_type(ordered_.leaf(leaf->second), c));
      if (c.bytes == 0) continue;
      if (!shares[i]) {
        parts_.push_back({c.offset, leaf->second});
        continue;
      }
      // OpenVINO stores equal constants once. Moves this constant to the end, so that the bytes of the others stay
      // unchanged.
      const auto begin = detail::add_scaled(size_, alignment - 1, 1) / alignment * alignment;
      const auto end = checked_add(begin, c.size);
      if (!end || *end >> 63 != 0) {
        return Error(Errc::not_representable, "the constants of the model exceed 2^63 bytes").path(c.name);
      }
      parts_.push_back({begin, leaf->second});
      size_ = *end;
      text_.append(ir_.text, at, c.text - at).append(std::to_string(begin));
      at = c.text + c.text_size;
    }
    text_.append(ir_.text, at);
    std::sort(parts_.begin(), parts_.end(), [](const Part& a, const Part& b) { return a.offset < b.offset; });
    return {};
  }

  /// Returns the sink of the `.bin`; null if the model has none. Errors: exists.
  Result<std::unique_ptr<Sink>> create(Bundle& bundle, Sink& sink) const {
    if (ir_.bin == nullptr) return std::unique_ptr<Sink>();
    const std::string own(file_name(sink.name())), name = with_ending(own, ".bin");
    if (name == own) {
      return Error(Errc::invalid_argument, "the name of the model's graph is that of its constants")
          .file(sink.name())
          .hint("save to a path that ends with .xml");
    }
    bool new_file = false;
    if (!options_.file.allow_nonatomic) {
      STELE_TRY_ASSIGN(const bool constants, bundle.contains(name));
      STELE_TRY_ASSIGN(const bool graph, bundle.contains(own));
      if (constants && !(graph && has_text(bundle, own))) {
        return Error(Errc::exists, "the file of constants exists, and two files cannot be replaced in one step")
            .file(name)
            .hint("choose another name, or set FileSinkOptions::allow_nonatomic");
      }
      if (!constants && !graph) sink.add_part(own);
      new_file = !constants;
    }
    sink.add_part(name, new_file);
    return bundle.create(name);
  }
  /// Returns true if the file has the new graph: only the constants then change.
  bool has_text(const Bundle& bundle, const std::string& name) const {
    const auto file = bundle.open(name);
    if (!file) return false;
    const auto old = detail::read_text(**file, text_.size());
    return old && *old == text_;
  }

  Status write_constants(Sink& file) {
    STELE_TRY(file.reserve(size_));
    detail::LeafGather gather(file);
    // Copies the old file up to an offset, and then zeros.
    const auto fill = [&](std::uint64_t end) -> Status {
      const std::uint64_t old = std::min(end, ir_.bin->size());
      if (gather.position() < old) STELE_TRY(gather.copy(*ir_.bin, gather.position(), old - gather.position()));
      return gather.zeros(static_cast<std::size_t>(end - gather.position()));
    };
    for (const Part& part : parts_) {
      STELE_TRY(fill(part.offset));
      STELE_TRY(gather.leaf(ordered_.leaf(part.leaf), context_));
    }
    STELE_TRY(fill(size_));
    return gather.flush();
  }

  const Snapshot ordered_;
  const detail::LeafPaths paths_;
  const SaveOptions& options_;
  ReadContext context_;
  Ir ir_;
  std::string text_;  // the new graph
  std::vector<Part> parts_;
  std::uint64_t size_ = 0;  // size of the new `.bin`
};

}  // namespace

bool OpenvinoFormat::recognises(std::span<const std::byte> head, std::uint64_t /*size*/) const noexcept {
  return is_ir({reinterpret_cast<const char*>(head.data()), head.size()});
}

Result<Snapshot> OpenvinoFormat::open(SourcePtr source, const OpenContext& context) const {
  detail::IndexBudget memory(context.options().limits, source->size());
  STELE_TRY_ASSIGN(const Ir ir, read_ir(source, memory));
  STELE_TRY_ASSIGN(const Snapshot all, detail::in_file(snapshot_of(ir, memory), ir.xml->name()));
  STELE_TRY_ASSIGN(const Snapshot snapshot, detail::in_host_order(all));
  std::vector<detail::composites::Scaled> quantized;
  for (const Dequantized& d : ir.dequantized) {
    const std::string zero = d.zero != no_index ? ir.constants[d.zero].name : std::string();
    // A shorter shape is one of the last axes.
    quantized.push_back({ir.constants[d.codes].name, ir.constants[d.scale].name, zero, -1, false});
  }
  return detail::composites::joined(snapshot, quantized);
}

Result<std::vector<Loss>> OpenvinoFormat::losses(const Snapshot& snapshot, std::string_view /*file*/) const {
  std::vector<Loss> losses;
  STELE_TRY_ASSIGN(const SourcePtr source, open_file(options_.model));
  detail::IndexBudget memory(default_load_options().limits, source->size());
  STELE_TRY_ASSIGN(const Ir theirs, read_ir(source, memory));
  std::unordered_set<std::string_view> names;
  for (const Constant& c : theirs.constants) names.insert(c.name);
  const detail::LeafPaths paths(*snapshot.data());
  for (std::uint32_t i = 0; i < snapshot.leaf_count(); ++i) {
    if (!names.contains(paths[i])) losses.push_back({snapshot.leaf(i).node(), "a tensor that the model does not have"});
  }
  return losses;
}

Status OpenvinoFormat::write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const {
  if (options_.model.empty()) {
    return Error(Errc::unsupported, "an OpenVINO IR is only written into an existing model")
        .file(sink.name())
        .hint("set OpenvinoOptions::model");
  }
  return OpenvinoWriter(snapshot, options).run(options_.model, sink);
}

}  // namespace stele::inline v0
