// Paddle files that are damaged, that lie, that are made to take long or much.
#include <stele/bundle.hpp>
#include <stele/recorders/paddle.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/models.hpp"
#include "support/paddle.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace paddle_hostile_test {

namespace {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;

const PaddleRecorder<> counting(PaddleFormat({.names = PaddleNames::counter}));
const std::string zeros(64, '\0');

std::string golden(const std::string& name) { return read_text(test_data("paddle") + "/" + name); }

/// Opens and reads everything; the code of the error, or none.
Errc outcome(std::string_view file, const PaddleRecorder<>& recorder = counting) {
  const auto opened = recorder.open(bytes_of(file));
  if (!opened) return opened.error().code();
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < opened->leaf_count(); ++i) {
    const LeafView leaf = opened->leaf(i);
    const auto all = content(leaf);
    REQUIRE(all);
    REQUIRE(all->size() == leaf.byte_size());
    total += all->size();
  }
  REQUIRE(total <= file.size());
  return Errc::none;
}

/// The error of a file that must not open.
Error refused(std::string_view file, Errc code) {
  Error error = bad(counting.open(bytes_of(file)));
  CAPTURE(error.to_string());
  CHECK(name(error.code()) == name(code));
  CHECK(error.file().find("memory") != std::string::npos);
  CHECK((error.offset() || code == Errc::duplicate));
  return error;
}

std::string text_with(std::uint32_t lod_version, const std::string& levels, std::uint32_t version, std::int32_t size,
                      const std::string& rest) {
  std::string text;
  put(text, lod_version);
  text += levels;
  put(text, version);
  put(text, static_cast<std::uint32_t>(size));
  return text + rest;
}
std::string u64(std::uint64_t n) {
  std::string text;
  put(text, n);
  return text;
}
const std::string f32 = tensor_desc(5, {2});
std::string of_desc(const std::string& desc, const std::string& data = zeros) {
  return record_of_desc(desc, data, u64(0));
}

Result<std::vector<PaddleVariable>> program(std::string_view text) { return paddle_program(bytes_of(text)); }
Errc program_error(std::string_view text) { return code_of(program(text)); }

}  // namespace

TEST_CASE("paddle hostile: the head of a record") {
  REQUIRE(outcome(text_with(0, u64(0), 0, 4, f32 + "12345678")) == Errc::none);
  refused(text_with(1, u64(0), 0, 4, f32 + "12345678"), Errc::truncated);  // as a frame
  const std::string behind = paddle_record(5, {2}, "12345678");
  CHECK(refused(behind + text_with(1, u64(0), 0, 4, f32 + "12345678"), Errc::unsupported).offset() == 32U);
  CHECK(refused(text_with(0, u64(0), 1, 4, f32 + "12345678"), Errc::unsupported).offset() == 12U);
  for (const std::int32_t size : {0, 1, -1, INT32_MIN, INT32_MAX, 65537, 0x7fff}) {
    CAPTURE(size);
    refused(text_with(0, u64(0), 0, size, f32 + "12345678"), size == 0x7fff ? Errc::truncated : Errc::malformed);
  }
  refused(text_with(0, u64(0), 0, 5, f32 + "12345678"), Errc::malformed);  // a byte of the data is no field
  refused(text_with(0, u64(0), 0, 3, f32 + "12345678"), Errc::malformed);  // a field without its end
  refused(text_with(0, u64(0), 0, 13, f32 + "12345678"), Errc::truncated);
}

TEST_CASE("paddle hostile: levels of detail") {
  const std::string rest = u64(0).substr(0, 4) + "\4\0\0\0"s + f32 + "12345678";
  const auto file = [&](const std::string& levels) { return "\0\0\0\0"s + levels + rest; };
  REQUIRE(outcome(file(u64(1) + u64(16) + u64(0) + u64(2))) == Errc::none);
  refused(file(u64(1) + u64(9) + u64(0) + "2"), Errc::malformed);  // Paddle #79492
  for (const std::uint64_t bytes : {0U, 8U, 15U, 17U}) refused(file(u64(1) + u64(bytes) + zeros), Errc::malformed);
  for (const std::uint64_t bytes : {std::uint64_t{1} << 20U, std::uint64_t{1} << 60U, UINT64_MAX - 7}) {
    refused(file(u64(1) + u64(bytes) + zeros), Errc::truncated);
  }
  for (const std::uint64_t levels : {std::uint64_t{65}, std::uint64_t{1} << 32U, std::uint64_t{1} << 61U, UINT64_MAX}) {
    CHECK(refused(file(u64(levels) + zeros), Errc::malformed).offset() == 4U);
  }
  refused(file(u64(64) + u64(16) + u64(0) + u64(1)), Errc::truncated);  // fewer levels than that
  // A level as large as the file costs some times that: the caller's bound is kept before it is made.
  std::string large = u64(1) + u64(std::uint64_t{8} << 20U);
  large.resize(large.size() + (std::size_t{8} << 20U));
  refused(file(large), Errc::malformed);
  LoadOptions bounded;
  bounded.limits.index_bytes = std::uint64_t{16} << 20;
  CHECK(code_of(counting.open(bytes_of(file(large)), bounded)) == Errc::limit);
}

TEST_CASE("paddle hostile: the description of a tensor") {
  const std::string head = field(1, 5);
  const auto dim = [](std::uint64_t n) { return field(2, n); };
  // Tolerated: packed extents, fields that nobody knows, a dtype twice (the last one counts), dtype last.
  CHECK(outcome(of_desc(head + field(2, varint(2) + varint(3)), zeros.substr(0, 24))) == Errc::none);
  CHECK(outcome(of_desc(head + field(2, varint(2)) + dim(3), zeros.substr(0, 24))) == Errc::none);
  CHECK(outcome(of_desc(head + dim(2) + field(77, "text") + field(78, 3), zeros.substr(0, 8))) == Errc::none);
  CHECK(outcome(of_desc(field(1, 6) + dim(2) + head, zeros.substr(0, 8))) == Errc::none);

  for (const std::uint64_t dtype :
       {7U, 8U, 9U, 10U, 11U, 15U, 16U, 17U, 18U, 25U, 26U, 27U, 29U, 30U, 31U, 34U, 99U, 255U, 256U + 5U}) {
    CAPTURE(dtype);
    refused(of_desc(field(1, dtype) + dim(2)), Errc::unsupported);
  }
  refused(of_desc(field(1, UINT64_MAX) + dim(2)), Errc::unsupported);
  refused(of_desc(dim(2) + dim(3)), Errc::malformed);  // no dtype
  refused(of_desc(field(1, "5") + dim(2)), Errc::malformed);
  refused(of_desc(head + dim(UINT64_MAX)), Errc::malformed);  // -1
  refused(of_desc(head + dim(std::uint64_t{1} << 63U)), Errc::malformed);
  refused(of_desc(head + dim(0) + dim(UINT64_MAX)), Errc::malformed);
  refused(of_desc(head + dim(std::uint64_t{1} << 32U) + dim(std::uint64_t{1} << 32U)), Errc::malformed);
  refused(of_desc(head + dim(std::uint64_t{1} << 62U)), Errc::malformed);  // 2^64 bytes
  refused(of_desc(head + dim(std::uint64_t{1} << 31U) + dim(std::uint64_t{1} << 31U) + dim(4)), Errc::malformed);
  refused(of_desc(head + dim(std::uint64_t{1} << 40U)), Errc::truncated);
  std::string ranks = head;
  for (int i = 0; i < 9; ++i) ranks += dim(1);
  CHECK(outcome(of_desc(ranks, "1234")) == Errc::none);
  refused(of_desc(ranks + dim(1), "1234"), Errc::limit);
  refused(of_desc(head + field(2, std::string(10, '\1')), "1234"), Errc::limit);
  std::string many = head;
  for (int i = 0; i < 30000; ++i) many += dim(1);
  refused(of_desc(many, "1234"), Errc::limit);

  // Wire types: fixed numbers, groups, over-long varints, a length beyond the end, field 0.
  refused(of_desc(head + "\x11"s + zeros.substr(0, 8)), Errc::malformed);
  refused(of_desc(head + "\x15"s + zeros.substr(0, 4)), Errc::malformed);
  for (const char tag : {'\x13', '\x14', '\x16', '\x17', '\x1b', '\x1c'}) {
    refused(of_desc(head + std::string(1, tag) + dim(2)), Errc::malformed);
  }
  refused(of_desc(head + "\x10"s + std::string(10, '\xff') + "\1"s), Errc::malformed);
  refused(of_desc(head + "\x10"s + std::string(9, '\xff') + "\2"s), Errc::malformed);  // 65 bits
  refused(of_desc(head + "\x12\x20"s + "ab"), Errc::malformed);
  refused(of_desc(head + "\x12"s + varint(UINT64_MAX) + "ab"), Errc::malformed);
  refused(of_desc(head + "\x12\2\x80\x80"s), Errc::malformed);  // a packed number without its end
  refused(of_desc(head + "\0\1"s), Errc::malformed);
  refused(of_desc(head + varint(std::uint64_t{1} << 35U) + "\1"s), Errc::malformed);
}

TEST_CASE("paddle hostile: cut off and longer") {
  std::vector<std::string> files = {small_paddle_file(), golden("lod.pdiparams"), golden("shapes.pdiparams")};
  const std::string b = small_paddle_file().substr(0, 36);
  files.push_back(sized_frame(b) + sized_frame(b));
  files.push_back(named_frame("a", b) + named_frame("b", b));
  for (const std::string& file : files) {
    REQUIRE(outcome(file) == Errc::none);
    // Whole records at the beginning are a file of their own, as long as nobody says how many there are.
    const std::size_t records = counting.open(bytes_of(file))->leaf_count();
    LoadOptions options;
    options.layout.emplace();
    for (std::size_t i = 0; i < records; ++i) options.layout->tensors.push_back({"x" + std::to_string(i)});
    const bool named = file == files.back();
    for (std::size_t size = 0; size < file.size(); ++size) {
      CAPTURE(size);
      const std::string part = file.substr(0, size);
      outcome(part);
      const auto opened = PaddleRecorder<>().open(bytes_of(part), options);
      if (!named) CHECK(!opened);
    }
    for (const char c : {'\0', '\1', '\xff'}) CHECK(outcome(file + c) != Errc::none);
    if (!named) CHECK(!PaddleRecorder<>().open(bytes_of(file + '\0'), options));
  }
}

TEST_CASE("paddle hostile: every bit") {
  const std::string b = small_paddle_file().substr(0, 36);
  const std::string files[] = {small_paddle_file(), golden("lod.pdiparams"), sized_frame(b) + sized_frame(b),
                               named_frame("a", b) + named_frame("b", b)};
  for (const std::string& file : files) {
    std::size_t refusals = 0;
    for (std::size_t bit = 0; bit < 8 * file.size(); ++bit) {
      std::string damaged = file;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
      CAPTURE(bit);
      const Errc code = outcome(damaged);
      CHECK(code != Errc::out_of_memory);
      CHECK(code != Errc::io);
      refusals += code != Errc::none ? 1U : 0U;
    }
    CHECK(refusals > file.size());
  }
}

TEST_CASE("paddle hostile: frames") {
  const std::string b = small_paddle_file().substr(0, 36);
  refused(named_frame("a", b) + named_frame("c", b) + named_frame("a", b), Errc::duplicate);
  const auto framed = [](std::uint64_t size, const std::string& rest) { return u64(size) + rest; };
  refused(framed(37, b), Errc::truncated);
  refused(framed(35, b), Errc::truncated);        // the record is longer than its frame
  refused(framed(37, b + "x"), Errc::malformed);  // and shorter
  refused(framed(UINT64_MAX, b), Errc::truncated);
  refused(framed((std::uint64_t{1} << 63U) + 36, b), Errc::truncated);
  refused(sized_frame(b) + "1234567", Errc::truncated);
  refused(sized_frame(b) + u64(0), Errc::truncated);
  // Names: beyond the frame, beyond the file, too long, in a frame that is too short to say any.
  const auto with_name = [&](std::uint64_t size, std::uint64_t name, const std::string& rest) {
    return u64(size) + u64(name) + rest;
  };
  REQUIRE(outcome(with_name(45, 1, "a" + b)) == Errc::none);
  refused(with_name(45, 38, "a" + b + b), Errc::malformed);
  refused(with_name(45, 37, "a" + b), Errc::truncated);  // nothing is left for the record
  refused(with_name(45, 1000, "a" + b), Errc::truncated);
  refused(with_name(45, UINT64_MAX, "a" + b), Errc::truncated);
  refused(with_name(4, 1, "a" + b), Errc::malformed);
  refused(with_name(8 + 70000 + 36, 70000, std::string(70000, 'a') + b), Errc::truncated);
  refused(named_frame("a", b) + u64(100), Errc::truncated);
  // Many records of nothing, with names of nothing: memory is bounded by the file's size.
  std::string many;
  const std::string empty = paddle_record(5, {0}, "");
  while (many.size() < (std::size_t{12} << 20U)) many += empty;
  LoadOptions bounded;
  bounded.limits.index_bytes = std::uint64_t{16} << 20;
  CHECK(code_of(counting.open(bytes_of(many), bounded)) == Errc::limit);
}

TEST_CASE("paddle hostile: programs of protobuf") {
  const std::string f = tensor_desc(5, {2, 3});
  const auto of = [](const std::string& var) { return program_desc({var}); };
  const auto good_one = good(program(of(var_desc("w", f))));
  REQUIRE(good_one == std::vector<PaddleVariable>{{"w", DType::f32, {2, 3}}});
  CHECK(good(program("")).empty());
  CHECK(good(program(of(var_desc("w", f, false)))).empty());
  for (const std::uint64_t type : {9U, 10U, 15U, 17U}) CHECK(good(program(of(var_desc("w", "", true, type)))).empty());
  for (const std::uint64_t type : {0U, 8U, 13U, 27U, 99U}) {  // SELECTED_ROWS, arrays, VOCAB
    const Error error = bad(program(of(var_desc("w", "", true, type))));
    CHECK(error.code() == Errc::unsupported);
    CHECK(error.path() == "w");
    CHECK(good(program(of(var_desc("w", "", false, type)))).empty());
  }
  // A variable twice: the same is one, another is an error. In another block too.
  CHECK(good(program(program_desc({var_desc("w", f), var_desc("w", f)}))).size() == 1);
  CHECK(program_error(program_desc({var_desc("w", f), var_desc("w", tensor_desc(6, {2, 3}))})) == Errc::duplicate);
  CHECK(program_error(of(var_desc("w", f)) + of(var_desc("w", tensor_desc(5, {3, 2})))) == Errc::duplicate);
  CHECK(good(program(of(var_desc("b", f)) + of(var_desc("a", f))))[0].name == "a");

  for (const std::uint64_t dtype : {7U, 17U, 99U}) {
    CHECK(program_error(of(var_desc("w", tensor_desc(dtype, {2})))) == Errc::unsupported);
  }
  CHECK(program_error(of(var_desc("w", ""))) == Errc::malformed);  // no dtype
  CHECK(program_error(of(var_desc("w", tensor_desc(5, Dims(10, 1))))) == Errc::limit);
  CHECK(program_error(of(field(1, "w") + field(3, 1))) == Errc::unsupported);                          // no type
  CHECK(program_error(of(field(1, "w") + field(2, field(1, 7)) + field(3, 1))) == Errc::unsupported);  // no tensor
  // Wrong wire types at each level.
  CHECK(program_error(field(1, 5)) == Errc::malformed);
  CHECK(program_error(field(1, field(3, 5))) == Errc::malformed);
  CHECK(program_error(of(field(1, 5))) == Errc::malformed);
  CHECK(program_error(of(field(2, 5))) == Errc::malformed);
  CHECK(program_error(of(field(3, "1"))) == Errc::malformed);
  CHECK(program_error(of(field(2, field(1, "7")))) == Errc::malformed);
  CHECK(program_error(of(field(2, field(3, 7)))) == Errc::malformed);
  CHECK(program_error(of(field(2, field(3, field(1, 7))))) == Errc::malformed);
  // Groups, over-long varints, lengths beyond the end, an end in the middle.
  CHECK(program_error("\x0b\x0c"s) == Errc::malformed);
  CHECK(program_error("\x0a"s + std::string(11, '\x80')) == Errc::malformed);
  CHECK(program_error("\x0a"s + varint(UINT64_MAX)) == Errc::malformed);
  CHECK(program_error("\x0a"s + varint(3) + "ab") == Errc::malformed);
  CHECK(program_error(field(1, "\x1a\x7f"s)) == Errc::malformed);
  CHECK(program_error(std::string(1000, '\x0b')) == Errc::malformed);
  const std::string whole = program_desc({var_desc("w", f), var_desc("x", f)});
  for (std::size_t size = 0; size < whole.size(); ++size) program_error(whole.substr(0, size));
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    const Errc code = program_error(damaged);
    CHECK(code != Errc::out_of_memory);
  }
  // Blocks in blocks are no program's: nothing here recurses.
  std::string nested;
  for (int i = 0; i < 5000; ++i) nested = field(1, nested);
  program_error(nested);
  // Variables of nothing: memory is in proportion to the file.
  std::string many;
  const std::string var = field(3, var_desc("", tensor_desc(5, {})));
  while (many.size() < (std::size_t{8} << 20U)) many += var;
  CHECK(program_error(field(1, many)) == Errc::none);
}

TEST_CASE("paddle hostile: programs of Paddle 3") {
  const auto ops = [](const std::string& text) { return program_error(pir_program(text)); };
  REQUIRE(good(program(pir_program(pir_parameter("b") + "," + pir_parameter("a", "0.t_bf16", "-1,3")))) ==
          std::vector<PaddleVariable>{{"a", DType::bf16, {-1, 3}}, {"b", DType::f32, {2}}});
  CHECK(good(program(pir_program(""))).empty());
  CHECK(ops(pir_parameter("a") + "," + pir_parameter("a")) == Errc::none);
  CHECK(ops(pir_parameter("a") + "," + pir_parameter("a", "0.t_f64")) == Errc::duplicate);
  CHECK(ops(pir_parameter("a") + "," + pir_parameter("a", "0.t_f32", "3")) == Errc::duplicate);
  // Parameters without a name, a result, a type, of another type, of another shape.
  CHECK(ops(R"({"#":"p"})") == Errc::unsupported);
  CHECK(ops(R"({"#":"p","A":["a"]})") == Errc::unsupported);
  CHECK(ops(R"({"#":"p","A":["a"],"O":{}})") == Errc::unsupported);
  CHECK(ops(R"({"#":"p","A":["a"],"O":{"TT":{"#":"0.t_dtensor","D":[]}}})") == Errc::unsupported);
  CHECK(ops(R"({"#":"p","A":["a"],"O":{"TT":{"#":"0.t_dtensor","D":[7]}}})") == Errc::unsupported);
  CHECK(ops(pir_parameter("")) == Errc::unsupported);
  CHECK(ops(pir_parameter("a", "0.t_vec")) == Errc::unsupported);
  CHECK(ops(pir_parameter("a", "0.t_f32", "1,1,1,1,1,1,1,1,1,1")) == Errc::limit);
  CHECK(ops(pir_parameter("a", "0.t_f32", "1.5")) == Errc::malformed);
  CHECK(ops(pir_parameter("a", "0.t_f32", "99999999999999999999")) == Errc::out_of_range);
  CHECK(ops(pir_parameter("a", "0.t_f32", "\"2\"")) == Errc::malformed);
  // Wrong kinds of JSON.
  for (const char* op :
       {"1", "[]", "null", R"({"#":1})", R"({"#":"p","A":1})", R"({"#":"p","A":{}})", R"({"#":"p","O":[]})",
        R"({"#":"p","O":{"TT":[]}})", R"({"#":"p","O":{"TT":{"D":{}}}})", R"({"#":"1.data","A":{}})",
        R"({"#":"1.data","A":[1]})", R"({"#":"1.data","O":{}})", R"({"#":"1.data","A":[{"N":1}]})",
        R"({"#":"1.data","A":[{"N":"name","AT":[]}]})", R"({"#":"1.data","A":[{"N":"name","AT":{"D":[]}}]})",
        R"({"#":"1.data","OA":[{"N":"persistable","AT":{"D":true}}]})",
        R"({"#":"1.data","OA":[{"N":"persistable","AT":{"D":[1]}}]})"}) {
    CAPTURE(op);
    CHECK(ops(op) == Errc::malformed);
  }
  CHECK(ops(R"({"#":"1.data","OA":[{"AT":{"D":[{"D":true}]},"N":"persistable"}]})") == Errc::unsupported);
  CHECK(ops(R"({"#":"1.data","OA":[{"AT":{"D":[{"D":false}]},"N":"persistable"}]})") == Errc::none);
  for (const char* text :
       {"{", "{}", R"({"base_code":{}})", R"({"base_code":{"magic":"paddle"},"program":{}})",
        R"({"program":{"regions":[]}})", R"({"base_code":1})", R"({"base_code":{"magic":1}})",
        R"({"base_code":{"magic":"pir"},"program":[]})", R"({"base_code":{"magic":"pir"},"program":{"regions":1}})",
        R"({"base_code":{"magic":"pir"},"program":{"regions":[{"blocks":{}}]}})"}) {
    CAPTURE(text);
    CHECK(program_error(text) != Errc::none);
  }
  CHECK(program_error(R"({"base_code":{"magic":"paddle"},"program":{}})") == Errc::bad_magic);
  CHECK(program_error(pir_program("") + "x") == Errc::malformed);
  // Deep ones.
  for (const std::size_t depth : {std::size_t{2000}, std::size_t{2000000}}) {
    CHECK(ops(R"({"#":"other","x":)" + std::string(depth, '[')) == Errc::limit);
    CHECK(ops(R"({"#":"p","A":[)" + std::string(depth, '[')) == Errc::limit);
    std::string deep;
    for (std::size_t i = 0; i < depth; ++i) deep += R"({"D":)";
    CHECK(ops(R"({"#":"1.data","A":[{"N":"name","AT":)" + deep) == Errc::limit);
  }
  const std::string whole = pir_program(pir_parameter("a"));
  for (std::size_t size = 1; size < whole.size(); ++size) CHECK(program_error(whole.substr(0, size)) != Errc::none);
  // One attribute after the other, each read once or twice: the square would be 10^11 bytes.
  std::string many = R"({"#":"1.data","A":[)";
  for (int i = 0; i < 100000; ++i) many += R"({"AT":{"D":"x"},"N":"name"},)";
  many.back() = ']';
  CHECK(ops(many + "}") == Errc::none);
}

TEST_CASE("paddle hostile: folders") {
  const TempDir dir;
  std::filesystem::create_directory(dir / "model");
  write_text(dir / "secret", paddle_record(5, {1}, "1234"));
  const auto with = [&](const std::string& name) {
    write_text(dir / "model/__model__", program_desc({var_desc(name, tensor_desc(5, {1}))}));
    return PaddleRecorder<>().open(dir / "model");
  };
  for (const std::string& name :
       {"../secret"s, "x/../../secret"s, ".."s, "."s, ""s, dir / "secret", "a\0b"s, "a\\b"s, "a//b"s}) {
    CAPTURE(name);
    CHECK(code_of(with(name)) == Errc::invalid_argument);
  }
  CHECK(code_of(with("missing")) == Errc::not_found);
  write_text(dir / "model/w", paddle_record(5, {1}, "1234"));
  CHECK(with("w"));
  const auto error = [&](const std::string& content, Errc code) {
    write_text(dir / "model/w", content);
    const Error e = bad(with("w"));
    CAPTURE(e.to_string());
    CHECK(e.code() == code);
    CHECK(e.path() == "w");
    CHECK(e.file().find("/w") != std::string::npos);
  };
  error(paddle_record(5, {1}, "12345"), Errc::malformed);
  error(paddle_record(5, {1}, "123"), Errc::truncated);
  error(paddle_record(5, {2}, "12345678"), Errc::shape_mismatch);
  error(paddle_record(2, {1}, "1234"), Errc::dtype_mismatch);
  error("", Errc::truncated);
  write_text(dir / "model/w", paddle_record(5, {1}, "1234"));
  // Without the program, other files are no parameters.
  std::filesystem::remove(dir / "model/__model__");
  CHECK(PaddleRecorder<>().open(dir / "model"));
  write_text(dir / "model/readme", "text");
  CHECK(!PaddleRecorder<>().open(dir / "model"));
  CHECK(!PaddleFormat({.folder = true}).recognises_folder(*folder_bundle(dir / "model")));
  std::filesystem::remove_all(dir / "model");
  std::filesystem::create_directory(dir / "model");
  CHECK(!PaddleFormat({.folder = true}).recognises_folder(*folder_bundle(dir / "model")));
}

TEST_CASE("paddle hostile: bools that are neither") {
  const std::string file = paddle_record(0, {2}, "\1\2"s);
  CHECK(outcome(file) == Errc::none);
  CHECK(code_of(counting.verify(bytes_of(file))) == Errc::malformed);
  CHECK(counting.verify(bytes_of(paddle_record(0, {2}, "\1\0"s))));
}

}  // namespace paddle_hostile_test
