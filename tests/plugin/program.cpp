// A program with a format of its own: registered, or loaded as a plug-in. A process of its own, because a format stays.
// Arguments: the plug-in, the plug-in of another version.
#include <stele/plugin.hpp>
#include <stele/read_only.hpp>
#include <stele/recorders/any.hpp>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "tiny.hpp"

namespace {

void check(bool fact, const char* text) {
  if (fact) return;
  std::fprintf(stderr, "failed: %s\n", text);
  std::exit(EXIT_FAILURE);
}
#define CHECK(...) check((__VA_ARGS__), #__VA_ARGS__)

struct Model {
  std::array<float, 2> bias{1, 2};
};

stele::FormatFamily renamed(const stele::Format& format, std::string_view extension) {
  static stele::FormatFamily::Member member;
  member = {&format, {extension}};
  return {.title = "", .folder = "", .recorders = "", .header = "", .files = "", .holds = "", .members = {&member, 1}};
}

struct Named final : stele::ReadOnlyFormat {
  explicit Named(std::string_view n) : named(n) {}
  std::string_view name() const noexcept override { return named; }
  std::string_view extension() const noexcept override { return ""; }
  const stele::Capabilities& capabilities() const noexcept override { return TinyFormat().capabilities(); }
  bool recognises(std::span<const std::byte>, std::uint64_t) const noexcept override { return false; }
  stele::Result<stele::Snapshot> open(stele::SourcePtr, const stele::OpenContext&) const override {
    return stele::Snapshot();
  }
  std::string_view named;
};

}  // namespace

int main(int, char** arguments) {
  using stele::Errc;
  CHECK(stele::save(Model(), "model.tiny").error().code() == Errc::unsupported);
  CHECK(stele::load_plugin("missing.so").error().code() == Errc::not_found);
  CHECK(stele::load_plugin(arguments[2]).error().code() == Errc::unsupported);
  const auto before = stele::format_families();

  stele::load_plugin(arguments[1]).value();
  stele::load_plugin(arguments[1]).value();  // changes nothing
  CHECK(stele::format_families().size() == before.size() + 1);
  CHECK(before.back().folder == stele::format_families()[before.size() - 1].folder);
  CHECK(stele::find_format("tiny") == stele::formats().back());
  stele::save(Model(), "model.tiny").value();
  std::filesystem::rename("model.tiny", "other.thing");
  CHECK(stele::load<Model>("other.thing").value().bias[1] == 2);

  stele::save(Model(), "small.safetensors").value();  // for the command

  // A family that is refused changes nothing.
  const Named unnamed(""), twice("stele"), fresh("fresh");
  CHECK(stele::register_formats(tiny_formats()).error().code() == Errc::exists);
  CHECK(stele::register_formats(renamed(unnamed, ".x")).error().code() == Errc::invalid_argument);
  CHECK(stele::register_formats(renamed(twice, ".x")).error().code() == Errc::exists);
  CHECK(stele::register_formats(renamed(fresh, ".json")).error().code() == Errc::exists);
  CHECK(stele::register_formats(renamed(fresh, "x")).error().code() == Errc::invalid_argument);
  const stele::FormatFamily::Member pair[] = {{&fresh}, {&fresh}};
  stele::FormatFamily doubled = renamed(fresh, ".x");
  doubled.members = pair;
  CHECK(stele::register_formats(doubled).error().code() == Errc::exists);
  CHECK(stele::formats().back() == stele::find_format("tiny"));
  stele::register_formats(renamed(fresh, ".x")).value();
  CHECK(*stele::format_of_path("model.x") == &fresh);
  return EXIT_SUCCESS;
}
