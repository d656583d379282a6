// Folders of two files, for the tests of folders.
#pragma once

#include <stele/bundle.hpp>
#include <stele/sink.hpp>
#include <stele/source.hpp>

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace stele_test::folders {

using stele::Bundle;
using stele::Durability;
using stele::FileSinkOptions;
using stele::FolderCheck;
using stele::SourcePtr;
using stele::Status;
using Names = std::vector<std::string>;

inline constexpr FileSinkOptions fast{Durability::process};

inline Status put(Bundle& bundle, std::string_view name, std::string_view text) {
  STELE_TRY_ASSIGN(const auto sink, bundle.create(name));
  STELE_TRY(sink->write(bytes_of(text)));
  return sink->commit();
}

inline std::string text_in(const Bundle& bundle, std::string_view name) {
  const SourcePtr source = good(bundle.open(name));
  std::string text(static_cast<std::size_t>(source->size()), '\0');
  good(source->read_at(0, std::as_writable_bytes(std::span(text))));
  return text;
}

inline FolderCheck always(Status (*answer)() = [] { return Status(); }) {
  return [answer](const Bundle&) { return answer(); };
}

/// Saves a folder of two files.
inline Status write_folder(const std::string& path, std::string_view text, FileSinkOptions options = fast,
                           FolderCheck may_replace = always()) {
  STELE_TRY_ASSIGN(const auto sink, stele::folder_sink(path, options, std::move(may_replace)));
  const auto bundle = sink->bundle();
  STELE_TRY(put(*bundle, "a.dat", text));
  STELE_TRY(put(*bundle, "below/b.dat", text));
  return sink->commit();
}

inline Names names_of(const std::string& path) { return good(stele::folder_bundle(path)->names()); }

inline const Names both{"a.dat", "below/b.dat"};

/// A folder that holds this, whole.
inline void check_holds(const std::string& path, const std::string& text) {
  CHECK(names_of(path) == both);
  CHECK(read_text(path + "/a.dat") == text);
  CHECK(read_text(path + "/below/b.dat") == text);
}

}  // namespace stele_test::folders
