// Runs the operations of a pickle, which make its objects.
#include <bit>

#include "encodings/pickle/machine.hpp"
#include "json/json.hpp"

namespace stele::inline v0::detail::pickle {
namespace {

constexpr const char* kind_names[] = {"None",     "a bool", "an integer", "an integer",     "a float",
                                      "a string", "bytes",  "a list",     "a tuple",        "a dict",
                                      "a set",    "a name", "an object",  "a persistent id"};

}  // namespace

/// The operations, indexed by their byte. Known operations without a function are unsupported: text of protocol 0,
/// classes of protocol 1, numbers for names (copyreg's registry), buffers outside the pickle.
struct Table {
  struct Operation {
    const char* name = nullptr;
    unsigned width = 0;  // size of its argument in bytes, a little-endian number
    Status (Machine::*run)() = nullptr;
    std::uint64_t mask = 0;  // mask for the bits of its argument
  };

  constexpr Table() {
    using M = Machine;
    constants();
    all[0x80] = {"PROTO", 1, &M::protocol_again};
    all[0x95] = {"FRAME", 8, &M::frame};
    all['.'] = {"STOP", 0, &M::stop};
    all['('] = {"MARK", 0, &M::mark};
    all['0'] = {"POP", 0, &M::pop_value};
    all['1'] = {"POP_MARK", 0, &M::pop_mark};
    all['2'] = {"DUP", 0, &M::dup};
    all['q'] = {"BINPUT", 1, &M::put};
    all['r'] = {"LONG_BINPUT", 4, &M::put};
    all['h'] = {"BINGET", 1, &M::get};
    all['j'] = {"LONG_BINGET", 4, &M::get};
    all[0x94] = {"MEMOIZE", 0, &M::memoize};
    all[']'] = {"EMPTY_LIST", 0, &M::empty};
    all['a'] = {"APPEND", 0, &M::append};
    all['e'] = {"APPENDS", 0, &M::add_many};
    all[')'] = {"EMPTY_TUPLE", 0, &M::tuple};
    all['t'] = {"TUPLE", 0, &M::tuple};
    all[0x85] = {"TUPLE1", 0, &M::tuple_of};
    all[0x86] = {"TUPLE2", 0, &M::tuple_of};
    all[0x87] = {"TUPLE3", 0, &M::tuple_of};
    all['}'] = {"EMPTY_DICT", 0, &M::empty};
    all['s'] = {"SETITEM", 0, &M::set_item};
    all['u'] = {"SETITEMS", 0, &M::add_many};
    all[0x8f] = {"EMPTY_SET", 0, &M::empty};
    all[0x90] = {"ADDITEMS", 0, &M::add_many};
    all[0x91] = {"FROZENSET", 0, &M::frozen_set};
    all['c'] = {"GLOBAL", 0, &M::global};
    all[0x93] = {"STACK_GLOBAL", 0, &M::stack_global};
    all['R'] = {"REDUCE", 0, &M::reduce};
    all[0x81] = {"NEWOBJ", 0, &M::new_object};
    all[0x92] = {"NEWOBJ_EX", 0, &M::new_object_with_keywords};
    all['b'] = {"BUILD", 0, &M::build};
    all['Q'] = {"BINPERSID", 0, &M::persistent};
    all['I'].name = "INT", all['L'].name = "LONG", all['S'].name = "STRING", all['V'].name = "UNICODE";
    all['F'].name = "FLOAT", all['l'].name = "LIST", all['d'].name = "DICT", all['g'].name = "GET";
    all['p'].name = "PUT", all['P'].name = "PERSID", all['i'].name = "INST", all['o'].name = "OBJ";
    all[0x82].name = "EXT1", all[0x83].name = "EXT2", all[0x84].name = "EXT4";
    all[0x97].name = "NEXT_BUFFER", all[0x98].name = "READONLY_BUFFER";
    for (Operation& operation : all) {
      operation.mask = operation.width == 8 ? UINT64_MAX : (std::uint64_t{1} << 8 * operation.width) - 1;
    }
  }
  constexpr void constants() {
    using M = Machine;
    all['N'] = {"NONE", 0, &M::none};
    all[0x88] = {"NEWTRUE", 0, &M::boolean};
    all[0x89] = {"NEWFALSE", 0, &M::boolean};
    all['J'] = {"BININT", 4, &M::integer};
    all['K'] = {"BININT1", 1, &M::integer};
    all['M'] = {"BININT2", 2, &M::integer};
    all[0x8a] = {"LONG1", 1, &M::long_integer};
    all[0x8b] = {"LONG4", 4, &M::long_integer};
    all['G'] = {"BINFLOAT", 8, &M::real};
    all['X'] = {"BINUNICODE", 4, &M::string};
    all[0x8c] = {"SHORT_BINUNICODE", 1, &M::string};
    all[0x8d] = {"BINUNICODE8", 8, &M::string};
    all['B'] = {"BINBYTES", 4, &M::byte_string};
    all['C'] = {"SHORT_BINBYTES", 1, &M::byte_string};
    all[0x8e] = {"BINBYTES8", 8, &M::byte_string};
    all[0x96] = {"BYTEARRAY8", 8, &M::byte_string};
    all['T'] = {"BINSTRING", 4, &M::old_string};
    all['U'] = {"SHORT_BINSTRING", 1, &M::old_string};
  }
  std::array<Operation, 256> all{};
};

namespace {

constexpr Table operations;

}  // namespace

bool is_python_text(std::string_view text) noexcept {
  // 0xed is the first byte only of characters D000 to DFFF; from D800 on, the second byte is at least 0xa0.
  std::size_t begin = 0;
  for (std::size_t at = text.find('\xed'); at != text.npos; at = text.find('\xed', at + 1)) {
    if (text.size() - at < 3 || (text[at + 1] & 0xe0) != 0xa0 || (text[at + 2] & 0xc0) != 0x80) continue;
    if (!json::valid_utf8(text.substr(begin, at - begin))) return false;
    begin = at + 3;
  }
  return json::valid_utf8(text.substr(begin));
}

Error Machine::bad(std::string_view what, Errc code) const {
  const char* name = operations.all[op_].name;
  return Error(code, "the pickle's operation " + std::string(name != nullptr ? name : "") + " " + std::string(what))
      .offset(at_);
}

Error Machine::wrong(const char* expected, Ref found) const {
  return bad("finds an operand of another kind").expected(expected).found(kind_names[static_cast<int>(kind(found))]);
}

Error Machine::over(const char* what, std::uint64_t limit) const {
  return Error(Errc::limit, "the pickle has too many or too long " + std::string(what))
      .offset(at_)
      .expected("at most " + std::to_string(limit));
}

Result<Objects> Machine::run() {
  at_ = in_.position();
  STELE_TRY_ASSIGN(const std::byte* head, in_.take(2));
  const auto version = pickle::protocol(std::span(head, 2));
  if (!version) {
    return Error(Errc::bad_magic, "the data does not begin with a pickle of protocol 2 to 5")
        .offset(at_)
        .expected("bytes 128, 2 to 5")
        .found("bytes " + std::to_string(std::to_integer<unsigned>(head[0])) + ", " +
               std::to_string(std::to_integer<unsigned>(head[1])));
  }
  protocol_ = *version;
  while (!stopped_) STELE_TRY(run_one());
  STELE_TRY(finish());
  return std::move(out_);
}

Status Machine::run_one() {
  at_ = in_.position();
  // Usually the whole operation is in memory.
  if (const auto bytes = in_.ready(); bytes.size() > sizeof argument_) {
    op_ = std::to_integer<unsigned>(bytes[0]);
    const Table::Operation& operation = operations.all[op_];
    if (operation.run != nullptr) {
      in_.pass(1 + operation.width);
      argument_ = load_le<std::uint64_t>(bytes.data() + 1) & operation.mask;
      ++operations_;
      return (this->*operation.run)();
    }
  }
  STELE_TRY_ASSIGN(op_, in_.little<std::uint8_t>());
  const Table::Operation& operation = operations.all[op_];
  if (operation.run == nullptr) {
    if (operation.name != nullptr) return bad("is not supported", Errc::unsupported);
    return Error(Errc::malformed, "the byte is not a pickle operation").offset(at_).found(std::to_string(op_));
  }
  if (operation.width != 0) {
    STELE_TRY_ASSIGN(const std::byte* bytes, in_.take(operation.width));
    argument_ = 0;
    for (unsigned i = operation.width; i-- != 0;) argument_ = argument_ << 8 | std::to_integer<std::uint64_t>(bytes[i]);
  }
  ++operations_;
  return (this->*operation.run)();
}

Status Machine::need(std::size_t count) const {
  if (stack_.size() - fence() >= count) return {};
  return bad("finds too few values on the stack")
      .expected(std::to_string(count))
      .found(std::to_string(stack_.size() - fence()));
}

Result<Ref> Machine::pop() {
  STELE_TRY(need(1));
  const Ref top = stack_.back();
  stack_.pop_back();
  return top;
}

Status Machine::push(Ref r) {
  STELE_TRY(room(stack_));
  if (stack_.size() >= no_ref) return over("values on the stack", no_ref);
  stack_.push_back(r);
  return {};
}

Status Machine::push(const Node& node) {
  STELE_TRY_ASSIGN(const Ref r, make(node));
  return push(r);
}

Result<Ref> Machine::make(const Node& node) {
  STELE_TRY(room(out_.nodes_));
  if (out_.nodes_.size() >= no_ref) return over("objects", no_ref);
  out_.nodes_.push_back(node);
  return static_cast<Ref>(out_.nodes_.size() - 1);
}

/// Returns `ref`; creates it from `node` first if it does not exist yet.
Result<Ref> Machine::shared(Ref& ref, const Node& node) {
  if (ref == no_ref) {
    STELE_TRY_ASSIGN(ref, make(node));
  }
  return ref;
}

Result<std::size_t> Machine::unmark() {
  if (marks_.empty()) return bad("finds no mark on the stack");
  const std::size_t first = marks_.back();
  marks_.pop_back();
  return first;
}

std::string_view Machine::text(const Node& node) const noexcept {
  if (node.number == Objects::in_source_) return {};
  const std::uint64_t size = node.first_item | std::uint64_t{node.item_count} << 32;
  return std::string_view(out_.text_).substr(static_cast<std::size_t>(node.number), static_cast<std::size_t>(size));
}

Result<Objects::Node> Machine::text(Kind kind, std::uint64_t size) {
  if (size > in_.left()) {
    return bad("has more bytes than the file", Errc::truncated)
        .expected(std::to_string(size) + " bytes")
        .found(std::to_string(in_.left()));
  }
  const std::uint64_t at = in_.position();
  const bool left = in_place_ && (kind == Kind::bytes || size > max_kept_string);
  const Node node{.number = left ? Objects::in_source_ : out_.text_.size(),
                  .kind = kind,
                  .first_item = static_cast<std::uint32_t>(size),
                  .item_count = static_cast<std::uint32_t>(size >> 32),
                  .first_entry = static_cast<std::uint32_t>(at),
                  .entry_count = static_cast<std::uint32_t>(at >> 32) | (kind == Kind::string ? Objects::latin1_ : 0)};
  if (left) {
    STELE_TRY(in_.skip(size));
    return node;
  }
  while (size != 0) {  // in pieces, because a gzip file may be shorter than left()
    const auto piece = static_cast<std::size_t>(std::min<std::uint64_t>(size, Cursor::max_taken_bytes));
    STELE_TRY_ASSIGN(const std::byte* bytes, in_.take(piece));
    STELE_TRY(keep(reinterpret_cast<const char*>(bytes), piece));
    size -= piece;
  }
  return node;
}

Status Machine::keep(const char* bytes, std::size_t size) {
  STELE_TRY(room(out_.text_, size));
  out_.text_.append(bytes, size);
  return {};
}

Status Machine::none() {
  STELE_TRY_ASSIGN(const Ref r, shared(none_, Node{}));
  return push(r);
}

Status Machine::boolean() {
  const bool yes = op_ == 0x88;
  STELE_TRY_ASSIGN(const Ref r, shared(yes ? true_ : false_, Node{.number = yes, .kind = Kind::boolean}));
  return push(r);
}

Status Machine::put_integer(std::int64_t value) {
  const Node node{.number = static_cast<std::uint64_t>(value), .kind = Kind::integer};
  if (value < 0 || value > 255) return push(node);
  STELE_TRY_ASSIGN(const Ref r, shared(integers_[static_cast<std::size_t>(value)], node));
  return push(r);
}

Status Machine::integer() {
  return put_integer(op_ == 'J' ? static_cast<std::int32_t>(argument_) : static_cast<std::int64_t>(argument_));
}

Status Machine::long_integer() {
  if (op_ == 0x8b && argument_ > INT32_MAX) return bad("has a negative length");
  if (argument_ > max_integer_bytes) return over("bytes of an integer", max_integer_bytes);
  auto size = static_cast<std::size_t>(argument_);
  STELE_TRY_ASSIGN(const std::byte* bytes, in_.take(size));
  const auto at = [&](std::size_t i) { return std::to_integer<unsigned>(bytes[i]); };
  while (size > 8 && at(size - 1) == ((at(size - 2) & 0x80) != 0 ? 0xff : 0)) --size;  // redundant sign bytes
  if (size <= 8) {
    std::uint64_t n = size != 0 && (at(size - 1) & 0x80) != 0 ? ~std::uint64_t{0} : 0;
    for (std::size_t i = size; i-- != 0;) n = n << 8 | at(i);
    return put_integer(static_cast<std::int64_t>(n));
  }
  const Node node{
      .number = out_.text_.size(), .kind = Kind::big, .first_item = static_cast<std::uint32_t>(size), .item_count = 0};
  STELE_TRY(keep(reinterpret_cast<const char*>(bytes), size));
  return push(node);
}

Status Machine::real() {
  std::uint64_t bits = 0;  // the only big-endian number
  for (unsigned i = 0; i < 64; i += 8) bits = bits << 8 | (argument_ >> i & 0xff);
  return push(Node{.number = bits, .kind = Kind::real});
}

Status Machine::string() {
  STELE_TRY_ASSIGN(const Node node, text(Kind::string, argument_));
  if (!is_python_text(text(node))) return bad("has bytes that are not UTF-8");
  return push(node);
}

Status Machine::byte_string() {
  STELE_TRY_ASSIGN(const Node node, text(Kind::bytes, argument_));
  return push(node);
}

Status Machine::old_string() {
  if (argument_ > INT32_MAX) return bad("has a negative length");
  STELE_TRY_ASSIGN(Node node, text(Kind::string, argument_));
  if (node.number == Objects::in_source_ || !json::valid_utf8(text(node))) node.kind = Kind::bytes;
  node.entry_count &= ~Objects::latin1_;
  return push(node);
}

Status Machine::put_at(std::uint64_t index) {
  STELE_TRY(need(1));
  if (index >= memo_.size()) {
    if (index >= operations_ + max_memo_gap) {
      return bad("stores to a memo entry with an implausibly high number", Errc::limit)
          .expected("less than " + std::to_string(operations_ + max_memo_gap))
          .found(std::to_string(index));
    }
    const auto size = static_cast<std::size_t>(index) + 1;
    STELE_TRY(room(memo_, size - memo_.size()));
    memo_.resize(size, no_ref);
  }
  Ref& entry = memo_[static_cast<std::size_t>(index)];
  if (entry == no_ref) ++memo_count_;
  entry = stack_.back();
  return {};
}

Status Machine::put() { return put_at(argument_); }
Status Machine::memoize() { return put_at(memo_count_); }

Status Machine::get() {
  if (argument_ < memo_.size() && memo_[static_cast<std::size_t>(argument_)] != no_ref) {
    return push(memo_[static_cast<std::size_t>(argument_)]);
  }
  return bad("loads an entry of the memo that is not set").found(std::to_string(argument_));
}

Status Machine::stop() {
  STELE_TRY_ASSIGN(out_.root_, pop());
  stopped_ = true;
  return {};
}

Result<Objects> read(Cursor& in, IndexBudget& memory) { return Machine(in, memory, false).run(); }
Result<Objects> read_in_place(Cursor& in, IndexBudget& memory) { return Machine(in, memory, true).run(); }

}  // namespace stele::inline v0::detail::pickle
