// Plain aggregates, and field types that are hard to count.
#pragma once

#include <stele/detail/aggregate.hpp>

#include <memory>
#include <string>

namespace aggregate_types {

struct move_only {
  move_only() = default;
  move_only(move_only&&) = default;
  move_only& operator=(move_only&&) = default;
};
struct immovable {
  immovable() = default;
  immovable(immovable&&) = delete;
};
struct no_default {
  explicit no_default(int) {}
};
struct no_default_converting {
  no_default_converting(int) {}
  no_default_converting(const std::string&) {}
};
struct no_default_from_other {
  no_default_from_other(no_default) {}
};
struct no_default_move_only {
  explicit no_default_move_only(int) {}
  no_default_move_only(no_default_move_only&&) = default;
};
struct no_default_immovable {
  explicit no_default_immovable(int) {}
  no_default_immovable(no_default_immovable&&) = delete;
};
struct explicit_default {
  explicit explicit_default() = default;
  explicit explicit_default(int) {}
};
struct greedy {
  greedy() = default;
  template <class X>
  greedy(X&&) {}
};
struct greedy_no_default {
  template <class X>
  greedy_no_default(X&&) {}
};
struct greedy_explicit {
  greedy_explicit() = default;
  template <class X>
  explicit greedy_explicit(X&&) {}
};
struct twice_greedy {
  twice_greedy() = default;
  template <class X>
  twice_greedy(X) {}
  template <class X>
  twice_greedy(const X&, int = 0) {}
};
// As the matrices of Eigen: seems to be made from anything, and then is not.
struct matrix_like {
  constexpr matrix_like() = default;
  template <class X>
  constexpr explicit matrix_like(const X& from) : rows(from.rows()) {}
  int rows = 0;
};
enum class color { red, green };
union number {
  int integer;
  float real;
};
struct incomplete;

struct none {};
struct pair {
  int first;
  int second;
};
template <class... T>
struct one_of;
template <class A>
struct one_of<A> {
  A a;
};
template <class A, class B>
struct one_of<A, B> {
  A a;
  B b;
};
template <class A, class B, class C>
struct one_of<A, B, C> {
  A a;
  B b;
  C c;
};

}  // namespace aggregate_types
