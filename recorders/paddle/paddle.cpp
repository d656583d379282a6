#include "stele/recorders/paddle.hpp"

#include <algorithm>
#include <memory>
#include <numeric>

#include "base/name_order.hpp"
#include "base/parallel.hpp"
#include "io/files.hpp"
#include "program.hpp"
#include "record.hpp"
#include "snapshot/data.hpp"
#include "snapshot/leaf_gather.hpp"
#include "snapshot/paths.hpp"
#include "stele/bundle.hpp"
#include "steps/byte_order.hpp"

namespace stele {
inline namespace v0 {
namespace {

using namespace detail::paddle;  // NOLINT(google-build-using-namespace): this file is its front

constexpr std::uint64_t max_name = 64 << 10;

// A leaf's number is its offset in the file.
constexpr LeafOps leaf_ops{.locate = [](const void* at, std::uint64_t number) -> SourceRange {
  return {static_cast<const Source*>(at), number};
}};

/// Facts about a tensor that are known before its record is read.
struct Wanted {
  std::string name;
  DType dtype = DType::none;  // none: any dtype
  std::optional<std::vector<std::int64_t>> shape{};
};

bool fits(const Wanted& wanted, DType dtype, std::span<const Extent> shape) {
  if (wanted.dtype != DType::none && wanted.dtype != dtype) return false;
  return !wanted.shape || std::equal(shape.begin(), shape.end(), wanted.shape->begin(), wanted.shape->end(),
                                     [](Extent e, std::int64_t w) { return w < 0 || e == static_cast<Extent>(w); });
}

std::string describe(DType dtype, const auto& shape) {
  std::string text = dtype != DType::none ? std::string(name(dtype)) + " [" : "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i != 0 ? ", " : "") + std::to_string(shape[i]);
  return text + ']';
}

Error misfit(const Wanted& wanted, DType dtype, std::span<const Extent> shape) {
  const bool same_dtype = wanted.dtype == DType::none || wanted.dtype == dtype;
  return Error(same_dtype ? Errc::shape_mismatch : Errc::dtype_mismatch, "another tensor than the one of this name")
      .path(wanted.name)
      .expected(describe(wanted.dtype, *wanted.shape))
      .found(describe(wanted.dtype != DType::none ? dtype : DType::none, shape));
}

void sort_by_name(std::vector<Wanted>& list) {
  std::stable_sort(list.begin(), list.end(), [](const Wanted& a, const Wanted& b) { return a.name < b.name; });
}

std::vector<Wanted> wanted_of(std::span<const PaddleVariable> program) {
  std::vector<Wanted> list;
  list.reserve(program.size());
  for (const PaddleVariable& v : program) list.push_back({v.name, v.dtype, v.shape});
  sort_by_name(list);
  return list;
}

/// Returns the model's tensors by path. Leaves dtypes out: numbers convert when they are loaded.
std::vector<Wanted> wanted_of(const Layout& layout, bool shapes) {
  std::vector<Wanted> list;
  list.reserve(layout.tensors.size());
  for (const Layout::Tensor& t : layout.tensors) {
    Wanted& wanted = list.emplace_back(Wanted{t.path});
    if (t.shape && shapes) wanted.shape.emplace(t.shape->begin(), t.shape->end());
  }
  return list;
}

/// Checks that no two names are equal. `sorted` by name.
Status check_unique(std::span<const Wanted> sorted) {
  const auto same = std::adjacent_find(sorted.begin(), sorted.end(),
                                       [](const Wanted& a, const Wanted& b) { return a.name == b.name; });
  if (same == sorted.end()) return {};
  return Error(Errc::duplicate, "two tensors of one name").path(same->name);
}

/// Calls `check` with each of `count` tensors, sorted by name, and the known facts about it. Errors: unused, missing,
/// and those of `check`.
Status each_pair(std::span<const Wanted> wanted, std::size_t count, const auto& name, const auto& check) {
  for (std::size_t i = 0; i < std::max(wanted.size(), count); ++i) {
    if (i < count && i < wanted.size() && name(i) == wanted[i].name) {
      STELE_TRY(check(wanted[i], i));
      continue;
    }
    const bool extra = i == wanted.size() || (i < count && name(i) < wanted[i].name);
    return Error(extra ? Errc::unused : Errc::missing,
                 extra ? "a tensor that the program does not have" : "a variable of the program that has no tensor")
        .path(extra ? std::string(name(i)) : wanted[i].name);
  }
  return {};
}

class Opener {
 public:
  Opener(const PaddleOptions& options, SourcePtr source, const OpenContext& context)
      : options_(options), source_(std::move(source)), context_(context), bundle_(source_->bundle()) {}

  Result<Snapshot> run() {
    builder_.set_flat();
    STELE_TRY(source_->is_folder() ? read_folder() : read_file());
    return builder_.finish();
  }

 private:
  /// Finds the names of the file's tensors, in its order; finds none if tensors are named by counter.
  Status find_names() {
    if (options_.names == PaddleNames::counter) return {};
    named_ = true;
    const bool automatic = options_.names == PaddleNames::automatic;
    if (automatic && !options_.program.empty()) {
      wanted_ = wanted_of(options_.program);
      return check_unique(wanted_);
    }
    if (automatic && !context_.options().layout && bundle_ != nullptr) {
      STELE_TRY_ASSIGN(const SourcePtr program, program_beside(*bundle_, file_name(source_->name())));
      if (program != nullptr) {
        STELE_TRY_ASSIGN(const auto variables, read_program(*program));
        wanted_ = wanted_of(variables);
        return {};
      }
    }
    STELE_TRY_ASSIGN(const Layout layout, context_.layout());
    // If the load rebuilds the module to match the file, its present shapes do not matter.
    const LoadOptions& options = context_.options();
    wanted_ = wanted_of(layout, options.layout.has_value() || !options.rebuild);
    other_order_ = wanted_;
    const bool sorted = options_.order == PaddleOrder::sorted;
    sort_by_name(sorted ? wanted_ : other_order_);
    return check_unique(sorted ? wanted_ : other_order_);
  }

  // ---- one file

  Status read_file() {
    const PaddleFraming framing = options_.framing != PaddleFraming::none ? options_.framing : found_framing();
    if (framing != PaddleFraming::named) STELE_TRY(find_names());
    std::vector<Entry> records;
    std::vector<std::string> names;
    for (std::uint64_t at = 0; at < source_->size();) {
      if (named_ && records.size() == wanted_.size()) {
        return Error(Errc::malformed, "more bytes than the tensors of its names have")
            .offset(at)
            .expected(std::to_string(wanted_.size()) + " tensors")
            .found(std::to_string(source_->size() - at) + " bytes behind them");
      }
      STELE_TRY_ASSIGN(const std::uint64_t end, read_frame(framing, at, names));
      auto record = read_record(*source_, at, end, memory_);
      if (!record) return at_name(records.size(), std::move(record).error());
      if (framing != PaddleFraming::none && record->end() != end) {
        return Error(Errc::malformed, "a record that does not fill its frame").offset(record->end());
      }
      at = record->end();
      // Growing arrays hold three times their content.
      STELE_TRY(spend(
          3 * (sizeof(Entry) + sizeof(Node) + sizeof(detail::LeafData) + sizeof(Extent) * record->rank) + 64, at));
      records.push_back(std::move(*record));
    }
    if (named_ && records.size() != wanted_.size()) {
      return Error(Errc::truncated, "fewer tensors than names")
          .path(wanted_[records.size()].name)
          .offset(source_->size())
          .expected(std::to_string(wanted_.size()))
          .found(std::to_string(records.size()));
    }
    STELE_TRY(check(records));
    builder_.keep(source_);
    for (std::size_t i = 0; i < records.size(); ++i) {
      add(named_          ? std::string_view(wanted_[i].name)
          : names.empty() ? std::string_view(std::to_string(i))
                          : std::string_view(names[i]),
          records[i], *source_);
    }
    if (names.empty()) return {};
    STELE_TRY(unique());
    return options_.names == PaddleNames::automatic ? check_named(names, records) : Status();
  }

  /// Guesses the framing. A record begins with a zero u32. A record's length, stored before it, does not, unless it is
  /// a multiple of 4 GiB. After that length, a record has its number of levels. A record without levels has the
  /// length of its description where a frame with an empty name has zeros.
  PaddleFraming found_framing() const {
    std::byte head[28]{};
    const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(source_->size(), sizeof head));
    if (!source_->read_at(0, std::span(head).first(size))) return PaddleFraming::none;
    if (detail::load_le<std::uint32_t>(head) == 0) return PaddleFraming::none;
    if (detail::load_le<std::uint32_t>(head + 8) != 0) return PaddleFraming::named;
    const bool empty_name =
        detail::load_le<std::uint64_t>(head + 12) == 0 && detail::load_le<std::uint32_t>(head + 24) == 0;
    return empty_name ? PaddleFraming::named : PaddleFraming::sized;
  }

  /// Moves `at` to the record. Returns the record's end, or the file's end if there is no frame.
  Result<std::uint64_t> read_frame(PaddleFraming framing, std::uint64_t& at, std::vector<std::string>& names) {
    if (framing == PaddleFraming::none) return source_->size();
    const std::uint64_t begin = at;
    const auto length = [&](std::uint64_t most) -> Result<std::uint64_t> {
      std::byte raw[8];
      const std::uint64_t left = source_->size() - at;
      if (left < sizeof raw) return Error(Errc::truncated, "a frame that ends early").offset(at);
      STELE_TRY(source_->read_at(at, raw));
      const auto n = detail::load_le<std::uint64_t>(raw);
      if (n > left - sizeof raw || n > most) {
        return Error(Errc::truncated, "a frame that is longer than what there is")
            .offset(at)
            .expected("at most " + std::to_string(std::min(most, left - sizeof raw)))
            .found(std::to_string(n));
      }
      at += sizeof raw;
      return n;
    };
    STELE_TRY_ASSIGN(const std::uint64_t size, length(source_->size()));
    const std::uint64_t end = at + size;
    if (framing == PaddleFraming::sized) return end;
    STELE_TRY_ASSIGN(const std::uint64_t name_size, length(max_name));
    if (name_size > end - std::min(at, end)) return Error(Errc::malformed, "a name beyond its frame").offset(begin);
    STELE_TRY(spend(sizeof(std::string) + 3 * name_size, at));
    std::string name(static_cast<std::size_t>(name_size), '\0');
    STELE_TRY(source_->read_at(at, std::as_writable_bytes(std::span(name))));
    at += name_size;
    names.push_back(std::move(name));
    return end;
  }

  /// Checks each tensor against the facts that are known for its name.
  Status check(std::span<const Entry> records) const {
    const auto first_misfit = [&](std::span<const Wanted> order) {
      std::size_t i = 0;
      while (i < order.size() && fits(order[i], records[i].dtype, records[i].shape())) ++i;
      return i;
    };
    if (!named_) return {};
    const std::size_t wrong = first_misfit(wanted_);
    if (wrong == wanted_.size()) return {};
    Error error = misfit(wanted_[wrong], records[wrong].dtype, records[wrong].shape()).offset(records[wrong].data);
    if (other_order_.empty() || first_misfit(other_order_) != other_order_.size()) return error;
    const bool sorted = options_.order == PaddleOrder::sorted;
    const std::string other = sorted ? "PaddleOrder::declared" : "PaddleOrder::sorted";
    auto report = std::make_shared<Report>();
    report->add(Report::What::suggested, wanted_[wrong].name,
                (sorted ? "the file's shapes fit the order of the model, not that of the names: "
                        : "the file's shapes fit the order of the names, not that of the model: ") +
                    other);
    return std::move(error)
        .expected(describe(DType::none, *wanted_[wrong].shape) + ", or " + other + ", which fits")
        .report(std::move(report));
  }

  /// Checks the tensors of a file that stores names.
  Status check_named(std::span<const std::string> names, std::span<const Entry> records) const {
    if (options_.program.empty()) return {};
    const std::vector<Wanted> wanted = wanted_of(options_.program);
    STELE_TRY(check_unique(wanted));
    const auto name = [&](std::uint32_t i) { return std::string_view(names[i]); };
    const auto order = detail::order_by_name(static_cast<std::uint32_t>(names.size()), name);
    return each_pair(
        wanted, order.size(), [&](std::size_t i) { return name(order[i]); },
        [&](const Wanted& w, std::size_t i) -> Status {
          const Entry& record = records[order[i]];
          if (fits(w, record.dtype, record.shape())) return {};
          return misfit(w, record.dtype, record.shape()).offset(record.data);
        });
  }

  // ---- a folder

  Status read_folder() {
    // The files are named after the variables. A program declares the files and their contents.
    std::vector<PaddleVariable> program = options_.program;
    named_ = !program.empty();
    if (!named_) {
      STELE_TRY_ASSIGN(const SourcePtr beside, program_beside(*bundle_, "__params__"));
      if (beside != nullptr) {
        STELE_TRY_ASSIGN(program, read_program(*beside));
        named_ = true;
      }
    }
    std::vector<std::string> files;
    wanted_ = wanted_of(program);
    STELE_TRY(check_unique(wanted_));
    for (const Wanted& w : wanted_) files.push_back(w.name);
    if (!named_) {
      STELE_TRY_ASSIGN(files, bundle_->names());
      if (files.empty()) return Error(Errc::missing, "an empty folder").expected("a file for each parameter");
    }
    for (std::size_t i = 0; i < files.size(); ++i) {
      STELE_TRY_ASSIGN(SourcePtr file, detail::open_of_set(bundle_, files[i], i));
      memory_.admit(file->size(), detail::index_rate::record);
      auto record = read_record(*file, 0, file->size(), memory_);
      if (!record) return std::move(record).error().path(files[i]).file(file->name());
      if (record->end() != file->size()) {
        return Error(Errc::malformed, "bytes behind the tensor")
            .path(files[i])
            .file(file->name())
            .offset(record->end());
      }
      if (named_ && !fits(wanted_[i], record->dtype, record->shape())) {
        return misfit(wanted_[i], record->dtype, record->shape()).file(file->name());
      }
      add(files[i], *record, *file);
      builder_.keep(std::move(file));
    }
    return {};
  }

  // ---- files and folders

  void add(std::string_view name, const Entry& record, const Source& source) {
    builder_.tensor(builder_.intern(name), record.dtype, record.shape(), record.bytes,
                    {&leaf_ops, &source, record.data});
    if (!record.lod.is_null()) builder_.annotate(std::string(lod_key), record.lod);
  }

  Status unique() {
    const std::span<const Node> nodes = builder_.nodes();
    const auto name = [&](std::uint32_t i) { return std::string_view(nodes[i + 1].name, nodes[i + 1].name_size); };
    const auto order = detail::order_by_name(static_cast<std::uint32_t>(nodes.size() - 1), name);
    const auto same = std::adjacent_find(order.begin(), order.end(),
                                         [&](std::uint32_t a, std::uint32_t b) { return name(a) == name(b); });
    if (same == order.end()) return {};
    return Error(Errc::duplicate, "two tensors of one name").path(std::string(name(*same)));
  }

  /// Counts memory against the bound of Format::open.
  Status spend(std::uint64_t bytes, std::uint64_t at) {
    return memory_.take(bytes) ? Status()
                               : detail::index_error("more tensors than a file of this size may have").offset(at);
  }

  Error at_name(std::size_t i, Error error) const {
    return i < wanted_.size() ? std::move(error).path(wanted_[i].name) : std::move(error);
  }

  const PaddleOptions& options_;
  SourcePtr source_;
  const OpenContext& context_;
  std::shared_ptr<const Bundle> bundle_;
  SnapshotBuilder builder_;
  bool named_ = false;  // wanted_ lists the tensors
  std::vector<Wanted> wanted_;
  std::vector<Wanted> other_order_;  // wanted_ in the PaddleOrder that was not requested, if known
  detail::IndexBudget memory_{context_.options().limits, source_->size(), detail::index_rate::record};
};

bool holds(DType dtype) { return code_of(dtype) != 0xff; }
bool keeps(std::string_view annotation) { return annotation == lod_key; }

}  // namespace

const Capabilities& PaddleFormat::capabilities() const noexcept {
  static constexpr Capabilities can{.max_rank = max_rank, .holds = holds, .keeps = keeps};
  return can;
}

bool PaddleFormat::recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept {
  // Version, no LoD, version; then a description of a few bytes that begins with its dtype.
  constexpr std::size_t least = 22;
  if (options_.folder || size < least || head.size() < least) return false;  // another PaddleFormat opens folders
  if (!std::all_of(head.begin(), head.begin() + 16, [](std::byte b) { return b == std::byte{0}; })) return false;
  const auto desc = detail::load_le<std::uint32_t>(head.data() + 16);
  return desc >= 2 && desc < 256 && head[20] == std::byte{0x08};
}

namespace {

/// Returns the name of the first file in the folder that is not a record; nullopt if all are records.
Result<std::optional<std::string>> foreign_file(const Bundle& folder) {
  STELE_TRY_ASSIGN(const auto files, folder.names());
  for (const std::string& file : files) {
    STELE_TRY_ASSIGN(const SourcePtr source, folder.open(file));
    detail::IndexBudget memory;
    const auto record = read_record(*source, 0, source->size(), memory);
    if (!record || record->end() != source->size()) return std::optional(file);
  }
  return std::optional<std::string>();
}

}  // namespace

bool PaddleFormat::recognises_folder(const Bundle& folder) const {
  if (!options_.folder) return false;  // another PaddleFormat opens files
  for (const char* program : {"__model__", "__model__.json"}) {
    const auto there = folder.contains(program);
    if (there && *there) return true;
  }
  const auto files = folder.names();
  const auto foreign = foreign_file(folder);
  return files && !files->empty() && foreign && !*foreign;
}

Status PaddleFormat::may_replace(const Bundle& folder) const {
  STELE_TRY_ASSIGN(const auto foreign, foreign_file(folder));
  if (!foreign) return {};
  return Error(Errc::exists, "the folder holds other files than parameters")
      .expected("another place, or FileSinkOptions::allow_nonatomic")
      .found(*foreign);
}

Result<Snapshot> PaddleFormat::open(SourcePtr source, const OpenContext& context) const {
  return detail::in_host_order(Opener(options_, std::move(source), context).run());
}

Status PaddleFormat::write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const {
  const detail::LeafPaths paths(*snapshot.data());
  const auto count = static_cast<std::uint32_t>(snapshot.leaf_count());
  const auto path = [&](std::uint32_t i) { return paths[i]; };
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), std::uint32_t{0});
  if (options_.order == PaddleOrder::sorted) order = detail::order_by_name(count, path);
  if (!options_.program.empty()) {
    const std::vector<Wanted> wanted = wanted_of(options_.program);
    STELE_TRY(check_unique(wanted));
    const auto sorted = detail::order_by_name(count, path);
    STELE_TRY(each_pair(
        wanted, count, [&](std::size_t i) { return paths[sorted[i]]; },
        [&](const Wanted& w, std::size_t i) -> Status {
          const LeafView leaf = snapshot.leaf(sorted[i]);
          return fits(w, leaf.dtype(), leaf.shape()) ? Status() : misfit(w, leaf.dtype(), leaf.shape());
        }));
  }
  std::vector<std::vector<std::byte>> heads(count);
  std::uint64_t total = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const LeafView leaf = snapshot.leaf(i);
    const Value* lod = nullptr;
    if (const Annotations* notes = leaf.annotations()) {
      if (const auto found = notes->find(std::string(lod_key)); found != notes->end()) lod = &found->second;
    }
    auto head = head_of(leaf.dtype(), leaf.shape(), lod);
    if (!head) return std::move(head).error().path(std::string(paths[i]));
    heads[i] = std::move(*head);
    if (options_.folder && (paths[i] == "__model__" || paths[i] == "__model__.json")) {
      return Error(Errc::not_representable, "a name that a folder's program has").path(std::string(paths[i]));
    }
    total += heads[i].size() + leaf.byte_size();
    if (options_.framing != PaddleFraming::none) total += 8;
    if (options_.framing == PaddleFraming::named) total += 8 + paths[i].size();
    if (options_.framing == PaddleFraming::named && paths[i].size() > max_name) {
      return Error(Errc::not_representable, "a name that is too long").path(std::string(paths[i]));
    }
  }
  ReadContext context(detail::workers_of(options));
  const Snapshot ordered = detail::in_file_order(snapshot);
  if (options_.folder) {
    const auto bundle = sink.bundle();
    if (bundle == nullptr)
      return Error(Errc::unsupported, "a folder needs a place").expected("a path, or bundle_sink()");
    if (count == 0)
      return Error(Errc::not_representable, "a folder of Paddle's has a file for each tensor: here is none");
    for (const std::uint32_t i : order) {
      auto file = bundle->create(paths[i]);
      if (!file) return std::move(file).error().path(std::string(paths[i]));
      STELE_TRY((*file)->reserve(heads[i].size() + ordered.leaf(i).byte_size()));
      detail::LeafGather gather(**file);
      STELE_TRY(gather.write(heads[i]));
      STELE_TRY(gather.leaf(ordered.leaf(i), context));
      STELE_TRY(gather.flush());
      STELE_TRY((*file)->commit());
    }
    return {};
  }
  STELE_TRY(sink.reserve(total));
  detail::LeafGather gather(sink);
  const auto number = [&](std::uint64_t n) {
    std::byte raw[8];
    detail::store_le(raw, n);
    return gather.write(raw);
  };
  for (const std::uint32_t i : order) {
    const std::uint64_t size = heads[i].size() + ordered.leaf(i).byte_size();
    if (options_.framing == PaddleFraming::sized) STELE_TRY(number(size));
    if (options_.framing == PaddleFraming::named) {
      STELE_TRY(number(8 + paths[i].size() + size));
      STELE_TRY(number(paths[i].size()));
      STELE_TRY(gather.write(std::as_bytes(std::span(paths[i]))));
    }
    STELE_TRY(gather.write(heads[i]));
    STELE_TRY(gather.leaf(ordered.leaf(i), context));
  }
  return gather.flush();
}

}  // namespace v0
}  // namespace stele
