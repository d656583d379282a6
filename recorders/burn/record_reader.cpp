// The base of the readers of all encodings.
#include "record_reader.hpp"

#include "snapshot/data.hpp"
#include "snapshot/paths.hpp"

namespace stele::inline v0::detail::burn {

std::string RecordReader::path() const {
  std::string text;
  for (const NodeName& segment : path_) {
    if (!text.empty()) text += '.';
    append_segment(text, segment.data != nullptr ? std::string_view(segment.data, segment.size)
                                                 : std::string_view(std::to_string(segment.size)));
  }
  return text;
}

Status RecordReader::located(Status status) const {
  if (status) return status;
  return std::move(status).error().path(path());
}

Status RecordReader::located(Status status, std::uint64_t offset) const {
  if (status) return status;
  return std::move(status).error().path(path()).offset(offset);
}

Status RecordReader::add_tensor(NodeName name, Tensor tensor, bool conditional, std::uint64_t begin) {
  return located(add(builder_, name, std::move(tensor), conditional), begin);
}

Result<Snapshot> RecordReader::finish(std::shared_ptr<const void> keeper) {
  const std::uint32_t twice = clashing_sibling(builder_.data(), true);
  if (twice != no_index) {
    return Error(Errc::duplicate, "the name occurs twice in its container").path(node_path(builder_.data(), twice));
  }
  keep(header_, builder_);
  builder_.keep(std::move(keeper));
  return builder_.finish();
}

}  // namespace stele::inline v0::detail::burn
