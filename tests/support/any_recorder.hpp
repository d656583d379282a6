// One recorder for all formats, so that a test of every recorder is compiled once.
#pragma once

#include <stele/format.hpp>
#include <stele/recorder.hpp>

#include <doctest/doctest.h>

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "support/recorders.hpp"

namespace stele_test {

/// Forwards to a format, which must outlive it.
class AnyFormat final : public stele::Format {
 public:
  explicit AnyFormat(const stele::Format& format) noexcept : format_(&format) {}
  std::string_view name() const noexcept override { return format_->name(); }
  std::string_view extension() const noexcept override { return format_->extension(); }
  const stele::Capabilities& capabilities() const noexcept override { return format_->capabilities(); }
  bool recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept override {
    return format_->recognises(head, size);
  }
  bool is_folder() const noexcept override { return format_->is_folder(); }
  bool makes_folder(std::string_view path) const noexcept override { return format_->makes_folder(path); }
  bool opens(bool folder) const noexcept override { return format_->opens(folder); }
  bool recognises_folder(const stele::Bundle& folder) const override { return format_->recognises_folder(folder); }
  stele::Status may_replace(const stele::Bundle& folder) const override { return format_->may_replace(folder); }
  stele::Result<stele::Snapshot> open(stele::SourcePtr source, const stele::OpenContext& context) const override {
    return format_->open(std::move(source), context);
  }
  stele::Result<stele::Report> verify(stele::SourcePtr source, const stele::OpenContext& context) const override {
    return format_->verify(std::move(source), context);
  }
  stele::Result<std::vector<stele::Loss>> losses(const stele::Snapshot& snapshot,
                                                 std::string_view file) const override {
    return format_->losses(snapshot, file);
  }
  stele::Status write(const stele::Snapshot& snapshot, stele::Sink& sink,
                      const stele::SaveOptions& options) const override {
    return format_->write(snapshot, sink, options);
  }
  const stele::Format& target() const noexcept { return *format_; }

 private:
  const stele::Format* format_;
};

using AnyRecorder = stele::Recorder<AnyFormat>;

template <class R>
AnyRecorder any_recorder() {
  static const R recorder;
  return AnyRecorder(AnyFormat(recorder.format()));
}

inline const stele::Capabilities& can(const AnyRecorder& recorder) { return recorder.format().capabilities(); }

inline bool holds(const AnyRecorder& recorder, stele::DType dtype) {
  return can(recorder).holds == nullptr || can(recorder).holds(dtype);
}

/// Returns a recorder of the same format at another precision.
template <class Settings>
stele::Recorder<AnyFormat, Settings> at_precision_of(const AnyRecorder& recorder) {
  return stele::Recorder<AnyFormat, Settings>(recorder.format());
}

/// Returns true for text formats, in which some bytes have no meaning or are invalid in some places.
inline bool is_json_file(const AnyRecorder& recorder) {
  return dynamic_cast<const stele::JsonFormat*>(&recorder.format().target()) != nullptr;
}
/// Returns true for zip files, in which some bits do not matter: dates, versions and attributes.
inline bool is_zip_file(const AnyRecorder& recorder) {
  const stele::Format& format = recorder.format().target();
  return dynamic_cast<const stele::ArchiveFormat*>(&format) != nullptr ||
         dynamic_cast<const stele::PytorchFormat*>(&format) != nullptr ||
         dynamic_cast<const stele::NpzFormat*>(&format) != nullptr;
}

}  // namespace stele_test

/// Defines a test case for each of STELE_TEST_RECORDERS; `recorder` is the recorder.
#define STELE_TEST_EACH_RECORDER(text) STELE_TEST_EACH_RECORDER_(text, DOCTEST_ANONYMOUS(stele_test_of_recorder_))
#define STELE_TEST_EACH_RECORDER_(text, body)                                                \
  static void body(const stele_test::AnyRecorder& recorder);                                 \
  TEST_CASE_TEMPLATE(text, R, STELE_TEST_RECORDERS) { body(stele_test::any_recorder<R>()); } \
  static void body(const stele_test::AnyRecorder& recorder)
