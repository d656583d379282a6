// Reads bytes as a pickle, mapped and not mapped, and walks every object. Writes the part that is a tree with the
// writer, and checks that it reads back as the same tree. Then repeats this with a budget that is too small.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "encodings/pickle/pickle.hpp"
#include "fuzz/require.hpp"
#include "stele/source.hpp"

namespace {

using stele_test::require;

using namespace stele;
namespace pickle = detail::pickle;
using pickle::Kind;
using pickle::Objects;
using pickle::Ref;

/// The bytes as a source without a view.
class Unmapped final : public Source {
 public:
  explicit Unmapped(std::span<const std::byte> bytes) : Source("fuzz"), bytes_(bytes) {}
  std::uint64_t size() const noexcept override { return bytes_.size(); }
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    require(offset <= bytes_.size() && out.size() <= bytes_.size() - offset);
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
    return {};
  }

 private:
  std::span<const std::byte> bytes_;
};

/// Checks that every number in the objects is that of an object, and that every text is inside them.
void check(const Objects& o) {
  const auto good = [&](Ref r) { require(r < o.size()); };
  const auto perhaps = [&](Ref r) { require(r < o.size() || r == pickle::no_ref); };
  good(o.root());
  std::uint64_t bytes = 0;
  for (Ref r = 0; r < o.size(); ++r) {
    for (const Ref item : o.items(r)) good(item);
    for (const Ref item : o.entries(r)) good(item);
    require((o.is(r, Kind::dict) ? o.items(r) : o.entries(r)).size() % 2 == 0);
    if (o.is(r, Kind::dict)) static_cast<void>(o.find(r, "k"));
    perhaps(o.callable(r));
    perhaps(o.args(r));
    perhaps(o.state(r));
    if (o.is(r, Kind::object)) require(o.is(o.args(r), Kind::tuple) && o.callable(r) < o.size());
    if (o.is(r, Kind::persistent)) good(o.args(r));
    std::string_view text;
    if (o.is(r, Kind::string) || o.is(r, Kind::bytes) || o.is(r, Kind::big)) text = o.text(r);
    if (o.is(r, Kind::big)) require(text.size() > 8);
    if (o.is(r, Kind::global)) static_cast<void>(o.is_global(r, o.module(r), o.name(r)));
    for (const char c : text.substr(0, 64)) bytes += static_cast<unsigned char>(c);
  }
  static_cast<void>(bytes);
}

/// Writes an object, with at most `left` operations. Returns false if the object cannot be written.
bool write(const Objects& o, Ref r, pickle::Writer& out, unsigned depth, unsigned& left) {
  if (depth == 0 || left == 0) return false;
  --left;
  const auto all = [&](std::span<const Ref> items) {
    out.mark();
    return std::all_of(items.begin(), items.end(), [&](Ref item) { return write(o, item, out, depth - 1, left); });
  };
  switch (o.kind(r)) {
    case Kind::none:
      return out.none(), true;
    case Kind::boolean:
      return out.boolean(o.boolean(r)), true;
    case Kind::integer:
      return out.integer(o.integer(r)), true;
    case Kind::real:
      return out.real(o.real(r)), true;
    case Kind::string:
      return out.string(o.text(r)), true;
    case Kind::bytes:
      return out.bytes(o.text(r)), true;
    case Kind::list:
      out.empty_list();
      return all(o.items(r)) && (out.appends(), true);
    case Kind::tuple:
      return all(o.items(r)) && (out.tuple(), true);
    case Kind::dict:
      if (o.callable(r) != pickle::no_ref || o.state(r) != pickle::no_ref) return false;
      out.empty_dict();
      return all(o.items(r)) && (out.set_items(), true);
    case Kind::persistent:
      return write(o, o.args(r), out, depth - 1, left) && (out.persistent(), true);
    default:
      return false;
  }
}

bool same(const Objects& a, Ref x, const Objects& b, Ref y) {
  if (a.kind(x) != b.kind(y)) return false;
  switch (a.kind(x)) {
    case Kind::boolean:
      return a.boolean(x) == b.boolean(y);
    case Kind::integer:
      return a.integer(x) == b.integer(y);
    case Kind::real: {
      const double m = a.real(x), n = b.real(y);
      return m == n || (m != m && n != n);
    }
    case Kind::string:
    case Kind::bytes:
      return a.text(x) == b.text(y);
    case Kind::persistent:
      return same(a, a.args(x), b, b.args(y));
    default: {
      const auto p = a.items(x), q = b.items(y);
      return std::equal(p.begin(), p.end(), q.begin(), q.end(), [&](Ref i, Ref j) { return same(a, i, b, j); });
    }
  }
}

Result<Objects> read(const SourcePtr& source, std::uint64_t memory, std::uint64_t& end) {
  Limits limits;
  limits.index_bytes = memory;
  detail::IndexBudget budget(limits, source->size(), detail::index_rate::token);
  detail::Cursor in(source);
  auto objects = pickle::read(in, budget);
  end = in.position();
  require(end <= source->size());
  return objects;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  std::uint64_t end = 0, other_end = 0;
  const auto objects = read(borrow_bytes(bytes), 0, end);
  const auto again = read(std::make_shared<Unmapped>(bytes), 0, other_end);
  require(objects.has_value() == again.has_value());
  if (!objects) {
    require(objects.error().code() == again.error().code() && objects.error().offset() == again.error().offset());
    return 0;
  }
  require(end == other_end && objects->size() == again->size());
  check(*objects);
  check(*again);
  const auto less = read(borrow_bytes(bytes), 1 + size * 8, end);
  require(less || less.error().code() == Errc::limit);

  std::string text;
  pickle::Writer out(text);
  unsigned left = 2000;
  if (!write(*objects, objects->root(), out, 60, left)) return 0;
  out.finish();
  const auto copy = read(borrow_bytes(std::as_bytes(std::span(text))), 0, end);
  require(copy && end == text.size() && same(*objects, objects->root(), *copy, copy->root()));
  return 0;
}
