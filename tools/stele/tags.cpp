// The tags of archives: component recorder_archive, without which the command says so.
#include "commands.hpp"

#ifdef STELE_COMMAND_ARCHIVE
#include <stele/recorders/archive.hpp>
#endif

namespace stele::command {

#ifdef STELE_COMMAND_ARCHIVE

std::shared_ptr<const Format> archive_format(std::string tag, bool deflate) {
  return std::make_shared<ArchiveFormat>(ArchiveOptions{.tag = std::move(tag), .deflate = deflate});
}

Result<std::vector<std::string>> tags_of(const Input& archive) { return archive_tags(archive); }

Result<Report> append_tag(Checkpoint content, const Destination& to, const Convert& options,
                          const PrecisionSpec& precision, const SaveOptions& save_options) {
  if (to.format->name() != "archive" || options.to_tag.empty()) {
    return Error(Errc::invalid_argument, "--append adds a tag to an archive").hint("pass --to-tag TAG");
  }
  if (!options.quantize.empty() || names_mixture(options.precision) || !precision.block_rules.empty()) {
    return Error(Errc::not_representable, "archives cannot store quantized tensors").file(to.path);
  }
  content.parameters = with_precision(content.parameters, precision, save_options.convert);
  return ArchiveRecorder<>(ArchiveFormat({.tag = options.to_tag, .deflate = options.compress}))
      .edit(content, to.path, options.to_tag, ArchiveEdit::append, save_options);
}

#else

namespace {
Error without_archives() {
  return Error(Errc::unsupported, "this command was built without archives")
      .hint("add archive to STELE_FORMATS, or leave it empty");
}
Status remove_archive_tag(const std::string& path, const std::string&, const SaveOptions&) {
  return without_archives().file(path);
}
}  // namespace

// No format of this command is an archive, so no other function calls this one.
std::shared_ptr<const Format> archive_format(std::string, bool) { return nullptr; }
Result<std::vector<std::string>> tags_of(const Input&) { return without_archives(); }
Result<Report> append_tag(Checkpoint, const Destination& to, const Convert&, const PrecisionSpec&, const SaveOptions&) {
  return without_archives().file(to.path);
}

#endif

Result<int> tags(const Tags& options, Terminal& terminal) {
  STELE_TRY_ASSIGN(const SourcePtr file, open_input(options.file));
  if (file->is_folder()) {
    return Error(Errc::invalid_argument, "only archives have tags")
        .file(options.file)
        .expected("a .zip file")
        .found("a folder");
  }
  if (!options.remove.empty()) {
    Progress progress(terminal, "writing");
    SaveOptions save;
    save.progress = progress.callback();
    STELE_TRY(remove_archive_tag(options.file, options.remove, save));
    terminal.note("removed " + safe(options.remove));
  }
  STELE_TRY_ASSIGN(const auto all, tags_of(options.file));
  if (terminal.json()) {
    Document document(terminal, "stele.tags/1");
    document.member("file", Value(options.file));
    document.begin_list("tags");
    for (const std::string& tag : all) document.item(Value(tag));
    document.end_list();
    return exit_ok;
  }
  for (const std::string& tag : all) terminal.print(safe(tag) + "\n");
  return exit_ok;
}

}  // namespace stele::command
