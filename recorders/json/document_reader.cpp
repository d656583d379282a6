// Reads a document's skeleton into a Snapshot.
#include "document_reader.hpp"

#include <algorithm>
#include <utility>

#include "base/value_memory.hpp"
#include "numbers.hpp"
#include "snapshot/paths.hpp"
#include "snapshot/tree.hpp"

namespace stele::inline v0::detail::json {
namespace {

IndexBudget budget_of(const Limits& limits, const Source& source, Coding coding) {
  const bool plain = coding == Coding::plain;
  IndexBudget budget(limits, source.size(), plain ? index_rate::character : index_rate::compressed);
  if (!plain) budget.admit_compressed();
  return budget;
}

/// Returns the maximum size of all tensors in a document: two characters, "0,", may be a number of 8 bytes, and longer
/// text may be one part of a complex number.
std::uint64_t capacity_of(const Source& source, Coding coding) {
  constexpr std::uint64_t max_bytes_per_character = 4;
  const std::uint64_t ratio = coding == Coding::zstd ? max_zstd_ratio : coding == Coding::gzip ? max_deflate_ratio : 1;
  return add_scaled(0, source.size(), ratio * max_bytes_per_character);
}

/// Compares an index with its document, because other programs only read the document. Errors: malformed.
Status same(const Document& document, std::uint64_t budget) {
  const auto bad = [&](std::string_view expected, std::string_view found) {
    return Error(Errc::malformed, "the index does not match the document")
        .expected(expected)
        .found(found)
        .file(document.file);
  };
  const Skeleton& index = document.skeleton;
  STELE_TRY_ASSIGN(const Skeleton text, make_skeleton(*document.text, budget));
  if (text.text != index.text) {
    const auto first = std::mismatch(text.text.begin(), text.text.end(), index.text.begin(), index.text.end());
    const auto from = [](const std::string& all, std::size_t at) { return all.substr(std::min(at, all.size()), 40); };
    const auto at = static_cast<std::size_t>(first.first - text.text.begin());
    return bad(from(text.text, at), from(index.text, at));
  }
  const auto alike = [](const Data& a, const Data& b) {
    return a.at == b.at && a.size == b.size && a.numbers == b.numbers;
  };
  if (text.stopped != Errc::none ||
      !std::equal(text.data.begin(), text.data.end(), index.data.begin(), index.data.end(), alike)) {
    return bad("the positions of the tensors' data in the document", "other positions");
  }
  return {};
}

}  // namespace

DocumentReader::DocumentReader(SourcePtr source, const Limits& limits)
    : source_(std::move(source)), limits_(limits), document_(std::make_shared<Document>()) {
  document_->file = source_->name();
}

Result<Snapshot> DocumentReader::run() {
  std::byte head[4];
  const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(source_->size(), sizeof head));
  STELE_TRY(source_->read_at(0, {head, size}));
  const Coding coding = coding_of({head, size});
  memory_ = budget_of(limits_, *source_, coding);
  STELE_TRY_ASSIGN(OpenedText opened, open_text(source_, coding, memory_.left() / 2));
  document_->text = std::move(opened.text);
  if (document_->text->in_order()) builder_.set_in_order();
  builder_.set_capacity(capacity_of(*source_, coding));
  Skeleton& skeleton = document_->skeleton;
  indexed_ = !opened.index.empty();
  if (indexed_) {
    STELE_TRY_ASSIGN(skeleton, decode_index(std::move(opened.index), opened.size));
  } else {
    STELE_TRY_ASSIGN(skeleton, make_skeleton(*document_->text, memory_.left()));
  }
  memory_.take(skeleton.text.size() + skeleton.data.size() * sizeof(Data));
  Reader in(skeleton.text, {0, true, kDeepest});
  in_ = &in;
  if (!parse()) {
    if (!failed_) return located(in.error());
    return placed_ ? std::move(*failed_).file(document_->file) : located(std::move(*failed_));
  }
  STELE_TRY(resolve());
  if (const std::uint32_t i = clashing_sibling(builder_.data(), true); i != no_index) {
    return Error(Errc::duplicate, "a name occurs twice").path(node_path(builder_.data(), i)).file(document_->file);
  }
  builder_.set_unknown_kinds(unknown_kinds_);
  builder_.set_metadata(std::move(metadata_));
  builder_.keep(document_);
  return builder_.finish();
}

Status DocumentReader::check_index() const {
  if (!indexed_) return {};
  return same(*document_, budget_of(limits_, *source_, Coding::zstd).left());
}

Error DocumentReader::located(Error error) const {
  if (error.offset() && !indexed_) {
    std::uint64_t offset = *error.offset();
    for (std::size_t i = 0; i < next_data_; ++i) offset += document_->skeleton.data[i].size - 4;
    error = std::move(error).offset(offset);
  }
  if (error.path().empty() && !path_.empty()) error = std::move(error).path(path_);
  return std::move(error).file(document_->file);
}

bool DocumentReader::take(std::uint64_t bytes) {
  if (memory_.take(bytes)) return true;
  return fail(index_error("the document's structure needs more memory than its size allows"));
}

bool DocumentReader::parse() {
  constexpr unsigned format = 1, version = 2, layout = 4, metadata = 8, record = 16;
  unsigned seen = 0;
  std::string_view key;
  std::string_view text;
  if (!in_->begin_object()) return false;
  while (in_->next_key(key, scratch_)) {
    const unsigned what = key == "format"     ? format
                          : key == "version"  ? version
                          : key == "layout"   ? layout
                          : key == "metadata" ? metadata
                          : key == "record"   ? record
                                              : 0U;
    if (what == 0) return fail(Errc::unsupported, "format, version, layout, metadata or record");
    if ((seen & what) != 0) return fail(Errc::duplicate, "", "a key of the document occurs twice");
    if ((seen & format) == 0 && what != format)
      return fail(Errc::bad_magic, "format", "the file is not a stele-json document");
    seen |= what;
    if (what == format) {
      if (!in_->read_string(text, scratch_)) return false;
      if (text != "stele-json") return fail(Errc::bad_magic, "stele-json", "the file is not a stele-json document");
    } else if (what == version) {
      std::uint64_t number = 0;
      if (!in_->read_u64(number)) return false;
      if (number != 1) return fail(Errc::unsupported, "version 1", "the document has another version");
    } else if (what == layout) {
      if (!in_->read_string(text, scratch_)) return false;
      if ((seen & record) != 0)
        return fail(Errc::malformed, "layout before record", "the layout comes after the record");
      builder_.data().flat = text == "flat";
      unknown_kinds_.all = text == "guessed";
      if (text != "flat" && text != "guessed") return fail(Errc::unsupported, "flat or guessed");
    } else if (!(what == metadata ? read_metadata() : read_record())) {
      return false;
    }
  }
  constexpr unsigned required = format | version | record;
  if (in_->ok() && (seen & required) != required) return fail(Errc::malformed, "format, version and record");
  return in_->finish();
}

bool DocumentReader::read_metadata() {
  Value all;
  if (!read_value(all)) return false;
  if (all.as_map() == nullptr) return fail(Errc::malformed, "an object whose values are strings");
  for (auto& [key, text] : *all.as_map()) {
    if (text.as_string() == nullptr) return fail(Errc::malformed, "an object whose values are strings");
    metadata_.emplace(std::move(key), *text.as_string());
  }
  return true;
}

/// Reads a value of any kind, as json.hpp defines it. Its nesting limit does not depend on the container.
bool DocumentReader::read_value(Value& out) {
  std::string_view raw;
  if (in_->peek() == Kind::none) return fail(Errc::malformed, "a value");
  // A string with escapes is decoded into a separate buffer before it is copied.
  if (!in_->skip_value(&raw) || !take(raw.size())) return false;
  const auto base = static_cast<std::uint64_t>(raw.data() - document_->skeleton.text.data());
  Reader inner(raw, {base, true, kMaxDepth});
  auto r = json::read_value(inner, out, kMaxValueBytesPerByte * raw.size() + 1024);
  return r ? take(heap_of(out)) : fail(std::move(r).error());
}

bool DocumentReader::read_record() {
  const auto& skeleton = document_->skeleton;
  const std::size_t leaves = skeleton.data.size();
  if (!take(skeleton.nodes * sizeof(Node) + leaves * (sizeof(Node) + sizeof(LeafData)))) return false;
  paid_ = static_cast<std::size_t>(skeleton.nodes) + leaves + 1;
  builder_.reserve(paid_, leaves, leaves);
  if (!read_node("")) return false;
  while (!levels_.empty()) {
    if (!read_member()) return false;
  }
  path_.clear();
  if (next_data_ != leaves) return fail(Error(Errc::malformed, "the document has data outside of tensors"));
  return true;
}

}  // namespace stele::inline v0::detail::json
