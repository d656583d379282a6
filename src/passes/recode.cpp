#include "passes/recode.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "leaves/needs.hpp"
#include "passes/batches.hpp"
#include "passes/composites/encode.hpp"
#include "passes/differences.hpp"
#include "snapshot/converting.hpp"
#include "snapshot/data.hpp"
#include "stele/precision/blocks.hpp"
#include "stele/quantize.hpp"

namespace stele::inline v0::detail {
namespace {

/// A number of elements that must be recoded together, and their bytes before and after.
struct Unit {
  std::size_t elements = 1;
  std::size_t in = 1;
  std::size_t out = 1;
};

Unit unit_of(DType from, DType to) {
  if (const BlockSize block = block_size(from); block.elements != 0) {
    return {block.elements, block.bytes, block.elements * sizeof(float)};
  }
  if (const BlockSize block = block_size(to); block.elements != 0) {
    return {block.elements, std::size_t{block.elements} * element_size(from), block.bytes};
  }
  return {1, element_size(from), element_size(to)};
}

/// The step that all recoded leaves refer to. A leaf has the number of its base leaf.
struct RecodeStep {
  Snapshot base;
  std::vector<Recoding> leaves;
  std::unique_ptr<SharedDifferences[]> differences;  // of each encoded leaf, measured when it was last read

  bool encodes(std::size_t leaf) const { return leaves[leaf].encode != nullptr; }
  Unit unit(std::size_t leaf) const { return unit_of(base.leaf(leaf).dtype(), leaves[leaf].to); }
  /// Recodes whole units; the first one begins at element `first`.
  Status run(std::size_t leaf, std::span<const std::byte> in, std::uint64_t first, std::byte* out,
             Differences& differences) const;
};

Status decode_integers(const IntegerCoding& coding, DType from, std::span<const std::byte> in, std::uint64_t first,
                       std::byte* out) {
  return each_batch(from, in, first, [&](std::span<double> numbers) -> Status {
    coding.decode(numbers, first);
    const auto* doubles = reinterpret_cast<const std::byte*>(numbers.data());
    const ConvertOutcome outcome = convert(DType::f64, doubles, DType::f32, out, numbers.size());
    if (outcome.status != ConvertStatus::ok) return convert_error(outcome, DType::f64, DType::f32, first);
    out += numbers.size() * sizeof(float);
    first += numbers.size();
    return {};
  });
}

/// Number of floats encoded or decoded at a time; a multiple of every block size.
constexpr std::size_t floats_at_once = 2048;

void decode_any(DType from, std::span<const std::byte> in, std::byte* out) {
  const BlockSize block = block_size(from);
  const std::size_t blocks = in.size() / block.bytes;
  if (reinterpret_cast<std::uintptr_t>(out) % alignof(float) == 0) {
    return decode_blocks(from, in.data(), reinterpret_cast<float*>(out), blocks);
  }
  float numbers[floats_at_once];
  const std::size_t max_blocks = floats_at_once / block.elements;
  for (std::size_t done = 0; done < blocks; done += max_blocks) {
    const std::size_t n = std::min(max_blocks, blocks - done);
    decode_blocks(from, in.data() + done * block.bytes, numbers, n);
    std::memcpy(out + done * block.elements * sizeof(float), numbers, n * block.elements * sizeof(float));
  }
}

}  // namespace

Status encode_integers(const Recoding& recoding, DType from, std::span<const std::byte> in, std::uint64_t first,
                       std::byte* out, Differences& differences) {
  return each_batch(from, in, first, [&](std::span<double> numbers) -> Status {
    for (const double x : numbers) {
      const double code = recoding.integers->encode(x);
      *out++ = static_cast<std::byte>(static_cast<unsigned>(code));
      differences.add(recoding.integers->decode(code) - x);
    }
    return {};
  });
}

Status encode_whole_blocks(const Recoding& recoding, DType from, std::span<const std::byte> in, std::uint64_t first,
                           std::byte* out, Differences& differences) {
  const DType to = recoding.to;
  const BlockSize block = block_size(to);
  const std::size_t size = element_size(from);
  float numbers[floats_at_once];
  float decoded[floats_at_once];
  for (std::size_t left = in.size() / size; left != 0;) {
    const std::size_t n = std::min(left, floats_at_once);
    const ConvertOutcome outcome =
        convert(from, in.data() + in.size() - left * size, DType::f32, reinterpret_cast<std::byte*>(numbers), n);
    if (outcome.status != ConvertStatus::ok) return convert_error(outcome, from, DType::f32, first);
    const std::size_t blocks = n / block.elements;
    if (const std::size_t bad = encode_blocks(to, numbers, out, blocks); bad != n) {
      return Error(Errc::out_of_range, "the tensor has a number that is not finite, and cannot be quantized")
          .found("element " + std::to_string(first + bad));
    }
    decode_blocks(to, out, decoded, blocks);
    for (std::size_t i = 0; i < n; ++i) {
      if (!std::isfinite(decoded[i])) {
        return Error(Errc::out_of_range, "the tensor has a number that is too large for its block's scale")
            .expected("a scale in the range of f16")
            .found("element " + std::to_string(first + i));
      }
      differences.add(static_cast<double>(decoded[i]) - static_cast<double>(numbers[i]));
    }
    out += blocks * block.bytes;
    first += n;
    left -= n;
  }
  return {};
}

namespace {

Status RecodeStep::run(std::size_t leaf, std::span<const std::byte> in, std::uint64_t first, std::byte* out,
                       Differences& found) const {
  const DType from = base.leaf(leaf).dtype();
  const Recoding& recoding = leaves[leaf];
  if (encodes(leaf)) return recoding.encode(recoding, from, in, first, out, found);
  if (recoding.integers) return decode_integers(*recoding.integers, from, in, first, out);
  decode_any(from, in, out);
  return {};
}

/// Recodes pieces, which may end inside a unit. The pieces that it passes on are multiples of 64 bytes.
class RecodeSink final : public PieceSink {
 public:
  RecodeSink(const RecodeStep& step, std::size_t leaf, PieceSink& next, ReadContext& context)
      : step_(step), leaf_(leaf), unit_(step.unit(leaf)), next_(next), staging_(context) {
    std::size_t group = 1;
    while (group * unit_.out % 64 != 0) group *= 2;
    group_in_ = group * unit_.in;
  }
  Status piece(std::span<const std::byte> bytes) override {
    if (kept_ != 0) {
      bytes = keep(bytes);
      if (kept_ != group_in_) return {};
      kept_ = 0;
      STELE_TRY(recode(partial_.span().first(group_in_)));
    }
    const std::size_t whole = bytes.size() / group_in_ * group_in_;
    STELE_TRY(recode(bytes.first(whole)));
    keep(bytes.subspan(whole));
    return {};
  }
  Status finish() { return recode(partial_.span().first(kept_)); }
  const Differences& differences() const { return differences_; }

 private:
  /// Moves bytes from the front of `bytes` to the partial group, and returns the rest.
  std::span<const std::byte> keep(std::span<const std::byte> bytes) {
    if (bytes.empty()) return bytes;
    if (partial_.empty()) partial_ = Bytes(group_in_);
    const std::size_t n = std::min(group_in_ - kept_, bytes.size());
    std::memcpy(partial_.data() + kept_, bytes.data(), n);
    kept_ += n;
    return bytes.subspan(n);
  }
  Status recode(std::span<const std::byte> bytes) {
    const std::size_t groups = ReadContext::piece_size / std::max(group_in_, group_in_ / unit_.in * unit_.out);
    while (!bytes.empty()) {
      const auto now = bytes.first(std::min(bytes.size(), groups * group_in_));
      const std::size_t size = now.size() / unit_.in * unit_.out;
      std::byte* to = next_.place(done_, size);
      if (to == nullptr) to = staging_.data();
      STELE_TRY(step_.run(leaf_, now, done_ / unit_.out * unit_.elements, to, differences_));
      STELE_TRY(next_.piece({to, size}));
      done_ += size;
      bytes = bytes.subspan(now.size());
    }
    return {};
  }

  const RecodeStep& step_;
  std::size_t leaf_;
  Unit unit_;
  PieceSink& next_;
  ReadContext::Piece staging_;
  std::size_t group_in_ = 0;  // size of the fewest units that give a multiple of 64 bytes
  Bytes partial_;             // an incomplete group
  std::size_t kept_ = 0;
  std::uint64_t done_ = 0;  // bytes passed on
  Differences differences_;
};

Status recoded_stream(const void* at, std::uint64_t number, std::uint64_t, PieceSink& sink, ReadContext& context) {
  const auto& step = *static_cast<const RecodeStep*>(at);
  const auto leaf = static_cast<std::size_t>(number);
  RecodeSink recoding(step, leaf, sink, context);
  STELE_TRY(step.base.leaf(leaf).stream(recoding, context));
  STELE_TRY(recoding.finish());
  if (step.differences != nullptr) step.differences[leaf].set(recoding.differences());
  return {};
}

Status recoded_read(const void* at, std::uint64_t number, std::uint64_t offset, std::span<std::byte> out,
                    ReadContext& context) {
  const auto& step = *static_cast<const RecodeStep*>(at);
  const auto leaf = static_cast<std::size_t>(number);
  const LeafView base = step.base.leaf(leaf);
  const Unit unit = step.unit(leaf);
  const std::size_t max_units = ReadContext::piece_size / std::max(unit.in, unit.out);
  ReadContext::Piece in(context);
  ReadContext::Piece whole(context);  // units of which only a part is read
  Differences differences;
  while (!out.empty()) {
    const std::uint64_t first = offset / unit.out;
    const auto skipped = static_cast<std::size_t>(offset % unit.out);
    const std::size_t n = std::min(max_units, (skipped + out.size() + unit.out - 1) / unit.out);
    STELE_TRY(base.read(first * unit.in, {in.data(), n * unit.in}, context));
    const bool direct = skipped == 0 && n * unit.out <= out.size();
    STELE_TRY(step.run(leaf, {in.data(), n * unit.in}, first * unit.elements, direct ? out.data() : whole.data(),
                       differences));
    const std::size_t size = std::min(n * unit.out - skipped, out.size());
    if (!direct) std::memcpy(out.data(), whole.data() + skipped, size);
    out = out.subspan(size);
    offset += size;
  }
  return {};
}

void recoded_needs(const void* at, std::uint64_t number, Needs& needs) {
  needs.add(static_cast<const RecodeStep*>(at)->base.leaf(static_cast<std::size_t>(number)));
}

constexpr LeafOps recoded_ops{.read = recoded_read, .stream = recoded_stream, .needs = recoded_needs};

/// Replaces the annotation `quantization`; a null `note` removes it.
void set_note(SnapshotData& data, LeafData& leaf, Value note) {
  if (leaf.extra == no_index) {
    if (note.is_null()) return;
    leaf.extra = static_cast<std::uint32_t>(data.extras.size());
    data.extras.emplace_back();
  }
  LeafExtra& extra = data.extras[leaf.extra];
  auto notes = extra.annotations ? std::make_unique<Annotations>(*extra.annotations) : std::make_unique<Annotations>();
  notes->erase(std::string(quantization_key));
  if (!note.is_null()) notes->emplace(quantization_key, std::move(note));
  if (notes->empty()) notes.reset();
  extra.annotations = std::move(notes);
}

}  // namespace

Snapshot recoded(const Snapshot& snapshot, std::vector<Recoding> leaves) {
  auto data = derived_data(snapshot);
  auto step = std::make_shared<RecodeStep>(RecodeStep{snapshot, std::move(leaves), nullptr});
  for (std::size_t i = 0; i < data->leaves.size(); ++i) {
    const Recoding& recoding = step->leaves[i];
    if (recoding.to == DType::none) continue;
    LeafData& leaf = data->leaves[i];
    const Unit unit = step->unit(i);
    leaf.bytes = leaf.bytes / unit.in * unit.out;
    leaf.dtype = recoding.to;
    leaf.provider = {&recoded_ops, step.get(), i};
    Value note;
    if (step->encodes(i)) {
      if (step->differences == nullptr) step->differences = std::make_unique<SharedDifferences[]>(data->leaves.size());
      if (recoding.integers) {
        note = Value(Value::Map{{"scheme", Value("linear")},
                                {"bits", Value(std::int64_t{recoding.integers->bits})},
                                {"min", Value(recoding.integers->low)},
                                {"max", Value(recoding.integers->high)}});
      }
    }
    set_note(*data, leaf, std::move(note));
  }
  data->keepers.push_back(std::move(step));
  return Snapshot(std::shared_ptr<const SnapshotData>(std::move(data)));
}

namespace {

/// Returns the step if it encodes the leaf; else null.
const RecodeStep* encoder_of(const LeafView& leaf) noexcept {
  if (leaf.provider().ops != &recoded_ops) return nullptr;
  const auto* step = static_cast<const RecodeStep*>(leaf.provider().at);
  return step->encodes(static_cast<std::size_t>(leaf.provider().number)) ? step : nullptr;
}

}  // namespace

bool is_encoded(const LeafView& leaf) noexcept { return encoder_of(leaf) != nullptr || composites::is_encoded(leaf); }

void add_quantized_rows(const Snapshot& snapshot, Report& report) {
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    if (composites::is_encoded(leaf)) composites::add_encoded_row(leaf, report);
    const RecodeStep* const step = encoder_of(leaf);
    if (step == nullptr || leaf.size() == 0) continue;
    const auto number = static_cast<std::size_t>(leaf.provider().number);
    const std::string from(name(step->base.leaf(number).dtype()));
    const auto& integers = step->leaves[number].integers;
    char text[160];
    if (integers) {
      std::snprintf(text, sizeof text, "%s -> %u bits in [%g, %g]", from.c_str(), integers->bits, integers->low,
                    integers->high);
    } else {
      std::snprintf(text, sizeof text, "%s -> %s", from.c_str(), std::string(name(leaf.dtype())).c_str());
    }
    report.add(Report::What::quantized, leaf.path(), text + step->differences[number].get().text(leaf.size()));
  }
}

}  // namespace stele::inline v0::detail
