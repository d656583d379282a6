// Rewrites an archive without one of its tags.
#include "rewriter.hpp"

#include <algorithm>

#include "graph/checkpoint.hpp"
#include "tag_writer.hpp"

namespace stele::inline v0::detail::archive {

Status Rewriter::plan() {
  for (const std::string& tag : old_.tags()) {
    if (same_tag(tag, dropped_)) continue;
    for (const Kind kind : {Kind::params, Kind::updater}) {
      const IndexBudget memory = old_.memory();
      STELE_TRY_ASSIGN(std::vector<Line> lines, old_.lines(tag, kind));
      old_.set_memory(memory);
      bool changed = false;
      for (Line& line : lines) {
        for (Reference& r : line.arrays) STELE_TRY(keep(tag, kind, line, r, changed));
      }
      if (changed) texts_[old_.entry_name(tag, std::string(folder_of(kind)) + ".txt")] = lines_text(lines);
    }
  }
  return {};
}

Status Rewriter::copy() {
  const auto entries = old_.directory().entries();
  const Source& source = *old_.directory().source();
  // Copies adjacent entries that keep their offsets in one piece, which the file system can share between both files.
  std::uint64_t same = 0;
  std::vector<const zip::Entry*> unmoved;
  for (const zip::Entry& e : entries) {
    if (e.header != same || goes(e) || moved_.contains(&e)) break;
    unmoved.push_back(&e);
    same = e.end;
  }
  if (same != 0) STELE_TRY(out_.copy(source, 0, same));
  for (const zip::Entry* e : unmoved) zip_.adopt(*e, e->header);
  for (std::size_t i = unmoved.size(); i < entries.size(); ++i) {
    const zip::Entry& e = entries[i];
    const auto move = moved_.find(&e);
    if (move == moved_.end() && goes(e)) continue;
    const std::string name = move != moved_.end() ? move->second.name : std::string(e.name);
    if (move != moved_.end() && !move->second.head.empty()) {
      STELE_TRY(zip_.add(name, bytes_of(move->second.head)));
      continue;
    }
    STELE_TRY_ASSIGN(const std::uint64_t data, old_.directory().data(e));
    // Keeps the alignment of the content.
    STELE_TRY(
        zip_.begin(name, e.method, e.compressed, e.size, e.crc, (alignment - data % alignment) % alignment, alignment));
    STELE_TRY(out_.copy(source, data, e.compressed));
  }
  for (const auto& [name, text] : texts_) STELE_TRY(zip_.add(name, bytes_of(text)));
  return {};
}

Status Rewriter::keep(const std::string& tag, Kind kind, const Line& line, Reference& r, bool& changed) {
  if (dropped_.empty() || r.tag.empty() || !same_tag(r.tag, dropped_)) return {};
  if (!line.kind.empty()) {
    return Error(Errc::unsupported, "a line of a later version of the format refers to the removed tag")
        .path(line.name)
        .found(line.kind.substr(0, 200));
  }
  STELE_TRY_ASSIGN(const Stored* array, old_.array(tag, kind, r));
  auto home = homes_.find(array);
  if (home == homes_.end()) {
    // The array is assigned to the first tag that refers to it.
    Reference here{tag, 0};
    STELE_TRY_ASSIGN(here.number, next_number(tag, kind));
    home = homes_.emplace(array, here).first;
    const std::string folder = old_.entry_name(tag, "");
    Move move{entry_of(std::string_view(folder).substr(0, folder.size() - 1), kind, here.number, ".fb"), {}};
    bool fresh = true;
    if (array->external != nullptr) {
      const std::string beside = std::to_string(here.number) + ".bin";
      move.head = samediff::array_alone(array->facts, beside);
      fresh =
          moved_.try_emplace(array->external, Move{folder + std::string(folder_of(kind)) + '/' + beside, {}}).second;
    }
    if (!moved_.try_emplace(array->entry, std::move(move)).second || !fresh) {
      return Error(Errc::unsupported, "two arrays of the removed tag share their bytes").path(line.name);
    }
  }
  r = home->second;
  if (same_tag(r.tag, tag)) r.tag.clear();
  changed = true;
  return {};
}

Result<std::uint32_t> Rewriter::next_number(const std::string& tag, Kind kind) {
  const std::string folder = old_.entry_name(tag, std::string(folder_of(kind)) + '/');
  const auto [next, fresh] = next_.emplace(folder, 0);
  while (old_.directory().find(folder + std::to_string(next->second) + ".fb") != nullptr ||
         old_.directory().find(folder + std::to_string(next->second) + ".bin") != nullptr) {
    if (++next->second == UINT32_MAX) return Error(Errc::limit, "the tag has too many arrays");
  }
  return next->second++;
}

bool Rewriter::goes(const zip::Entry& e) const {
  return e.name == "tags.txt" || (!dropped_.empty() && same_tag(top_of(e), dropped_)) ||
         texts_.contains(std::string(e.name));
}

Status fill_pool(File& file, const std::string& dropped, Pool& pool) {
  for (const std::string& tag : file.tags()) {
    if (same_tag(tag, dropped)) continue;
    for (const Kind kind : {Kind::params, Kind::updater}) {
      const IndexBudget memory = file.memory();
      STELE_TRY_ASSIGN(const std::vector<Line> lines, file.lines(tag, kind));
      file.set_memory(memory);
      for (const Line& line : lines) {
        if (!line.kind.empty()) continue;
        for (const Reference& r : line.arrays) {
          if (!r.tag.empty()) continue;  // added with its own tag
          STELE_TRY_ASSIGN(const Stored* s, file.array(tag, kind, r));
          if (!s->checked || s->facts.big_endian || !s->facts.axes.empty()) continue;
          pool.add(kind, {s->facts.dtype, s->facts.shape, s->crc}, {{tag, r.number}, s, {}});
        }
      }
    }
  }
  return {};
}

}  // namespace stele::inline v0::detail::archive
