// The tables of checkpoints: blocks, compression, keys; damage of any kind.
#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include "encodings/sstable/table.hpp"
#include "stele/detail/little_endian.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/tensor_bundle.hpp"

namespace sstable_test {

namespace {

using namespace stele;
using namespace stele_test;
using namespace stele_test::tensor_bundle;
using namespace std::string_literals;
using detail::sstable::read_table;
using detail::sstable::snappy_bytes;

constexpr std::uint64_t any_size = std::uint64_t{1} << 30;

Result<TableEntries> read(std::string_view file, std::uint64_t max_block = any_size) {
  TableEntries entries;
  const SourcePtr source = borrow_bytes(bytes_of(file));
  const auto visit = [&](std::string_view key, std::span<const std::byte> value, std::uint64_t) -> Status {
    entries.emplace_back(key, text_of(value));
    return {};
  };
  if (auto r = read_table(*source, max_block, visit); !r) return std::move(r).error();
  return entries;
}

Errc refused(std::string_view file) { return code_of(read(file)); }

TableEntries numbered(std::size_t count) {
  TableEntries entries;
  for (std::size_t i = 0; i < count; ++i) {
    entries.emplace_back("key/" + std::to_string(1000 + i), std::string(i % 50, 'v'));
  }
  return entries;
}

/// A table of one block with these bytes.
std::string with_block(const std::string& content, const std::string& last_key = "zzz") {
  return table_of_block(content, last_key);
}
std::string entry(std::uint64_t shared, const std::string& key, const std::string& value) {
  return varint(shared) + varint(key.size()) + varint(value.size()) + key + value;
}
const std::string one_restart = u32(0) + u32(1);

std::string unpacked(std::string_view compressed) {
  return std::string(text_of(good(snappy_bytes(bytes_of(compressed), any_size)).span()));
}
Errc refused_data(std::string_view compressed) { return code_of(snappy_bytes(bytes_of(compressed), any_size)); }

}  // namespace

TEST_CASE("tensor bundle table: entries come back, in any blocks, compressed or not") {
  for (const std::size_t count : {0U, 1U, 2U, 7U, 8U, 9U, 100U}) {
    for (const std::size_t block_entries : {1U, 3U, 1000U}) {
      for (const std::size_t interval : {1U, 4U, 16U}) {
        for (const auto compress : {static_cast<std::string (*)(std::string_view)>(nullptr), copies}) {
          const TableEntries entries = numbered(count);
          REQUIRE(good(read(table(entries, {block_entries, interval, compress}))) == entries);
        }
      }
    }
  }
}

TEST_CASE("tensor bundle table: Snappy's elements") {
  std::mt19937 random(7);
  for (const std::size_t size : {0U, 1U, 60U, 61U, 300U, 5000U}) {
    std::string bytes(size, '\0');
    for (std::size_t i = 0; i < size; ++i) {
      bytes[i] = i > 70 && random() % 8 != 0 ? bytes[i - 1 - random() % 70] : static_cast<char>(random() % 4);
    }
    REQUIRE(unpacked(copies(bytes)) == bytes);
    const auto short_literals = literals(bytes);
    REQUIRE(unpacked(short_literals) == bytes);
    REQUIRE(unpacked(literals(bytes, true)) == bytes);
  }
  CHECK(unpacked("\x0a\x00"
                 "a"
                 "\x15\x01"s) == "aaaaaaaaaa");  // a copy of nine bytes over its own output
  CHECK(unpacked("\x04\x0c"
                 "abcd"s) == "abcd");
  CHECK(refused_data("") == Errc::malformed);
  CHECK(refused_data("\x80"s) == Errc::malformed);
  CHECK(refused_data("\x05\x0c"
                     "abcd"s) == Errc::malformed);  // shorter than its size
  CHECK(refused_data("\x03\x0c"
                     "abcd"s) == Errc::malformed);  // longer
  CHECK(refused_data("\x04\x0c"
                     "abc"s) == Errc::malformed);  // cut
  CHECK(refused_data("\x06\x00"
                     "a"
                     "\x05\x00"s) == Errc::malformed);  // a copy of distance 0
  CHECK(refused_data("\x06\x00"
                     "a"
                     "\x05\x02"s) == Errc::malformed);  // from before the data
  CHECK(refused_data("\x06\x00"
                     "a"
                     "\x06\x02"s) == Errc::malformed);  // cut in a distance
  CHECK(refused_data("\x04\xf0"s) == Errc::malformed);  // cut in a length
  CHECK(refused_data("\x04\xfc\xff\xff\xff\xff"s) == Errc::malformed);
  CHECK(refused_data("\xff\xff\xff\xff\x0f\x00"
                     "a"s) == Errc::malformed);  // 4 GiB of three bytes
  std::string bomb = varint(64 * 100000 + 1) + "\0a"s;
  for (int i = 0; i < 100000; ++i) bomb += "\xfe\1\0"s;
  CHECK(unpacked(bomb) == std::string(6400001, 'a'));
  CHECK(code_of(snappy_bytes(bytes_of(bomb), 1000000)) == Errc::limit);
  CHECK(code_of(read(table(numbered(100), {100, 16, copies}), 1000)) == Errc::limit);
}

TEST_CASE("tensor bundle table: every cut and every changed byte is found") {
  for (const auto compress : {static_cast<std::string (*)(std::string_view)>(nullptr), copies}) {
    const std::string file = table(numbered(20), {8, 4, compress});
    REQUIRE(read(file));
    for (std::size_t i = 0; i < file.size(); ++i) {
      REQUIRE(!read(std::string_view(file).substr(0, i)));
      REQUIRE(!read(std::string_view(file).substr(i + 1)));
      for (const int bit : {0, 3, 7}) {
        std::string other = file;
        other[i] = static_cast<char>(other[i] ^ 1 << bit);
        CAPTURE(i);
        REQUIRE(!read(other));
      }
    }
    REQUIRE(refused(file + "x") == Errc::bad_magic);
    REQUIRE(refused("x" + file) != Errc::none);
  }
}

TEST_CASE("tensor bundle table: blocks that lie behind a right checksum") {
  REQUIRE(good(read(with_block(entry(0, "a", "1") + entry(1, "b", "2") + one_restart))) ==
          TableEntries{{"a", "1"}, {"ab", "2"}});
  const auto block_error = [](const std::string& content) { return refused(with_block(content)); };
  CHECK(block_error(entry(0, "b", "1") + entry(0, "a", "2") + one_restart) == Errc::malformed);  // order
  CHECK(block_error(entry(0, "a", "1") + entry(0, "a", "2") + one_restart) == Errc::malformed);  // twice
  CHECK(block_error(entry(0, "a", "1") + entry(1, "", "2") + one_restart) == Errc::malformed);
  CHECK(block_error(entry(1, "a", "1") + one_restart) == Errc::malformed);  // shares what is not there
  CHECK(block_error(entry(0, "a", "1") + entry(2, "b", "2") + one_restart) == Errc::malformed);
  CHECK(block_error(entry(0, "a", "1") + entry(UINT64_MAX, "b", "2") + one_restart) == Errc::malformed);
  CHECK(block_error("\0\x7f\1a1"s + one_restart) == Errc::malformed);  // a key beyond the block
  CHECK(block_error("\0\1\x7f"
                    "a1"s +
                    one_restart) == Errc::malformed);
  CHECK(block_error("\0\1"s + varint(UINT64_MAX) + "a1" + one_restart) == Errc::malformed);
  CHECK(block_error("\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\1a1"s + one_restart) == Errc::malformed);
  CHECK(block_error(entry(0, "a", "1") + u32(0)) == Errc::malformed);  // no restarts
  CHECK(block_error(entry(0, "a", "1") + u32(1) + u32(1)) == Errc::malformed);
  CHECK(block_error(entry(0, "a", "1") + u32(0) + u32(0) + u32(2)) == Errc::malformed);
  CHECK(block_error(entry(0, "a", "1") + u32(0) + u32(5) + u32(2)) == Errc::malformed);
  CHECK(block_error(entry(0, "a", "1") + u32(UINT32_MAX)) == Errc::malformed);
  CHECK(block_error(entry(0, "a", "1") + entry(1, "b", "2") + u32(0) + u32(5) + u32(2)) == Errc::malformed);
  CHECK(block_error("abc") == Errc::malformed);
  CHECK(block_error("") == Errc::malformed);
  CHECK(refused(with_block(entry(0, "b", "1") + one_restart, "a")) == Errc::malformed);  // above its key
}

TEST_CASE("tensor bundle table: places that lie") {
  const std::string content = entry(0, "a", "1") + one_restart;
  const auto with_place = [&](std::uint64_t offset, std::uint64_t size, std::uint64_t more = 0) {
    std::string file;
    const TableStyle plain;
    put_block(file, content, plain);
    const std::string metadata = put_block(file, block({}, 1), plain);
    const std::string value = varint(offset) + varint(size) + std::string(more, '\0');
    std::string footer = metadata + put_block(file, block({{"a", value}}, 1), plain);
    footer.resize(40);
    return refused(file + footer + "\x57\xfb\x80\x8b\x24\x75\x47\xdb");
  };
  REQUIRE(with_place(0, content.size()) == Errc::none);
  CHECK(with_place(0, content.size(), 1) == Errc::malformed);
  CHECK(with_place(0, content.size() + 1) == Errc::checksum);
  CHECK(with_place(1, content.size()) == Errc::malformed);
  CHECK(with_place(0, 100000) == Errc::truncated);
  CHECK(with_place(0, UINT64_MAX) == Errc::truncated);
  CHECK(with_place(UINT64_MAX, 1) == Errc::malformed);
}

}  // namespace sstable_test
