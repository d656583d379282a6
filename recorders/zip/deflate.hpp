// Gzip files as Sinks.
#pragma once

#include <memory>
#include <span>

#include "stele/result.hpp"
#include "stele/sink.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace zip {

/// Compresses what is written on its way to the sink below, which must outlive it and is not committed by it. Equal
/// bytes make equal files, however they are cut into pieces: the header has no time and no name, and says that the
/// system is unknown. Errors: those of the sink below.
class GzipSink final : public Sink {
 public:
  /// `level`: 1 to 9. Throws std::bad_alloc.
  GzipSink(Sink& below, int level);
  ~GzipSink() override;
  Status write(std::span<const std::span<const std::byte>> pieces) override;
  using Sink::write;
  /// The rest of the data, and the trailer; nothing is written behind it.
  Status finish();

 private:
  struct State;
  Status deflate_all(int flush);

  Sink& below_;
  std::unique_ptr<State> state_;
};

}  // namespace zip
}  // namespace detail
}  // namespace v0
}  // namespace stele
