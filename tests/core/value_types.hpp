// Classes with cereal functions.
#pragma once

#include <stele/cereal.hpp>
#include <stele/stele.hpp>

#include <cereal/types/array.hpp>
#include <cereal/types/base_class.hpp>
#include <cereal/types/chrono.hpp>
#include <cereal/types/complex.hpp>
#include <cereal/types/deque.hpp>
#include <cereal/types/list.hpp>
#include <cereal/types/map.hpp>
#include <cereal/types/memory.hpp>
#include <cereal/types/optional.hpp>
#include <cereal/types/set.hpp>
#include <cereal/types/tuple.hpp>
#include <cereal/types/unordered_map.hpp>
#include <cereal/types/utility.hpp>
#include <cereal/types/variant.hpp>
#include <cereal/types/vector.hpp>

#include <boost/describe/enum.hpp>

#include <algorithm>
#include <limits>
#include <new>
#include <stdexcept>

#include "support/any_recorder.hpp"
#include "support/models.hpp"

namespace archive_test {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;

inline Value number(std::int64_t n) { return Value(n); }

/// A class with one cereal-serialised member: no plain aggregate, which would be a module.
template <class T>
class Box {
 public:
  Box() = default;
  explicit Box(T v) : value(std::move(v)) {}
  T value{};
  bool operator==(const Box&) const = default;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(value));
  }
};
template <class T>
class Holder {
 public:
  Holder() = default;
  explicit Holder(T v) : field(std::move(v)) {}
  T field{};
  STELE_MODULE(Holder, field)
};

template <class T>
Value to_value(const T& object) {
  return value_traits<T>::to_value(object);
}
/// Returns the expected value in words; empty if the value fits.
template <class T>
std::string from_value(T& object, const Value& value) {
  return std::string(value_traits<T>::from_value(object, value));
}
template <class T>
std::string refusal(const Value& value) {
  T object;
  return from_value(object, value);
}
/// Returns the value of a Box<T> whose member has that value.
inline Value boxed(Value value) { return Value(Value::Map{{"value", std::move(value)}}); }
inline Value list(std::initializer_list<Value> items) { return Value(Value::List(items)); }

enum class Mode { fast = 1, careful };
BOOST_DESCRIBE_ENUM(Mode, fast, careful)
enum class Raw : std::uint8_t { one = 1 };

/// A class that has gained a member with its second version, and its version with the first.
class Versioned {
 public:
  Versioned() = default;
  int a = 1;
  double added = 0.5;
  std::uint32_t seen = 99;
  bool operator==(const Versioned& o) const { return a == o.a && added == o.added; }
  template <class Archive>
  void serialize(Archive& archive, const std::uint32_t version) {
    seen = version;
    archive(CEREAL_NVP(a));
    if (version >= 2) archive(CEREAL_NVP(added));
  }
};

class Split {
 public:
  Split() = default;
  int celsius = 0;
  bool operator==(const Split&) const = default;
  template <class Archive>
  void save(Archive& archive) const {
    archive(cereal::make_nvp("kelvin", celsius + 273));
  }
  template <class Archive>
  void load(Archive& archive) {
    int kelvin = 0;
    archive(cereal::make_nvp("kelvin", kelvin));
    celsius = kelvin - 273;
  }
};

class Outside {
 public:
  Outside() = default;
  std::string text;
  bool operator==(const Outside&) const = default;
};
template <class Archive>
void serialize(Archive& archive, Outside& o) {
  archive(o.text);
}

class Minimal {
 public:
  Minimal() = default;
  int n = 0;
  bool operator==(const Minimal&) const = default;
  template <class Archive>
  std::string save_minimal(const Archive&) const {
    return std::to_string(n);
  }
  template <class Archive>
  void load_minimal(const Archive&, const std::string& text) {
    n = std::stoi(text);  // throws
  }
};
class VersionedMinimal {
 public:
  int n = 0;
  bool operator==(const VersionedMinimal&) const = default;
  template <class Archive>
  int save_minimal(const Archive&, std::uint32_t) const {
    return n;
  }
  template <class Archive>
  void load_minimal(const Archive&, const int& number, std::uint32_t version) {
    n = version == 3 ? number : -1;
  }
};

class Base {
 public:
  int base = 0;
  bool operator==(const Base&) const = default;
  template <class Archive>
  void serialize(Archive& archive, std::uint32_t) {
    archive(CEREAL_NVP(base));
  }
};
class Derived : public Base {
 public:
  int more = 0;
  bool operator==(const Derived&) const = default;
  template <class Archive>
  void serialize(Archive& archive, std::uint32_t) {
    archive(cereal::base_class<Base>(this), CEREAL_NVP(more));
  }
};

/// Bytes of a fixed size, and of any.
class Blob {
 public:
  std::array<std::uint16_t, 3> fixed{1, 2, 3};
  std::vector<float> any;
  unsigned char raw[4] = {9, 8, 7, 6};
  bool operator==(const Blob& o) const { return fixed == o.fixed && any == o.any && std::equal(raw, raw + 4, o.raw); }
  template <class Archive>
  void save(Archive& archive) const {
    archive(cereal::make_nvp("fixed", cereal::binary_data(fixed.data(), sizeof fixed)));
    archive(cereal::make_nvp("raw", cereal::binary_data(raw, sizeof raw)));
    archive(cereal::make_size_tag(static_cast<cereal::size_type>(any.size())));
    archive(cereal::binary_data(any.data(), any.size() * sizeof(float)));
  }
  template <class Archive>
  void load(Archive& archive) {
    archive(cereal::make_nvp("fixed", cereal::binary_data(fixed.data(), sizeof fixed)));
    archive(cereal::make_nvp("raw", cereal::binary_data(raw, sizeof raw)));
    cereal::size_type n = 0;
    archive(cereal::make_size_tag(n));
    any.resize(n);
    archive(cereal::binary_data(any.data(), any.size() * sizeof(float)));
  }
};

class Chain {
 public:
  Chain() = default;
  std::unique_ptr<Chain> next;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(next);
  }
};
class Ring {
 public:
  Ring() = default;
  std::shared_ptr<Ring> next;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(next));
  }
};

/// Two objects at one address.
class Aliased {
 public:
  std::shared_ptr<Box<int>> whole = std::make_shared<Box<int>>(5);
  std::shared_ptr<int> part{whole, &whole->value}, again = part;
  std::shared_ptr<Box<int>> other = whole;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(whole), CEREAL_NVP(part), CEREAL_NVP(again), CEREAL_NVP(other));
  }
};

class Empty {};

class Everything {
 public:
  std::vector<int> ints{1, -2};
  std::vector<bool> bools{true, false};
  std::vector<std::string> texts{"a", ""};
  std::vector<Minimal> minimals{Minimal(), Minimal()};
  std::deque<double> deque{0.1, -0.0};
  std::list<Split> list{Split(), Split()};
  std::vector<Versioned> versions{Versioned(), Versioned()};
  std::map<std::string, Outside> map{{"k", {}}, {"", {}}};
  std::map<int, std::vector<Mode>> by_number{{-1, {Mode::fast}}, {2, {}}};
  std::unordered_map<std::string, int> hashed{{"one", 1}};
  std::set<std::string> set{"x", "y"};
  std::optional<Split> some = Split(), none;
  std::variant<int, std::string, Derived> variant = "v";
  std::tuple<int, std::string, Base> tuple{1, "t", {}};
  std::pair<Mode, Raw> pair{Mode::careful, Raw::one};
  std::array<int, 3> array{1, 2, 3};
  int plain_array[2] = {4, 5};
  std::unique_ptr<Derived> unique = std::make_unique<Derived>(), null;
  std::shared_ptr<Split> tied = std::make_shared<Split>(), again = tied, apart = std::make_shared<Split>();
  std::weak_ptr<Split> weak = apart;
  std::chrono::milliseconds time{1500};
  std::complex<float> complex{1, -2};
  VersionedMinimal first, second;
  Derived derived;
  Blob blob;
  Mode mode = static_cast<Mode>(77);
  char letter = 'x';
  float nan = std::numeric_limits<float>::quiet_NaN(), infinity = -std::numeric_limits<float>::infinity();
  std::uint64_t large = UINT64_MAX;
  std::vector<Empty> empties{Empty(), Empty()};

  Everything() {
    minimals[1].n = 12;
    versions[0].added = 2.5, versions[1].a = 7;
    map["k"].text = "out";
    some->celsius = 20, tied->celsius = 36;
    std::get<2>(tuple).base = 3;
    unique->base = 4, unique->more = 5;
    first.n = 1, second.n = 2;
    derived.base = 6, derived.more = 7;
    blob.any = {1, 2.5F};
  }
  template <class Archive>
  void serialize(Archive& a) {
    a(CEREAL_NVP(ints), CEREAL_NVP(bools), CEREAL_NVP(texts), CEREAL_NVP(minimals), CEREAL_NVP(deque), CEREAL_NVP(list),
      CEREAL_NVP(versions), CEREAL_NVP(map), CEREAL_NVP(by_number), CEREAL_NVP(hashed), CEREAL_NVP(set),
      CEREAL_NVP(some), CEREAL_NVP(none), CEREAL_NVP(variant), CEREAL_NVP(tuple), CEREAL_NVP(pair), CEREAL_NVP(array),
      CEREAL_NVP(plain_array), CEREAL_NVP(unique), CEREAL_NVP(null), CEREAL_NVP(tied), CEREAL_NVP(again),
      CEREAL_NVP(apart), CEREAL_NVP(weak), CEREAL_NVP(time), CEREAL_NVP(complex), CEREAL_NVP(first), CEREAL_NVP(second),
      CEREAL_NVP(derived), CEREAL_NVP(blob), CEREAL_NVP(mode), CEREAL_NVP(letter), CEREAL_NVP(nan),
      CEREAL_NVP(infinity), CEREAL_NVP(large), CEREAL_NVP(empties));
  }
};

class WithValues {
 public:
  Tensor<float, 1> weight = Tensor<float, 1>::filled({3}, 2.0F);
  Everything everything;
  std::vector<Versioned> listed{Versioned(), Versioned()};
  std::map<std::string, Split> named{{"a", {}}};
  std::set<int> set{3, 1};
  std::optional<Minimal> minimal;
  STELE_MODULE(WithValues, weight, everything, listed, named, set, minimal)
};

/// Throws what it is told to.
class Thrower {
 public:
  Thrower() = default;
  enum class What { nothing, length, memory, runtime, other } what = What::nothing;
  bool operator==(const Thrower&) const = default;
  template <class Archive>
  void save(Archive& archive) const {
    hurl();
    archive(cereal::make_nvp("what", static_cast<int>(what)));
  }
  template <class Archive>
  void load(Archive& archive) {
    int n = 0;
    archive(cereal::make_nvp("what", n));
    what = static_cast<What>(n);
    hurl();
  }
  void hurl() const {
    if (what == What::length) throw std::length_error("too long");
    if (what == What::memory) throw std::bad_alloc();
    if (what == What::runtime) throw std::runtime_error("no such device");
    if (what == What::other) throw 42;  // NOLINT
  }
};

/// A large object whose value is small.
class Large {
 public:
  Large() = default;
  std::array<double, 1 << 14> scratch{};
  int n = 0;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(CEREAL_NVP(n));
  }
};

}  // namespace archive_test

CEREAL_CLASS_VERSION(archive_test::Versioned, 2)
CEREAL_CLASS_VERSION(archive_test::VersionedMinimal, 3)
CEREAL_CLASS_VERSION(archive_test::Derived, 5)
