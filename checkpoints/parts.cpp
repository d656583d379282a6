#include "parts.hpp"

#include <array>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "recorder.hpp"
#include "stele/delta.hpp"
#include "stele/record.hpp"

namespace stele::inline v0::detail::steps {
namespace {

/// Presents one subfolder of a bundle as a bundle.
class Subfolder final : public Bundle {
 public:
  Subfolder(Bundle& all, std::string folder) : all_(all), prefix_(std::move(folder) + "/") {}
  Result<SourcePtr> open(std::string_view name) const override { return all_.open(full(name)); }
  Result<std::unique_ptr<Sink>> create(std::string_view name) override { return all_.create(full(name)); }
  Result<bool> contains(std::string_view name) const override { return all_.contains(full(name)); }
  Result<std::vector<std::string>> names() const override {
    STELE_TRY_ASSIGN(const std::vector<std::string> all, all_.names());
    std::vector<std::string> found;
    for (const std::string& name : all) {
      if (name.starts_with(prefix_)) found.push_back(name.substr(prefix_.size()));
    }
    return found;
  }
  void remove(std::string_view name) noexcept override { all_.remove(prefix_ + std::string(name)); }

 private:
  std::string full(std::string_view name) const { return prefix_ + std::string(name); }
  Bundle& all_;
  std::string prefix_;
};

/// Writes one part, and appends the rows of its report to `report`.
class PartWriter {
 public:
  PartWriter(const Format& format, Bundle* folder, const std::string& path, const SaveOptions& options)
      : format_(format), folder_(folder), path_(path), options_(options) {}

  Result<std::unique_ptr<Sink>> sink(const std::string& name) {
    if (folder_ == nullptr) return sink_for(format_, path_ + "/" + name, options_);
    if (!format_.makes_folder(name)) return folder_->create(name);
    return bundle_sink(std::make_shared<Subfolder>(*folder_, name), name);
  }
  Status write(const std::string& name, const Snapshot& snapshot, PrecisionSpec precision, const SaveOptions& options,
               const std::string& prefix) {
    STELE_TRY_ASSIGN(const auto to, sink(name));
    auto written = save_object(format_, precision, {nullptr, &snapshot}, *to, options);
    if (!written) {
      Error error = std::move(written).error();
      const std::string in_step = prefix + std::string(error.path());
      return prefix.empty() ? std::move(error) : std::move(error).path(in_step);
    }
    for (std::size_t i = 0; i < written->size(); ++i) {
      const Report::Row row = (*written)[i];
      report.add(row.what, row.path.empty() ? std::string_view(prefix) : prefix + std::string(row.path), row.detail);
    }
    return {};
  }

  Report report;

 private:
  const Format& format_;
  Bundle* folder_;
  const std::string& path_;
  const SaveOptions& options_;
};

Result<const CheckpointFormat*> checkpoint_format(const Format& format, const Manifest& manifest) {
  const auto* whole = format.checkpoints();
  if (whole == nullptr) {
    return Error(Errc::malformed, "the manifest names one file for the whole checkpoint, which its format cannot hold")
        .file(manifest.info.folder)
        .found(format.name());
  }
  return whole;
}

LoadOptions comparing(const SaveOptions& options) {
  LoadOptions reading;
  reading.threads = options.threads;
  reading.executor = options.executor;
  return reading;
}

/// A module for testing a format.
struct Trial {
  std::array<float, 1> weight{};
};

}  // namespace

Status check_format(const Format* format, PrecisionSpec precision, const LoadOptions& options) {
  if (format == nullptr) return Error(Errc::invalid_argument, "the manager has no format");
  const auto refuse = [&](Errc code, const char* why) {
    return Error(code, why).found(format->name()).hint("open the manager with another recorder");
  };
  if (!format->writes()) return refuse(Errc::unsupported, "steps cannot be saved in a format that is only read");
  const auto memory = memory_bundle();
  const std::string file = "trial" + std::string(format->extension());
  std::unique_ptr<Sink> sink = bundle_sink(memory);
  if (!format->makes_folder(file)) {
    STELE_TRY_ASSIGN(sink, memory->create(file));
  }
  const Trial trial;
  STELE_TRY_ASSIGN(const Snapshot snapshot, snapshot_of(trial));
  if (!save_object(*format, precision, {nullptr, &snapshot}, *sink, {}))
    return {};  // the format may support the actual model even if this module fails
  SourcePtr source = bundle_source(memory);
  if (!sink->is_folder()) {
    STELE_TRY_ASSIGN(source, memory->open(file));
  }
  const auto opened = v0::open(*format, source, options);
  if (opened || opened.error().code() != Errc::needs_layout) return {};
  return refuse(Errc::needs_layout, "steps in this format could not be opened again: its files have no names");
}

bool stores_deltas(const Format& format) noexcept {
  const Capabilities& can = format.capabilities();
  const bool whole = format.checkpoints() != nullptr;
  return !whole && can.annotations && can.metadata && can.values && can.aliases;
}

Result<Report> write_parts(const Format& format, PrecisionSpec precision, const Checkpoint& checkpoint, Bundle* folder,
                           const std::string& path, const SaveOptions& options, Manifest& manifest,
                           const Checkpoint* base) {
  PartWriter writer(format, folder, path, options);
  const std::string extension(format.extension());
  if (const auto* whole = format.checkpoints()) {
    manifest.checkpoint = "checkpoint" + extension;
    STELE_TRY_ASSIGN(const auto to, writer.sink(manifest.checkpoint));
    return save_checkpoint(*whole, precision, checkpoint, *to, options);
  }
  if (checkpoint.graph) {
    if (!options.allow_loss) {
      return Error(Errc::not_representable, "steps in this format cannot store a graph")
          .found(format.name())
          .hint("open the manager with an ArchiveRecorder, or set SaveOptions::allow_loss");
    }
    writer.report.add(Report::What::lost, "", "the graph");
  }
  manifest.parameters = "parameters" + extension;
  SaveOptions plain = options;
  plain.metadata.clear();
  if (base != nullptr) {
    const Snapshot next =
        with_metadata(with_precision(checkpoint.parameters, precision, options.convert), options.metadata);
    STELE_TRY_ASSIGN(const Snapshot delta, make_delta(base->parameters, next, comparing(options)));
    STELE_TRY(writer.write(manifest.parameters, delta, {}, plain, {}));
  } else {
    STELE_TRY(writer.write(manifest.parameters, checkpoint.parameters, precision, options, {}));
  }
  for (const auto& [key, arrays] : checkpoint.optimizer.kinds()) {
    const std::string name = "optimizer-" + std::to_string(manifest.optimizer.size()) + extension;
    manifest.optimizer.emplace_back(key, name);
    // Saves the state in full precision: Adam's second moment is a square, which f16 would round to 0.
    const auto* const old = base != nullptr ? base->optimizer.find(key) : nullptr;
    Snapshot part = arrays;
    if (old != nullptr) {
      STELE_TRY_ASSIGN(part, make_delta(*old, arrays, comparing(options)));
    }
    STELE_TRY(writer.write(name, part, {}, plain, "optimizer." + key + "."));
  }
  if (checkpoint.training) manifest.training = checkpoint.training->json();
  return std::move(writer.report);
}

Result<Checkpoint> open_parts(const Format& format, const Place& place, const Manifest& manifest,
                              const LoadOptions& options, const Checkpoint* base) {
  const auto part = [&](const std::string& name) {
    return place.part(manifest, name, options.storage == Storage::mmap);
  };
  if (!manifest.checkpoint.empty()) {
    STELE_TRY_ASSIGN(const CheckpointFormat* whole, checkpoint_format(format, manifest));
    STELE_TRY_ASSIGN(const SourcePtr source, part(manifest.checkpoint));
    return v0::open_checkpoint(*whole, source, options);
  }
  Checkpoint checkpoint;
  const auto open_part = [&](const std::string& name, const Snapshot* old) -> Result<Snapshot> {
    STELE_TRY_ASSIGN(const SourcePtr source, part(name));
    STELE_TRY_ASSIGN(Snapshot opened, v0::open(format, source, options));
    return old != nullptr && delta_info(opened) ? apply_delta(*old, opened) : std::move(opened);
  };
  STELE_TRY_ASSIGN(checkpoint.parameters,
                   open_part(manifest.parameters, base != nullptr ? &base->parameters : nullptr));
  for (const auto& [key, file] : manifest.optimizer) {
    STELE_TRY_ASSIGN(Snapshot arrays, open_part(file, base != nullptr ? base->optimizer.find(key) : nullptr));
    checkpoint.optimizer.set_snapshot(key, std::move(arrays));
  }
  if (!manifest.training.empty()) {
    STELE_TRY_ASSIGN(checkpoint.training, TrainingConfig::parse(manifest.training));
  }
  return checkpoint;
}

Result<Checkpoint> joined(const Checkpoint& older, const Checkpoint& newer, const LoadOptions& options) {
  const auto both = [&](const Snapshot& first, const Snapshot& second) -> Result<Snapshot> {
    if (!delta_info(second)) return second;
    return delta_info(first) ? merge_deltas(first, second, options) : apply_delta(first, second);
  };
  Checkpoint checkpoint = newer;
  STELE_TRY_ASSIGN(checkpoint.parameters, both(older.parameters, newer.parameters));
  for (const auto& [key, arrays] : newer.optimizer.kinds()) {
    const Snapshot* const old = older.optimizer.find(key);
    if (old == nullptr) continue;
    STELE_TRY_ASSIGN(Snapshot part, both(*old, arrays));
    checkpoint.optimizer.set_snapshot(key, std::move(part));
  }
  return checkpoint;
}

std::uint64_t byte_size(const Checkpoint& checkpoint) {
  std::uint64_t bytes = checkpoint.parameters.byte_size();
  for (const auto& [key, arrays] : checkpoint.optimizer.kinds()) bytes += arrays.byte_size();
  return bytes;
}

}  // namespace stele::inline v0::detail::steps
