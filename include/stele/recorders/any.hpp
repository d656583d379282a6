// The front door: formats chosen by a path's extension on save and by content on load. Formats are listed in one array,
// in recorders/any/formats.cpp.
#pragma once

#include "stele/recorder.hpp"

namespace stele {
inline namespace v0 {

/// Every format of this build.
STELE_EXPORT std::span<const Format* const> formats();
/// By name ("stele", "safetensors"); nullptr when there is none.
STELE_EXPORT const Format* find_format(std::string_view name);
/// By the path's extension. Errors: unsupported, with the extensions there are.
STELE_EXPORT Result<const Format*> format_of_path(const std::string& path);
/// By what the bytes say. Errors: bad_magic, with the first bytes; malformed where more than one format claims them.
STELE_EXPORT Result<const Format*> format_of_content(const Source& source);

/// Saves a module (or a Record, or a Snapshot) in the format that the path's extension names.
template <class M>
Result<Report> save(const M& module, const std::string& path, const SaveOptions& options = default_save_options()) {
  STELE_TRY_ASSIGN(const Format* format, format_of_path(path));
  return detail::record_file(*format, {}, detail::object_of(module), path, options);
}

/// What a file of any format holds; lazy.
inline Result<Snapshot> open(const Input& from, const LoadOptions& options = default_load_options()) {
  return detail::open({nullptr, format_of_content}, from, options);
}

/// A new module from a file of any format. It need not be initialised first. `report` may be null.
template <class M>
Result<M> load(const Input& from, const LoadOptions& options = default_load_options(), Report* report = nullptr) {
  return detail::load_new<M>({nullptr, format_of_content}, from, options, report);
}

/// Into a module that lives; nothing changes on error.
template <class M>
Result<Report> load_into(M& module, const Input& from, const LoadOptions& options = default_load_options()) {
  detail::check_writable<M>();
  return detail::load_in_place({nullptr, format_of_content}, from, *detail::module_info<M>(), &module, options);
}

}  // namespace v0
}  // namespace stele
