// Definitions that the reader and the writer of Keras' files share.
#pragma once

#include <string_view>

namespace stele::inline v0::detail::keras {

/// Entries of a `.keras` file, in the file's order, and keys of the metadata with the texts of the first two.
inline constexpr std::string_view metadata_entry = "metadata.json", config_entry = "config.json",
                                  weights_entry = "model.weights.h5", weights_ending = ".weights.h5";

/// The metadata.json of a file that has none; not metadata.
inline constexpr std::string_view no_metadata = "{}";

/// Separates the path of an object from the name of its attribute, in a property's key.
inline constexpr char attribute_mark = '@';

}  // namespace stele::inline v0::detail::keras
