// The row of the format, and its capabilities.
#include "stele/recorders/burn.hpp"

#include "types.hpp"

namespace stele::inline v0 {

const Capabilities& BurnFormat::capabilities() const noexcept {
  static constexpr auto keeps = [](std::string_view key) { return key.starts_with("burn."); };
  static constexpr Capabilities named{.nesting = true,
                                      .values = true,
                                      .ids = true,
                                      .metadata = true,
                                      .constants = true,
                                      .holds = detail::burn::holds,
                                      .keeps = keeps};
  return named;
}

const Capabilities& BurnpackFormat::capabilities() const noexcept {
  static constexpr Capabilities can{
      .values = true,
      .aliases = true,
      .ids = true,
      .metadata = true,
      .holds = detail::burn::holds,
      .keeps = [](std::string_view key) { return key == detail::burn::dtype_note || key == detail::burn::shape_note; }};
  return can;
}

namespace detail {

FormatFamily burn_formats() {
  static const BurnFormat mpk({.encoding = BurnEncoding::mpk});
  static const BurnFormat mpk_gzip({.encoding = BurnEncoding::mpk, .gzip = true});
  static const BurnFormat bin({.encoding = BurnEncoding::bin});
  static const BurnFormat bin_gzip({.encoding = BurnEncoding::bin, .gzip = true});
  static const BurnFormat json({.encoding = BurnEncoding::json});
  static const BurnFormat json_gzip({.encoding = BurnEncoding::json, .gzip = true});
  static const BurnpackFormat burnpack;
  static const FormatFamily::Member members[] = {
      {&mpk, {".mpk"}}, {&mpk_gzip, {".mpk.gz"}}, {&bin, {".bin"}}, {&bin_gzip, {".bin.gz"}}, {&json},
      {&json_gzip},     {&burnpack, {".bpk"}}};
  return {.title = "Burn",
          .folder = "burn",
          .recorders = "BurnRecorder, BurnpackRecorder",
          .header = "recorders/burn.hpp",
          .files = "`.mpk`, `.bin`, `.json`, each also with `.gz`; Burnpack: `.bpk`",
          .holds = "parameters, ids; values (not of modules in `.bin`)",
          .members = members};
}

}  // namespace detail
}  // namespace stele::inline v0
