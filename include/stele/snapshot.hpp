// Snapshot: a type-erased record: flat arrays of nodes in declaration order. A leaf has a dtype, a shape, a length and
// the functions that read its bytes; data is read on first use. Formats, transforms and the two walks exchange
// Snapshots.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stele/bytes.hpp"
#include "stele/dtype.hpp"
#include "stele/executor.hpp"
#include "stele/node.hpp"
#include "stele/param.hpp"
#include "stele/precision/convert.hpp"
#include "stele/precision/settings.hpp"
#include "stele/result.hpp"
#include "stele/shape.hpp"

namespace stele::inline v0 {

class Source;
class Value;  // stele/value.hpp
namespace detail {
class UncachedReads;  // src/leaves/uncached_reads.hpp
}  // namespace detail

/// Returns "tensor", "list", …
STELE_EXPORT std::string_view name(NodeKind kind) noexcept;

/// A node; its subtree is the range from its own number up to `end` (exclusive).
struct Node {
  const char* name = nullptr;   // path segment without escapes; null for elements of lists, arrays and tuples
  std::uint32_t name_size = 0;  // or the element's number if `name` is null
  NodeKind kind = NodeKind::none;
  bool conditional = false;  // inside an optional, pointer, variant, list or map, so its presence carries information
  std::uint32_t parent = no_index;
  std::uint32_t end = 0;
  std::uint32_t index = no_index;  // tensor: leaf; value: value; alias: target node; container: type, or no_index
};
static_assert(sizeof(void*) != 8 || sizeof(Node) == 32);

/// Consumes the bytes of a leaf, in order, piece by piece. The size of every piece except the last is a multiple of 64
/// bytes. A leaf in memory is one piece; other pieces have at most ReadContext::piece_size bytes.
class STELE_EXPORT PieceSink {
 public:
  virtual ~PieceSink() = default;
  /// Returns memory of `size` bytes into which the next piece can be read directly (it is then passed to piece() from
  /// there), or nullptr. Avoids a copy.
  virtual std::byte* place(std::uint64_t offset, std::size_t size) {
    static_cast<void>(offset), static_cast<void>(size);
    return nullptr;
  }
  /// Returns at least `size` bytes of memory, or nothing. The next pieces may then be consecutive parts of it, from any
  /// offset on.
  virtual std::span<std::byte> room(std::size_t size) {
    static_cast<void>(size);
    return {};
  }
  virtual Status piece(std::span<const std::byte> bytes) = 0;
};

/// Working memory of one save or load: a staging piece for each step of a chain, and a window over the source, so that
/// many small leaves need few system calls. Not thread-safe.
class STELE_EXPORT ReadContext {
 public:
  /// Number of bytes that are read, converted or hashed at a time; fits the second-level cache (performance.md).
  static constexpr std::size_t piece_size = std::size_t{256} << 10;
  ReadContext() noexcept = default;
  /// For a load that may use several threads.
  explicit ReadContext(const detail::Workers& workers) noexcept : workers_(workers) {}
  const detail::Workers& workers() const noexcept { return workers_; }
  /// A staging piece of piece_size bytes, valid during the lifetime of the returned object.
  class Piece {
   public:
    explicit Piece(ReadContext& context) : context_(context), bytes_(context.acquire()) {}
    ~Piece() { context_.free_.push_back(std::move(bytes_)); }
    Piece(const Piece&) = delete;
    Piece& operator=(const Piece&) = delete;
    std::byte* data() noexcept { return bytes_.data(); }

   private:
    ReadContext& context_;
    Bytes bytes_;
  };
  /// Returns `size` bytes of `source` that start at `offset`, and reads ahead if leaves are close together. Valid until
  /// the next call. Errors: invalid_argument (more than piece_size), truncated, io.
  Result<std::span<const std::byte>> window(const Source& source, std::uint64_t offset, std::size_t size);
  /// Large leaves are now read past the system's cache of files, as far as they are not in it. Throws std::bad_alloc.
  void bypass_cache();
  /// Null without bypass_cache().
  detail::UncachedReads* uncached() const noexcept { return uncached_.get(); }
  /// Returns at least `size` bytes that remain allocated for later leaves, in one of two blocks: 0 or 1 (any other
  /// number throws std::out_of_range).
  std::byte* memory(std::size_t block, std::size_t size);

 private:
  Bytes acquire();
  detail::Workers workers_;
  std::shared_ptr<detail::UncachedReads> uncached_;
  std::vector<Bytes> free_;
  std::array<Bytes, 2> memory_;
  Bytes window_;
  const Source* window_source_ = nullptr;
  std::uint64_t window_offset_ = 0;
  std::size_t window_size_ = 0;
};

/// The location of a leaf that is stored in a Source as elements in row-major, little-endian order.
struct SourceRange {
  const Source* source = nullptr;
  std::uint64_t offset = 0;
  std::uint64_t zeros = 0;  // padding bytes after it that must be zero; fewer than 64 KiB
  std::uint64_t hash = 0;   // hash of its bytes, if `hashed`: XXH3-64, or the result of `crc`
  bool hashed = false;
  detail::Crc32 crc = nullptr;
};

struct LeafOps;
namespace detail {
class Needs;  // src/leaves/needs.hpp
}  // namespace detail

struct Provider {
  const LeafOps* ops = nullptr;
  const void* at = nullptr;
  std::uint64_t number = 0;
};

/// The stored elements of an expanded tensor (a stride of 0): each once, in any order.
struct StoredOnce {
  Provider provider;
  std::uint64_t count = 0;
};

/// Functions that read a leaf's bytes: one static table per kind of leaf, with two words that identify the leaf (`at`,
/// `number`). A leaf stored in a Source needs only `locate`; a computed leaf needs `read`.
struct LeafOps {
  /// Returns the whole leaf if it is contiguous in memory, else nullptr.
  const std::byte* (*view)(const void* at, std::uint64_t number) = nullptr;
  /// Fills `out` with the bytes that start at `offset` (the caller has checked the range; both are multiples of the
  /// element size).
  Status (*read)(const void* at, std::uint64_t number, std::uint64_t offset, std::span<std::byte> out,
                 ReadContext& context) = nullptr;
  /// Passes the whole leaf (`size` bytes) to `sink`, and verifies it as far as possible (checksum, padding). If absent,
  /// view() or read() by pieces is used.
  Status (*stream)(const void* at, std::uint64_t number, std::uint64_t size, PieceSink& sink,
                   ReadContext& context) = nullptr;
  /// Replaces the three functions above.
  SourceRange (*locate)(const void* at, std::uint64_t number) = nullptr;
  bool in_module = false;  // `at` is an existing tensor, `number` its detail::TensorOps
  /// How a file stores the elements if it does not store them unchanged: "zstd", "text".
  const char* encoding = nullptr;
  /// Adds the leaves that this one is computed from, for sources that read ahead.
  void (*needs)(const void* at, std::uint64_t number, detail::Needs& needs) = nullptr;
  /// Returns the XXH3-64 of the elements in little-endian order, if the leaf's file stores it and it has no locate().
  std::uint64_t (*hash)(const void* at, std::uint64_t number) = nullptr;
  /// Returns the elements of an expanded tensor; a count of 0 for other leaves.
  StoredOnce (*once)(const void* at, std::uint64_t number) = nullptr;
};

using Annotations = std::map<std::string, Value>;

namespace detail {

struct SnapshotData;

}  // namespace detail

/// A leaf of a Snapshot (untyped). Valid during the lifetime of the Snapshot's data, which a leaf of a temporary
/// Snapshot shares.
class STELE_EXPORT LeafView {
 public:
  /// `leaf` must be less than the number of leaves (not checked).
  LeafView(const detail::SnapshotData& data, std::uint32_t leaf) noexcept : data_(&data), leaf_(leaf) {}
  LeafView(std::shared_ptr<const detail::SnapshotData> data, std::uint32_t leaf) noexcept
      : data_(data.get()), leaf_(leaf), shared_(std::move(data)) {}
  DType dtype() const noexcept;
  std::span<const Extent> shape() const noexcept;
  std::uint64_t byte_size() const noexcept;
  /// Returns the number of elements.
  std::uint64_t size() const noexcept;
  std::optional<ParamId> id() const noexcept;
  /// Returns format-specific annotations (scale, scheme, …), or nullptr.
  const Annotations* annotations() const noexcept;
  /// Returns the path as text.
  std::string path() const;
  /// Returns the number of the leaf's node.
  std::uint32_t node() const noexcept;
  /// Returns the bytes if they are in memory, else an empty span; host byte order, row-major.
  std::span<const std::byte> view() const noexcept;
  /// Reads bytes of the leaf from `offset` on. Does not verify the checksum, which covers only the whole leaf. Errors:
  /// truncated (outside the leaf), invalid_argument (`offset` or the size of `out` is not a multiple of the element
  /// size), io, out_of_range (a converted leaf).
  Status read(std::uint64_t offset, std::span<std::byte> out) const;
  Status read(std::uint64_t offset, std::span<std::byte> out, ReadContext& context) const;
  /// Passes all bytes to `sink`, and verifies them. Errors: io, checksum, out_of_range, those of `sink`.
  Status stream(PieceSink& sink, ReadContext& context) const;
  const Provider& provider() const noexcept;
  /// Returns the location of the elements in a Source that stores them unchanged; nullopt for other leaves.
  std::optional<SourceRange> location() const;
  /// Returns how a file stores the elements: "zstd", "text"; empty for a leaf that has a location(), is in memory, or
  /// is computed.
  std::string_view encoding() const noexcept;

 private:
  const detail::SnapshotData* data_;
  std::uint32_t leaf_;
  std::shared_ptr<const detail::SnapshotData> shared_;  // set for a leaf of a temporary Snapshot
};

/// The kinds of containers that a file leaves uncertain.
struct UnknownKinds {
  bool all = false;   // the file has no kinds: a list may be a map or a module, and empty containers are absent
  bool maps = false;  // a map may also be a module, if one of the module's members is absent from the file
};

/// An untyped record. Immutable; copies share the data. Results of members of a temporary Snapshot share its data, are
/// copies, or do not compile.
class STELE_EXPORT Snapshot {
 public:
  Snapshot();
  /// If `data` is null, the Snapshot is empty.
  explicit Snapshot(std::shared_ptr<const detail::SnapshotData> data);

  std::span<const Node> nodes() const& noexcept;
  std::span<const Node> nodes() const&& = delete;
  std::size_t leaf_count() const noexcept;
  /// Returns leaf `i`, which must be less than leaf_count() (not checked).
  LeafView leaf(std::size_t i) const& noexcept { return {*data_, static_cast<std::uint32_t>(i)}; }
  LeafView leaf(std::size_t i) && noexcept { return {std::move(data_), static_cast<std::uint32_t>(i)}; }
  /// Returns leaf `i`, counted in the file's order. Errors: not_found.
  Result<LeafView> checked_leaf(std::size_t i) const&;
  Result<LeafView> checked_leaf(std::size_t i) &&;
  /// Returns the leaf with this path, following aliases; nullopt if there is none. Walks along the path if names are
  /// nested, and over all names of a flat file.
  std::optional<LeafView> find(std::string_view path) const&;
  std::optional<LeafView> find(std::string_view path) &&;
  /// Returns the path of a node as text: segments joined by '.', escaped (design: paths). Empty for an invalid number.
  std::string path(std::uint32_t node) const;
  /// Returns the value of one of nodes(); null for a node that is not a value.
  const Value& value(const Node& node) const& noexcept;
  const Value& value(const Node& node) const&& = delete;
  std::string_view type_name(const Node& node) const& noexcept;
  std::string_view type_name(const Node& node) const&& = delete;
  std::uint32_t version(const Node& node) const noexcept;
  const std::map<std::string, std::string>& metadata() const& noexcept;
  std::map<std::string, std::string> metadata() &&;
  /// Returns the typed properties of a model, such as GGUF's key-value pairs: an ordered map, or null. Its strings are
  /// also in metadata(). Formats without typed properties store them in their metadata, under the key
  /// `stele.properties`; formats without metadata lose them.
  const Value& properties() const& noexcept;
  Value properties() &&;
  /// Returns sentences about parts of the file that were not understood, and stay as they are.
  const std::vector<std::string>& notes() const& noexcept;
  std::vector<std::string> notes() &&;
  /// Returns true if the names are whole paths, as in flat files.
  bool flat() const noexcept;
  UnknownKinds unknown_kinds() const noexcept;
  /// Returns true if the leaves should be read sequentially, in the order of the nodes.
  bool in_order() const noexcept;
  /// Returns the properties that the file's own format needs to write an equal file and that no other format stores, by
  /// name.
  const std::map<std::string, std::string>& origin() const& noexcept;
  std::map<std::string, std::string> origin() &&;
  /// For internal use.
  const std::shared_ptr<const detail::SnapshotData>& data() const noexcept { return data_; }
  /// Returns the total number of bytes of all leaves.
  std::uint64_t byte_size() const noexcept;
  /// Announces that all leaves will be read, to sources that read ahead.
  void will_read() const;

 private:
  std::shared_ptr<const detail::SnapshotData> data_;
};

/// Appends a segment to a path, escaped: `\` and `.` become `\\` and `\.`, an empty segment `\e`.
STELE_EXPORT void append_segment(std::string& path, std::string_view segment);

/// Builds a Snapshot node by node, in declaration order. Formats use it when they open a file.
class STELE_EXPORT SnapshotBuilder {
 public:
  SnapshotBuilder();
  ~SnapshotBuilder();
  SnapshotBuilder(SnapshotBuilder&&) noexcept;
  SnapshotBuilder& operator=(SnapshotBuilder&&) noexcept;

  /// Reserves memory, so that no array grows while building.
  void reserve(std::size_t nodes, std::size_t leaves, std::size_t extents);
  /// Declares that all following names are whole paths (an element's number is one too); containers have no members.
  void set_flat();
  /// Returns a copy of `name` that exists as long as the Snapshot.
  std::string_view intern(std::string_view name);
  /// Keeps an object alive as long as the Snapshot: a source, or memory that names point into.
  void keep(std::shared_ptr<const void> thing);

  using Name = NodeName;
  // `name` must outlive the Snapshot: a literal, intern()ed, or inside a kept object. Each returns the node's number.
  std::uint32_t begin(NodeKind kind, Name name, bool conditional = false, std::string_view type = {},
                      std::uint32_t version = 0);
  /// Ends the innermost open container; does nothing if none is open.
  void end();
  std::uint32_t tensor(Name name, DType dtype, std::span<const Extent> shape, std::uint64_t bytes, Provider provider,
                       bool conditional = false);
  std::uint32_t value(Name name, Value value, bool conditional = false);
  std::uint32_t none(Name name, bool conditional = false);
  std::uint32_t alias(Name name, std::uint32_t target, bool conditional = false);
  /// Changes the kind of a container.
  void set_kind(std::uint32_t node, NodeKind kind) noexcept;
  /// Sets the id of the last tensor, or adds an annotation to it; does nothing if there is none.
  void set_id(const ParamId& id);
  void annotate(std::string key, Value value);
  void set_metadata(std::map<std::string, std::string> metadata);
  void set_properties(Value properties);
  /// Sets a property that the file's own format needs to write an equal file. Other formats ignore it.
  void set_origin(std::string key, std::string value);
  /// Declares that the leaves are slow to read except sequentially, in the order of the nodes; one thread then reads
  /// them in that order.
  void set_in_order();
  /// Declares which kinds of containers the file does not determine; loads decide by the module. Add numbers as
  /// elements.
  void set_unknown_kinds(UnknownKinds kinds);
  /// Provides the order of a flat file's names: every node except the root, sorted by name (bytes). Without it, a load
  /// sorts the names.
  void set_name_order(std::vector<std::uint32_t> nodes);
  /// Bounds the memory of a load: the number of tensor bytes that the file can contain, if its leaves do not show it
  /// (compressed data, text). 0: the sum of the leaves.
  void set_capacity(std::uint64_t bytes);
  Snapshot finish();

  /// Returns the nodes so far.
  std::span<const Node> nodes() const noexcept;
  /// For internal use.
  detail::SnapshotData& data() noexcept { return *data_; }
  /// Returns the container to which nodes are currently added.
  std::uint32_t parent() const noexcept { return open_; }

 private:
  Name checked(Name name);
  Node& push(NodeKind kind, Name name, bool conditional, std::uint32_t index);
  std::unique_ptr<detail::SnapshotData> data_;
  std::uint32_t open_ = no_index;
  std::uint32_t last_type_ = no_index;  // index of the last type
};

/// Stores the tensors at another precision: returns a Snapshot whose leaves are converted piece by piece when they are
/// read. If `floating` is set, quantized tensors become floats again. (quantize() and quantize_blocks() apply
/// `quantized_bits` and `block_rules`.)
STELE_EXPORT Snapshot with_precision(const Snapshot& snapshot, PrecisionSpec precision, ConvertRules rules = {});

/// Returns the Snapshot with this metadata added (replacing equal keys).
STELE_EXPORT Snapshot with_metadata(const Snapshot& snapshot, const std::map<std::string, std::string>& metadata);

/// Returns the Snapshot with these properties (a map; null: none) instead of its own. Strings in metadata() remain, and
/// a save writes both; if they differ, it writes the strings in metadata().
STELE_EXPORT Snapshot with_properties(const Snapshot& snapshot, Value properties);

/// Returns a table of a Snapshot's parameters: path, dtype, shape, elements; and totals.
STELE_EXPORT std::string summary(const Snapshot& snapshot);

}  // namespace stele::inline v0
