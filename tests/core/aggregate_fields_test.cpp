// Plain aggregates: the addresses, types and names of fields.
#include <doctest/doctest.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/aggregate_types.hpp"

namespace aggregate_fields_test {

using namespace aggregate_types;
using stele::detail::aggregate_addresses;
using stele::detail::aggregate_field_t;
using stele::detail::aggregate_name;
using stele::detail::aggregate_tie;

namespace {

struct linear {
  std::vector<float> weight;
  std::optional<move_only> bias;
  const int in_features;
  immovable lock;
  none tag;
  mutable int uses;
  color flag;
  int history[2];
};

TEST_CASE("addresses, types and the tie") {
  linear object{{}, {}, 7, {}, {}, 8, color::red, {1, 2}};
  void* out[9] = {};
  aggregate_addresses(object, out);
  CHECK(out[0] == &object.weight);
  CHECK(out[1] == &object.bias);
  CHECK(out[2] == &object.in_features);
  CHECK(out[3] == &object.lock);
  CHECK(out[4] == &object.tag);
  CHECK(out[5] == &object.uses);
  CHECK(out[6] == &object.flag);
  CHECK(out[7] == &object.history);
  CHECK(out[8] == nullptr);

  const linear& constant = object;
  void* same[8] = {};
  aggregate_addresses(constant, same);
  for (int i = 0; i < 8; ++i) CHECK(same[i] == out[i]);

  none nothing;
  aggregate_addresses(nothing, nullptr);

  CHECK(std::is_same_v<aggregate_field_t<linear, 0>, std::vector<float>>);
  CHECK(std::is_same_v<aggregate_field_t<linear, 2>, const int>);
  CHECK(std::is_same_v<aggregate_field_t<linear, 3>, immovable>);
  CHECK(std::is_same_v<aggregate_field_t<linear, 7>, int[2]>);
  CHECK(std::is_same_v<aggregate_field_t<const linear, 0>, const std::vector<float>>);
  CHECK(std::is_same_v<aggregate_field_t<one_of<no_default_immovable>, 0>, no_default_immovable>);

  auto tied = aggregate_tie(object);
  boost::pfr::detail::sequence_tuple::get<5>(tied) = 80;
  CHECK(object.uses == 80);

  // An operator & of the field's type must not be taken.
  struct no_address {
    void* operator&() { return nullptr; }
  };
  one_of<int, no_address> tricky{};
  void* places[2];
  aggregate_addresses(tricky, places);
  CHECK(places[1] == std::addressof(tricky.b));
  CHECK(aggregate_name<one_of<int, no_address>, 1> == "b");
}

template <std::size_t N>
struct literal {
  char text[N];
  constexpr literal(const char (&from)[N]) {
    for (std::size_t i = 0; i < N; ++i) text[i] = from[i];
  }
};
template <class T, auto Value>
struct named_by_value {
  T value;
  T pointer_;
  T _3d;
  one_of<T, T> a;
  T a_rather_long_name_that_exceeds_every_small_buffer_0123456789;
  T größe;
};
struct no_default_names {
  no_default_immovable first;
  const no_default second;
  std::unique_ptr<incomplete> third;
  int (*call)(int, char);
  int pair::*member;
  int array[2];
};

template <class T>
void check_names() {
  using named = named_by_value<T, literal{"a::b)}]; std::x = .y"}>;
  CHECK(aggregate_name<named, 0> == "value");
  CHECK(aggregate_name<named, 1> == "pointer_");
  CHECK(aggregate_name<named, 2> == "_3d");
  CHECK(aggregate_name<named, 3> == "a");
  CHECK(aggregate_name<named, 4> == "a_rather_long_name_that_exceeds_every_small_buffer_0123456789");
  CHECK(aggregate_name<named, 5> == "größe");
}

TEST_CASE("names") {
  CHECK(aggregate_name<linear, 0> == "weight");
  CHECK(aggregate_name<linear, 1> == "bias");
  CHECK(aggregate_name<linear, 2> == "in_features");
  CHECK(aggregate_name<linear, 3> == "lock");
  CHECK(aggregate_name<linear, 4> == "tag");
  CHECK(aggregate_name<linear, 5> == "uses");
  CHECK(aggregate_name<linear, 6> == "flag");
  CHECK(aggregate_name<linear, 7> == "history");
  CHECK(aggregate_name<const linear, 7> == "history");

  CHECK(aggregate_name<no_default_names, 0> == "first");
  CHECK(aggregate_name<no_default_names, 1> == "second");
  CHECK(aggregate_name<no_default_names, 2> == "third");
  CHECK(aggregate_name<no_default_names, 3> == "call");
  CHECK(aggregate_name<no_default_names, 4> == "member");
  CHECK(aggregate_name<no_default_names, 5> == "array");

  struct local {
    int here;
    std::string there;
  };
  CHECK(aggregate_name<local, 0> == "here");
  CHECK(aggregate_name<local, 1> == "there");
  auto lambda = [] {
    struct inner {
      int deep;
    };
    return inner{};
  };
  CHECK(aggregate_name<decltype(lambda()), 0> == "deep");

  check_names<int>();
  check_names<std::optional<move_only>>();
  check_names<local>();
  check_names<no_default>();
  check_names<decltype(lambda)>();

  // Static storage, closed by a zero.
  static constexpr std::string_view name = aggregate_name<linear, 1>;
  CHECK(name.data()[name.size()] == '\0');
  static_assert(aggregate_name<linear, 0>.size() == 6);
}

}  // namespace

}  // namespace aggregate_fields_test
