// Python's buffers and file objects as sources and sinks.
#include <mutex>

#include <nanobind/ndarray.h>

#include "bindings.hpp"

namespace stele::python {

namespace {

using Buffer = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

class BufferSource final : public Source {
 public:
  explicit BufferSource(nb::object object)
      : Source("memory"), buffer_(std::make_unique<Buffer>(nb::cast<Buffer>(object))), object_(std::move(object)) {}
  ~BufferSource() override {
    const nb::gil_scoped_acquire acquired;
    buffer_.reset();
  }
  BufferSource(const BufferSource&) = delete;
  BufferSource& operator=(const BufferSource&) = delete;
  std::uint64_t size() const noexcept override { return buffer_->size(); }
  std::span<const std::byte> view() const noexcept override {
    return {reinterpret_cast<const std::byte*>(buffer_->data()), static_cast<std::size_t>(buffer_->size())};
  }
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    const auto all = view();
    if (offset > all.size() || out.size() > all.size() - offset) {
      return Error(Errc::truncated, "the data ends too early").file(name()).offset(offset);
    }
    const auto part = all.subspan(static_cast<std::size_t>(offset), out.size());
    std::copy(part.begin(), part.end(), out.begin());
    return {};
  }

 private:
  std::unique_ptr<Buffer> buffer_;
  Reference object_;
};

/// Returns an error of the library for a Python exception, which must be the current one.
Error error_of(const nb::python_error& error, const std::string& name) {
  return Error(Errc::io, error.what()).file(name);
}

class FileSource final : public Source {
 public:
  FileSource(nb::object file, std::string name) : Source(std::move(name)), file_(std::move(file)) {
    size_ = nb::cast<std::uint64_t>(file_.get().attr("seek")(0, 2));
  }
  std::uint64_t size() const noexcept override { return size_; }
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    if (offset > size_ || out.size() > size_ - offset) {
      return Error(Errc::truncated, "the file ends too early").file(name()).offset(offset);
    }
    const std::lock_guard lock(mutex_);  // before the GIL: its owner may need the GIL to go on
    const nb::gil_scoped_acquire acquired;
    try {
      file_.get().attr("seek")(offset);
      while (!out.empty()) {
        const nb::object memory = nb::steal(PyMemoryView_FromMemory(reinterpret_cast<char*>(out.data()),
                                                                    static_cast<Py_ssize_t>(out.size()), writable));
        const auto count = nb::cast<std::size_t>(read_(memory, out.size()));
        memory.attr("release")();  // the file object must not keep it
        if (count == 0) return Error(Errc::truncated, "the file ends too early").file(name()).offset(offset);
        if (count > out.size()) return Error(Errc::io, "the file object returned too many bytes").file(name());
        out = out.subspan(count);
        offset += count;
      }
    } catch (nb::python_error& error) {
      return error_of(error, name());
    } catch (const nb::cast_error&) {
      return Error(Errc::io, "the file object returned no bytes").file(name());
    }
    return {};
  }

 private:
  /// Fills the memory by readinto(), or by read(). Returns the number of bytes.
  nb::object read_(const nb::object& memory, std::size_t size) const {
    if (nb::hasattr(file_.get(), "readinto")) return file_.get().attr("readinto")(memory);
    const nb::object bytes = file_.get().attr("read")(size);
    const std::size_t count = nb::len(bytes);
    memory[nb::slice(Py_ssize_t{0}, static_cast<Py_ssize_t>(count), Py_ssize_t{1})] = bytes;
    return nb::int_(count);
  }

  static constexpr int writable = 0x200;  // PyBUF_WRITE, which the stable ABI of 3.10 does not declare
  Reference file_;
  std::uint64_t size_ = 0;
  mutable std::mutex mutex_;
};

class FileSink final : public Sink {
 public:
  explicit FileSink(nb::object file) : Sink("file object"), file_(std::move(file)) {}
  using Sink::write;
  Status write(std::span<const std::span<const std::byte>> pieces) override {
    const nb::gil_scoped_acquire acquired;
    try {
      for (std::span<const std::byte> piece : pieces) {
        while (!piece.empty()) {
          // A copy: the file object may keep what it gets.
          const nb::object written = file_.get().attr("write")(nb::bytes(piece.data(), piece.size()));
          const std::size_t count = written.is_none() ? piece.size() : nb::cast<std::size_t>(written);
          if (count == 0 || count > piece.size()) return Error(Errc::io, "the file object took no bytes").file(name());
          piece = piece.subspan(count);
        }
      }
    } catch (nb::python_error& error) {
      return error_of(error, name());
    } catch (const nb::cast_error&) {
      return Error(Errc::io, "write() of the file object returned no number").file(name());
    }
    return {};
  }
  Status commit() override {
    const nb::gil_scoped_acquire acquired;
    try {
      if (nb::hasattr(file_.get(), "flush")) file_.get().attr("flush")();
    } catch (nb::python_error& error) {
      return error_of(error, name());
    }
    return {};
  }

 private:
  Reference file_;
};

}  // namespace

SourcePtr source_of(nb::object buffer) { return std::make_shared<BufferSource>(std::move(buffer)); }
SourcePtr source_of_file(nb::object file, std::string name) {
  return std::make_shared<FileSource>(std::move(file), std::move(name));
}
std::unique_ptr<Sink> sink_of_file(nb::object file) { return std::make_unique<FileSink>(std::move(file)); }

}  // namespace stele::python
