// Reports and messages stay small, whatever the names of a file are.
#include <doctest/doctest.h>
#include <stele/report.hpp>
#include <stele/result.hpp>
#include <stele/snapshot.hpp>

#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "base/shortened.hpp"

namespace report_bounds_test {

namespace {
using namespace stele;
}  // namespace

TEST_CASE("report: rows and bytes are bounded, counts are exact") {
  Report report;
  for (std::size_t i = 0; i < Report::max_rows + 10; ++i) report.add(Report::What::applied, "a");
  CHECK(report.size() == Report::max_rows);
  CHECK(report.count(Report::What::applied) == Report::max_rows + 10);
  CHECK(report.to_string() == "and 10 more\n1000010 applied\n");

  Report text;
  const std::string key(1'000'000, 'k');
  for (std::size_t i = 0; i < 20'000; ++i) text.add(Report::What::unused, key + std::to_string(i), "detail");
  CHECK(text.count(Report::What::unused) == 20'000);
  CHECK(text.size() < 20'000);
  CHECK(text.size() > 10'000);
  CHECK(text[0].path.size() <= Report::max_part_bytes);
  CHECK(text[0].path.starts_with("kkk"));
  CHECK(text[0].path.ends_with("kkk0"));
  CHECK(text[0].path.find("\xe2\x80\xa6") != std::string::npos);
  CHECK(text[7].detail == "detail");
  CHECK(text.to_string().size() < 2 * Report::max_text_bytes);
}

TEST_CASE("report: long texts are cut between characters") {
  const auto valid = [](std::string_view text) {
    for (std::size_t i = 0; i < text.size();) {
      const auto c = static_cast<unsigned char>(text[i]);
      const std::size_t n = c < 0x80 ? 1 : c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 0;
      if (n == 0 || i + n > text.size()) return false;
      for (std::size_t k = 1; k < n; ++k) {
        if ((static_cast<unsigned char>(text[i + k]) & 0xc0U) != 0x80U) return false;
      }
      i += n;
    }
    return true;
  };
  for (std::size_t lead = 0; lead < 8; ++lead) {
    std::string text(lead, 'x');
    while (text.size() < 3000) text += "\xf0\x9f\x9a\x80";
    const std::string cut = detail::shortened(text, 1024);
    CHECK(cut.size() <= 1024);
    CHECK(cut.size() > 1000);
    CHECK(valid(cut));
  }
  CHECK(detail::shortened("short", 1024) == "short");
  const Error error = Error(Errc::missing, "gone").path(std::string(1'000'000, 'p')).found(std::string(50'000, 'f'));
  CHECK(error.path().size() == 1'000'000);
  CHECK(error.to_string().size() < 3000);
}

TEST_CASE("report: clear removes all rows and counts") {
  stele::Report report;
  report.add(stele::Report::What::missing, "a", "b");
  const stele::Report copy = report;
  report.clear();
  CHECK(report.empty());
  CHECK(report.count(stele::Report::What::missing) == 0);
  CHECK(report.to_string() == stele::Report().to_string());
  report.add(stele::Report::What::missing, "a", "b");
  CHECK(report.to_string() == copy.to_string());
}

TEST_CASE("messages: characters that control a terminal are escaped, in rows, errors and summaries") {
  const std::string name = "a\x1b[31m\nb\x7f\xe2\x80\xae\xff \xc3\xa4";
  const std::string shown = "a\\x1b[31m\\x0ab\\x7f\\u202e\\xff \xc3\xa4";
  stele::Report report;
  report.add(stele::Report::What::lost, name, name);
  CHECK(report[0].path == name);
  CHECK(report.to_string() == "lost " + shown + ": " + shown + "\n1 lost\n");
  const stele::Error error =
      stele::Error(stele::Errc::missing, "m").path(name).expected(name).found(name).file(name).hint(name);
  CHECK(error.path() == name);
  CHECK(error.to_string() ==
        "missing: " + shown + ": m: expected " + shown + ", found " + shown + " (" + shown + "); " + shown);
  stele::SnapshotBuilder builder;
  builder.set_flat();
  builder.tensor(builder.intern(name), stele::DType::f32, {}, 0, {});
  CHECK(stele::summary(builder.finish()).starts_with(shown + "  f32"));
}

TEST_CASE("shape: from any list of integers") {
  const std::vector<int> small{2, 3};
  CHECK(stele::Shape(small.begin(), small.end()) == stele::Shape{2, 3});
  const std::list<std::int64_t> many(12, 4);
  const stele::Shape shape(many.begin(), many.end());
  CHECK(shape.rank() == 12);
  CHECK(shape[11] == 4);
  const stele::Shape again(shape.begin(), shape.end());
  CHECK(again == shape);
  stele::Shape part = shape;
  part.assign(part.span().subspan(1));
  CHECK(part.rank() == 11);
}

}  // namespace report_bounds_test
