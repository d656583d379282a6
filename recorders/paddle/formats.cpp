#include "stele/recorders/paddle.hpp"

namespace stele::inline v0::detail {

FormatFamily paddle_formats() {
  static const PaddleFormat file;
  static const PaddleFormat folder({.folder = true});
  static const FormatFamily::Member members[] = {{&file, {".pdiparams"}}, {&folder}};
  return {.title = "Paddle",
          .folder = "paddle",
          .recorders = "PaddleRecorder",
          .header = "recorders/paddle.hpp",
          .files = "`.pdiparams`; a folder with one file for each variable",
          .holds = "parameters",
          .members = members};
}

}  // namespace stele::inline v0::detail
