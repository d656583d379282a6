// Reads training configurations from JSON.
#include <algorithm>
#include <charconv>
#include <cstddef>
#include <limits>
#include <utility>

#include "classes.hpp"
#include "json/json.hpp"
#include "stele/training.hpp"

namespace stele::inline v0 {
namespace {

using detail::json::Kind;
using detail::json::Reader;
using namespace detail::training;

constexpr std::uint64_t kMemory = std::uint64_t{16} << 20;  // memory limit, without the file's text and raw JSON
constexpr std::size_t kMembers = 1024;  // bounds the time: each name is compared with all other names

bool has(const std::vector<TrainingRaw>& members, std::string_view name) noexcept {
  return std::any_of(members.begin(), members.end(), [name](const TrainingRaw& raw) { return raw.name == name; });
}

bool has(const TrainingObject& object, std::string_view name) noexcept {
  return find(object.numbers, name) != nullptr || find(object.flags, name) != nullptr ||
         find(object.texts, name) != nullptr || find(object.objects, name) != nullptr || has(object.other, name) ||
         (name == kValues && !object.values.empty());
}

std::size_t members_of(const TrainingObject& object) noexcept {
  return object.numbers.size() + object.flags.size() + object.texts.size() + object.objects.size() +
         object.other.size();
}

class Parser {
 public:
  explicit Parser(std::string_view text) : r_(text) {}

  bool object(TrainingObject& out, unsigned depth = 1) {
    if (r_.peek() != Kind::object) return r_.fail(Errc::malformed, "an object with \"@class\"");
    if (depth > max_depth) return r_.fail(Errc::limit, "at most 16 levels of objects", "more");
    std::string name, scratch;
    std::string_view key;
    bool named = false;
    for (r_.begin_object(); r_.next_key(key, scratch);) {
      if (key == kClass ? named : has(out, key)) return twice();
      if (key == kClass) {
        std::string_view full;
        if (!r_.read_string(full, scratch) || !charge(full.size())) return false;
        out.type = simple_name(full);
        if (out.type.empty()) return r_.fail(Errc::malformed, "the name of a class");
        named = true;
        if (full != class_name(out)) out.class_name = full;
        continue;
      }
      if (members_of(out) >= kMembers) return too_many();
      name = key;
      if (!charge(sizeof(TrainingObject) + name.size()) || !member(out, std::move(name), depth)) return false;
    }
    return r_.ok() && (named || r_.fail(Errc::malformed, "a member named \"@class\""));
  }

  bool config(TrainingConfig& out) {
    if (r_.peek() != Kind::object) return r_.fail(Errc::malformed, "an object");
    enum Seen : unsigned { first = 1 };
    unsigned seen = 0;
    std::string scratch;
    std::string_view key;
    // Known members may have any order; each may occur once.
    static constexpr std::string_view names[] = {"updater",
                                                 "regularization",
                                                 "minimize",
                                                 "dataSetFeatureMapping",
                                                 "dataSetLabelMapping",
                                                 "dataSetFeatureMaskMapping",
                                                 "dataSetLabelMaskMapping",
                                                 "lossVariables",
                                                 "iterationCount",
                                                 "epochCount"};
    TrainingConfig::Names* const lists[] = {&out.data_set_feature_mapping, &out.data_set_label_mapping,
                                            &out.data_set_feature_mask_mapping, &out.data_set_label_mask_mapping,
                                            &out.loss_variables};
    for (r_.begin_object(); r_.next_key(key, scratch);) {
      const auto at = static_cast<unsigned>(std::find(std::begin(names), std::end(names), key) - std::begin(names));
      if (at == std::size(names)) {
        if (has(out.other, key)) return twice();
        if (out.other.size() >= kMembers) return too_many();
        if (!raw(out.other, std::string(key))) return false;
        continue;
      }
      if ((seen >> at & 1) != 0) return twice();
      seen |= first << at;
      bool good = false;
      if (at == 0) {
        good = r_.peek() == Kind::null ? r_.read_null() : object(out.updater);
      } else if (at == 1) {
        good = objects(out.regularization);
      } else if (at == 2) {
        good = r_.read_bool(out.minimize);
      } else if (at < 8) {
        good = strings(*lists[at - 3]);
      } else {
        std::int64_t& count = at == 8 ? out.iteration_count : out.epoch_count;
        good = r_.read_i64(count) && (count >= 0 || r_.fail(Errc::malformed, "a count, 0 or more"));
      }
      if (!good) return false;
    }
    return r_.ok();
  }

  Status finish(bool good) { return good && r_.finish() ? Status() : r_.status(); }

 private:
  // Counts three times the content: vectors grow by doubling, and briefly hold the old and the new memory.
  bool charge(std::size_t bytes) {
    constexpr std::size_t growth = 3;
    if (bytes > (kMemory - used_) / growth)
      return r_.fail(Errc::limit, "a configuration that takes at most 16 MiB of memory", "more");
    used_ += growth * bytes;
    return true;
  }
  bool twice() { return r_.fail(Errc::duplicate, "each name once"); }
  bool too_many() { return r_.fail(Errc::limit, "at most 1024 members"); }

  // Returns true if the next value is an object with a string "@class". Takes a copy of the reader, so that no input is
  // consumed.
  static bool is_object(Reader r) {
    if (r.peek() != Kind::object) return false;
    std::string scratch;
    std::string_view key;
    for (r.begin_object(); r.next_key(key, scratch); r.skip_value()) {
      if (key == kClass) return r.peek() == Kind::string;
    }
    return false;
  }

  bool raw(std::vector<TrainingRaw>& out, std::string name) {
    std::string_view text;
    if (!charge(sizeof(TrainingRaw) + name.size()) || !r_.skip_value(&text)) return false;
    out.push_back({std::move(name), std::string(text)});
    return true;
  }

  // Reads a number, or a string that represents a number. Returns false for numbers that no double or integer can hold.
  static bool number(Reader& r, std::string& scratch, TrainingNumber& out) {
    Reader ahead = r;
    if (ahead.peek() == Kind::number) {
      Value value;
      if (!ahead.read_number(value)) return false;
      if (const auto* i = value.as_i64()) {
        out = *i;
      } else if (const auto* f = value.as_f64()) {
        out = *f;
      } else {
        return false;
      }
    } else {
      std::string_view text;
      if (ahead.peek() != Kind::string || !ahead.read_string(text, scratch)) return false;
      constexpr double infinity = std::numeric_limits<double>::infinity();
      if (text == "NaN") {
        out = std::numeric_limits<double>::quiet_NaN();
      } else if (text == "Infinity") {
        out = infinity;
      } else if (text == "-Infinity") {
        out = -infinity;
      } else {
        return false;
      }
    }
    r = ahead;
    return true;
  }

  bool member(TrainingObject& out, std::string name, unsigned depth) {
    std::string scratch;
    TrainingNumber found;
    if (number(r_, scratch, found)) return out.numbers.emplace_back(std::move(name), found), true;
    switch (r_.peek()) {
      case Kind::boolean: {
        bool flag = false;
        if (!r_.read_bool(flag)) return false;
        return out.flags.emplace_back(std::move(name), flag), true;
      }
      case Kind::string: {
        std::string_view text;
        if (!r_.read_string(text, scratch) || !charge(text.size())) return false;
        return out.texts.emplace_back(std::move(name), text), true;
      }
      case Kind::object:
        if (is_object(r_)) return object(out.objects.emplace_back(std::move(name), TrainingObject()).second, depth + 1);
        if (name == kValues && values(out.values)) return true;
        return r_.ok() && raw(out.other, std::move(name));
      default:
        return raw(out.other, std::move(name));
    }
  }

  // Reads the next object if it is a non-empty map from integers to numbers. Otherwise reads nothing.
  bool values(std::map<std::int64_t, TrainingNumber>& out) {
    Reader ahead = r_;
    std::string scratch;
    std::string_view key;
    std::map<std::int64_t, TrainingNumber> read;
    for (ahead.begin_object(); ahead.next_key(key, scratch);) {
      std::int64_t at = 0;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), at);
      if (error != std::errc() || end != key.data() + key.size() || std::to_string(at) != key) return false;
      TrainingNumber value;
      if (!number(ahead, scratch, value) || !charge(2 * sizeof(*read.begin()))) return false;
      if (!read.emplace(at, value).second) {
        r_ = ahead;
        return twice();
      }
    }
    if (!ahead.ok() || read.empty()) return false;
    r_ = ahead;
    out = std::move(read);
    return true;
  }

  bool objects(std::vector<TrainingObject>& out) {
    if (r_.peek() == Kind::null) return r_.read_null();
    if (!r_.begin_array()) return false;
    while (r_.next_element()) {
      if (!charge(sizeof(TrainingObject)) || !object(out.emplace_back())) return false;
    }
    return r_.ok();
  }

  bool strings(TrainingConfig::Names& out) {
    if (r_.peek() == Kind::null) return r_.read_null();
    if (!r_.begin_array()) return false;
    out.emplace();
    std::string scratch;
    std::string_view text;
    while (r_.next_element()) {
      if (!r_.read_string(text, scratch) || !charge(sizeof(std::string) + text.size())) return false;
      out->emplace_back(text);
    }
    return r_.ok();
  }

  Reader r_;
  std::uint64_t used_ = 0;
};

}  // namespace

Result<TrainingObject> TrainingObject::parse(std::string_view json) {
  Parser parser(json);
  TrainingObject object;
  STELE_TRY(parser.finish(parser.object(object)));
  return object;
}

Result<TrainingConfig> TrainingConfig::parse(std::string_view json) {
  Parser parser(json);
  TrainingConfig config;
  STELE_TRY(parser.finish(parser.config(config)));
  config.source.text = std::make_shared<const std::string>(json);
  return config;
}

}  // namespace stele::inline v0
