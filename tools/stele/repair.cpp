#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include <stele/recorders/any.hpp>
#include <stele/transform.hpp>

#include "commands.hpp"
#include "leaf_check.hpp"

namespace stele::command {

namespace {

/// A file whose end is missing: it has the size that its header declares, and reads beyond its bytes fail.
class Lengthened final : public Source {
 public:
  Lengthened(SourcePtr file, std::uint64_t size) : Source(file->name()), file_(std::move(file)), size_(size) {}
  std::uint64_t size() const noexcept override { return size_; }
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override { return file_->read_at(offset, out); }
  std::shared_ptr<const Bundle> bundle() const override { return file_->bundle(); }

 private:
  SourcePtr file_;
  std::uint64_t size_;
};

std::uint64_t leading_number(std::string_view text) {
  std::uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

/// Opens a file that ends early, if its index is at its beginning. With far more bytes than any file has, the formats
/// that check the size report the one that the index declares.
Result<Snapshot> open_truncated(const Format& format, const SourcePtr& source, Error error) {
  constexpr std::uint64_t far = std::uint64_t{1} << 62;
  LoadOptions options;
  options.limits.index_bytes = 2 * source->size() + (std::uint64_t{16} << 20);  // not bounded by the declared size
  const auto with_size = [&](std::uint64_t size) {
    return open(format, SourcePtr(std::make_shared<Lengthened>(source, size)), options);
  };
  auto opened = with_size(far);
  if (opened) return opened;
  const std::uint64_t declared = leading_number(opened.error().expected());
  if (declared <= source->size() || declared >= far) return error;
  return with_size(declared);
}

Result<Snapshot> open_damaged(const Repair& options, std::string& format_name, std::string& note, Report& losses,
                              unsigned threads) {
  auto model = open_model(options.in, options.opening, threads);
  if (model) {
    format_name = model->format->name();
    auto beside = losses_of(*model, options.opening, threads);
    if (beside) losses = std::move(*beside);
    if (!beside) losses.add(Report::What::lost, "", "the checkpoint: " + error_text(beside.error()));
    return std::move(model->snapshot);
  }
  if (model.error().code() != Errc::truncated) return std::move(model).error();
  STELE_TRY_ASSIGN(const SourcePtr source, open_input(options.in));
  STELE_TRY_ASSIGN(const Format* const format, format_of_content(*source));
  format_name = format->name();
  note = "the file ends early";
  return open_truncated(*format, source, std::move(model).error());
}

}  // namespace

Result<int> repair(const Repair& options, Terminal& terminal) {
  std::string format, note;
  Target target{options.out};
  STELE_TRY_ASSIGN(const Snapshot snapshot,
                   open_damaged(options, format, note, target.losses, terminal.common().threads));
  STELE_TRY_ASSIGN(const auto errors, damaged_leaves(snapshot, terminal));
  STELE_TRY_ASSIGN(const auto rows, damages(snapshot, errors));
  std::set<std::string, std::less<>> lost;
  for (const Damage& row : rows) lost.insert(row.name);
  Snapshot whole = snapshot;
  if (!lost.empty()) {
    STELE_TRY_ASSIGN(
        whole,
        filter(snapshot, {.keep = [&](std::string_view path, const LeafView*) { return !lost.contains(path); }}));
  }
  target.save.allow_loss = options.allow_loss;
  STELE_TRY_ASSIGN(const Report report, save_to(target, whole, terminal));
  if (terminal.json()) {
    Document document(terminal, "stele.repair/1");
    document.member("in", Value(options.in));
    document.member("out", Value(target.path));
    document.member("format", Value(format));
    document.member("recovered", number(static_cast<std::uint64_t>(whole.leaf_count())));
    document.begin_list("lost");
    for (const Damage& row : rows) {
      document.item(
          Value(Value::Map{{"name", Value(row.name)}, {"range", Value(row.range)}, {"error", Value(row.error)}}));
    }
    document.end_list();
    document.member("rows", to_value(report));
  } else {
    if (!note.empty()) terminal.print(note + "\n");
    for (const Damage& row : rows) {
      terminal.print(terminal.paint(Style::bad, "lost") + " " + safe(row.name) + ": " + row.range +
                     (row.range.empty() ? "" : ": ") + safe(row.error) + "\n");
    }
    print_rows(terminal, report);
    terminal.print("recovered " + grouped(whole.leaf_count()) + " of " + grouped(snapshot.leaf_count()) +
                   " tensors to " + safe(target.path) + "\n");
  }
  return rows.empty() ? exit_ok : exit_no;
}

}  // namespace stele::command
