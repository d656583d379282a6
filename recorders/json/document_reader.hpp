// Reads JSON into a Snapshot. Parses the document's skeleton; the data stay in the source.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/limits.hpp"
#include "json/json.hpp"
#include "leaves.hpp"
#include "snapshot/data.hpp"
#include "stele/param.hpp"
#include "stele/snapshot.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail::json {

/// Reads one document.
class DocumentReader {
 public:
  DocumentReader(SourcePtr source, const Limits& limits);
  Result<Snapshot> run();
  /// Compares the index with the document if the file has an index. Call after run().
  Status check_index() const;

 private:
  enum class Container : std::uint8_t { list, elements, module, variant };
  struct Level {
    Container kind;
    std::uint32_t node;
    std::size_t path;                // length of the node's own path
    std::uint32_t next = 0;          // list: number of the next element; elements: the next number's minimum
    std::string_view alternative{};  // variant: the alternative's name, until its value has been read
  };
  struct Alias {
    std::uint32_t node;
    std::string target;
  };

  // ---- errors; these functions return false ----

  bool fail(Errc code, const char* expected, const char* message = "") { return in_->fail(code, expected, message); }
  /// Fails with `error`, whose offset refers to the skeleton.
  bool fail(Error error) {
    if (!failed_) failed_ = std::move(error);
    return false;
  }
  /// Converts the error's offset in the skeleton, which lacks the data, to an offset in the document.
  Error located(Error error) const;
  bool take(std::uint64_t bytes);

  // ---- the document ----

  bool parse();
  bool read_metadata();
  bool read_value(Value& out);
  bool read_record();

  // ---- nodes ----

  bool read_member();
  bool name_of(std::string_view key, std::string_view& name);
  void append_path(std::string_view text);
  void append_segment_of(std::string_view name);
  bool begin_container(Container kind, NodeKind as, SnapshotBuilder::Name name, std::uint32_t version = 0);
  bool end_container();
  bool in_list() const { return !levels_.empty() && levels_.back().kind != Container::module; }
  bool add_value(SnapshotBuilder::Name name, Value value);
  bool read_node(SnapshotBuilder::Name name);
  bool read_object(SnapshotBuilder::Name name);
  bool alone();
  bool read_variant(SnapshotBuilder::Name name);
  bool read_alias(SnapshotBuilder::Name name);
  Status resolve();

  // ---- tensors ----

  bool read_tensor(SnapshotBuilder::Name name);
  bool check_data(DType dtype, std::size_t number);

  SourcePtr source_;
  const Limits& limits_;
  IndexBudget memory_;
  std::shared_ptr<Document> document_;
  SnapshotBuilder builder_;
  Reader* in_ = nullptr;
  std::optional<Error> failed_;
  bool placed_ = false;   // failed_ has an offset in the document, not in its skeleton
  bool indexed_ = false;  // the skeleton comes from an index
  std::string scratch_, path_;
  std::optional<std::string_view> pending_;  // a key whose value has not been read yet
  std::vector<Level> levels_;
  std::vector<Alias> aliases_;
  std::vector<Extent> extents_;
  std::map<std::string, std::string> metadata_;
  UnknownKinds unknown_kinds_;
  std::size_t next_data_ = 0;
  std::size_t paid_ = 0;  // nodes whose memory is already counted
};

}  // namespace stele::inline v0::detail::json
