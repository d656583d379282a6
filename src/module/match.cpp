// Snapshot -> object, first part: structure.
#include "module/match.hpp"

#include <algorithm>
#include <utility>

#include "base/limits.hpp"
#include "module/matcher.hpp"

namespace stele::inline v0::detail {

namespace {

/// Maximum total size of the paths of modules to migrate (64 MiB): each path is stored whole, and a file may repeat a
/// long key in all of them.
constexpr std::uint64_t max_outdated_bytes = std::uint64_t{64} << 20;

/// Returns true for a container whose parts have names of their own.
bool holds_names(const TypeInfo& type) {
  return type.kind == TypeKind::module || type.kind == TypeKind::tuple || type.kind == TypeKind::list ||
         type.kind == TypeKind::array || type.kind == TypeKind::map;
}

}  // namespace

Status Matcher::run(const TypeInfo& type, void* object) {
  visit(type, object, tree_.root(), 0);
  if (!plan_.outdated.empty()) return {};
  finish_unnamed(0);
  if (!quiet_) {
    report_early();
    // Sorted by name, because the table of shared objects has no order.
    std::vector<std::string> never;
    for (const auto& [pointee, shared] : shared_) {
      static_cast<void>(pointee);
      if (!shared.loaded) never.push_back(plan_.paths.text(shared.path));
    }
    std::sort(never.begin(), never.end());
    for (const std::string& path : never) missing(path);
    find_unused();
    if (!failed_ && !options_.allow_nothing) refuse_nothing();
    if (failed_ && !missing_.empty() && !unused_.empty()) suggest();
    // A module that is one tensor or a list has no names of its own.
    const bool unnamed = type.kind == TypeKind::tensor || type.kind == TypeKind::list;
    const Errc code = failed_ ? failed_->code() : Errc::none;
    if (unnamed && (code == Errc::missing || code == Errc::kind_mismatch || code == Errc::unused) &&
        failed_->hint().empty()) {
      failed_ = std::move(*failed_).hint("load a std::map<std::string, T> of tensors to get them by their names");
    }
    count_further_names();
  }
  return failed_ ? Status(std::move(*failed_)) : Status();
}

void Matcher::missing(const std::string& path) {
  row(Report::What::missing, path);
  if (!quiet_) compare_later(missing_, path);
  if (!allow_missing_.match(path)) fail_name(Errc::missing, "the file lacks a parameter of the module", path);
}

void Matcher::fail_name(Errc code, std::string_view text, std::string_view path, std::string_view found) {
  if (!failed_) return fail(Error(code, text).path(path).found(found));
  if (failed_->code() == code) ++further_names_;
}

void Matcher::count_further_names() {
  if (further_names_ == 0) return;
  const Error first = std::move(*failed_);
  const std::string text = std::string(first.message()) + " (and " + std::to_string(further_names_) + " more)";
  failed_ = Error(first.code(), text).path(first.path()).found(first.found()).hint(first.hint());
}

void Matcher::mismatch(Errc code, const char* text, const std::string& expected, const std::string& found,
                       std::string_view hint) {
  row(Report::What::mismatched, path_, "expected " + expected + ", found " + found);
  if (failed_) return;
  fail(Error(code, text).path(path_).expected(expected).found(found).hint(hint));
}

std::string Matcher::describe(const Place& place) const {
  if (!place.exists) return "nothing";
  return std::string(name(tree_.kind(place)));
}

void Matcher::visit(const TypeInfo& type, void* object, const Place& place, int depth) {
  if (depth > max_depth) {
    return fail(Error(Errc::limit, "the modules nest too deeply")
                    .path(path_)
                    .expected("at most " + std::to_string(max_depth) + " levels"));
  }
  if (++visits_ > max_names) {
    return fail(Error(Errc::limit, "aliases of aliased containers give more than 2^24 names").path(path_));
  }
  use(place);
  if (object != nullptr && type.other_class != nullptr && type.other_class(object) != nullptr) {
    Error error = derived_error(type, object).path(path_);
    row(Report::What::mismatched, path_,
        "expected " + std::string(error.expected()) + ", found " + std::string(error.found()));
    return fail(std::move(error));
  }
  // Attributes of an optional or pointer field apply to the object it holds.
  const bool holds = type.kind == TypeKind::optional || type.kind == TypeKind::pointer || type.kind == TypeKind::shared;
  const bool was_one = !holds && std::exchange(was_one_, false);
  switch (type.kind) {
    case TypeKind::none:
      return;
    case TypeKind::tensor:
      return visit_tensor(*type.tensor, object, place, was_one);
    case TypeKind::value:
      return visit_value(*type.value, object, place);
    case TypeKind::module:
    case TypeKind::tuple:
      return visit_fields(type, object, place, depth);
    case TypeKind::list:
    case TypeKind::array:
      return visit_list(type, object, place, depth, was_one);
    case TypeKind::map:
      return visit_map(type, object, place, depth);
    case TypeKind::variant:
      return visit_variant(type, object, place, depth);
    case TypeKind::optional:
    case TypeKind::pointer:
      return visit_holder(type, object, place, depth);
    case TypeKind::shared:
      return visit_shared(type, object, place, depth);
  }
}

bool Matcher::container_fits(const Place& place, bool named) {
  if (!place.exists || tree_.guessed()) return true;
  const NodeKind kind = tree_.kind(place);
  const bool fits = named ? kind == NodeKind::module || kind == NodeKind::map
                          : kind == NodeKind::list || kind == NodeKind::array || kind == NodeKind::tuple;
  if (!fits)
    mismatch(Errc::kind_mismatch, "the file has another kind of node", named ? "module" : "list", describe(place));
  return fits;
}

void Matcher::visit_fields(const TypeInfo& type, void* object, const Place& place, int depth) {
  const bool named = type.kind == TypeKind::module;
  if (!container_fits(place, named)) return;
  const std::uint32_t version = place.node != no_index && named ? tree_.snapshot().version(tree_.node(place.node)) : 0;
  if (type.rewrite != nullptr && place.exists && version < type.version) {
    std::string at = tree_.flat() ? place.prefix : tree_.snapshot().path(place.node);
    outdated_bytes_ += at.size() + path_.size();
    if (outdated_bytes_ > max_outdated_bytes) {
      return fail(Error(Errc::limit, "the paths of modules of older versions exceed 64 MiB").path(path_));
    }
    plan_.outdated.push_back({std::move(at), path_, &type, version});
    return;
  }
  const bool moves = !type.moved.empty() && place.exists;
  if (moves) moves_.push_back({type.moved, place, path_.size()});
  std::optional<FieldAddresses> addresses;
  if (object != nullptr) addresses.emplace(type, object);
  std::uint32_t hint = 0;
  for (std::size_t i = 0; i < type.fields.size(); ++i) {
    const FieldInfo& field = type.fields[i];
    Place at;
    if (!named) {
      at = tree_.element(place, i, hint);
    } else {
      std::string_view name = field.name;
      if (type.migrate != nullptr && version < type.version) {
        if (const auto older = type.migrate(version, field.name); !older.empty()) name = older;
      }
      at = tree_.child(place, name, hint);
      // Files written by other programs have no version and use the current names.
      if (!at.exists && name != field.name) at = tree_.child(place, field.name, hint);
      for (std::size_t a = 0; !at.exists && a < field.aliases.size(); ++a) {
        at = tree_.child(place, field.aliases[a], hint);
      }
    }
    const Segment segment(*this, field.name);
    if (!at.exists) at = moved_here();
    if (field.flags.defaulted && is_absent(*field.type, at) && !moved_below()) {
      row(Report::What::defaulted, path_);
      continue;
    }
    const bool tensor = at.node != no_index && tree_.node(at.node).kind == NodeKind::tensor;
    if (field.flags.constant && tensor && holds_names(*field.type)) {
      row(Report::What::defaulted, path_, "the file has a tensor of that name");
      continue;
    }
    was_one_ = field.flags.was_one;
    constant_ = field.flags.constant && field.type->kind == TypeKind::value;
    visit(*field.type, object != nullptr ? (*addresses)[i] : nullptr, at, depth + 1);
    was_one_ = constant_ = false;
  }
  if (moves) moves_.pop_back();
}

bool Matcher::is_absent(const TypeInfo& type, const Place& at) const {
  const bool holds = type.kind == TypeKind::optional || type.kind == TypeKind::pointer || type.kind == TypeKind::shared;
  return holds ? !at.exists : tree_.absent(at);
}

Place Matcher::moved_here() const {
  for (auto moves = moves_.rbegin(); moves != moves_.rend(); ++moves) {
    for (const MovedPath& moved : moves->paths) {
      if (moved.now != moves->relative(path_)) continue;
      if (Place at = tree_.below(moves->base, moved.then); at.exists) return at;
    }
  }
  return {};
}

bool Matcher::moved_below() const {
  for (const Moves& moves : moves_) {
    for (const MovedPath& moved : moves.paths) {
      const std::string_view here = moves.relative(path_);
      const bool below = moved.now.size() > here.size() && moved.now.starts_with(here) && moved.now[here.size()] == '.';
      if (below && tree_.below(moves.base, moved.then).exists) return true;
    }
  }
  return false;
}

Status match(const Tree& tree, const TypeInfo& type, void* object, LoadMode mode, MatchMode match_mode,
             const LoadOptions& options, Report& report, LoadPlan& plan) {
  auto status = Matcher(tree, mode, match_mode, options, report, plan).run(type, object);
  plan.snapshot = plan.ones.empty() ? tree.snapshot() : with_leaves(tree.snapshot(), plan.ones);
  return status;
}

}  // namespace stele::inline v0::detail
