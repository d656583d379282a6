// Devices: parameters in the memory of GPUs, by the drivers of CUDA and HIP (docs/guide/devices.md). The driver's
// library is bound when the program runs, so that a build does not need it, and a program also runs on machines without
// a device.
// Link stele::device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stele/dtype.hpp"
#include "stele/location.hpp"
#include "stele/result.hpp"
#include "stele/shape.hpp"
#include "stele/tensor.hpp"
#include "stele/transfer.hpp"

struct CUstream_st;   // CUDA's CUstream and cudaStream_t point to it
struct ihipStream_t;  // HIP's hipStream_t points to it

namespace stele::inline v0 {

namespace detail::device {
class Api;
}  // namespace detail::device

namespace device {

/// A driver of devices, bound to its library. Copies refer to the same driver. Thread-safe.
class STELE_EXPORT Driver {
 public:
  /// Binds the driver's library, by default libcuda.so.1 (nvcuda.dll) or libamdhip64.so (.6, .7; amdhip64.dll). Errors:
  /// not_found (no such library, or no device), unsupported (a function is missing from it; `kind` is neither cuda nor
  /// hip), io (the driver fails).
  static Result<Driver> open(DeviceKind kind, const std::string& library = {});
  /// Binds the first of cuda and hip that has a device. Errors: not_found.
  static Result<Driver> find();

  DeviceKind kind() const noexcept;
  /// Returns the number of devices, at least 1.
  int count() const noexcept;
  /// Returns the name of a device, such as "NVIDIA H200". Errors: invalid_argument, io.
  Result<std::string> name(int ordinal) const;
  /// Allocates memory of a device, aligned to 256 bytes; the last owner frees it, and keeps the driver. Errors:
  /// out_of_memory, io, invalid_argument (no such device).
  Result<std::shared_ptr<std::byte>> allocate(int ordinal, std::size_t size) const;
  /// Copies bytes to or from the memory of a device, after the work that was given to its default stream, and waits for
  /// the copy: for tests and single numbers. Errors: io, invalid_argument.
  Status copy_to_device(int ordinal, std::byte* to, std::span<const std::byte> from) const;
  Status copy_from_device(int ordinal, std::span<std::byte> to, const std::byte* from) const;

  const std::shared_ptr<detail::device::Api>& api() const noexcept { return api_; }

 private:
  explicit Driver(std::shared_ptr<detail::device::Api> api) noexcept : api_(std::move(api)) {}
  std::shared_ptr<detail::device::Api> api_;
};

/// A stream of the program, on which its kernels run: CUDA's cudaStream_t or CUstream, HIP's hipStream_t. Null: none.
class Stream {
 public:
  constexpr Stream() noexcept = default;
  Stream(CUstream_st* stream) noexcept : handle_(stream), kind_(DeviceKind::cuda) {}  // NOLINT: as CUDA's functions
  Stream(ihipStream_t* stream) noexcept : handle_(stream), kind_(DeviceKind::hip) {}  // NOLINT
  /// Takes a handle without its type, from a binding of another language.
  static Stream of(DeviceKind kind, void* handle) noexcept {
    Stream stream;
    stream.handle_ = handle;
    stream.kind_ = kind;
    return stream;
  }
  void* handle() const noexcept { return handle_; }
  DeviceKind kind() const noexcept { return kind_; }

 private:
  void* handle_ = nullptr;
  DeviceKind kind_ = DeviceKind::host;
};

struct TransferOptions {
  /// Copies run after the work that the program has given to this stream before the save or load. Null: the program
  /// has made sure that nothing uses the tensors' memory.
  Stream stream{};
  /// A load waits until all copies have ended. If false, it returns earlier, and later work of `stream` waits for the
  /// copies; an error of such a copy is returned by the next use of the Transfer. Needs a stream.
  bool wait = true;
  /// The ring: page-locked memory, allocated when first used, and kept. Smaller loads use less.
  /// A thread of a load fills one buffer while the device copies from other buffers.
  std::size_t buffer_size = std::size_t{4} << 20;  // rounded up to 4 KiB
  unsigned buffers = 16;
  /// The device of tensors that are not on a device yet.
  int ordinal = 0;
  /// If set, returns the device for the path of such a tensor instead.
  std::function<int(std::string_view path)> placement{};
};

/// Returns the copies of a driver for LoadOptions::transfer and SaveOptions::transfer. It may be used for any number of
/// saves and loads; its destructor waits for its copies. Errors: invalid_argument (a device that does not exist, a
/// stream of another driver, no buffers, `wait` false without a stream).
STELE_EXPORT Result<std::unique_ptr<Transfer>> make_transfer(const Driver& driver, TransferOptions options = {});

/// A tensor in the memory of a device: a field type like stele::Tensor. Move-only; the last owner frees the memory. A
/// default-constructed tensor is unset: a load places it. Rank: number of extents, or dynamic_rank.
template <class T, int Rank = dynamic_rank>
class Tensor {
 public:
  Tensor() noexcept = default;
  /// Owns `data`, row-major elements in the memory of a device, together with `block`.
  Tensor(std::shared_ptr<void> block, T* data, Shape shape, Location where)
      : block_(std::move(block)), data_(data), shape_(std::move(shape)), where_(where) {}
  /// Allocates a tensor without initialising it. Errors: those of Driver::allocate(); limit (2^64 bytes or more).
  static Result<Tensor> allocate(const Driver& driver, int ordinal, Shape shape) {
    const auto count = shape.element_count();
    const auto bytes = count ? byte_length(dtype_of_v<T>, *count) : std::nullopt;
    if (!bytes) return Error(Errc::limit, "the tensor has 2^64 bytes or more");
    STELE_TRY_ASSIGN(std::shared_ptr<std::byte> block, driver.allocate(ordinal, static_cast<std::size_t>(*bytes)));
    T* const data = reinterpret_cast<T*>(block.get());
    return Tensor(std::move(block), data, std::move(shape), {driver.kind(), ordinal});
  }
  Tensor(Tensor&& other) noexcept { swap(other); }
  Tensor& operator=(Tensor&& other) noexcept {
    Tensor(std::move(other)).swap(*this);
    return *this;
  }
  ~Tensor() = default;
  void swap(Tensor& other) noexcept {
    std::swap(block_, other.block_);
    std::swap(data_, other.data_);
    std::swap(shape_, other.shape_);
    std::swap(where_, other.where_);
  }

  /// Returns the address of the first element, for kernels; the processor cannot read it.
  T* data() noexcept { return data_; }
  const T* data() const noexcept { return data_; }
  const Shape& shape() const noexcept { return shape_; }
  std::size_t size() const noexcept { return static_cast<std::size_t>(shape_.element_count().value_or(0)); }
  Location location() const noexcept { return where_; }
  bool is_set() const noexcept { return !(where_ == Location::any_device()); }

 private:
  std::shared_ptr<void> block_;
  T* data_ = nullptr;
  Shape shape_{0};
  Location where_ = Location::any_device();
};

/// A tensor whose elements remain as the file has them, in the memory of a device: blocks of ggml, or f64, f32, f16 or
/// bf16, like stele::BlockTensor.
class STELE_EXPORT BlockTensor {
 public:
  BlockTensor() noexcept = default;
  /// Owns `data`, the bytes of row-major elements, together with `block`.
  BlockTensor(std::shared_ptr<void> block, std::byte* data, Shape shape, DType dtype, Location where);
  BlockTensor(BlockTensor&& other) noexcept { swap(other); }
  BlockTensor& operator=(BlockTensor&& other) noexcept {
    BlockTensor(std::move(other)).swap(*this);
    return *this;
  }
  ~BlockTensor() = default;
  void swap(BlockTensor& other) noexcept;

  /// Returns the address of the first byte, for kernels; the processor cannot read it.
  std::byte* data() noexcept { return data_; }
  const std::byte* data() const noexcept { return data_; }
  DType dtype() const noexcept { return dtype_; }
  const Shape& shape() const noexcept { return shape_; }
  Location location() const noexcept { return where_; }
  bool is_set() const noexcept { return dtype_ != DType::none; }

 private:
  std::shared_ptr<void> block_;
  std::byte* data_ = nullptr;
  Shape shape_{0};
  DType dtype_ = DType::none;
  Location where_ = Location::any_device();
};

/// A tensor with all its elements on each of several devices. A load reads the file once, and copies from the same
/// buffer to every device; a save reads the first device.
template <class T, int Rank = dynamic_rank>
class Replicated {
 public:
  Replicated() noexcept = default;
  /// Makes an unset tensor that a load places on these devices.
  explicit Replicated(const std::vector<Location>& devices) {
    for (const Location where : devices) replicas_.emplace_back(nullptr, nullptr, Shape{0}, where);
  }
  std::span<Tensor<T, Rank>> replicas() noexcept { return replicas_; }
  std::span<const Tensor<T, Rank>> replicas() const noexcept { return replicas_; }
  Shape shape() const { return replicas_.empty() ? Shape{0} : replicas_.front().shape(); }
  /// Adds a replica, or replaces the replica on the same device.
  void set_replica(Tensor<T, Rank> replica) {
    for (Tensor<T, Rank>& old : replicas_) {
      if (old.location() == replica.location()) {
        old = std::move(replica);
        return;
      }
    }
    replicas_.push_back(std::move(replica));
  }

 private:
  std::vector<Tensor<T, Rank>> replicas_;
};

}  // namespace device

template <class T, int Rank>
struct tensor_traits<device::Tensor<T, Rank>> {
  using element = T;
  using type = device::Tensor<T, Rank>;
  static constexpr int rank = Rank;
  static Shape shape(const type& t) { return t.shape(); }
  static T* data(type& t) { return t.data(); }
  static const T* data(const type& t) { return t.data(); }
  static bool unset(const type& t) { return !t.is_set(); }
  static Location location(const type& t) { return t.location(); }
  static void part(type& t, T* data, const Shape& shape, std::shared_ptr<void> block, Location where) {
    t = type(std::move(block), data, shape, where);
  }
};

template <>
struct tensor_traits<device::BlockTensor> {
  using element = std::byte;
  using type = device::BlockTensor;
  static constexpr DType dtype = DType::none;
  static constexpr int rank = dynamic_rank;
  static Shape shape(const type& t) { return t.shape(); }
  static DType dtype_of(const type& t) { return t.is_set() ? t.dtype() : DType::f32; }
  static std::byte* data(type& t) { return t.data(); }
  static const std::byte* data(const type& t) { return t.data(); }
  static bool unset(const type& t) { return !t.is_set(); }
  static Location location(const type& t) { return t.location(); }
  static void part(type& t, std::byte* data, const Shape& shape, DType blocks, std::shared_ptr<void> block,
                   Location where) {
    t = type(std::move(block), data, shape, blocks, where);
  }
};

template <class T, int Rank>
struct tensor_traits<device::Replicated<T, Rank>> {
  using element = T;
  using type = device::Replicated<T, Rank>;
  static constexpr int rank = Rank;
  static Shape shape(const type& t) { return t.shape(); }
  static T* data(type& t) { return t.replicas().empty() ? nullptr : t.replicas().front().data(); }
  static const T* data(const type& t) { return t.replicas().empty() ? nullptr : t.replicas().front().data(); }
  static bool unset(const type& t) { return t.replicas().empty() || t.replicas().front().data() == nullptr; }
  static std::vector<std::pair<Location, T*>> replicas(type& t) {
    std::vector<std::pair<Location, T*>> all;
    for (auto& replica : t.replicas()) all.emplace_back(replica.location(), replica.data());
    if (all.empty()) all.emplace_back(Location::any_device(), nullptr);
    return all;
  }
  static void part(type& t, T* data, const Shape& shape, std::shared_ptr<void> block, Location where) {
    t.set_replica(device::Tensor<T, Rank>(std::move(block), data, shape, where));
  }
};

}  // namespace stele::inline v0
