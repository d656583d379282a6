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
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "stele/module.hpp"
#include "stele/optimizer_state.hpp"
#include "stele/recorder.hpp"
#include "stele/schema.hpp"
#include "stele/value.hpp"

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
  v0_13,      // elements are numbers, without a dtype; read only
  v0_14,
  v0_16,
  v0_17,  // to 0.19
  v0_20,
  v0_21,  // and later
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

namespace attr {

/// What a class's fields are in Rust, in their order there, where that is more than the recorded fields: files of
/// bincode (.bin) count them, and of the others Burn wants arrays (up to 0.20) and enums among them.
///
///     static constexpr stele::Attribute stele_attributes[] = {
///         stele::attr::burn_layout("weight, bias, stride[2], groups, pool{kernel_size[2], padding}")};
///
/// A name that is a recorded field stands for it. Others are constants, of which a record says nothing: `name` (a
/// number, a text, `PhantomData`, a skipped field, None), `name[n]` (an array of n), `name{…}` (a module without
/// parameters, and what is in it), `name(6 Sigmoid)` (an enum of such, its variant's number and name; also with `{…}`).
constexpr Attribute burn_layout(std::string_view fields) { return {Attribute::Kind::layout, {}, fields, 0}; }
/// The class is a Record in Rust, not a Module: its numbers and texts are in the file, and tensors have no id.
constexpr Attribute burn_record(std::string_view fields = {}) { return {Attribute::Kind::layout, {}, fields, 1}; }

}  // namespace attr

/// What Burn's recorders write. `.mpk` and `.json` say all names; of `.bin` they come from the module (or
/// BurnOptions::schema), and every byte must be used up. Numbers and texts of modules are constants to Burn: a save
/// writes them where names are said, and Burn passes over them; in bincode they are not_representable. ParamIds are
/// kept; a tensor without one gets one that follows from its path, which is no id when it is loaded here again.
class STELE_EXPORT BurnFormat final : public Format {
 public:
  explicit BurnFormat(BurnOptions options = {}) : options_(std::move(options)) {}
  /// "burn-mpk", "burn-mpk.gz", "burn-bin", …
  std::string_view name() const noexcept override;
  std::string_view extension() const noexcept override;
  const Capabilities& capabilities() const noexcept override;
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  /// In bincode: numbers and texts of modules, metadata, and what the class does not have.
  Result<std::vector<Loss>> losses(const Snapshot& snapshot, std::string_view file) const override;
  Result<Report> verify(SourcePtr source, const OpenContext& context) const override;
  Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const override;
  const BurnOptions& options() const noexcept { return options_; }

 private:
  BurnOptions options_;
};

/// What a record says of itself: Rust's names of the element types and of the recorder, Burn's version, the settings.
struct BurnHeading {
  std::string floats{}, ints{}, format{}, version{}, settings{};
};
/// Of a record of Burn's that was opened; nothing of other snapshots.
STELE_EXPORT std::optional<BurnHeading> burn_heading(const Snapshot& opened);

struct BurnpackOptions {
  /// Of a save: Burn reads bools as its own release spells them, v0_17 to v0_20 or v0_21. Automatic: as a pack of
  /// Burn's that is converted, else v0_21.
  BurnEra era = BurnEra::automatic;
};

/// Burnpack, version 1. Names are whole paths; numbers and bools are its scalars; other values, ties and empty lists
/// stand in the metadata (docs/formats/flat.md).
class STELE_EXPORT BurnpackFormat final : public Format {
 public:
  explicit BurnpackFormat(BurnpackOptions options = {}) noexcept : options_(options) {}
  std::string_view name() const noexcept override { return "burnpack"; }
  std::string_view extension() const noexcept override { return ".bpk"; }
  const Capabilities& capabilities() const noexcept override;
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const override;

 private:
  BurnpackOptions options_;
};

/// Burn's settings: they say the width of integers, too. A Burn program reads files of any precision; it makes floats
/// and integers those of its own settings first, without a check.
struct BurnFullPrecision {
  using Float = float;
  using Int = std::int32_t;
};
struct BurnHalfPrecision {
  using Float = float16;
  using Int = std::int16_t;
};
struct BurnDoublePrecision {
  using Float = double;
  using Int = std::int64_t;
};

template <PrecisionSettings Settings = NativePrecision>
using BurnRecorder = Recorder<BurnFormat, Settings>;
template <PrecisionSettings Settings = NativePrecision>
using BurnpackRecorder = Recorder<BurnpackFormat, Settings>;

/// What Burn's optimizers keep for each parameter, by the names that the fields of a state have in Rust:
/// "momentum.moment_1" of Adam, "momentum.velocity" of SGD, …
struct BurnOptimizer {
  OptimizerState state{};
  /// What is no tensor, by field and by the parameter's path: "momentum.time" → "layers.0.weight" → 1. Null: an Option
  /// that is None. (Burnpack leaves it out.)
  std::map<std::string, std::map<std::string, Value>> values{};
  /// The fields in Rust's order; those that are not named here are written behind.
  std::vector<std::string> fields{};
};

/// Of an opened optimizer's record: of a recorder (of `.bin` with BurnOptions::schema, see BurnOptimizerRecord), or
/// Burnpack. Nothing is read yet. `model` says which parameter has which id: an opened file, or snapshot_of a live
/// module. Errors: not_found (an id that no parameter has), shape_mismatch (the state of a parameter of another rank),
/// malformed, duplicate.
STELE_EXPORT Result<BurnOptimizer> burn_optimizer(const Snapshot& record, const Snapshot& model);

/// What a BurnRecorder writes for Burn's optimizers, up to 0.21. Parameters without state are left out. Errors:
/// not_found (a path that the model does not have), shape_mismatch, duplicate (a tensor and a value), not_representable
/// (names that no fields have).
STELE_EXPORT Result<Snapshot> burn_optimizer_record(const BurnOptimizer& optimizer, const Snapshot& model);
/// What a BurnpackRecorder writes for those of 0.22. Errors: the same; not_representable (an id that is a UUID).
STELE_EXPORT Result<Snapshot> burnpack_optimizer_record(const BurnOptimizer& optimizer, const Snapshot& model);

/// One state, as a record up to 0.21 has it: the version, and in it the rank of the parameter.
template <class State>
using BurnRanked = std::variant<State, State, State, State, State, State, State, State, State>;
/// An optimizer's record for `.bin`, which says no names:
///
///     struct Moments {
///       std::uint64_t time;
///       stele::Tensor<float> moment_1, moment_2;
///       std::optional<stele::Tensor<float>> max_moment_2;
///       STELE_MODULE(Moments, time, moment_1, moment_2, max_moment_2)
///       static constexpr stele::Attribute stele_attributes[] = {stele::attr::burn_record()};
///     };
///     struct Adam {
///       Moments momentum;
///       static constexpr stele::Attribute stele_attributes[] = {stele::attr::burn_record()};
///     };
///     const BurnFormat format({.encoding = BurnEncoding::bin, .schema = schema_of<BurnOptimizerRecord<Adam>>()});
template <class State>
using BurnOptimizerRecord = std::map<std::string, std::variant<BurnRanked<State>>>;

template <class State>
struct attributes<BurnRanked<State>> {
  static constexpr Attribute list[] = {
      attr::alternative(0, "Rank0"), attr::alternative(1, "Rank1"), attr::alternative(2, "Rank2"),
      attr::alternative(3, "Rank3"), attr::alternative(4, "Rank4"), attr::alternative(5, "Rank5"),
      attr::alternative(6, "Rank6"), attr::alternative(7, "Rank7"), attr::alternative(8, "Rank8")};
};
template <class State>
struct attributes<std::variant<BurnRanked<State>>> {
  static constexpr Attribute list[] = {attr::alternative(0, "V1")};
};

}  // namespace v0
}  // namespace stele
