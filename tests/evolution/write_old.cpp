// Writes tests/evolution/data: files of classes as they were before the changes that tests/evolution_test.cpp makes.
//
//   write_old FOLDER          writes them
//   write_old --check FOLDER  compares them with what it would write
//
// Every format of STELE_TEST_FORMATS has a file for each group. Files once written stay: a changed class is a new
// group.
#include <stele/stele.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "evolution/old.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace {

using stele::Tensor;
using Floats = std::vector<float>;

// ---- names ----

struct Layer {
  Floats w, scale;
  static constexpr stele::Attribute stele_attributes[] = {stele::attr::version(1)};
};
struct Names {
  Tensor<float, 2> kernel = Tensor<float, 2>({2, 2}, {1, 2, 3, 4});
  Floats shift{5, 6};
  Floats gone{7};
  std::vector<Layer> blocks{Layer{{8, 9}, {10}}, Layer{{11, 12}, {13}}};
};

// ---- kinds ----

struct First {
  Floats a{1};
};
struct Second {
  Floats b{2, 3};
};
struct Pair {
  Floats left{4}, right{5};
};
struct Kinds {
  std::optional<Floats> now_plain = Floats{1, 2};
  Floats now_optional{3};
  Floats now_pointer{4};
  Tensor<float, 1> now_double{{2}, {0.5F, 0.1F}};
  Tensor<double, 1> now_half{{2}, {0.5, 0.1}};
  std::vector<std::int64_t> now_narrow{-5, 100};
  std::vector<First> now_array{First{{6}}, First{{7}}};
  Pair now_map;
  std::variant<First, Second> choice = Second{};
  std::int64_t number = 42;
  float rate = 0.25F;
  STELE_MODULE(Kinds, now_plain, now_optional, now_pointer, now_double, now_half, now_narrow, now_array, now_map,
               choice, number, rate)
};

// ---- one ----

struct One {
  First layer{{1, 2}};
  std::optional<Second> maybe = Second{};
  double rate = 0.5;
  std::int64_t steps = 300;
  bool flag = true;
  std::string name = "adam";
  Tensor<float, 0> scalar{{}, {1.5F}};
  Tensor<float, 2> square = Tensor<float, 2>({1, 1}, {2.5F});
  STELE_MODULE(One, layer, maybe, rate, steps, flag, name, scalar, square)
};

// ---- moved ----

struct Encoder {
  Floats scale{1};
  Second inner;
};
struct Item {
  Floats w;
  First sub;
};
struct Moved {
  Floats weight{3, 4};
  First layer{{5}};
  Encoder encoder;
  std::vector<Item> items{Item{{6}, {{7}}}, Item{{8}, {{9}}}};
};

// ---- hook ----

struct Attention {
  Tensor<float, 2> qkv;
  std::shared_ptr<Floats> norm;
  static constexpr stele::Attribute stele_attributes[] = {stele::attr::version(1)};
};
Attention attention(float first, const std::shared_ptr<Floats>& norm) {
  Attention a{Tensor<float, 2>({6, 2}), norm};
  for (std::size_t i = 0; i < 12; ++i) a.qkv[i] = first + static_cast<float>(i);
  return a;
}
struct Hook {
  std::shared_ptr<Floats> embedding = std::make_shared<Floats>(Floats{1, 2});
  std::shared_ptr<Floats> head = embedding;
  Floats low{3}, high{4, 5};
  std::vector<Attention> list;
  std::map<std::string, Attention> map;
  std::variant<First, Attention> either;
  std::optional<Attention> maybe;
  static constexpr stele::Attribute stele_attributes[] = {stele::attr::version(1)};
};
Hook hook() {
  Hook h;
  h.list.push_back(attention(0, h.embedding));
  h.list.push_back(attention(100, h.list[0].norm));
  h.map.emplace("a", attention(200, std::make_shared<Floats>(Floats{6})));
  h.either = attention(300, h.map.at("a").norm);
  h.maybe = attention(400, std::make_shared<Floats>(Floats{7}));
  return h;
}

// ---- files ----

struct Writer {
  std::string folder;
  bool checks = false;
  int wrong = 0;

  template <class Format, class M>
  void file(const M& module, std::string_view group) {
    const std::string path = folder + "/" + stele_test::old_file(Format(), group);
    stele::BufferSink sink;
    stele::Recorder<Format>{}.save(module, sink).value();
    const stele::Bytes bytes = sink.take();
    const std::string_view text = stele_test::text_of(bytes.span());
    if (!checks) return stele_test::write_text(path, text);
    if (!std::filesystem::exists(path) || stele_test::read_text(path) != text) {
      std::fprintf(stderr, "another file than this program writes: %s\n", path.c_str());
      ++wrong;
    }
  }
  template <class M>
  void group(const M& module, std::string_view name) {
    each<STELE_TEST_RECORDERS>(module, name);
  }

 private:
  template <class... Recorders, class M>
  void each(const M& module, std::string_view group) {
    (file<typename Recorders::format_type>(module, group), ...);
  }
};

}  // namespace

int main(int argc, char** argv) {
  Writer writer;
  writer.checks = argc == 3 && std::string_view(argv[1]) == "--check";
  if (argc != 2 && !writer.checks) {
    std::fprintf(stderr, "write_old [--check] FOLDER\n");
    return 2;
  }
  writer.folder = argv[argc - 1];
  try {
    writer.group(Names{}, "names");
    writer.group(Kinds{}, "kinds");
    writer.group(One{}, "one");
    writer.group(Moved{}, "moved");
    writer.group(hook(), "hook");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return writer.wrong == 0 ? 0 : 1;
}
