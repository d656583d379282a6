// Walks the objects of a file.
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "attribute.hpp"
#include "dataset.hpp"
#include "encodings/gzip/entry.hpp"
#include "file.hpp"
#include "group.hpp"
#include "hdf5.hpp"
#include "object_header.hpp"

namespace stele::inline v0::detail::hdf5 {
namespace {

class Walk {
 public:
  Walk(const SourcePtr& source, IndexBudget& memory, std::shared_ptr<const void>& keeper, const Visit& visit)
      : file_(*source, memory), attributes_(file_), datasets_(source, file_, attributes_), visit_(visit) {
    keeper = datasets_.keeper();
  }

  Status run() {
    STELE_TRY_ASSIGN(const std::uint64_t root, read_superblock(file_));
    STELE_TRY(object({.name = {}, .object = root}));
    while (!stack_.empty()) {
      Group& group = stack_.back();
      if (group.next == group.links.size()) {
        stack_.pop_back();
        continue;
      }
      const Link link = std::move(group.links[group.next++]);
      path_.resize(group.path);
      if (stack_.size() > 1) path_ += '/';
      path_ += link.name;
      STELE_TRY(object(link));
    }
    return file_.no_overlaps();
  }

 private:
  struct Group {
    std::vector<Link> links;
    std::size_t next;
    std::size_t path;  // length of the group's path
  };

  Status object(const Link& link) {
    Entry entry;
    entry.path = path_;
    entry.object = link.object;
    entry.reason = link.reason;
    if (!link.reason.empty()) {
      entry.kind = Entry::Kind::unreadable;
      return visit_(entry);
    }
    STELE_TRY(file_.take(64));
    if (!visited_.insert(link.object).second) {
      entry.kind = Entry::Kind::link;
      return visit_(entry);
    }
    STELE_TRY_ASSIGN(const Header header, read_header(file_, link.object));
    STELE_TRY(attributes_.add(header, entry));
    const bool root = stack_.empty();
    if (header.find(message::layout) != nullptr && !root) {
      auto done = datasets_.add(header, entry);
      if (!done) return done.error().path().empty() ? std::move(done).error().path(path_) : std::move(done);
      return visit_(entry);
    }
    const bool group = is_group(header);
    if (root && !group) return bad("the root is not a group", link.object);
    if (!group) {
      entry.kind = Entry::Kind::unreadable;
      entry.reason = header.find(message::type) != nullptr ? "a named datatype" : "an object of an unknown kind";
      return visit_(entry);
    }
    if (stack_.size() > max_depth) {
      entry.kind = Entry::Kind::unreadable;
      entry.reason = "a group that is nested more than " + std::to_string(max_depth) + " deep";
      return visit_(entry);
    }
    STELE_TRY(visit_(entry));
    STELE_TRY_ASSIGN(std::vector<Link> links, read_links(file_, header, path_));
    stack_.push_back({std::move(links), 0, path_.size()});
    return {};
  }

  File file_;
  AttributeReader attributes_;
  Datasets datasets_;
  const Visit& visit_;
  std::string path_;
  std::vector<Group> stack_;
  std::unordered_set<std::uint64_t> visited_;
};

}  // namespace

Status read(const SourcePtr& source, IndexBudget& memory, std::shared_ptr<const void>& keeper, const Visit& visit) {
  STELE_TRY_ASSIGN(const auto block, user_block(*source));
  if (!block) return Error(Errc::bad_magic, "the file is not an HDF5 file").file(source->name()).offset(0);
  const std::uint64_t before = *block;
  SourcePtr file = source;
  if (before != 0) {
    const std::uint64_t size = source->size() - before;
    file = std::make_shared<gzip::StoredSource>(source, source->name(), gzip::Data{before, size, size, 0});
  }
  auto done = Walk(file, memory, keeper, visit).run();
  if (done) return done;
  Error error = std::move(done).error();
  if (const auto at = error.offset(); before != 0 && at) error = std::move(error).offset(before + *at);
  return error.file().empty() ? std::move(error).file(source->name()) : std::move(error);
}

}  // namespace stele::inline v0::detail::hdf5
