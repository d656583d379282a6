// Saves SameDiff files.
#include <algorithm>

#include "base/extension.hpp"
#include "base/parallel.hpp"
#include "container.hpp"
#include "dl4j/checkpoint.hpp"
#include "encodings/zip/zip.hpp"
#include "image.hpp"
#include "plan.hpp"
#include "stele/bundle.hpp"
#include "stele/recorders/samediff.hpp"

namespace stele::inline v0 {
namespace detail::samediff {

namespace {

/// Writes the files of one model.
class FilesWriter {
 public:
  FilesWriter(const ModelPlan& plan, std::uint64_t shard_bytes, const SaveOptions& options)
      : plan_(plan), options_(options), context_(workers_of(options)) {
    if (plan.container() == SameDiffContainer::fb) return;
    shards_ = plan.shards(shard_bytes);
    if (shards_.size() > 1) count_ = shards_.size() + 1;
  }
  bool has_shards() const { return count_ > 1; }

  /// Writes a zip file that contains all files.
  Status zipped(Sink& sink) {
    LeafGather out(sink, zip::crc32);
    zip::Writer zip(out);
    for (std::size_t i = 0; i < count_; ++i) {
      STELE_TRY_ASSIGN(const Image file, image(i));
      const std::string name = count_ == 1 ? "model" : shard_name("model", i, count_);
      std::uint32_t crc = 0;
      if (!out.can_patch()) {
        STELE_TRY_ASSIGN(crc, crc_of(file, context_));
      }
      STELE_TRY(zip.begin(name, zip::stored, file.size, file.size, crc, 0, 64));
      STELE_TRY(write(file, out, context_, out.can_patch() ? &crc : nullptr));
      STELE_TRY(out.can_patch() ? zip.set_crc(crc) : Status());
      STELE_TRY(out.flush());  // before the image is destroyed, because `out` refers to its bytes
    }
    STELE_TRY(zip.finish());
    return out.flush();
  }

  /// Writes one file: the whole model, or its first shard, which contains the graph.
  Status first(Sink& sink) { return one(0, sink); }

  /// Writes all shards next to the sink's file.
  Status shards(Sink& sink) {
    const auto bundle = sink.bundle();
    if (bundle == nullptr) {
      return Error(Errc::unsupported, "the model takes several files, which this sink cannot create")
          .hint("save to a path or to a bundle's sink, or raise SameDiffOptions::shard_bytes");
    }
    const std::string own(file_name(sink.name()));
    std::string base = own;
    if (has_extension(base, ".sdnb")) base.resize(base.size() - 5);
    for (std::size_t i = 0; i < count_ && !options_.file.allow_nonatomic; ++i) {
      STELE_TRY_ASSIGN(const bool exists, bundle->contains(shard_name(base, i, count_)));
      if (!exists) continue;
      return Error(Errc::exists, "a file of the set exists, and several files cannot be replaced in one step")
          .file(shard_name(base, i, count_))
          .hint("save elsewhere, or pass FileSinkOptions::allow_nonatomic");
    }
    STELE_TRY_ASSIGN(const bool over_old, bundle->contains(own));
    if (!over_old && !options_.file.allow_nonatomic) sink.add_part(own);
    for (std::size_t i = 0; i < count_; ++i) {
      const std::size_t shard = (i + 1) % count_;  // the shard with the graph is written last
      const std::string name = shard_name(base, shard, count_);
      sink.add_part(name, !options_.file.allow_nonatomic);
      STELE_TRY_ASSIGN(const auto file, bundle->create(name));
      STELE_TRY(one(shard, *file));
      STELE_TRY(file->commit());
    }
    return {};
  }

 private:
  Result<Image> image(std::size_t i) const {
    if (count_ == 1) return make_image(plan_, {true, plan_.all_arrays(), {}});
    return make_image(plan_, {i == 0,
                              i == 0 ? std::vector<std::size_t>() : shards_[i - 1],
                              {{"shard.count", std::to_string(count_)},
                               {"shard.index", std::to_string(i)},
                               {"shard.type", i == 0 ? "graph" : "weights"}}});
  }
  Status one(std::size_t i, Sink& to) {
    STELE_TRY_ASSIGN(const Image file, image(i));
    STELE_TRY(to.reserve(file.size));
    LeafGather out(to);
    STELE_TRY(write(file, out, context_));
    return out.flush();
  }

  const ModelPlan& plan_;
  const SaveOptions& options_;
  ReadContext context_;
  std::vector<std::vector<std::size_t>> shards_;  // the arrays of each shard after the first
  std::size_t count_ = 1;                         // number of files
};

}  // namespace
}  // namespace detail::samediff

Status SameDiffFormat::write_checkpoint(const Checkpoint& checkpoint, Sink& sink, const SaveOptions& options) const {
  using namespace detail;
  STELE_TRY(check_names(checkpoint.parameters, samediff::own_metadata));
  SameDiffContainer container = options_.container;
  if (container == SameDiffContainer::by_name) {
    container = has_extension(sink.name(), ".sdnb")  ? SameDiffContainer::sdnb
                : has_extension(sink.name(), ".sdz") ? SameDiffContainer::sdz
                                                     : SameDiffContainer::fb;
  }
  samediff::ModelPlan plan(checkpoint, container);
  STELE_TRY(plan.run());
  samediff::FilesWriter writer(plan, options_.shard_bytes, options);
  if (container == SameDiffContainer::sdz) {
    STELE_TRY(reserve_arrays(sink, checkpoint));
    return writer.zipped(sink);
  }
  if (writer.has_shards()) STELE_TRY(writer.shards(sink));
  return writer.first(sink);
}

}  // namespace stele::inline v0
