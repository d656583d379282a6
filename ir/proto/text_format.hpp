// Reads protobuf's text format, for the two kinds of files of this component. Only *_text.cpp files include this
// header.
#pragma once

#include <google/protobuf/message.h>

#include <cstdint>
#include <string_view>

#include "stele/input.hpp"
#include "stele/result.hpp"

namespace stele::inline v0::detail::ir {

/// Maximum size of a text file (1 MiB): bounds the memory, because a message takes up to ten times the bytes of its
/// text.
inline constexpr std::uint64_t max_text_bytes = 1 << 20;

/// Reads a file that contains one message. Errors: malformed, limit (more than max_text_bytes), and those of
/// Input::open().
Status read_text(const Input& input, google::protobuf::Message& message);

}  // namespace stele::inline v0::detail::ir
