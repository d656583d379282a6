// The files of the program that runs the module: JavaScript reads them, synchronously.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <stele/bundle.hpp>
#include <stele/source.hpp>

namespace stele::wasm {

/// Returns a bundle with the files that the host has under this number. `listed`: the names of all of them are `names`;
/// otherwise, as for a URL, the host looks for each file that is asked for.
std::shared_ptr<Bundle> host_bundle(std::uint32_t group, bool listed, std::vector<std::string> names);

/// Passes bytes of a tensor to the host.
void host_piece(const void* bytes, std::size_t size);
/// Tells the host that bytes were read.
void host_advance(std::uint64_t bytes);

}  // namespace stele::wasm
