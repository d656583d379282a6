// Base classes, and classes that a base pointer may hold.

// CASE base_forgotten: STELE_MODULE where STELE_MODULE_DERIVED was meant: the base's fields would vanish.
#include <stele/record.hpp>

namespace base_forgotten {
class Base {
  stele::Param<stele::Tensor<float, 2>> weight;
  STELE_MODULE(Base, weight)
};
class Derived : public Base {
  stele::Param<stele::Tensor<float, 2>> more;
  STELE_MODULE(Derived, more)
};

auto save(const Derived& m) { return stele::snapshot_of(m); }
}  // namespace base_forgotten
// EXPECT: a base of this class has a field list, and this class's list does not name the base
// EXPECT: STELE_MODULE_DERIVED.Class, .Base., fields
// EXPECT: Derived

// CASE base_without_list
#include <stele/record.hpp>

namespace base_without_list {
class Base {
 public:
  stele::Param<stele::Tensor<float, 2>> weight;
};
class Derived : public Base {
  stele::Param<stele::Tensor<float, 2>> more;
  STELE_MODULE_DERIVED(Derived, (Base), more)
};

auto save(const Derived& m) { return stele::snapshot_of(m); }
}  // namespace base_without_list
// EXPECT: a base class of a module has no field list: give it STELE_MODULE
// EXPECT: Base

// CASE derived_destructor: std::unique_ptr would destroy the base alone.
#include <stele/record.hpp>

#include <stele/derived.hpp>

namespace derived_destructor {
class Layer {
 public:
  virtual int kind() const = 0;
};
class Dense : public Layer {
 public:
  int kind() const override { return 1; }
  stele::Tensor<float, 2> weight;
  STELE_MODULE(Dense, weight)
};
}  // namespace derived_destructor
template <>
struct stele::derived<derived_destructor::Layer> : stele::derived_list<derived_destructor::Dense> {};
namespace derived_destructor {
struct Model {
  std::unique_ptr<Layer> layer;
};

auto save(const Model& m) { return stele::snapshot_of(m); }
}  // namespace derived_destructor
// EXPECT: a std::unique_ptr<Base> needs a virtual destructor of Base
// EXPECT: Layer

// CASE derived_names_clash: Two classes of one name: files could not tell them apart.
#include <stele/record.hpp>

#include <stele/derived.hpp>

namespace derived_names_clash {
class Layer {
 public:
  virtual ~Layer() = default;
};
template <class T>
class Dense : public Layer {
 public:
  stele::Tensor<T, 2> weight;
  STELE_MODULE(Dense, weight)
};
}  // namespace derived_names_clash
template <>
struct stele::derived<derived_names_clash::Layer>
    : stele::derived_list<derived_names_clash::Dense<float>, derived_names_clash::Dense<double>> {};
namespace derived_names_clash {
struct Model {
  std::unique_ptr<Layer> layer;
};

auto save(const Model& m) { return stele::snapshot_of(m); }
}  // namespace derived_names_clash
// EXPECT: two classes in the list of stele::derived<Base> have the same name: give one a stele::attr::type_name

// CASE derived_not_made: A class in the list without a default constructor and without a hook.
#include <stele/record.hpp>

#include <stele/derived.hpp>

namespace derived_not_made {
class Layer {
 public:
  virtual ~Layer() = default;
};
class Dense : public Layer {
 public:
  explicit Dense(int);
  stele::Tensor<float, 2> weight;
  STELE_MODULE(Dense, weight)
};
}  // namespace derived_not_made
template <>
struct stele::derived<derived_not_made::Layer> : stele::derived_list<derived_not_made::Dense> {};
namespace derived_not_made {
struct Model {
  std::shared_ptr<Layer> layer;
};

auto save(const Model& m) { return stele::snapshot_of(m); }
}  // namespace derived_not_made
// EXPECT: a class in the list of stele::derived<Base> cannot be made: it needs a public default constructor
// EXPECT: ListedClass<.*Layer, .*Dense>

// CASE derived_unrelated: A class in the list that is not derived from the base.
#include <stele/record.hpp>

#include <stele/derived.hpp>

namespace derived_unrelated {
class Layer {
 public:
  virtual ~Layer() = default;
};
class Dense {
 public:
  stele::Tensor<float, 2> weight;
  STELE_MODULE(Dense, weight)
};
}  // namespace derived_unrelated
template <>
struct stele::derived<derived_unrelated::Layer> : stele::derived_list<derived_unrelated::Dense> {};
namespace derived_unrelated {
struct Model {
  std::unique_ptr<Layer> layer;
};

auto save(const Model& m) { return stele::snapshot_of(m); }
}  // namespace derived_unrelated
// EXPECT: a class in the list of stele::derived<Base> is not publicly derived from Base
// EXPECT: ListedClass<.*Layer, .*Dense>

// CASE derived_without_list: A class in the list whose fields are not listed: they would not be saved.
#include <stele/record.hpp>

#include <stele/derived.hpp>

namespace derived_without_list {
class Layer {
 public:
  virtual ~Layer() = default;
  stele::Tensor<float, 1> scale;
  STELE_MODULE(Layer, scale)
};
class Dense : public Layer {
 public:
  stele::Tensor<float, 2> weight;
};
}  // namespace derived_without_list
template <>
struct stele::derived<derived_without_list::Layer> : stele::derived_list<derived_without_list::Dense> {};
namespace derived_without_list {
struct Model {
  std::unique_ptr<Layer> layer;
};

auto save(const Model& m) { return stele::snapshot_of(m); }
}  // namespace derived_without_list
// EXPECT: a class in the list of stele::derived<Base> has no field list: give it STELE_MODULE or STELE_MODULE_DERIVED
// EXPECT: ListedClass<.*Layer, .*Dense>

// CASE name_clash: A base's field stands at the level of the derived class.
#include <stele/record.hpp>

namespace name_clash {
class Base {
  stele::Param<stele::Tensor<float, 2>> weight;
  STELE_MODULE(Base, weight)
};
class Derived : public Base {
  stele::Param<stele::Tensor<float, 2>> weight;
  STELE_MODULE_DERIVED(Derived, (Base), weight)
};

auto save(const Derived& m) { return stele::snapshot_of(m); }
}  // namespace name_clash
// EXPECT: two recorded fields of this module have the same name
// EXPECT: Derived

// CASE no_base
#include <stele/record.hpp>

namespace no_base {
class Other {
  stele::Param<stele::Tensor<float, 2>> weight;
  STELE_MODULE(Other, weight)
};
class Derived {
  stele::Param<stele::Tensor<float, 2>> more;
  STELE_MODULE_DERIVED(Derived, (Other), more)
};

auto save(const Derived& m) { return stele::snapshot_of(m); }
}  // namespace no_base
// EXPECT: STELE_MODULE_DERIVED names a class that is not a base of this one
// EXPECT: Derived

// CASE one_base_forgotten: One of three bases is not named; it is the base of a class without a list.
#include <stele/record.hpp>

namespace one_base_forgotten {
struct First {
  stele::Param<stele::Tensor<float, 2>> first;
};
BOOST_DESCRIBE_STRUCT(First, (), (first))
struct Second {
  stele::Param<stele::Tensor<float, 2>> second;
  STELE_MODULE(Second, second)
};
struct Between : First {};
class Derived : public Between, public Second {
  stele::Param<stele::Tensor<float, 2>> more;
  STELE_MODULE_DERIVED(Derived, (Second), more)
};

auto save(const Derived& m) { return stele::snapshot_of(m); }
}  // namespace one_base_forgotten
// EXPECT: a base of this class has a field list, and this class's list does not name the base
// EXPECT: Derived

// CASE private_base
#include <stele/record.hpp>

namespace private_base {
class Base {
  stele::Param<stele::Tensor<float, 2>> weight;
  STELE_MODULE(Base, weight)
};
class Derived : Base {
  stele::Param<stele::Tensor<float, 2>> more;
  STELE_MODULE_DERIVED(Derived, (Base), more)
};

auto save(const Derived& m) { return stele::snapshot_of(m); }
}  // namespace private_base
// EXPECT: a base of this module is private, or occurs twice: inherit publicly
// EXPECT: Derived

// CASE undecorated_derived: A class derived from a listed one has no list of its own.
#include <stele/record.hpp>

namespace undecorated_derived {
class Base {
  stele::Param<stele::Tensor<float, 2>> weight;
  STELE_MODULE(Base, weight)
};
class Derived : public Base {
 public:
  Derived();
  stele::Param<stele::Tensor<float, 2>> more;
};

auto save(const Derived& m) { return stele::snapshot_of(m); }
}  // namespace undecorated_derived
// EXPECT: this type cannot be recorded: give it a field list
// EXPECT: Derived
