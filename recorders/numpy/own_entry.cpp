// The entry `__stele__.npy`, which contains data that NumPy cannot store.
#include "own_entry.hpp"

#include "encodings/npy/header.hpp"
#include "json/json.hpp"

namespace stele::inline v0::detail::numpy {
namespace {

constexpr std::uint64_t version = 1;

template <class Map, class Text>
void write_section(json::Writer& out, std::string_view name, const Map& map, Text text) {
  if (map.empty()) return;
  out.key(name);
  out.begin_object();
  for (const auto& [key, value] : map) {
    out.key(key);
    out.string(text(value));
  }
  out.end_object();
}

class Reader {
 public:
  Reader(std::string_view text, IndexBudget& memory) : in_(text), memory_(memory) {}

  Result<OwnEntry> run() {
    OwnEntry own;
    std::string scratch;
    std::string_view key;
    std::uint64_t number = 0;
    if (in_.begin_object() && in_.next_key(key, scratch)) {
      if (key != "version") in_.fail(Errc::malformed, "version");
      if (in_.read_u64(number) && number != version) in_.fail(Errc::unsupported, "version 1");
    } else {
      in_.fail(Errc::malformed, "version");
    }
    unsigned seen = 0;
    const auto once = [&](unsigned bit) {
      if ((seen & bit) != 0) in_.fail(Errc::duplicate, "each section once");
      seen |= bit;
    };
    while (in_.next_key(key, scratch)) {
      if (key == "metadata") {
        once(1);
        section(own.metadata, [](std::string_view text) { return std::string(text); });
      } else if (key == "names") {
        once(2);
        section(own.names, [](std::string_view text) { return std::string(text); });
      } else if (key == "dtypes") {
        once(4);
        section(own.dtypes, [&](std::string_view text) {
          const DType dtype = void_named(text);
          if (dtype == DType::none) in_.fail(Errc::unsupported, "a dtype that NumPy does not have");
          return dtype;
        });
      } else {
        in_.fail(Errc::unsupported, "metadata, names or dtypes");
      }
    }
    if (!in_.finish()) return in_.error();
    return own;
  }

 private:
  template <class Map, class Convert>
  void section(Map& map, Convert convert) {
    std::string key_scratch, scratch;
    std::string_view key, text;
    if (!in_.begin_object()) return;
    while (in_.next_key(key, key_scratch)) {
      std::string name(key);
      if (!in_.read_string(text, scratch)) return;
      // Charges a node of the map, and the strings.
      if (!memory_.take(sizeof(typename Map::value_type) + 64 + name.size() + text.size())) {
        in_.fail(Errc::limit, "", "__stele__.npy needs more memory than the file's size allows");
        return;
      }
      if (!map.emplace(std::move(name), convert(text)).second) in_.fail(Errc::duplicate, "each key once");
    }
  }

  json::Reader in_;
  IndexBudget& memory_;
};

}  // namespace

std::string to_text(const OwnEntry& own) {
  std::string text;
  json::Writer out(text);
  out.begin_object();
  out.key("version");
  out.u64(version);
  const auto same = [](const std::string& value) -> std::string_view { return value; };
  write_section(out, "metadata", own.metadata, same);
  write_section(out, "names", own.names, same);
  write_section(out, "dtypes", own.dtypes, [](DType dtype) { return name(dtype); });
  out.end_object();
  return text;
}

Result<OwnEntry> parse_own_entry(std::string_view text, IndexBudget& memory) { return Reader(text, memory).run(); }

}  // namespace stele::inline v0::detail::numpy
