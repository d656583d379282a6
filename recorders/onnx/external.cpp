// Writes the elements of a model's large tensors to a second file.
#include "external.hpp"

#include "json/json.hpp"
#include "snapshot/leaf_gather.hpp"

namespace stele::inline v0::detail::onnx {

Status check_external_name(std::string_view name, std::string_view model_path) {
  constexpr std::string_view not_in_names("/\\\0", 3);
  const auto refuse = [&](const char* why) {
    return Error(Errc::invalid_argument, "OnnxOptions::external is not a valid name for the model's second file")
        .expected(why)
        .found(std::string(name));
  };
  if (name.empty() || name == "." || name == ".." || name.find_first_of(not_in_names) != name.npos) {
    return refuse("a file name without a folder");
  }
  if (!json::valid_utf8(name)) return refuse("a name in UTF-8");
  if (name == file_name(model_path)) return refuse("another name than the model's");
  return {};
}

Status ExternalFile::prepare(Sink& model, const SaveOptions& options) {
  if (name_.empty()) return {};
  STELE_TRY(check_external_name(name_, model.name()));
  const auto bundle = model.bundle();
  if (bundle == nullptr) {
    return Error(Errc::unsupported, "a model with external data takes two files, which this sink cannot create")
        .hint("save to a path or to a bundle's sink, or leave OnnxOptions::external empty");
  }
  if (options.file.allow_nonatomic) return {};
  STELE_TRY_ASSIGN(const bool exists, bundle->contains(name_));
  if (!exists) return {};
  return Error(Errc::exists, "the file for external data exists, and two files cannot be replaced in one step")
      .file(name_)
      .hint("choose another name, or set FileSinkOptions::allow_nonatomic");
}

Result<std::uint64_t> ExternalFile::add(const Snapshot& from, std::uint32_t leaf) {
  constexpr std::uint64_t max_size = std::uint64_t{1} << 62;
  const std::uint64_t bytes = from.leaf(leaf).byte_size();
  const std::uint64_t unit = bytes >= min_mapped_bytes ? mapped_alignment : alignment;
  const std::uint64_t offset = (size_ + unit - 1) / unit * unit;
  if (bytes > max_size - offset) {
    return Error(Errc::not_representable, "the elements of the model exceed 2^62 bytes").path(from.leaf(leaf).path());
  }
  parts_.push_back({&from, leaf, offset});
  size_ = offset + bytes;
  return offset;
}

Status ExternalFile::write(Sink& model, const SaveOptions& options, ReadContext& context) {
  if (parts_.empty()) return {};
  const auto bundle = model.bundle();
  const bool atomic = !options.file.allow_nonatomic;
  if (atomic) {
    // An existing model may refer to other files: it must stay complete until it is replaced.
    const std::string own(file_name(model.name()));
    STELE_TRY_ASSIGN(const bool over_old, bundle->contains(own));
    if (!over_old) model.add_part(own);
  }
  model.add_part(name_, atomic);
  STELE_TRY_ASSIGN(file_, bundle->create(name_));
  STELE_TRY(file_->reserve(size_));
  LeafGather gather(*file_);
  for (const Part& part : parts_) {
    STELE_TRY(gather.zeros(static_cast<std::size_t>(part.offset - gather.position())));
    STELE_TRY(gather.leaf(part.from->leaf(part.leaf), context));
  }
  return gather.flush();
}

}  // namespace stele::inline v0::detail::onnx
