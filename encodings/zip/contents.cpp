// Reads the bytes of an entry into memory, or provides them as a Source.
#include <algorithm>
#include <limits>
#include <utility>

#include "base/meter.hpp"
#include "encodings/gzip/inflate.hpp"
#include "io/os/os.hpp"
#include "records.hpp"
#include "zip.hpp"

namespace stele::inline v0::detail::zip {

using gzip::Data;
using gzip::Inflater;
using gzip::piece_size;
using gzip::wrong_crc;

namespace {

/// Returns an entry's name for messages.
std::string name_of(const Source& source, const Entry& entry) { return source.name() + ": " + std::string(entry.name); }

Error unsupported(const Source& source, const Entry& entry) {
  return Error(Errc::unsupported, "the zip entry is neither stored nor deflated")
      .file(source.name())
      .offset(entry.header)
      .path(std::string(entry.name))
      .found("method " + std::to_string(entry.method));
}

}  // namespace

Result<Bytes> Directory::read(const Entry& entry, std::uint64_t limit) const {
  return guarded(source_->name(), [&]() -> Result<Bytes> {
    if (entry.method != stored && entry.method != deflated) return unsupported(*source_, entry);
    if (entry.size > limit || entry.size > std::numeric_limits<std::size_t>::max()) {
      return Error(Errc::limit, "the zip entry is too large")
          .file(source_->name())
          .offset(entry.header)
          .path(std::string(entry.name))
          .expected("at most " + std::to_string(limit) + " bytes")
          .found(std::to_string(entry.size));
    }
    STELE_TRY_ASSIGN(const std::uint64_t offset, data(entry));
    const Data data{offset, entry.compressed, entry.size, entry.crc};
    Bytes bytes(static_cast<std::size_t>(entry.size));
    if (entry.method == deflated) {
      Inflater inflater(*source_, data);
      STELE_TRY(inflater.make(bytes.span()));
      STELE_TRY(inflater.finish());
      return bytes;
    }
    std::uint32_t crc = 0;
    for (std::size_t at = 0; at < bytes.size();) {
      const auto piece = bytes.span().subspan(at, std::min(bytes.size() - at, piece_size));
      STELE_TRY(source_->read_at(offset + at, piece));
      crc = crc32(crc, piece.data(), piece.size());
      at += piece.size();
    }
    if (crc != entry.crc) return wrong_crc(*source_, data, crc).path(std::string(entry.name));
    return bytes;
  });
}

void add_unchecked_records(Report& report) {
  report.add(Report::What::unchecked, "zip records",
             "times, versions, attributes, comments, padding: loads ignore them");
}

Result<Report> Directory::check(Meter& meter, const std::function<bool(const Entry&)>& skip) const {
  return guarded(source_->name(), [&]() -> Result<Report> {
    Report report;
    add_unchecked_records(report);
    Bytes buffer(piece_size);
    for (const Entry& entry : entries_) {
      if (skip && skip(entry)) continue;
      if (is_encrypted(entry)) {
        if (const auto at = data(entry); !at && at.error().code() != Errc::unsupported) return at.error();
        report.add(Report::What::unchecked, entry.name, "an encrypted zip entry");
        continue;
      }
      if (entry.method != stored && entry.method != deflated) {
        report.add(Report::What::unchecked, entry.name, "a zip entry that is neither stored nor deflated");
        continue;
      }
      STELE_TRY_ASSIGN(const std::uint64_t offset, data(entry));
      const Data data{offset, entry.compressed, entry.size, entry.crc};
      Inflater inflater(*source_, data);
      std::uint32_t crc = 0;
      auto status = [&]() -> Status {
        for (std::uint64_t at = 0; at < entry.size;) {
          const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(entry.size - at, buffer.size()));
          const auto piece = buffer.span().first(n);
          STELE_TRY(entry.method == deflated ? inflater.make(piece) : source_->read_at(offset + at, piece));
          if (entry.method == stored) crc = crc32(crc, piece.data(), n);
          STELE_TRY(meter.add(n));
          at += n;
        }
        if (entry.method == deflated) return inflater.finish();
        return crc == entry.crc ? Status() : wrong_crc(*source_, data, crc);
      }();
      if (!status) return std::move(status).error().path(std::string(entry.name));
    }
    return report;
  });
}

Result<SourcePtr> Directory::open(const Entry& entry) const {
  return guarded(source_->name(), [&]() -> Result<SourcePtr> {
    if (entry.method != stored && entry.method != deflated) return unsupported(*source_, entry);
    STELE_TRY_ASSIGN(const std::uint64_t offset, data(entry));
    const Data data{offset, entry.compressed, entry.size, entry.crc};
    if (entry.size == 0) STELE_TRY(read(entry, 0));  // no read would reach the end of an empty entry
    std::string name = name_of(*source_, entry);
    if (entry.method == stored) return SourcePtr(std::make_shared<gzip::StoredSource>(source_, std::move(name), data));
    return SourcePtr(std::make_shared<gzip::InflatedSource>(source_, std::move(name), data));
  });
}

}  // namespace stele::inline v0::detail::zip
