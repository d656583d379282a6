// Recorder: a format with a precision and options; what the user names and swaps.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "stele/format.hpp"
#include "stele/precision/settings.hpp"
#include "stele/record.hpp"

namespace stele {
inline namespace v0 {

namespace detail {
inline Object object_of(const Snapshot& snapshot) { return {nullptr, &snapshot}; }
template <class M>
Object object_of(const M& module) {
  return {module_info<M>(), &module};
}

template <class M>
Result<M> load_once(Reader reader, const Input& from, const LoadOptions& options, Report* report) {
  if constexpr (has_hook<M>()) {
    STELE_TRY_ASSIGN(const Snapshot snapshot, open(reader, from, options, {module_info<M>(), nullptr}));
    return from_snapshot<M>(snapshot, options, report);
  } else {
    check_makeable<M>();
    Result<M> module(std::in_place);
    STELE_TRY(load_fresh(reader, from, *module_info<M>(), &*module, options, report));
    return module;
  }
}

/// A new module from a file: by its hook where it has one, else default-constructed and filled.
template <class M>
Result<M> load_new(Reader reader, const Input& from, const LoadOptions& options, Report* report) {
  return guarded([&]() -> Result<M> {
    for (const Report before = report != nullptr ? *report : Report();;) {
      auto module = load_once<M>(reader, from, options, report);
      if (module || !from.again()) return module;
      if (report != nullptr) *report = before;
    }
  });
}
}  // namespace detail

/// Saves and loads modules in one format, at one precision. A module is whatever snapshot_of takes, or a Record of one,
/// or a Snapshot. Recorders are values; their members are const and safe from several threads.
template <class FormatType, PrecisionSettings Settings = NativePrecision>
class Recorder {
 public:
  using format_type = FormatType;
  using settings = Settings;
  Recorder() = default;
  explicit Recorder(FormatType format) : format_(std::move(format)) {}
  const FormatType& format() const noexcept { return format_; }

  /// Writes the module's parameters into a file, lazily and in one step (SaveOptions::file says how lasting).
  /// Errors: not_representable, out_of_range, cycle, io, …; the file is then as it was.
  template <class M>
  Result<Report> record(const M& module, const std::string& path,
                        const SaveOptions& options = default_save_options()) const {
    return detail::record_file(format_, precision_spec<Settings>(), detail::object_of(module), path, options);
  }
  /// The same into any sink, which is committed at the end.
  template <class M>
  Result<Report> record(const M& module, Sink& sink, const SaveOptions& options = default_save_options()) const {
    return detail::record(format_, precision_spec<Settings>(), detail::object_of(module), sink, options);
  }

  /// Returns the file's content; its leaves are lazy.
  Result<Snapshot> open(const Input& from, const LoadOptions& options = default_load_options()) const {
    return detail::open({&format_}, from, options);
  }
  /// Returns the typed record of M, lazy. `report` may be null.
  template <class M>
  Result<Record<M>> load_record(const Input& from, const LoadOptions& options = default_load_options(),
                                Report* report = nullptr) const {
    const detail::Object target{detail::module_info<M>(), nullptr};
    STELE_TRY_ASSIGN(const Snapshot snapshot, detail::open({&format_}, from, options, target));
    return to_record<M>(snapshot, options, report);
  }
  /// Returns a new module, which is not initialised first. `report` may be null.
  template <class M>
  Result<M> load(const Input& from, const LoadOptions& options = default_load_options(),
                 Report* report = nullptr) const {
    return detail::load_new<M>({&format_}, from, options, report);
  }
  /// Loads into an existing module; nothing changes on error.
  template <class M>
  Result<Report> load_into(M& module, const Input& from, const LoadOptions& options = default_load_options()) const {
    detail::check_writable<M>();
    return detail::load_in_place({&format_}, from, *detail::module_info<M>(), &module, options);
  }
  /// Reads and checks every byte; the report names what no checksum covers (Report::What::unchecked).
  Result<Report> verify(const Input& from, const LoadOptions& options = default_load_options()) const {
    return v0::verify(format_, from, options);
  }

 private:
  FormatType format_;
};

/// A recorder whose files are bytes in memory, 64-byte aligned. Loads take bytes that outlive what is opened from them.
template <class FormatType, PrecisionSettings Settings = NativePrecision>
class MemoryRecorder : public Recorder<FormatType, Settings> {
  using Base = Recorder<FormatType, Settings>;

 public:
  using Base::Base;
  using Base::record;
  template <class M>
  Result<Bytes> record(const M& module, const SaveOptions& options = default_save_options()) const {
    BufferSink sink;
    STELE_TRY(Base::record(module, sink, options));
    return sink.take();
  }
  /// Into the caller's memory; the number of bytes used. Errors: no_space (found() says how many are needed), …
  template <class M>
  Result<std::size_t> record(const M& module, std::span<std::byte> memory,
                             const SaveOptions& options = default_save_options()) const {
    SpanSink sink(memory);
    STELE_TRY(Base::record(module, sink, options));
    return sink.size();
  }
};

}  // namespace v0
}  // namespace stele
