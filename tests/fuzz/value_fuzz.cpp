// Reads a Value, from the bytes of a .stele file and from JSON, and an object of assorted types from the Value; checks
// that a loaded object is the same after writing and reading.
#include <stele/cereal.hpp>
#include <stele/stele.hpp>

#include <cereal/types/array.hpp>
#include <cereal/types/deque.hpp>
#include <cereal/types/map.hpp>
#include <cereal/types/memory.hpp>
#include <cereal/types/optional.hpp>
#include <cereal/types/set.hpp>
#include <cereal/types/tuple.hpp>
#include <cereal/types/variant.hpp>
#include <cereal/types/vector.hpp>

#include <boost/describe/enum.hpp>

#include <cstdint>
#include <string>
#include <string_view>

#include "fuzz/require.hpp"
#include "json/json.hpp"
#include "recorders/stele/values.hpp"

namespace value_fuzz {

using stele_test::require;

namespace json = stele::detail::json;
using stele::Value;

enum class Mode { fast = 1, careful = -5 };
BOOST_DESCRIBE_ENUM(Mode, fast, careful)
enum class Raw : std::uint8_t {};

class Versioned {
 public:
  Versioned() = default;
  int a = 0;
  double b = 0;
  template <class Archive>
  void serialize(Archive& archive, std::uint32_t version) {
    archive(a);
    if (version >= 2) archive(b);
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
class Graph {
 public:
  Graph() = default;
  std::vector<std::shared_ptr<Graph>> edges;
  std::shared_ptr<std::string> name;
  std::shared_ptr<int> number;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(cereal::make_nvp("e", edges), cereal::make_nvp("s", name), cereal::make_nvp("i", number));
  }
};
class Minimal {
 public:
  Minimal() = default;
  std::string text;
  template <class Archive>
  std::string save_minimal(const Archive&) const {
    return text;
  }
  template <class Archive>
  void load_minimal(const Archive&, const std::string& t) {
    text = t;
  }
};
class Blob {
 public:
  Blob() = default;
  std::array<char, 4> fixed{};
  std::vector<float> any;
  template <class Archive>
  void save(Archive& archive) const {
    archive(cereal::binary_data(fixed.data(), 4), cereal::make_size_tag(static_cast<cereal::size_type>(any.size())),
            cereal::binary_data(any.data(), any.size() * 4));
  }
  template <class Archive>
  void load(Archive& archive) {
    cereal::size_type n = 0;
    archive(cereal::binary_data(fixed.data(), 4), cereal::make_size_tag(n));
    any.resize(n);
    archive(cereal::binary_data(any.data(), any.size() * 4));
  }
};
class Large {
 public:
  Large() = default;
  std::array<double, 1 << 14> scratch{};
  bool b = false;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(b);
  }
};

/// A value of any of these types, chosen by the variant's index.
class Bag {
 public:
  Bag() = default;
  std::variant<bool, std::int8_t, std::uint64_t, float, double, std::string, Mode, Raw, std::vector<bool>,
               std::vector<std::vector<std::string>>, std::map<std::string, std::vector<float>>, std::set<int>,
               std::array<int, 3>, std::tuple<int, std::string, std::optional<double>>, Chain, Graph, Minimal, Blob,
               std::vector<Versioned>, std::deque<Large>, std::vector<Bag>>
      any;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(any);
  }
};

std::string text_of(const Value& value) {
  std::string text;
  json::Writer writer(text);
  require(json::write_value(writer, value).has_value());
  return text;
}

/// Loads, saves, loads and saves; checks that the saved values are the same.
template <class T>
void check(const Value& value) {
  using traits = stele::value_traits<T>;
  T object;
  if (!traits::from_value(object, value).empty()) return;
  const Value saved = traits::to_value(object);
  T again;
  require(traits::from_value(again, saved).empty());
  // Not ==, which fails for NaN.
  require(text_of(traits::to_value(again)) == text_of(saved));

  std::vector<std::byte> bytes;
  require(stele::detail::encode_value(saved, bytes).has_value());
  Value back;
  std::uint64_t budget = UINT64_MAX;
  require(stele::detail::decode_value(bytes, back, budget).has_value() && text_of(back) == text_of(saved));
}

void check(const Value& value) {
  check<Bag>(value);
  check<Chain>(value);
  check<Graph>(value);
  check<Versioned>(value);
}

}  // namespace value_fuzz

CEREAL_CLASS_VERSION(value_fuzz::Versioned, 2)

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace value_fuzz;
  Value value;
  std::uint64_t budget = 2 * size + (std::uint64_t{1} << 20);
  if (stele::detail::decode_value(std::as_bytes(std::span(data, size)), value, budget)) check(value);

  json::Reader reader(std::string_view(reinterpret_cast<const char*>(data), size));
  if (json::read_value(reader, value, json::kMaxValueBytesPerByte * size + 1024) && reader.finish()) check(value);
  return 0;
}
