// Plain aggregates: the number of fields, arrays, bases.
#include <doctest/doctest.h>

#include <any>
#include <array>
#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "core/aggregate_types.hpp"

namespace aggregate_test {

using namespace aggregate_types;
using stele::detail::aggregate_addresses;
using stele::detail::aggregate_field_t;
using stele::detail::aggregate_has_array;
using stele::detail::aggregate_has_base;
using stele::detail::aggregate_is_bindable;
using stele::detail::aggregate_limit;
using stele::detail::aggregate_name;
using stele::detail::aggregate_size;
using stele::detail::aggregate_uncounted;

namespace {

// The field stands first, last, alone, and between others: counts must not depend on its neighbours.
template <class F>
constexpr bool counts_one =
    aggregate_size<one_of<F>> == 1 && aggregate_size<one_of<F, int>> == 2 && aggregate_size<one_of<int, F>> == 2 &&
    aggregate_size<one_of<F, F, F>> == 3 && aggregate_size<one_of<std::unique_ptr<int>, F, pair>> == 3 &&
    aggregate_size<one_of<pair, F, no_default>> == 3 && aggregate_size<one_of<no_default, F, no_default>> == 3 &&
    aggregate_size<one_of<no_default, F, std::vector<no_default_move_only>>> == 3;
template <class F>
constexpr bool is_plain = counts_one<F> && !aggregate_has_array<one_of<int, F, no_default>> &&
                          !aggregate_has_base<one_of<F>> && !aggregate_has_base<one_of<F, F, no_default>>;
template <class F>
constexpr bool is_array =
    counts_one<F>&& aggregate_has_array<one_of<F>>&& aggregate_has_array<one_of<int, F>>&&
        aggregate_has_array<one_of<F, std::unique_ptr<int>>>&& aggregate_has_array<one_of<no_default, F, no_default>> &&
    !aggregate_has_base<one_of<F>>;

static_assert(is_plain<int> && is_plain<bool> && is_plain<const double> && is_plain<color> && is_plain<number>);
static_assert(is_plain<int*> && is_plain<int (*)(int)> && is_plain<int pair::*> && is_plain<std::nullptr_t>);
static_assert(is_plain<none> && is_plain<pair> && is_plain<one_of<pair, pair>>);
static_assert(is_plain<one_of<no_default, int>> && is_plain<one_of<one_of<std::unique_ptr<int>, pair>, pair, int>>);
static_assert(is_plain<std::string> && is_plain<const std::string> && is_plain<std::string_view>);
static_assert(is_plain<std::unique_ptr<int>> && is_plain<std::unique_ptr<incomplete>>);
static_assert(is_plain<std::shared_ptr<incomplete>> && is_plain<std::optional<int>>);
static_assert(is_plain<std::optional<move_only>> && is_plain<std::optional<immovable>>);
static_assert(is_plain<std::optional<no_default_move_only>> && is_plain<std::optional<std::optional<move_only>>>);
static_assert(is_plain<std::vector<int>> && is_plain<std::vector<move_only>> && is_plain<std::vector<pair>>);
static_assert(is_plain<std::vector<no_default_move_only>> && is_plain<std::vector<std::vector<move_only>>>);
static_assert(is_plain<std::map<std::string, move_only>> && is_plain<std::pair<int, move_only>>);
static_assert(is_plain<std::variant<int>> && is_plain<std::variant<move_only, std::string>>);
static_assert(is_plain<std::variant<no_default, int>> && is_plain<std::tuple<int>> && is_plain<std::tuple<std::any>>);
static_assert(is_plain<std::any> && is_plain<std::function<void()>> && is_plain<std::filesystem::path>);
static_assert(is_plain<std::span<const float>> && is_plain<std::atomic<int>> && is_plain<std::mutex>);
static_assert(is_plain<std::array<int, 3>> && is_plain<std::array<no_default, 3>> && is_plain<std::array<int, 0>>);
static_assert(is_plain<std::array<std::array<std::unique_ptr<int>, 2>, 2>>);
static_assert(is_plain<move_only> && is_plain<immovable> && is_plain<no_default> && is_plain<no_default_converting>);
static_assert(is_plain<no_default_from_other> && is_plain<no_default_move_only> && is_plain<no_default_immovable>);
static_assert(is_plain<explicit_default> && is_plain<std::reference_wrapper<int>>);
static_assert(is_plain<matrix_like> && is_plain<std::optional<matrix_like>> && is_plain<std::vector<matrix_like>>);
static_assert(is_plain<std::variant<std::monostate, matrix_like>> && is_plain<std::tuple<matrix_like>>);
static_assert(is_plain<greedy> && is_plain<greedy_no_default> && is_plain<greedy_explicit>);

static_assert(is_array<int[3]> && is_array<int[1]> && is_array<const float[2]> && is_array<int[2][3]>);
static_assert(is_array<char[16]> && is_array<std::unique_ptr<int>[2]> && is_array<std::optional<move_only>[2]>);
static_assert(is_array<std::string[2]> && is_array<pair[4]> && is_array<std::vector<move_only>[2]>);
static_assert(is_array<no_default[2]> && is_array<no_default_move_only[3]> && is_array<no_default_immovable[2]>);
static_assert(is_array<explicit_default[2]> && is_array<no_default_from_other[2]> && is_array<none[2]>);
static_assert(is_array<greedy[2]> && is_array<std::any[3]>);

TEST_CASE("sizes of aggregates") {
  CHECK(aggregate_size<none> == 0);
  CHECK(aggregate_size<const none> == 0);
  CHECK(aggregate_size<pair> == 2);
  CHECK(aggregate_size<const pair> == 2);

  struct defaults {
    int a = 1;
    no_default b{2};
    std::string c = "c";
    const int d = 4;
    explicit_default e{5};
    no_default_immovable f{6};
  };
  CHECK(aggregate_size<defaults> == 6);
  CHECK_FALSE(aggregate_has_array<defaults>);

  struct local {
    std::optional<move_only> bias;
    std::vector<local> children;
  };
  CHECK(aggregate_size<local> == 2);

  struct empty_members {
    none a;
    [[no_unique_address]] none b;
    [[no_unique_address]] std::allocator<int> c;
    int d;
  };
  CHECK(aggregate_size<empty_members> == 4);

  auto lambda = [x = 1] { return x; };
  CHECK(aggregate_size<one_of<decltype(lambda), int>> == 2);

  // {} and the probe's conversion both work here, but not for the same fields.
  CHECK(aggregate_size<one_of<twice_greedy, twice_greedy>> == 2);
  CHECK(aggregate_size<one_of<twice_greedy, no_default>> == aggregate_uncounted);
}

TEST_CASE("arrays count once, whatever stands beside them") {
  struct plain {
    int a[3];
    int b;
  };
  CHECK(aggregate_size<plain> == 2);
  CHECK(aggregate_has_array<plain>);
  CHECK(aggregate_has_array<const plain>);
  CHECK(std::is_same_v<aggregate_field_t<plain, 0>, int[3]>);
  CHECK(aggregate_name<plain, 0> == "a");

  struct beside_pointer {
    std::unique_ptr<int> p;
    pair q;
    float a[2][2];
    std::optional<move_only> o;
  };
  CHECK(aggregate_size<beside_pointer> == 4);
  CHECK(aggregate_has_array<beside_pointer>);

  struct beside_no_default {
    no_default n;
    pair q;
    pair a[3];
    int b[2];
    no_default m[2];
    pair r;
    no_default_converting c;
  };
  CHECK(aggregate_size<beside_no_default> == 7);
  CHECK(aggregate_has_array<beside_no_default>);

  struct large {
    float a[100000];
    std::string b;
  };
  CHECK(aggregate_size<large> == 2);
  CHECK(aggregate_has_array<large>);

  // The slow way takes all elements for initialisers, and gives up.
  struct large_beside_no_default {
    float a[1000];
    no_default b;
  };
  CHECK(aggregate_size<large_beside_no_default> > aggregate_limit);
  CHECK_FALSE(aggregate_is_bindable<large_beside_no_default>);

  CHECK_FALSE(aggregate_has_array<pair>);
  CHECK_FALSE(aggregate_has_array<none>);
  CHECK_FALSE(aggregate_has_array<int>);
}

template <class B>
struct derived : B {};
template <class B>
struct derived_with_field : B {
  int own;
};
template <class B>
struct derived_with_no_default : B {
  int own;
  no_default last;
};
template <class A, class B>
struct derived_twice : A, B {};
template <class B>
struct holds_its_base : B {
  B b;
};
template <class B>
constexpr bool base_is_seen =
    aggregate_has_base<derived<B>>&& aggregate_has_base<derived_with_field<B>>&&
        aggregate_has_base<derived_with_no_default<B>>&& aggregate_has_base<holds_its_base<B>>&&
            aggregate_has_base<const derived<B>>&& aggregate_has_base<derived_twice<B, pair>> &&
    !aggregate_has_array<derived<B>> && !aggregate_is_bindable<derived<B>>;

TEST_CASE("bases") {
  CHECK(base_is_seen<none>);
  CHECK(base_is_seen<one_of<int>>);
  CHECK(base_is_seen<one_of<int[3]>>);
  CHECK(base_is_seen<derived<none>>);
  CHECK(base_is_seen<move_only>);
  CHECK(base_is_seen<immovable>);
  CHECK(base_is_seen<no_default>);
  CHECK(base_is_seen<no_default_move_only>);
  CHECK(base_is_seen<no_default_immovable>);
  CHECK(base_is_seen<explicit_default>);
  CHECK(base_is_seen<greedy>);
  CHECK(base_is_seen<greedy_no_default>);
  CHECK(base_is_seen<std::any>);
  CHECK(base_is_seen<std::optional<move_only>>);
  CHECK(base_is_seen<std::vector<move_only>>);
  CHECK(base_is_seen<std::string>);

  CHECK_FALSE(aggregate_has_base<none>);
  CHECK_FALSE(aggregate_has_base<pair>);
  CHECK_FALSE(aggregate_has_base<one_of<std::any, no_default>>);
  CHECK_FALSE(aggregate_has_base<one_of<derived<pair>, int>>);
  CHECK_FALSE(aggregate_has_base<int>);
}

TEST_CASE("what is no aggregate, or cannot be counted") {
  CHECK(aggregate_size<int> == aggregate_uncounted);
  CHECK(aggregate_size<int[3]> == aggregate_uncounted);
  CHECK(aggregate_size<std::string> == aggregate_uncounted);
  CHECK(aggregate_size<std::array<int, 3>> == aggregate_uncounted);
  CHECK_FALSE(aggregate_has_array<std::array<int, 3>>);
  CHECK(aggregate_size<number> == aggregate_uncounted);
  CHECK(aggregate_size<color> == aggregate_uncounted);
  CHECK_FALSE(aggregate_is_bindable<std::string>);

  struct reference {
    int& r;
  };
  CHECK(aggregate_size<reference> == aggregate_uncounted);
}

#define TEN(tens)                           \
  int field_##tens##0;                      \
  std::string field_##tens##1;              \
  std::optional<move_only> field_##tens##2; \
  std::vector<int> field_##tens##3;         \
  pair field_##tens##4;                     \
  F field_##tens##5;                        \
  const float field_##tens##6;              \
  std::unique_ptr<int> field_##tens##7;     \
  none field_##tens##8;                     \
  std::array<int, 2> field_##tens##9
#define HUNDRED \
  TEN();        \
  TEN(1);       \
  TEN(2);       \
  TEN(3);       \
  TEN(4);       \
  TEN(5);       \
  TEN(6);       \
  TEN(7);       \
  TEN(8);       \
  TEN(9)
template <class F>
struct fifty {
  TEN();
  TEN(1);
  TEN(2);
  TEN(3);
  TEN(4);
};
template <class F>
struct hundred {
  HUNDRED;
};
template <class F>
struct hundred_and_one {
  HUNDRED;
  int one_more;
};
template <class F>
struct hundred_and_ten {
  HUNDRED;
  TEN(10);
};
#undef HUNDRED
#undef TEN

TEST_CASE("up to a hundred fields") {
  CHECK(aggregate_size<fifty<int>> == 50);
  CHECK(aggregate_size<fifty<no_default>> == 50);
  CHECK(aggregate_size<fifty<int[3]>> == 50);
  CHECK(aggregate_has_array<fifty<int[3]>>);
  CHECK(aggregate_size<hundred<int>> == 100);
  CHECK(aggregate_size<hundred<no_default>> == 100);
  CHECK(aggregate_size<hundred_and_one<int>> == 101);
  CHECK(aggregate_size<hundred_and_one<no_default>> == 101);
  CHECK(aggregate_size<hundred_and_ten<int>> == 101);
  CHECK_FALSE(aggregate_is_bindable<hundred_and_one<int>>);
  CHECK_FALSE(aggregate_has_base<hundred_and_one<int>>);

  CHECK(aggregate_name<hundred<int>, 0> == "field_0");
  CHECK(aggregate_name<hundred<int>, 99> == "field_99");
  CHECK(std::is_same_v<aggregate_field_t<hundred<int>, 96>, const float>);

  hundred<int> object{};
  void* addresses[100];
  aggregate_addresses(object, addresses);
  CHECK(addresses[0] == &object.field_0);
  CHECK(addresses[57] == &object.field_57);
  CHECK(addresses[99] == &object.field_99);
}

}  // namespace

}  // namespace aggregate_test
