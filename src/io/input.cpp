#include "stele/input.hpp"

#include "io/files.hpp"
#include "io/urls.hpp"

namespace stele::inline v0 {

Input::Input(std::string_view path) noexcept : is_path_(true) {
  // An exception from the constructor would reach the caller's code, which expects a Result.
  no_memory_ = !detail::guarded([&]() -> Status {
    path_ = path;
    return {};
  });
}

Input::~Input() = default;

Result<SourcePtr> Input::open(std::string_view extension, const LoadOptions& options) const {
  if (no_memory_) return Error(Errc::out_of_memory, "memory is exhausted (copying the path)");
  if (!is_path_ && source_ == nullptr) return Error(Errc::invalid_argument, "the source is null");
  if (source_ != nullptr) {
    if (!source_->is_folder() || source_->bundle() != nullptr) return source_;
    return Error(Errc::invalid_argument, "the folder has no bundle").file(source_->name());
  }
  if (detail::is_url(path_)) {
    STELE_TRY_ASSIGN(const detail::Urls* const urls, detail::urls_for(path_));
    return urls->open(path_);
  }
  const auto open = [&](const std::string& path) {
    return detail::open_any(detail::file_place(path), options.storage == Storage::mmap);
  };
  const std::string path = detail::with_extension(path_, extension);
  auto source = open(path);
  // A dot in a name ("model.ckpt-100") does not always begin an extension. For any format, the name may be the prefix
  // of a TensorFlow checkpoint.
  const std::string_view more = extension.empty() ? ".index" : extension;
  if (!source && source.error().code() == Errc::not_found && !path.ends_with(more)) {
    if (auto longer = open(path + std::string(more))) source = std::move(longer);
  }
  if (source) folder_ = (*source)->is_folder() ? *source : nullptr;
  return source;
}

bool Input::again() const {
  // Maximum number of attempts to read a folder. Each attempt after the first means that another save has finished
  // meanwhile.
  constexpr int max_attempts = 100;
  if (folder_ == nullptr || attempts_ + 1 >= max_attempts) return false;
  const auto gone = detail::guarded([&] { return detail::replaced(*folder_); });
  if (!gone || !*gone) return false;
  ++attempts_;
  return true;
}

}  // namespace stele::inline v0
