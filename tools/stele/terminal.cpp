#include "terminal.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/hex.hpp"
#include "base/printable.hpp"
#include "base/similar.hpp"
#include "base/threads.hpp"

namespace stele::command {

namespace {

constexpr std::size_t buffer_bytes = std::size_t{64} << 10;

bool is_set(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

std::string format(const char* pattern, double number) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), pattern, number);  // NOLINT(cppcoreguidelines-pro-type-vararg)
  return text.data();
}

/// Words of the library for C++ programs, and what the command and the Python module say instead; null: the same.
struct Wording {
  std::string_view library, command, python{};
};
constexpr std::string_view same{};
constexpr Wording wordings[] = {
    {"save at a precision with a Float (FullPrecision), which makes floats of it, or set SaveOptions::allow_loss",
     "pass --precision f32, which makes floats of it, or --allow-loss",
     "set precision='f32', which makes floats of it, or allow_loss"},
    {"save with stele::mpi, or set SaveOptions::allow_loss", "pass --allow-loss", "set allow_loss"},
    {"or set SaveOptions::allow_loss", "or pass --allow-loss"},
    {"set SaveOptions::allow_loss", "pass --allow-loss"},
    {"call stele::raw_codes", "pass --raw", "open the file with raw=True"},
    {"set SaveOptions::format", "pass --to FORMAT", "set format"},
    {"set LoadOptions::part to", "pass --part"},
    {"set LoadOptions::layout, or load into a type", "pass --names FILE", "set names"},
    {"set LoadOptions::layout, or load into an existing module", "pass --names FILE", "set names"},
    {"set LoadOptions::dequantize", same, "use stele.transforms.dequantize"},
    {"set convert.allow_overflow in the options", "pass --allow-overflow", "set allow_overflow"},
    {"ConvertRules::allow_overflow", "--allow-overflow"},
    {"set PytorchOptions::parameters", "pass --parameters"},
    {"set PytorchOptions::part", "pass --part PATH"},
    {"set PytorchOptions::ignore_checksums", "pass --ignore-checksums"},
    {"raise LoadOptions::limits.tensor_bytes and total_bytes", "pass --limit SIZE", "set limit"},
    {"raise LoadOptions::limits.total_bytes", "pass --limit SIZE", "set limit"},
    {"the tensors exceed LoadOptions::limits", "the tensors exceed the limit", "the tensors exceed the limit"},
    {"with ImportOptions::shapes", "with --shape NAME=1,3,?", "with shapes={name: (1, 3, None)}"},
    {"with ImportOptions::mappings", "with stele import --mappings FILE", "with mappings"},
    {"set ImportOptions::signature or ImportOptions::outputs", "pass --signature or --output to stele import",
     "set signature or outputs of stele.import_tensorflow"},
    {"set ImportOptions::outputs", "pass --output NAME to stele import", "set outputs"},
    {"import_tensorflow() of stele/import.hpp reads", "stele import reads", "stele.import_tensorflow() reads"},
    {"a key of PytorchOptions", "a key of the checkpoint's parts"},
    {"PytorchOptions::buffers", "--buffers"},
    {"PytorchOptions::optimizer", "--optimizer"},
    {"PytorchOptions::parameters", "--parameters"},
    {"PytorchOptions::part", "--part"},
    {"see stele::formats()", "see stele formats"},
    {"set NpyOptions::void1 to their dtype, for example to DType::f8_e4m3fn", "pass --void1 f8_e4m3fn, or their dtype",
     "set void1='f8_e4m3fn', or their dtype"},
    {"set NpyOptions::void2 to their dtype, for example to DType::bf16", "pass --void2 bf16", "set void2='bf16'"},
    {"name the layer in LoraOptions::conv1d or LoraOptions::linear", "pass --conv1d LAYER or --linear LAYER",
     "name the layer in conv1d or linear"},
    {"join them with stele::merge", "join them with stele merge"},
    {"save to another path, or set FileSinkOptions::allow_nonatomic", "choose another name", "choose another name"},
    {"save to another path, set FileSinkOptions::allow_nonatomic, or define Format::may_replace", "choose another name",
     "choose another name"},
    {"choose another name, or set FileSinkOptions::allow_nonatomic", "choose another name", "choose another name"},
    {"save elsewhere, or pass FileSinkOptions::allow_nonatomic", "choose another name", "choose another name"},
    {", or raise max_name_bytes of GgufFormat", "", ""},
    {"the program opens no URLs", same, "this build of stele opens no URLs"},
    {"link stele::remote, and include stele/remote.hpp", "build the command with libcurl"},
    {"use https, or set remote::Options::allow_http", "use https"},
    {"download the file, or raise remote::Options::whole_file", "download the file"},
    {"raise remote::Options::part_bytes", "pass --shard SIZE"},
    {"save to another folder, or set FileSinkOptions::allow_nonatomic", "save to another folder"},
    {"resume with stele::mpi::CheckpointManager, which may run as one process",
     "resume the run, and save a whole step"},
    {"read a FIFO or device as a stream, with stele::spool", "pass it as standard input: - instead of the name",
     "open the bytes that it contains"},
};

/// True while the Python module runs the command. It words the parts of errors itself.
bool for_python = false;

std::string reworded(std::string_view text, std::string_view Wording::*front) {
  std::string out(text);
  for (const Wording& w : wordings) {
    const std::string_view own = w.*front;
    if (own.data() == nullptr) continue;
    for (std::size_t at = out.find(w.library); at != out.npos; at = out.find(w.library, at + own.size())) {
      out.replace(at, w.library.size(), own);
    }
  }
  return out;
}

}  // namespace

void set_for_python(bool on) noexcept { for_python = on; }

std::string spelled(std::string_view text) { return reworded(text, for_python ? &Wording::python : &Wording::command); }

std::string spelled_for_python(std::string_view text) { return reworded(text, &Wording::python); }

namespace {

/// Returns a hint without names that only a C++ program can use; names of a file may have colons.
std::string spelled_hint(std::string_view hint) {
  if (for_python) return std::string(hint);
  std::string text = spelled(hint);
  const bool plain = text.find("::") == text.npos || text.starts_with("did you mean ");
  return plain ? text : "the library has an option for this, the command has none";
}

/// Returns a value as JSON in which all characters that control a terminal are escaped.
std::string json_text(const Value& value) {
  const std::string text = to_json(value).value_or("null");
  std::string out;
  out.reserve(text.size());
  for (std::string_view rest = text; !rest.empty();) {
    const auto [length, code] = detail::code_point(rest);
    const std::size_t taken = std::max<std::size_t>(length, 1);
    if (detail::is_obeyed(code) && length != 0) {
      out += "\\u" + detail::hex(code, 4);
    } else {
      out += rest.substr(0, taken);
    }
    rest.remove_prefix(taken);
  }
  return out;
}

}  // namespace

std::string error_text(const Error& error) {
  Error copy = error;
  return safe(spelled(std::move(copy).hint(spelled_hint(error.hint())).to_string()));
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string_view similar = detail::most_similar(word, candidates);
  return similar.empty() ? "" : "did you mean " + std::string(similar) + "?";
}

std::string safe(std::string_view text) { return detail::printable(text); }

std::size_t columns(std::string_view text) noexcept {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80; }));
}

std::string human_bytes(std::uint64_t bytes) {
  if (bytes < 1024) return std::to_string(bytes) + " B";
  static constexpr std::array<const char*, 6> units{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double number = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; number >= 1023.95 && unit + 1 < units.size(); ++unit) number /= 1024;
  return format("%.1f ", number) + units.at(unit);
}

std::string grouped(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
  return text;
}

std::string counted(std::uint64_t number, std::string_view noun) {
  return grouped(number) + ' ' + std::string(noun) + (number == 1 ? "" : "s");
}

std::string short_number(double number) { return format("%.6g", number); }

Terminal::Terminal(const Common& common) : common_(common) {
  const bool terminal = is_terminal(Stream::output) && !is_set("NO_COLOR") &&
                        std::string_view(std::getenv("TERM") != nullptr ? std::getenv("TERM") : "") != "dumb";
  colour_ = common.colour == "always" || (common.colour == "auto" && terminal);
  bars_ = !common.quiet && is_terminal(Stream::error);
}

Terminal::~Terminal() {
  if (document_) print("}\n");
  flush();
}

void Terminal::print(std::string_view text) {
  if (common_.output != nullptr) {
    *common_.output += text;
    return;
  }
  buffer_ += text;
  if (buffer_.size() >= buffer_bytes) flush();
}

void Terminal::note(std::string_view text) {
  if (common_.quiet) return;
  flush();
  std::string line(text);
  line += '\n';
  static_cast<void>(std::fwrite(line.data(), 1, line.size(), stderr));
}

void Terminal::flush() {
  const std::string text = std::exchange(buffer_, {});
  if (write_output(text.data(), text.size())) return;
  if (errno == EPIPE) std::_Exit(exit_ok);
  std::perror("stele: standard output");
  std::_Exit(exit_failed);
}

std::string Terminal::paint(Style style, std::string_view text) const {
  static constexpr std::array<const char*, 6> codes{"", "1", "2", "32", "33", "31"};
  const char* const code = codes.at(static_cast<std::size_t>(style));
  if (!colour_ || *code == '\0') return std::string(text);
  return "\x1b[" + std::string(code) + "m" + std::string(text) + "\x1b[0m";
}

void Table::print(Terminal& terminal) const {
  std::vector<std::size_t> widths(columns_.size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columns(row[i]));
  }
  std::size_t last = 0;
  for (std::size_t i = 0; i < widths.size(); ++i) {
    if (widths[i] == 0) continue;
    widths[i] = std::max(widths[i], columns(columns_[i].title));
    last = i;
  }
  const auto line = [&](const auto& cell, Style style) {
    std::string text;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      if (widths[i] == 0) continue;
      const std::string& content = cell(i);
      const std::string space(widths[i] - columns(content), ' ');
      if (columns_[i].right) text += space;
      text += terminal.paint(style, content);
      if (i == last) break;
      if (!columns_[i].right) text += space;
      text += "  ";
    }
    text.erase(text.find_last_not_of(' ') + 1);
    terminal.print(text + "\n");
  };
  line([&](std::size_t i) -> const std::string& { return columns_[i].title; }, Style::heading);
  for (const auto& row : rows_) line([&](std::size_t i) -> const std::string& { return row[i]; }, Style::plain);
}

Document::~Document() {
  while (!open_.empty()) end();
}

void Document::next(std::string_view text) {
  if (!std::exchange(terminal_.document_, true)) terminal_.print("{\"schema\": " + json_text(Value(schema_)));
  terminal_.print((first_ ? "\n" : ",\n") + std::string(open_.size() + 1, ' ') + std::string(text));
  first_ = false;
}

void Document::begin(char close) {
  open_ += close;
  first_ = true;
}

void Document::end() {
  const char close = open_.back();
  open_.pop_back();
  terminal_.print((first_ ? "" : "\n" + std::string(open_.size() + 1, ' ')) + close);
  first_ = false;
}

void Document::member(std::string_view key, const Value& value) {
  next(json_text(Value(key)) + ": " + json_text(value));
}

void Document::begin_list(std::string_view key) {
  next(json_text(Value(key)) + ": [");
  begin(']');
}

void Document::item(const Value& value) { next(json_text(value)); }

void Document::begin_object() {
  next("{");
  begin('}');
}

Value to_value(const Error& error) {
  return facts::to_value(error, [](std::string_view key, std::string_view text) {
    if (key == "hint") return for_python ? spelled_hint(text) : spelled(spelled_hint(text));
    return for_python ? std::string(text) : spelled(text);
  });
}

Value to_value(const Report& report) {
  Value::List rows;
  for (std::size_t i = 0; i < report.size(); ++i) {
    const Report::Row row = report[i];
    rows.emplace_back(
        Value::Map{{"what", Value(name(row.what))}, {"path", Value(row.path)}, {"detail", Value(row.detail)}});
  }
  return Value(std::move(rows));
}

void print_rows(Terminal& terminal, const Report& report) {
  for (std::size_t i = 0; i < report.size(); ++i) {
    const Report::Row row = report[i];
    terminal.note(std::string(name(row.what)) + ": " + (row.path.empty() ? "(file)" : safe(row.path)) +
                  (row.detail.empty() ? "" : ": ") + safe(row.detail));
  }
}

Progress::Progress(Terminal& terminal, std::string label, std::uint64_t total)
    : shown_(terminal.progress_bars()), label_(std::move(label)), total_(total) {}

Progress::~Progress() {
  if (drawn_once_) std::fputs("\r\x1b[K", stderr);
}

bool Progress::add(std::uint64_t bytes) {
  const detail::Lock lock(mutex_);
  done_ += bytes;
  draw();
  return !interrupted();
}

ProgressCallback Progress::callback() {
  return [this](const stele::Progress& progress) {
    const detail::Lock lock(mutex_);
    done_ = progress.done;
    total_ = progress.total;
    draw();
    return !interrupted();
  };
}

Error Progress::cancelled() { return facts::cancelled(); }

void Progress::draw() {
  using namespace std::chrono_literals;
  const auto now = Clock::now();
  if (!shown_ || now - begin_ < 1s || now - drawn_ < 100ms) return;
  drawn_ = now;
  drawn_once_ = true;
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  const double rate = static_cast<double>(done_) / seconds;
  std::string text = "\r\x1b[K" + label_ + " ";
  if (total_ != 0) {
    const double part = std::min(1.0, static_cast<double>(done_) / static_cast<double>(total_));
    const auto cells = static_cast<std::size_t>(part * 30);
    text += "[" + std::string(cells, '#') + std::string(30 - cells, ' ') + "] " + format("%3.0f%%", part * 100);
    if (rate > 0) text += format(" %.0f s left", std::max(0.0, static_cast<double>(total_ - done_) / rate));
  }
  text += " " + human_bytes(static_cast<std::uint64_t>(rate)) + "/s";
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace stele::command
