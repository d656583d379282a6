// Reads a file or a folder into a Snapshot.
#include <algorithm>
#include <memory>

#include "expected.hpp"
#include "io/files.hpp"
#include "leaves/source_range.hpp"
#include "passes/byte_order.hpp"
#include "program.hpp"
#include "record.hpp"
#include "snapshot/data.hpp"
#include "snapshot/tensor_index.hpp"
#include "snapshot/unread.hpp"
#include "stele/bundle.hpp"
#include "stele/detail/little_endian.hpp"
#include "stele/recorders/paddle.hpp"

namespace stele::inline v0 {
namespace {

using namespace detail::paddle;  // NOLINT(google-build-using-namespace): this file implements the format

class PaddleReader {
 public:
  PaddleReader(const PaddleOptions& options, SourcePtr source, const OpenContext& context)
      : options_(options), source_(std::move(source)), context_(context), bundle_(source_->bundle()) {}

  Result<Snapshot> run() {
    builder_.set_flat();
    STELE_TRY(source_->is_folder() ? read_folder() : read_file());
    return builder_.finish();
  }

 private:
  /// Finds the names of the file's tensors, in the file's order. Finds no names if tensors are named by counter.
  Status find_names() {
    if (options_.names == PaddleNames::counter) return {};
    named_ = true;
    const bool automatic = options_.names == PaddleNames::automatic;
    if (automatic && !options_.program.empty()) {
      expected_ = expected_of(options_.program);
      return check_unique(expected_);
    }
    if (automatic && !context_.options().layout && bundle_ != nullptr) {
      STELE_TRY_ASSIGN(const SourcePtr program, program_beside(*bundle_, file_name(source_->name())));
      if (program != nullptr) {
        STELE_TRY_ASSIGN(const auto variables, read_program(*program));
        expected_ = expected_of(variables);
        return {};
      }
    }
    STELE_TRY_ASSIGN(const Layout layout, context_.layout());
    // If the load rebuilds the module to match the file, the module's present shapes do not matter.
    const LoadOptions& options = context_.options();
    expected_ = expected_of(layout, options.layout.has_value() || !options.rebuild);
    other_order_ = expected_;
    const bool sorted = options_.order == PaddleOrder::sorted;
    sort_by_name(sorted ? expected_ : other_order_);
    return check_unique(sorted ? expected_ : other_order_);
  }

  // ---- one file

  Status read_file() {
    const PaddleFraming framing = options_.framing != PaddleFraming::none ? options_.framing : found_framing();
    if (framing != PaddleFraming::named) STELE_TRY(find_names());
    std::vector<Entry> records;
    std::vector<std::string> names;
    for (std::uint64_t at = 0; at < source_->size();) {
      if (named_ && records.size() == expected_.size()) {
        return Error(Errc::malformed, "bytes follow the last named tensor")
            .offset(at)
            .expected(std::to_string(expected_.size()) + " tensors")
            .found(std::to_string(source_->size() - at) + " more bytes");
      }
      STELE_TRY_ASSIGN(const std::uint64_t end, read_frame(framing, at, names));
      auto record = read_record(*source_, at, end, memory_);
      if (!record) return at_name(records.size(), std::move(record).error());
      if (framing != PaddleFraming::none && record->end() != end) {
        return Error(Errc::malformed, "the record ends before its frame").offset(record->end());
      }
      at = record->end();
      // Arrays that grow hold three times their content.
      STELE_TRY(spend(
          3 * (sizeof(Entry) + sizeof(Node) + sizeof(detail::LeafData) + sizeof(Extent) * record->rank) + 64, at));
      records.push_back(std::move(*record));
    }
    if (named_ && records.size() != expected_.size()) {
      return Error(Errc::truncated, "the file has fewer tensors than names")
          .path(expected_[records.size()].name)
          .offset(source_->size())
          .expected(std::to_string(expected_.size()))
          .found(std::to_string(records.size()));
    }
    STELE_TRY(check(records));
    builder_.keep(source_);
    for (std::size_t i = 0; i < records.size(); ++i) {
      add(named_          ? std::string_view(expected_[i].name)
          : names.empty() ? std::string_view(std::to_string(i))
                          : std::string_view(names[i]),
          records[i], *source_);
    }
    if (names.empty()) return {};
    STELE_TRY(detail::sort_names(builder_));
    return options_.names == PaddleNames::automatic ? check_named(names, records) : Status();
  }

  /// Guesses the framing. A record begins with a zero u32. A frame begins with a length, which has a zero u32 only if
  /// it is a multiple of 4 GiB. After the length, a `sized` frame has the record, and a `named` frame has the size of a
  /// name. If both are zero, only a `named` frame has zeros at bytes 12 to 19 and 24 to 27: a `sized` frame has the
  /// number of levels at byte 12, and if that is zero, the length of the description at byte 24.
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

  /// Moves `at` to the record. Returns the record's end, or the file's end if records have no frames.
  Result<std::uint64_t> read_frame(PaddleFraming framing, std::uint64_t& at, std::vector<std::string>& names) {
    if (framing == PaddleFraming::none) return source_->size();
    const std::uint64_t begin = at;
    const auto length = [&](std::uint64_t max_length) -> Result<std::uint64_t> {
      std::byte raw[8];
      const std::uint64_t left = source_->size() - at;
      if (left < sizeof raw) return Error(Errc::truncated, "the file ends inside a frame").offset(at);
      STELE_TRY(source_->read_at(at, raw));
      const auto n = detail::load_le<std::uint64_t>(raw);
      if (n > left - sizeof raw || n > max_length) {
        return Error(Errc::truncated, "a length in the frame is too large")
            .offset(at)
            .expected("at most " + std::to_string(std::min(max_length, left - sizeof raw)) + " bytes")
            .found(std::to_string(n));
      }
      at += sizeof raw;
      return n;
    };
    STELE_TRY_ASSIGN(const std::uint64_t size, length(source_->size()));
    const std::uint64_t end = at + size;
    if (framing == PaddleFraming::sized) return end;
    STELE_TRY_ASSIGN(const std::uint64_t name_size, length(max_name_bytes));
    if (name_size > end - std::min(at, end)) return Error(Errc::malformed, "the name exceeds its frame").offset(begin);
    STELE_TRY(spend(sizeof(std::string) + 3 * name_size, at));
    std::string name(static_cast<std::size_t>(name_size), '\0');
    STELE_TRY(source_->read_at(at, std::as_writable_bytes(std::span(name))));
    at += name_size;
    names.push_back(std::move(name));
    return end;
  }

  /// Checks each tensor against the expected facts for its name.
  Status check(std::span<const Entry> records) const {
    const auto first_misfit = [&](std::span<const Expected> order) {
      std::size_t i = 0;
      while (i < order.size() && fits(order[i], records[i].dtype, records[i].shape())) ++i;
      return i;
    };
    if (!named_) return {};
    const std::size_t wrong = first_misfit(expected_);
    if (wrong == expected_.size()) return {};
    Error error = misfit(expected_[wrong], records[wrong].dtype, records[wrong].shape()).offset(records[wrong].data);
    if (other_order_.empty() || first_misfit(other_order_) != other_order_.size()) return error;
    const bool sorted = options_.order == PaddleOrder::sorted;
    const std::string other = sorted ? "PaddleOrder::declared" : "PaddleOrder::sorted";
    auto report = std::make_shared<Report>();
    report->add(Report::What::suggested, expected_[wrong].name,
                (sorted ? "the file's shapes match the order of the model, not the order of the names: "
                        : "the file's shapes match the order of the names, not the order of the model: ") +
                    other);
    return std::move(error)
        .expected(describe(*expected_[wrong].shape))
        .hint("use " + other + ", whose order matches the shapes")
        .report(std::move(report));
  }

  /// Checks the tensors of a file that stores names.
  Status check_named(std::span<const std::string> names, std::span<const Entry> records) const {
    if (options_.program.empty()) return {};
    std::vector<Found> found;
    found.reserve(records.size());
    for (std::size_t i = 0; i < records.size(); ++i) {
      found.push_back({names[i], records[i].dtype, records[i].shape(), records[i].data});
    }
    return check_program(options_.program, found);
  }

  // ---- a folder

  Status read_folder() {
    // Files have the names of the variables. A program declares the files and their contents.
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
    expected_ = expected_of(program);
    STELE_TRY(check_unique(expected_));
    for (const Expected& e : expected_) files.push_back(e.name);
    if (!named_) {
      STELE_TRY_ASSIGN(files, bundle_->names());
      if (files.empty()) return Error(Errc::missing, "the folder is empty").expected("a file for each parameter");
    }
    for (std::size_t i = 0; i < files.size(); ++i) {
      STELE_TRY_ASSIGN(SourcePtr file, detail::open_of_set(bundle_, files[i], i));
      memory_.admit(file->size(), detail::index_rate::record);
      auto record = read_record(*file, 0, file->size(), memory_);
      if (!record) return std::move(record).error().path(files[i]).file(file->name());
      if (record->end() != file->size()) {
        return Error(Errc::malformed, "bytes follow the tensor")
            .path(files[i])
            .file(file->name())
            .offset(record->end());
      }
      if (named_ && !fits(expected_[i], record->dtype, record->shape())) {
        return misfit(expected_[i], record->dtype, record->shape()).file(file->name());
      }
      add(files[i], *record, *file);
      builder_.keep(std::move(file));
    }
    return {};
  }

  // ---- files and folders

  void add(std::string_view name, const Entry& record, const Source& source) {
    builder_.tensor(builder_.intern(name), record.dtype, record.shape(), record.bytes,
                    {&detail::source_ops, &source, record.data});
    if (!record.lod.is_null()) builder_.annotate(std::string(lod_key), record.lod);
  }

  /// Counts memory against the bound of Format::open.
  Status spend(std::uint64_t bytes, std::uint64_t at) {
    return memory_.take(bytes) ? Status()
                               : detail::index_error("the file has too many tensors for its size").offset(at);
  }

  Error at_name(std::size_t i, Error error) const {
    return i < expected_.size() ? std::move(error).path(expected_[i].name) : std::move(error);
  }

  const PaddleOptions& options_;
  SourcePtr source_;
  const OpenContext& context_;
  std::shared_ptr<const Bundle> bundle_;
  SnapshotBuilder builder_;
  bool named_ = false;  // true if expected_ lists the tensors
  std::vector<Expected> expected_;
  std::vector<Expected> other_order_;  // expected_ in the PaddleOrder that was not requested, if known
  detail::IndexBudget memory_{context_.options().limits, source_->size(), detail::index_rate::record};
};

}  // namespace

Result<Snapshot> PaddleFormat::open(SourcePtr source, const OpenContext& context) const {
  const std::shared_ptr<const Bundle> folder = source->is_folder() ? source->bundle() : nullptr;
  STELE_TRY_ASSIGN(Snapshot all, detail::in_host_order(PaddleReader(options_, std::move(source), context).run()));
  if (folder == nullptr) return all;
  return detail::with_unread(std::move(all), *folder,
                             [](std::string_view name) { return name.starts_with("__model__"); });
}

}  // namespace stele::inline v0
