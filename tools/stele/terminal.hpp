// The output of a command: text for a terminal or a pipe, JSON documents, tables, progress.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <stele/options.hpp>
#include <stele/report.hpp>
#include <stele/result.hpp>
#include <stele/value.hpp>

#include "base/threads.hpp"
#include "console.hpp"
#include "facts/describe.hpp"

namespace stele::command {

/// Exit statuses, documented in docs/guide/command.md.
enum Exit : int {
  exit_ok = 0,
  exit_no = 1,      // the answer is no: files differ, a file is damaged, tensors were lost
  exit_failed = 2,  // wrong arguments, or an error that ended the command
  exit_interrupted = 130,
};

enum class Style : std::uint8_t { plain, heading, dim, good, warning, bad };

/// Options of every command.
struct Common {
  bool json = false;
  bool quiet = false;
  std::string colour = "auto";  // auto, always, never
  unsigned threads = 0;
  std::vector<std::string> plugins{};
  std::string* output = nullptr;  // receives the text for standard output; null: the text is printed
};

/// Returns text that a terminal shows and does not obey: control characters, bidirectional overrides and bytes that are
/// not UTF-8 become `\x1b`, `\u202e`. A backslash stays one, because paths contain them.
std::string safe(std::string_view text);
/// Returns the number of columns that safe text takes: one for each code point.
std::size_t columns(std::string_view text) noexcept;
/// Returns a message of the library with the options of the command instead of the library's; while the Python module
/// runs the command, spelled_for_python().
std::string spelled(std::string_view text);
/// Returns a message of the library with the arguments of the Python module, where these have other words.
std::string spelled_for_python(std::string_view text);
void set_for_python(bool on) noexcept;
/// Returns an error as one line of safe() text, with the options of the command instead of the library's.
std::string error_text(const Error& error);
/// Returns "did you mean X?", or "" if no candidate is similar to `word`.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);
/// Formats a number of bytes: "17 B", "1.2 MiB".
std::string human_bytes(std::uint64_t bytes);
/// Formats with groups of three digits: "1,234,567".
std::string grouped(std::uint64_t number);
/// Formats a count with a noun: "1 tensor", "2 tensors".
std::string counted(std::uint64_t number, std::string_view noun);
/// Formats a number with up to six significant digits.
std::string short_number(double number);

class Terminal {
 public:
  explicit Terminal(const Common& common);
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  ~Terminal();

  const Common& common() const noexcept { return common_; }
  bool json() const noexcept { return common_.json; }
  /// Prints to standard output. `text` is safe(). If the reader of the pipe is gone, ends the program with exit_ok.
  void print(std::string_view text);
  /// Prints a line to standard error, unless quiet.
  void note(std::string_view text);
  /// Returns `text` in a style, if standard output is a terminal that shows colours.
  std::string paint(Style style, std::string_view text) const;
  void flush();
  bool progress_bars() const noexcept { return bars_; }

 private:
  friend class Document;
  Common common_;
  bool colour_ = false;
  bool bars_ = false;
  bool document_ = false;  // begun; the destructor ends it
  std::string buffer_;
};

/// Columns of text, aligned.
class Table {
 public:
  struct Column {
    std::string title;
    bool right = false;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  /// Adds a row of safe() texts, one for each column.
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  bool empty() const noexcept { return rows_.empty(); }
  /// Prints the columns that have any text.
  void print(Terminal& terminal) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// Writes the members of the JSON object on standard output, one by one, so that long lists are not kept in memory. A
/// command prints one object; an error adds a member to an open object.
class Document final : public facts::Members {
 public:
  /// `schema` is the first member of a new object, which its first member begins: "stele.inspect/1".
  Document(Terminal& terminal, std::string_view schema) : terminal_(terminal), schema_(schema) {}
  Document(const Document&) = delete;
  Document& operator=(const Document&) = delete;
  ~Document() override;
  void member(std::string_view key, const Value& value) override;
  void begin_list(std::string_view key) override;
  void item(const Value& value) override;
  void end_list() override { end(); }
  /// Begins an object in a list. Its members follow.
  void begin_object();
  void end_object() { end(); }

 private:
  void next(std::string_view text);
  void begin(char close);
  void end();

  Terminal& terminal_;
  std::string schema_;
  std::string open_;  // the closing brackets of the open lists and objects
  bool first_ = false;
};

using facts::number;
/// Returns the parts of an error as a map.
Value to_value(const Error& error);
/// Returns the rows of a report as a list of maps.
Value to_value(const Report& report);
/// Prints the rows of a report as notes.
void print_rows(Terminal& terminal, const Report& report);

/// A bar on standard error, with rate and the remaining time, after the first second; only on a terminal.
class Progress {
 public:
  Progress(Terminal& terminal, std::string label, std::uint64_t total = 0);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();
  /// Returns false if the user has interrupted the command. Safe to call from several threads.
  bool add(std::uint64_t bytes);
  /// Returns a callback for saves and loads; this object must outlive it.
  ProgressCallback callback();
  /// Returns add() as a function; this object must outlive it.
  facts::Advance advance() {
    return [this](std::uint64_t bytes) { return add(bytes); };
  }
  /// Returns the error of an interrupted command.
  static Error cancelled();

 private:
  void draw();
  using Clock = std::chrono::steady_clock;
  bool shown_;
  std::string label_;
  detail::Mutex mutex_;
  std::uint64_t done_ = 0;
  std::uint64_t total_;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point drawn_ = begin_;
  bool drawn_once_ = false;
};

}  // namespace stele::command
