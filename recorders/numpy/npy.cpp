// Reads and writes .npy files, which have one array.
#include <array>

#include "arrays.hpp"
#include "base/extension.hpp"
#include "base/parallel.hpp"
#include "io/os/os.hpp"
#include "leaves/source_range.hpp"
#include "snapshot/leaf_gather.hpp"
#include "stele/bundle.hpp"
#include "stele/layout.hpp"
#include "stele/recorders/numpy.hpp"
#include "stele/sink.hpp"

namespace stele::inline v0 {

namespace numpy = detail::numpy;

bool NpyFormat::recognises(std::span<const std::byte> head, std::uint64_t /*size*/) const noexcept {
  return std::string_view(reinterpret_cast<const char*>(head.data()), head.size()).starts_with("\x93NUMPY");
}

Result<Snapshot> NpyFormat::open(SourcePtr source, const OpenContext& context) const {
  return detail::guarded(source->name(), [&]() -> Result<Snapshot> {
    Bytes buffer;
    STELE_TRY_ASSIGN(const auto header, numpy::header_of(*source, 0, source->size(), {}, buffer));
    STELE_TRY_ASSIGN(numpy::Array array, numpy::parse(header, source->size()));
    STELE_TRY(numpy::set_dtype(array, DType::none, options_));
    std::string_view stem = file_name(source->name());
    if (detail::has_extension(stem, extension())) stem.remove_suffix(extension().size());
    std::string path;
    append_segment(path, stem);
    if (const auto layout = context.layout(); layout && layout->tensors.size() == 1) path = layout->tensors[0].path;
    numpy::Arrays arrays;
    SnapshotBuilder& builder = arrays.builder();
    if (!path.empty()) builder.set_flat();  // an empty path: the loaded object is itself a tensor
    const Provider provider{&detail::source_ops, source.get(), array.data};
    builder.keep(source);
    arrays.add(builder.intern(path), array, provider);
    return arrays.finish();
  });
}

Status NpyFormat::write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const {
  if (snapshot.leaf_count() != 1) {
    return Error(Errc::not_representable, "a .npy file holds exactly one tensor")
        .expected("1 tensor")
        .found(std::to_string(snapshot.leaf_count()))
        .hint("save to a .npz file");
  }
  const Snapshot ordered = detail::in_file_order(snapshot);
  const LeafView leaf = ordered.leaf(0);
  const std::string header = numpy::header_text(leaf.dtype(), leaf.shape());
  STELE_TRY(sink.reserve(header.size() + leaf.byte_size()));
  detail::LeafGather gather(sink);
  ReadContext context(detail::workers_of(options));
  STELE_TRY(gather.write(std::as_bytes(std::span(header))));
  STELE_TRY(gather.leaf(leaf, context));
  return gather.flush();
}

}  // namespace stele::inline v0
