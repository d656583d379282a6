// Reports the entries of a file that the module does not use, and suggests similar names.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "module/matcher.hpp"
#include "snapshot/unreadable.hpp"

namespace stele::inline v0::detail {

namespace {

/// A part of the file that contains missing names, and their number.
struct LikelyPart {
  std::string path{};
  std::size_t names = 0;
};

LikelyPart likely_part(const std::vector<std::string>& missing, const std::vector<std::string>& unused) {
  constexpr int max_levels = 4;  // maximum depth of the part; bounds the work for a path with many segments
  const std::set<std::string_view> wanted(missing.begin(), missing.end());
  std::map<std::string_view, std::size_t> parts;
  LikelyPart best;
  for (const std::string_view path : unused) {
    std::size_t dot = path.find('.');
    for (int level = 0; level < max_levels && dot != path.npos; ++level, dot = path.find('.', dot + 1)) {
      if (!wanted.contains(path.substr(dot + 1))) continue;
      const std::size_t names = ++parts[path.substr(0, dot)];
      if (names > best.names) best = {std::string(path.substr(0, dot)), names};
    }
  }
  return best;
}

}  // namespace

void Matcher::suggest() {
  constexpr std::size_t max_suggestions = 50;
  const LikelyPart part = likely_part(missing_, unused_);
  if (part.names > 1 && 2 * part.names >= missing_.size() && failed_->hint().empty()) {
    failed_ = std::move(*failed_).hint(std::to_string(part.names) + " names that the module needs are below \"" +
                                       part.path + "\": set LoadOptions::part to it");
  }
  const auto each = [&](const std::vector<std::string>& names, const std::vector<std::string>& others) {
    for (std::size_t i = 0; i < std::min(names.size(), max_suggestions); ++i) {
      const std::string_view similar = most_similar(names[i], others);
      if (similar.empty()) continue;
      row(Report::What::suggested, names[i], similar);
      if (failed_->path() != names[i] || !failed_->hint().empty()) continue;
      failed_ = std::move(*failed_).hint("did you mean " + std::string(similar) + "?");
    }
  };
  each(missing_, unused_);
  each(unused_, missing_);
}

void Matcher::find_unused() {
  const auto nodes = tree_.snapshot().nodes();
  bool renamed = false;
  const auto unused = [&](std::uint32_t i) {
    const NodeKind kind = nodes[i].kind;
    return !used_[i] && (kind == NodeKind::tensor || kind == NodeKind::value || kind == NodeKind::alias);
  };
  std::uint32_t last = static_cast<std::uint32_t>(nodes.size());
  while (last != 0 && !unused(last - 1)) --last;
  RunningPath paths(*tree_.snapshot().data());
  for (std::uint32_t i = 0; i < last; ++i) {
    const std::string_view path = paths.of(i);  // called for each node, because each path extends the previous one
    if (!unused(i)) continue;
    if (nodes[i].kind == NodeKind::alias && used_[nodes[i].index]) {
      // An additional name of a loaded entry is only a tie, unless it is the older name of a field that was left empty.
      if (left_empty_.empty()) {
        row(Report::What::tied, path);
        continue;
      }
      if (!std::exchange(renamed, true)) {
        for (const std::uint32_t empty : left_empty_) {
          const std::string shown = plan_.paths.shown(empty);
          row(Report::What::missing, shown);
          compare_later(missing_, shown);
        }
      }
    }
    const std::string_view reason =
        nodes[i].kind == NodeKind::tensor ? unreadable(tree_.snapshot().leaf(nodes[i].index)) : std::string_view();
    const std::string found = reason.empty() ? std::string() : shown_unreadable(reason);
    row(Report::What::unused, path, found);
    compare_later(unused_, path);
    if (!allow_unused_.match(path)) {
      fail_name(Errc::unused, "the file has an entry that the module does not use", path, found);
    }
  }
  if (renamed) return;  // the missing names are in left_empty_
  for (const std::uint32_t null : left_null_) row(Report::What::missing, plan_.paths.shown(null));
}

namespace {

/// The first segment that several paths have in common, if each has more than one segment.
class CommonPrefix {
 public:
  void add(std::string_view path) {
    std::string_view raw;
    std::string plain;
    if (!first_segment(path, raw, plain) || raw.size() == path.size() || (!segment_.empty() && raw != segment_)) {
      differs_ = true;
    } else if (segment_.empty()) {
      segment_ = raw;
    }
  }
  /// Returns the segment; empty if the names have no common segment.
  std::string segment() const { return differs_ ? std::string() : segment_; }

 private:
  std::string segment_;
  bool differs_ = false;
};

}  // namespace

void Matcher::refuse_nothing() {
  const auto nodes = tree_.snapshot().nodes();
  RunningPath paths(*tree_.snapshot().data());
  CommonPrefix file, module;
  bool entries = false;
  for (std::uint32_t i = 0; i < nodes.size(); ++i) {
    const std::string_view path = paths.of(i);
    const NodeKind kind = nodes[i].kind;
    if (kind != NodeKind::tensor && kind != NodeKind::value && kind != NodeKind::alias) continue;
    if (used_[i]) return;
    entries = true;
    file.add(path);
  }
  if (!entries) return;
  for (const std::string& path : missing_) module.add(path);
  Error error(Errc::nothing_applied, "the load would apply nothing: the module uses no entry of the file");
  const std::string in_file = file.segment(), in_module = module.segment();
  if (!in_file.empty() && in_file != in_module) {
    error = std::move(error).hint("every name of the file begins with \"" + in_file +
                                  ".\": set LoadOptions::part to \"" + in_file + "\"");
  } else if (!in_module.empty() && in_file != in_module) {
    error = std::move(error).hint("every name of the module begins with \"" + in_module +
                                  ".\": load stele::with_prefix(file, \"" + in_module + "\")");
  } else {
    error = std::move(error).hint("compare the names, or set LoadOptions::allow_nothing");
  }
  fail(std::move(error));
}

}  // namespace stele::inline v0::detail
