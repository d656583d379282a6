// Protobuf's text format, for the two kinds of files that the component reads. Seen by its *_text.cpp alone.
#pragma once

#include <google/protobuf/message.h>

#include <cstdint>
#include <string_view>

#include "stele/input.hpp"
#include "stele/result.hpp"

namespace stele::inline v0::detail::ir {

/// A message takes up to ten times the bytes of its text.
inline constexpr std::uint64_t max_text_bytes = 1 << 20;

/// Reads a file of one message. Errors: malformed, limit (more than max_text_bytes), those of Input::open().
Status read_text(const Input& input, google::protobuf::Message& message);

}  // namespace stele::inline v0::detail::ir
