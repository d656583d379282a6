// Python's pickles as data: a machine that builds a graph of plain objects. It imports no module and calls no function:
// a name is a pair of strings, and a call is an object with the name and the arguments.
//
// 1. 0x80, u8 protocol (2 to 5); protocol 4 and 5: FRAME, u64 length, which this reader ignores
// 2. operations of one byte each, with arguments: they push to a stack, build containers from it, and store to and load
//    from a numbered memo
// 3. `.` STOP: the top of the stack is the result
// Numbers are little-endian, but BINFLOAT is big-endian. Sources: CPython 3.13, Lib/pickletools.py (documents every
// operation); for the operations that PyTorch accepts, pytorch 2.15, torch/_weights_only_unpickler.py.
//
// Own code: other pickle libraries import and call (Python's), or have no bounds (docs/dependencies.md).
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
#include "stele/value.hpp"

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
  object,      // the result of a call (REDUCE, NEWOBJ) whose callable is not one of the plain types
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

  // Each of the following functions requires an object of the right kind.
  bool boolean(Ref r) const noexcept { return nodes_[r].number != 0; }
  std::int64_t integer(Ref r) const noexcept { return static_cast<std::int64_t>(nodes_[r].number); }
  double real(Ref r) const noexcept;
  /// Returns a string, bytes, or a big integer (two's complement, little-endian). Empty if read_in_place() left the
  /// text in the source.
  std::string_view text(Ref r) const noexcept;
  /// The position of a string or of bytes in the source.
  struct Place {
    std::uint64_t offset = 0, size = 0;
    bool latin1 = false;  // bytes that are stored in UTF-8 as characters below 256, or a string
  };
  /// Returns the position of a string or of bytes that read_in_place() has read.
  Place place(Ref r) const noexcept;
  /// Returns true if read_in_place() left the string or the bytes in the source.
  bool in_source(Ref r) const noexcept { return nodes_[r].number == in_source_; }
  /// Returns the parts of a global: "torch._utils" and "_rebuild_tensor_v2". Names of Python 2 (in protocol 2) are
  /// converted to those of Python 3: `copy_reg` to `copyreg`, `__builtin__` to `builtins`.
  std::string_view module(Ref r) const noexcept;
  std::string_view name(Ref r) const noexcept;
  /// Returns true if this is the global `module.name`.
  bool is_global(Ref r, std::string_view module, std::string_view name) const noexcept;
  /// Returns the elements of a list, tuple or set; or the keys and values of a dict, alternately. If a key occurs
  /// twice, the last value counts. For an object, returns the values that APPENDS added to it.
  std::span<const Ref> items(Ref r) const noexcept;
  /// Returns keys and values that SETITEMS added to an object (an instance of a subclass of dict), alternately.
  std::span<const Ref> entries(Ref r) const noexcept;
  /// Returns the value of the dict's last entry with that string as its key, or no_ref. Takes linear time.
  Ref find(Ref dict, std::string_view key) const noexcept;

  /// Returns the called name of an object; the class of a dict if it is not `dict`; `tuple` for a tuple that a call
  /// made, if read_in_place() has read it; else no_ref.
  Ref callable(Ref r) const noexcept;
  /// Returns the arguments of an object's call as a tuple (for NEWOBJ_EX without the keywords); those of a defaultdict,
  /// which begin with its factory; the id of a persistent; else no_ref.
  Ref args(Ref r) const noexcept;
  /// Returns the argument of BUILD for an object or a dict, or no_ref. It is a dict of attributes, or any state that
  /// the class accepts (a pair of dicts if the class has slots, any tuple).
  Ref state(Ref r) const noexcept;

  /// Returns None, a bool, an integer of at most 64 bits or a float as a Value; nullopt for other objects.
  std::optional<Value> plain(Ref r) const;

  /// Returns the number of objects.
  std::size_t size() const noexcept { return nodes_.size(); }

 private:
  friend class Machine;
  // Has 40 bytes. For a string, `number` is the offset in text_; first_item (low half) and item_count (high half) are
  // the length. For a global, number and first_item are the offset and length of the module, and args (low half), state
  // (high half) and item_count are those of the name. For a string or bytes, first_entry (low half) and entry_count
  // (high half) are the position in the source, with latin1_ for Place::latin1.
  struct Node {
    std::uint64_t number = 0;
    Kind kind = Kind::none;
    Ref callable = no_ref, args = no_ref, state = no_ref;
    std::uint32_t first_item = 0, item_count = 0;
    std::uint32_t first_entry = 0, entry_count = 0;
  };
  static constexpr std::uint64_t in_source_ = UINT64_MAX;  // the `number` of a string that is not in text_
  static constexpr std::uint32_t latin1_ = 0x80000000U;
  std::vector<Node> nodes_;
  std::vector<Ref> items_;
  std::string text_;
  Ref root_ = no_ref;
};

/// Returns the protocol if `head` begins with a pickle's first operation, PROTO; else nullopt.
std::optional<unsigned> protocol(std::span<const std::byte> head) noexcept;

/// Reads one pickle; the cursor is then after its STOP. `memory` counts the memory of the objects. The caller has
/// admitted the pickle's bytes to it; index_rate::token is enough for all but hostile pickles. Errors, with the offset:
/// bad_magic (no PROTO of 2 to 5), malformed (an unknown operation, a stack or memo without the operands of an
/// operation, a container of the wrong kind, a second BUILD of one object), unsupported (operations of protocols 0 and
/// 1 that picklers of protocol 2 do not write, copyreg's registry, buffers outside the pickle), truncated, limit, io.
///
/// Calls of the standard library's plain types give plain objects: OrderedDict, Counter and defaultdict; dict, list,
/// tuple, set, frozenset, bytes and bytearray with arguments that a pickler writes; `_codecs.encode(text, 'latin1')`.
/// `copyreg._reconstructor(cls, object, None)` gives an object of `cls` without arguments.
Result<Objects> read(Cursor& in, IndexBudget& memory);
/// Like read(), but leaves bytes, and strings longer than max_kept_string, in the source, without reading them: they
/// may be the elements of arrays.
Result<Objects> read_in_place(Cursor& in, IndexBudget& memory);
/// Maximum length of a string that read_in_place() keeps in memory (4 KiB): as long as a name.
inline constexpr std::uint64_t max_kept_string = 4096;

/// Writes a pickle of protocol 2, like CPython's pickler but without a memo for values: each call appends one
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
  /// Writes bytes in the form that protocol 2 has for them: `_codecs.encode(text, 'latin1')`.
  void bytes(std::string_view bytes);
  void global(std::string_view module, std::string_view name);
  void mark();
  void empty_tuple();
  void tuple(unsigned count);  // TUPLE1 to TUPLE3
  void tuple();                // all values from the mark on
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
