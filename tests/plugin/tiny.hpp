// A format of a program that uses stele: "TINY", then for each tensor its name's length, its name, the number of its
// elements, and these as f32.
#pragma once

#include <stele/snapshot.hpp>
#include <stele/stele.hpp>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>

class TinyFormat final : public stele::Format {
 public:
  std::string_view name() const noexcept override { return "tiny"; }
  std::string_view extension() const noexcept override { return ".tiny"; }
  const stele::Capabilities& capabilities() const noexcept override {
    static constexpr stele::Capabilities can{.max_rank = 1,
                                             .holds = [](stele::DType dtype) { return dtype == stele::DType::f32; }};
    return can;
  }
  bool recognises(std::span<const std::byte> head, std::uint64_t) const noexcept override {
    return head.size() >= 4 && std::memcmp(head.data(), "TINY", 4) == 0;
  }
  stele::Status write(const stele::Snapshot& snapshot, stele::Sink& sink, const stele::SaveOptions&) const override {
    struct Pieces final : stele::PieceSink {
      explicit Pieces(stele::Sink& s) : to(s) {}
      stele::Status piece(std::span<const std::byte> bytes) override { return to.write(bytes); }
      stele::Sink& to;
    } pieces(sink);
    stele::ReadContext context;
    STELE_TRY(sink.write(std::as_bytes(std::span("TINY", 4))));
    for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
      const stele::LeafView leaf = snapshot.leaf(i);
      const std::string path = leaf.path();
      const std::array head{static_cast<std::uint32_t>(path.size()),
                            static_cast<std::uint32_t>(leaf.byte_size() / sizeof(float))};
      STELE_TRY(sink.write(std::as_bytes(std::span(head))));
      STELE_TRY(sink.write(std::as_bytes(std::span(path))));
      STELE_TRY(leaf.stream(pieces, context));
    }
    return {};
  }
  stele::Result<stele::Snapshot> open(stele::SourcePtr source, const stele::OpenContext&) const override {
    stele::SnapshotBuilder builder;
    builder.set_flat();
    builder.keep(source);
    for (std::uint64_t at = 4; at < source->size();) {
      std::array<std::uint32_t, 2> head{};
      STELE_TRY(source->read_at(at, std::as_writable_bytes(std::span(head))));
      if (head[0] > source->size() - at) return stele::Error(stele::Errc::truncated, "a name past the end");
      std::string path(head[0], '\0');
      STELE_TRY(source->read_at(at + sizeof head, std::as_writable_bytes(std::span(path))));
      at += sizeof head + path.size();
      const std::uint64_t bytes = std::uint64_t{head[1]} * sizeof(float);
      if (at > source->size() || bytes > source->size() - at) {
        return stele::Error(stele::Errc::truncated, "a tensor past the end");
      }
      builder.tensor(builder.intern(path), stele::DType::f32, std::array<stele::Extent, 1>{head[1]}, bytes,
                     {&ops, source.get(), at});
      at += bytes;
    }
    return builder.finish();
  }

 private:
  static stele::SourceRange locate(const void* at, std::uint64_t number) {
    return {.source = static_cast<const stele::Source*>(at), .offset = number};
  }
  static constexpr stele::LeafOps ops{.locate = locate};
};

inline stele::FormatFamily tiny_formats() {
  static const TinyFormat format;
  static const stele::FormatFamily::Member members[] = {{&format, {".tiny"}}};
  return {.title = "Tiny",
          .folder = "",
          .recorders = "",
          .header = "",
          .files = "`.tiny`",
          .holds = "parameters",
          .members = members};
}
