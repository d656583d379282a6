// Leaves whose data are stored in a JSON document.
#include "leaves.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/parallel.hpp"
#include "numbers.hpp"
#include "stele/precision/base64.hpp"

namespace stele::inline v0::detail::json {
namespace {

// Size of a piece (192 KiB): a multiple of 64, as for every piece, and of 3, the size of a base64 group.
constexpr std::size_t piece_bytes = std::size_t{192} << 10;
constexpr std::size_t piece_text = base64_size(piece_bytes);

const Document& document(const void* at) { return *static_cast<const Document*>(at); }

Error bad(const Document& in, std::uint64_t offset, const char* text) {
  return Error(Errc::malformed, text).file(in.file).offset(offset);
}

/// Fills `out` with the text from `offset` on. Reads in parallel if the text is compressed.
Status read_text(const Document& in, std::uint64_t offset, std::span<std::byte> out, const Workers& workers) {
  const auto read = [&](std::uint64_t from, std::span<std::byte> to) -> Status {
    STELE_TRY_ASSIGN(const std::size_t n, in.text->read(from, to));
    if (n != to.size())
      return Error(Errc::truncated, "the document is shorter than when it was opened").file(in.file).offset(from + n);
    return {};
  };
  const std::size_t grain = in.text->grain();
  if (grain == 0 || out.size() <= grain || workers.threads == 1) return read(offset, out);
  const auto first = grain - static_cast<std::size_t>(offset % grain);  // characters of the first grain
  const std::size_t parts = 1 + (out.size() - first + grain - 1) / grain;
  std::vector<Status> done(parts);
  parallel(workers, parts, [&](std::size_t i) {
    const std::size_t begin = i == 0 ? 0 : first + (i - 1) * grain;
    const std::size_t end = std::min(out.size(), first + i * grain);
    done[i] = read(offset + begin, out.subspan(begin, end - begin));
  });
  for (Status& status : done) STELE_TRY(std::move(status));
  return {};
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Decodes the `text` at `offset`. Only the last piece may have padding.
Status decode(const Document& in, std::uint64_t offset, std::string_view text, std::span<std::byte> out) {
  if (base64_decoded_size(text) == out.size() && base64_decode(text, out.data())) return {};
  return bad(in, offset, "the tensor's data are not valid base64")
      .expected("A-Z, a-z, 0-9, + and /, with = as padding only");
}

// ---- base64

Status read_base64(const void* at, std::uint64_t number, std::uint64_t offset, std::span<std::byte> out,
                   ReadContext& context) {
  const Document& in = document(at);
  const Data& data = in.skeleton.data[static_cast<std::size_t>(number)];
  ReadContext::Piece text(context);
  ReadContext::Piece bytes(context);
  while (!out.empty()) {
    // Rounds the requested range to whole groups of three bytes.
    const std::uint64_t first = offset / 3 * 3;
    const auto skip = static_cast<std::size_t>(offset - first);
    const auto limit = static_cast<std::size_t>(std::min<std::uint64_t>(data.bytes - first, piece_bytes));
    const std::size_t n = std::min(limit, (skip + out.size() + 2) / 3 * 3);
    const std::span<std::byte> encoded(text.data(), base64_size(n));
    const std::uint64_t place = data.at + 1 + first / 3 * 4;
    STELE_TRY(read_text(in, place, encoded, {1, nullptr}));
    STELE_TRY(decode(in, place, as_text(encoded), {bytes.data(), n}));
    const std::size_t taken = std::min(out.size(), n - skip);
    std::memcpy(out.data(), bytes.data() + skip, taken);
    out = out.subspan(taken);
    offset += taken;
  }
  return {};
}

Status stream_base64(const void* at, std::uint64_t number, std::uint64_t size, PieceSink& sink, ReadContext& context) {
  const Document& in = document(at);
  const Data& data = in.skeleton.data[static_cast<std::size_t>(number)];
  const Workers& workers = context.workers();
  // Reads enough text at a time to keep all threads busy, including the quotes at both ends.
  const std::size_t grain = std::max(in.text->grain(), std::size_t{1});
  const std::size_t pieces = in.text->grain() != 0 ? std::max<std::size_t>(grain * workers.threads / piece_text, 1) : 1;
  const std::size_t limit = pieces * piece_text;
  std::byte* const text = context.memory(0, static_cast<std::size_t>(std::min<std::uint64_t>(limit, data.size)) + 2);
  const auto quote = [&](std::byte b, std::uint64_t place) {
    return b == std::byte{'"'} ? Status() : Status(bad(in, place, "the length of the data does not match the tensor"));
  };
  std::optional<ReadContext::Piece> staging;
  for (std::uint64_t done = 0, place = data.at; done < size || place == data.at;) {
    const bool first = place == data.at;
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(size - done, pieces * piece_bytes));
    const bool last = done + n == size;
    const std::size_t chars = base64_size(n);
    STELE_TRY(read_text(in, place, {text, chars + (first ? 1U : 0U) + (last ? 1U : 0U)}, workers));
    const std::byte* from = text;
    if (first) STELE_TRY(quote(*from++, place++));
    if (last) STELE_TRY(quote(from[chars], place + chars));
    for (std::size_t passed = 0; passed < n;) {
      const std::size_t now = std::min(piece_bytes, n - passed);
      std::byte* to = sink.place(done + passed, now);
      if (to == nullptr && !staging) staging.emplace(context);
      if (to == nullptr) to = staging->data();
      const std::string_view piece = as_text({from + passed / 3 * 4, base64_size(now)});
      STELE_TRY(decode(in, place + passed / 3 * 4, piece, {to, now}));
      STELE_TRY(sink.piece({to, now}));
      passed += now;
    }
    place += chars;
    done += n;
  }
  return {};
}

constexpr LeafOps base64_ops{.read = read_base64, .stream = stream_base64};

// ---- numbers

/// Reads the numbers from the first one on. Passes their bytes from `skip` on to `take`.
Status read_all(const Document& in, const Data& data, ReadContext& context, std::uint64_t skip, std::uint64_t end,
                auto&& take) {
  NumberReader reader(data.dtype,
                      std::span(in.shapes).subspan(data.shape + 1, static_cast<std::size_t>(in.shapes[data.shape])));
  ReadContext::Piece text(context);
  ReadContext::Piece bytes(context);
  std::size_t filled = 0;
  std::uint64_t place = data.at;  // offset of the text's first character
  const std::uint64_t behind = data.at + data.size;
  for (std::uint64_t made = 0; !reader.done() && made < end;) {
    const auto more =
        static_cast<std::size_t>(std::min<std::uint64_t>(behind - place - filled, ReadContext::piece_size - filled));
    STELE_TRY(read_text(in, place + filled, {text.data() + filled, more}, {1, nullptr}));
    filled += more;
    const auto room = static_cast<std::size_t>(std::min<std::uint64_t>(data.bytes - made, ReadContext::piece_size));
    if (auto r = reader.read(as_text({text.data(), filled}), place + filled == behind, {bytes.data(), room}); !r) {
      Error error = std::move(r).error();
      const std::uint64_t offset = place + error.offset().value_or(0);
      return std::move(error).file(in.file).offset(offset);
    }
    const std::size_t n = reader.produced();
    if (n == 0 && reader.consumed() == 0) return bad(in, place, "the array of numbers has no end");
    if (made + n > skip && n != 0) {
      const auto from = static_cast<std::size_t>(skip > made ? skip - made : 0);
      const auto to = static_cast<std::size_t>(std::min<std::uint64_t>(n, end - made));
      STELE_TRY(take(std::span<const std::byte>(bytes.data() + from, to - from)));
    }
    made += n;
    filled -= reader.consumed();
    place += reader.consumed();
    std::memmove(text.data(), text.data() + reader.consumed(), filled);
  }
  return {};
}

Status read_numbers(const void* at, std::uint64_t number, std::uint64_t offset, std::span<std::byte> out,
                    ReadContext& context) {
  const Document& in = document(at);
  return read_all(in, in.skeleton.data[static_cast<std::size_t>(number)], context, offset, offset + out.size(),
                  [&](std::span<const std::byte> bytes) -> Status {
                    std::memcpy(out.data(), bytes.data(), bytes.size());
                    out = out.subspan(bytes.size());
                    return {};
                  });
}

Status stream_numbers(const void* at, std::uint64_t number, std::uint64_t, PieceSink& sink, ReadContext& context) {
  // Pieces are multiples of 64 bytes, but a step may produce any number of bytes, so they are gathered.
  const Document& in = document(at);
  ReadContext::Piece gathered(context);
  std::size_t used = 0;
  STELE_TRY(read_all(in, in.skeleton.data[static_cast<std::size_t>(number)], context, 0, UINT64_MAX,
                     [&](std::span<const std::byte> bytes) -> Status {
                       while (!bytes.empty()) {
                         const std::size_t n = std::min(bytes.size(), ReadContext::piece_size - used);
                         std::memcpy(gathered.data() + used, bytes.data(), n);
                         used += n;
                         bytes = bytes.subspan(n);
                         if (used != ReadContext::piece_size) continue;
                         STELE_TRY(sink.piece({gathered.data(), used}));
                         used = 0;
                       }
                       return {};
                     }));
  return used != 0 ? sink.piece({gathered.data(), used}) : Status();
}

constexpr LeafOps number_ops{.read = read_numbers, .stream = stream_numbers, .encoding = "text"};

}  // namespace

const LeafOps& ops_of(const Data& data) noexcept { return data.numbers ? number_ops : base64_ops; }

}  // namespace stele::inline v0::detail::json
