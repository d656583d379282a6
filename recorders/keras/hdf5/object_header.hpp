// Object headers: the messages of an object.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

#include "file.hpp"

namespace stele::inline v0::detail::hdf5 {

namespace message {
enum Type : std::uint16_t {
  space = 1,
  link_info = 2,
  type = 3,
  old_fill = 4,
  fill = 5,
  link = 6,
  external = 7,
  layout = 8,
  group = 10,
  filters = 11,
  attribute = 12,
  continuation = 16,
  symbols = 17,
  attribute_info = 21
};
}  // namespace message

struct Message {
  std::uint16_t type = 0;
  bool shared = false;       // the content is a reference to another object
  std::uint64_t offset = 0;  // in the file
  View content{};
};

/// The messages of an object, and the blocks of the file that they are in.
struct Header {
  std::deque<Bytes> blocks{};
  std::vector<Message> messages{};
  const Message* find(std::uint16_t type) const {
    const auto found = std::find_if(messages.begin(), messages.end(), [&](const Message& m) { return m.type == type; });
    return found != messages.end() ? &*found : nullptr;
  }
};

/// Reads the header at this address, of version 1 or 2, with its continuation blocks. Errors: malformed, truncated.
Result<Header> read_header(File& file, std::uint64_t address);

}  // namespace stele::inline v0::detail::hdf5
