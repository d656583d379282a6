// Paths that are URLs. The component remote/ registers how they are opened.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "stele/bundle.hpp"
#include "stele/sink.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail {

/// The objects of a store below a URL. Thread-safe.
class STELE_EXPORT Store {
 public:
  virtual ~Store();
  /// Returns the bundle of all objects.
  virtual std::shared_ptr<Bundle> bundle() const = 0;
  /// Returns a source without bytes, whose bundle() has the objects below a name.
  virtual Result<SourcePtr> open_folder(const std::string& object) const = 0;
  struct Stat {
    std::uint64_t bytes = 0;
    std::string version{};  // differs when the content does
  };
  /// Returns nullopt if there is no such object.
  virtual Result<std::optional<Stat>> stat(const std::string& object) const = 0;
  /// Writes a small object in one step, if its version is still `before` (nullopt: it does not exist). Errors: exists.
  virtual Status replace(const std::string& object, std::string_view text,
                         const std::optional<std::string>& before) const = 0;
  /// Removes an object, if it exists.
  virtual Status remove(const std::string& object) const = 0;
  /// Returns an object's name for messages.
  virtual std::string name(std::string_view object) const = 0;

 protected:
  Store() = default;
};

/// Opens and creates files by URL.
class STELE_EXPORT Urls {
 public:
  virtual ~Urls();
  virtual Result<SourcePtr> open(const std::string& url) const = 0;
  /// `folder`: a sink that only has files.
  virtual Result<std::unique_ptr<Sink>> create(const std::string& url, const FileSinkOptions& options,
                                               bool folder) const = 0;
  /// Errors: unsupported (nothing can be saved at such URLs).
  virtual Result<std::shared_ptr<Store>> store(const std::string& url) const = 0;
  /// Returns the same string for all URLs of an object, as far as the URLs show that they name one object.
  virtual std::string identity(const std::string& url) const = 0;

 protected:
  Urls() = default;
};

/// Returns true for "scheme://...". A scheme has at least two characters, unlike the drives of Windows.
STELE_EXPORT bool is_url(std::string_view path) noexcept;
/// Registers the opener for the process; it must stay valid.
STELE_EXPORT void set_urls(const Urls* urls) noexcept;
/// Returns Urls::identity(), or the URL itself if the program opens no URLs.
STELE_EXPORT std::string url_identity(const std::string& url);
/// Returns the opener. Errors: unsupported (the program opens no URLs).
Result<const Urls*> urls_for(std::string_view url);

}  // namespace stele::inline v0::detail
