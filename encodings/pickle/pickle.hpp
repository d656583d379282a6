// Python's pickles, as data: a machine that builds a graph of plain objects. It imports nothing and calls nothing: a
// name is a pair of strings, a call is an object with the name and the arguments.
//
// 1. 0x80, u8 protocol (2 to 5); protocol 4 and 5: FRAME, u64 length, which this reader ignores
// 2. operations of one byte each, with arguments: they push to a stack, build containers from it, and store to and load
//    from a numbered memo
// 3. `.` STOP: the top of the stack is the result
// Numbers are little-endian, but BINFLOAT is big-endian. Source: CPython 3.13, Lib/pickletools.py (every operation is
// documented there); what PyTorch itself accepts: pytorch 2.15, torch/_weights_only_unpickler.py.
//
// Own code: every library for pickles imports and calls (Python's), or has no bounds (docs/dependencies.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/limits.hpp"
#include "io/cursor.hpp"
#include "io/gather.hpp"
#include "stele/result.hpp"

namespace stele::inline v0::detail::pickle {

enum class Kind : std::uint8_t {
  none,
  boolean,
  integer,  // fits std::int64_t
  big,      // a longer integer
  real,
  string,  // UTF-8 (lone surrogates as Python encodes them: "surrogatepass")
  bytes,   // bytes, bytearray
  list,
  tuple,
  dict,        // dict, and collections.OrderedDict, Counter and defaultdict
  set,         // set, frozenset
  global,      // a name: a class, a function or a constant
  object,      // the result of a call (REDUCE, NEWOBJ) of any other name, or of anything
  persistent,  // BINPERSID: the id is args()
};

/// The number of an object; objects are shared and may contain themselves.
using Ref = std::uint32_t;
inline constexpr Ref no_ref = 0xffffffffU;

/// The objects of one pickle. Immutable; owns all strings. Its destructor does not recurse.
class Objects {
 public:
  /// Returns the pickled object.
  Ref root() const noexcept { return root_; }
  Kind kind(Ref r) const noexcept { return nodes_[r].kind; }
  bool is(Ref r, Kind kind) const noexcept { return r != no_ref && nodes_[r].kind == kind; }

  // Each of these requires the kind.
  bool boolean(Ref r) const noexcept { return nodes_[r].number != 0; }
  std::int64_t integer(Ref r) const noexcept { return static_cast<std::int64_t>(nodes_[r].number); }
  double real(Ref r) const noexcept;
  /// Returns a string, bytes, or a big integer (two's complement, little-endian).
  std::string_view text(Ref r) const noexcept;
  /// Returns the parts of a global: "torch._utils" and "_rebuild_tensor_v2". In protocol 2, names of Python 2 are those
  /// of Python 3 (`copy_reg` is `copyreg`, `__builtin__` is `builtins`).
  std::string_view module(Ref r) const noexcept;
  std::string_view name(Ref r) const noexcept;
  /// Returns true if this is the global `module.name`.
  bool is_global(Ref r, std::string_view module, std::string_view name) const noexcept;
  /// Returns the elements of a list, tuple or set; keys and values of a dict, alternately: a key may occur twice, then
  /// the last one counts. For an object: what APPENDS added to it.
  std::span<const Ref> items(Ref r) const noexcept;
  /// Returns keys and values that SETITEMS added to an object (an instance of a subclass of dict), alternately.
  std::span<const Ref> entries(Ref r) const noexcept;
  /// Returns the value of the last entry of a dict with that string as its key, or no_ref. Linear.
  Ref find(Ref dict, std::string_view key) const noexcept;

  /// Returns the name that was called, of an object; the class of a dict if it is not `dict`; else no_ref.
  Ref callable(Ref r) const noexcept;
  /// Returns the arguments of an object's call, a tuple (of NEWOBJ_EX: without the keywords); those of a defaultdict,
  /// which begin with its factory; the id of a persistent; else no_ref.
  Ref args(Ref r) const noexcept;
  /// Returns the argument of BUILD of an object or a dict, or no_ref: its attributes, as a dict, or what its class
  /// reads (a pair of dicts if it has slots, any tuple).
  Ref state(Ref r) const noexcept;

  /// Returns the number of objects.
  std::size_t size() const noexcept { return nodes_.size(); }

 private:
  friend class Machine;
  // 40 bytes. A text is `number`, its offset in text_, and its length, first_item (low) and item_count (high). A global
  // is the offset and length of its module, number and first_item, and of its name, args (low), state (high) and
  // item_count.
  struct Node {
    std::uint64_t number = 0;
    Kind kind = Kind::none;
    Ref callable = no_ref, args = no_ref, state = no_ref;
    std::uint32_t first_item = 0, item_count = 0;
    std::uint32_t first_entry = 0, entry_count = 0;
  };
  std::vector<Node> nodes_;
  std::vector<Ref> items_;
  std::string text_;
  Ref root_ = no_ref;
};

/// Returns the protocol of bytes that begin with a pickle's first operation, PROTO; nullopt otherwise.
std::optional<unsigned> protocol(std::span<const std::byte> head) noexcept;

/// Reads one pickle; the cursor is then after its STOP. `memory` counts what the objects take, and the caller has
/// admitted the bytes to it; index_rate::token admits all but hostile pickles. Errors, with the offset: bad_magic (no
/// PROTO of 2 to 5), malformed (an unknown operation, a stack or memo that lacks what an operation needs, a container
/// of another kind, a second BUILD of one object), unsupported (operations of protocols 0 and 1 that picklers of
/// protocol 2 do not write, of copyreg's registry, of buffers outside the pickle), truncated, limit, io.
///
/// Calls of the standard library's plain types make plain objects: OrderedDict, Counter and defaultdict; dict, list,
/// tuple, set, frozenset, bytes and bytearray with arguments that a pickler writes; `_codecs.encode(text, 'latin1')`.
/// `copyreg._reconstructor(cls, object, None)` is an object of `cls` without arguments.
Result<Objects> read(Cursor& in, IndexBudget& memory);

/// Writes a pickle of protocol 2, as CPython's pickler would without the memo of values: each call appends one
/// operation. Strings that the caller repeats (names of modules and classes) are memoized.
///
///   Writer out(text);                       // appends PROTO
///   out.global("collections", "OrderedDict"); out.empty_tuple(); out.reduce();
///   out.mark(); out.string("a"); out.integer(1); out.set_items();
///   out.finish();                           // appends STOP
class Writer {
 public:
  explicit Writer(std::string& out);

  void none();
  void boolean(bool value);
  /// Writes BININT1, BININT2, BININT or LONG1.
  void integer(std::int64_t value);
  void unsigned_integer(std::uint64_t value);
  void real(double value);
  /// Writes BINUNICODE. The text is UTF-8.
  void string(std::string_view text);
  /// Writes bytes as protocol 2 can: `_codecs.encode(text, 'latin1')`.
  void bytes(std::string_view bytes);
  void global(std::string_view module, std::string_view name);
  void mark();
  void empty_tuple();
  void tuple(unsigned count);  // TUPLE1 to TUPLE3
  void tuple();                // everything from the mark on
  void empty_list();
  void appends();
  void empty_dict();
  void set_items();
  void reduce();
  void build();
  void persistent();
  /// Stores the top of the stack in the memo; returns its number.
  std::uint32_t put();
  void get(std::uint32_t memo);
  void finish();

 private:
  std::string& out_;
  std::vector<std::pair<std::string, std::uint32_t>> names_;  // globals in the memo
  std::uint32_t memo_ = 0;
};

}  // namespace stele::inline v0::detail::pickle
