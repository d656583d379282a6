// Reads a Value, writes it and reads it again; checks that Value and text are the same, and that skipping agrees with
// reading.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "fuzz/require.hpp"
#include "json/json.hpp"

namespace json = stele::detail::json;

namespace {

using stele_test::require;

std::string write(const stele::Value& value) {
  std::string text;
  json::Writer writer(text);
  require(json::write_value(writer, value).has_value());
  return text;
}

void check_offset(const json::Reader& reader, std::size_t size) {
  const auto at = reader.error().offset();
  require(at.has_value() && *at <= size);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  json::Reader skipper(text);
  const bool valid = skipper.skip_value() && skipper.finish();
  if (!valid) check_offset(skipper, size);

  json::Reader reader(text);
  stele::Value value;
  const bool read =
      json::read_value(reader, value, json::kMaxValueBytesPerByte * size + 1024).has_value() && reader.finish();
  if (!read) {
    check_offset(reader, size);
    require(reader.error().code() != stele::Errc::limit || !valid);
    return 0;
  }
  require(valid);
  const std::string first = write(value);
  json::Reader again(first);
  stele::Value back;
  require(json::read_value(again, back, static_cast<std::size_t>(-1)).has_value() && again.finish());
  // Not ==, which fails for NaN: the text contains every bit of a Value.
  require(write(back) == first);
  return 0;
}
