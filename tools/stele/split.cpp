#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <stele/recorders/any.hpp>
#include <stele/transform.hpp>

#include "base/extension.hpp"
#include "commands.hpp"

namespace stele::command {

namespace {

/// A file to write: the end of its name, and the names of its parameters.
struct Piece {
  std::string label;
  std::set<std::string, std::less<>> names;
};

/// The first `levels` segments of a name, without the last one.
std::string head_of(std::string_view name, std::size_t levels) {
  std::size_t end = 0;
  for (std::size_t i = 0; i < name.size() && levels != 0; ++i) {
    if (name[i] == '\\') {
      ++i;
    } else if (name[i] == '.') {
      end = i;
      --levels;
    }
  }
  return std::string(name.substr(0, end));
}

/// Replaces characters that a file's name should not have.
std::string file_label(std::string text) {
  for (char& c : text) {
    const auto u = static_cast<unsigned char>(c);
    if (u < 0x21 || u == 0x7f || c == '/' || c == '\\' || c == ':') c = '_';
  }
  return text.empty() ? "top" : text;
}

/// Ties stay together: the names of one leaf go where its first name goes.
Result<std::vector<Piece>> pieces_of(const Split& options, const Snapshot& snapshot) {
  STELE_TRY_ASSIGN(const auto names, names_of(snapshot));
  std::vector<std::size_t> piece_of(snapshot.leaf_count());
  std::vector<Piece> pieces;
  if (options.size.empty()) {
    std::map<std::string, std::size_t> known;
    for (const Named& named : names) {
      if (!named.tied) {
        const std::string label = file_label(head_of(named.name, options.levels));
        const auto [at, fresh] = known.try_emplace(label, pieces.size());
        if (fresh) pieces.push_back({label, {}});
        piece_of[named.leaf] = at->second;
      }
      pieces[piece_of[named.leaf]].names.insert(named.name);
    }
    return pieces;
  }
  STELE_TRY_ASSIGN(const std::uint64_t max_bytes, parse_size(options.size));
  std::uint64_t bytes = 0;
  for (const Named& named : names) {
    if (!named.tied) {
      const std::uint64_t size = snapshot.leaf(named.leaf).byte_size();
      if (pieces.empty() || (bytes != 0 && bytes + size > max_bytes)) pieces.emplace_back(), bytes = 0;
      bytes += size;
      piece_of[named.leaf] = pieces.size() - 1;
    }
    pieces[piece_of[named.leaf]].names.insert(named.name);
  }
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    pieces[i].label = std::to_string(i + 1) + "-of-" + std::to_string(pieces.size());
  }
  return pieces;
}

/// Returns "part.LABEL.EXT", or "part-1-of-2.EXT".
Result<std::string> piece_path(const Split& options, const std::string& label) {
  STELE_TRY_ASSIGN(const Format* const format, format_of_path(options.out));
  const std::string_view usual = format->extension();
  const std::size_t end =
      detail::has_extension(options.out, usual) ? options.out.size() - usual.size() : options.out.rfind('.');
  return options.out.substr(0, end) + (options.size.empty() ? "." : "-") + label + options.out.substr(end);
}

}  // namespace

Result<int> split(const Split& options, Terminal& terminal) {
  STELE_TRY_ASSIGN(const Model model, open_model(options.in, options.opening, terminal.common().threads));
  STELE_TRY_ASSIGN(auto pieces, pieces_of(options, model.snapshot));
  if (pieces.empty()) pieces.push_back({options.size.empty() ? "top" : "1-of-1", {}});  // values and metadata remain
  STELE_TRY_ASSIGN(const Report losses,
                   losses_of(model, options.opening, options.allow_loss, terminal.common().threads));
  const auto write = [&](const Piece& piece, bool dry_run, Target& target, Snapshot& part) -> Result<Report> {
    if (interrupted()) return Progress::cancelled();
    STELE_TRY_ASSIGN(target.path, piece_path(options, piece.label));
    // Values are written with the tensors below the same head; all other values into the first file.
    const bool first = &piece == &pieces.front();
    const auto keep = [&](std::string_view name, const LeafView* leaf) {
      if (piece.names.contains(name)) return true;
      if (leaf != nullptr || !options.size.empty()) return leaf == nullptr && first;
      const std::string label = file_label(head_of(name, options.levels));
      const bool owned = std::any_of(pieces.begin(), pieces.end(), [&](const Piece& p) { return p.label == label; });
      return owned ? piece.label == label : first;
    };
    STELE_TRY_ASSIGN(part, filter(model.snapshot, {.keep = keep}));
    target.save.allow_loss = options.allow_loss;
    target.save.dry_run = dry_run;
    if (first) target.losses = losses;
    return save_to(target, part, terminal);
  };
  for (const Piece& piece : pieces) {  // no file is written unless all can be written
    Target target;
    Snapshot part;
    STELE_TRY(write(piece, true, target, part));
    STELE_TRY_ASSIGN(const bool taken, is_taken(target.path));
    if (taken) {
      return Error(Errc::exists, "the file of a part exists")
          .file(target.path)
          .hint("remove it, or choose another name");
    }
  }
  std::optional<Document> document;
  if (terminal.json()) {
    document.emplace(terminal, "stele.split/1");
    document->member("in", Value(options.in));
    document->begin_list("files");
  }
  for (const Piece& piece : pieces) {
    Target target;
    Snapshot part;
    STELE_TRY_ASSIGN(const Report report, write(piece, false, target, part));
    if (document) {
      document->item(Value(Value::Map{{"file", Value(target.path)},
                                      {"tensors", number(static_cast<std::uint64_t>(part.leaf_count()))},
                                      {"bytes", number(part.byte_size())},
                                      {"rows", to_value(report)}}));
    } else {
      print_rows(terminal, report);
      terminal.print(safe(target.path) + "  " + counted(part.leaf_count(), "tensor") + ", " +
                     human_bytes(part.byte_size()) + "\n");
    }
  }
  if (document) document->end_list();
  return exit_ok;
}

}  // namespace stele::command
