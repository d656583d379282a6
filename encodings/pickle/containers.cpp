// Operations that fill lists, tuples, dicts and sets.
#include "encodings/pickle/machine.hpp"

namespace stele::inline v0::detail::pickle {

Status Machine::mark() {
  STELE_TRY(room(marks_));
  marks_.push_back(static_cast<std::uint32_t>(stack_.size()));
  return {};
}

Status Machine::pop_value() {
  if (!marks_.empty() && marks_.back() == stack_.size()) return marks_.pop_back(), Status();  // as CPython does
  STELE_TRY(need(1));
  stack_.pop_back();
  return {};
}

Status Machine::pop_mark() {
  STELE_TRY_ASSIGN(const std::size_t first, unmark());
  stack_.resize(first);
  return {};
}

Status Machine::dup() {
  STELE_TRY(need(1));
  return push(stack_.back());
}

Status Machine::empty() { return push(Node{.kind = op_ == ']' ? Kind::list : op_ == '}' ? Kind::dict : Kind::set}); }

Status Machine::put_tuple(std::span<const Ref> items) {
  const Node node{.kind = Kind::tuple};
  Ref r = no_ref;
  if (items.empty()) {
    STELE_TRY_ASSIGN(r, shared(empty_tuple_, node));
    return push(r);
  }
  STELE_TRY_ASSIGN(r, make(node));
  STELE_TRY(add(r, items));
  return replace(items.size(), r);
}

Status Machine::tuple() {
  if (op_ == ')') return put_tuple({});
  STELE_TRY_ASSIGN(const std::size_t first, unmark());
  return put_tuple(above(first));
}

Status Machine::tuple_of() {
  const std::size_t count = op_ - 0x84;
  STELE_TRY(need(count));
  return put_tuple(above(stack_.size() - count));
}

Status Machine::frozen_set() {
  STELE_TRY_ASSIGN(const std::size_t first, unmark());
  const std::size_t count = stack_.size() - first;
  STELE_TRY_ASSIGN(const Ref r, make(Node{.kind = Kind::set}));
  STELE_TRY(add(r, above(first)));
  return replace(count, r);
}

Status Machine::append() {
  STELE_TRY(need(2));
  return add_top(stack_.size() - 1, 'e');
}

Status Machine::set_item() {
  STELE_TRY(need(3));
  return add_top(stack_.size() - 2, 'u');
}

Status Machine::add_many() {
  STELE_TRY_ASSIGN(const std::size_t first, unmark());
  if (first <= fence()) return bad("finds no container on the stack");
  return add_top(first, op_);
}

/// Adds the stack's values from index `first` on to the container below them, as the operation `op` (for many values)
/// does, and removes them from the stack.
Status Machine::add_top(std::size_t first, unsigned op) {
  const Ref to = stack_[first - 1];
  const auto values = above(first);
  const Kind kind = this->kind(to);
  if (op == 'e') {
    if (kind != Kind::list && kind != Kind::object) return wrong("a list", to);
    STELE_TRY(add(to, values));
  } else if (op == 'u') {
    if (kind != Kind::dict && kind != Kind::object) return wrong("a dict", to);
    if (values.size() % 2 != 0) return bad("finds a key without a value");
    STELE_TRY(add(to, values, kind == Kind::object));
  } else {
    if (kind != Kind::set) return wrong("a set", to);
    STELE_TRY(add(to, values));
  }
  stack_.resize(first);
  return {};
}

/// Adds items, or entries of an object. `values` must not be a part of items_.
Status Machine::add(Ref to, std::span<const Ref> values, bool entries) {
  if (values.empty()) return {};
  STELE_TRY(room(items_, values.size()));
  if (items_.size() + values.size() > no_ref) return over("items", no_ref);
  const auto begin = static_cast<std::uint32_t>(items_.size());
  const auto count = static_cast<std::uint32_t>(values.size());
  Node& node = out_.nodes_[to];
  std::uint32_t& first = entries ? node.first_entry : node.first_item;
  std::uint32_t& sum = entries ? node.entry_count : node.item_count;
  const unsigned shift = entries ? 32 : 0;
  const auto last = static_cast<std::uint32_t>(node.number >> shift);
  if (sum != 0 && runs_[last].begin + runs_[last].count == begin) {
    runs_[last].count += count;
  } else {
    STELE_TRY(room(runs_));
    const auto run = static_cast<std::uint32_t>(runs_.size());
    runs_.push_back({begin, count, no_ref});
    if (sum != 0) {
      runs_[last].next = run;
    } else {
      first = run;
    }
    const std::uint64_t half = UINT32_MAX;
    node.number = (node.number & ~(half << shift)) | std::uint64_t{run} << shift;
  }
  sum += count;
  items_.insert(items_.end(), values.begin(), values.end());
  return {};
}

/// Joins the runs of each container.
Status Machine::finish() {
  if (!memory_.take(items_.size() * sizeof(Ref))) return full();
  Refs& all = out_.items_;
  all.reserve(items_.size());
  const auto join = [&](std::uint32_t& first, std::uint32_t count) {
    std::uint32_t run = first;
    first = static_cast<std::uint32_t>(all.size());
    for (; count != 0; run = runs_[run].next) {
      const Ref* const from = items_.data() + runs_[run].begin;
      all.insert(all.end(), from, from + runs_[run].count);
      count -= runs_[run].count;
    }
  };
  for (Node& node : out_.nodes_) {
    switch (node.kind) {
      case Kind::object:
        join(node.first_entry, node.entry_count);
        [[fallthrough]];
      case Kind::list:
      case Kind::tuple:
      case Kind::dict:
      case Kind::set:
        join(node.first_item, node.item_count);
        break;
      default:
        break;
    }
  }
  return {};
}

}  // namespace stele::inline v0::detail::pickle
