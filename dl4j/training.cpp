// TrainingConfig as JSON, and ND4J's schedules. Class names are compared with a fixed table; no class is ever looked
// up.
#include "stele/training.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "json/json.hpp"

namespace stele {
inline namespace v0 {
namespace {

using detail::json::Kind;
using detail::json::Reader;

constexpr std::uint64_t kMemory = std::uint64_t{16} << 20;  // bytes, in addition to the text and the raw JSON kept of
                                                            // it
constexpr std::size_t kMembers = 1024;                      // bounds the time: each name is compared with all others
constexpr unsigned kDepth = 16;
constexpr std::string_view kClass = "@class", kValues = "values", kRate = "learningRate";
constexpr std::string_view kRateSchedule = "learningRateSchedule";

constexpr std::string_view kUpdaters = "org.nd4j.linalg.learning.config.";
constexpr std::string_view kSchedules = "org.nd4j.linalg.schedule.";
constexpr std::string_view kRegularizations = "org.nd4j.linalg.learning.regularization.";

constexpr std::string_view kStateMV[] = {"M", "V"}, kStateAmsGrad[] = {"M", "V", "V_HAT"}, kStateBelief[] = {"M", "S"};
constexpr std::string_view kStateV[] = {"V"}, kStateG[] = {"G"}, kStateGrad[] = {"grad"};
constexpr std::string_view kStateDelta[] = {"msg", "msdx"};
constexpr std::string_view kAdamLike = "learningRate learningRateSchedule beta1 beta2 epsilon";

// Members in the order of DL4J 1.0.0-M2.1.
struct Known {
  std::string_view type, package, members;
  std::span<const std::string_view> state = {};
};
constexpr Known kKnown[] = {
    {"Adam", kUpdaters, kAdamLike, kStateMV},
    {"AMSGrad", kUpdaters, kAdamLike, kStateAmsGrad},
    {"Nadam", kUpdaters, kAdamLike, kStateMV},
    {"AdaMax", kUpdaters, kAdamLike, kStateMV},
    {"AdaBelief", kUpdaters, kAdamLike, kStateBelief},
    {"Nesterovs", kUpdaters, "learningRate learningRateSchedule momentum momentumISchedule", kStateV},
    {"RmsProp", kUpdaters, "learningRate learningRateSchedule rmsDecay epsilon", kStateG},
    {"AdaGrad", kUpdaters, "learningRate learningRateSchedule epsilon", kStateGrad},
    {"AdaDelta", kUpdaters, "rho epsilon", kStateDelta},
    {"Sgd", kUpdaters, "learningRate learningRateSchedule"},
    {"NoOp", kUpdaters, ""},
    {"FixedSchedule", kSchedules, "value"},
    {"StepSchedule", kSchedules, "scheduleType initialValue decayRate step"},
    {"ExponentialSchedule", kSchedules, "scheduleType initialValue gamma"},
    {"InverseSchedule", kSchedules, "scheduleType initialValue gamma power"},
    {"PolySchedule", kSchedules, "scheduleType initialValue power maxIter"},
    {"SigmoidSchedule", kSchedules, "scheduleType initialValue gamma stepSize"},
    {"MapSchedule", kSchedules, "scheduleType values"},
    {"CycleSchedule", kSchedules,
     "scheduleType initialLearningRate maxLearningRate cycleLength annealingLength annealingDecay stepSize increment"},
    {"RampSchedule", kSchedules, "baseSchedule numIter"},
    {"L1Regularization", kRegularizations, "l1"},
    {"L2Regularization", kRegularizations, "l2"},
    {"WeightDecay", kRegularizations, "coeff applyLR"},
};

std::string_view simple_name(std::string_view name) noexcept {
  const std::size_t at = name.find_last_of(".$");
  return at == std::string_view::npos ? name : name.substr(at + 1);
}

const Known* known(std::string_view type) noexcept {
  for (const Known& one : kKnown) {
    if (one.type == type) return &one;
  }
  return nullptr;
}

std::string class_name(const TrainingObject& object) {
  if (!object.class_name.empty() && simple_name(object.class_name) == object.type) return object.class_name;
  const Known* const one = known(object.type);
  return std::string(one != nullptr ? one->package : std::string_view()) + object.type;
}

template <class T>
T* find(std::vector<std::pair<std::string, T>>& members, std::string_view name) noexcept {
  for (auto& [key, value] : members) {
    if (key == name) return &value;
  }
  return nullptr;
}

template <class T>
const T* find(const std::vector<std::pair<std::string, T>>& members, std::string_view name) noexcept {
  for (const auto& [key, value] : members) {
    if (key == name) return &value;
  }
  return nullptr;
}

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
    if (depth > kDepth) return r_.fail(Errc::limit, "at most 16 levels", "objects nest too deep");
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
    return r_.ok() && (named || r_.fail(Errc::malformed, "a member \"@class\""));
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
  // Vectors grow by doubling, and briefly hold three times their content.
  bool charge(std::size_t bytes) {
    constexpr std::size_t growth = 3;
    if (bytes > (kMemory - used_) / growth) return r_.fail(Errc::limit, "a smaller text", "more than 16 MiB");
    used_ += growth * bytes;
    return true;
  }
  bool twice() { return r_.fail(Errc::duplicate, "each name once"); }
  bool too_many() { return r_.fail(Errc::limit, "at most 1024 members"); }

  // Returns true if the next value is an object with a string "@class". The reader is a copy.
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

  // Reads a number, or a string that represents one. Returns false for numbers that no double or integer can hold.
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

  // Reads the next object if it is a non-empty map from integers to numbers; otherwise reads nothing.
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

// Formats like Double.toString(), but always with the shortest digits: 0.001, 1.0E-4, 1.0E7.
std::string java_text(double number) {
  if (std::isnan(number)) return "\"NaN\"";
  if (std::isinf(number)) return number < 0 ? "\"-Infinity\"" : "\"Infinity\"";
  char buffer[64];
  const double size = std::fabs(number);
  const bool plain = number == 0 || (size >= 1e-3 && size < 1e7);
  const auto format = plain ? std::chars_format::fixed : std::chars_format::scientific;
  const char* const end = std::to_chars(std::begin(buffer), std::end(buffer), number, format).ptr;
  const std::string_view digits(buffer, static_cast<std::size_t>(end - buffer));
  const std::size_t e = std::min(digits.find('e'), digits.size());
  std::string text(digits.substr(0, e));
  if (text.find('.') == std::string::npos) text += ".0";
  if (!plain) {
    int exponent = 0;
    const char* begin = buffer + e + 1;
    if (*begin == '+') ++begin;
    std::from_chars(begin, end, exponent);
    text += 'E' + std::to_string(exponent);
  }
  return text;
}

// Replaces each byte that is not UTF-8 by U+FFFD.
std::string repaired(std::string_view text) {
  std::string good;
  while (!text.empty()) {
    std::size_t n = 1;
    while (n <= std::min<std::size_t>(4, text.size()) && !detail::json::valid_utf8(text.substr(0, n))) ++n;
    const bool valid = n <= std::min<std::size_t>(4, text.size());
    if (!valid) n = 1;
    good += valid ? text.substr(0, n) : std::string_view("\xef\xbf\xbd");
    text.remove_prefix(n);
  }
  return good;
}

// Writes JSON like Jackson with indentation: a line for each member, arrays on one line.
class Text {
 public:
  void open() { out_ += '{', ++depth_, first_ = true; }
  void close() {
    --depth_;
    if (first_) {
      out_ += " }";
    } else {
      line(), out_ += '}';
    }
    first_ = false;
  }
  void key(std::string_view name) {
    if (!first_) out_ += ',';
    first_ = false;
    line(), string(name), out_ += " : ";
  }
  void string(std::string_view text) {
    detail::json::Writer writer(out_);
    if (detail::json::valid_utf8(text)) {
      writer.string(text);
    } else {
      writer.string(repaired(text));
    }
  }
  void raw(std::string_view json) {
    Reader reader(json);
    out_ += reader.skip_value() && reader.finish() ? json : std::string_view("null");
  }
  void number(const TrainingNumber& number) {
    const auto integer = number.integer();
    out_ += integer ? std::to_string(*integer) : java_text(number.value());
  }
  void boolean(bool flag) { out_ += flag ? "true" : "false"; }
  template <class List, class Item>
  void array(const List& list, Item item) {
    out_ += '[';
    for (std::size_t i = 0; i < list.size(); ++i) {
      out_ += i == 0 ? " " : ", ";
      item(list[i]);
    }
    out_ += " ]";
  }
  void names(const TrainingConfig::Names& names) {
    if (!names) {
      out_ += "null";
    } else {
      array(*names, [this](const std::string& name) { string(name); });
    }
  }
  void others(const std::vector<TrainingRaw>& others) {
    for (const TrainingRaw& member : others) key(member.name), raw(member.json);
  }

  void object(const TrainingObject& object) {
    if (object.type.empty()) {
      out_ += "null";
      return;
    }
    open();
    key(kClass), string(class_name(object));
    // Write the members that DL4J knows first, in its order.
    const Known* const one = known(object.type);
    const std::string_view order = one != nullptr ? one->members : std::string_view();
    for (std::size_t at = 0; at < order.size();) {
      const std::size_t end = std::min(order.find(' ', at), order.size());
      member(object, order.substr(at, end - at));
      at = end + 1;
    }
    const auto rest = [&](const auto& members, auto write) {
      for (const auto& [name, value] : members) {
        if (!in(order, name)) key(name), write(value);
      }
    };
    rest(object.texts, [this](const std::string& text) { string(text); });
    rest(object.numbers, [this](const TrainingNumber& n) { number(n); });
    rest(object.flags, [this](bool flag) { boolean(flag); });
    rest(object.objects, [this](const TrainingObject& inner) { this->object(inner); });
    if (!object.values.empty() && !in(order, kValues)) member(object, kValues);
    rest(object.other, [this](const std::string& json) { raw(json); });
    close();
  }

  std::string take() { return std::move(out_); }

 private:
  void line() { out_.append(1, '\n').append(std::size_t{2} * depth_, ' '); }

  static bool in(std::string_view order, std::string_view name) {
    for (std::size_t at = 0; at < order.size();) {
      const std::size_t end = std::min(order.find(' ', at), order.size());
      if (order.substr(at, end - at) == name) return true;
      at = end + 1;
    }
    return false;
  }

  // Writes the member of that name, if there is one.
  void member(const TrainingObject& object, std::string_view name) {
    if (const auto* text = find(object.texts, name)) {
      key(name), string(*text);
    } else if (const auto* found = find(object.numbers, name)) {
      key(name), number(*found);
    } else if (const auto* flag = find(object.flags, name)) {
      key(name), boolean(*flag);
    } else if (const auto* inner = find(object.objects, name)) {
      key(name), this->object(*inner);
    } else if (name == kValues && !object.values.empty()) {
      key(name), open();
      for (const auto& [at, value] : object.values) key(std::to_string(at)), number(value);
      close();
    } else {
      for (const TrainingRaw& other : object.other) {
        if (other.name == name) return key(name), raw(other.json);
      }
    }
  }

  std::string out_;
  std::size_t depth_ = 0;
  bool first_ = true;
};

template <class T>
void replace(TrainingObject& object, std::vector<std::pair<std::string, T>>& members, std::string_view name, T value) {
  if (T* const there = find(members, name)) {
    *there = std::move(value);
    return;
  }
  std::string own(name);  // copy: the name may be a view of the member that is erased
  object.erase(own);
  members.emplace_back(std::move(own), std::move(value));
}

// The parameters of a schedule, and the count that it depends on.
class Parameters {
 public:
  Parameters(const TrainingObject& schedule, std::int64_t iteration, std::int64_t epoch)
      : schedule_(schedule), iteration_(iteration), epoch_(epoch) {}

  Result<double> number(std::string_view name) const {
    if (const TrainingNumber* const found = schedule_.number(name)) return found->value();
    return missing(name, "a number");
  }
  // Returns a number of Java's type int that is at least `least`.
  Result<std::int64_t> whole(std::string_view name,
                             std::int64_t least = std::numeric_limits<std::int32_t>::min()) const {
    const TrainingNumber* const found = schedule_.number(name);
    if (found == nullptr) return missing(name, "an integer");
    const auto integer = found->integer();
    if (!integer || *integer < least || *integer > std::numeric_limits<std::int32_t>::max()) {
      return Error(Errc::malformed, "a parameter of " + schedule_.type)
          .path(std::string(name))
          .expected("an integer from " + std::to_string(least) + " to 2147483647")
          .found(java_text(found->value()));
    }
    return *integer;
  }
  Result<std::int64_t> count() const {
    const std::string* const type = schedule_.text("scheduleType");
    if (type == nullptr) return missing("scheduleType", "ITERATION or EPOCH");
    if (*type == "ITERATION") return iteration_;
    if (*type == "EPOCH") return epoch_;
    return Error(Errc::malformed, "a parameter of " + schedule_.type)
        .path("scheduleType")
        .expected("ITERATION or EPOCH")
        .found(*type);
  }
  Error missing(std::string_view name, const char* expected) const {
    return Error(Errc::missing, "a parameter of " + schedule_.type).path(std::string(name)).expected(expected);
  }

 private:
  const TrainingObject& schedule_;
  std::int64_t iteration_, epoch_;
};

Result<double> cycle(const TrainingObject& schedule, const Parameters& given) {
  STELE_TRY_ASSIGN(const std::int64_t count, given.count());
  STELE_TRY_ASSIGN(const double initial, given.number("initialLearningRate"));
  STELE_TRY_ASSIGN(const double greatest, given.number("maxLearningRate"));
  STELE_TRY_ASSIGN(const std::int64_t length, given.whole("cycleLength", 1));
  STELE_TRY_ASSIGN(const std::int64_t annealing, given.whole("annealingLength"));
  STELE_TRY_ASSIGN(const double decay, given.number("annealingDecay"));
  // Java derives these values, but Jackson sets them from the text if it has them.
  std::int64_t step = (length - annealing) / 2;
  if (schedule.number("stepSize") != nullptr) {
    STELE_TRY_ASSIGN(step, given.whole("stepSize"));
  }
  const TrainingNumber* const stated = schedule.number("increment");
  const double increment = stated != nullptr ? stated->value() : (greatest - initial) / static_cast<double>(step);
  const std::int64_t at = count % length;
  if (at < step) return initial + increment * static_cast<double>(at);
  if (at < 2 * step) return greatest - increment * static_cast<double>(at - step);
  return initial * std::pow(decay, static_cast<double>(annealing - (length - at)));
}

Result<double> value_of(const TrainingObject& schedule, std::int64_t iteration, std::int64_t epoch, unsigned depth) {
  const Parameters given(schedule, iteration, epoch);
  const std::string& type = schedule.type;
  if (type == "FixedSchedule") return given.number("value");
  if (type == "CycleSchedule") return cycle(schedule, given);
  if (type == "RampSchedule") {
    const TrainingObject* const inner = schedule.object("baseSchedule");
    if (inner == nullptr) return given.missing("baseSchedule", "a schedule");
    if (depth >= kDepth) return Error(Errc::limit, "schedules nest too deep").expected("at most 16 levels");
    STELE_TRY_ASSIGN(const std::int64_t rise, given.whole("numIter"));
    STELE_TRY_ASSIGN(const double base, value_of(*inner, iteration, epoch, depth + 1));
    if (iteration >= rise - 1) return base;
    return static_cast<double>(iteration + 1) / static_cast<double>(rise) * base;
  }
  if (type == "MapSchedule") {
    STELE_TRY_ASSIGN(const std::int64_t at, given.count());
    const auto after = schedule.values.upper_bound(at);
    if (after == schedule.values.begin()) return given.missing(kValues, "a value for count 0");
    return std::prev(after)->second.value();
  }
  const bool step = type == "StepSchedule", exponential = type == "ExponentialSchedule";
  const bool inverse = type == "InverseSchedule", poly = type == "PolySchedule";
  if (!step && !exponential && !inverse && !poly && type != "SigmoidSchedule") {
    return Error(Errc::unsupported, "a schedule that stele does not know").found(class_name(schedule));
  }
  STELE_TRY_ASSIGN(const std::int64_t count, given.count());
  STELE_TRY_ASSIGN(const double initial, given.number("initialValue"));
  const auto at = static_cast<double>(count);
  if (step) {
    STELE_TRY_ASSIGN(const double decay, given.number("decayRate"));
    STELE_TRY_ASSIGN(const double width, given.number("step"));
    return initial * std::pow(decay, std::floor(at / width));
  }
  if (poly) {
    STELE_TRY_ASSIGN(const double power, given.number("power"));
    STELE_TRY_ASSIGN(const std::int64_t most, given.whole("maxIter"));
    if (count >= most) return 0.0;
    return initial * std::pow(1 + at / static_cast<double>(most), power);
  }
  STELE_TRY_ASSIGN(const double gamma, given.number("gamma"));
  if (exponential) return initial * std::pow(gamma, at);
  if (inverse) {
    STELE_TRY_ASSIGN(const double power, given.number("power"));
    return initial / std::pow(1 + gamma * at, power);
  }
  STELE_TRY_ASSIGN(const std::int64_t middle, given.whole("stepSize"));
  return initial / (1.0 + std::exp(-gamma * static_cast<double>(count - middle)));
}

TrainingObject made(std::string_view type) {
  TrainingObject object;
  object.type = type;
  return object;
}

TrainingObject with_rate(std::string_view type, const TrainingRate& rate) {
  TrainingObject object = made(type);
  object.set(kRate, rate.rate());
  if (!rate.schedule().type.empty()) object.set(kRateSchedule, rate.schedule());
  return object;
}

TrainingObject adam_like(std::string_view type, const TrainingRate& rate, double beta1, double beta2, double epsilon) {
  return std::move(with_rate(type, rate).set("beta1", beta1).set("beta2", beta2).set("epsilon", epsilon));
}

TrainingObject scheduled(std::string_view name, ScheduleType type) {
  return std::move(made(name).set("scheduleType", type == ScheduleType::epoch ? "EPOCH" : "ITERATION"));
}

TrainingObject as_schedule(const TrainingRate& rate) {
  return rate.schedule().type.empty() ? schedules::fixed(rate.rate()) : rate.schedule();
}

}  // namespace

const TrainingNumber* TrainingObject::number(std::string_view name) const noexcept { return find(numbers, name); }
const bool* TrainingObject::flag(std::string_view name) const noexcept { return find(flags, name); }
const std::string* TrainingObject::text(std::string_view name) const noexcept { return find(texts, name); }
const TrainingObject* TrainingObject::object(std::string_view name) const noexcept { return find(objects, name); }

TrainingObject& TrainingObject::set(std::string_view name, TrainingNumber number) {
  return replace(*this, numbers, name, number), *this;
}
TrainingObject& TrainingObject::set(std::string_view name, std::string text) {
  return replace(*this, texts, name, std::move(text)), *this;
}
TrainingObject& TrainingObject::set(std::string_view name, TrainingObject object) {
  return replace(*this, objects, name, std::move(object)), *this;
}
TrainingObject& TrainingObject::set_flag(std::string_view name, bool flag) {
  return replace(*this, flags, name, flag), *this;
}

void TrainingObject::erase(std::string_view name) {
  const auto named = [name](const auto& member) { return member.first == name; };
  std::erase_if(numbers, named);
  std::erase_if(flags, named);
  std::erase_if(texts, named);
  std::erase_if(objects, named);
  std::erase_if(other, [name](const TrainingRaw& raw) { return raw.name == name; });
  if (name == kValues) values.clear();
}

Result<TrainingObject> TrainingObject::parse(std::string_view json) {
  Parser parser(json);
  TrainingObject object;
  STELE_TRY(parser.finish(parser.object(object)));
  return object;
}

std::string TrainingObject::json() const {
  Text text;
  text.object(*this);
  return text.take();
}

Result<TrainingConfig> TrainingConfig::parse(std::string_view json) {
  Parser parser(json);
  TrainingConfig config;
  STELE_TRY(parser.finish(parser.config(config)));
  config.source.text = std::make_shared<const std::string>(json);
  return config;
}

std::string TrainingConfig::json() const {
  if (source.text != nullptr) {
    const Result<TrainingConfig> before = parse(*source.text);
    if (before && *before == *this) return *source.text;
  }
  Text text;
  text.open();
  text.key("updater"), text.object(updater);
  text.key("regularization");
  text.array(regularization, [&](const TrainingObject& one) { text.object(one); });
  text.key("minimize"), text.boolean(minimize);
  text.key("dataSetFeatureMapping"), text.names(data_set_feature_mapping);
  text.key("dataSetLabelMapping"), text.names(data_set_label_mapping);
  text.key("dataSetFeatureMaskMapping"), text.names(data_set_feature_mask_mapping);
  text.key("dataSetLabelMaskMapping"), text.names(data_set_label_mask_mapping);
  text.key("lossVariables"), text.names(loss_variables);
  text.key("iterationCount"), text.number(iteration_count);
  text.key("epochCount"), text.number(epoch_count);
  text.others(other);
  text.close();
  return text.take();
}

std::optional<std::span<const std::string_view>> updater_state_keys(std::string_view updater) noexcept {
  const Known* const one = known(simple_name(updater));
  if (one == nullptr || one->package != kUpdaters) return std::nullopt;
  return one->state;
}

Result<double> value_at(const TrainingObject& schedule, std::int64_t iteration, std::int64_t epoch) {
  if (iteration < 0 || epoch < 0) {
    return Error(Errc::invalid_argument, "a count of a schedule")
        .expected("0 or more")
        .found(std::to_string(std::min(iteration, epoch)));
  }
  return value_of(schedule, iteration, epoch, 1);
}

Result<double> learning_rate(const TrainingObject& updater, std::int64_t iteration, std::int64_t epoch) {
  if (const TrainingObject* const schedule = updater.object(kRateSchedule))
    return value_at(*schedule, iteration, epoch);
  if (const TrainingNumber* const rate = updater.number(kRate)) return rate->value();
  if (updater.type == "AdaDelta" || updater.type == "NoOp") return std::numeric_limits<double>::quiet_NaN();
  return Error(Errc::missing, updater.type.empty() ? "there is no updater" : "a parameter of " + updater.type)
      .path(std::string(kRate))
      .expected("a number, or a learningRateSchedule");
}

Result<double> learning_rate(const TrainingConfig& config) {
  return learning_rate(config.updater, config.iteration_count, config.epoch_count);
}

namespace updaters {

TrainingObject adam(const TrainingRate& learning_rate, double beta1, double beta2, double epsilon) {
  return adam_like("Adam", learning_rate, beta1, beta2, epsilon);
}
TrainingObject ams_grad(const TrainingRate& learning_rate, double beta1, double beta2, double epsilon) {
  return adam_like("AMSGrad", learning_rate, beta1, beta2, epsilon);
}
TrainingObject nadam(const TrainingRate& learning_rate, double beta1, double beta2, double epsilon) {
  return adam_like("Nadam", learning_rate, beta1, beta2, epsilon);
}
TrainingObject ada_max(const TrainingRate& learning_rate, double beta1, double beta2, double epsilon) {
  return adam_like("AdaMax", learning_rate, beta1, beta2, epsilon);
}
TrainingObject ada_belief(const TrainingRate& learning_rate, double beta1, double beta2, double epsilon) {
  return adam_like("AdaBelief", learning_rate, beta1, beta2, epsilon);
}
TrainingObject nesterovs(const TrainingRate& learning_rate, const TrainingRate& momentum) {
  TrainingObject object = with_rate("Nesterovs", learning_rate);
  object.set("momentum", momentum.rate());
  if (!momentum.schedule().type.empty()) object.set("momentumISchedule", momentum.schedule());
  return object;
}
TrainingObject rms_prop(const TrainingRate& learning_rate, double rms_decay, double epsilon) {
  return std::move(with_rate("RmsProp", learning_rate).set("rmsDecay", rms_decay).set("epsilon", epsilon));
}
TrainingObject ada_grad(const TrainingRate& learning_rate, double epsilon) {
  return std::move(with_rate("AdaGrad", learning_rate).set("epsilon", epsilon));
}
TrainingObject ada_delta(double rho, double epsilon) {
  return std::move(made("AdaDelta").set("rho", rho).set("epsilon", epsilon));
}
TrainingObject sgd(const TrainingRate& learning_rate) { return with_rate("Sgd", learning_rate); }
TrainingObject no_op() { return made("NoOp"); }

}  // namespace updaters

namespace schedules {

TrainingObject fixed(double value) { return std::move(made("FixedSchedule").set("value", value)); }
TrainingObject step(ScheduleType type, double initial_value, double decay_rate, double step) {
  TrainingObject object = scheduled("StepSchedule", type);
  return std::move(object.set("initialValue", initial_value).set("decayRate", decay_rate).set("step", step));
}
TrainingObject exponential(ScheduleType type, double initial_value, double gamma) {
  TrainingObject object = scheduled("ExponentialSchedule", type);
  return std::move(object.set("initialValue", initial_value).set("gamma", gamma));
}
TrainingObject inverse(ScheduleType type, double initial_value, double gamma, double power) {
  TrainingObject object = scheduled("InverseSchedule", type);
  return std::move(object.set("initialValue", initial_value).set("gamma", gamma).set("power", power));
}
TrainingObject poly(ScheduleType type, double initial_value, double power, std::int32_t max_iter) {
  TrainingObject object = scheduled("PolySchedule", type);
  return std::move(object.set("initialValue", initial_value).set("power", power).set("maxIter", max_iter));
}
TrainingObject sigmoid(ScheduleType type, double initial_value, double gamma, std::int32_t step_size) {
  TrainingObject object = scheduled("SigmoidSchedule", type);
  return std::move(object.set("initialValue", initial_value).set("gamma", gamma).set("stepSize", step_size));
}
TrainingObject map(ScheduleType type, std::map<std::int64_t, TrainingNumber> values) {
  TrainingObject object = scheduled("MapSchedule", type);
  object.values = std::move(values);
  return object;
}
TrainingObject cycle(ScheduleType type, double initial_learning_rate, double max_learning_rate,
                     std::int32_t cycle_length, std::int32_t annealing_length, double annealing_decay) {
  TrainingObject object = scheduled("CycleSchedule", type);
  object.set("initialLearningRate", initial_learning_rate).set("maxLearningRate", max_learning_rate);
  object.set("cycleLength", cycle_length).set("annealingLength", annealing_length);
  object.set("annealingDecay", annealing_decay);
  // Java's derived values. Without a step, the increment is never used.
  const std::int64_t step = (std::int64_t{cycle_length} - annealing_length) / 2;
  object.set("stepSize", step);
  object.set("increment", step == 0 ? 0.0 : (max_learning_rate - initial_learning_rate) / static_cast<double>(step));
  return object;
}
TrainingObject ramp(TrainingObject base, std::int32_t num_iter) {
  return std::move(made("RampSchedule").set("baseSchedule", std::move(base)).set("numIter", num_iter));
}

}  // namespace schedules

namespace regularizations {

TrainingObject l1(const TrainingRate& coefficient) {
  return std::move(made("L1Regularization").set("l1", as_schedule(coefficient)));
}
TrainingObject l2(const TrainingRate& coefficient) {
  return std::move(made("L2Regularization").set("l2", as_schedule(coefficient)));
}
TrainingObject weight_decay(const TrainingRate& coefficient, bool apply_learning_rate) {
  return std::move(made("WeightDecay").set("coeff", as_schedule(coefficient)).set("applyLR", apply_learning_rate));
}

}  // namespace regularizations

}  // namespace v0
}  // namespace stele
