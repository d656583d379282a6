// Opening a file, a hostile one too, takes at most its format's bound of memory (src/base/limits.hpp): twice its size
// and 16 MiB, and for each byte of an index, of values or metadata what an entry of so few bytes takes.
#include <doctest/doctest.h>
#include <malloc.h>

#include <fstream>
#include <string>

#include "base/limits.hpp"
#include "support/archive.hpp"
#include "support/child.hpp"
#include "support/recorders.hpp"
#include "support/sanitizers.hpp"
#include "support/stele_file.hpp"
#include "support/temp_dir.hpp"

namespace lazy_memory_test {

namespace {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;

/// The most address space that this process has had, in bytes.
std::uint64_t peak_address_space() {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    std::uint64_t kib = 0;
    if (word == "VmPeak:" && file >> kib) return kib * 1024;
  }
  return 0;
}

enum class Way { memory, file };

/// The bound for a file of `size` bytes, `index` of which are an index of text, values or metadata.
std::uint64_t bound_of(std::uint64_t size, std::uint64_t index, bool compressed = false) {
  detail::IndexBudget budget({}, size);
  budget.admit(index, detail::index_rate::index);
  if (compressed) budget.admit_compressed();
  return budget.left();
}

/// Opens in a child and gives what that took above the bound; empty where it kept to it.
template <class F>
std::string excess(const std::string& bytes, Way way, std::uint64_t bound) {
  const TempDir dir;
  if (way == Way::file) write_text(dir / "hostile", bytes);
  ::malloc_trim(0);  // here: the peak of a child begins with what it inherits
  return in_child([&]() -> std::string {
    ::mallopt(M_MMAP_THRESHOLD, 1 << 16);  // fixed, so that what is freed is gone
    const auto source = way == Way::file ? open_file(dir / "hostile").value() : borrow_bytes(bytes_of(bytes));
    const std::uint64_t before = address_space();
    const auto opened = Recorder<F>().open(source);
    const std::uint64_t peak = peak_address_space();
    const std::uint64_t taken = peak > before ? peak - before : 0;
    // Pages and the allocator's own are not counted.
    if (taken > bound + bound / 32 + (std::uint64_t{1} << 20)) {
      return std::to_string(taken >> 10) + " KiB for a file of " + std::to_string(bytes.size() >> 10) + " KiB (" +
             why(opened).substr(0, 200) + ")";
    }
    const bool refused = !opened && (opened.error().code() == Errc::limit || opened.error().code() == Errc::malformed ||
                                     opened.error().code() == Errc::duplicate);
    return opened || refused ? "" : why(opened).substr(0, 200);
  });
}

template <class F>
void check(const std::string& what, const std::string& bytes, std::uint64_t bound) {
  CAPTURE(what);
  CHECK(excess<F>(bytes, Way::memory, bound) == "");
  CHECK(excess<F>(bytes, Way::file, bound) == "");
}
/// A file that keeps to twice its size and 16 MiB.
template <class F>
void check(const std::string& what, const std::string& bytes) {
  check<F>(what, bytes, bound_of(bytes.size(), 0));
}
/// A file that is an index and nothing else.
template <class F>
void check_index(const std::string& what, const std::string& bytes) {
  check<F>(what, bytes, bound_of(bytes.size(), bytes.size()));
}

std::string header(const std::string& json) {
  std::string file;
  put(file, std::uint64_t{json.size()});
  return file + json;
}

std::string repeat(std::size_t n, const auto& item) {
  std::string text;
  for (std::size_t i = 0; i < n; ++i) {
    if (i != 0) text += ',';
    text += item(i);
  }
  return text;
}

std::string extras(const std::string& json) {
  std::string quoted;
  for (const char c : json) {
    if (c == '"') quoted += '\\';
    quoted += c;
  }
  return header(R"({"__metadata__":{"stele":")" + quoted + "\"}}");
}

/// A short text for each number, as hostile keys are.
std::string key(std::size_t i) {
  static constexpr char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";
  std::string text;
  do {
    text += digits[i % 64];
    i /= 64;
  } while (i != 0);
  return text;
}

bool left_out() {
  if (sanitizers) MESSAGE("left out: a sanitizer takes memory of its own");
  return sanitizers;
}

}  // namespace

TEST_CASE("lazy: memory of opening safetensors") {
  if (left_out()) return;
  using F = SafetensorsFormat;
  check<F>("nothing", header("{}"));
  check_index<F>("tensors without elements",
                 header("{" +
                        repeat(200000,
                               [](std::size_t i) {
                                 return "\"" + key(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
                               }) +
                        "}"));
  check<F>("names with escapes", header("{" +
                                        repeat(100000,
                                               [](std::size_t i) {
                                                 return "\"\\n" + key(i) +
                                                        R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
                                               }) +
                                        "}"));
  check_index<F>("one long shape after the other",
                 header("{" +
                        repeat(100,
                               [](std::size_t i) {
                                 return "\"" + key(i) + R"(":{"dtype":"U8","shape":[)" +
                                        repeat(65000, [](std::size_t) { return "0"s; }) + "],\"data_offsets\":[0,0]}";
                               }) +
                        "}"));
  check_index<F>("metadata", header("{\"__metadata__\":{" +
                                    repeat(500000, [](std::size_t i) { return "\"" + key(i) + "\":\"\""; }) + "}}"));
  check<F>("one long text", header("{\"__metadata__\":{\"k\":\"" + std::string(30000000, 'x') + "\"}}"));
  check_index<F>(
      "one long name with an escape",
      header("{\"" + std::string(30000000, 'x') + "\\n\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}"));
}

TEST_CASE("lazy: memory of opening safetensors with extras") {
  if (left_out()) return;
  using F = SafetensorsFormat;
  const auto section = [](const char* name, std::size_t n, const std::string& text) {
    return extras(std::string("{\"version\":1,\"") + name + "\":{" +
                  repeat(n, [&](std::size_t i) { return "\"" + key(i) + "\":" + text; }) + "}}");
  };
  check_index<F>("values", section("values", 500000, "0"));
  check_index<F>("aliases", extras(R"({"version":1,"empty":{"!":"map"},"aliases":{)" +
                                   repeat(500000, [](std::size_t i) { return "\"" + key(i) + R"(":"!")"; }) + "}}"));
  check_index<F>("empty containers", section("empty", 500000, "\"map\""));
  check_index<F>("versions", section("versions", 500000, "1"));
  check_index<F>("a long value",
                 extras(R"({"version":1,"values":{"v":[)" + repeat(4000000, [](std::size_t) { return "0"s; }) + "]}}"));
}

TEST_CASE("lazy: memory of opening stele") {
  if (left_out()) return;
  using F = SteleFormat;
  const auto nodes = [](std::size_t n, NodeKind kind, std::string_view value) {
    RawFile f;
    f.node(NodeKind::list, "", static_cast<std::uint32_t>(n + 1));
    f.nodes.resize(n + 1);
    f.values = value;
    for (std::size_t i = 1; i <= n; ++i) {
      RawNode& node = f.nodes[i];
      node.kind = static_cast<std::uint8_t>(kind);
      node.flags = 0;
      node.name = static_cast<std::uint32_t>(i - 1);
      node.end = static_cast<std::uint32_t>(i + 1);
      node.index = kind == NodeKind::value ? 0 : 0xffffffff;
      node.value_size = static_cast<std::uint32_t>(value.size());
    }
    return f.make();
  };
  check<F>("nones", nodes(500000, NodeKind::none, {}));
  check<F>("empty modules", nodes(500000, NodeKind::module, {}));
  check<F>("values that share their bytes", nodes(500000, NodeKind::value, std::string(1, '\0')));
  check<F>("lists that share their bytes", nodes(500000, NodeKind::value, "\7\4\0\0\0\0\0\0\0"s));
  {
    const std::string shared = "\5\0\0\1\0"s + std::string(65536, 'x');
    const std::string file = nodes(1000, NodeKind::value, shared);
    check<F>("strings that share their bytes", file, bound_of(file.size(), shared.size()));
  }
  {
    RawFile f;
    f.node(NodeKind::module, "");
    f.types.resize(1000000);
    check<F>("types", f.make());
    f.strings.assign(65536, 'x');
    for (RawType& type : f.types) type.name_size = 65536;
    f.types.resize(10000);
    check<F>("types that share a long name", f.make());
  }
  {
    RawFile f;
    f.node(NodeKind::module, "");
    constexpr std::uint32_t n = 500000;
    put(f.metadata, n);
    for (std::uint32_t i = 0; i < n; ++i) {
      put(f.metadata, 4U), put(f.metadata, 0U);
      for (int shift = 24; shift >= 0; shift -= 8) f.metadata += static_cast<char>(i >> shift);
    }
    const std::string bytes = f.make();
    // A pair has 12 bytes in the file and takes about 110.
    check<F>("metadata", bytes, bound_of(bytes.size(), 0) + 10 * f.metadata.size());
  }
  {
    RawFile f;  // names that share their bytes, one in the other
    constexpr std::uint32_t depth = 500;
    f.strings.assign(1000000, '.');
    for (std::uint32_t i = 0; i < depth; ++i) {
      f.node(NodeKind::module, "", depth);
      f.nodes[i].name = 0;
      f.nodes[i].name_size = i == 0 ? 0 : 1000000;
    }
    check<F>("long names, nested", f.make());
  }
  {
    RawFile f;
    f.flags = 1;
    constexpr std::size_t n = 200000;
    f.node(NodeKind::module, "", n + 1);
    for (std::size_t i = 0; i < n; ++i) {
      std::string name = "000000";
      for (std::size_t k = 6, rest = i; k-- != 0; rest /= 10) name[k] = static_cast<char>('0' + rest % 10);
      f.tensor(name, DType::u8, {0}, {});
    }
    check<F>("tensors without elements", f.make());
    for (RawEntry& e : f.entries) e.flags = 2, e.id_low = 1;
    check<F>("tensors with ids", f.make());
    f.extents.resize(2000000);
    for (RawEntry& e : f.entries) e.rank = 1000, e.extent = 0;
    for (std::size_t i = 0; i < f.extents.size(); ++i) f.extents[i] = 0;
    check<F>("shapes that share their extents", f.make());
  }
}

TEST_CASE("lazy: memory of opening archives") {
  if (left_out()) return;
  using F = ArchiveFormat;
  const auto numbered = [](std::size_t n, const std::string& behind) {
    std::string text;
    for (std::size_t i = 0; i < n; ++i) text += key(i) + behind;
    return text;
  };
  const auto with = [](const Entries& more, std::uint16_t method = zip::stored) {
    Entries all = {{"t/params/0.fb", array_entry({1})}, {"t/params/1.fb", array_entry({})}};
    all.insert(all.end(), more.begin(), more.end());
    return zipped(all, method);
  };
  const std::pair<std::string, std::string> tags = {"tags.txt", "t\n"};
  const std::string lines = numbered(300000, " 0\n");
  std::string some_tags;
  for (std::size_t i = 0; i < 30000; ++i) some_tags += "t" + std::to_string(i) + "\n";
  std::string columns;
  for (std::size_t i = 0; i < 300000; ++i) columns += " 0";
  for (const std::uint16_t method : {zip::stored, zip::deflated}) {
    CAPTURE(method);
    // Stored texts are an index; what is deflated has a bound that does not depend on its size.
    const auto check_texts = [&](const char* what, const std::string& bytes) {
      check<F>(what, bytes, bound_of(bytes.size(), bytes.size(), method == zip::deflated));
    };
    check_texts("lines", with({{"t/params.txt", lines}, tags}, method));
    check_texts("as many as there may be", with({{"t/params.txt", numbered(15000, " 0\n")}, tags}, method));
    check_texts("arrays of nothing", with({{"t/params.txt", numbered(15000, " 1\n")}, tags}, method));
    check_texts("blank lines", with({{"t/params.txt", std::string(3000000, '\n')}, tags}, method));
    check_texts("columns", with({{"t/params.txt", "w" + columns}, tags}));
    check_texts("lines of a later version", with({{"t/params.txt", numbered(300000, " 0 MAP\n")}, tags}, method));
    check_texts("tags", with({{"t/params.txt", ""}, {"tags.txt", "t\n" + numbered(300000, "-\n")}}, method));
    check_texts("tags as many as there may be", with({{"t/params.txt", ""}, {"tags.txt", "t\n" + some_tags}}, method));
    check_texts(
        "metadata",
        with({{"t/params.txt", ""},
              {"t/metadata.json", "{" + repeat(150000, [](std::size_t i) { return "\"" + key(i) + "\":\"\""; }) + "}"},
              tags},
             method));
    check_texts("metadata of one long text",
                with({{"t/params.txt", ""}, {"t/metadata.json", "{\"k\":\"" + std::string(5000000, 'x') + "\"}"}, tags},
                     method));
    check_texts("a value", with({{"t/params.txt", ""},
                                 {"t/metadata.json", R"({"stele":"{\"version\":1,\"values\":{\"v\":[)" +
                                                         repeat(500000, [](std::size_t) { return "0"s; }) + "]}}\"}"},
                                 tags},
                                method));
    check_texts("values in each other",
                with({{"t/params.txt", ""}, {"t/metadata.json", std::string(3000000, '[')}, tags}, method));
    check_texts(
        "long names",
        with({{"t/params.txt", repeat(50, [](std::size_t i) { return std::string(65000, 'x') + key(i) + " 0\n"; })},
              tags},
             method));
    // A million extents, which lines share.
    const std::string wide = array_entry(DType::u8, std::vector<Extent>(500000, 1), "x");
    check_texts("extents that lines share",
                with({{"t/params/2.fb", wide}, {"t/params.txt", numbered(1000, " 2\n")}, tags}, method));
    check_texts("as many extents as there may be",
                with({{"t/params/2.fb", array_entry(DType::u8, std::vector<Extent>(32, 1), "x")},
                      {"t/params.txt", numbered(15000, " 2\n")},
                      tags},
                     method));
  }
  // Deflated arrays that are large, and nothing but zeros.
  check<F>("deflated arrays", zipped_by([&](zip::Writer& w) {
             const std::string zeros = array_entry(DType::u8, {200000}, std::string(200000, '\0'));
             std::string params;
             for (std::size_t i = 0; i < 2000; ++i) {
               good(w.add("t/params/" + std::to_string(i) + ".fb", bytes_of(zeros), zip::deflated));
               params += key(i) + " " + std::to_string(i) + "\n";
             }
             good(w.add("t/params.txt", bytes_of(params)));
             good(w.add("tags.txt", bytes_of("t\n")));
           }));
  check<F>("entries", zipped_by([&](zip::Writer& w) {
             for (std::size_t i = 0; i < 100000; ++i) good(w.add("t/" + key(i) + "!", {}));
             good(w.add("t/params.txt", {}));
             good(w.add("tags.txt", bytes_of("t\n")));
           }));
  // Texts that lines share.
  std::string texts(8 * 1001, '\0');
  check<F>("texts that lines share", with({{"t/params/2.fb", array_entry(DType::string, {1000}, texts)},
                                           {"t/params.txt", numbered(10000, " 2\n")},
                                           tags}));
}

}  // namespace lazy_memory_test
