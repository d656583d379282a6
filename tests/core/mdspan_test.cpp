// The views come from tests/support/mdspan.hpp, or, with STELE_TEST_MDSPAN, from the header that it names, of a library
// whose namespace is STELE_TEST_MDSPAN_NAMESPACE.
#include "stele/mdspan.hpp"

#include <doctest/doctest.h>

#include <numeric>

#include "stele/stele.hpp"

#ifdef STELE_TEST_MDSPAN
#include STELE_TEST_MDSPAN
namespace md = STELE_TEST_MDSPAN_NAMESPACE;
inline constexpr std::size_t dynamic = md::dynamic_extent;
#else
#include "support/mdspan.hpp"
using md::dynamic;
#endif

namespace {

using Matrix = md::extents<int, dynamic, dynamic>;
using Right = md::mdspan<float, Matrix>;
using Left = md::mdspan<float, Matrix, md::layout_left>;
using Strided = md::mdspan<float, Matrix, md::layout_stride>;
using Fixed = md::mdspan<double, md::extents<std::size_t, 2, 3>>;
using Vector = md::mdspan<float, md::extents<std::size_t, dynamic>, md::layout_left>;
using Scalar = md::mdspan<float, md::extents<int>>;
using Cube = md::mdspan<std::int64_t, md::extents<std::size_t, dynamic, 3, dynamic>, md::layout_left>;

template <class T>
inline constexpr bool contiguous = requires(T& t) {
  stele::tensor_traits<T>::data(t);
};
static_assert(contiguous<Right> && contiguous<Fixed> && contiguous<Vector> && contiguous<Scalar>);
static_assert(!contiguous<Left> && !contiguous<Strided> && !contiguous<Cube>);
static_assert(stele::tensor_traits<Cube>::rank == 3);

struct Model {
  Right right;
  Left left;
  Strided padded;
  Fixed fixed{static_cast<double*>(nullptr)};
  Vector vector;
  Scalar scalar{static_cast<float*>(nullptr)};
  Cube cube;
};

/// Memory of a Model's views, and the views of it.
struct Owner {
  std::vector<float> right, left, padded, vector = std::vector<float>(4), scalar = std::vector<float>(1);
  std::vector<double> fixed = std::vector<double>(6);
  std::vector<std::int64_t> cube = std::vector<std::int64_t>(2 * 3 * 5);
  Model model;

  Owner(int rows, int columns)
      : right(static_cast<std::size_t>(rows * columns)),
        left(right.size()),
        padded(static_cast<std::size_t>(rows * (columns + 3))) {
    model.right = Right(right.data(), rows, columns);
    model.left = Left(left.data(), rows, columns);
    model.padded =
        Strided(padded.data(), Strided::mapping_type(Matrix(rows, columns), std::array<int, 2>{columns + 3, 1}));
    model.fixed = Fixed(fixed.data());
    model.vector = Vector(vector.data(), 4);
    model.scalar = Scalar(scalar.data());
    model.cube = Cube(cube.data(), 2, 5);
  }
  /// Counts up in row-major order.
  void number() {
    const auto rows = static_cast<std::size_t>(model.right.extent(0));
    const auto columns = static_cast<std::size_t>(model.right.extent(1));
    for (std::size_t r = 0, n = 0; r < rows; ++r) {
      for (std::size_t c = 0; c < columns; ++c, ++n) {
        right[n] = left[c * rows + r] = padded[r * (columns + 3) + c] = static_cast<float>(n);
      }
    }
    std::iota(fixed.begin(), fixed.end(), 1);
    std::iota(vector.begin(), vector.end(), 1.0F);
    scalar = {7};
    std::iota(cube.begin(), cube.end(), 1);
  }
};

}  // namespace

TEST_CASE_TEMPLATE("mdspans round trip in every recorder", Format, stele::SteleFormat, stele::SafetensorsFormat,
                   stele::JsonFormat) {
  const stele::MemoryRecorder<Format> recorder;
  for (const auto& [rows, columns] : {std::pair{5, 7}, {33, 16}, {1000, 300}, {3, 70000}}) {
    Owner from(rows, columns);
    from.number();
    const stele::Bytes bytes = recorder.save(from.model).value();
    Owner to(rows, columns);
    recorder.load_into(to.model, bytes).value();
    CHECK(to.right == from.right);
    CHECK(to.left == from.left);
    CHECK(to.padded == from.padded);  // what lies between the rows is 0 in both
    CHECK(to.fixed == from.fixed);
    CHECK(to.vector == from.vector);
    CHECK(to.scalar == from.scalar);
    CHECK(to.cube == from.cube);
  }
}

TEST_CASE("an mdspan is written row-major") {
  Owner owner(40, 9);
  owner.number();
  const stele::Snapshot snapshot = stele::snapshot_of(owner.model).value();
  const stele::LeafView right = snapshot.find("right").value();
  CHECK(stele::to_string(right.shape()) == "[40, 9]");
  CHECK(static_cast<const void*>(right.view().data()) == owner.right.data());  // in place
  CHECK(snapshot.find("scalar")->shape().empty());
  std::vector<std::byte> a(right.byte_size());
  REQUIRE(right.read(0, a));
  for (const char* other : {"left", "padded"}) {
    std::vector<std::byte> b(a.size());
    REQUIRE(snapshot.find(other)->read(0, b));
    CHECK(a == b);
  }
  // cube[i][j][k] lies at i + 2 (j + 3 k), counted from 1.
  std::array<std::int64_t, 30> cube{};
  REQUIRE(snapshot.find("cube")->read(0, std::as_writable_bytes(std::span(cube))));
  CHECK(cube[0] == 1);
  CHECK(cube[1] == 7);
  CHECK(cube[5] == 3);
  CHECK(cube[15] == 2);
}

TEST_CASE("an mdspan keeps its shape and points somewhere") {
  const stele::BytesRecorder<> recorder;
  Owner from(4, 2);
  from.number();
  const stele::Bytes bytes = recorder.save(from.model).value();

  Owner other(2, 4);
  stele::LoadOptions rebuild;
  rebuild.rebuild = true;
  for (const stele::LoadOptions& options : {stele::LoadOptions{}, rebuild}) {
    const auto refused = recorder.load_into(other.model, bytes, options);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code() == stele::Errc::shape_mismatch);
    CHECK(refused.error().path() == "right");
    CHECK(refused.error().expected() == "[2, 4]");
    CHECK(refused.error().found() == "[4, 2]");
    CHECK(other.vector == std::vector<float>(4));
  }

  struct Unset {
    Right right;
  };
  stele::LoadOptions some;
  some.allow_unused = {"*"};
  CHECK(recorder.load<Unset>(bytes, some).error().code() == stele::Errc::shape_mismatch);
  struct Lost {
    Fixed fixed{static_cast<double*>(nullptr)};  // has a shape, but no memory
  };
  Lost lost;
  CHECK(recorder.load_into(lost, bytes, some).error().code() == stele::Errc::user_exception);
  CHECK(recorder.load<Lost>(bytes, some).error().code() == stele::Errc::user_exception);
  CHECK(recorder.save(lost).error().code() == stele::Errc::user_exception);
}
