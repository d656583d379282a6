// Zip files made by hand, and readers for their contents.
#pragma once

#include <doctest/doctest.h>

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "encodings/zip/zip.hpp"
#include "stele/sink.hpp"
#include "support/random_model.hpp"
#include "support/stele_file.hpp"
#include "support/temp_dir.hpp"

namespace stele_test {

namespace zip = stele::detail::zip;
using DirectoryPtr = std::shared_ptr<const zip::Directory>;

inline constexpr std::uint64_t enough = std::uint64_t{1} << 30;

inline std::uint32_t crc_of(std::string_view text) { return zip::crc32(0, text.data(), text.size()); }

inline stele::Result<DirectoryPtr> open_zip(std::string_view file) {
  return zip::Directory::open(stele::borrow_bytes(bytes_of(file), "test.zip"), enough);
}

inline stele::Errc zip_error(std::string_view file) {
  const auto directory = open_zip(file);
  if (!directory) CHECK(directory.error().file() == "test.zip");
  return directory ? stele::Errc::none : directory.error().code();
}

/// Returns the content of the entries by name; for one that cannot be read, the name of its error code.
inline std::map<std::string, std::string> read_all(const zip::Directory& directory) {
  std::map<std::string, std::string> all;
  for (const zip::Entry& entry : directory.entries()) {
    const auto bytes = directory.read(entry, enough);
    all.emplace(entry.name, bytes ? std::string(text_of(bytes->span())) : std::string(name(bytes.error().code())));
  }
  return all;
}

template <class F>
std::string written(F f) {
  stele::BufferSink sink;
  stele::detail::Gather gather(sink);
  zip::Writer writer(gather);
  f(writer, gather);
  REQUIRE(writer.finish());
  REQUIRE(gather.flush());
  return std::string(text_of(sink.take().span()));
}

/// A source that is read and has no view.
class Unmapped final : public stele::Source {
 public:
  explicit Unmapped(std::string_view bytes)
      : stele::Source("unmapped.zip"), bytes_(stele::borrow_bytes(bytes_of(bytes))) {}
  std::uint64_t size() const noexcept override { return bytes_->size(); }
  stele::Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    ++reads;
    return bytes_->read_at(offset, out);
  }
  mutable std::atomic<int> reads{0};

 private:
  stele::SourcePtr bytes_;
};

/// stele::Bytes that deflate well, but not to nothing.
inline std::string words(Random& random, std::size_t size) {
  std::string text;
  while (text.size() < size) text += std::string(1 + random.below(40), static_cast<char>('a' + random.below(26)));
  text.resize(size);
  return text;
}

// ---- zip files put together by hand

struct RawMember {
  std::string name;
  std::string data;  // as it lies in the file
  std::uint16_t method = 0;
  std::uint16_t flags = 0;
  std::uint64_t size;  // in both headers, where the next ones do not say otherwise
  std::uint32_t crc;
  std::string extra, local_extra, comment, behind;
  std::optional<std::string> local_name;
  std::optional<std::uint16_t> local_flags, local_method;
  std::optional<std::uint32_t> local_crc, local_size, local_compressed;
  std::optional<std::uint32_t> compressed, header;
  std::uint16_t disk = 0;
  std::uint32_t local_magic = 0x04034b50, magic = 0x02014b50;

  explicit RawMember(std::string n, std::string d = "abc")
      : name(std::move(n)), data(std::move(d)), size(data.size()), crc(crc_of(data)) {}
};

struct RawZip {
  std::vector<RawMember> entries;
  std::string prefix, gap, comment;  // the gap stands before the directory's end record
  std::uint16_t disk = 0, directory_disk = 0;
  std::optional<std::uint16_t> count, count_here, comment_size;
  std::optional<std::uint32_t> size, offset;
  bool wide = false;  // zip64's records
  std::uint64_t wide_size = 44;
  std::uint64_t wide_count = 0, wide_offset = 0;  // added to the right ones
  std::uint32_t wide_disk = 0, wide_disks = 1, wide_magic = 0x06064b50;

  std::string make() const {
    std::string file = prefix;
    std::vector<std::size_t> places;
    for (const RawMember& e : entries) {
      places.push_back(file.size());
      put(file, e.local_magic), put(file, std::uint16_t{20}), put(file, e.local_flags.value_or(e.flags));
      put(file, e.local_method.value_or(e.method)), put(file, 0U), put(file, e.local_crc.value_or(e.crc));
      put(file, e.local_compressed.value_or(static_cast<std::uint32_t>(e.data.size())));
      put(file, e.local_size.value_or(static_cast<std::uint32_t>(e.size)));
      const std::string local = e.local_name.value_or(e.name);
      put(file, static_cast<std::uint16_t>(local.size())), put(file, static_cast<std::uint16_t>(e.local_extra.size()));
      file += local + e.local_extra + e.data + e.behind;
    }
    const std::size_t begin = file.size();
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const RawMember& e = entries[i];
      put(file, e.magic), put(file, std::uint16_t{20}), put(file, std::uint16_t{20}), put(file, e.flags);
      put(file, e.method), put(file, 0U), put(file, e.crc);
      put(file, e.compressed.value_or(static_cast<std::uint32_t>(e.data.size())));
      put(file, static_cast<std::uint32_t>(e.size)), put(file, static_cast<std::uint16_t>(e.name.size()));
      put(file, static_cast<std::uint16_t>(e.extra.size())), put(file, static_cast<std::uint16_t>(e.comment.size()));
      put(file, e.disk), put(file, std::uint16_t{0}), put(file, 0U);
      put(file, e.header.value_or(static_cast<std::uint32_t>(places[i])));
      file += e.name + e.extra + e.comment;
    }
    const std::size_t end = file.size();
    file += gap;
    if (wide) {
      const std::size_t at = file.size();
      put(file, wide_magic), put(file, wide_size), put(file, std::uint16_t{45}), put(file, std::uint16_t{45});
      put(file, wide_disk), put(file, 0U), put(file, std::uint64_t{entries.size()} + wide_count);
      put(file, std::uint64_t{entries.size()}), put(file, std::uint64_t{end - begin});
      put(file, std::uint64_t{begin} + wide_offset);
      put(file, 0x07064b50U), put(file, 0U), put(file, std::uint64_t{at}), put(file, wide_disks);
    }
    const auto number = static_cast<std::uint16_t>(entries.size());
    put(file, 0x06054b50U), put(file, disk), put(file, directory_disk);
    put(file, count_here.value_or(count.value_or(number))), put(file, count.value_or(number));
    put(file, size.value_or(static_cast<std::uint32_t>(end - begin)));
    put(file, offset.value_or(static_cast<std::uint32_t>(begin)));
    put(file, comment_size.value_or(static_cast<std::uint16_t>(comment.size())));
    return file + comment;
  }
};

inline RawZip raw(std::vector<RawMember> entries) {
  RawZip file;
  file.entries = std::move(entries);
  return file;
}

/// One entry changed by `f`.
template <class F>
RawZip changed(F f) {
  RawZip file = raw({RawMember("a"), RawMember("b")});
  f(file.entries[0]);
  return file;
}

template <class... T>
std::string numbers(T... n) {
  std::string text;
  (put(text, n), ...);
  return text;
}

inline std::string extra_field(std::uint16_t id, const std::string& data) {
  return numbers(id, static_cast<std::uint16_t>(data.size())) + data;
}

/// The error of reading the first entry of a file that can be opened; the stele::Source's must be the same.
inline stele::Errc read_error(const RawZip& file) {
  const std::string bytes = file.make();
  const auto directory = open_zip(bytes);
  REQUIRE_MESSAGE(directory, directory.error().to_string());
  const zip::Entry& entry = (*directory)->entries()[0];
  const auto read = (*directory)->read(entry, enough);
  stele::Status streamed;
  if (auto source = (*directory)->open(entry)) {
    stele::Bytes all(static_cast<std::size_t>((*source)->size()));
    streamed = (*source)->read_at(0, all.span());
    if (entry.method == zip::stored && streamed && !read) streamed = read.error();  // whose CRC is not checked
  } else {
    streamed = std::move(source).error();
  }
  CHECK(read.has_value() == streamed.has_value());
  if (!read && !streamed) CHECK(read.error().code() == streamed.error().code());
  return read ? stele::Errc::none : read.error().code();
}

inline std::string golden(const std::string& name) {
  return read_text(tests_folder() + "/encodings/data/zip/" + name + ".zip");
}

inline std::string line() {
  std::string text;
  for (int i = 0; i < 30; ++i) text += "0123456789";
  return text;
}

/// Entry `name` of a zip file with this alone, deflated.
inline std::string deflated(std::string_view content) {
  return written(
      [&](zip::Writer& w, stele::detail::Gather&) { REQUIRE(w.add("a", bytes_of(content), zip::deflated)); });
}

/// `content` deflated, and nothing around it.
inline std::string deflated_data(std::string_view content) {
  const std::string file = deflated(content);
  const auto directory = open_zip(file).value();
  const zip::Entry& entry = directory->entries()[0];
  REQUIRE(entry.method == zip::deflated);
  return file.substr(static_cast<std::size_t>(directory->data(entry).value()),
                     static_cast<std::size_t>(entry.compressed));
}

inline RawMember deflated_entry(std::string_view content) {
  RawMember entry("a", deflated_data(content));
  entry.method = 8;
  entry.size = content.size();
  entry.crc = crc_of(content);
  return entry;
}

}  // namespace stele_test
