// A SameDiff model that is open, of one file or several.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/limits.hpp"
#include "dl4j/arrays.hpp"
#include "encodings/zip/zip.hpp"
#include "manifest.hpp"
#include "stele/checkpoint.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace samediff {

inline constexpr std::string_view sdnb_magic = "SDNB";
inline constexpr std::size_t sdnb_header = 32;
/// Arrays of this size and more lie behind the FlatBuffer of an .sdnb file (SameDiffSerializer: APPEND_THRESHOLD).
inline constexpr std::uint64_t append_threshold = std::uint64_t{1} << 20;

/// Metadata that the files themselves have: not the user's.
inline constexpr std::string_view own_metadata[] = {"nd4j.format.version", "nd4j.format.type", "shard.index",
                                                    "shard.count", "shard.type"};

/// <base>.shard<index>-of-<count>[.sdnb]
struct ShardName {
  std::string base;
  std::uint32_t index = 0, count = 0;
};
std::optional<ShardName> parse_shard_name(std::string_view file);
std::string shard_name(std::string_view base, std::size_t index, std::size_t count);

/// Whether the graph of a FlatBuffer, whatever its offsets share, takes no more than `memory` bytes.
bool graph_fits(std::span<const std::byte> buffer, std::uint64_t memory);

/// The graph of a FlatBuffer, of the type PlainGraph or SameDiffGraph. Errors: malformed, unsupported, limit.
template <class Fb>
Result<Graph> read_graph(const Fb& from, Dialect hint, unsigned depth = 0);

/// A FlatBuffer and what lies behind it.
struct Part {
  SourcePtr source;
  std::uint64_t begin = 0;             // of the FlatBuffer in the source
  std::span<const std::byte> bytes;    // of it
  std::shared_ptr<const void> keeper;  // of `bytes`
  Dialect dialect = Dialect::a;
  bool newer = false;       // its root is a SameDiffGraph, else a PlainGraph
  std::uint64_t blobs = 0;  // where the arrays behind it begin
  std::map<std::string, ManifestEntry, std::less<>> manifest;
};

/// Optimizer state by kind, in the order in which the file has the kinds.
struct States {
  std::vector<std::pair<std::string, Arrays>> kinds;
  std::map<std::string, std::size_t> places;  // in `kinds`
};

class Model : public std::enable_shared_from_this<Model> {
 public:
  /// Any container, by its content; shards from the same bundle or zip file.
  static Result<std::shared_ptr<Model>> open(const SourcePtr& source, const Limits& limits);
  Result<Checkpoint> checkpoint(bool all);
  /// Of an .sdz file; else nullptr.
  const zip::Directory* directory() const noexcept { return directory_.get(); }

 private:
  struct Segment {
    std::uint64_t offset, size;
  };
  struct Stored {
    SourcePtr source;
    ArrayFacts facts;
    std::vector<Segment> segments;  // more than one: chunks
  };
  static const LeafOps whole_ops, chunked_ops;

  bool spend(std::uint64_t bytes) noexcept { return memory_.take(bytes); }
  Status open_fb(SourcePtr source);
  Status open_sdnb(const SourcePtr& source);
  Status open_sdz(const SourcePtr& source);
  Status open_shards(const ShardName& name, const std::function<Result<SourcePtr>(const std::string&)>& open);
  /// The FlatBuffer of a part, in memory and verified.
  Status fetch(Part& part, std::uint64_t size);
  template <class Fb>
  Status add_variables(const Part& part, const Fb& root, Arrays& arrays);
  template <class Fb>
  Status add_states(const Part& part, const Fb& root, States& states);
  Result<const Stored*> find_array(const Part& part, const stele_fb::Array* array, const std::string& name, DType dtype,
                                   const flatbuffers::Vector<std::int64_t>* shape);
  Status add(Arrays& to, const std::string& name, const Stored& array);

  std::shared_ptr<const zip::Directory> directory_;
  std::vector<Part> parts_;  // the first has the graph
  std::deque<Stored> arrays_;
  std::map<std::string, std::string> missing_;  // variables without an array so far
  IndexBudget memory_;
};

}  // namespace samediff
}  // namespace detail
}  // namespace v0
}  // namespace stele
