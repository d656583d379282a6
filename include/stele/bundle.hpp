// Bundle: a named set of sources and sinks, for models of several files. A folder, or memory.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "stele/result.hpp"
#include "stele/sink.hpp"
#include "stele/source.hpp"

namespace stele {
inline namespace v0 {

/// Names are plain file names: not empty, no slash, backslash or NUL, not one or two dots; else: invalid_argument. What
/// is opened or created knows its bundle, so a format finds the other files of a set from one of them.
class STELE_EXPORT Bundle {
 public:
  virtual ~Bundle();
  Bundle(const Bundle&) = delete;
  Bundle& operator=(const Bundle&) = delete;

  /// Errors: not_found, io.
  virtual Result<SourcePtr> open(std::string_view name) const = 0;
  /// A sink whose commit() puts the file there, in place of one of the same name. Errors: io.
  virtual Result<std::unique_ptr<Sink>> create(std::string_view name) = 0;
  virtual Result<bool> contains(std::string_view name) const = 0;
  /// Takes away what a failed save has finished, where it can.
  virtual void remove(std::string_view name) noexcept = 0;

 protected:
  Bundle() = default;
};

/// The files of a folder; "" is the working folder. `mapped`: sources are mapped, else read.
STELE_EXPORT std::shared_ptr<Bundle> folder_bundle(std::string path, FileSinkOptions options = {}, bool mapped = false);

/// Files in memory. Not shared between threads while something is created.
STELE_EXPORT std::shared_ptr<Bundle> memory_bundle();

/// The last part of a path.
STELE_EXPORT std::string_view file_name(std::string_view path) noexcept;

}  // namespace v0
}  // namespace stele
