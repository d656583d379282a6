// Burn's files (https://burn.dev): what its recorders wrote up to 0.21 (`.mpk`, `.bin`, `.json`, each also in gzip),
// and Burnpack (`.bpk`). docs/formats/burn.md has every byte.
//
// A record, in MessagePack with named fields, JSON or bincode 2 (little-endian, variable-length integers):
//
//  1. metadata: float, int, format, version, settings, five texts: Rust's names of the element types and of the
//     recorder, Burn's version, the name of the precision settings.
//  2. item: the module; structs are maps from field to value, or in bincode the values one behind the other.
//  3. `_b`: empty (MessagePack 90, JSON null, bincode nothing).
//
// A parameter:
//
//  4. id: text of 13 characters.
//  5. param: bytes (row-major, little-endian; in JSON a list of numbers), shape, dtype.
//
// Burnpack:
//
//  6. "NRUB", u16 1, u32 length of the description, all little-endian.
//  7. The description in CBOR: tensors (name → dtype, shape, data_offsets, param_id), metadata, scalars.
//  8. Zeros up to a multiple of 256; the tensors' bytes, each at such a multiple. (0.19.0: nothing is aligned.)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "stele/module.hpp"
#include "stele/recorder.hpp"
#include "stele/schema.hpp"

namespace stele {
inline namespace v0 {

enum class BurnEncoding : std::uint8_t {
  by_name,  // as the path says: .mpk, .bin, .json, each also with .gz; all others, and memory: MessagePack
  mpk,
  bin,
  json,  // a line for each number, as Burn writes it; in gzip without blanks
};

/// Releases of Burn whose records are alike.
enum class BurnEra : std::uint8_t {
  automatic,  // of a load: what the file's version says; of a save: that of a Burn record that is converted, else v0_21
  v0_13,      // and older: elements are numbers, without a dtype
  v0_14,
  v0_16,
  v0_17,  // to 0.20
  v0_21,
};

struct BurnOptions {
  BurnEncoding encoding = BurnEncoding::by_name;
  bool gzip = false;  // where `encoding` is not by_name; loads see what it is
  BurnEra era = BurnEra::automatic;
  /// What a `.bin` file holds, where it is opened without a module.
  std::optional<Schema> schema{};
  /// What the file's settings must be ("HalfPrecisionSettings"); empty: any. Errors: value_mismatch, which names what
  /// differs of float, int, format, version and settings.
  std::string settings{};
};

/// What a class's fields are in Rust, in their order there, where that is more than the recorded fields: files of
/// bincode (.bin) count them.
///
///     static constexpr stele::Attribute stele_attributes[] = {
///         stele::burn_layout("weight, bias, stride[2], groups, pool{kernel_size[2], padding}")};
///
/// A name that is a recorded field stands for it. Others are constants, of which a record says nothing: `name` (a
/// number, a text, `PhantomData`, a skipped field, None), `name[n]` (an array of n), `name{…}` (a module without
/// parameters, and what is in it). Recorded fields that are not named are not in the file.
constexpr Attribute burn_layout(std::string_view fields) { return {Attribute::Kind::layout, {}, fields, 0}; }
/// The class is a Record in Rust, not a Module: its numbers and texts are in the file, and tensors have no id.
constexpr Attribute burn_record(std::string_view fields = {}) { return {Attribute::Kind::layout, {}, fields, 1}; }

/// What Burn's recorders write. `.mpk` and `.json` say all names; of `.bin` they come from the module (or
/// BurnOptions::schema), and every byte must be used up. Constants and numbers of modules: a save writes what it has
/// where names are said, and nothing in bincode; Burn passes over them. ParamIds are kept; a tensor without one gets
/// one that follows from its path.
class STELE_EXPORT BurnFormat final : public Format {
 public:
  explicit BurnFormat(BurnOptions options = {}) : options_(std::move(options)) {}
  /// "burn-mpk", "burn-mpk.gz", "burn-bin", …
  std::string_view name() const noexcept override;
  std::string_view extension() const noexcept override;
  const Capabilities& capabilities() const noexcept override;
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const override;
  const BurnOptions& options() const noexcept { return options_; }

 private:
  BurnOptions options_;
};

/// Burnpack, version 1. Names are whole paths; numbers and bools are its scalars; other values, ties and empty lists
/// stand in the metadata (docs/formats/flat.md).
class STELE_EXPORT BurnpackFormat final : public Format {
 public:
  std::string_view name() const noexcept override { return "burnpack"; }
  std::string_view extension() const noexcept override { return ".bpk"; }
  const Capabilities& capabilities() const noexcept override;
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const override;
};

template <PrecisionSettings Settings = NativePrecision>
using BurnRecorder = Recorder<BurnFormat, Settings>;
template <PrecisionSettings Settings = NativePrecision>
using BurnpackRecorder = Recorder<BurnpackFormat, Settings>;

}  // namespace v0
}  // namespace stele
