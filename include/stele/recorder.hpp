// Recorder: a format with a precision and options, as one class for user code.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "stele/format.hpp"
#include "stele/precision/settings.hpp"
#include "stele/record.hpp"

namespace stele::inline v0 {

namespace detail {
inline Object object_of(const Snapshot& snapshot) { return {nullptr, &snapshot}; }
template <class M>
Object object_of(const M& module) {
  return {module_info<M>(), &module};
}

/// Reports the reasons why no M can be loaded as compile-time errors, before other errors.
template <class M>
constexpr bool check_loadable() {
  if constexpr (is_record<M> || has_hook<M>()) {
    return true;
  } else {
    return check_makeable<M>();
  }
}

/// Returns a new module from a file: created by its hook if it has one, else default-constructed and filled. A Record
/// is lazy.
template <class M>
Result<M> load_once(Reader reader, const Input& from, const LoadOptions& options) {
  if constexpr (is_record<M> || has_hook<M>()) {
    STELE_TRY_ASSIGN(const Snapshot snapshot,
                     open(reader, from, options, {module_info<recorded_module<M>>(), nullptr}));
    return v0::load<M>(snapshot, options);
  } else {
    Result<M> module(std::in_place);
    STELE_TRY(load_fresh(reader, from, *module_info<M>(), &*module, options));
    return module;
  }
}

template <class M>
Result<M> load_new(Reader reader, const Input& from, const LoadOptions& options) {
  if constexpr (check_loadable<M>()) {
    return guarded([&]() -> Result<M> {
      for (const Report before = options.report != nullptr ? *options.report : Report();;) {
        auto module = load_once<M>(reader, from, options);
        if (module || !from.again()) return module;
        if (options.report != nullptr) *options.report = before;
      }
    });
  } else {
    return Error(Errc::not_loadable);  // after an error of the compiler
  }
}
}  // namespace detail

/// Saves and loads modules in one format, at one precision. `module` is a module that snapshot_of accepts, a Record of
/// one, or a Snapshot. Recorders are values; their members are const and thread-safe.
template <class FormatType, PrecisionSettings Settings = NativePrecision>
class Recorder {
 public:
  using format_type = FormatType;
  using settings = Settings;
  Recorder() = default;
  explicit Recorder(FormatType format) : format_(std::move(format)) {}
  const FormatType& format() const noexcept { return format_; }

  /// Streams the module's parameters to a file, which is replaced in one step, or to a Sink, which is committed.
  /// SaveOptions::file sets the durability of files. On error, the old file is unchanged, except if the last sync of
  /// its folder fails (docs/faults.md). Errors: not_representable, out_of_range, cycle, io, …
  template <class M>
  Result<Report> save(const M& module, const Output& to, const SaveOptions& options = default_save_options()) const {
    return detail::save_object(format_, precision_spec<Settings>(), detail::object_of(module), to, options);
  }

  /// Opens a file as an untyped Snapshot with lazy leaves.
  Result<Snapshot> open(const Input& from, const LoadOptions& options = default_load_options()) const {
    return detail::open({&format_}, from, options);
  }
  /// Loads a new module (the caller need not initialise one), or opens a file as a lazy, typed Record.
  template <class M>
  Result<M> load(const Input& from, const LoadOptions& options = default_load_options()) const {
    return detail::load_new<M>({&format_}, from, options);
  }
  /// Loads into an existing module. On error, the module is unchanged unless Error::partially_applied().
  template <class M>
  Status load_into(M& module, const Input& from, const LoadOptions& options = default_load_options()) const {
    detail::check_writable<M>();
    return detail::load_in_place({&format_}, from, *detail::module_info<M>(), &module, options);
  }
  /// Reads and verifies every byte; the report names the parts that no checksum covers (Report::What::unchecked).
  Result<Report> verify(const Input& from, const LoadOptions& options = default_load_options()) const {
    return v0::verify(format_, from, options);
  }

 private:
  FormatType format_;
};

/// A recorder whose files are 64-byte aligned bytes in memory. On load, the bytes must outlive the objects opened from
/// them.
template <class FormatType, PrecisionSettings Settings = NativePrecision>
class MemoryRecorder : public Recorder<FormatType, Settings> {
  using Base = Recorder<FormatType, Settings>;

 public:
  using Base::Base;
  using Base::save;
  template <class M>
  Result<Bytes> save(const M& module, const SaveOptions& options = default_save_options()) const {
    BufferSink sink;
    STELE_TRY(Base::save(module, sink, options));
    return sink.take();
  }
  /// Writes to the caller's memory; returns the number of bytes used. Errors: no_space (found() contains the required
  /// number), …
  template <class M>
  Result<std::size_t> save(const M& module, std::span<std::byte> memory,
                           const SaveOptions& options = default_save_options()) const {
    SpanSink sink(memory);
    STELE_TRY(Base::save(module, sink, options));
    return sink.size();
  }
};

}  // namespace stele::inline v0
