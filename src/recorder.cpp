// The code that all recorders share: precision, capabilities, files.
#include <algorithm>
#include <array>

#include "base/limits.hpp"
#include "base/meter.hpp"
#include "base/parallel.hpp"
#include "base/skipped.hpp"
#include "io/files.hpp"
#include "io/os/os.hpp"
#include "io/urls.hpp"
#include "leaves/needs.hpp"
#include "module/walk.hpp"
#include "passes/composites/composite.hpp"
#include "passes/delta/delta.hpp"
#include "passes/precision.hpp"
#include "passes/progress.hpp"
#include "passes/quantize.hpp"
#include "passes/recode.hpp"
#include "passes/untie.hpp"
#include "recorder.hpp"
#include "snapshot/data.hpp"
#include "snapshot/device_leaves.hpp"
#include "snapshot/fill.hpp"
#include "snapshot/flat.hpp"
#include "snapshot/items.hpp"
#include "snapshot/module_leaf.hpp"
#include "snapshot/paths.hpp"
#include "snapshot/properties.hpp"
#include "snapshot/side_files.hpp"
#include "snapshot/undecoded.hpp"
#include "snapshot/unread.hpp"
#include "snapshot/unreadable.hpp"
#include "stele/expansion.hpp"
#include "stele/format.hpp"
#include "stele/read_only.hpp"
#include "stele/schema.hpp"

namespace stele::inline v0 {

Format::~Format() = default;
bool Format::is_folder() const noexcept { return false; }
bool Format::makes_folder(std::string_view /*path*/) const noexcept { return is_folder(); }
Result<bool> Format::recognises_file(const Source& /*source*/) const { return false; }
bool Format::recognises_folder(const Bundle& /*folder*/) const { return false; }
Status Format::may_replace(const Bundle& /*folder*/) const {
  return Error(Errc::exists, "the target folder is not empty, and the format does not recognise its own folders")
      .hint("save to another path, set FileSinkOptions::allow_nonatomic, or define Format::may_replace");
}
Result<std::vector<Loss>> Format::losses(const Snapshot& /*snapshot*/, std::string_view /*file*/) const {
  return std::vector<Loss>();
}

std::optional<Schema> OpenContext::schema() const noexcept {
  return target_.type != nullptr ? std::optional(Schema(*target_.type)) : std::nullopt;
}

Result<Layout> OpenContext::layout() const {
  if (options_.layout) return *options_.layout;
  if (target_.type == nullptr) {
    return Error(Errc::needs_layout, "files of this format store no tensor names")
        .hint("set LoadOptions::layout, or load into a type");
  }
  if (target_.address == nullptr) return layout_of(Schema(*target_.type));
  STELE_TRY_ASSIGN(const Snapshot now, detail::snapshot_object(*target_.type, target_.address, {}, false));
  return layout_of(now);
}

namespace detail {
namespace {

/// Returns the reason why the format cannot store a leaf, or an empty string if it can.
std::string obstacle(const LeafView& leaf, const Capabilities& can) {
  if (const std::string_view reason = unreadable(leaf); !reason.empty()) {
    const bool kept = can.annotations || (can.keeps != nullptr && can.keeps(unreadable_key));
    if (!kept || (can.holds != nullptr && !can.holds(leaf.dtype()))) return shown_unreadable(reason);
  }
  if (can.holds != nullptr && !can.holds(leaf.dtype())) return "dtype " + std::string(name(leaf.dtype()));
  if (!element_count(leaf.shape()))
    return "the shape " + to_string(leaf.shape()) + ", whose elements cannot be counted";
  if (leaf.shape().size() > can.max_rank) return "rank " + std::to_string(leaf.shape().size());
  return {};
}

/// Returns the snapshot without the marked nodes: they become `none`, and their leaves are removed.
Snapshot without(const Snapshot& snapshot, const std::vector<bool>& dropped) {
  auto data = derived_data(snapshot);
  std::vector<std::uint32_t> moved(data->leaves.size(), no_index);
  std::uint32_t kept = 0;
  for (std::uint32_t i = 0; i < data->leaves.size(); ++i) {
    if (dropped[data->leaves[i].node]) continue;
    data->leaves[kept] = data->leaves[i];
    moved[i] = kept++;
  }
  data->leaves.resize(kept);
  for (std::uint32_t i = 0; i < data->nodes.size(); ++i) {
    Node& node = data->nodes[i];
    const bool gone = dropped[i] || (node.kind == NodeKind::alias && dropped[node.index]);
    if (gone) {
      node.kind = NodeKind::none;
      node.index = no_index;
    } else if (node.kind == NodeKind::tensor) {
      node.index = moved[node.index];
    }
  }
  return Snapshot(std::shared_ptr<const SnapshotData>(std::move(data)));
}

/// Adds rows for further names of the marked nodes.
void report_names(const Snapshot& snapshot, const std::vector<bool>& dropped, Report& report) {
  const auto nodes = snapshot.nodes();
  std::vector<std::uint32_t> marked_before(1, 0);  // for each node: the number of marked nodes before it
  for (const bool marked : dropped) marked_before.push_back(marked_before.back() + (marked ? 1 : 0));
  for (std::uint32_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].kind != NodeKind::alias) continue;
    const std::uint32_t target = nodes[i].index;
    if (marked_before[nodes[target].end] == marked_before[target]) continue;
    report.add(Report::What::lost, snapshot.path(i),
               dropped[target] ? "tied to what is lost" : "tied to an object of which a part is lost");
  }
}

bool keeps_ranges(const Capabilities& can) {
  return can.annotations || (can.keeps != nullptr && can.keeps(quantization_key));
}

/// Returns true if the format stores the integers of a quantized tensor without its range, which makes them useless.
bool loses_quantization(const LeafView& leaf, const Capabilities& can) {
  return !keeps_ranges(can) && leaf.annotations() != nullptr &&
         leaf.annotations()->contains(std::string(quantization_key));
}

/// Quantizes all floats. If the format cannot store their ranges, and this is an error, returns it first, because
/// reading the ranges takes time.
Result<Snapshot> quantize_for(const Format& format, const Snapshot& snapshot, unsigned bits,
                              const SaveOptions& options) {
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    if (options.allow_loss || keeps_ranges(format.capabilities()) || !is_plain_float(leaf.dtype())) continue;
    return Error(Errc::not_representable,
                 std::string(format.name()) + " files cannot store the ranges of quantized tensors")
        .path(leaf.path())
        .hint("save to a format that stores annotations, for example a .stele file");
  }
  Meter meter(options.progress, snapshot.byte_size());
  return quantized(snapshot, bits, with_progress(snapshot, meter));
}

bool loses_annotations(const LeafView& leaf, const Capabilities& can) {
  if (can.annotations || leaf.annotations() == nullptr) return false;
  const auto kept = [&](const auto& item) { return can.keeps != nullptr && can.keeps(item.first); };
  return !std::all_of(leaf.annotations()->begin(), leaf.annotations()->end(), kept);
}

constexpr std::string_view set_allow_loss = "set SaveOptions::allow_loss";
constexpr std::string_view set_precision =
    "save at a precision with a Float (FullPrecision), which makes floats of it, or set SaveOptions::allow_loss";

Error cannot_hold(const Format& format, std::string_view path, std::string_view what, std::size_t count,
                  std::string_view hint = set_allow_loss) {
  std::string text = std::string(format.name()) + " files cannot store this";
  if (count > 1) text += " (and " + std::to_string(count - 1) + " more)";
  return Error(Errc::not_representable, text).path(path).found(what).hint(hint);
}

/// Calls the format to remove the parts of a fitting snapshot that its writer omits.
Result<Snapshot> without_losses(const Format& format, Snapshot snapshot, std::string_view file, bool allow_loss,
                                Report& report) {
  STELE_TRY_ASSIGN(const std::vector<Loss> losses, format.losses(snapshot, file));
  for (const Loss& loss : losses) report.add(Report::What::lost, snapshot.path(loss.node), loss.what);
  if (losses.empty() || allow_loss) return snapshot;
  return cannot_hold(format, snapshot.path(losses[0].node), losses[0].what, losses.size());
}

/// Returns the snapshot with the parts of quantized weights, if the format keeps them; otherwise the weights are
/// decoded.
Result<Snapshot> with_storable_composites(const Format& format, const Snapshot& snapshot, Report& report) {
  if (!composites::has_composites(snapshot)) return snapshot;
  const Capabilities& can = format.capabilities();
  const bool has_graph = can.keeps != nullptr && can.keeps(graph_part);
  bool keeps = true;
  std::vector<std::pair<std::string, std::string>> decoded;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    const auto* const c = composites::composite_of(leaf);
    if (c == nullptr) continue;
    const auto holds = [&](const composites::Part& part) {
      return can.holds == nullptr || can.holds(c->part(part.leaf).dtype());
    };
    keeps = keeps && (c->by_names ? can.composites : has_graph) && std::all_of(c->parts.begin(), c->parts.end(), holds);
    decoded.emplace_back(leaf.path(), c->scheme + " -> f32");
  }
  if (keeps) return split_composites(snapshot);
  for (const auto& [path, text] : decoded) report.add(Report::What::converted, path, text);
  return composites::decoded(snapshot);
}

/// Adds a row for each list, map and null that is a value: the files of Flax and Burn have one kind of list and map,
/// and a reader takes those for containers of the record. A class has the kinds of its fields. Nested formats that
/// store annotations also store kinds.
void report_lost_kinds(const Snapshot& snapshot, const Capabilities& can, Report& report) {
  if (!can.nesting || !can.values || can.annotations || snapshot.data()->type != nullptr) return;
  const auto nodes = snapshot.nodes();
  for (std::uint32_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].kind != NodeKind::value) continue;
    const Value& value = snapshot.value(nodes[i]);
    const char* const kind = value.is_null()              ? "null becomes an absent entry"
                             : value.as_list() != nullptr ? "the list becomes a list of entries"
                             : value.as_map() != nullptr  ? "the map becomes a container of entries"
                                                          : nullptr;
    if (kind == nullptr) continue;
    report.add(Report::What::lost, snapshot.path(i), "its kind as a value: " + std::string(kind));
  }
}

/// Refuses a save that would take codes and scales that are not decoded for numbers. Other formats copy them, with
/// rows.
Result<Snapshot> with_codes_kept(const Format& format, const PrecisionSpec& precision, const Snapshot& snapshot,
                                 Report& report) {
  if (!has_undecoded(snapshot)) return snapshot;
  if (snapshot.metadata().contains(delta_key)) return without_undecoded(snapshot);  // the tensors of a delta are XORs
  const Capabilities& can = format.capabilities();
  const bool keeps = can.composites || (can.keeps != nullptr && can.keeps(graph_part));
  if (!keeps || !(precision == PrecisionSpec())) STELE_TRY(check_decoded(snapshot));
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    if (const std::string_view scheme = undecoded(leaf); !scheme.empty()) {
      report.add(Report::What::quantized, leaf.path(),
                 "a part of a weight of " + std::string(scheme) + ", which is not decoded: copied as it is");
    }
  }
  return without_undecoded(snapshot);
}

/// Returns the part of the snapshot that the format can store. Without `allow_loss`, returns an error with the first
/// unsupported node and the number of further unsupported nodes.
Result<Snapshot> fit(const Format& format, const Snapshot& snapshot, std::string_view file, bool allow_loss,
                     Report& report) {
  const Capabilities& can = format.capabilities();
  std::vector<bool> dropped;
  std::string first_path;
  std::string first_reason;
  std::string_view hint = set_allow_loss;
  std::size_t count = 0;
  const auto drop = [&](std::uint32_t node, std::string reason) {
    std::string path = snapshot.path(node);
    report.add(Report::What::lost, path, reason);
    if (count++ == 0) {
      first_path = std::move(path);
      first_reason = std::move(reason);
    }
    dropped.resize(snapshot.nodes().size());
    dropped[node] = true;
  };
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    const bool range_lost = loses_quantization(leaf, can);
    std::string reason = range_lost ? "a quantized tensor: the format cannot store its range" : obstacle(leaf, can);
    if (!reason.empty()) {
      if (count == 0 && (range_lost || is_block(leaf.dtype()))) hint = set_precision;
      drop(leaf.node(), std::move(reason));
      continue;
    }
    if (leaf.id() && !can.ids) report.add(Report::What::lost, leaf.path(), "its id");
    if (loses_annotations(leaf, can)) report.add(Report::What::lost, leaf.path(), "its annotations");
  }
  report_lost_kinds(snapshot, can, report);
  bool tied = false;
  const SnapshotData& data = *snapshot.data();
  const auto maybe_lost = [&](std::uint32_t i) {
    report.add(Report::What::lost, snapshot.path(i), "its presence, if that carries information");
  };
  if (!can.values && !can.nesting) {
    const std::vector<bool> empties = guessed_empties(data);
    for (std::uint32_t i = 0; i < empties.size(); ++i) {
      if (empties[i]) maybe_lost(i);
    }
  }
  if (!can.values || !can.aliases) {
    const auto nodes = snapshot.nodes();
    for (std::uint32_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i].kind == NodeKind::value && !can.values) drop(i, "a value");
      // Flat formats store these entries together with the values.
      if (!can.values && !can.nesting && needs_empty_entry(data, i)) {
        const bool guess = data.unknown_kinds.maps && nodes[i].kind == NodeKind::none && nodes[i].parent != no_index &&
                           nodes[nodes[i].parent].kind == NodeKind::map;
        guess ? maybe_lost(i) : drop(i, "a container without tensors");
      }
      if (nodes[i].kind != NodeKind::alias || can.aliases) continue;
      if (nodes[i].index < dropped.size() && dropped[nodes[i].index]) continue;
      report.add(Report::What::lost, snapshot.path(i), "its tie: written again");
      tied = true;
    }
  }
  // Formats that store ties also store versions.
  if (!can.values || !can.aliases) {
    for (std::uint32_t i = 0; i < snapshot.nodes().size(); ++i) {
      if (snapshot.version(snapshot.nodes()[i]) != 0) {
        report.add(Report::What::lost, snapshot.path(i), "its class version");
      }
    }
  }
  if (!snapshot.metadata().empty() && !can.metadata) {
    if (!allow_loss && count == 0) {
      return Error(Errc::not_representable, std::string(format.name()) + " files cannot store metadata")
          .hint(set_allow_loss);
    }
    report.add(Report::What::lost, "", "the metadata");
  }
  const std::string properties = can.properties ? std::string() : properties_beside_metadata(snapshot);
  if (!properties.empty() && !can.metadata) {
    report.add(Report::What::lost, "", "the properties " + properties);
    if (!allow_loss && count == 0) return cannot_hold(format, "", "the properties " + properties, 1);
  }
  if (count != 0) report_names(snapshot, dropped, report);
  if (count != 0 && !allow_loss) {
    return cannot_hold(format, first_path, first_reason, count, hint);
  }
  Snapshot left = count != 0 ? without(snapshot, dropped) : snapshot;
  if (tied) {
    STELE_TRY_ASSIGN(left, untied(left));
  }
  if (!properties.empty() && can.metadata) {
    STELE_TRY_ASSIGN(left, properties_to_metadata(left));
  }
  return without_losses(format, std::move(left), file, allow_loss, report);
}

/// Refuses tensors if this process has only a part of them, because the file would not store the position of the part.
Status check_places(const Format& format, const Snapshot& snapshot, bool allow_loss, Report& report) {
  std::string first, first_place;
  std::size_t count = 0;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    const auto place = place_of(leaf);
    if (!place || Shape(leaf.shape()) == place->global) continue;
    std::string what = "its place in a tensor of " + to_string(place->global.span());
    report.add(Report::What::lost, leaf.path(), what);
    if (count++ == 0) first = leaf.path(), first_place = std::move(what);
  }
  if (count == 0 || allow_loss) return {};
  return cannot_hold(format, first, first_place, count).hint("save with stele::mpi, or set SaveOptions::allow_loss");
}

/// Refuses to convert a delta: its tensors are XORs.
Status check_delta_fits(const Format& format, const PrecisionSpec& precision) {
  const Capabilities& can = format.capabilities();
  if (!can.annotations || !can.metadata || !can.aliases || !can.values) {
    return Error(Errc::not_representable, std::string(format.name()) + " files cannot store a delta of weights")
        .hint("save it as a .stele file, or apply it to its base first");
  }
  if (precision == PrecisionSpec()) return {};
  return Error(Errc::invalid_argument, "a delta of weights cannot be converted to another precision")
      .hint("apply it to its base first");
}

Error only_read(const Format& format, std::string_view file) {
  return Error(Errc::unsupported, "files of the format " + std::string(format.name()) + " are only read, not written")
      .file(file);
}

Status check_writes(const Format& format, std::string_view file) {
  return format.writes() ? Status() : only_read(format, file);
}

Error wrong_kind(bool folder, const std::string& name) {
  return Error(Errc::io, folder ? "the path is a folder, but the format has files"
                                : "the path is a file, but the format has folders")
      .file(name);
}

}  // namespace

Status check_kind(const Source& source, bool folders) {
  if (source.is_folder() == folders) return {};
  return wrong_kind(source.is_folder(), source.name());
}

Result<Snapshot> prepare(const Format& format, PrecisionSpec precision, const Object& object, std::string_view file,
                         const SaveOptions& options, Report& report) {
  if (options.format || !(options.precision == PrecisionSpec())) {
    return Error(Errc::invalid_argument, "the recorder has a format and a precision")
        .file(file)
        .hint("set SaveOptions::format and precision only for stele::save");
  }
  Snapshot snapshot;
  if (object.type == nullptr) {
    snapshot = *static_cast<const Snapshot*>(object.address);
  } else {
    const bool constants = format.capabilities().values && !format.capabilities().constants;
    STELE_TRY_ASSIGN(snapshot, snapshot_object(*object.type, object.address, {}, false, constants));
    for (const ConstantField& field : snapshot.data()->constants) {
      report.add(Report::What::constant, constant_path(*snapshot.data(), field), constant_text);
    }
  }
  if (snapshot.metadata().contains(delta_key)) STELE_TRY(check_delta_fits(format, precision));
  if (auto nothing = nothing_found(snapshot); nothing && !options.allow_loss) {
    return std::move(*nothing).hint("set SaveOptions::allow_loss");
  }
  for (const std::string& part : snapshot.data()->left_out) {
    const Capabilities& can = format.capabilities();
    if (can.keeps == nullptr || !can.keeps(part)) report.add(Report::What::lost, "", part);
  }
  if (const auto& beside = snapshot.data()->beside; beside != nullptr && !beside->names.empty()) {
    const Capabilities& can = format.capabilities();
    if (can.keeps == nullptr || !can.keeps(side_files_part)) {
      Skipped names;
      for (const std::string& name : beside->names) names.add(name);
      std::vector<std::string> rows;
      names.leave_out(rows, side_files_part);
      report.add(Report::What::lost, "", rows.front());
    }
  }
  STELE_TRY(check_expansion(snapshot));
  STELE_TRY(check_places(format, snapshot, options.allow_loss, report));
  STELE_TRY_ASSIGN(snapshot, with_codes_kept(format, precision, snapshot, report));
  STELE_TRY_ASSIGN(snapshot, read_through(snapshot, options.transfer));
  snapshot = with_metadata(with_precision(snapshot, precision, options.convert), options.metadata);
  STELE_TRY_ASSIGN(snapshot, properties_from_metadata(snapshot, {}, UINT64_MAX));
  if (precision.quantized_bits != 0) {
    STELE_TRY_ASSIGN(snapshot, quantize_for(format, snapshot, precision.quantized_bits, options));
  }
  if (!precision.block_rules.empty()) {
    STELE_TRY_ASSIGN(snapshot, with_blocks(snapshot, first_rule(precision.block_rules), &report));
  }
  snapshot = with_kept_rows(snapshot, report);
  STELE_TRY_ASSIGN(snapshot, with_storable_composites(format, snapshot, report));
  if (const auto leaves_out = format.capabilities().leaves_out; leaves_out != nullptr) {
    for (const std::string& what : leaves_out(snapshot)) report.add(Report::What::lost, "", what);
  }
  STELE_TRY_ASSIGN(snapshot, fit(format, snapshot, file, options.allow_loss, report));
  // A bool whose byte is neither 0 nor 1 could be saved, but not loaded.
  LoadOptions reading;
  reading.threads = options.threads;
  reading.executor = options.executor;
  Meter unmetered(reading.progress, 0);
  const auto checked = check_leaves(snapshot, reading, unmetered, [](const LeafView& leaf) {
    return leaf.dtype() == DType::boolean &&
           (leaf.provider().ops->in_module || leaf.provider().ops == &element_leaf_ops);
  });
  if (checked || checked.error().code() != Errc::malformed) {
    STELE_TRY(checked);
    return snapshot;
  }
  return Error(Errc::not_representable, checked.error().message())
      .path(checked.error().path())
      .expected(checked.error().expected())
      .found(checked.error().found());
}

namespace {

/// Adds a row for each tensor with numbers that became infinite, and for each quantized tensor. A dry run has not read
/// them, so this function does.
Status report_numbers(const Snapshot& snapshot, const SaveOptions& options, bool dry_run, Report& report) {
  if (dry_run) {
    LoadOptions reading;
    reading.threads = options.threads;
    reading.executor = options.executor;
    Meter unmetered(reading.progress, 0);
    STELE_TRY(check_leaves(snapshot, reading, unmetered,
                           [&](const LeafView& leaf) { return options.convert.allow_overflow || is_encoded(leaf); }));
  }
  add_quantized_rows(snapshot, report);
  if (!options.convert.allow_overflow) return {};
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    if (const std::uint64_t count = overflowed(leaf); count != 0) {
      report.add(Report::What::overflowed, leaf.path(), std::to_string(count) + " numbers");
    }
  }
  return {};
}

}  // namespace

Result<Report> save_object(const Format& format, PrecisionSpec precision, const Object& object, Sink& sink,
                           const SaveOptions& options, std::uint64_t more_bytes, const WritePrepared& write) {
  return guarded([&]() -> Result<Report> {
    STELE_TRY(check_writes(format, sink.name()));
    Report report;
    const auto failed = [&](Error error, bool committing = false) {
      sink.remove_parts(committing);
      if (error.file().empty()) error = std::move(error).file(sink.name());
      return std::move(error).report(std::make_shared<const Report>(report));
    };
    auto snapshot = prepare(format, precision, object, sink.name(), options, report);
    if (!snapshot) return failed(std::move(snapshot).error());
    if (options.dry_run) {
      STELE_TRY(report_numbers(*snapshot, options, true, report));
      return report;
    }
    if (sink.is_folder() != format.makes_folder(sink.name())) return failed(wrong_kind(sink.is_folder(), sink.name()));
    if (sink.is_folder() && sink.bundle() == nullptr) {
      return failed(Error(Errc::invalid_argument, "the folder's source has no bundle"));
    }
    Meter meter(options.progress, snapshot->byte_size() + more_bytes);
    Needs needs;
    needs.add(*snapshot);
    needs.announce();
    auto written = guarded([&] { return write(*snapshot, meter); });
    if (!written) return failed(std::move(written).error());
    if (auto r = sink.commit(); !r) return failed(std::move(r).error(), true);
    for (const std::string& part : sink.parts()) report.add(Report::What::written, part);
    STELE_TRY(report_numbers(*snapshot, options, false, report));
    return report;
  });
}

namespace {

/// The sink of a dry run, with the name of the file that a save would write.
class NoSink final : public Sink {
 public:
  explicit NoSink(std::string name) : Sink(std::move(name)) {}
  Status write(std::span<const std::span<const std::byte>> /*pieces*/) override { return {}; }
};

}  // namespace

Result<std::unique_ptr<Sink>> sink_for(const Format& format, std::string_view path, const SaveOptions& options) {
  STELE_TRY(check_writes(format, path));
  std::string full = with_extension(std::string(path), format.extension());
  if (options.dry_run) return std::unique_ptr<Sink>(std::make_unique<NoSink>(std::move(full)));
  if (is_url(full)) {
    STELE_TRY_ASSIGN(const Urls* const urls, urls_for(full));
    return urls->create(full, options.file, format.makes_folder(full));
  }
  if (!format.makes_folder(full)) return file_sink(full, options.file);
  return folder_sink(full, options.file, [&format](const Bundle& folder) { return format.may_replace(folder); });
}

Status refuse_part(const Input& from, const LoadOptions& options, const char* hint) {
  if (options.part.empty()) return {};
  return Error(Errc::invalid_argument, "this call reads the whole file, not a part")
      .path(options.part)
      .file(from.name())
      .hint(hint);
}

Result<Report> save_object(const Format& format, PrecisionSpec precision, const Object& object, const Output& to,
                           const SaveOptions& options) {
  return save_to(format, to, options, [&](Sink& sink) {
    return save_object(format, precision, object, sink, options, 0, [&](const Snapshot& prepared, Meter& meter) {
      return format.write(with_progress(prepared, meter), sink, options);
    });
  });
}

namespace {

Result<Snapshot> open_source(Reader reader, const SourcePtr& source, const LoadOptions& options, Object target) {
  if (reader.format == nullptr) {
    STELE_TRY_ASSIGN(reader.format, reader.sniff(*source));
  }
  if (!reader.format->opens(source->is_folder())) return wrong_kind(source->is_folder(), source->name());
  if (!options.part.empty()) target = {};  // the target's names differ from the names in the file
  STELE_TRY_ASSIGN(Snapshot snapshot, reader.format->open(source, OpenContext(options, target)));
  if (!reader.format->capabilities().properties) {
    STELE_TRY_ASSIGN(snapshot, properties_from_metadata(snapshot, options.limits, file_bytes(*source)));
  }
  const std::uint64_t capacity = snapshot.data()->capacity, admitted = options.limits.total_bytes / max_tied_copies + 1;
  if (options.limits.total_bytes != 0 && capacity != 0 && capacity < admitted) {
    auto data = derived_data(snapshot);
    data->capacity = admitted;
    snapshot = Snapshot(std::shared_ptr<const SnapshotData>(std::move(data)));
  }
  snapshot = with_note_of_nothing(snapshot);
  if (snapshot.metadata().contains(delta_key)) return snapshot;  // the tensors of a delta are not numbers
  STELE_TRY_ASSIGN(snapshot, composites::joined(snapshot, *source));
  return options.dequantize ? dequantize(snapshot) : snapshot;
}

/// Loads an object. A class may have the weights of quantized layers, or the parts of all.
Status load_either(const Snapshot& snapshot, const TypeInfo& type, void* object, LoadMode mode,
                   const LoadOptions& options) {
  if (!options.allow_nothing) STELE_TRY(check_found(snapshot));
  const Report before = options.report != nullptr ? *options.report : Report();
  auto loaded = load_object(snapshot, type, object, mode, options);
  if (loaded || loaded.error().partially_applied() || !composites::has_composites(snapshot)) return loaded;
  constexpr std::array structure = {Errc::missing, Errc::unused, Errc::dtype_mismatch, Errc::shape_mismatch};
  if (std::find(structure.begin(), structure.end(), loaded.error().code()) == structure.end()) return loaded;
  STELE_TRY_ASSIGN(const Snapshot parts, split_composites(snapshot));
  const Report first = options.report != nullptr ? *options.report : Report();
  if (options.report != nullptr) *options.report = before;
  if (load_object(parts, type, object, mode, options)) return {};
  if (options.report != nullptr) *options.report = first;
  return loaded;
}

}  // namespace

Result<Snapshot> open(Reader reader, const Input& from, const LoadOptions& options, Object target) {
  return guarded(from.name(), [&]() -> Result<Snapshot> {
    for (;;) {
      STELE_TRY_ASSIGN(const SourcePtr source,
                       from.open(reader.format != nullptr ? reader.format->extension() : "", options));
      auto snapshot = open_source(reader, source, options, target);
      if (snapshot && target.type == nullptr) snapshot = part_of(*snapshot, options.part);
      auto gone = replaced(*source);
      if (!gone) return snapshot ? std::move(gone).error() : std::move(snapshot).error();
      if (!*gone) return snapshot;
      if (!from.again()) {
        return Error(Errc::io, "the folder was replaced while it was read").file(source->name());
      }
    }
  });
}

Status load_in_place(Reader reader, const Input& from, const TypeInfo& type, void* object, const LoadOptions& options) {
  return guarded(from.name(), [&]() -> Status {
    const Report before = options.report != nullptr ? *options.report : Report();
    for (bool partial = false;;) {
      auto snapshot = open(reader, from, options, {&type, object});
      if (!snapshot) return std::move(snapshot).error().partially_applied(partial);
      auto loaded = load_either(*snapshot, type, object, LoadMode::in_place, options);
      if (loaded) return {};
      partial = partial || loaded.error().partially_applied();
      if (!from.again()) return std::move(loaded).error().partially_applied(partial);
      if (options.report != nullptr) *options.report = before;
    }
  });
}

Status load_fresh(Reader reader, const Input& from, const TypeInfo& type, void* object, const LoadOptions& options) {
  return guarded(from.name(), [&]() -> Status {
    STELE_TRY_ASSIGN(const Snapshot snapshot, open(reader, from, options, {&type, nullptr}));
    return load_either(snapshot, type, object, LoadMode::fresh, options);
  });
}

}  // namespace detail

Status ReadOnlyFormat::write(const Snapshot& /*snapshot*/, Sink& sink, const SaveOptions& /*options*/) const {
  return detail::only_read(*this, sink.name());
}

const LoadOptions& default_load_options() noexcept {
  static const LoadOptions options;
  return options;
}
const SaveOptions& default_save_options() noexcept {
  static const SaveOptions options;
  return options;
}

Result<Report> Format::verify(SourcePtr source, const OpenContext& context) const {
  STELE_TRY_ASSIGN(const Snapshot snapshot, open(std::move(source), context));
  STELE_TRY_ASSIGN(Report report, detail::verify_leaves(snapshot, context.options()));
  if (!capabilities().checksums) detail::add_unchecked_contents(report);
  return report;
}

namespace {

/// Reads an element of each quantized weight, since its parts may be whole and contradict each other. Checks the
/// encodings of a delta.
Status check_encodings(const Format& format, const SourcePtr& source, const LoadOptions& options) {
  if (!format.capabilities().composites) return {};
  STELE_TRY_ASSIGN(const Snapshot snapshot, detail::open({&format}, source, options));
  if (snapshot.metadata().contains(detail::delta_key)) return detail::delta::check_delta(snapshot);
  ReadContext context;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    std::array<std::byte, sizeof(float)> element{};
    if (leaf.byte_size() >= element.size() && composite(leaf)) STELE_TRY(leaf.read(0, element, context));
  }
  return {};
}

}  // namespace

Result<Report> verify(const Format& format, const Input& from, const LoadOptions& options) {
  return detail::guarded(from.name(), [&]() -> Result<Report> {
    STELE_TRY(detail::refuse_part(from, options, "verify the whole file"));
    for (;;) {
      STELE_TRY_ASSIGN(SourcePtr source, from.open(format.extension(), options));
      if (!format.opens(source->is_folder())) return detail::wrong_kind(source->is_folder(), source->name());
      auto verified = format.verify(source, OpenContext(options, {}));
      if (verified) {
        if (auto whole = check_encodings(format, source, options); !whole) verified = std::move(whole).error();
      }
      if (verified || !from.again()) return verified;
    }
  });
}

}  // namespace stele::inline v0
