// An open SameDiff model, in one file or several.
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
#include "container.hpp"
#include "dl4j/arrays_fb.hpp"
#include "encodings/zip/zip.hpp"
#include "manifest.hpp"
#include "stele/checkpoint.hpp"

namespace stele::inline v0::detail::samediff {

/// Returns true if the graph of a FlatBuffer, with shared offsets expanded, takes at most `memory` bytes.
bool graph_fits(std::span<const std::byte> buffer, std::uint64_t memory);

/// Reads the graph of a FlatBuffer, a PlainGraph or a SameDiffGraph. Errors: malformed, unsupported, limit.
template <class Fb>
Result<Graph> read_graph(const Fb& from, Dialect hint, unsigned depth = 0);

/// A FlatBuffer and the arrays after it.
struct Part {
  SourcePtr source;
  std::uint64_t begin = 0;             // offset of the FlatBuffer in the source
  std::span<const std::byte> bytes;    // the FlatBuffer
  std::shared_ptr<const void> keeper;  // owns `bytes`
  Dialect dialect = Dialect::a;
  bool newer = false;       // true if the root is a SameDiffGraph, false if it is a PlainGraph
  std::uint64_t blobs = 0;  // offset of the arrays after the FlatBuffer
  std::map<std::string, ManifestEntry, std::less<>> manifest;
};

/// Calls `visit` with the root of the FlatBuffer, as a SameDiffGraph or PlainGraph.
template <class Visit>
auto with_root(const Part& part, Visit visit) {
  return part.newer ? visit(*flatbuffers::GetRoot<stele_fb::SameDiffGraph>(part.bytes.data()))
                    : visit(*flatbuffers::GetRoot<stele_fb::PlainGraph>(part.bytes.data()));
}

/// Optimizer state by kind, in the file's order of kinds.
struct States {
  std::vector<std::pair<std::string, Arrays>> kinds;
  std::map<std::string, std::size_t> places;  // indexes in `kinds`
};

class Model : public std::enable_shared_from_this<Model> {
 public:
  /// Opens any container, recognized by its content. Finds shards in the same bundle or zip file.
  static Result<std::shared_ptr<Model>> open(const SourcePtr& source, const Limits& limits);
  Result<Checkpoint> checkpoint(bool all);
  /// Returns the directory of an .sdz file, or nullptr for other files.
  const zip::Directory* directory() const noexcept { return directory_.get(); }

 private:
  struct Segment {
    std::uint64_t offset, size;
  };
  struct Stored {
    SourcePtr source;
    ArrayFacts facts;
    std::vector<Segment> segments;  // more than one if chunked
  };
  static const LeafOps whole_ops, chunked_ops;

  bool spend(std::uint64_t bytes) noexcept { return memory_.take(bytes); }
  Status open_fb(SourcePtr source);
  Status open_sdnb(const SourcePtr& source);
  Status open_sdz(const SourcePtr& source);
  Status open_shards(const ShardName& name, const std::function<Result<SourcePtr>(const std::string&)>& open);
  /// Loads a part's FlatBuffer into memory and verifies it.
  Status fetch(Part& part, std::uint64_t size);
  template <class Fb>
  Status add_variables(const Part& part, const Fb& root, Arrays& arrays);
  template <class Fb>
  Status add_states(const Part& part, const Fb& root, States& states);
  Result<const Stored*> find_array(const Part& part, const stele_fb::Array* array, const std::string& name, DType dtype,
                                   const flatbuffers::Vector<std::int64_t>* shape);
  Status add(Arrays& to, const std::string& name, const Stored& array);
  /// Lists the parts of a checkpoint other than parameters.
  void leave_out_rest(Arrays& arrays) const;

  std::shared_ptr<const zip::Directory> directory_;
  std::vector<Part> parts_;  // the first part has the graph
  std::deque<Stored> arrays_;
  std::map<std::string, std::string> missing_;  // variables whose arrays were not found yet
  IndexBudget memory_;
};

}  // namespace stele::inline v0::detail::samediff
