// The writer without a heap: the same bytes as the host's.
#include <stele/module.hpp>
#include <stele/recorders/binary.hpp>
#include <stele/recorders/stele_writer.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>
#include <boost/describe/enum.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "base/hash.hpp"
#include "support/models.hpp"

using namespace stele_test;
using stele::Errc;

namespace {

/// Returns the output of the heapless writer, after checking that its size is right and it stays within its memory.
template <class M>
std::vector<std::byte> written(const M& module) {
  std::size_t size = 0;
  REQUIRE(stele::written_size(module, size).code == Errc::none);
  std::vector<std::byte> memory(size + 16, std::byte{0xA5});
  std::size_t used = 0;
  REQUIRE(stele::write_to(module, std::span(memory).first(size), used, stele::detail::hash64).code == Errc::none);
  CHECK(used == size);
  CHECK(std::count(memory.begin() + static_cast<std::ptrdiff_t>(size), memory.end(), std::byte{0xA5}) == 16);
  memory.resize(size);
  return memory;
}

template <class M>
void check_same(const M& module) {
  const std::vector<std::byte> ours = written(module);
  const stele::Bytes hosts = good(stele::BytesRecorder<>{}.save(module));
  REQUIRE(ours.size() == hosts.size());
  const auto differ = std::mismatch(ours.begin(), ours.end(), hosts.data());
  CHECK_MESSAGE(differ.first == ours.end(), "at ", differ.first - ours.begin(), " of ", ours.size());
}

enum class Colour : std::uint8_t { red = 3 };
enum class Mode : std::int8_t { fast = -1, careful };
BOOST_DESCRIBE_ENUM(Mode, fast, careful)

class Values {
 public:
  std::array<float, 2> tensor{1, 2};
  bool yes = true, no = false;
  std::int8_t i8 = -5;
  std::int64_t i64 = INT64_MIN;
  std::uint64_t u64 = UINT64_MAX, below = INT64_MAX;
  float f32 = 0.1F;
  double f64 = -1e300;
  stele::float16 f16{0.1F};
  stele::bfloat16 bf16{-3.0F};
  Colour colour = Colour::red;
  Mode mode = Mode::fast, no_name = static_cast<Mode>(7);
  std::string text = "a text", none;
  const char letter = 'x';
  STELE_MODULE(Values, tensor, yes, no, i8, i64, u64, below, f32, f64, f16, bf16, colour, mode, no_name, text, none,
               letter)
};

struct Dense {
  std::array<std::array<float, 3>, 2> weight{{{1, 2, 3}, {4, 5, 6}}};
  std::optional<std::array<float, 2>> bias;
};

struct Nested {
  Dense first;
  std::array<Dense, 12> many;  // 10 stands before 2 in the order of names
  std::tuple<Dense, std::array<double, 1>, std::optional<Dense>> three;
  std::optional<Dense> absent;
  std::unique_ptr<Dense> pointer = std::make_unique<Dense>();
  std::variant<Dense, std::array<float, 4>> either, other = std::array<float, 4>{1, 2, 3, 4};
  std::vector<Dense> list = std::vector<Dense>(3), empty;
};

struct Elements {
  std::array<std::int8_t, 3> i8{-1, 2, 3};
  std::array<std::uint16_t, 2> u16{1, 65535};
  std::array<bool, 5> flags{true, false, true, true, false};
  std::array<stele::float16, 3> f16{stele::float16(1), stele::float16(2), stele::float16(3)};
  std::array<double, 1> f64{0.5};
  std::vector<std::int64_t> none;
  stele::Tensor<float, 0> scalar = stele::Tensor<float, 0>::filled({}, 7);
  stele::Tensor<float, 3> empty = stele::Tensor<float, 3>::zeros({2, 0, 4});
  stele::Tensor<float> deep = stele::Tensor<float>::filled(stele::Shape{1, 1, 1, 1, 1, 1, 1, 1, 1, 2}, 1);
  STELE_MODULE(Elements, i8, u16, flags, f16, f64, none, scalar, empty, deep)
};

struct Identified {
  stele::Param<std::array<float, 2>> plain, numbered{{1, 2}, stele::ParamId::from_u64(77)},
      unique{{3, 4}, stele::ParamId::from_uuid(0x0123456789abcdefU, 0xfedcba9876543210U)};
};

struct Memory {
  std::array<float, 6> memory{1, 2, 3, 4, 5, 6};
  stele::TensorView<float, 2> view{memory.data(), {2, 3}};
  std::span<float> span{memory.data(), 4};
};

/// Rows of three numbers are padded to four.
struct Padded {
  std::array<float, 8> memory{1, 2, 3, -1, 4, 5, 6, -1};
};
struct Loose {
  std::array<float, 1> before{9};
  Padded padded;
  std::array<float, 1> behind{8};
};

/// Segments that are escaped, and texts that stand twice: names of types, of fields, ends of paths.
struct Odd {
  std::array<float, 1> plain{1}, dotted{2}, slash{3}, nothing{4}, dot{5}, both{6}, end{7};
  std::optional<Dense> gone, gone_too, dense;
  Dense weight;
};
struct Weight {
  std::array<float, 1> bias{1};
};
struct Texts {
  Weight weight, bias;
  std::array<float, 1> small{1};
  std::optional<std::array<float, 1>> absent, gone;
  stele_test::Linear layer{2, 3, 1};
};

struct Base {
  std::array<float, 2> base{1, 2};
  STELE_MODULE(Base, base)
};
class Derived : public Base {
  std::array<float, 2> own{3, 4};
  STELE_MODULE_DERIVED(Derived, (Base), own)
};
struct Versioned1 {
  std::array<float, 1> a{1};
};
struct Versioned2 {
  std::array<float, 1> a{2};
};
struct Versions {
  Versioned1 one;
  Versioned2 two;
  Versioned1 three;
};

struct Link {
  std::array<float, 1> number{1};
  std::unique_ptr<Link> next;
  STELE_MODULE(Link, number, next)
};

}  // namespace

template <>
struct stele::tensor_traits<Padded> {
  using element = float;
  static constexpr int rank = 2;
  static Shape shape(const Padded&) { return {2, 3}; }
  static std::size_t place(std::uint64_t i) { return static_cast<std::size_t>(i / 3 * 4 + i % 3); }
  static void read(const Padded& t, std::uint64_t first, std::span<float> out) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = t.memory[place(first + i)];
  }
  static void write(Padded& t, std::uint64_t first, std::span<const float> in) {
    for (std::size_t i = 0; i < in.size(); ++i) t.memory[place(first + i)] = in[i];
  }
};
template <>
struct stele::attributes<Odd> {
  static constexpr Attribute list[] = {attr::rename("dotted", "a.b"), attr::rename("slash", "\\"),
                                       attr::rename("nothing", ""),   attr::rename("dot", "."),
                                       attr::rename("both", "\\."),   attr::rename("end", "x\\"),
                                       attr::rename("gone", "a.b.c"), attr::rename("gone_too", "a.b2")};
};
template <>
struct stele::attributes<Texts> {
  static constexpr Attribute list[] = {attr::rename("small", "Weight"), attr::rename("absent", "Linear"),
                                       attr::rename("gone", "Texts")};
};
template <>
struct stele::attributes<Versioned1> {
  static constexpr Attribute list[] = {attr::type_name("Versioned"), attr::version(1)};
};
template <>
struct stele::attributes<Versioned2> {
  static constexpr Attribute list[] = {attr::type_name("Versioned"), attr::version(2)};
};

TEST_CASE("heapless writer: the bytes of the host's writer") {
  check_same(Values{});
  check_same(Dense{});
  check_same(Nested{});
  check_same(Elements{});
  check_same(Identified{});
  check_same(Memory{});
  check_same(Loose{});
  check_same(Odd{});
  check_same(Texts{});
  check_same(Derived{});
  check_same(Versions{});
  check_same(small_mlp());
  check_same(stele_test::Linear(5, 7, 1));
  check_same(std::vector<float>{1, 2, 3});  // a tensor at the top
  check_same(std::array<Dense, 2>{});
  check_same(std::tuple<Dense, std::vector<Dense>>{});
  check_same(std::optional<Dense>{});
}

TEST_CASE("heapless writer: many entries are put in order") {
  std::vector<Dense> many(700);
  for (std::size_t i = 0; i < many.size(); i += 3) many[i].bias = {1, static_cast<float>(i)};
  check_same(many);
}

TEST_CASE("heapless writer: what it writes is read in place") {
  const auto bytes = written(Nested{});
  stele::format::MemoryFile file;
  REQUIRE(file.open(bytes, stele::detail::hash64).code == Errc::none);
  stele::format::TensorBytes tensor;
  REQUIRE(file.tensor("many.11.weight", tensor, stele::detail::hash64).code == Errc::none);
  CHECK(stele::detail::load_le<std::uint32_t>(tensor.bytes.data() + 20) == std::bit_cast<std::uint32_t>(6.0F));
}

TEST_CASE("heapless writer: too little memory, and how much is needed") {
  const Dense dense;
  std::size_t size = 0;
  auto fault = stele::write_to(dense, {}, size, stele::detail::hash64);
  CHECK(fault.code == Errc::no_space);
  CHECK(fault.offset == size);
  std::vector<std::byte> memory(size);
  CHECK(stele::write_to(dense, std::span(memory).first(size - 1), size, stele::detail::hash64).code == Errc::no_space);
  CHECK(size == memory.size());
  CHECK(std::all_of(memory.begin(), memory.end(), [](std::byte b) { return b == std::byte{0}; }));
  CHECK(stele::write_to(dense, memory, size, stele::detail::hash64).code == Errc::none);
  CHECK(stele::write_to(dense, memory, size, nullptr).code == Errc::invalid_argument);
  memory.resize(size + 8);
  CHECK(stele::write_to(dense, std::span(memory).subspan(1), size, stele::detail::hash64).code ==
        Errc::invalid_argument);
}

TEST_CASE("heapless writer: what needs a heap is refused, with the number of its node") {
  std::size_t size = 0;
  struct Mapped {
    std::array<float, 1> first{1};
    std::map<std::string, std::vector<float>> map;
  };
  CHECK(stele::written_size(Mapped{}, size).code == Errc::unsupported);
  CHECK(stele::written_size(Mapped{}, size).offset == 2);
  CHECK(stele::written_size(tied_layers(1), size).code == Errc::unsupported);
  struct Viewing {
    stele::TensorView<float, 1> nowhere{nullptr, {3}};
  };
  std::vector<std::byte> memory(4096);
  const auto fault = stele::write_to(Viewing{}, memory, size, stele::detail::hash64);
  CHECK(fault.code == Errc::invalid_argument);
  CHECK(fault.offset == 1);
}

TEST_CASE("heapless writer: nesting is bounded") {
  Link first;
  Link* last = &first;
  std::size_t size = 0;
  for (int i = 1; i <= 15; ++i, last = last->next.get()) last->next = std::make_unique<Link>();
  check_same(first);
  for (int i = 1; i <= 5; ++i, last = last->next.get()) last->next = std::make_unique<Link>();
  CHECK(stele::written_size(first, size).code == Errc::limit);
}
