// The list of formats, to which programs add their own; finds formats by name and by extension.
#include "formats.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/extension.hpp"
#include "base/similar.hpp"
#include "base/threads.hpp"
#include "foreign.hpp"
#include "stele/bundle.hpp"

namespace stele::inline v0 {

namespace detail {
#define STELE_RECORDER(folder) FormatFamily folder##_formats();
#include "recorders.inc"
#undef STELE_RECORDER
}  // namespace detail

namespace {

using detail::find_member;
using Member = FormatFamily::Member;

/// The families, and their formats. Never changes: a registration makes the next list.
struct Formats {
  std::vector<FormatFamily> families;
  std::vector<const Format*> all;
  std::shared_ptr<const Formats> earlier;  // whose spans callers may still use
};

std::shared_ptr<const Formats> made(std::vector<FormatFamily> families, std::shared_ptr<const Formats> earlier) {
  std::vector<const Format*> all;
  for (const FormatFamily& family : families) {
    for (const Member& member : family.members) all.push_back(member.format);
  }
  return std::make_shared<const Formats>(Formats{std::move(families), std::move(all), std::move(earlier)});
}

struct Registry {
  detail::Mutex mutex;
  std::shared_ptr<const Formats> now = made(
      {
#define STELE_RECORDER(folder) detail::folder##_formats(),
#include "recorders.inc"
#undef STELE_RECORDER
      },
      nullptr);
};

Registry& registry() {
  static Registry one;
  return one;
}

constexpr std::size_t own_count = 0
#define STELE_RECORDER(folder) +1
#include "recorders.inc"
#undef STELE_RECORDER
    ;

std::shared_ptr<const Formats> registered() {
  Registry& r = registry();
  const detail::Lock lock(r.mutex);
  return r.now;
}

Error refused(Errc code, const char* message, std::string_view found) { return Error(code, message).found(found); }

/// Checks that a member's name and extensions are its own.
Status check_new(const Member& member) {
  if (member.format == nullptr) return Error(Errc::invalid_argument, "a member of the family has no format");
  const std::string_view name = member.format->name();
  if (name.empty()) return Error(Errc::invalid_argument, "a format has no name");
  if (find_format(name) != nullptr) return refused(Errc::exists, "there is a format with this name", name);
  for (const std::string_view extension : member.extensions) {
    if (extension.empty()) continue;
    if (!extension.starts_with('.')) {
      return refused(Errc::invalid_argument, "an extension does not begin with a dot", extension);
    }
    const auto* const other = find_member([&](const Member& m) {
      return std::find(m.extensions.begin(), m.extensions.end(), extension) != m.extensions.end();
    });
    if (other == nullptr) continue;
    return refused(Errc::exists, "there is a format with this extension", extension)
        .hint("the format " + std::string(other->format->name()) + " has it");
  }
  return {};
}

/// Returns the extension closest to the path's; "" if none is similar.
std::string nearest_extension(std::string_view path) {
  std::vector<std::string> extensions;
  find_member([&](const Member& member) {
    for (const std::string_view extension : member.extensions) {
      if (!extension.empty() && member.format->writes()) extensions.emplace_back(extension);
    }
    return false;
  });
  const std::string_view name = file_name(path);
  // Suggests ".json.zst" for ".json.zstd", and ".safetensors" for "v1.2.safetensor".
  for (std::size_t dot = name.find('.'); dot != name.npos; dot = name.find('.', dot + 1)) {
    if (const auto near = detail::most_similar(name.substr(dot), extensions); !near.empty()) return std::string(near);
  }
  return {};
}

}  // namespace

std::size_t detail::own_families() noexcept { return own_count; }

std::span<const FormatFamily> format_families() { return registered()->families; }

std::span<const Format* const> formats() { return registered()->all; }

Status register_formats(const FormatFamily& family) {
  static detail::Mutex one_at_a_time;
  const detail::Lock waiting(one_at_a_time);
  return detail::guarded([&]() -> Status {
    for (const Member& member : family.members) STELE_TRY(check_new(member));
    for (auto member = family.members.begin(); member != family.members.end(); ++member) {
      const auto same = [&](const Member& m) { return m.format->name() == member->format->name(); };
      if (std::any_of(family.members.begin(), member, same)) {
        return refused(Errc::exists, "two formats of the family have this name", member->format->name());
      }
    }
    Registry& r = registry();
    const detail::Lock lock(r.mutex);
    std::vector<FormatFamily> families = r.now->families;
    families.push_back(family);
    r.now = made(std::move(families), r.now);
    return {};
  });
}

const Format* find_format(std::string_view name) {
  const Member* const found = find_member([&](const Member& member) { return member.format->name() == name; });
  return found != nullptr ? found->format : nullptr;
}

Result<const Format*> format_of_path(std::string_view path) {
  if (path.empty()) return Error(Errc::invalid_argument, "the path is empty");
  std::string_view longest;  // so that ".safetensors.index.json" does not match ".json"
  const Format* format = nullptr;
  find_member([&](const Member& member) {
    for (const std::string_view extension : member.extensions) {
      if (extension.size() <= longest.size() || path.size() == extension.size()) continue;
      if (!detail::has_extension(path, extension)) continue;
      longest = extension;
      format = member.format;
    }
    return false;
  });
  if (format != nullptr) return format;
  const detail::Foreign* const other = detail::foreign_of_path(path);
  Error error = Error(Errc::unsupported, "no format has this extension").file(path);
  if (other != nullptr) return std::move(error).found(other->what).hint(detail::formats_hint);
  const std::string near = nearest_extension(path);
  if (near.empty()) return std::move(error).hint(detail::formats_hint);
  return std::move(error).hint("use the extension " + near + ", or " + detail::formats_hint);
}

}  // namespace stele::inline v0
