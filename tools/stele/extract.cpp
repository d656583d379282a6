#include <algorithm>
#include <bit>
#include <utility>

#include <stele/composite.hpp>
#include <stele/expansion.hpp>
#include <stele/recorders/numpy.hpp>
#include <stele/sink.hpp>
#include <stele/transform.hpp>

#include "base/extension.hpp"
#include "commands.hpp"
#include "snapshot/undecoded.hpp"

namespace stele::command {

namespace {

class WriteSink final : public PieceSink {
 public:
  WriteSink(Sink& sink, Progress& progress) : sink_(sink), progress_(progress) {}
  Status piece(std::span<const std::byte> bytes) override {
    STELE_TRY(sink_.write(bytes));
    return progress_.add(bytes.size()) ? Status() : Progress::cancelled();
  }

 private:
  Sink& sink_;
  Progress& progress_;
};

Status write_elements(const LeafView& leaf, const std::string& path, Terminal& terminal) {
  STELE_TRY_ASSIGN(const auto sink, open_output(path));
  STELE_TRY(sink->reserve(leaf.byte_size()));
  Progress progress(terminal, "writing", leaf.byte_size());
  WriteSink pieces(*sink, progress);
  ReadContext context;
  STELE_TRY(leaf.stream(pieces, context));
  return sink->commit();
}

/// Returns the tensor without what a file of elements has no place for: the model's metadata, and annotations. The mark
/// of codes stays, so that a conversion refuses them.
Snapshot alone(const Snapshot& model, const Named& tensor, Report& report) {
  const LeafView leaf = model.leaf(tensor.leaf);
  SnapshotBuilder builder;
  builder.set_flat();
  builder.keep(model.data());
  builder.tensor(builder.intern(tensor.name), leaf.dtype(), leaf.shape(), leaf.byte_size(), leaf.provider());
  const std::string_view scheme = detail::undecoded(leaf);
  if (!scheme.empty()) builder.annotate(std::string(detail::undecoded_key), Value(scheme));
  if (leaf.annotations() != nullptr && leaf.annotations()->size() > (scheme.empty() ? 0U : 1U)) {
    report.add(Report::What::lost, tensor.name, "its annotations");
  }
  return builder.finish();
}

Status write_npy(const Snapshot& tensor, const std::string& path, Terminal& terminal) {
  const LeafView leaf = tensor.leaf(0);
  if (!NpyFormat().capabilities().holds(leaf.dtype())) {
    return Error(Errc::not_representable, "NumPy has no such dtype")
        .path(leaf.path())
        .found(name(leaf.dtype()))
        .hint("pass --precision f32, or write a .bin or .safetensors file");
  }
  Target target{path, "npy", {}, {}};
  STELE_TRY(save_to(target, raw_codes(tensor), terminal));
  return {};
}

}  // namespace

Result<int> extract(const Extract& options, Terminal& terminal) {
  STELE_TRY_ASSIGN(const Model model, open_model(options.file, options.opening, terminal.common().threads));
  STELE_TRY_ASSIGN(const auto names, names_of(model.snapshot));
  const auto found = std::find_if(names.begin(), names.end(), [&](const Named& n) { return n.name == options.name; });
  if (found == names.end()) {
    return with_similar(Error(Errc::not_found, "no tensor has this name").path(options.name).file(options.file),
                        model.snapshot);
  }
  const bool numpy = detail::has_extension(options.out, ".npy");
  const bool raw = detail::has_extension(options.out, ".bin") || detail::has_extension(options.out, ".raw");
  Report report;
  SaveOptions save;
  save.convert.allow_overflow = options.allow_overflow;
  if (numpy || raw) {
    static_assert(std::endian::native == std::endian::little);
    STELE_TRY(check_expansion(model.snapshot));
    STELE_TRY_ASSIGN(const Snapshot one,
                     at_precision(alone(model.snapshot, *found, report), options.precision, save.convert, report));
    STELE_TRY(numpy ? write_npy(one, options.out, terminal) : write_elements(one.leaf(0), options.out, terminal));
  } else {
    STELE_TRY_ASSIGN(const Snapshot stored,
                     filter(model.snapshot, {.keep = [&](std::string_view path, const LeafView* leaf) {
                              return leaf != nullptr && path == options.name;
                            }}));
    STELE_TRY_ASSIGN(const Snapshot one, at_precision(stored, options.precision, save.convert, report));
    Target target{options.out, {}, {}, save};
    STELE_TRY_ASSIGN(const Report saved, save_to(target, one, terminal));
    add_rows(report, saved);
  }
  if (terminal.json()) {
    Document document(terminal, "stele.extract/1");
    document.member("file", Value(options.file));
    document.member("name", Value(options.name));
    document.member("out", Value(options.out));
    document.member("rows", to_value(report));
    return exit_ok;
  }
  print_rows(terminal, report);
  terminal.note("wrote " + safe(options.out));
  return exit_ok;
}

}  // namespace stele::command
