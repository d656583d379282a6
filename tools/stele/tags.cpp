#include <stele/recorders/archive.hpp>

#include "commands.hpp"

namespace stele::command {

Result<int> tags(const Tags& options, Terminal& terminal) {
  if (!options.remove.empty()) {
    Progress progress(terminal, "writing");
    SaveOptions save;
    save.progress = progress.callback();
    STELE_TRY(remove_archive_tag(options.file, options.remove, save));
    terminal.note("removed " + safe(options.remove));
  }
  STELE_TRY_ASSIGN(const auto all, archive_tags(options.file));
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
