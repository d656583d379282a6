// Reading a source from its beginning to its end.
#include "io/cursor.hpp"

#include <doctest/doctest.h>
#include <stele/source.hpp>

#include <array>

namespace cursor_test {

namespace {

using namespace stele;

/// A source without a view.
class Unmapped final : public Source {
 public:
  explicit Unmapped(std::uint64_t size) : Source("unmapped"), size_(size) {}
  std::uint64_t size() const noexcept override { return size_; }
  Status read_at(std::uint64_t, std::span<std::byte>) const override { return {}; }

 private:
  std::uint64_t size_;
};

TEST_CASE("cursor: no bytes can be taken at the beginning of any source, also of an empty one") {
  const std::array<std::byte, 4> bytes{};
  const SourcePtr sources[] = {borrow_bytes(bytes), borrow_bytes({}), std::make_shared<Unmapped>(4),
                               std::make_shared<Unmapped>(0)};
  for (const SourcePtr& source : sources) {
    detail::Cursor in(source);
    CHECK(in.peek(0).has_value());
    CHECK(in.take(0).has_value());
    CHECK_FALSE(in.peek(5).has_value());
    CHECK(in.position() == 0);
  }
}

}  // namespace

}  // namespace cursor_test
