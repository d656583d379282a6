// Arrays of archives: 2 GiB and more, beside their table, aligned, checked (A13, A14, A16); optional fields of the
// graph (A15). archive_tags_test.cpp has the rest of A1 to A16.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>

#include "archive_generated.h"
#include "recorders/archive/graph_fb.hpp"
#include "recorders/archive/lines.hpp"
#include "support/archive.hpp"
#include "support/random_model.hpp"
#include "support/sanitizers.hpp"
#include "support/temp_dir.hpp"

namespace archive_arrays_test {

namespace {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;
using namespace detail::archive;
using Names = std::vector<std::string>;
constexpr std::uint64_t plenty = 1U << 24U;

/// A file in memory whose large pieces are only counted: they read as zeros.
class Sparse final : public Sink {
 public:
  Sparse() : Sink("sparse") {}
  using Sink::write;
  Status write(std::span<const std::span<const std::byte>> pieces) override {
    for (const auto piece : pieces) {
      if (piece.size() < (1U << 16U)) there.emplace(total, text_of(piece));
      total += piece.size();
    }
    return {};
  }
  bool can_patch() const noexcept override { return true; }
  Status patch(std::uint64_t offset, std::span<const std::byte> bytes) override {
    auto at = std::prev(there.upper_bound(offset));
    at->second.replace(static_cast<std::size_t>(offset - at->first), bytes.size(), text_of(bytes));
    return {};
  }
  std::map<std::uint64_t, std::string> there;
  std::uint64_t total = 0;
};

class SparseSource final : public Source {
 public:
  explicit SparseSource(const Sparse& from) : Source("sparse"), from_(from) {}
  std::uint64_t size() const noexcept override { return from_.total; }
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    if (!out.empty()) std::memset(out.data(), 0, out.size());
    for (const auto& [begin, bytes] : from_.there) {
      const std::uint64_t first = std::max(begin, offset);
      const std::uint64_t last = std::min(begin + bytes.size(), offset + out.size());
      if (first < last) std::memcpy(out.data() + (first - offset), bytes.data() + (first - begin), last - first);
    }
    return {};
  }

 private:
  const Sparse& from_;
};

constexpr LeafOps zeros_ops{
    .read = [](const void*, std::uint64_t, std::uint64_t, std::span<std::byte> out, ReadContext&) -> Status {
      std::memset(out.data(), 0, out.size());
      return {};
    }};

}  // namespace

TEST_CASE("archive: A13 arrays of 2 GiB and more") {
  if (sanitizers) {
    MESSAGE("left out: it takes too long with a sanitizer");
    return;
  }
  // The one still fits; of the other a byte is too many.
  constexpr std::uint64_t large = (std::uint64_t{3} << 30) + 8;
  SnapshotBuilder builder;
  builder.set_flat();
  builder.begin(NodeKind::module, "");
  builder.tensor("large", DType::u8, std::vector<Extent>{large}, large, {&zeros_ops, nullptr, 0});
  const float one = 1;
  builder.tensor("small", DType::f32, std::vector<Extent>{1}, 4, {&memory_ops, &one, 0});
  builder.end();
  Sparse sink;
  good(ArchiveRecorder<>().save(Checkpoint{builder.finish()}, sink));
  const auto source = std::make_shared<SparseSource>(sink);
  const auto directory = good(zip::Directory::open(source, plenty));
  Names names;
  for (const zip::Entry& e : directory->entries()) names.emplace_back(e.name);
  CHECK(names == Names{"main/params/0.fb", "main/params/0.bin", "main/params/1.fb", "main/params.txt", "tags.txt"});
  const zip::Entry& bytes = *directory->find("main/params/0.bin");
  CHECK(bytes.size == large);
  CHECK(bytes.method == zip::stored);
  CHECK(good(directory->data(bytes)) % 64 == 0);
  const auto head = good(directory->read(*directory->find("main/params/0.fb"), plenty));
  const auto& array = *flatbuffers::GetRoot<stele_fb::Array>(head.data());
  CHECK(array.is_external());
  CHECK(array.external_names()->Get(0)->str() == "0.bin");
  CHECK(array.total_size() == static_cast<std::int64_t>(large));
  const Checkpoint back = good(open_archive(SourcePtr(source)));
  const LeafView leaf = back.parameters.find("large").value();
  CHECK(leaf.byte_size() == large);
  std::byte last[8] = {};
  good(leaf.read(large - 8, last));
  CHECK(arrays_of(checkpoint({{"small", floats({1})}}).parameters).at("small").bytes ==
        good(content(back.parameters.find("small").value())));
}

TEST_CASE("archive: A13 arrays beside their table") {
  const std::string content = in_file_order(bytes_of_numbers(std::vector<float>{1, 2, 3, 4}), DType::f32);
  const auto read = [&](const std::string& name, Entries more, std::uint64_t size = 16) {
    Entries all = {{"t/params.txt", "w 0\n"},
                   {"t/params/0.fb", detail::samediff::array_alone(DType::f32, std::vector<Extent>{2, 2}, name, size)}};
    all.insert(all.end(), more.begin(), more.end());
    all.emplace_back("tags.txt", "t\n");
    return zipped(all);
  };
  const std::string file = read("0.bin", {{"t/params/0.bin", content}});
  CHECK(arrays_of(good(opened(file)).parameters) == Arrays{{"w", floats({2, 2}, {1, 2, 3, 4})}});
  good(ArchiveRecorder<>().verify(bytes_of(file)));
  CHECK(arrays_of(good(opened(read("any name", {{"t/params/any name", content}}))).parameters).size() == 1);
  CHECK(open_error(read("0.bin", {})).expected() == "t/params/0.bin");
  for (const char* name : {"../0.bin", "/etc/passwd", "a/b", "a\\b"}) {
    CHECK(open_error(read(name, {{"t/params/0.bin", content}})).code() == Errc::malformed);
  }
  CHECK(open_error(read("0.bin", {{"t/params/0.bin", content + "x"}})).found() == "17");
  CHECK(open_error(read("0.bin", {{"t/params/0.bin", content}}, 15)).found() == "15");
  CHECK(open_error(read("0.fb", {})).code() == Errc::malformed);  // itself
}

TEST_CASE("archive: A14 what is aligned, what is deflated") {
  Checkpoint c = checkpoint({{"a", floats({1})}, {"b", {DType::u8, {5}, "12345"}}, {"c", floats({3, 4, 5})}});
  c.optimizer.set_snapshot("M", snapshot({{"a", floats({2})}}));
  GraphOperation op;
  op.name = std::string(300, 'x');
  c.graph.emplace().operations = {op};
  for (const bool deflate : {false, true}) {
    const std::string file = archive_of(c, {.deflate = deflate});
    const auto directory = good(zip::Directory::open(borrow_bytes(bytes_of(file)), plenty));
    for (const zip::Entry& e : directory->entries()) {
      CAPTURE(e.name);
      const bool array = e.name.find("/params/") != e.name.npos || e.name.find("/updater/") != e.name.npos;
      if (array) {
        const auto bytes = good(directory->read(e, plenty));
        const auto head = good(detail::samediff::read_head(bytes.span(), e.size));
        CHECK((good(directory->data(e)) + head->begin) % 64 == 0);
      }
      CHECK((e.method == zip::deflated) == (deflate && e.name.ends_with(".fb") && !array));  // texts get no smaller
    }
    CHECK(arrays_of(good(opened(file)).parameters) == arrays_of(c.parameters));
  }
  Random random(1);
  const std::string bytes = random.bytes(100000) + std::string(100000, 'x');
  const std::string file = zipped(
      {{"t/params.txt", "w 0\n"}, {"t/params/0.fb", array_entry(DType::u8, {200000}, bytes)}, {"tags.txt", "t\n"}},
      zip::deflated);
  CHECK(file.size() < 110000);
  CHECK(arrays_of(good(opened(file)).parameters) == Arrays{{"w", {DType::u8, {200000}, bytes}}});
}

TEST_CASE("archive: A15 optional fields of the graph") {
  Graph g;
  g.variables = {{"v", VariableKind::sequence, DType::i64, std::vector<std::int64_t>{}, {"op"}, {"op", "op2"}, {"w"}}};
  GraphOperation op;
  op.name = "op";
  op.family = OpFamily::logic;
  op.number = 100;
  op.dimensions = {1, 2147483647};
  op.scalar = GraphArray{DType::f64, {}, std::vector<std::byte>(8), {}};
  op.properties = {{"p", {1}, {2}, {0.5}, {GraphArray{DType::string, {2}, {}, {"", "é"}}}, {true, false}, {"s"}, {1}},
                   {}};
  op.output_dtypes = {DType::boolean, DType::string};
  op.control_dependencies = {"a"};
  op.var_control_dependencies = {"v"};
  op.control_dependency_of = {"c", "d"};
  op.strings = {{"", "x"}, {"name", ""}};
  g.operations = {op};
  g.loss_variables = {"v"};
  g.outputs = {"v", "w"};
  Graph inner = g;
  inner.sub_graphs = {{"deeper", Graph()}};
  g.sub_graphs = {{"body", inner}, {"", Graph()}};
  Checkpoint c = checkpoint({});
  c.graph = g;
  const std::string file = archive_of(c);
  CHECK(*good(opened(file)).graph == g);
  // Only the two lists, and not even these.
  for (const Graph& graph : {Graph(), inner})
    CHECK(good(read_graph(bytes_of(good(write_graph(graph))), plenty)) == graph);
  GraphOperation custom;
  custom.op_name = "conv2d";
  Graph alone;
  alone.operations = {custom};
  CHECK(good(read_graph(bytes_of(good(write_graph(alone))), plenty)).operations[0].number == 7325441780195652299);
}

TEST_CASE("archive: A16 each entry is checked when it is read") {
  const std::string file = archive_of(checkpoint({{"a", floats({1, 2})}, {"b", floats({3, 4})}}));
  const auto damaged = [&](const std::string& text, std::size_t more) {
    std::string bytes = file;
    bytes[bytes.find(text) + more] ^= 1;
    return bytes;
  };
  const std::string in_a = damaged(bytes_of_numbers(std::vector<float>{1, 2}), 2);
  const Checkpoint c = good(opened(in_a));
  const auto a = content(c.parameters.find("a").value());
  CHECK(code_of(a) == Errc::checksum);
  CHECK(good(content(c.parameters.find("b").value())) == bytes_of_numbers(std::vector<float>{3, 4}));
  const auto verified = ArchiveRecorder<>().verify(bytes_of(in_a));
  CHECK(code_of(verified) == Errc::checksum);
  CHECK(verified.error().path() == "a");
  CHECK(open_error(damaged("a 0\nb 1\n", 2)).code() == Errc::checksum);
  CHECK(open_error(damaged("main\n", 0)).code() == Errc::checksum);
}

}  // namespace archive_arrays_test
