// Reads folders of torch.distributed.checkpoint (DCP), written by any number of processes.
#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/threads.hpp"
#include "dcp_metadata.hpp"
#include "io/files.hpp"
#include "leaves/boxes.hpp"
#include "leaves/provider.hpp"
#include "node_names.hpp"
#include "objects.hpp"
#include "read.hpp"
#include "snapshot/adopt.hpp"
#include "snapshot/data.hpp"
#include "stele/detail/little_endian.hpp"
#include "stele/value.hpp"
#include "tree.hpp"

namespace stele::inline v0::detail::pytorch {
namespace {

/// A slice of a file as a Source.
class SliceSource final : public Source {
 public:
  SliceSource(SourcePtr file, const Slice& slice) : Source(file->name()), file_(std::move(file)), slice_(slice) {}
  std::uint64_t size() const noexcept override { return slice_.length; }
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    if (offset > slice_.length || out.size() > slice_.length - offset) {
      return Error(Errc::truncated, "the slice of the file is too short")
          .file(name())
          .offset(slice_.offset + slice_.length);
    }
    return file_->read_at(slice_.offset + offset, out);
  }
  std::span<const std::byte> view() const noexcept override {
    const auto all = file_->view();
    if (all.empty()) return all;
    return all.subspan(static_cast<std::size_t>(slice_.offset), static_cast<std::size_t>(slice_.length));
  }
  std::byte* writable_view(ByteRange range) const noexcept override {
    if (range.offset > slice_.length || range.size > slice_.length - range.offset) return nullptr;
    return file_->writable_view({slice_.offset + range.offset, range.size});
  }

 private:
  SourcePtr file_;
  Slice slice_;
};

/// Adds the location of a slice to an error about its content.
Error in_slice(Error error, const Source& file, const Slice& slice) {
  if (error.file().empty()) error = std::move(error).file(file.name());
  if (error.hint().empty()) {
    error = std::move(error).hint("in the slice of " + std::to_string(slice.length) + " bytes at byte " +
                                  std::to_string(slice.offset));
  }
  return error;
}

/// The state that a checkpoint's leaves share.
struct DcpCheckpoint {
  DcpIndex index;
  std::vector<SourcePtr> files;
  PytorchOptions options;
  Limits limits;

  SourcePtr source(const Slice& slice) const { return std::make_shared<SliceSource>(files[slice.file], slice); }
};

/// The opened chunks of a tensor.
class OpenTensor {
 public:
  /// Errors: malformed (a slice that does not contain the chunk), those of open_file().
  static Result<std::unique_ptr<const OpenTensor>> make(const DcpCheckpoint& checkpoint, const DcpItem& item) {
    auto made = std::make_unique<OpenTensor>();
    std::vector<Provider> parts;
    parts.reserve(item.boxes.size());
    for (std::size_t i = 0; i < item.boxes.size(); ++i) {
      const Slice& slice = item.slices[i];
      auto part = made->open(checkpoint, item, item.boxes[i].length, slice);
      if (!part) return in_slice(std::move(part).error(), *checkpoint.files[slice.file], slice);
      parts.push_back(*part);
    }
    if (parts.size() == 1) {
      made->provider_ = parts.front();
    } else {
      made->provider_ = made->joined_.emplace(item.shape, item.type->size, item.boxes, parts).provider();
    }
    return std::unique_ptr<const OpenTensor>(std::move(made));
  }
  const Provider& provider() const noexcept { return provider_; }

 private:
  Result<Provider> open(const DcpCheckpoint& checkpoint, const DcpItem& item, std::span<const Extent> shape,
                        const Slice& slice) {
    const SourcePtr source = checkpoint.source(slice);
    IndexBudget memory(checkpoint.limits, slice.length);
    STELE_TRY_ASSIGN(const Snapshot chunk,
                     open_file(source, checkpoint.options, checkpoint.limits, memory, Kinds::saved));
    const View expected{nullptr, item.type, 0, Shape(shape)};
    const bool alone = chunk.leaf_count() == 1 && chunk.nodes().size() == 2;
    const Shape wanted = leaf_shape(expected);
    const bool fits = alone && chunk.leaf(0).dtype() == item.type->dtype &&
                      std::ranges::equal(chunk.leaf(0).shape(), wanted.span()) &&
                      chunk.leaf(0).byte_size() == leaf_bytes(expected);
    if (!fits) {
      return Error(Errc::malformed, "the slice does not contain the chunk that the metadata describes")
          .expected("one tensor, " + std::string(name(item.type->dtype)) + " " + to_string(wanted.span()))
          .found(alone ? std::string(name(chunk.leaf(0).dtype())) + " " + to_string(chunk.leaf(0).shape())
                       : std::to_string(chunk.leaf_count()) + " tensors");
    }
    const Provider provider = chunk.leaf(0).provider();
    if (provider.ops->locate != nullptr) {
      SourceRange range = provider.ops->locate(provider.at, provider.number);
      if (range.source == source.get()) {
        // The opened file is no longer needed.
        range.source = checkpoint.files[slice.file].get();
        range.offset += slice.offset;
        static constexpr LeafOps range_ops{
            .locate = [](const void* at, std::uint64_t) { return *static_cast<const SourceRange*>(at); }};
        return Provider{&range_ops, &ranges_.emplace_back(range), 0};
      }
    }
    chunks_.push_back(chunk);
    return provider;
  }

  std::deque<SourceRange> ranges_;
  std::vector<Snapshot> chunks_;  // chunks whose elements are not a range of a file
  std::optional<JoinedBoxes> joined_;
  Provider provider_;
};

/// A tensor. Opens its chunks when it is read, because there may be many chunks, each with an index.
class Tensor {
 public:
  Tensor(const DcpCheckpoint& checkpoint, const DcpItem& item) : checkpoint_(checkpoint), item_(item) {}

  Result<Provider> open() const {
    const Lock lock(mutex_);
    if (open_ == nullptr) {
      STELE_TRY_ASSIGN(open_, OpenTensor::make(checkpoint_, item_));
    }
    return open_->provider();
  }
  std::uint64_t size() const noexcept { return *element_count(item_.shape) * item_.type->size; }

 private:
  const DcpCheckpoint& checkpoint_;
  const DcpItem& item_;
  mutable Mutex mutex_;
  mutable std::unique_ptr<const OpenTensor> open_;
};

Status read_tensor(const void* at, std::uint64_t, std::uint64_t offset, std::span<std::byte> out,
                   ReadContext& context) {
  const Tensor& tensor = *static_cast<const Tensor*>(at);
  STELE_TRY_ASSIGN(const Provider leaf, tensor.open());
  return read_bytes(leaf, tensor.size(), offset, out, context);
}
Status stream_tensor(const void* at, std::uint64_t, std::uint64_t size, PieceSink& sink, ReadContext& context) {
  if (size == 0) return {};
  STELE_TRY_ASSIGN(const Provider leaf, static_cast<const Tensor*>(at)->open());
  return stream_bytes(leaf, size, sink, context);
}
constexpr LeafOps tensor_ops{.read = read_tensor, .stream = stream_tensor};

class DcpReader {
 public:
  DcpReader(const SourcePtr& folder, const OpenContext& context, const PytorchOptions& options, NodeNames& names)
      : folder_(folder), memory_(context.options().limits, 0), all_(std::make_shared<DcpCheckpoint>()), names_(names) {
    all_->options.ignore_checksums = options.ignore_checksums;
    all_->limits = context.options().limits;
  }

  Result<Snapshot> run() {
    std::shared_ptr<const Bundle> bundle = folder_->bundle();
    STELE_TRY_ASSIGN(auto beneath, bundle->beneath());
    if (beneath != nullptr) bundle = std::move(beneath);
    STELE_TRY_ASSIGN(all_->index, read_index(*bundle, memory_));
    for (std::size_t i = 0; i < all_->index.files.size(); ++i) {
      STELE_TRY_ASSIGN(SourcePtr file, open_of_set(bundle, all_->index.files[i], i));
      all_->files.push_back(std::move(file));
    }
    STELE_TRY(check_slices());
    to_.set_flat();
    auto tensors = std::make_shared<std::deque<Tensor>>();
    for (const DcpItem& item : all_->index.items) {
      if (item.type == nullptr) {
        if (auto added = add_object(item); !added) {
          const Slice& slice = item.slices.front();
          Error error = in_slice(std::move(added).error(), *all_->files[slice.file], slice);
          return error.path().empty() ? std::move(error).path(item.name) : std::move(error);
        }
        continue;
      }
      // The chunks are opened later; each needs a range or a Snapshot.
      constexpr std::uint64_t each_chunk = sizeof(SourceRange) + sizeof(Provider);
      if (!memory_.take(sizeof(Tensor) + sizeof(OpenTensor) + 4 * sizeof(Node) + 2 * sizeof(LeafData) + 128 +
                        item.boxes.size() * each_chunk + JoinedBoxes::memory(item.boxes.size(), item.shape.size()))) {
        return index_error("the checkpoint's tensors need more memory than the metadata's size allows");
      }
      const View whole{nullptr, item.type, 0, Shape(std::span<const Extent>(item.shape))};
      Tensor& tensor = tensors->emplace_back(*all_, item);
      const Provider provider{&tensor_ops, &tensor, 0};
      held_ = checked_add(held_, leaf_bytes(whole)).value_or(UINT64_MAX);
      STELE_TRY(names_.add(to_, item.name, memory_, leaf_bytes(whole), provider, [&](std::string_view name) {
        to_.tensor(name, item.type->dtype, leaf_shape(whole).span(), leaf_bytes(whole), provider);
        if (item.type->dtype == DType::opaque) to_.annotate(std::string(dtype_key), Value(item.type->name));
      }));
    }
    to_.keep(all_);
    to_.keep(tensors);
    return finish();
  }

 private:
  /// Checks that the slices are inside the files and do not overlap, and that chunks' slices are large enough for their
  /// elements: otherwise small files could declare any number of large tensors.
  Status check_slices() const {
    struct Used {
      const Slice* slice;
      const DcpItem* item;
    };
    std::vector<Used> used;
    std::vector<bool> begun(all_->files.size());
    for (const DcpItem& item : all_->index.items) {
      for (std::size_t i = 0; i < item.slices.size(); ++i) {
        const Slice& slice = item.slices[i];
        const Source& file = *all_->files[slice.file];
        const auto wrong = [&](Errc code, const char* what) {
          return Error(code, what).path(item.name).file(file.name()).offset(slice.offset);
        };
        if (slice.offset > file.size() || slice.length > file.size() - slice.offset) {
          return wrong(Errc::truncated, "the file ends before the slice does")
              .expected(std::to_string(slice.length) + " bytes at " + std::to_string(slice.offset))
              .found(std::to_string(file.size()) + " bytes");
        }
        if (slice.offset == 0 && !begun[slice.file]) STELE_TRY(check_begin(file));
        if (slice.offset == 0) begun[slice.file] = true;
        const std::uint64_t bytes = item.type != nullptr ? *element_count(item.boxes[i].length) * item.type->size : 0;
        if (bytes > slice.length) {
          return wrong(Errc::malformed, "the slice has fewer bytes than its chunk")
              .expected("at least " + std::to_string(bytes))
              .found(std::to_string(slice.length));
        }
        if (slice.length != 0) used.push_back({&slice, &item});
      }
    }
    std::sort(used.begin(), used.end(), [](const Used& a, const Used& b) {
      return std::pair(a.slice->file, a.slice->offset) < std::pair(b.slice->file, b.slice->offset);
    });
    for (std::size_t i = 1; i < used.size(); ++i) {
      const Slice &before = *used[i - 1].slice, &slice = *used[i].slice;
      if (before.file != slice.file || slice.offset - before.offset >= before.length) continue;
      return Error(Errc::malformed, "two slices overlap")
          .path(used[i].item->name)
          .file(all_->files[slice.file]->name())
          .offset(slice.offset)
          .expected("an offset after the slice of " + used[i - 1].item->name);
    }
    return {};
  }

  /// Refuses a file of SerializationFormat.SAFETENSORS, whose slices have no offsets.
  static Status check_begin(const Source& file) {
    std::byte head[9]{};
    if (file.size() < sizeof head) return {};
    STELE_TRY(file.read_at(0, head));
    if (head[8] != std::byte{'{'} || load_le<std::uint64_t>(head) > file.size() - 8) return {};
    return Error(Errc::unsupported, "the checkpoint's tensors are serialized as safetensors, which stele does not read")
        .file(file.name())
        .hint("save with SerializationFormat.TORCH_SAVE, or open the file as safetensors");
  }

  /// Adds an object other than a tensor: as a value, or as its parts if it contains tensors.
  Status add_object(const DcpItem& item) {
    const SourcePtr source = all_->source(item.slices.front());
    STELE_TRY_ASSIGN(const auto directory, zip::Directory::open(source, memory_.left()));
    STELE_TRY_ASSIGN(const std::string_view root, root_of(*directory));
    STELE_TRY_ASSIGN(File file, open_zip(directory, root, !all_->options.ignore_checksums, memory_));
    STELE_TRY_ASSIGN(const Snapshot parts, build(file, file.objects.root(), memory_));
    if (parts.leaf_count() == 0) {
      STELE_TRY_ASSIGN(Value value, to_value(file, file.objects.root(), memory_));
      if (!memory_.take(4 * sizeof(Node) + 128)) return index_error("the objects need too much memory");
      return names_.add(to_, item.name, memory_, 0, {},
                        [&](std::string_view name) { to_.value(name, std::move(value)); });
    }
    const auto nodes = parts.nodes();
    std::vector<std::uint32_t> numbers(nodes.size());
    for (std::uint32_t i = 1; i < nodes.size(); ++i) {
      const Node& node = nodes[i];
      const std::string_view name(node.name, node.name_size);
      const bool bare =
          nodes.size() == 2 && name == bare_name && !file.objects.is(file.objects.root(), pickle::Kind::dict);
      if (!memory_.take(2 * (sizeof(Node) + sizeof(LeafData)) + 2 * (item.name.size() + name.size()))) {
        return index_error("the objects need too much memory");
      }
      const std::string_view path =
          bare ? std::string_view(item.name) : to_.intern(std::string(item.name).append(".").append(name));
      // If a tie's first name became an unreadable entry, the next name gets the tensor.
      const bool tied = node.kind == NodeKind::alias && numbers[node.index] != 0;
      const Node& target = node.kind == NodeKind::alias ? nodes[node.index] : node;
      const std::optional<LeafView> leaf =
          target.kind == NodeKind::tensor ? std::optional(parts.leaf(target.index)) : std::nullopt;
      STELE_TRY(names_.add(to_, path, memory_, leaf ? leaf->byte_size() : 0, leaf ? leaf->provider() : Provider(),
                           [&](std::string_view added) {
                             if (tied) {
                               numbers[i] = to_.alias(added, numbers[node.index]);
                             } else if (leaf) {
                               numbers[i] = add_leaf(to_, added, *leaf);
                             } else if (node.kind == NodeKind::value) {
                               numbers[i] = to_.value(added, parts.value(node));
                             }
                           }));
      if (node.kind == NodeKind::alias && !tied) numbers[node.index] = numbers[i];
    }
    held_ = checked_add(held_, held_bytes(*parts.data())).value_or(UINT64_MAX);
    to_.keep(parts.data());
    return {};
  }

  Result<Snapshot> finish() {
    STELE_TRY(names_.sort(to_, memory_));
    to_.set_capacity(held_);
    return to_.finish();
  }

  const SourcePtr& folder_;
  IndexBudget memory_;
  std::shared_ptr<DcpCheckpoint> all_;
  SnapshotBuilder to_;
  NodeNames& names_;
  std::uint64_t held_ = 0;  // bytes of the files for tensors
};

}  // namespace

Result<Snapshot> open_dcp(const SourcePtr& folder, const OpenContext& context, const PytorchOptions& options) {
  NodeNames names;
  auto opened = read_with_names(names, [&] { return DcpReader(folder, context, options, names).run(); });
  if (!opened && opened.error().file().empty()) return std::move(opened).error().file(folder->name());
  return opened;
}

}  // namespace stele::inline v0::detail::pytorch
