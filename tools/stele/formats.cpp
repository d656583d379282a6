#include <stele/recorders/any.hpp>

#include "commands.hpp"

namespace stele::command {

namespace {

/// Returns the names of the data that files of a format store in addition to named tensors.
std::string abilities(const Capabilities& can) {
  std::string text;
  const auto add = [&](bool has, const char* what) {
    if (has) text += (text.empty() ? "" : ", ") + std::string(what);
  };
  add(can.nesting, "modules");
  add(can.values, "values");
  add(can.aliases, "ties");
  add(can.ids, "ids");
  add(can.metadata, "metadata");
  add(can.properties, "properties");
  add(can.checksums, "checksums");
  return text;
}

std::string dtypes(const Capabilities& can) {
  std::string text;
  for (unsigned code = 0; code < 256; ++code) {
    const auto dtype = static_cast<DType>(code);
    if (is_known(dtype) && (can.holds == nullptr || can.holds(dtype)))
      text += (text.empty() ? "" : " ") + std::string(name(dtype));
  }
  return text;
}

/// Returns the parts between ", ".
Value::List words(std::string_view text) {
  Value::List all;
  for (;;) {
    const std::size_t end = text.find(", ");
    all.emplace_back(text.substr(0, end));
    if (end == text.npos) return all;
    text.remove_prefix(end + 2);
  }
}

}  // namespace

Result<int> formats(const Formats& /*options*/, Terminal& terminal) {
  if (terminal.json()) {
    Document document(terminal, "stele.formats/1");
    document.begin_list("formats");
    for (const Format* format : stele::formats()) {
      const Capabilities& can = format->capabilities();
      document.item(Value(Value::Map{{"name", Value(format->name())},
                                     {"extension", Value(format->extension())},
                                     {"folder", Value(format->is_folder())},
                                     {"writes", Value(format->writes())},
                                     {"checkpoints", Value(format->checkpoints() != nullptr)},
                                     {"holds", Value(abilities(can))},
                                     {"dtypes", Value(dtypes(can))}}));
    }
    document.end_list();
    document.begin_list("families");
    for (const FormatFamily& family : format_families()) {
      Value::List members;
      for (const FormatFamily::Member& member : family.members) members.emplace_back(member.format->name());
      document.item(Value(Value::Map{{"title", Value(family.title)},
                                     {"formats", Value(std::move(members))},
                                     {"folder", Value(family.folder)},
                                     {"recorders", Value(words(family.recorders))},
                                     {"header", Value(family.header)},
                                     {"files", Value(family.files)},
                                     {"holds", Value(family.holds)}}));
    }
    document.end_list();
    return exit_ok;
  }
  Table table({{"format"}, {"extension"}, {""}, {"holds, besides tensors"}});
  for (const Format* format : stele::formats()) {
    std::string kind(format->is_folder() ? "folder" : "");
    if (!format->writes()) kind += kind.empty() ? "read only" : ", read only";
    table.row({std::string(format->name()), std::string(format->extension()), kind, abilities(format->capabilities())});
  }
  table.print(terminal);
  return exit_ok;
}

}  // namespace stele::command
