#include "stele/report.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <ostream>

#include "base/printable.hpp"
#include "base/shortened.hpp"

namespace stele::inline v0 {

namespace {
constexpr std::array<std::string_view, 16> names = {
    "applied", "converted",  "missing",   "unused",    "mismatched", "defaulted", "tied",    "copied",
    "lost",    "overflowed", "suggested", "quantized", "unchecked",  "constant",  "written", "kept"};
static_assert(Report::max_text_bytes < UINT32_MAX && Report::max_part_bytes < UINT16_MAX);
}  // namespace

std::string_view name(Report::What what) noexcept { return names[static_cast<std::size_t>(what)]; }

Report::Report() = default;
Report::Report(const Report&) = default;
Report::Report(Report&&) noexcept = default;
Report& Report::operator=(const Report&) = default;
Report& Report::operator=(Report&&) noexcept = default;
Report::~Report() = default;

void Report::add(What what, std::string_view path, std::string_view detail) {
  ++counts_[static_cast<std::size_t>(what)];
  if (rows_.size() == max_rows) return;
  const std::string short_path = path.size() > max_part_bytes ? detail::shortened(path, max_part_bytes) : std::string();
  const std::string short_detail =
      detail.size() > max_part_bytes ? detail::shortened(detail, max_part_bytes) : std::string();
  if (!short_path.empty()) path = short_path;
  if (!short_detail.empty()) detail = short_detail;
  if (path.size() + detail.size() > max_text_bytes - text_.size()) return;
  rows_.push_back({static_cast<std::uint32_t>(text_.size()), static_cast<std::uint16_t>(path.size()),
                   static_cast<std::uint16_t>(detail.size()), what});
  text_ += path;
  text_ += detail;
}

void Report::clear() noexcept {
  rows_.clear();
  text_.clear();
  std::fill(std::begin(counts_), std::end(counts_), std::size_t{0});
}

Report::Row Report::operator[](std::size_t i) const noexcept {
  const Entry& e = rows_[i];
  const std::string_view text(text_);
  return {e.what, text.substr(e.begin, e.path), text.substr(std::size_t{e.begin} + e.path, e.detail)};
}

std::vector<std::string> Report::paths(What what) const {
  std::vector<std::string> all;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].what == what) all.emplace_back((*this)[i].path);
  }
  return all;
}

std::string Report::to_string() const {
  std::string out;
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const Row row = (*this)[i];
    if (row.what == What::applied) continue;
    out += std::string(name(row.what)) + " " + detail::printable(row.path);
    if (!row.detail.empty()) out += ": " + detail::printable(row.detail);
    out += '\n';
  }
  std::size_t all = 0;
  for (const std::size_t n : counts_) all += n;
  if (all != rows_.size()) out += "and " + std::to_string(all - rows_.size()) + " more\n";
  const std::size_t before = out.size();
  for (std::size_t w = 0; w < names.size(); ++w) {
    if (counts_[w] == 0) continue;
    if (out.size() != before) out += ", ";
    out += std::to_string(counts_[w]) + " " + std::string(names[w]);
  }
  return out + "\n";
}

std::ostream& operator<<(std::ostream& to, const Report& report) { return to << report.to_string(); }

}  // namespace stele::inline v0
