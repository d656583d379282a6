// Saves and edits archives.
#include <algorithm>
#include <chrono>
#include <thread>

#include "base/parallel.hpp"
#include "base/skipped.hpp"
#include "dl4j/checkpoint.hpp"
#include "file.hpp"
#include "io/os/os.hpp"
#include "recorder.hpp"
#include "rewriter.hpp"
#include "snapshot/data.hpp"
#include "stele/recorders/archive.hpp"
#include "tag_writer.hpp"

namespace stele::inline v0 {
namespace detail {
namespace archive {

namespace {

Status check_tag(const std::string& tag) {
  if (valid_tag(tag)) return {};
  return Error(Errc::invalid_argument, "the tag is invalid")
      .expected("1 to 128 of A-Z a-z 0-9 . _ -; not a number, a final dot or a Windows device name")
      .found(tag.substr(0, 200));
}

Status write_new(const ArchiveOptions& archive, const Checkpoint& checkpoint, Sink& sink, const SaveOptions& options) {
  const std::string tag = archive.tag.empty() ? "main" : archive.tag;
  STELE_TRY(check_tag(tag));
  STELE_TRY(check_names(checkpoint.parameters, {}));
  if (!archive.deduplicate) STELE_TRY(reserve_arrays(sink, checkpoint));
  LeafGather out(sink, zip::crc32);
  zip::Writer zip(out);
  TagWriter writer(tag, out, zip, archive, workers_of(options));
  STELE_TRY(writer.write(checkpoint));
  STELE_TRY(zip.add("tags.txt", bytes_of(tags_text(std::span(&tag, 1)))));
  STELE_TRY(zip.finish());
  return out.flush();
}

/// A tag to add, with its parameters and optimizer state before they were wrapped to count bytes.
struct Addition {
  std::string tag;
  const Checkpoint& checkpoint;
  const Snapshot& parameters;
  const OptimizerState& optimizer;
};

/// An archive under edit. Other edits of the archive wait until this object is destroyed.
struct Edited {
  os::File lock;
  std::shared_ptr<File> old;

  /// Returns an error if the path now leads to another file: a save does not wait for edits.
  Status check_current(const std::string& path) const {
    STELE_TRY_ASSIGN(const bool same, os::leads_to(path, lock));
    return same ? Status() : Error(Errc::io, "the archive was replaced while it was edited").hint("edit it again");
  }
};

Result<Edited> open_to_edit(const std::string& path, const SaveOptions& options) {
  constexpr std::chrono::milliseconds pause(5);
  for (;;) {
    STELE_TRY_ASSIGN(os::File lock, os::open_locked(path));
    if (lock.is_open()) {
      STELE_TRY_ASSIGN(SourcePtr source, open_file(path));
      STELE_TRY_ASSIGN(const os::Info locked, os::status(lock));
      STELE_TRY_ASSIGN(const os::Info opened, os::status(*source->file()));
      // If the ids differ, the edit that held the lock has replaced the file.
      if (opened.id == locked.id) {
        STELE_TRY_ASSIGN(auto old, File::open(std::move(source), {}));
        return Edited{std::move(lock), std::move(old)};
      }
    } else {
      std::this_thread::sleep_for(pause);
    }
    if (!options.progress({})) return Error(Errc::cancelled, "cancelled while waiting for another edit of the archive");
  }
}

/// Returns the parameters; if they were opened from the archive itself, without the parts that list other tags and
/// entries, because the archive keeps these.
Snapshot without_kept_parts(const Snapshot& parameters, const os::File& archive) {
  const auto is_kept = [](const std::string& part) {
    return part.starts_with(other_tags_part) || part.starts_with(other_entries_part);
  };
  const auto& parts = parameters.data()->left_out;
  if (std::none_of(parts.begin(), parts.end(), is_kept)) return parameters;
  const Source* last = nullptr;
  for (std::size_t i = 0; i < parameters.leaf_count(); ++i) {
    const auto place = parameters.leaf(i).location();
    if (!place || place->source == last) continue;
    last = place->source;
    // Compares paths, because an edit since the archive was opened has replaced the file.
    const auto own = os::leads_to(last->name(), archive);
    if (!own || !*own) return parameters;
  }
  if (last == nullptr) return parameters;
  auto data = derived_data(parameters);
  std::erase_if(data->left_out, is_kept);
  return Snapshot(std::shared_ptr<const SnapshotData>(std::move(data)));
}

Snapshot with_left_out(const Snapshot& parameters, const File::Parts& parts) {
  if (parts.empty()) return parameters;
  auto data = derived_data(parameters);
  add_left_out(data->left_out, parts);
  return Snapshot(std::shared_ptr<const SnapshotData>(std::move(data)));
}

/// Rewrites `old`: without the tag `dropped` (unless empty), and with `added` (unless null).
Status rewrite(const ArchiveOptions& archive, File& old, const std::string& dropped, const Addition* added,
               const std::vector<std::string>& tags, Sink& sink, const SaveOptions& options) {
  if (added != nullptr) STELE_TRY(check_names(added->checkpoint.parameters, {}));
  LeafGather out(sink, zip::crc32);
  zip::Writer zip(out);
  Rewriter rewriter(old, dropped, out, zip);
  STELE_TRY(rewriter.plan());
  STELE_TRY(rewriter.copy());
  if (added != nullptr) {
    const Kept kept{old, dropped, added->parameters, added->optimizer};
    TagWriter writer(added->tag, out, zip, archive, workers_of(options));
    writer.kept = &kept;
    if (archive.deduplicate) STELE_TRY(fill_pool(old, dropped, writer.pool));
    STELE_TRY(writer.write(added->checkpoint));
  }
  STELE_TRY(zip.add("tags.txt", bytes_of(tags_text(tags))));
  STELE_TRY(zip.finish());
  return out.flush();
}

}  // namespace
}  // namespace archive

Result<Report> edit_archive(const ArchiveFormat& format, PrecisionSpec precision, const Checkpoint& checkpoint,
                            const std::string& path, std::string_view tag, ArchiveEdit edit,
                            const SaveOptions& options) {
  const std::string full = with_extension(path, format.extension());
  return guarded(full, [&]() -> Result<Report> {
    STELE_TRY_ASSIGN(const archive::Edited edited, archive::open_to_edit(full, options));
    const auto& old = edited.old;
    std::string name(tag);
    STELE_TRY(archive::check_tag(name));
    std::vector<std::string> tags = old->tags();
    const auto at = std::find_if(tags.begin(), tags.end(), [&](const auto& t) { return archive::same_tag(t, tag); });
    std::string dropped;
    if (edit == ArchiveEdit::append) {
      if (at != tags.end()) return Error(Errc::exists, "the archive already contains the tag").found(*at);
      for (const zip::Entry& e : old->directory().entries()) {
        if (!archive::same_tag(archive::top_of(e), name)) continue;
        return Error(Errc::exists, "the archive contains another entry with the tag's name").found(std::string(e.name));
      }
      tags.push_back(name);
    } else {
      STELE_TRY_ASSIGN(dropped, old->find_tag(tag));
      *at = name;
      if (edit == ArchiveEdit::touch) std::rotate(at, at + 1, tags.end());
    }
    STELE_TRY_ASSIGN(const auto sink, sink_for(format, full, options));
    Checkpoint added = checkpoint;
    added.parameters = archive::without_kept_parts(checkpoint.parameters, edited.lock);
    if (!dropped.empty())
      added.parameters = archive::with_left_out(added.parameters, old->other_entries(dropped, false));
    return save_checkpoint(
        format, precision, added, *sink, options,
        [&](const Checkpoint& prepared, const Snapshot& parameters) -> Status {
          const archive::Addition addition{name, prepared, parameters, checkpoint.optimizer};
          STELE_TRY(archive::rewrite(format.options(), *old, dropped, &addition, tags, *sink, options));
          return edited.check_current(full);
        });
  });
}

}  // namespace detail

Status ArchiveFormat::write_checkpoint(const Checkpoint& checkpoint, Sink& sink, const SaveOptions& options) const {
  return detail::archive::write_new(options_, checkpoint, sink, options);
}

Status remove_archive_tag(const std::string& path, std::string_view tag, const SaveOptions& options) {
  const std::string full = detail::with_extension(path, ".zip");
  return detail::guarded(full, [&]() -> Status {
    STELE_TRY_ASSIGN(const detail::archive::Edited edited, detail::archive::open_to_edit(full, options));
    const auto& old = edited.old;
    if (tag.empty()) return Error(Errc::invalid_argument, "the tag is empty");
    STELE_TRY_ASSIGN(const std::string dropped, old->find_tag(tag));
    std::vector<std::string> tags = old->tags();
    std::erase(tags, dropped);
    if (tags.empty())
      return Error(Errc::invalid_argument, "an archive needs at least one tag").found(dropped).hint("remove the file");
    STELE_TRY_ASSIGN(const auto sink, detail::sink_for(ArchiveFormat(), full, options));
    STELE_TRY(detail::archive::rewrite({}, *old, dropped, nullptr, tags, *sink, options));
    STELE_TRY(edited.check_current(full));
    return sink->commit();
  });
}

}  // namespace stele::inline v0
