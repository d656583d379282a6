// A model that a microcontroller fills itself: what it saw of images. Compiled there and on the host alike. All numbers
// are exact in f32, so both get the same.
#pragma once

#include <stele/module.hpp>
#include <stele/param.hpp>
#include <stele/precision/element.hpp>
#include <stele/tensor.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <tuple>

class Channel {
 public:
  void name(std::uint64_t id) { sum.id = stele::ParamId::from_u64(id); }
  void see(float value) {
    (*sum)[0] += value;
    (*sum)[1] += value * value;
    if (value > 8) last = std::array<float, 1>{value};
    ++seen;
  }

 private:
  stele::Param<std::array<float, 2>> sum;
  std::optional<std::array<float, 1>> last;  // absent until something bright was seen
  std::uint32_t seen = 0;
  std::uint32_t scratch = 0;  // not listed: no part of the record
  STELE_MODULE(Channel, sum, last, seen)
};

class Observer {
 public:
  static constexpr std::size_t pixels = 64;
  explicit Observer(std::span<float> memory) : half(memory) { rows[0].name(7); }

  void see(const std::byte* image) {
    for (std::size_t i = 0; i < pixels; ++i) {
      const auto value = static_cast<float>(image[i]);
      rows[i / 32].see(value);
      grid[i / 8][i % 8] += value;
      half[i % half.size()] += value / 2;
      std::get<0>(both)[i % 4] = stele::float16(value);
    }
  }

 private:
  std::array<Channel, 2> rows;
  std::array<std::array<float, 8>, 8> grid{};
  std::span<float> half;  // memory of somebody else
  std::tuple<std::array<stele::float16, 4>, Channel> both{};
  double gain = 0.5;
  bool ready = true;
  STELE_MODULE(Observer, rows, grid, half, both, gain, ready)
};
