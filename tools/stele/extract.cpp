#include <algorithm>
#include <bit>
#include <utility>

#include <stele/expansion.hpp>
#include <stele/recorders/numpy.hpp>
#include <stele/sink.hpp>
#include <stele/transform.hpp>

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

/// Writes the tensor without the model's metadata, for which a .npy file has no place.
Status write_npy(const Snapshot& converted, const Named& tensor, const std::string& path, Terminal& terminal) {
  const LeafView leaf = converted.leaf(tensor.leaf);
  if (!NpyFormat().capabilities().holds(leaf.dtype())) {
    return Error(Errc::not_representable, "NumPy has no such dtype")
        .path(tensor.name)
        .found(name(leaf.dtype()))
        .hint("pass --precision f32, or write a .bin or .safetensors file");
  }
  SnapshotBuilder builder;
  builder.set_flat();
  builder.keep(converted.data());
  builder.tensor(builder.intern(tensor.name), leaf.dtype(), leaf.shape(), leaf.byte_size(), leaf.provider());
  Target target{path, "npy", {}, {}};
  STELE_TRY(save_to(target, builder.finish(), terminal));
  return {};
}

}  // namespace

Result<int> extract(const Extract& options, Terminal& terminal) {
  STELE_TRY_ASSIGN(const Model model, open_model(options.file, options.opening, terminal.common().threads));
  STELE_TRY_ASSIGN(const PrecisionSpec precision, parse_precision(options.precision));
  STELE_TRY_ASSIGN(const auto names, names_of(model.snapshot));
  const auto found = std::find_if(names.begin(), names.end(), [&](const Named& n) { return n.name == options.name; });
  if (found == names.end()) {
    return with_similar(Error(Errc::not_found, "no tensor has this name").path(options.name).file(options.file),
                        model.snapshot);
  }
  const bool numpy = options.out.ends_with(".npy");
  const bool raw = options.out.ends_with(".bin") || options.out.ends_with(".raw");
  Report report;
  SaveOptions save;
  save.convert.allow_overflow = options.allow_overflow;
  if (numpy || raw) {
    static_assert(std::endian::native == std::endian::little);
    STELE_TRY(check_expansion(model.snapshot));
    if (!(precision == PrecisionSpec())) STELE_TRY(detail::check_decoded(model.snapshot.leaf(found->leaf)));
    const Snapshot converted = with_precision(model.snapshot, precision, save.convert);
    STELE_TRY(numpy ? write_npy(converted, *found, options.out, terminal)
                    : write_elements(converted.leaf(found->leaf), options.out, terminal));
    if (converted.leaf(found->leaf).annotations() != nullptr) {
      report.add(Report::What::lost, options.name, "its annotations");
    }
  } else {
    STELE_TRY_ASSIGN(const Snapshot one,
                     filter(model.snapshot, {.keep = [&](std::string_view path, const LeafView* leaf) {
                              return leaf != nullptr && path == options.name;
                            }}));
    Target target{options.out, {}, precision, save};
    STELE_TRY_ASSIGN(report, save_to(target, one, terminal));
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
