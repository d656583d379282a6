// Pointers to a base class: each object is recorded under its class's name, like an alternative of a std::variant.
#pragma once

#include <memory>
#include <utility>

#include "stele/record.hpp"

#ifndef __cpp_rtti
#error "stele/derived.hpp: the class of an object is known by RTTI only"
#endif

namespace stele::inline v0 {

/// Lists the classes of the objects that a std::unique_ptr or std::shared_ptr to `Base` may hold:
///
///     template <> struct stele::derived<Layer> : stele::derived_list<Dense, Dropout> {};
///
/// Declare it after the classes (or their forward declarations), and before the first save or load. Each class must be
/// publicly derived from Base, and have a field list and a default constructor or a from_record hook. Its name in files
/// is the class's name, or its stele::attr::type_name. Base may be abstract, or be in the list itself. An object of any
/// other class is an error.
template <class... D>
struct derived_list {
  using classes = detail::ClassList<D...>;
};

/// The record of an object that several pointers may share.
template <class M>
class SharedRecord : public std::shared_ptr<Record<M>> {
 public:
  using std::shared_ptr<Record<M>>::shared_ptr;
  explicit SharedRecord(std::shared_ptr<Record<M>> record) : std::shared_ptr<Record<M>>(std::move(record)) {}
};

}  // namespace stele::inline v0

#include "stele/detail/derived.hpp"
