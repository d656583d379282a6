// Saves in the format of a path or of the options, and opens models with deltas.
#include "snapshot/items.hpp"
#include "stele/checkpoint.hpp"
#include "stele/delta.hpp"
#include "stele/recorders/any.hpp"

namespace stele::inline v0 {
namespace {

/// Calls `save(format, options)` with the format from the options or the path. The options in this call have neither a
/// format nor a precision.
template <class Save>
Result<Report> with_format(const Output& to, const SaveOptions& options, Save save) {
  return detail::guarded([&]() -> Result<Report> {
    const Format* format = options.format.get();
    if (options.format && format == nullptr) {
      return Error(Errc::invalid_argument, "SaveOptions::format is null, as find_format() returns for an unknown name");
    }
    if (format == nullptr && to.sink() != nullptr) {
      return Error(Errc::invalid_argument, "a sink has no extension").hint("set SaveOptions::format");
    }
    if (format == nullptr) {
      STELE_TRY_ASSIGN(format, format_of_path(to.path()));
    }
    SaveOptions rest = options;
    rest.format = {};
    rest.precision = {};
    return save(*format, rest);
  });
}

}  // namespace

Result<Report> detail::save_object(const Object& object, const Output& to, const SaveOptions& options) {
  return with_format(to, options, [&](const Format& format, const SaveOptions& rest) {
    return save_object(format, options.precision, object, to, rest);
  });
}

Result<Report> save(const Checkpoint& checkpoint, const Output& to, const SaveOptions& options) {
  return with_format(to, options, [&](const Format& format, const SaveOptions& rest) -> Result<Report> {
    const auto* const whole = format.checkpoints();
    if (whole == nullptr) {
      return Error(Errc::unsupported, "the format stores only parameters, not checkpoints").found(format.name());
    }
    return detail::save_checkpoint(*whole, options.precision, checkpoint, to, rest);
  });
}

namespace {

template <class Deltas>
Result<Snapshot> open_chain(const Input& base, const Deltas& deltas, const LoadOptions& options) {
  return detail::guarded([&]() -> Result<Snapshot> {
    LoadOptions whole = options;
    whole.part = {};
    STELE_TRY_ASSIGN(Snapshot snapshot, open(base, whole));
    const auto apply = [&](const Input& input) -> Status {
      STELE_TRY_ASSIGN(const Snapshot delta, open(input, whole));
      auto next = apply_delta(snapshot, delta);
      if (next) {
        snapshot = *std::move(next);
        return {};
      }
      Error error = std::move(next).error();
      return error.file().empty() ? std::move(error).file(input.name()) : std::move(error);
    };
    for (const auto& input : deltas) STELE_TRY(apply(input));
    return detail::part_of(snapshot, options.part);
  });
}

}  // namespace

Result<Snapshot> open_with_deltas(const Input& base, std::initializer_list<Input> deltas, const LoadOptions& options) {
  return open_chain(base, deltas, options);
}
Result<Snapshot> open_with_deltas(const Input& base, std::span<const std::string> paths, const LoadOptions& options) {
  return open_chain(base, paths, options);
}

}  // namespace stele::inline v0
