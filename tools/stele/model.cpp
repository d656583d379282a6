#include "model.hpp"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <iostream>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include <stele/bundle.hpp>
#include <stele/checkpoints/steps_format.hpp>
#include <stele/composite.hpp>
#include <stele/expansion.hpp>
#include <stele/pattern.hpp>
#include <stele/quantize.hpp>
#include <stele/recorders/any.hpp>
#include <stele/recorders/numpy.hpp>
#ifdef STELE_COMMAND_PADDLE
#include <stele/recorders/paddle.hpp>
#endif
#include <stele/recorders/pytorch.hpp>
#ifdef STELE_COMMAND_REMOTE
#include <stele/remote.hpp>  // URLs are paths
#endif
#include <stele/transform.hpp>

#include "base/dtypes.hpp"
#include "base/extension.hpp"
#include "base/of_machine.hpp"
#include "base/similar.hpp"
#include "base/threads.hpp"
#include "console.hpp"
#include "io/text.hpp"
#include "io/urls.hpp"
#include "passes/composites/composite.hpp"

namespace stele::command {

namespace {

/// A file of names is text; a larger one is not read as text.
constexpr std::uint64_t max_names_bytes = std::uint64_t{64} << 20;
/// Maximum size of a model on standard input (64 GiB): it is kept in memory.
constexpr std::uint64_t max_stream_bytes = std::uint64_t{64} << 30;

/// A model that the command reads: its path or URL, and other files and folders that its tensors or names are in.
struct Read {
  std::string path;
  std::set<std::string> others;
};

/// The models that are open. A command opens and writes them on one thread.
std::vector<Read>& all_read() {
  static std::vector<Read> all;
  return all;
}

/// Returns the run of a step's folder; an empty string for the folder of a run.
std::string run_of_step(std::string path) {
  const auto source = open_input(path, {});
  const auto step = source ? (*source)->bundle()->contains("manifest.json") : source.error();
  if (!step || !*step) return {};
  if (!detail::is_url(path)) {
    std::error_code failed;
    const auto run = std::filesystem::canonical(path_of(path), failed).parent_path().generic_u8string();
    return failed ? std::string() : std::string(run.begin(), run.end());
  }
  while (path.ends_with('/')) path.pop_back();
  return path.substr(0, path.rfind('/'));
}

void remember(Read& read, const Format* format, const Snapshot& snapshot) {
  if (format != nullptr && format->name() == "steps") {  // the step may be a delta of other steps
    if (std::string run = run_of_step(read.path); !run.empty()) read.others.insert(std::move(run));
  }
  const Source* last = nullptr;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const auto place = snapshot.leaf(i).location();
    if (!place || place->source == last) continue;
    last = place->source;
    if (last->name() != read.path) read.others.insert(last->name());
  }
}

/// Returns true if two paths lead to one file, or two URLs to one object.
bool same_file(const std::string& a, const std::string& b) {
  const bool url = detail::is_url(a);
  if (url != detail::is_url(b)) return false;
  if (url) return detail::url_identity(a) == detail::url_identity(b);
  std::error_code none;
  return std::filesystem::equivalent(path_of(a), path_of(b), none);
}

/// Returns true if a path is in a folder, or in folders of it.
bool is_below(const std::string& path, const std::string& folder) {
  const bool url = detail::is_url(path);
  if (url != detail::is_url(folder)) return false;
  if (url) return detail::url_identity(path).starts_with(detail::url_identity(folder) + "/");
  std::error_code failed;
  const auto whole = std::filesystem::canonical(path_of(path), failed);
  const auto above = path_of(folder);
  if (failed || !std::filesystem::is_directory(above, failed)) return false;
  for (auto at = whole; at.has_relative_path();) {
    at = at.parent_path();
    if (std::filesystem::equivalent(at, above, failed)) return true;
  }
  return false;
}

/// Open URLs: bytes that were read are not read again.
std::map<std::string, SourcePtr>& opened_urls() {
  static std::map<std::string, SourcePtr> all;
  return all;
}

/// The content of standard input, once it is read.
SourcePtr& standard_input() {
  static SourcePtr all;
  return all;
}

/// Returns a format of the library's list, which lasts as long as the program.
std::shared_ptr<const Format> borrowed(const Format* format) { return {std::shared_ptr<const Format>(), format}; }

Result<Layout> layout_of_file(const std::string& path) {
  STELE_TRY_ASSIGN(const SourcePtr source, open_input(path));
  const auto format = format_of_content(*source);
  if (!format && detail::is_of_machine(format.error())) return format.error();
  if (format) {
    STELE_TRY_ASSIGN(const Snapshot snapshot, open(**format, source));
    return layout_of(snapshot);
  }
  constexpr std::string_view names[] = {".txt", ".tsv", ".names"};
  if (std::any_of(std::begin(names), std::end(names), [&](auto e) { return detail::has_extension(path, e); })) {
    STELE_TRY_ASSIGN(const std::string text,
                     detail::read_text(*source, max_names_bytes, "the file of names is too long"));
    return parse_layout(text);
  }
#ifdef STELE_COMMAND_PADDLE
  STELE_TRY_ASSIGN(const auto variables, paddle_program(path));
  Layout layout;
  for (const PaddleVariable& variable : variables) layout.tensors.push_back({variable.name, variable.dtype});
  return layout;
#else
  return Error(Errc::unsupported,
               "the file of names is no text and no model, and this command was built without Paddle")
      .file(path)
      .hint("add paddle to STELE_FORMATS, or leave it empty");
#endif
}

}  // namespace

std::filesystem::path path_of(std::string_view name) { return std::u8string(name.begin(), name.end()); }

Result<PytorchOptions> pytorch_options(const Opening& opening) {
  PytorchOptions options;
  options.optimizer = opening.optimizer;
  options.ignore_checksums = opening.ignore_checksums;
  if (!opening.buffers.empty()) options.buffers = opening.buffers;
  if (!opening.parameters.empty()) {
    STELE_TRY_ASSIGN(const Layout names, layout_of_file(opening.parameters));
    for (const Layout::Tensor& tensor : names.tensors) options.parameters.push_back(tensor.path);
  }
  return options;
}

Result<std::shared_ptr<const Format>> with_void_dtypes(std::shared_ptr<const Format> format, const Opening& opening) {
  if (opening.void1.empty() && opening.void2.empty()) return format;
  NpyOptions options;
  for (const auto& [name, to] :
       {std::pair(&opening.void1, &options.void1), std::pair(&opening.void2, &options.void2)}) {
    if (name->empty()) continue;
    *to = detail::dtype_named(*name);
    if (*to == DType::none) return Error(Errc::invalid_argument, "no such dtype").found(*name);
  }
  if (format->name() == "npy") return std::shared_ptr<const Format>(std::make_shared<NpyFormat>(options));
  if (format->name() == "npz") return std::shared_ptr<const Format>(std::make_shared<NpzFormat>(options));
  return Error(Errc::invalid_argument, "only NumPy's files have elements without a type").found(format->name());
}

Result<SourcePtr> open_input(const std::string& path, const LoadOptions& options) {
  if (detail::is_url(path)) {
    SourcePtr& source = opened_urls()[path];
    if (source == nullptr) {
      STELE_TRY_ASSIGN(source, Input(path).open("", options));
    }
    return source;
  }
  if (path != "-") return Input(path).open("", options);
  if (standard_input() == nullptr) {
    STELE_TRY_ASSIGN(standard_input(), spool(std::cin, max_stream_bytes, "standard input"));
  }
  return standard_input();
}

Input input_of(const std::string& path) {
  if (path == "-") return Input(standard_input());
  const auto url = opened_urls().find(path);
  return url != opened_urls().end() && url->second != nullptr ? Input(url->second) : Input(path);
}

Result<LoadOptions> load_options(const Opening& opening, unsigned threads) {
  LoadOptions options;
  options.threads = threads;
  if (!opening.names.empty()) {
    STELE_TRY_ASSIGN(options.layout, layout_of_file(opening.names));
  }
  if (!opening.limit.empty()) {
    STELE_TRY_ASSIGN(options.limits.total_bytes, parse_size(opening.limit));
    options.limits.tensor_bytes = options.limits.total_bytes;
  }
  return options;
}

namespace {

/// Returns the error of a file without a format, which no damage explains.
Error not_a_model(Error error) {
  if (error.code() != Errc::bad_magic && error.code() != Errc::unsupported) return error;
  return Error(Errc::unsupported, not_a_model_text).file(error.file()).found(error.found()).hint(error.hint());
}

/// Returns the error of a file that does not exist, with a similar name in its folder.
Error no_file(Error error, const std::string& path) {
  if (error.code() != Errc::not_found || !error.hint().empty() || detail::is_url(path)) return error;
  const std::filesystem::path file = path_of(path);
  std::error_code failed;
  std::vector<std::string> beside;
  std::filesystem::directory_iterator at(file.has_parent_path() ? file.parent_path() : ".", failed);
  for (; !failed && at != std::filesystem::directory_iterator() && beside.size() < detail::max_compared_names;
       at.increment(failed)) {
    const std::u8string name = at->path().filename().u8string();
    beside.emplace_back(name.begin(), name.end());
  }
  const std::u8string name = file.filename().u8string();
  return std::move(error).hint(did_you_mean(std::string(name.begin(), name.end()), beside));
}

}  // namespace

Result<std::shared_ptr<const Format>> input_format(const std::string& path, const Opening& opening,
                                                   const LoadOptions& options) {
  auto opened = open_input(path, options);
  if (!opened) return no_file(std::move(opened).error(), path);
  const SourcePtr source = *std::move(opened);
  static const StepsFormat steps(stele::formats());
  const bool is_run = source->is_folder() && steps.recognises_folder(*source->bundle());
  auto found = is_run ? Result<const Format*>(&steps) : format_of_content(*source);
  if (!found) {  // a positional format is not recognized by its content
    auto named = format_of_path(path);
    const bool known = found.error().code() == Errc::unsupported || detail::is_of_machine(found.error());
    if (!named || known) return not_a_model(std::move(found).error());
    found = std::move(named);
  }
  std::shared_ptr<const Format> format = borrowed(*found);
  if (format->name() == "pytorch") {
    STELE_TRY_ASSIGN(PytorchOptions parts, pytorch_options(opening));
    format = std::make_shared<PytorchFormat>(std::move(parts));
  }
  if (!opening.tag.empty()) {
    if (format->name() != "archive") {
      return Error(Errc::invalid_argument, "only archives have tags").file(path).found(format->name());
    }
    format = archive_format(opening.tag);
  } else if (format->name() == "archive") {
    // As if chosen: losses_of_tags() has the rows of the others. A damaged archive may have no list of tags.
    const auto tags = tags_of(Input(source));
    if (tags && !tags->empty()) format = archive_format(tags->back());
  }
  STELE_TRY_ASSIGN(format, with_void_dtypes(std::move(format), opening));
  if (opening.ignore_checksums && format->name() != "pytorch") {
    return Error(Errc::invalid_argument, "only the checksums of PyTorch's files can be ignored")
        .file(path)
        .found(format->name());
  }
  return format;
}

Result<Model> open_model(const std::string& path, const Opening& opening, unsigned threads) {
  const std::size_t number = all_read().size();
  all_read().push_back({path, {}});
  for (const std::string& names : {opening.names, opening.parameters}) {
    if (!names.empty()) all_read().back().others.insert(names);
  }
  STELE_TRY_ASSIGN(const LoadOptions options, load_options(opening, threads));
  STELE_TRY_ASSIGN(std::shared_ptr<const Format> format, input_format(path, opening, options));
  STELE_TRY_ASSIGN(Snapshot snapshot, open(*format, input_of(path), options));
  remember(all_read()[number], format.get(), snapshot);
  if (opening.parts) snapshot = detail::composites::as_stored(snapshot);
  if (opening.raw) snapshot = raw_codes(snapshot);
  if (!opening.part.empty()) {
    STELE_TRY_ASSIGN(snapshot, part(snapshot, opening.part));
  }
  return Model{path, std::move(format), std::move(snapshot)};
}

std::string shown_path(const std::string& path) { return detail::is_url(path) ? path.substr(0, path.find('?')) : path; }

void watch_interrupts([[maybe_unused]] const std::function<bool()>& also) {
#ifdef STELE_COMMAND_REMOTE
  remote::Options options;
  options.cancelled = [also] { return interrupted() || (also && also()); };
  options.note = [](const std::string& note) { std::fprintf(stderr, "stele: note: %s\n", safe(note).c_str()); };
  remote::set_defaults(std::move(options));
#endif
}

void forget_models() {
  all_read().clear();
  opened_urls().clear();
}

void note_input(const std::string& path, const Format* format, const Snapshot& snapshot) {
  all_read().push_back({path, {}});
  remember(all_read().back(), format, snapshot);
}

Overlap overlap_of(const std::string& out) {
  for (const Read& read : all_read()) {
    if (same_file(read.path, out)) return Overlap::whole;
    const bool other = std::any_of(read.others.begin(), read.others.end(), [&](const std::string& file) {
      return same_file(file, out) || is_below(file, out) || is_below(out, file);
    });
    if (other || is_below(out, read.path) || is_below(read.path, out)) return Overlap::part;
  }
  return Overlap::none;
}

namespace {

Status check_is_file(const std::string& out) {
  if (out != "-") return {};
  return Error(Errc::invalid_argument, "an output cannot be standard output").hint("name a file; ./- has this name");
}

}  // namespace

Result<std::string> output_path(const Format& format, const std::string& out) {
  STELE_TRY(check_is_file(out));
  return detail::with_extension(out, format.extension());
}

Status check_output(const std::string& out) {
  STELE_TRY(check_is_file(out));
  if (overlap_of(out) == Overlap::none) return {};
  return Error(Errc::invalid_argument, "the output would replace a file that is read")
      .file(out)
      .hint("choose another name");
}

Result<bool> is_taken(const std::string& out) {
  if (!detail::is_url(out)) {
    std::error_code failed;
    const auto status = std::filesystem::symlink_status(path_of(out), failed);
    if (status.type() == std::filesystem::file_type::none) return Error(Errc::io, "cannot look up").file(out);
    return status.type() != std::filesystem::file_type::not_found;
  }
  const auto source = Input(out).open("", {});
  if (!source && source.error().code() != Errc::not_found) return source.error();
  return source.has_value();
}

Result<std::unique_ptr<Sink>> open_output(const std::string& out) {
  STELE_TRY(check_output(out));
  return file_sink(out);
}

Result<std::shared_ptr<const Format>> target_format(const std::string& name, const std::string& path) {
  if (name.empty()) {
    STELE_TRY_ASSIGN(const Format* const format, format_of_path(path));
    return borrowed(format);
  }
  if (const Format* const format = find_format(name)) return borrowed(format);
  if (name.find_first_of("/\\") == name.npos) {  // or an extension: "pt", ".pth"
    if (const auto format = format_of_path((name[0] == '.' ? "file" : "file.") + name)) return borrowed(*format);
  }
  std::string known;
  std::vector<std::string> names;
  for (const Format* format : stele::formats()) {
    names.emplace_back(format->name());
    known += (known.empty() ? "" : " ") + names.back();
  }
  return Error(Errc::unsupported, "no format has this name")
      .expected("one of " + known)
      .found(name)
      .hint(did_you_mean(name, names));
}

Result<std::optional<Checkpoint>> checkpoint_of(const Model& model, const Opening& opening, unsigned threads) {
  const CheckpointFormat* const format = model.format->checkpoints();
  // PyTorch's files have names for all of their content.
  if (format == nullptr || format->name() == "pytorch" || !opening.part.empty()) return std::optional<Checkpoint>();
  STELE_TRY_ASSIGN(const LoadOptions options, load_options(opening, threads));
  auto opened = open_checkpoint(*format, input_of(model.path), options);
  if (opened) return std::optional<Checkpoint>(std::move(*opened));
  if (opened.error().code() == Errc::not_found) return std::optional<Checkpoint>();
  return std::move(opened).error();
}

Result<std::vector<Named>> names_of(const Snapshot& snapshot, const std::vector<std::string>& patterns) {
  STELE_TRY_ASSIGN(auto names, names_of(snapshot));
  if (patterns.empty()) return names;
  std::erase_if(names, [&](const Named& named) {
    return std::none_of(patterns.begin(), patterns.end(), [&](const auto& p) { return matches(p, named.name); });
  });
  if (!names.empty()) return names;
  return with_similar(Error(Errc::not_found, "no tensor has a name that matches").path(patterns.front()), snapshot);
}

namespace {

/// Returns the beginning of a name that has as many segments as `head`, the text before a pattern's first wildcard.
std::string_view same_head(std::string_view name, std::string_view head) {
  std::size_t end = 0;
  for (auto dots = std::count(head.begin(), head.end(), '.'); dots > 0 && end != name.npos; --dots) {
    end = name.find('.', end);
    if (end != name.npos) ++end;
  }
  if (end == name.npos || head.empty() || head.ends_with('.')) return name.substr(0, end);
  return name.substr(0, name.find('.', end));
}

}  // namespace

std::string similar_pattern(const Snapshot& snapshot, std::string_view pattern) {
  const auto names = names_of(snapshot);
  if (!names) return {};
  const std::size_t first = pattern.find_first_of("*?");
  const auto reversed = [](std::string_view text) { return std::string(text.rbegin(), text.rend()); };
  std::set<std::string> unique;
  for (const auto& [name, leaf, tied] : *names) {
    if (first == pattern.npos) {
      unique.insert(name);
      continue;
    }
    if (matches(pattern, name)) return "did you mean " + name + "?";  // the command takes one name
    const std::size_t last = pattern.find_last_of("*?") + 1;
    const std::string tail(same_head(reversed(name), reversed(pattern.substr(last))));
    std::string candidate(same_head(name, pattern.substr(0, first)));
    candidate.append(pattern.substr(first, last - first)).append(reversed(tail));
    if (matches(candidate, name)) unique.insert(std::move(candidate));
    if (unique.size() == detail::max_compared_names) break;
  }
  return did_you_mean(pattern, {unique.begin(), unique.end()});
}

Error with_similar(Error error, const Snapshot& snapshot) {
  if (error.code() != Errc::not_found || !error.hint().empty()) return error;
  const std::string pattern(error.path());
  return std::move(error).hint(similar_pattern(snapshot, pattern));
}

Result<std::vector<std::string>> idle_patterns(const Snapshot& snapshot, const std::string& option,
                                               const std::vector<std::string>& patterns) {
  std::vector<std::string> notes;
  for (const std::string& pattern : patterns) {
    bool idle = true;
    for (std::uint32_t i = 0; i < snapshot.nodes().size() && idle; ++i) idle = !matches(pattern, snapshot.path(i));
    if (!idle) continue;
    const std::string similar = similar_pattern(snapshot, pattern);
    notes.push_back(option + " " + safe(pattern) + " matches nothing" + (similar.empty() ? "" : "; " + safe(similar)));
  }
  return notes;
}

Status for_each_leaf(const Snapshot& snapshot, std::size_t count, unsigned threads,
                     const std::function<Status(std::size_t, ReadContext&)>& work) {
  STELE_TRY(check_expansion(snapshot));
  snapshot.will_read();
  if (threads == 0) threads = std::max(1U, detail::processors());
  if (snapshot.in_order()) threads = 1;
  threads = static_cast<unsigned>(std::min<std::size_t>(threads, count));
  std::atomic<std::size_t> next{0};
  detail::Mutex mutex;
  std::size_t failed = count;
  Status status;
  const auto loop = [&] {
    ReadContext context;
    for (std::size_t i = next++; i < count; i = next++) {
      auto result = interrupted() ? Status(Progress::cancelled())
                                  : detail::guarded([&] { return work(i, context); });  // a thread must not throw
      if (result) continue;
      next = count;
      const detail::Lock lock(mutex);
      if (i < failed) failed = i, status = std::move(result);
    }
  };
  std::vector<detail::Thread> others;
  for (unsigned i = 1; i < threads; ++i) others.emplace_back(loop);
  loop();
  others.clear();
  return status;
}

facts::Loop loop_over(const Snapshot& snapshot, const Terminal& terminal, bool one_thread) {
  return [&snapshot, threads = one_thread ? 1 : terminal.common().threads](std::size_t count, const facts::Work& work) {
    return for_each_leaf(snapshot, count, threads, work);
  };
}

Result<std::uint64_t> parse_size(const std::string& text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, code] = std::from_chars(text.data(), end, number);
  static constexpr std::string_view letters = "kmgtp";
  std::string unit(rest, end);
  std::transform(unit.begin(), unit.end(), unit.begin(), [](unsigned char c) { return static_cast<char>(c | 32U); });
  const bool bytes = unit.empty() || unit == "b";
  const std::size_t power = bytes ? 0 : letters.find(unit[0]) + 1;  // 0: no match
  const bool decimal = unit.size() == 2 && unit[1] == 'b';
  const bool known = bytes || (power != 0 && (unit.size() == 1 || decimal || unit.substr(1) == "ib"));
  double factor = 1;
  for (std::size_t i = 0; i < power; ++i) factor *= decimal ? 1000 : 1024;
  if (code != std::errc() || !known || !(number * factor >= 1) || number * factor > 1e18) {
    return Error(Errc::invalid_argument, "not a size")
        .expected("a number and k, M, G, T or P, for example 5G")
        .found(text);
  }
  return static_cast<std::uint64_t>(number * factor);
}

}  // namespace stele::command
