// Paddle files made by hand from the layout in stele/recorders/paddle.hpp, without the library's writer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "support/protobuf.hpp"
#include "support/stele_file.hpp"

namespace stele_test {

/// Returns a protobuf field: a number, or a length-delimited field.
inline std::string field(std::uint32_t number, std::uint64_t value) { return varint(number << 3U) + varint(value); }
inline std::string field(std::uint32_t number, std::string_view bytes) {
  return varint(number << 3U | 2U) + varint(bytes.size()) + std::string(bytes);
}

using Dims = std::vector<std::int64_t>;
using Lod = std::vector<std::vector<std::uint64_t>>;

inline std::string tensor_desc(std::uint64_t dtype, const Dims& dims) {
  std::string desc = field(1, dtype);
  for (const std::int64_t dim : dims) desc += field(2, static_cast<std::uint64_t>(dim));
  return desc;
}
inline std::string levels_of(const Lod& lod) {
  std::string text;
  put(text, std::uint64_t{lod.size()});
  for (const auto& level : lod) {
    put(text, std::uint64_t{8 * level.size()});
    for (const std::uint64_t offset : level) put(text, offset);
  }
  return text;
}
inline std::string record_of_desc(std::string_view desc, std::string_view data, const std::string& levels) {
  std::string text;
  put(text, std::uint32_t{0});
  text += levels;
  put(text, std::uint32_t{0});
  put(text, static_cast<std::uint32_t>(desc.size()));
  return text + std::string(desc) + std::string(data);
}
inline std::string paddle_record(std::uint64_t dtype, const Dims& dims, std::string_view data, const Lod& lod = {}) {
  return record_of_desc(tensor_desc(dtype, dims), data, levels_of(lod));
}

inline std::string sized_frame(std::string_view record) {
  std::string text;
  put(text, std::uint64_t{record.size()});
  return text + std::string(record);
}
inline std::string named_frame(std::string_view name, std::string_view record) {
  std::string text;
  put(text, std::uint64_t{8 + name.size() + record.size()});
  put(text, std::uint64_t{name.size()});
  return text + std::string(name) + std::string(record);
}

/// Returns a VarDesc of the type with that number; a dense tensor (7) has `desc`.
inline std::string var_desc(std::string_view name, std::string_view desc, bool persistable = true,
                            std::uint64_t type = 7) {
  const std::string tensor = type == 7 ? field(3, field(1, desc)) : std::string();
  return field(1, name) + field(2, field(1, type) + tensor) + field(3, std::uint64_t{persistable});
}
/// Returns a ProgramDesc with one block.
inline std::string program_desc(const std::vector<std::string>& vars) {
  std::string block = field(1, std::uint64_t{0}) + field(2, std::uint64_t{0});
  for (const std::string& var : vars) block += field(3, var);
  return field(1, block) + field(4, field(1, std::uint64_t{0}));
}

/// Returns a parameter in a Paddle 3 program.
inline std::string pir_parameter(const std::string& name, const std::string& type = "0.t_f32",
                                 const std::string& dims = "2") {
  return R"({"#":"p","A":[0,1,0,")" + name + R"("],"O":{"%":1,"TT":{"#":"0.t_dtensor","D":[{"#":")" + type + R"("},[)" +
         dims + R"(],"NCHW",[],0]}}})";
}
inline std::string pir_program(const std::string& ops) {
  return R"({"base_code":{"magic":"pir","version":1},"program":{"regions":[{"blocks":[{"ops":[)" + ops + "]}]}]}}";
}

/// Returns a file of 86 bytes with fc.b f32 [3] and fc.w f32 [2, 3].
inline std::string small_paddle_file() {
  using namespace std::string_literals;
  return paddle_record(5, {3}, "\0\0\x10\x41\0\0\0\x41\0\0\xe0\x40"s) +
         paddle_record(5, {2, 3}, "\0\0\0\0\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40\0\0\x80\x40\0\0\xa0\x40"s);
}

}  // namespace stele_test
