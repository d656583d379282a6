// Values among the objects of a pickle: everything that is not an array.
#include "values.hpp"

#include <algorithm>
#include <utility>

#include "base/limits.hpp"
#include "json/json.hpp"

namespace stele::inline v0::detail::numpy_pickle {
namespace {

using pickle::Kind;
using pickle::no_ref;
using pickle::Ref;

/// Maximum levels of lists and dicts in a Value.
constexpr unsigned max_value_levels = json::kMaxDepth / 2;

}  // namespace

Error Values::nested() { return Error(Errc::limit, "objects are nested too deeply, or contain themselves"); }
Error Values::full() { return index_error("the pickle's objects need too much memory"); }

Error Values::wrong(const pickle::Objects& objects, Ref r, std::string_view expected) {
  Error error = Error(Errc::unsupported, "the pickle contains something other than arrays, containers and values")
                    .expected(std::string(expected))
                    .hint("save a dict of arrays instead");
  if (r == no_ref) return error;
  Ref name = objects.is(r, Kind::object) ? objects.callable(r) : r;
  if (objects.is(r, Kind::big)) return std::move(error).found("an integer of more than 64 bits");
  if (!objects.is(name, Kind::global)) return std::move(error).found("an object");
  // A subclass of an array is an argument.
  if (const Ref args = objects.is(r, Kind::object) ? objects.args(r) : no_ref;
      objects.is(args, Kind::tuple) && objects.name(name) == "_reconstruct" && !objects.items(args).empty() &&
      objects.is(objects.items(args)[0], Kind::global)) {
    name = objects.items(args)[0];
  }
  return std::move(error).found(
      std::string(objects.module(name).substr(0, 100)).append(".").append(objects.name(name).substr(0, 100)));
}

Result<std::string> Values::key(Ref key) const {
  if (objects_.is(key, Kind::integer)) return std::to_string(objects_.integer(key));
  if (objects_.is(key, Kind::string) && !objects_.in_source(key)) return std::string(objects_.text(key));
  return Error(Errc::unsupported, "a key of a dict is not a name")
      .expected("a string of at most 4096 bytes, or an integer");
}
Result<Value> Values::value(Ref r, unsigned levels) {
  if (levels > max_value_levels) return nested();
  if (!memory_.take(3 * sizeof(Value))) return full();
  if (auto plain = objects_.plain(r)) return *std::move(plain);
  switch (objects_.kind(r)) {
    case Kind::string: {
      if (!objects_.in_source(r)) {
        if (!memory_.take(objects_.text(r).size())) return full();
        return Value(objects_.text(r));
      }
      STELE_TRY_ASSIGN(const std::string text, long_text(r));
      if (!json::valid_utf8(text)) return Error(Errc::malformed, "a string is not UTF-8");
      return Value(text);
    }
    case Kind::bytes: {
      STELE_TRY_ASSIGN(const std::string text, long_text(r));
      const auto* at = reinterpret_cast<const std::byte*>(text.data());
      return Value(Value::Bytes(at, at + text.size()));
    }
    case Kind::list:
    case Kind::tuple:
    case Kind::set: {
      Value::List all;
      for (const Ref item : objects_.items(r)) {
        STELE_TRY_ASSIGN(Value element, this->value(item, levels + 1));
        all.push_back(std::move(element));
      }
      return Value(std::move(all));
    }
    case Kind::dict: {
      Value::Map all;
      const auto items = objects_.items(r);
      for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
        STELE_TRY_ASSIGN(std::string name, this->key(items[i]));
        if (!memory_.take(64 + 3 * name.size())) return full();
        STELE_TRY_ASSIGN(Value element, this->value(items[i + 1], levels + 1));
        all.emplace_back(std::move(name), std::move(element));
      }
      return Value(std::move(all));
    }
    default:
      break;
  }
  return wrong(objects_, r, "an array, a container, a number or a string");
}

Result<std::string> Values::long_text(Ref r) {
  const pickle::Objects::Place place = objects_.place(r);
  if (!memory_.take(2 * place.size)) return full();
  std::string text(static_cast<std::size_t>(place.size), '\0');
  STELE_TRY(source_->read_at(place.offset, std::as_writable_bytes(std::span(text))));
  if (!place.latin1 || !objects_.is(r, Kind::bytes)) return text;
  std::size_t end = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c < 0x80) {
      text[end++] = text[i];
    } else if (c < 0xc4 && i + 1 < text.size()) {
      text[end++] = static_cast<char>((c & 3U) << 6 | (static_cast<unsigned char>(text[++i]) & 0x3fU));
    } else {
      return Error(Errc::malformed, "bytes of the pickle are not in Latin-1").offset(place.offset + i);
    }
  }
  text.resize(end);
  return text;
}

}  // namespace stele::inline v0::detail::numpy_pickle
