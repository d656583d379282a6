// Names and calls. A call of one of the standard library's plain types builds the container. The memory budget bounds
// the copies, because few bytes may request many copies of one list.
#include "encodings/pickle/machine.hpp"

namespace stele::inline v0::detail::pickle {
namespace {

struct Renamed {
  Name old, now;  // an empty name matches all other names of the module
};
// Source: CPython 3.13, Lib/_compat_pickle.py, without the modules that models do not use.
constexpr Renamed renamed[] = {
    {{"__builtin__", "xrange"}, {"builtins", "range"}},
    {{"__builtin__", "reduce"}, {"functools", "reduce"}},
    {{"__builtin__", "intern"}, {"sys", "intern"}},
    {{"__builtin__", "unichr"}, {"builtins", "chr"}},
    {{"__builtin__", "unicode"}, {"builtins", "str"}},
    {{"__builtin__", "long"}, {"builtins", "int"}},
    {{"__builtin__", ""}, {"builtins", ""}},
    {{"copy_reg", ""}, {"copyreg", ""}},
    {{"exceptions", "StandardError"}, {"builtins", "Exception"}},
    {{"exceptions", ""}, {"builtins", ""}},
    {{"itertools", "izip"}, {"builtins", "zip"}},
    {{"itertools", "imap"}, {"builtins", "map"}},
    {{"itertools", "ifilter"}, {"builtins", "filter"}},
    {{"itertools", "izip_longest"}, {"itertools", "zip_longest"}},
    {{"itertools", "ifilterfalse"}, {"itertools", "filterfalse"}},
    {{"UserDict", "IterableUserDict"}, {"collections", "UserDict"}},
    {{"UserDict", ""}, {"collections", ""}},
    {{"UserList", ""}, {"collections", ""}},
    {{"UserString", ""}, {"collections", ""}},
    {{"Queue", ""}, {"queue", ""}},
    {{"cPickle", ""}, {"pickle", ""}},
    {{"cStringIO", ""}, {"io", ""}},
    {{"StringIO", ""}, {"io", ""}},
    {{"thread", ""}, {"_thread", ""}},
};

}  // namespace

Name name_in_python3(Name name) noexcept {
  for (const Renamed& entry : renamed) {
    if (entry.old.module != name.module) continue;
    if (entry.old.name == name.name) return entry.now;
    if (entry.old.name.empty()) return {entry.now.module, name.name};
  }
  return name;
}

/// Removes the top `count` values and pushes `by`.
Status Machine::replace(std::size_t count, Ref by) {
  if (count == 0) return push(by);
  stack_.resize(stack_.size() - count + 1);
  stack_.back() = by;
  return {};
}

Result<std::uint32_t> Machine::line() {
  const std::size_t begin = out_.text_.size();
  for (std::uint32_t size = 0;; ++size) {
    STELE_TRY_ASSIGN(const char c, in_.little<char>());
    if (c == '\n') {
      if (!is_python_text(std::string_view(out_.text_).substr(begin))) return bad("has bytes that are not UTF-8");
      return size;
    }
    if (size == max_name_bytes) return over("bytes of a name", max_name_bytes);
    STELE_TRY(keep(&c, 1));
  }
}

Status Machine::global() {
  const std::uint64_t begin = out_.text_.size();
  STELE_TRY_ASSIGN(const std::uint32_t module, line());
  STELE_TRY_ASSIGN(const std::uint32_t name, line());
  return put_global(begin, module, begin + module, name);
}

Status Machine::stack_global() {
  STELE_TRY(need(2));
  const Ref module = stack_[stack_.size() - 2], name = stack_.back();
  if (kind(module) != Kind::string) return wrong("a string", module);
  if (kind(name) != Kind::string) return wrong("a string", name);
  const std::size_t module_size = out_.text(module).size(), name_size = out_.text(name).size();
  if (std::max(module_size, name_size) > max_name_bytes) return over("bytes of a name", max_name_bytes);
  stack_.resize(stack_.size() - 2);
  return put_global(out_.nodes_[module].number, static_cast<std::uint32_t>(module_size), out_.nodes_[name].number,
                    static_cast<std::uint32_t>(name_size));
}

/// Pushes a name whose parts are already in the text.
Status Machine::put_global(std::uint64_t module, std::uint32_t module_size, std::uint64_t name,
                           std::uint32_t name_size) {
  if (protocol_ < 3) {
    const std::string_view all = out_.text_;
    const Name old = {all.substr(static_cast<std::size_t>(module), module_size),
                      all.substr(static_cast<std::size_t>(name), name_size)};
    const Name now = name_in_python3(old);
    const bool other_name = now.name.data() != old.name.data();  // otherwise only the module's name changes
    if (now.module.data() != old.module.data()) {
      module = out_.text_.size();
      module_size = static_cast<std::uint32_t>(now.module.size());
      STELE_TRY(keep(now.module.data(), now.module.size()));
    }
    if (other_name) {
      name = out_.text_.size();
      name_size = static_cast<std::uint32_t>(now.name.size());
      STELE_TRY(keep(now.name.data(), now.name.size()));
    }
  }
  return push(Node{.number = module,
                   .kind = Kind::global,
                   .args = static_cast<std::uint32_t>(name),
                   .state = static_cast<std::uint32_t>(name >> 32),
                   .first_item = module_size,
                   .item_count = name_size});
}

Status Machine::reduce() {
  STELE_TRY(need(2));
  const Ref callable = stack_[stack_.size() - 2], args = stack_.back();
  STELE_TRY_ASSIGN(const Ref r, call(callable, args, false));
  return replace(2, r);
}

Status Machine::new_object() {
  STELE_TRY(need(2));
  const Ref callable = stack_[stack_.size() - 2], args = stack_.back();
  STELE_TRY_ASSIGN(const Ref r, call(callable, args, true));
  return replace(2, r);
}

Status Machine::new_object_with_keywords() {
  STELE_TRY(need(3));
  const Ref keywords = stack_.back();
  if (kind(keywords) != Kind::dict) return wrong("a dict", keywords);
  stack_.pop_back();
  return new_object();
}

Status Machine::build() {
  STELE_TRY(need(2));
  const Ref to = stack_[stack_.size() - 2];
  if (kind(to) != Kind::object && kind(to) != Kind::dict) return wrong("an object or a dict", to);
  Ref& state = out_.nodes_[to].state;
  if (state != no_ref) return bad("sets a second state of one object");
  state = stack_.back();
  stack_.pop_back();
  return {};
}

Status Machine::persistent() {
  STELE_TRY(need(1));
  STELE_TRY_ASSIGN(const Ref r, make(Node{.kind = Kind::persistent, .args = stack_.back()}));
  return replace(1, r);
}

Result<Ref> Machine::call(Ref callable, Ref args, bool is_new) {
  if (kind(args) != Kind::tuple) return wrong("a tuple", args);
  if (kind(callable) == Kind::global) {
    STELE_TRY_ASSIGN(const Ref plain, call_plain(callable, args, is_new));
    if (plain != no_ref) return plain;
  } else if (kind(callable) != Kind::object && kind(callable) != Kind::persistent) {
    return wrong("a name, an object or a persistent id", callable);
  }
  return make(Node{.kind = Kind::object, .callable = callable, .args = args});
}

/// Calls a name of the standard library that builds a plain object; returns no_ref for any other call.
Result<Ref> Machine::call_plain(Ref callable, Ref args, bool is_new) {
  const std::string_view module = out_.module(callable), name = out_.name(callable);
  const std::uint32_t count = this->count(args);
  if (module == "_codecs" && name == "encode" && count == 2) return encode(item(args, 0), item(args, 1));
  if (module == "copyreg" && name == "_reconstructor" && count == 3 && kind(item(args, 0)) == Kind::global &&
      out_.is_global(item(args, 1), "builtins", "object") && kind(item(args, 2)) == Kind::none) {
    const Ref of = item(args, 0);
    STELE_TRY_ASSIGN(const Ref none, shared(empty_tuple_, Node{.kind = Kind::tuple}));
    return make(Node{.kind = Kind::object, .callable = of, .args = none});
  }
  if (is_new && count != 0) return no_ref;  // the class's __new__ may ignore its arguments
  if (module == "collections" && (name == "OrderedDict" || name == "Counter" || name == "defaultdict")) {
    return call_dict(callable, args);
  }
  if (module != "builtins") return no_ref;
  if (name == "dict") return call_dict(callable, args);
  if (name == "list") return call_sequence(Kind::list, args);
  if (name == "tuple") {
    STELE_TRY_ASSIGN(const Ref r, call_sequence(Kind::tuple, args));
    if (r != no_ref && in_place_) out_.nodes_[r].callable = callable;
    return r;
  }
  if (name == "set" || name == "frozenset") return call_sequence(Kind::set, args);
  if (name == "bytes" || name == "bytearray") return call_bytes(args, name == "bytearray");
  return no_ref;
}

/// Builds a dict: an empty one without arguments, or from a list of pairs or a dict. A defaultdict has its factory as
/// the first argument.
Result<Ref> Machine::call_dict(Ref callable, Ref args) {
  const std::string_view name = out_.name(callable);
  const bool has_factory = name == "defaultdict" && count(args) != 0;
  const std::uint32_t first = has_factory ? 1 : 0;
  if (count(args) > first + 1) return no_ref;
  scratch_.clear();
  if (count(args) > first) {
    const Ref from = item(args, first);
    if (kind(from) == Kind::dict) {
      STELE_TRY(copy(from));
    } else if ((kind(from) == Kind::list || kind(from) == Kind::tuple) && name != "Counter") {  // Counter counts
      STELE_TRY(copy_pairs(from));
    } else {
      return no_ref;
    }
  }
  const Node node{
      .kind = Kind::dict, .callable = name == "dict" ? no_ref : callable, .args = has_factory ? args : no_ref};
  STELE_TRY_ASSIGN(const Ref r, make(node));
  STELE_TRY(add(r, scratch_));
  return r;
}

Result<Ref> Machine::call_sequence(Kind kind, Ref args) {
  if (count(args) > 1) return no_ref;
  scratch_.clear();
  if (count(args) == 1) {
    const Ref from = item(args, 0);
    const Kind of = this->kind(from);
    if (of != Kind::list && of != Kind::tuple && of != Kind::set) return no_ref;
    STELE_TRY(copy(from));
  }
  STELE_TRY_ASSIGN(const Ref r, make(Node{.kind = kind}));
  STELE_TRY(add(r, scratch_));
  return r;
}

Result<Ref> Machine::call_bytes(Ref args, bool is_array) {
  if (count(args) == 0) return make(Node{.number = 0, .kind = Kind::bytes, .first_item = 0, .item_count = 0});
  const Ref from = item(args, 0);
  if (count(args) == 1 && kind(from) == Kind::bytes) return make(Node(out_.nodes_[from]));  // shares the text
  if (count(args) == 2 && is_array) return encode(from, item(args, 1));
  return no_ref;
}

/// Returns the bytes encoded as a string of characters below 256, which is how protocol 2 stores bytes.
Result<Ref> Machine::encode(Ref text, Ref encoding) {
  if (kind(text) != Kind::string || kind(encoding) != Kind::string) return no_ref;
  if (out_.text(encoding) != "latin1" && out_.text(encoding) != "latin-1") return no_ref;
  if (in_place_) {
    Node node = out_.nodes_[text];
    node.number = Objects::in_source_;
    node.kind = Kind::bytes;
    return make(node);
  }
  const auto begin = static_cast<std::size_t>(out_.nodes_[text].number);
  const std::size_t end = begin + out_.text(text).size();
  std::string& all = out_.text_;
  std::size_t size = 0;
  for (std::size_t i = begin; i != end; ++i) {
    const auto c = static_cast<unsigned char>(all[i]);
    if (c > 0xc3) return bad("encodes a character that Latin-1 lacks");
    if (c < 0x80 || c >= 0xc0) ++size;
  }
  const Node node{.number = all.size(),
                  .kind = Kind::bytes,
                  .first_item = static_cast<std::uint32_t>(size),
                  .item_count = static_cast<std::uint32_t>(std::uint64_t{size} >> 32)};
  STELE_TRY(room(all, size));
  for (std::size_t i = begin; i != end; ++i) {
    const auto c = static_cast<unsigned char>(all[i]);
    all.push_back(c < 0x80 ? all[i] : static_cast<char>((c & 3) << 6 | (static_cast<unsigned char>(all[++i]) & 0x3f)));
  }
  return make(node);
}

/// Copies the items of a container to the end of scratch_.
Status Machine::copy(Ref container) {
  STELE_TRY(room(scratch_, count(container)));
  return each(container, [&](std::span<const Ref> run) {
    scratch_.insert(scratch_.end(), run.begin(), run.end());
    return Status();
  });
}

/// Copies keys and values of a list of pairs to the end of scratch_.
Status Machine::copy_pairs(Ref list) {
  return each(list, [&](std::span<const Ref> run) -> Status {
    for (const Ref pair : run) {
      if ((kind(pair) != Kind::list && kind(pair) != Kind::tuple) || count(pair) != 2) {
        return wrong("a tuple or list of two values", pair);
      }
      STELE_TRY(copy(pair));
    }
    return {};
  });
}

}  // namespace stele::inline v0::detail::pickle
