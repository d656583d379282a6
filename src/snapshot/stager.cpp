#include "snapshot/stager.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

namespace stele::inline v0::detail {

void Stager::begin(std::span<const DeviceTarget> targets) {
  targets_ = targets;
  done_ = 0;
  used_ = std::min((used_ + alignment - 1) / alignment * alignment, size_);
}

Result<std::span<std::byte>> Stager::room(std::size_t size) {
  if (buffer_ != nullptr && size_ - used_ < size) STELE_TRY(flush());
  if (buffer_ == nullptr) {
    STELE_TRY_ASSIGN(buffer_, transfer_.acquire(true));
    used_ = 0;
  }
  return std::span<std::byte>(buffer_ + used_, size_ - used_);
}

bool Stager::continues(std::size_t i, const std::byte* from, const std::byte* to) const {
  const DeviceCopy& last = copies_[copies_.size() - targets_.size() + i];
  const std::ptrdiff_t gap = from - (last.host + last.size);
  const bool joined = done_ != 0 || (targets_[i].block != nullptr && targets_[i].block == last_[i].block);
  return joined && last.where == targets_[i].where && to - (last.device + last.size) == gap && gap >= 0 &&
         gap < static_cast<std::ptrdiff_t>(alignment);
}

void Stager::add(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  std::byte* const from = buffer_ + (bytes.data() - buffer_);
  const auto to = [&](std::size_t i) { return targets_[i].data + done_; };
  bool joins = !copies_.empty() && last_.size() == targets_.size();
  for (std::size_t i = 0; joins && i < targets_.size(); ++i) joins = continues(i, from, to(i));
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    if (joins) {
      DeviceCopy& last = copies_[copies_.size() - targets_.size() + i];
      last.size = static_cast<std::size_t>(from + bytes.size() - last.host);
    } else {
      copies_.push_back({from, to(i), bytes.size(), targets_[i].where});
    }
  }
  last_ = targets_;
  used_ = static_cast<std::size_t>(from + bytes.size() - buffer_);
  done_ += bytes.size();
}

Status Stager::flush() {
  if (buffer_ == nullptr) return {};
  auto started = copies_.empty() ? Status() : transfer_.to_device(buffer_, copies_);
  transfer_.release(std::exchange(buffer_, nullptr));
  copies_.clear();
  return started;
}

std::byte* DeviceSink::place(std::uint64_t, std::size_t size) { return room(size).data(); }

std::span<std::byte> DeviceSink::room(std::size_t size) {
  placed_ = {};
  if (size > stager_.buffer_size()) return {};
  auto room = stager_.room(size);
  if (!room) {
    error_ = std::move(room).error();
    return {};
  }
  placed_ = room->first(size);
  return room->first(size);
}

Status DeviceSink::piece(std::span<const std::byte> bytes) {
  if (error_) return *error_;
  const std::less_equal<> before;
  if (!placed_.empty() && before(placed_.data(), bytes.data()) &&
      before(bytes.data() + bytes.size(), placed_.data() + placed_.size())) {
    stager_.add(bytes);
    placed_ = placed_.subspan(static_cast<std::size_t>(bytes.data() + bytes.size() - placed_.data()));
    return {};
  }
  while (!bytes.empty()) {
    STELE_TRY_ASSIGN(const std::span<std::byte> room, stager_.room(1));
    const std::size_t n = std::min(bytes.size(), room.size());
    std::memcpy(room.data(), bytes.data(), n);
    stager_.add(room.first(n));
    bytes = bytes.subspan(n);
  }
  return {};
}

}  // namespace stele::inline v0::detail
