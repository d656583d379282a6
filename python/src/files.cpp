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

/// The last exception of a file object, and the source or sink that called it. The resulting error gets the exception
/// as its cause.
struct {
  const void* owner = nullptr;
  PyObject* exception = nullptr;
} last;

void forget(const void* owner) {
  if (last.owner == owner) take_file_exception();
}

/// Returns an error of the library for an exception of a file object.
Error error_of(const nb::python_error& error, const void* owner, const std::string& name) {
  take_file_exception();
  last = {owner, nb::object(nb::borrow(error.value())).release().ptr()};
  const nb::object type = nb::borrow(error.type()).attr("__qualname__");
  const nb::object text = nb::steal(PyObject_Str(last.exception));
  if (!text.is_valid()) PyErr_Clear();
  return Error(Errc::io, string_of(type) + (text.is_valid() ? ": " + string_of(text) : std::string())).file(name);
}

/// A weak reference to an object if its class allows that, else the object. The Python File keeps it: a reference from
/// here could be a part of a cycle, which Python's garbage collector does not see.
nb::object weak_if_possible(const nb::object& object) {
  nb::object weak = nb::steal(PyWeakref_NewRef(object.ptr(), nullptr));
  if (weak.is_valid()) return weak;
  PyErr_Clear();
  return object;
}

class FileSource final : public Source {
 public:
  FileSource(const nb::object& file, std::string name) : Source(std::move(name)), file_(weak_if_possible(file)) {
    const nb::object end = file.attr("seek")(0, 2);
    try {
      size_ = nb::cast<std::uint64_t>(end.is_none() ? nb::object(file.attr("tell")()) : end);
    } catch (const nb::cast_error&) {
      throw Exception(Error(Errc::io, "seek() of the file object returned no position").file(this->name()));
    }
  }
  ~FileSource() override {
    const nb::gil_scoped_acquire acquired;
    forget(this);
  }
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;
  std::uint64_t size() const noexcept override { return size_; }
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    if (offset > size_ || out.size() > size_ - offset) {
      return Error(Errc::truncated, "the file ends too early").file(name()).offset(offset);
    }
    const std::lock_guard lock(mutex_);  // locked before the GIL, because its owner may need the GIL to continue
    const nb::gil_scoped_acquire acquired;
    try {
      nb::object file = file_.get();
      if (PyWeakref_Check(file.ptr())) file = file();
      if (file.is_none()) return Error(Errc::io, "the file object is gone").file(name());
      file.attr("seek")(offset);
      while (!out.empty()) {
        const nb::object memory = nb::steal(PyMemoryView_FromMemory(reinterpret_cast<char*>(out.data()),
                                                                    static_cast<Py_ssize_t>(out.size()), writable));
        const auto count = nb::cast<std::size_t>(read_into(file, memory, out.size()));
        memory.attr("release")();  // the file object must not keep it
        if (count == 0) return Error(Errc::truncated, "the file ends too early").file(name()).offset(offset);
        if (count > out.size()) return Error(Errc::io, "the file object returned too many bytes").file(name());
        out = out.subspan(count);
        offset += count;
      }
    } catch (nb::python_error& error) {
      return error_of(error, this, name());
    } catch (const nb::cast_error&) {
      return Error(Errc::io, "the file object returned no bytes").file(name());
    }
    return {};
  }

 private:
  /// Fills the memory by readinto(), or by read(). Returns the number of bytes.
  static nb::object read_into(const nb::object& file, const nb::object& memory, std::size_t size) {
    if (nb::hasattr(file, "readinto")) return file.attr("readinto")(memory);
    const nb::object bytes = file.attr("read")(size);
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
  ~FileSink() override {
    const nb::gil_scoped_acquire acquired;
    forget(this);
  }
  FileSink(const FileSink&) = delete;
  FileSink& operator=(const FileSink&) = delete;
  using Sink::write;
  Status write(std::span<const std::span<const std::byte>> pieces) override {
    const nb::gil_scoped_acquire acquired;
    try {
      for (std::span<const std::byte> piece : pieces) {
        while (!piece.empty()) {
          // A copy, because the file object may keep the bytes.
          const nb::object written = file_.get().attr("write")(nb::bytes(piece.data(), piece.size()));
          const std::size_t count = written.is_none() ? piece.size() : nb::cast<std::size_t>(written);
          if (count == 0 || count > piece.size()) return Error(Errc::io, "the file object took no bytes").file(name());
          piece = piece.subspan(count);
        }
      }
    } catch (nb::python_error& error) {
      return error_of(error, this, name());
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
      return error_of(error, this, name());
    }
    return {};
  }

 private:
  Reference file_;
};

}  // namespace

nb::object take_file_exception() {
  const nb::object exception = nb::steal(last.exception);
  last = {};
  return exception;
}

SourcePtr source_of(nb::object buffer) { return std::make_shared<BufferSource>(std::move(buffer)); }
SourcePtr source_of_file(nb::object file, std::string name) {
  return std::make_shared<FileSource>(std::move(file), std::move(name));
}
std::unique_ptr<Sink> sink_of_file(nb::object file) { return std::make_unique<FileSink>(std::move(file)); }

}  // namespace stele::python
