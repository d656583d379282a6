#include "model.hpp"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <mutex>
#include <thread>
#include <utility>

#include <stele/recorders/any.hpp>
#include <stele/recorders/archive.hpp>
#include <stele/recorders/paddle.hpp>
#include <stele/transform.hpp>

namespace stele::command {

namespace {

/// A file of names is text; a larger one is not read as text.
constexpr std::uint64_t max_names_bytes = std::uint64_t{64} << 20;

/// Returns a format of the library's list, which lasts as long as the program.
std::shared_ptr<const Format> borrowed(const Format* format) { return {std::shared_ptr<const Format>(), format}; }

Result<Layout> layout_of_file(const std::string& path) {
  const LoadOptions options;
  STELE_TRY_ASSIGN(const SourcePtr source, Input(path).open("", options));
  if (const auto format = format_of_content(*source)) {
    STELE_TRY_ASSIGN(const Snapshot snapshot, open(**format, source));
    return layout_of(snapshot);
  }
  if (path.ends_with(".txt") || path.ends_with(".tsv") || path.ends_with(".names")) {
    if (source->size() > max_names_bytes) return Error(Errc::limit, "the file of names is too long").file(path);
    std::string text(static_cast<std::size_t>(source->size()), '\0');
    STELE_TRY(source->read_at(0, std::as_writable_bytes(std::span(text))));
    return parse_layout(text);
  }
  STELE_TRY_ASSIGN(const auto variables, paddle_program(path));
  Layout layout;
  for (const PaddleVariable& variable : variables) layout.tensors.push_back({variable.name, variable.dtype});
  return layout;
}

}  // namespace

Result<LoadOptions> load_options(const Opening& opening, unsigned threads) {
  LoadOptions options;
  options.threads = threads;
  if (!opening.names.empty()) {
    STELE_TRY_ASSIGN(options.layout, layout_of_file(opening.names));
  }
  return options;
}

Result<Model> open_model(const std::string& path, const Opening& opening, unsigned threads) {
  STELE_TRY_ASSIGN(const LoadOptions options, load_options(opening, threads));
  STELE_TRY_ASSIGN(const SourcePtr source, Input(path).open("", options));
  auto found = format_of_content(*source);
  if (!found) {  // a positional format is not recognized by its content
    auto named = format_of_path(path);
    if (!named) return std::move(found).error();
    found = std::move(named);
  }
  std::shared_ptr<const Format> format = borrowed(*found);
  if (!opening.tag.empty()) {
    if (format->name() != "archive") {
      return Error(Errc::invalid_argument, "only archives have tags").file(path).found(format->name());
    }
    format = std::make_shared<ArchiveFormat>(ArchiveOptions{.tag = opening.tag});
  }
  STELE_TRY_ASSIGN(Snapshot snapshot, open(*format, path, options));
  if (!opening.part.empty()) {
    STELE_TRY_ASSIGN(snapshot, part(snapshot, opening.part));
  }
  return Model{path, std::move(format), std::move(snapshot)};
}

Result<std::shared_ptr<const Format>> target_format(const std::string& name, const std::string& path) {
  if (name.empty()) {
    STELE_TRY_ASSIGN(const Format* const format, format_of_path(path));
    return borrowed(format);
  }
  if (const Format* const format = find_format(name)) return borrowed(format);
  std::string known;
  for (const Format* format : formats()) known += (known.empty() ? "" : " ") + std::string(format->name());
  return Error(Errc::unsupported, "no format has this name").expected("one of " + known).found(name);
}

const CheckpointFormat* as_checkpoints(const Format& format) { return dynamic_cast<const CheckpointFormat*>(&format); }

Result<std::vector<Named>> names_of(const Snapshot& snapshot) {
  STELE_TRY_ASSIGN(const Snapshot flat, flatten(snapshot));
  const auto nodes = flat.nodes();
  std::vector<Named> names;
  names.reserve(flat.leaf_count());
  for (std::uint32_t i = 0; i < nodes.size(); ++i) {
    const Node& node = nodes[i];
    if (node.kind == NodeKind::tensor) names.push_back({flat.path(i), node.index, false});
    if (node.kind == NodeKind::alias && nodes[node.index].kind == NodeKind::tensor) {
      names.push_back({flat.path(i), nodes[node.index].index, true});
    }
  }
  return names;
}

Result<std::vector<Named>> names_of(const Snapshot& snapshot, const std::vector<std::string>& patterns) {
  STELE_TRY_ASSIGN(auto names, names_of(snapshot));
  if (patterns.empty()) return names;
  std::erase_if(names, [&](const Named& named) {
    return std::none_of(patterns.begin(), patterns.end(), [&](const auto& p) { return matches(p, named.name); });
  });
  if (names.empty()) return Error(Errc::not_found, "no tensor has a name that matches").expected(patterns.front());
  return names;
}

Status for_each_leaf(const Snapshot& snapshot, std::size_t count, unsigned threads,
                     const std::function<Status(std::size_t, ReadContext&)>& work) {
  if (threads == 0) threads = std::max(1U, std::thread::hardware_concurrency());
  if (snapshot.in_order()) threads = 1;
  threads = static_cast<unsigned>(std::min<std::size_t>(threads, count));
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::size_t failed = count;
  Status status;
  const auto loop = [&] {
    ReadContext context;
    for (std::size_t i = next++; i < count; i = next++) {
      auto result = interrupted() ? Status(Progress::cancelled()) : work(i, context);
      if (result) continue;
      next = count;
      const std::lock_guard lock(mutex);
      if (i < failed) failed = i, status = std::move(result);
    }
  };
  std::vector<std::jthread> others;
  for (unsigned i = 1; i < threads; ++i) others.emplace_back(loop);
  loop();
  others.clear();
  return status;
}

Result<std::uint64_t> parse_size(const std::string& text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, code] = std::from_chars(text.data(), end, number);
  static constexpr std::string_view letters = "kmgtp";
  std::string unit(rest, end);
  std::transform(unit.begin(), unit.end(), unit.begin(), [](unsigned char c) { return static_cast<char>(c | 32U); });
  const std::size_t power = unit.empty() || unit == "b" ? 0 : letters.find(unit[0]) + 1;
  const bool decimal = unit.size() == 2 && unit[1] == 'b';
  const bool known = unit.size() <= 1 || decimal || (unit.size() == 3 && unit.ends_with("ib"));
  double factor = 1;
  for (std::size_t i = 0; i < power; ++i) factor *= decimal ? 1000 : 1024;
  if (code != std::errc() || !known || (power == 0 && unit.size() > 1) || !(number * factor >= 1) ||
      number * factor > 1e18) {
    return Error(Errc::invalid_argument, "not a size")
        .expected("a number and k, M, G or T, for example 5G")
        .found(text);
  }
  return static_cast<std::uint64_t>(number * factor);
}

}  // namespace stele::command
