// The machine that reads a pickle: operations change a stack, a memo and the objects.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "encodings/pickle/pickle.hpp"

namespace stele::inline v0::detail::pickle {

/// Maximum length of an integer (64 KiB): the cursor provides it in one piece.
inline constexpr std::uint64_t max_integer_bytes = Cursor::max_taken_bytes;
/// Maximum length of the name of a module, class or function (4 KiB): bounds error messages and reports.
inline constexpr std::uint64_t max_name_bytes = max_kept_string;
/// Maximum difference of a memo entry's number and the number of operations so far (65,536: 256 KiB). A pickler counts
/// its entries, so their numbers are below that of the operations, except in a pickle that continues another pickle's
/// memo.
inline constexpr std::uint64_t max_memo_gap = 65536;

/// Returns true if Python decodes the text as UTF-8 with "surrogatepass", where a lone surrogate has three bytes.
bool is_python_text(std::string_view text) noexcept;

struct Name {
  std::string_view module, name;
};
/// Returns the Python 3 name for a Python 2 name, and any other name unchanged.
Name name_in_python3(Name name) noexcept;

/// Memory grows with the operations: an operation of one byte takes at most 120 bytes (TUPLE1: a node and a run in
/// arrays that double, an item, and the item again when finished). index_rate::token is therefore enough for every
/// pickle, unless calls copy their arguments (see calls.cpp); the memory budget bounds these.
class Machine {
 public:
  Machine(Cursor& in, IndexBudget& memory, bool in_place) noexcept : in_(in), memory_(memory), in_place_(in_place) {
    integers_.fill(no_ref);
  }
  Result<Objects> run();

 private:
  friend struct Table;
  using Node = Objects::Node;
  using Refs = std::vector<Ref>;
  /// A part of a container that is contiguous in items_. The machine may extend containers alternately, so each
  /// container is a list of runs until finish(). The low half of a node's `number` is the last run of its items, the
  /// high half that of its entries.
  struct Run {
    std::uint32_t begin, count, next;
  };

  // read.cpp: the stack, values.
  /// Returns the error "the pickle's APPENDS ..." at the operation's offset.
  Error bad(std::string_view what, Errc code = Errc::malformed) const;
  Error wrong(const char* expected, Ref found) const;
  Error over(const char* what, std::uint64_t limit) const;
  Error full() const { return index_error("the pickle's objects need more memory than allowed").offset(at_); }
  /// Reserves memory for `more` further elements.
  template <class T>
  Status room(T& all, std::size_t more = 1) {
    if (all.capacity() - all.size() >= more) return {};
    const std::size_t capacity = std::max({all.size() + more, 2 * all.capacity(), std::size_t{16}});
    if (!memory_.take((capacity - all.capacity()) * sizeof(typename T::value_type))) return full();
    all.reserve(capacity);
    return {};
  }
  std::size_t fence() const noexcept { return marks_.empty() ? 0 : marks_.back(); }
  Status need(std::size_t count) const;
  Result<Ref> pop();
  Status push(Ref r);
  Status push(const Node& node);
  Result<Ref> make(const Node& node);
  Result<Ref> shared(Ref& ref, const Node& node);
  Status put_integer(std::int64_t value);
  /// Removes the topmost mark; returns the index of the first value after it.
  Result<std::size_t> unmark();
  /// Reads `size` bytes into the text, or leaves them in the source; returns a node of that kind.
  Result<Node> text(Kind kind, std::uint64_t size);
  /// Appends bytes to the text.
  Status keep(const char* bytes, std::size_t size);
  std::string_view text(const Node& node) const noexcept;
  /// Reads a line with a name into the text; returns its length.
  Result<std::uint32_t> line();
  Status run_one();

  Status protocol_again() { return bad("is not the first operation"); }
  Status frame() { return {}; }
  Status none();
  Status boolean();
  Status integer();       // BININT, BININT1, BININT2
  Status long_integer();  // LONG1, LONG4
  Status real();
  Status string();       // BINUNICODE and others
  Status byte_string();  // BINBYTES and others
  Status old_string();   // BINSTRING, SHORT_BINSTRING
  Status put();          // BINPUT, LONG_BINPUT
  Status memoize();
  Status get();
  Status put_at(std::uint64_t index);
  Status stop();

  // containers.cpp
  Kind kind(Ref r) const noexcept { return out_.nodes_[r].kind; }
  std::span<const Ref> above(std::size_t first) const noexcept { return std::span(stack_).subspan(first); }
  Status mark();
  Status pop_value();
  Status pop_mark();
  Status dup();
  Status empty();     // EMPTY_LIST, EMPTY_DICT, EMPTY_SET
  Status tuple();     // EMPTY_TUPLE, TUPLE
  Status tuple_of();  // TUPLE1 to TUPLE3
  Status frozen_set();
  Status append();
  Status set_item();
  Status add_many();  // APPENDS, SETITEMS, ADDITEMS
  Status put_tuple(std::span<const Ref> items);
  Status add_top(std::size_t first, unsigned op);
  Status add(Ref to, std::span<const Ref> values, bool entries = false);
  Status finish();
  template <class F>
  Status each(Ref container, F f) const;
  std::uint32_t count(Ref container) const noexcept { return out_.nodes_[container].item_count; }
  Ref item(Ref tuple, std::uint32_t i) const noexcept { return items_[runs_[out_.nodes_[tuple].first_item].begin + i]; }

  // calls.cpp
  Status global();
  Status stack_global();
  Status reduce();
  Status new_object();
  Status new_object_with_keywords();
  Status build();
  Status persistent();
  Status put_global(std::uint64_t module, std::uint32_t module_size, std::uint64_t name, std::uint32_t name_size);
  Result<Ref> call(Ref callable, Ref args, bool is_new);
  Result<Ref> call_plain(Ref callable, Ref args, bool is_new);
  Result<Ref> call_dict(Ref callable, Ref args);
  Result<Ref> call_sequence(Kind kind, Ref args);
  Result<Ref> call_bytes(Ref args, bool is_array);
  Result<Ref> encode(Ref text, Ref encoding);
  Status copy(Ref container);
  Status copy_pairs(Ref list);
  Status replace(std::size_t count, Ref by);

  Cursor& in_;
  IndexBudget& memory_;
  const bool in_place_;
  Objects out_;
  Refs stack_;
  std::vector<std::uint32_t> marks_;  // sizes of the stack at the marks
  Refs memo_;
  std::size_t memo_count_ = 0;  // number of memo entries that are set
  Refs items_;
  std::vector<Run> runs_;
  Refs scratch_;
  unsigned op_ = 0;
  std::uint64_t argument_ = 0;  // argument of the operation: a number or a length
  unsigned protocol_ = 0;
  std::uint64_t at_ = 0;          // offset of the operation
  std::uint64_t operations_ = 0;  // number of operations so far
  bool stopped_ = false;
  Ref none_ = no_ref, false_ = no_ref, true_ = no_ref, empty_tuple_ = no_ref;
  std::array<Ref, 256> integers_;
};

/// Calls `f` with the items of a container, run by run; `f` must not add items.
template <class F>
Status Machine::each(Ref container, F f) const {
  const Node& node = out_.nodes_[container];
  std::uint32_t left = node.item_count;
  for (std::uint32_t run = node.first_item; left != 0; run = runs_[run].next) {
    STELE_TRY(f(std::span(items_).subspan(runs_[run].begin, runs_[run].count)));
    left -= runs_[run].count;
  }
  return {};
}

}  // namespace stele::inline v0::detail::pickle
