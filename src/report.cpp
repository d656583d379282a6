#include "stele/report.hpp"

#include <array>

namespace stele {
inline namespace v0 {

namespace {
constexpr std::array<std::string_view, 14> names = {"applied",   "converted", "missing",   "unused",  "mismatched",
                                                    "defaulted", "tied",      "copied",    "lost",    "overflowed",
                                                    "suggested", "quantized", "unchecked", "constant"};
}  // namespace

std::string_view name(Report::What what) noexcept { return names[static_cast<std::size_t>(what)]; }

void Report::add(What what, std::string_view path, std::string_view detail) {
  rows_.push_back({static_cast<std::uint32_t>(text_.size()), static_cast<std::uint32_t>(path.size()),
                   static_cast<std::uint32_t>(detail.size()), what});
  text_ += path;
  text_ += detail;
}

Report::Row Report::operator[](std::size_t i) const noexcept {
  const Entry& e = rows_[i];
  const std::string_view text(text_);
  return {e.what, text.substr(e.begin, e.path), text.substr(e.begin + e.path, e.detail)};
}

std::size_t Report::count(What what) const noexcept {
  std::size_t n = 0;
  for (const Entry& e : rows_) n += e.what == what ? 1 : 0;
  return n;
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
  std::array<std::size_t, names.size()> counts{};
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const Row row = (*this)[i];
    ++counts[static_cast<std::size_t>(row.what)];
    if (row.what == What::applied) continue;
    out += std::string(name(row.what)) + " " + std::string(row.path);
    if (!row.detail.empty()) out += ": " + std::string(row.detail);
    out += '\n';
  }
  const std::size_t before = out.size();
  for (std::size_t w = 0; w < counts.size(); ++w) {
    if (counts[w] == 0) continue;
    if (out.size() != before) out += ", ";
    out += std::to_string(counts[w]) + " " + std::string(names[w]);
  }
  return out + "\n";
}

}  // namespace v0
}  // namespace stele
