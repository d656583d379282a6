#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include <stele/bundle.hpp>
#include <stele/recorders/binary.hpp>
#include <stele/transform.hpp>

#include "commands.hpp"
#include "facts/hash.hpp"
#include "snapshot/undecoded.hpp"

namespace stele::command {

namespace {

constexpr std::size_t bytes_in_line = 20;
constexpr std::size_t listed_tensors = 20;
/// A compiler takes some seconds for an array of this size.
constexpr std::uint64_t large_bytes = std::uint64_t{16} << 20;

/// Returns true for a C++ identifier that a program may use as a function: not a keyword, not reserved, and not used by
/// the header or the reader.
bool is_identifier(const std::string& name) {
  static const std::set<std::string_view> keywords{
      "alignas",     "alignof",   "and",        "and_eq",    "asm",      "auto",         "bitand",
      "bitor",       "bool",      "break",      "case",      "catch",    "char",         "char8_t",
      "char16_t",    "char32_t",  "class",      "compl",     "concept",  "const",        "consteval",
      "constexpr",   "constinit", "const_cast", "continue",  "co_await", "co_return",    "co_yield",
      "decltype",    "default",   "delete",     "do",        "double",   "dynamic_cast", "else",
      "enum",        "explicit",  "export",     "extern",    "false",    "float",        "for",
      "friend",      "goto",      "if",         "inline",    "int",      "long",         "mutable",
      "namespace",   "new",       "noexcept",   "not",       "not_eq",   "nullptr",      "operator",
      "or",          "or_eq",     "private",    "protected", "public",   "register",     "reinterpret_cast",
      "requires",    "return",    "short",      "signed",    "sizeof",   "static",       "static_assert",
      "static_cast", "struct",    "switch",     "template",  "this",     "thread_local", "throw",
      "true",        "try",       "typedef",    "typeid",    "typename", "union",        "unsigned",
      "using",       "virtual",   "void",       "volatile",  "wchar_t",  "while",        "xor",
      "xor_eq",      "main",      "std",        "stele",     "NULL",     "linux",        "unix"};
  const auto is_word = [](unsigned char c) { return c < 0x80 && (std::isalnum(c) != 0 || c == '_'); };
  const bool reserved = name.starts_with('_') || name.find("__") != name.npos;
  return !name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) == 0 && !reserved &&
         !keywords.contains(name) && std::all_of(name.begin(), name.end(), is_word);
}

/// Returns text for a `//` comment: safe, on one line, and no line continuation at its end: a backslash or its trigraph
/// (for GCC and Clang, spaces may follow).
std::string comment(std::string_view text) {
  std::string line = safe(text);
  const std::string_view end = std::string_view(line).substr(0, line.find_last_not_of(' ') + 1);
  if (end.ends_with('\\') || end.ends_with("?\?/")) line += '.';
  return line;
}

std::string heading(const Embed& options, const Snapshot& snapshot, std::uint64_t bytes) {
  std::string text = "// Made by `stele embed` from " + comment(options.file) + "\n// " +
                     std::to_string(snapshot.leaf_count()) + " tensors, " + std::to_string(bytes) +
                     " bytes of a .stele file:\n//\n";
  for (std::size_t i = 0; i < std::min(listed_tensors, snapshot.leaf_count()); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    text +=
        "//   " + std::string(name(leaf.dtype())) + " " + to_string(leaf.shape()) + " " + comment(leaf.path()) + "\n";
  }
  if (snapshot.leaf_count() > listed_tensors) text += "//   and more\n";
  return text +
         "//\n// To read a tensor in place (no heap, no library; docs/guide/embedded.md):\n//\n"
         "//   #include <stele/recorders/stele_reader.hpp>\n//\n"
         "//   stele::format::MemoryFile file;\n"
         "//   stele::format::TensorBytes tensor;\n"
         "//   if (file.open(" +
         options.name +
         "(), nullptr) || file.tensor(\"NAME\", tensor, nullptr)) return false;\n"
         "//\n// A hash function instead of nullptr checks the bytes, too.\n"
         "#pragma once\n\n#include <cstddef>\n#include <span>\n\n";
}

/// Writes text files that appear in one step each.
Status write_file(const std::string& path, std::string_view text) {
  STELE_TRY_ASSIGN(const auto sink, open_output(path));
  STELE_TRY(sink->write(std::as_bytes(std::span(text))));
  return sink->commit();
}

Status write_array(const Embed& options, const std::string& head, std::span<const std::byte> bytes) {
  STELE_TRY_ASSIGN(const auto sink, open_output(options.out));
  std::string text = head + "alignas(64) inline constexpr unsigned char " + options.name + "_bytes[] = {";
  static constexpr char digits[] = "0123456789";
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i % bytes_in_line == 0) {
      if (interrupted()) return Progress::cancelled();
      text += "\n    ";
      if (text.size() > (std::size_t{1} << 16)) {
        STELE_TRY(sink->write(std::as_bytes(std::span(text))));
        text.clear();
      }
    }
    const auto value = std::to_integer<unsigned>(bytes[i]);
    if (value >= 100) text += digits[value / 100];
    if (value >= 10) text += digits[value / 10 % 10];
    text += digits[value % 10];
    text += ',';
  }
  text += "\n};\n\n/// The file, for MemoryFile::open().\ninline std::span<const std::byte> " + options.name +
          "() {\n  return std::as_bytes(std::span(" + options.name + "_bytes));\n}\n";
  STELE_TRY(sink->write(std::as_bytes(std::span(text))));
  return sink->commit();
}

/// Returns a file's name for a string of the assembler. Errors: invalid_argument (a name that would need escapes).
Result<std::string> assembler_name(const std::string& path) {
  std::string file(file_name(path));
  const bool plain = std::all_of(file.begin(), file.end(), [](char c) {
    const auto u = static_cast<unsigned char>(c);
    return u >= 0x20 && u < 0x7f && c != '"' && c != '\\';
  });
  if (plain) return file;
  return Error(Errc::invalid_argument, "the assembler cannot include a file of this name")
      .path(file)
      .hint("choose another -o");
}

/// Begins the assembler file; check_beside() recognises this line.
constexpr std::string_view made_by = "/* Made by `stele embed --object`: assemble it in the folder of ";

/// Returns the text by which an assembler file identifies the bytes that it includes.
Result<std::string> digest_text(std::span<const std::byte> bytes) {
  STELE_TRY_ASSIGN(const auto digest, facts::xxh3());
  digest->update(bytes);
  return " (XXH3 " + digest->finish() + ")";
}

/// Returns the bytes of a file; nullopt if there is none.
Result<std::optional<Bytes>> content_of(const std::string& path) {
  STELE_TRY_ASSIGN(const bool taken, is_taken(path));
  if (!taken) return std::optional<Bytes>();
  STELE_TRY_ASSIGN(const SourcePtr source, Input(path).open("", {}));
  if (source->size() > std::numeric_limits<std::size_t>::max() / 2) return Error(Errc::out_of_memory).file(path);
  Bytes bytes(static_cast<std::size_t>(source->size()));
  STELE_TRY(source->read_at(0, bytes.span()));
  return std::optional<Bytes>(std::move(bytes));
}

/// Checks the files next to the header that the user did not name: they may only replace files of an earlier run.
/// Errors: exists.
Status check_beside(const std::string& bytes_path, const std::string& assembler) {
  const auto taken = [](const std::string& path) {
    return Error(Errc::exists, "the file is not one that embed wrote, and would be replaced")
        .file(path)
        .hint("remove it, or choose another name for the header");
  };
  STELE_TRY_ASSIGN(const auto old, content_of(assembler));
  const std::string_view text =
      old ? std::string_view(reinterpret_cast<const char*>(old->data()), old->size()) : std::string_view();
  if (old && !text.starts_with(made_by)) return taken(assembler);
  STELE_TRY_ASSIGN(const auto bytes, content_of(bytes_path));
  if (!bytes) return {};
  STELE_TRY_ASSIGN(const std::string digest, digest_text(bytes->span()));
  return text.substr(0, text.find('\n')).find(digest) != text.npos ? Status() : taken(bytes_path);
}

Status write_object(const Embed& options, const std::string& head, const std::string& bytes_path,
                    const std::string& assembler, std::span<const std::byte> bytes) {
  STELE_TRY_ASSIGN(const std::string binary, assembler_name(bytes_path));
  STELE_TRY_ASSIGN(const std::string digest, digest_text(bytes));
  STELE_TRY(write_file(bytes_path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  STELE_TRY(write_file(assembler, std::string(made_by) + binary + digest +
                                      ". */\n"
                                      "        .section .rodata." +
                                      options.name +
                                      ", \"a\"\n"
                                      "        .balign 64\n"
                                      "        .global " +
                                      options.name + "_begin, " + options.name + "_end\n" + options.name +
                                      "_begin:\n"
                                      "        .incbin \"" +
                                      binary + "\"\n" + options.name +
                                      "_end:\n"
                                      "        .byte 0\n"
                                      "#if defined(__linux__) && defined(__ELF__)\n"
                                      "        .section .note.GNU-stack, \"\", %progbits\n"
                                      "#endif\n"));
  return write_file(options.out,
                    head + "extern \"C\" const std::byte " + options.name + "_begin[], " + options.name +
                        "_end[];\n\n/// The file, for MemoryFile::open().\ninline std::span<const std::byte> " +
                        options.name + "() { return {" + options.name + "_begin, " + options.name + "_end}; }\n");
}

/// Returns the files to write: the header, or the bytes, the assembler file and the header. Errors: invalid_argument
/// (two paths name one file).
Result<std::vector<std::string>> targets(const Embed& options) {
  std::vector<std::string> paths{options.out};
  if (options.object) {
    const std::size_t dot = options.out.rfind('.');
    const bool has_extension = dot != options.out.npos && options.out.find('/', dot) == options.out.npos;
    const std::string stem = has_extension ? options.out.substr(0, dot) : options.out;
    paths.insert(paths.begin(), {stem + ".stele", stem + ".S"});
    if (paths[0] == options.out || paths[1] == options.out) {
      return Error(Errc::invalid_argument, "the header would replace a file that it belongs to")
          .expected("a header's name, for example model.hpp")
          .found(options.out);
    }
  }
  return paths;
}

}  // namespace

Result<int> embed(const Embed& options, Terminal& terminal) {
  if (!is_identifier(options.name)) {
    return Error(Errc::invalid_argument, "the constant's name is not an identifier").found(options.name);
  }
  STELE_TRY_ASSIGN(const auto paths, targets(options));
  STELE_TRY_ASSIGN(const Model model, open_model(options.file, options.opening, terminal.common().threads));
  for (const std::string& path : paths) STELE_TRY(check_output(path));  // checked before the first file is written
  if (options.object) STELE_TRY(check_beside(paths[0], paths[1]));
  Snapshot snapshot = model.snapshot;
  if (!options.only.empty() || !options.except.empty()) {
    STELE_TRY_ASSIGN(const auto idle, idle_patterns(snapshot, "--except", options.except));
    for (const std::string& note : idle) terminal.note("note: " + note);
    auto chosen = filter(snapshot, {options.only, options.except, {}});
    if (!chosen) return with_similar(chosen.error(), snapshot);
    snapshot = *std::move(chosen);
  }
  STELE_TRY(detail::check_decoded(snapshot));
  STELE_TRY_ASSIGN(Report report, losses_of_tags(model, options.opening));
  STELE_TRY_ASSIGN(snapshot,
                   at_precision(snapshot, options.precision, {.allow_overflow = options.allow_overflow}, report));
  Bytes bytes;
  {
    Progress progress(terminal, "reading");
    SaveOptions save;
    save.threads = terminal.common().threads;
    save.progress = progress.callback();
    BufferSink sink;
    STELE_TRY_ASSIGN(const Report saved, BinaryRecorder<>().save(snapshot, sink, save));
    add_rows(report, saved);
    bytes = sink.take();
  }
  const std::string head = heading(options, snapshot, bytes.size());
  if (options.object) {
    STELE_TRY(write_object(options, head, paths[0], paths[1], bytes.span()));
  } else {
    STELE_TRY(write_array(options, head, bytes.span()));
    if (bytes.size() > large_bytes) terminal.note("note: with --object, a file of this size compiles much faster");
  }
  if (terminal.json()) {
    Document document(terminal, "stele.embed/1");
    document.member("file", Value(options.file));
    document.member("out", Value(options.out));
    document.member("name", Value(options.name));
    document.member("bytes", number(static_cast<std::uint64_t>(bytes.size())));
    Value::List files;
    for (const std::string& path : paths) files.emplace_back(path);
    document.member("files", Value(std::move(files)));
    document.member("rows", to_value(report));
    return exit_ok;
  }
  print_rows(terminal, report);
  const std::string others = options.object ? safe(paths[0]) + ", " + safe(paths[1]) + " and " : "";
  terminal.note("wrote " + others + safe(options.out) + ", " + grouped(bytes.size()) +
                " bytes of a model: " + options.name + "()");
  return exit_ok;
}

}  // namespace stele::command
