// Burn's files (https://burn.dev): those of its recorders up to 0.21 (`.mpk`, `.bin`, `.json`, each also compressed by
// gzip), and Burnpack (`.bpk`). docs/formats/burn.md specifies every byte.
//
// A record, in MessagePack with named fields, JSON or bincode 2 (little-endian, variable-length integers):
//
//  1. metadata: float, int, format, version, settings, five strings: Rust's names of the element types and of the
//     recorder, Burn's version, the name of the precision settings.
//  2. item: the module; structs are maps from field to value, or in bincode the values without gaps.
//  3. `_b`: empty (MessagePack 90, JSON null, bincode nothing).
//
// A parameter:
//
//  4. id: a string of 13 characters.
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

namespace stele::inline v0 {

enum class BurnEncoding : std::uint8_t {
  by_name,  // from the path: .mpk, .bin, .json, each also with .gz; other paths, and memory: MessagePack
  mpk,
  bin,
  json,  // a line for each number, as Burn writes it; without blanks in gzip
};

/// Ranges of Burn releases with equal records.
enum class BurnEra : std::uint8_t {
  automatic,  // on load, the file's version; on save, the version of a converted Burn record, else v0_21
  v0_13,      // elements are numbers, without a dtype; read-only
  v0_14,
  v0_16,
  v0_17,  // 0.17 to 0.19
  v0_20,
  v0_21,  // and later
};

struct BurnOptions {
  BurnEncoding encoding = BurnEncoding::by_name;
  bool gzip = false;  // if `encoding` is not by_name; loads detect it
  BurnEra era = BurnEra::automatic;
  /// The content of a `.bin` file that is opened without a module.
  std::optional<Schema> schema{};
  /// The required settings of a file ("HalfPrecisionSettings"); empty: any. Errors: value_mismatch, which names the
  /// differing parts of float, int, format, version and settings.
  std::string settings{};
};

namespace attr {

/// Declares a class's fields in Rust, in Rust's order, if they are more than the recorded fields. bincode files (.bin)
/// count them; in the other files, Burn requires the arrays (up to 0.20) and enums among them.
///
///     static constexpr stele::Attribute stele_attributes[] = {
///         stele::attr::burn_layout("weight, bias, stride[2], groups, pool{kernel_size[2], padding}")};
///
/// The name of a recorded field refers to that field. Other entries are constants, which records do not store: `name`
/// (a number, a string, `PhantomData`, a skipped field, None), `name[n]` (an array of n), `name{…}` (a module without
/// parameters, and its fields), `name(6 Sigmoid)` (an enum of these, with its variant's number and name; also with
/// `{…}`).
constexpr Attribute burn_layout(std::string_view fields) { return {Attribute::Kind::layout, {}, fields, 0}; }
/// Declares that the class is a Record in Rust, not a Module: the file contains its numbers and strings, and tensors
/// have no id.
constexpr Attribute burn_record(std::string_view fields = {}) { return {Attribute::Kind::layout, {}, fields, 1}; }

}  // namespace attr

/// The files of Burn's recorders. `.mpk` and `.json` store all names. For `.bin`, the names come from the module (or
/// BurnOptions::schema), which must use every byte. Numbers and strings of modules are constants in Burn: a save writes
/// them if the encoding stores names, and Burn ignores them; in bincode they are not_representable. ParamIds are kept.
/// A tensor without an id gets one derived from its path, which does not count as an id when stele loads it again.
class STELE_EXPORT BurnFormat final : public Format {
 public:
  explicit BurnFormat(BurnOptions options = {}) : options_(std::move(options)) {}
  /// Returns "burn-mpk", "burn-mpk.gz", "burn-bin", …
  std::string_view name() const noexcept override;
  std::string_view extension() const noexcept override;
  const Capabilities& capabilities() const noexcept override;
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override;
  Result<Snapshot> open(SourcePtr source, const OpenContext& context) const override;
  /// Returns, for bincode, the numbers and strings of modules, metadata, and everything that is not in the class.
  Result<std::vector<Loss>> losses(const Snapshot& snapshot, std::string_view file) const override;
  Result<Report> verify(SourcePtr source, const OpenContext& context) const override;
  Status write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const override;
  const BurnOptions& options() const noexcept { return options_; }

 private:
  BurnOptions options_;
};

/// A record's header: Rust's names of the element types and of the recorder, Burn's version, the settings.
struct BurnHeader {
  std::string floats{}, ints{}, format{}, version{}, settings{};
};
/// Returns the header of an opened Burn record; nullopt for other snapshots.
STELE_EXPORT std::optional<BurnHeader> burn_header(const Snapshot& opened);

struct BurnpackOptions {
  /// On save: the Burn release whose spelling of bools is used, v0_17 to v0_20 or v0_21; Burn reads only the spelling
  /// of its own release. Automatic: the spelling of a converted Burnpack file written by Burn, else v0_21.
  BurnEra era = BurnEra::automatic;
};

/// Burnpack, version 1. Names are whole paths; numbers and bools are Burnpack's scalars; other values, ties and empty
/// lists are in the metadata (docs/formats/flat.md).
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

/// Burn's settings, which also determine the width of integers. A Burn program reads files of any precision: it first
/// converts floats and integers to the dtypes of its own settings, without a check.
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

/// The state of Burn's optimizers for each parameter, by the names of a state's fields in Rust: "momentum.moment_1" of
/// Adam, "momentum.velocity" of SGD, …
struct BurnOptimizer {
  OptimizerState state{};
  /// Non-tensors, by field and by the parameter's path: "momentum.time" → "layers.0.weight" → 1. Null: an Option that
  /// is None (Burnpack omits it).
  std::map<std::string, std::map<std::string, Value>> values{};
  /// The fields in Rust's order; unlisted fields are written after them.
  std::vector<std::string> fields{};
};

/// Makes the state from an opened optimizer's record, of a recorder (for `.bin` with BurnOptions::schema, see
/// BurnOptimizerRecord) or of Burnpack. Does not read tensors yet. `model` provides the parameters' ids: an opened
/// file, or snapshot_of an existing module. Errors: not_found (an id that no parameter has), shape_mismatch (the state
/// of a parameter with a different rank), malformed, duplicate.
STELE_EXPORT Result<BurnOptimizer> burn_optimizer(const Snapshot& record, const Snapshot& model);

/// Returns the record that a BurnRecorder writes for Burn's optimizers, up to 0.21. Omits parameters without state.
/// Errors: not_found (a path that the model does not have), shape_mismatch, duplicate (a tensor and a value),
/// not_representable (names that cannot be names of fields).
STELE_EXPORT Result<Snapshot> burn_optimizer_record(const BurnOptimizer& optimizer, const Snapshot& model);
/// Returns the record that a BurnpackRecorder writes for the optimizers of Burn 0.22. Errors: those of
/// burn_optimizer_record(); not_representable (an id that is a UUID).
STELE_EXPORT Result<Snapshot> burnpack_optimizer_record(const BurnOptimizer& optimizer, const Snapshot& model);

/// One state in a record of Burn up to 0.21: the version, and in it the rank of the parameter.
template <class State>
using BurnRanked = std::variant<State, State, State, State, State, State, State, State, State>;
/// An optimizer's record for `.bin`, which does not store names:
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

}  // namespace stele::inline v0
