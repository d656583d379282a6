// Archives put together by hand, and helpers that the tests of tar share.
#pragma once

#include "encodings/gzip/gzip.hpp"
#include "encodings/tar/tar.hpp"

#include <doctest/doctest.h>
#include <zlib.h>

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stele/sink.hpp"
#include "support/random_model.hpp"
#include "support/temp_dir.hpp"

namespace stele_test::tar_files {

using namespace stele;
using namespace std::string_literals;
namespace gzip = detail::gzip;
namespace tar = detail::tar;
using BundlePtr = std::shared_ptr<const Bundle>;
using Files = std::map<std::string, std::string>;

/// A source that is read and has no view, and counts.
class Unmapped final : public Source {
 public:
  explicit Unmapped(std::string_view bytes) : Source("test.tar"), bytes_(borrow_bytes(bytes_of(bytes))) {}
  std::uint64_t size() const noexcept override { return bytes_->size(); }
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    read += out.size();
    return bytes_->read_at(offset, out);
  }
  mutable std::atomic<std::uint64_t> read{0};

 private:
  SourcePtr bytes_;
};

inline Result<BundlePtr> open_tar(std::string_view file) { return tar::open(borrow_bytes(bytes_of(file), "test.tar")); }

inline std::string read_part(const Source& source, std::uint64_t offset, std::size_t size) {
  std::string text(size, '?');
  const Status status = source.read_at(offset, std::as_writable_bytes(std::span(text)));
  return status ? text : "error: "s + status.error().to_string();
}

inline std::string read_all(const Bundle& bundle, const std::string& name) {
  const auto source = bundle.open(name);
  if (!source) return "error: " + source.error().to_string();
  const std::string leaf(file_name(name));
  CHECK((*source)->bundle()->open(leaf).value()->name() == (*source)->name());
  CHECK((*source)->name() == "test.tar/" + name);
  return read_part(**source, 0, static_cast<std::size_t>((*source)->size()));
}

inline void check_files(const Bundle& bundle, const Files& files) {
  std::vector<std::string> names;
  for (const auto& f : files) names.push_back(f.first);
  CHECK(bundle.names().value() == names);
  for (const auto& f : files) {
    const auto& name = f.first;
    const auto& content = f.second;
    CAPTURE(name);
    CHECK(bundle.contains(name).value());
    CHECK(read_all(bundle, name) == content);
  }
  CHECK_FALSE(bundle.contains("no such").value());
  CHECK(bundle.open("no such").error().code() == Errc::not_found);
}

inline void write_file(Bundle& bundle, const std::string& name, std::string_view content) {
  auto sink = bundle.create(name);
  REQUIRE_MESSAGE(sink, sink.error().to_string());
  REQUIRE((*sink)->reserve(content.size()));
  REQUIRE((*sink)->write(bytes_of(content)));
  REQUIRE((*sink)->commit());
}

inline std::string written(const Files& files, bool gzip) {
  BufferSink sink;
  const auto writer = std::make_shared<tar::Writer>(sink, gzip);
  const std::shared_ptr<Bundle> bundle = writer;
  for (const auto& [name, content] : files) write_file(*bundle, name, content);
  REQUIRE(writer->finish());
  return std::string(text_of(sink.take().span()));
}

// ---- archives put together by hand

inline std::string octal(std::uint64_t number, int digits) {
  std::string text(static_cast<std::size_t>(digits), '0');
  for (std::size_t i = text.size(); i-- != 0; number >>= 3) text[i] = static_cast<char>('0' + number % 8);
  return text;
}

struct Raw {
  std::string name;
  std::string data = {};
  char type = '0';
  std::optional<std::string> size = {};  // its field
  std::string magic = "ustar\00000"s;
  std::string prefix = {};
  std::string sum = {};  // its field
  bool with_sign = false;

  std::string make() const {
    std::string h(512, '\0');
    const auto put = [&](std::size_t at, const std::string& text) { h.replace(at, text.size(), text); };
    put(0, name), put(100, "0000644\0"s), put(108, "0000000\0"s), put(116, "0000000\0"s);
    put(124, size.value_or(octal(data.size(), 11) + '\0')), put(136, octal(0, 11) + '\0');
    put(148, "        "), h[156] = type, put(257, magic), put(345, prefix);
    std::int64_t all = 0;
    for (const char c : h) all += with_sign ? static_cast<signed char>(c) : static_cast<unsigned char>(c);
    put(148, sum.empty() ? octal(static_cast<std::uint64_t>(all), 6) + "\0 "s : sum);
    h += data;
    h.resize((h.size() + 511) / 512 * 512);
    return h;
  }
};

inline std::string zeros(std::size_t count) { return std::string(count, '\0'); }

inline std::string record(const std::string& key, const std::string& value) {
  std::size_t size = key.size() + value.size() + 3;
  while (std::to_string(size).size() + key.size() + value.size() + 3 != size) ++size;
  return std::to_string(size) + ' ' + key + '=' + value + '\n';
}

inline Raw pax(const std::string& records, char type = 'x') { return {"PaxHeader", records, type}; }
inline Raw long_name(const std::string& name) { return {"././@LongLink", name, 'L', std::nullopt, "ustar  \0"s}; }

inline std::string archive(const std::vector<Raw>& entries, std::size_t end = 1024) {
  std::string file;
  for (const Raw& e : entries) file += e.make();
  return file + zeros(end);
}

inline std::string gzipped(std::string_view text) {
  z_stream z{};
  REQUIRE(deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(deflateBound(&z, static_cast<uLong>(text.size())), '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  REQUIRE(deflate(&z, Z_FINISH) == Z_STREAM_END);
  out.resize(out.size() - z.avail_out);
  deflateEnd(&z);
  return out;
}

/// Returns the error of opening, after checking that it is the same plain, not mapped and in gzip.
inline Error tar_error(const std::string& file) {
  const std::string packed = gzipped(file);
  const SourcePtr sources[] = {borrow_bytes(bytes_of(file), "test.tar"), std::make_shared<Unmapped>(file),
                               std::make_shared<Unmapped>(packed)};
  std::optional<Error> first;
  for (const SourcePtr& source : sources) {
    const auto opened = tar::open(source);
    const Error error = opened ? Error(Errc::none) : opened.error();
    if (!opened) CHECK(error.file() == "test.tar");
    if (first) CHECK(error.to_string() == first->to_string());
    if (!first) first = error;
  }
  return *first;
}
inline Errc open_code(const std::string& file) { return tar_error(file).code(); }
inline Errc open_code(const std::vector<Raw>& entries) { return open_code(archive(entries)); }

inline std::string golden(const std::string& name) { return read_text(tests_folder() + "/encodings/data/tar/" + name); }

}  // namespace stele_test::tar_files
