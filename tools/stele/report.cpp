#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <stele/bundle.hpp>
#include <stele/sink.hpp>

#include "base/extension.hpp"
#include "commands.hpp"
#include "facts/compare.hpp"
#include "other_differences.hpp"
#include "page_parts.hpp"
#include "statistics.hpp"

namespace stele::command {

using facts::Comparison;
using facts::type_text;

namespace {

/// A page with more tensors has histograms of only the largest ones, because each takes some 400 bytes.
constexpr std::size_t max_histograms = 20'000;
constexpr std::size_t max_metadata_bytes = 4096;
constexpr std::size_t colours = 8;  // .c0 to .c7 of report.css

/// Returns text for HTML, in elements and attributes.
std::string html(std::string_view text) {
  std::string out;
  for (const char c : safe(text)) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string shortened(const std::string& text) {
  return text.size() <= max_metadata_bytes ? text : text.substr(0, max_metadata_bytes) + "…";
}

/// The page, written in pieces.
class Page {
 public:
  explicit Page(Sink& sink) : sink_(sink) {}
  Page& operator<<(std::string_view text) {
    text_ += text;
    if (text_.size() > (std::size_t{1} << 16)) flush();
    return *this;
  }
  Status finish() {
    flush();
    return std::move(status_);
  }

 private:
  void flush() {
    if (status_) status_ = sink_.write(std::as_bytes(std::span(text_)));
    text_.clear();
  }
  Sink& sink_;
  std::string text_;
  Status status_;
};

/// A tensor of the second file and its counterpart in the first.
struct Change {
  std::string kind{};  // "only in A", "only in B", "shape", "dtype", "values"; empty: equal
  std::string type_b{};
  std::string flags_b{};
  DType dtype_b = DType::none;
  std::optional<Comparison> numbers{};
};

/// A tensor that only the second file has.
struct OnlyB {
  std::string name{}, type{}, flags{};
};

/// The contents of the page.
struct PageContent {
  std::vector<Named> names;
  std::vector<LeafFacts> facts;
  std::vector<Change> changes;  // changes of each name, if there is a second file
  std::vector<OnlyB> only_b{};
  std::vector<OtherDifference> others{};
  std::size_t flagged = 0;  // names whose tensor in either file has flags
};

std::string flags_of(const LeafFacts& facts) {
  std::string text;
  const auto add = [&](std::string_view flag) { text += (text.empty() ? "" : ", ") + std::string(flag); };
  const Statistics& s = facts.statistics;
  if (facts.error) add("damaged");
  if (s.nans != 0) add(grouped(s.nans) + " NaN");
  if (s.infinities != 0) add(grouped(s.infinities) + " inf");
  if (s.count > 1 && s.zeros == s.count) add("all zero");
  return text;
}

bool any_damaged(const std::vector<LeafFacts>& all) {
  return std::any_of(all.begin(), all.end(), [](const LeafFacts& facts) { return facts.error.has_value(); });
}

/// Returns the number of tensors with flags. A tensor of several names counts once.
std::size_t flagged(const PageContent& content) {
  std::set<std::uint32_t> leaves;
  for (std::size_t i = 0; i < content.names.size(); ++i) {
    const std::uint32_t leaf = content.names[i].leaf;
    const bool in_b = !content.changes.empty() && !content.changes[i].flags_b.empty();
    if (in_b || !flags_of(content.facts[leaf]).empty()) leaves.insert(leaf);
  }
  const auto only_b = std::count_if(content.only_b.begin(), content.only_b.end(),
                                    [](const OnlyB& only) { return !only.flags.empty(); });
  return leaves.size() + static_cast<std::size_t>(only_b);
}

/// Compares the names of both files. A damaged tensor counts as different. `facts_b`: of each leaf of `b`.
Result<std::vector<Change>> changes_of(const Snapshot& a, const std::vector<Named>& names, const Snapshot& b,
                                       const std::vector<Named>& names_b, const std::vector<LeafFacts>& facts_b,
                                       std::vector<OnlyB>& only_b, Terminal& terminal) {
  std::map<std::string_view, std::uint32_t> by_name;
  for (const Named& named : names_b) by_name.emplace(named.name, named.leaf);
  std::vector<Change> changes(names.size());
  std::vector<std::optional<std::uint32_t>> partner(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto found = by_name.find(names[i].name);
    if (found == by_name.end()) {
      changes[i].kind = "only in A";
      continue;
    }
    partner[i] = found->second;
    by_name.erase(found);
  }
  for (const Named& named : names_b) {
    if (!by_name.contains(named.name)) continue;
    only_b.push_back({named.name, type_text(b.leaf(named.leaf)), flags_of(facts_b[named.leaf])});
  }
  STELE_TRY_ASSIGN(const Snapshot numbers_a, with_numbers(a));
  STELE_TRY_ASSIGN(const Snapshot numbers_b, with_numbers(b));
  Progress progress(terminal, "comparing", numbers_a.byte_size());
  const facts::Advance advance = progress.advance();
  const unsigned threads = b.in_order() ? 1 : terminal.common().threads;
  STELE_TRY(for_each_leaf(a, names.size(), threads, [&](std::size_t i, ReadContext& context) -> Status {
    if (!partner[i]) return {};
    const LeafView left = a.leaf(names[i].leaf);
    const LeafView right = b.leaf(*partner[i]);
    Change& change = changes[i];
    change.type_b = type_text(right);
    change.flags_b = flags_of(facts_b[*partner[i]]);
    change.dtype_b = right.dtype();
    if (!std::equal(left.shape().begin(), left.shape().end(), right.shape().begin(), right.shape().end())) {
      change.kind = "shape";
      return {};
    }
    const auto result =
        facts::compare_leaves(numbers_a.leaf(names[i].leaf), numbers_b.leaf(*partner[i]), 0, 0, context, advance);
    if (!result) {
      if (result.error().code() == Errc::cancelled) return result.error();
      change.kind = "damaged";
      return {};
    }
    change.numbers = *result;
    change.kind = result->differing != 0 ? "values" : left.dtype() != right.dtype() ? "dtype" : "";
    return {};
  }));
  return changes;
}

/// Returns the distance between two numbers of a float dtype, relative to the larger one; 0 for other dtypes.
double rounding_step(DType dtype) {
  if (is_block(dtype)) {  // as if a sign and a fraction took all bits of an element
    const BlockSize size = block_size(dtype);
    return std::ldexp(1, 1 - static_cast<int>(size.bytes * 8 / size.elements));
  }
  switch (dtype) {
    case DType::f64:
    case DType::c128:
      return std::ldexp(1, -52);
    case DType::f32:
    case DType::c64:
      return std::ldexp(1, -23);
    case DType::f16:
      return std::ldexp(1, -10);
    case DType::bf16:
      return std::ldexp(1, -7);
    case DType::f8_e4m3fn:
    case DType::f8_e4m3fnuz:
    case DType::f6_e2m3:
      return std::ldexp(1, -3);
    case DType::f8_e5m2:
    case DType::f8_e5m2fnuz:
    case DType::f6_e3m2:
      return std::ldexp(1, -2);
    case DType::f4_e2m1:
      return std::ldexp(1, -1);
    case DType::f8_e8m0:
      return 1;
    default:
      return 0;
  }
}

/// Returns the place of a difference on the map's scale, which is logarithmic: 0 for at most one rounding step, 1 for a
/// difference as large as the tensor's numbers. `ratio` is relative to the largest size.
double difference_level(double ratio, double step) {
  constexpr double least = 0.05;  // visible
  if (ratio <= step) return 0;
  if (ratio >= 1) return 1;
  const double begin = step != 0 ? step : rounding_step(DType::f32);
  return std::max(least, 1 - std::log(ratio) / std::log(begin));
}

std::string histogram_svg(const Histogram& bins) {
  const std::uint64_t max_bin = *std::max_element(bins.begin(), bins.end());
  std::string path = "M0 20";
  std::uint64_t last = 20;
  for (const std::uint64_t bin : bins) {
    // A bin with any number is visible.
    const double part = static_cast<double>(bin) / static_cast<double>(std::max<std::uint64_t>(max_bin, 1));
    const std::uint64_t y =
        20 - (bin == 0 ? 0 : std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::lround(part * 20))));
    if (y != last) path += "V" + std::to_string(y);
    last = y;
    path += "h2";
  }
  return "<svg class=h viewBox=\"0 0 " + std::to_string(2 * histogram_bins) +
         " 20\" preserveAspectRatio=none aria-hidden=true><path d=\"" + path + "V20z\"/></svg>";
}

void write_head(Page& page, const ReportPage& options, const Model& a, const Model* b) {
  const std::string title = !options.title.empty() ? options.title
                            : b != nullptr ? std::string(file_name(a.path)) + " and " + std::string(file_name(b->path))
                                           : std::string(file_name(a.path));
  page << "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n"
          "<meta name=viewport content=\"width=device-width, initial-scale=1\">\n"
          "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'; "
          "script-src 'unsafe-inline'\">\n"
          "<title>"
       << html(title) << "</title>\n<style>\n"
       << report_css << "</style>\n<script>document.documentElement.className = 'js';</script>\n</head>\n<body>\n<h1>"
       << html(title) << "</h1>\n<p class=sub>" << html(a.path) << " (" << a.format->name() << ")";
  if (b != nullptr) page << ", compared with " << html(b->path) << " (" << b->format->name() << ")";
  page << "</p>\n";
}

void card(Page& page, std::string_view number, std::string_view what) {
  page << "<div class=card><b>" << number << "</b><span>" << what << "</span></div>\n";
}

struct Share {
  std::string label;
  std::uint64_t tensors = 0, elements = 0, bytes = 0;
};

std::vector<Share> shares(const Snapshot& snapshot, const std::vector<Named>& names, bool by_dtype) {
  std::map<std::string, Share> all;
  for (const Named& named : names) {
    if (named.tied) continue;
    const LeafView leaf = snapshot.leaf(named.leaf);
    const std::size_t dot = named.name.find('.');
    const std::string label = by_dtype                   ? std::string(name(leaf.dtype()))
                              : dot == std::string::npos ? "(top)"
                                                         : named.name.substr(0, dot);
    Share& share = all[label];
    share.label = label;
    ++share.tensors;
    share.elements += leaf.size();
    share.bytes += leaf.byte_size();
  }
  std::vector<Share> sorted;
  sorted.reserve(all.size());
  for (auto& [label, share] : all) sorted.push_back(std::move(share));
  std::stable_sort(sorted.begin(), sorted.end(), [](const Share& x, const Share& y) { return x.bytes > y.bytes; });
  return sorted;
}

void write_bar(Page& page, const std::vector<Share>& all, std::uint64_t total) {
  page << "<div class=bar>";
  for (std::size_t i = 0; i < all.size(); ++i) {
    const double percent = total == 0 ? 0 : 100 * static_cast<double>(all[i].bytes) / static_cast<double>(total);
    page << "<i class=c" << std::to_string(i % colours) << " style=\"width:" << short_number(percent) << "%\"></i>";
  }
  page << "</div>\n<ul class=legend>\n";
  for (std::size_t i = 0; i < all.size(); ++i) {
    page << "<li><i class=c" << std::to_string(i % colours) << "></i>" << html(all[i].label) << ": "
         << human_bytes(all[i].bytes) << ", " << counted(all[i].tensors, "tensor") << "</li>\n";
  }
  page << "</ul>\n";
}

void write_summary(Page& page, const Model& a, const PageContent& content, bool two) {
  std::uint64_t elements = 0;
  for (std::size_t i = 0; i < a.snapshot.leaf_count(); ++i) elements += a.snapshot.leaf(i).size();
  page << "<div class=cards>\n";
  const std::size_t leaves = a.snapshot.leaf_count(), names = content.names.size();  // the list has a row for each name
  card(page, grouped(leaves), names == leaves ? "tensors" : "tensors with " + grouped(names) + " names");
  card(page, grouped(elements), "elements");
  card(page, human_bytes(a.snapshot.byte_size()), "of tensors");
  card(page,
       content.flagged == 0 ? "<span class=ok>none</span>" : "<span class=flag>" + grouped(content.flagged) + "</span>",
       "flagged");
  if (two) {
    const auto other = static_cast<std::uint64_t>(
        std::count_if(content.changes.begin(), content.changes.end(), [](const Change& c) { return !c.kind.empty(); }));
    card(page, grouped(other + content.only_b.size() + content.others.size()), "differences");
  }
  page << "</div>\n<h2>Dtypes</h2>\n";
  write_bar(page, shares(a.snapshot, content.names, true), a.snapshot.byte_size());
  constexpr std::size_t max_modules = 20;
  auto modules = shares(a.snapshot, content.names, false);
  if (modules.size() > 1) {
    page << "<h2>Modules</h2>\n";
    const std::size_t left = modules.size() > max_modules ? modules.size() - max_modules : 0;
    if (left != 0) {
      Share rest{"and " + grouped(left) + " more"};
      for (std::size_t i = max_modules; i < modules.size(); ++i) {
        rest.tensors += modules[i].tensors;
        rest.bytes += modules[i].bytes;
      }
      modules.resize(max_modules);
      modules.push_back(std::move(rest));
    }
    write_bar(page, modules, a.snapshot.byte_size());
  }
  if (a.snapshot.metadata().empty()) return;
  page << "<h2>Metadata</h2>\n<div class=scroll><table>\n";
  for (const auto& [key, text] : a.snapshot.metadata()) {
    page << "<tr><th>" << html(key) << "</th><td class=n>" << html(shortened(text)) << "</td></tr>\n";
  }
  page << "</table></div>\n";
}

void write_differences(Page& page, const Model& a, const PageContent& content) {
  page << "<h2>Differences</h2>\n";
  std::vector<std::size_t> rows;
  for (std::size_t i = 0; i < content.changes.size(); ++i) {
    if (!content.changes[i].kind.empty()) rows.push_back(i);
  }
  if (rows.empty() && content.only_b.empty() && content.others.empty()) {
    page << "<p class=ok>All tensors are equal.</p>\n";
    return;
  }
  const auto size = [&](std::size_t i) {
    return content.changes[i].numbers ? content.changes[i].numbers->max_abs : INFINITY;
  };
  std::stable_sort(rows.begin(), rows.end(), [&](std::size_t x, std::size_t y) { return size(x) > size(y); });
  page << "<div class=scroll><table "
          "id=differences>\n<thead><tr><th>name</th><th>difference</th><th>A</th><th>B</th><th class=r>max "
          "|a-b|</th><th class=r>max relative</th><th class=r>rms</th><th class=r>changed</th></tr></thead>\n<tbody>\n";
  for (const OnlyB& only : content.only_b) {
    page << "<tr><td class=n>" << html(only.name) << "</td><td class=flag>only in B</td><td></td><td class=m>"
         << only.type;
    if (!only.flags.empty()) page << " <span class=flag>" << html(only.flags) << "</span>";
    page << "</td><td></td><td></td><td></td><td></td></tr>\n";
  }
  for (const OtherDifference& other : content.others) {
    page << "<tr><td class=n>" << html(other.name) << "</td><td class=flag>" << other.kind << "</td><td class=n>"
         << html(shortened(other.a)) << "</td><td class=n>" << html(shortened(other.b))
         << "</td><td></td><td></td><td></td><td></td></tr>\n";
  }
  for (const std::size_t i : rows) {
    const Change& change = content.changes[i];
    page << "<tr><td class=n>" << html(content.names[i].name) << "</td><td"
         << (change.kind == "values" ? "" : " class=flag") << ">" << change.kind << "</td><td class=m>"
         << type_text(a.snapshot.leaf(content.names[i].leaf)) << "</td><td class=m>" << change.type_b << "</td>";
    if (change.numbers) {
      const Comparison& c = *change.numbers;
      page << "<td class=r>" << short_number(c.max_difference()) << "</td><td class=r>"
           << short_number(c.max_relative()) << "</td><td class=r>" << short_number(c.rms()) << "</td><td class=r>"
           << short_number(c.count == 0 ? 0 : 100 * static_cast<double>(c.differing) / static_cast<double>(c.count))
           << "%</td></tr>\n";
    } else {
      page << "<td></td><td></td><td></td><td></td></tr>\n";
    }
  }
  page << "</tbody>\n</table></div>\n";
}

void write_row(Page& page, const Model& a, const PageContent& content, std::size_t i, bool histogram) {
  const Named& named = content.names[i];
  const LeafView leaf = a.snapshot.leaf(named.leaf);
  const LeafFacts& facts = content.facts[named.leaf];
  const Statistics& s = facts.statistics;
  std::string flags = flags_of(facts);
  if (facts.error) flags += ": " + *facts.error;
  if (!content.changes.empty() && !content.changes[i].flags_b.empty()) {
    flags += (flags.empty() ? "B: " : "; B: ") + content.changes[i].flags_b;
  }
  page << "<tr data-b=" << std::to_string(leaf.byte_size()) << (flags.empty() ? "" : " data-f=1")
       << (named.tied ? " data-t=1" : "");
  if (!content.changes.empty()) {
    const Change& change = content.changes[i];
    double level = change.kind.empty() ? 0 : 1;
    if (change.numbers) {
      const double largest = s.finite() != 0 ? std::max(std::abs(s.min), std::abs(s.max)) : 0;
      const double ratio = change.numbers->max_abs == 0 ? 0 : change.numbers->max_abs / largest;
      level = difference_level(ratio, std::max(rounding_step(leaf.dtype()), rounding_step(change.dtype_b)));
      if (std::isfinite(ratio)) page << " data-d=" << short_number(ratio);
    }
    page << " data-l=" << short_number(level);
  }
  page << "><td class=n>" << html(named.name) << (named.tied ? " <span class=dim>(tied)</span>" : "")
       << "</td><td class=m>" << name(leaf.dtype()) << "</td><td class=m data-v=" << std::to_string(leaf.size()) << ">"
       << to_string(leaf.shape()) << "</td><td class=r>" << grouped(leaf.byte_size()) << "</td>";
  if (s.finite() != 0) {
    page << "<td>" << (histogram && facts.histogram ? histogram_svg(*facts.histogram) : "") << "</td>";
    for (const double d : {s.min, s.max, s.mean, s.deviation(), s.norm()})
      page << "<td class=r>" << short_number(d) << "</td>";
    page << "<td class=r>" << short_number(100 * static_cast<double>(s.zeros) / static_cast<double>(s.count))
         << "%</td>";
  } else {
    page << "<td></td><td></td><td></td><td></td><td></td><td></td><td></td>";
  }
  const auto place = leaf.location();
  const char* const state = facts.error              ? ""
                            : place && place->hashed ? "<span class=ok>checked</span>"
                                                     : "<span class=dim>none</span>";
  page << "<td>" << state << "</td><td class=flag>" << html(flags) << "</td></tr>\n";
}

void write_tensors(Page& page, const Model& a, const PageContent& content, bool two) {
  page << "<section id=map><h2>Bytes by module</h2>\n<div id=path></div><div id=treemap></div>";
  if (two) {
    page << "<ul class=legend id=scale><li><i class=same></i>equal, or within one rounding step of the narrower "
            "dtype</li>"
            "<li>one step <i class=ramp></i>as large as the tensor's largest number (logarithmic)</li></ul>";
  }
  page << "<p id=hover></p></section>\n<h2>Tensors</h2>\n"
          "<div class=tools><input id=search type=search placeholder=\"Search names\" aria-label=\"Search names\">"
          "<label><input id=only type=checkbox> only flagged</label><span id=count class=dim></span></div>\n"
          "<div class=scroll><table id=tensors"
       << (two ? " data-two=1" : "")
       << ">\n<thead><tr><th>name</th><th>dtype</th><th>shape</th><th class=r>bytes</th><th>histogram</th><th "
          "class=r>min</th>"
          "<th class=r>max</th><th class=r>mean</th><th class=r>std</th><th class=r>norm</th><th "
          "class=r>zeros</th><th>checksum</th>"
          "<th>flags</th></tr></thead>\n<tbody>\n";
  std::uint64_t min_bytes = 0;  // tensors of fewer bytes have no histogram
  if (content.names.size() > max_histograms) {
    std::vector<std::uint64_t> sizes;
    for (const Named& named : content.names) sizes.push_back(a.snapshot.leaf(named.leaf).byte_size());
    std::nth_element(sizes.begin(), sizes.begin() + max_histograms, sizes.end(), std::greater<>());
    min_bytes = sizes[max_histograms] + 1;
  }
  for (std::size_t i = 0; i < content.names.size(); ++i) {
    write_row(page, a, content, i, a.snapshot.leaf(content.names[i].leaf).byte_size() >= min_bytes);
  }
  page << "</tbody>\n</table></div>\n<p><button id=more type=button hidden>Show more</button></p>\n";
  if (min_bytes != 0)
    page << "<p class=dim>Tensors of fewer than " << grouped(min_bytes) << " bytes have no histogram.</p>\n";
  page << "<footer>Made by stele. Statistics are those of the finite numbers; a histogram goes from min to "
          "max.</footer>\n<script>\n"
       << report_js << "</script>\n</body>\n</html>\n";
}

}  // namespace

Result<int> report(const ReportPage& given, Terminal& terminal) {
  ReportPage options = given;
  if (options.out.empty() && detail::has_extension(options.b, ".html")) options.out = std::exchange(options.b, {});
  if (options.out.empty()) options.out = "report.html";
  STELE_TRY_ASSIGN(const Model a, open_model(options.a, options.opening, terminal.common().threads));
  std::optional<Model> b;
  if (!options.b.empty()) {
    STELE_TRY_ASSIGN(b, open_model(options.b, {}, terminal.common().threads));
  }
  STELE_TRY(check_output(options.out));  // before the tensors are read
  PageContent content;
  STELE_TRY_ASSIGN(content.names, names_of(a.snapshot));
  STELE_TRY_ASSIGN(const Snapshot numbers, with_numbers(a.snapshot));
  STELE_TRY_ASSIGN(content.facts, facts_of(numbers, Histograms::yes, terminal));
  bool damaged = any_damaged(content.facts);
  if (b) {
    STELE_TRY_ASSIGN(auto names_b, names_of(b->snapshot));
    auto names_a = content.names;
    facts::pair_unnamed(a.format->name(), names_a, b->format->name(), names_b);
    STELE_TRY_ASSIGN(const Snapshot numbers_b, with_numbers(b->snapshot));
    STELE_TRY_ASSIGN(const auto facts_b, facts_of(numbers_b, Histograms::no, terminal));
    damaged = damaged || any_damaged(facts_b);
    STELE_TRY_ASSIGN(content.changes,
                     changes_of(a.snapshot, names_a, b->snapshot, names_b, facts_b, content.only_b, terminal));
    if (!options.tensors) {
      content.others = facts::other_differences(a.snapshot, names_a, b->snapshot, names_b, {}, 0, 0);
      STELE_TRY_ASSIGN(const auto more, checkpoint_differences(a, options.opening, *b, {}, 0, 0, terminal));
      content.others.insert(content.others.end(), more.begin(), more.end());
    }
  }
  content.flagged = flagged(content);
  STELE_TRY_ASSIGN(const auto sink, open_output(options.out));
  Page page(*sink);
  write_head(page, options, a, b ? &*b : nullptr);
  write_summary(page, a, content, b.has_value());
  if (b) write_differences(page, a, content);
  write_tensors(page, a, content, b.has_value());
  STELE_TRY(page.finish());
  STELE_TRY(sink->commit());
  if (terminal.json()) {
    Document document(terminal, "stele.report/1");
    document.member("file", Value(options.a));
    document.member("out", Value(options.out));
    document.member("tensors", number(static_cast<std::uint64_t>(content.names.size())));
    document.member("flagged", number(static_cast<std::uint64_t>(content.flagged)));
  } else {
    terminal.note("wrote " + safe(options.out) + ", " + counted(content.flagged, "flagged tensor"));
  }
  return damaged ? exit_no : exit_ok;
}

}  // namespace stele::command
