#include "ir/engine/target.hpp"

#include <algorithm>
#include <deque>
#include <memory>

#include "ir/engine/arguments.hpp"
#include "snapshot/unreadable.hpp"

namespace stele::inline v0::detail::ir {

namespace {

/// Provides views of bytes that the snapshot owns.
const LeafOps owned{.view = [](const void* at, std::uint64_t) { return static_cast<const std::byte*>(at); }};

}  // namespace

Result<const OperatorDescriptor*> Target::descriptor_of(std::string_view) const {
  return not_covered("a rule of this kind can make only DL4J operations");
}

Status Target::emit(const OperatorDescriptor&, const NamedArguments&, const std::string&) {
  return descriptor_of({}).error();
}

const TensorInfo* Target::find(const std::string& name) const {
  const auto found = known_.find(name);
  return found != known_.end() ? &found->second.info : nullptr;
}

std::string Target::list_open(const std::vector<std::string>& names) const {
  constexpr std::size_t max_listed = 8;
  std::string list;
  std::size_t count = 0;
  for (const std::string& name : names) {
    const TensorInfo* const info = find(name);
    if (info == nullptr || info->constant) continue;
    const auto& shape = info->shape;
    if (shape && std::find(shape->begin(), shape->end(), unknown_extent) == shape->end()) continue;
    if (++count > max_listed) return list + ", …";
    list += (list.empty() ? "" : ", ") + name + (shape ? " " + to_text(value_of_extents(*shape)) : " without a shape");
  }
  return list;
}

Status Target::add(const std::string& name, TensorInfo info) {
  if (Status done = check(info); !done) return std::move(done).error().path(name);
  if (!known_.try_emplace(name, Tensor{.info = std::move(info)}).second) {
    return Error(Errc::duplicate, "two tensors of the graph have the same name").path(name);
  }
  return {};
}

Status Target::add_leaf(const std::string& name, const LeafView& leaf) {
  if (const std::string_view content = unreadable(leaf); !content.empty()) {
    return Error(Errc::unsupported, "the elements of a tensor are not numbers that DL4J supports")
        .path(name)
        .found(std::string(content));
  }
  TensorInfo info{.dtype = leaf.dtype()};
  info.shape.emplace();
  for (const Extent e : leaf.shape()) info.shape->push_back(static_cast<std::int64_t>(e));
  constexpr std::uint64_t small = 4096;  // maximum bytes of a tensor whose elements rules can use
  if (leaf.byte_size() <= small) {
    STELE_TRY_ASSIGN(info.constant, constant_of(leaf));
  }
  STELE_TRY(add(name, std::move(info)));
  known_[name].leaf = tensors_.nodes()[leaf.node()].index;
  return {};
}

Status Target::add_constant(const std::string& name, Constant constant) {
  TensorInfo info{.dtype = constant.dtype, .shape = constant.shape};
  info.constant = std::move(constant);
  return add(name, std::move(info));
}

bool Target::spend(std::size_t elements) noexcept {
  constexpr std::size_t max_work = std::size_t{1} << 26;
  work_ += elements;
  return work_ <= max_work;
}

std::string Target::fresh(const std::string& base) {
  std::uint64_t& number = next_[base];
  for (;;) {
    std::string name = number == 0 ? base : base + '_' + std::to_string(number);
    ++number;
    if (!known_.contains(name) && reserved_.insert(name).second) return name;
  }
}

Result<std::string> Target::constant(Constant constant) {
  constexpr std::size_t max_elements = std::size_t{1} << 21;
  constant_elements_ += constant.size();
  if (constant_elements_ > max_elements) {
    return Error(Errc::limit, "the rules make constants with too many elements")
        .expected("at most " + std::to_string(max_elements))
        .found(std::to_string(constant_elements_));
  }
  std::string name = fresh("constant");
  Tensor& tensor = known_[name];
  tensor.info.dtype = constant.dtype;
  tensor.info.shape = constant.shape;
  tensor.info.constant = std::move(constant);
  return name;
}

Status Target::use(const std::string& name) {
  const auto found = known_.find(name);
  if (found == known_.end()) return Error(Errc::malformed, "no earlier node produces the input").path(name);
  Tensor& tensor = found->second;
  if (tensor.made) return {};
  if (tensor.leaf == no_index && !tensor.info.constant) {
    return Error(Errc::malformed, "no earlier node produces the input").path(name);
  }
  tensor.made = true;
  order_.push_back(name);
  take(name, tensor);
  return {};
}

Status Target::count_operation(std::size_t operations) const {
  if (operations < max_operations_) return {};
  return Error(Errc::limit, "the rules make too many operations")
      .expected("at most " + std::to_string(max_operations_));
}

std::string Target::unique_operation(const std::string& name) {
  std::string own = name;
  while (!operation_names_.try_emplace(own).second) own = name + '_' + std::to_string(++operation_names_[name]);
  return own;
}

void Target::move_known(const std::string& from, const std::string& to) {
  auto node = known_.extract(from);
  node.key() = to;
  known_.insert(std::move(node));
}

void Target::refine(const std::string& name, DType dtype, std::optional<std::vector<std::int64_t>> shape) {
  const auto found = known_.find(name);
  if (found == known_.end()) return;
  TensorInfo& info = found->second.info;
  if (dtype != DType::none) info.dtype = dtype;
  if (shape && shape->size() <= static_cast<std::size_t>(max_rank)) info.shape = std::move(shape);
}

void Target::refine(const std::string& name, Constant partial) {
  if (const auto found = known_.find(name); found != known_.end()) found->second.info.partial = std::move(partial);
}

Result<Snapshot> Target::snapshot(const std::vector<std::string>& names) {
  SnapshotBuilder to;
  to.set_flat();
  auto bytes = std::make_shared<std::deque<std::vector<std::byte>>>();
  for (const std::string& name : names) {
    const Tensor& tensor = known_[name];
    const std::string_view kept = to.intern(name);
    if (tensor.leaf != no_index) {
      const LeafView leaf = tensors_.leaf(tensor.leaf);
      to.tensor(kept, leaf.dtype(), leaf.shape(), leaf.byte_size(), leaf.provider());
      continue;
    }
    const Constant& constant = *tensor.info.constant;
    auto elements = bytes_of(constant);
    if (!elements) return std::move(elements).error().path(name);
    const std::vector<std::byte>& own = bytes->emplace_back(*std::move(elements));
    const std::vector<Extent> shape(constant.shape.begin(), constant.shape.end());
    to.tensor(kept, constant.dtype, shape, own.size(), {&owned, own.data(), 0});
  }
  to.keep(std::make_shared<const Snapshot>(tensors_));
  to.keep(std::move(bytes));
  to.set_metadata(tensors_.metadata());
  return to.finish();
}

}  // namespace stele::inline v0::detail::ir
