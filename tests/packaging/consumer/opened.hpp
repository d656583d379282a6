// For programs with a recorder that only reads: files in memory, and the elements of a tensor in them.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <iostream>
#include <span>
#include <string_view>
#include <vector>

#include <stele/bundle.hpp>
#include <stele/snapshot.hpp>

inline void put(stele::Bundle& files, std::string_view name, std::string_view content) {
  const auto file = files.create(name).value();
  file->write(std::as_bytes(std::span(content))).value();
  file->commit().value();
}

/// Checks the first elements of the tensor `name`.
template <class T>
void check(const stele::Snapshot& opened, std::string_view name, std::initializer_list<T> expected) {
  const auto leaf = opened.find(name);
  std::vector<T> elements(expected.size());
  if (leaf && leaf->read(0, std::as_writable_bytes(std::span(elements))) && std::ranges::equal(elements, expected))
    return;
  std::cerr << name << ": other elements were read\n";
  std::exit(1);
}
