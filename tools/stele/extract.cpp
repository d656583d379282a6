#include <algorithm>
#include <bit>
#include <utility>

#include <stele/sink.hpp>
#include <stele/transform.hpp>

#include "commands.hpp"

namespace stele::command {

namespace {

/// Returns NumPy's name of a dtype, as in its `descr`; empty if NumPy has none.
std::string_view numpy_name(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "<f8";
    case DType::f32:
      return "<f4";
    case DType::f16:
      return "<f2";
    case DType::i64:
      return "<i8";
    case DType::i32:
      return "<i4";
    case DType::i16:
      return "<i2";
    case DType::i8:
      return "|i1";
    case DType::u64:
      return "<u8";
    case DType::u32:
      return "<u4";
    case DType::u16:
      return "<u2";
    case DType::u8:
      return "|u1";
    case DType::boolean:
      return "|b1";
    case DType::c64:
      return "<c8";
    case DType::c128:
      return "<c16";
    default:
      return {};
  }
}

/// Returns the header of a .npy file, version 1.0, padded so that the elements are 64-byte aligned
/// (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
Result<std::string> npy_header(const LeafView& leaf, const std::string& path) {
  const std::string_view type = numpy_name(leaf.dtype());
  if (type.empty()) {
    return Error(Errc::not_representable, "NumPy has no such dtype")
        .path(path)
        .found(name(leaf.dtype()))
        .hint("pass --precision f32, or write a .bin or .safetensors file");
  }
  std::string text = "{'descr': '" + std::string(type) + "', 'fortran_order': False, 'shape': (";
  for (const Extent extent : leaf.shape()) text += std::to_string(extent) + (leaf.shape().size() == 1 ? "," : ", ");
  if (leaf.shape().size() > 1) text.resize(text.size() - 2);
  text += "), }";
  constexpr std::size_t before = 10;
  text.append(63 - (before + text.size()) % 64, ' ');
  text += '\n';
  if (text.size() > 0xffff) return Error(Errc::not_representable, "the shape is too long for a .npy file").path(path);
  const auto size = static_cast<unsigned>(text.size());
  return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(size & 255U) + static_cast<char>(size >> 8) + text;
}

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

Status write_elements(const LeafView& leaf, const std::string& head, const std::string& path, Terminal& terminal) {
  STELE_TRY_ASSIGN(const auto sink, file_sink(path));
  STELE_TRY(sink->reserve(head.size() + leaf.byte_size()));
  if (!head.empty()) STELE_TRY(sink->write(std::as_bytes(std::span(head))));
  Progress progress(terminal, "writing", leaf.byte_size());
  WriteSink pieces(*sink, progress);
  ReadContext context;
  STELE_TRY(leaf.stream(pieces, context));
  return sink->commit();
}

}  // namespace

Result<int> extract(const Extract& options, Terminal& terminal) {
  STELE_TRY_ASSIGN(const Model model, open_model(options.file, options.opening, terminal.common().threads));
  STELE_TRY_ASSIGN(const PrecisionSpec precision, parse_precision(options.precision));
  STELE_TRY_ASSIGN(const auto names, names_of(model.snapshot));
  const auto found = std::find_if(names.begin(), names.end(), [&](const Named& n) { return n.name == options.name; });
  if (found == names.end()) {
    return Error(Errc::not_found, "no tensor has this name").path(options.name).file(options.file);
  }
  const bool numpy = options.out.ends_with(".npy");
  const bool raw = options.out.ends_with(".bin") || options.out.ends_with(".raw");
  Report report;
  if (numpy || raw) {
    static_assert(std::endian::native == std::endian::little);
    const Snapshot converted = with_precision(model.snapshot, precision);
    const LeafView leaf = converted.leaf(found->leaf);
    std::string head;
    if (numpy) {
      STELE_TRY_ASSIGN(head, npy_header(leaf, options.name));
    }
    STELE_TRY(write_elements(leaf, head, options.out, terminal));
  } else {
    STELE_TRY_ASSIGN(const Snapshot one,
                     filter(model.snapshot, {.keep = [&](std::string_view path, const LeafView* leaf) {
                              return leaf != nullptr && path == options.name;
                            }}));
    STELE_TRY_ASSIGN(report, save_to({options.out, {}, precision, {}}, one, terminal));
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
