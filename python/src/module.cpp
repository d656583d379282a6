// The module stele._stele. Its users are the Python sources in python/stele, which check arguments.
#include "bindings.hpp"

#include <stele/config.hpp>
#include <stele/plugin.hpp>

namespace stele::python {

namespace {

nb::object maker(const char* name) { return nb::module_::import_("stele._errors").attr(name); }

/// Raises the stele.Error for an error of the library.
void raise(const Error& error) {
  const nb::object exception = to_python(error);
  const nb::object cause = error.code() == Errc::io ? take_file_exception() : nb::object();
  if (cause.is_valid() && !PyErr_GivenExceptionMatches(cause.ptr(), PyExc_Exception)) {  // such as KeyboardInterrupt
    PyErr_SetObject(cause.type().ptr(), cause.ptr());
    return;
  }
  if (cause.is_valid()) PyException_SetCause(exception.ptr(), nb::object(cause).release().ptr());
  PyErr_SetObject(exception.type().ptr(), exception.ptr());
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Exception& exception) {
    try {
      raise(exception.error());
    } catch (nb::python_error& error) {
      error.restore();
    }
  }
}

}  // namespace

nb::object text(std::string_view s) {
  return nb::steal(PyUnicode_DecodeUTF8(s.data(), static_cast<Py_ssize_t>(s.size()), "surrogateescape"));
}

ProgressCallback Progress::callback() const {
  return [state = state_](const stele::Progress& progress) -> bool {
    const nb::gil_scoped_acquire acquired;
    if (state->error) return false;
    try {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      if (state->function.get().is_none()) return true;
      const nb::object answer = state->function.get()(progress.done, progress.total);
      return !answer.is(nb::handle(Py_False));
    } catch (...) {
      state->error = std::current_exception();
      return false;
    }
  };
}

void Progress::check() const {
  if (state_->error) std::rethrow_exception(std::exchange(state_->error, nullptr));
}

nb::object to_python(const Value& value) {
  switch (value.kind()) {
    case ValueKind::null:
      return nb::none();
    case ValueKind::boolean:
      return nb::bool_(*value.as_bool());
    case ValueKind::i64:
      return nb::int_(*value.as_i64());
    case ValueKind::u64:
      return nb::int_(*value.as_u64());
    case ValueKind::f64:
      return nb::float_(*value.as_f64());
    case ValueKind::string:
      return text(*value.as_string());
    case ValueKind::bytes:
      return nb::bytes(value.as_bytes()->data(), value.as_bytes()->size());
    case ValueKind::list: {
      nb::list list;
      for (const Value& item : *value.as_list()) list.append(to_python(item));
      return list;
    }
    case ValueKind::map: {
      nb::dict dict;
      for (const auto& [key, item] : *value.as_map()) dict[text(key)] = to_python(item);
      return dict;
    }
  }
  return nb::none();
}

nb::dict to_python(const std::map<std::string, std::string>& strings) {
  nb::dict dict;
  for (const auto& [key, value] : strings) dict[text(key)] = text(value);
  return dict;
}

nb::object to_python(const Report& report) {
  nb::list rows;
  for (std::size_t i = 0; i < report.size(); ++i) {
    const Report::Row row = report[i];
    rows.append(nb::make_tuple(text(name(row.what)), text(row.path), text(row.detail)));
  }
  return maker("Report")(rows, text(report.to_string()));
}

nb::object to_python(const Error& error) {
  const nb::object offset = error.offset() ? nb::int_(*error.offset()) : nb::object(nb::none());
  return maker("make")(text(error.code_name()), text(error.message()), text(error.path()), text(error.file()),
                       text(error.expected()), text(error.found()), text(error.hint()), offset,
                       error.report() ? to_python(*error.report()) : nb::object(nb::none()));
}

std::string string_of(nb::handle string) {
  if (!PyUnicode_Check(string.ptr())) throw nb::type_error("not a str");
  const nb::object encoded = nb::steal(PyUnicode_AsEncodedString(string.ptr(), "utf-8", "surrogateescape"));
  if (!encoded.is_valid()) throw nb::python_error();
  const auto bytes = nb::borrow<nb::bytes>(encoded);
  return {bytes.c_str(), bytes.size()};
}

// NOLINTNEXTLINE(misc-no-recursion): the depth is that of the interpreter
Value to_value(nb::handle object) {
  if (object.is_none()) return {};
  if (PyBool_Check(object.ptr())) return object.is(nb::handle(Py_True));
  if (PyLong_Check(object.ptr())) {
    int overflow = 0;
    const long long small = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
    if (overflow == 0) return static_cast<std::int64_t>(small);
    const unsigned long long large = PyLong_AsUnsignedLongLong(object.ptr());
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
    return static_cast<std::uint64_t>(large);
  }
  if (PyFloat_Check(object.ptr())) return PyFloat_AsDouble(object.ptr());
  if (PyUnicode_Check(object.ptr())) return string_of(object);
  if (PyBytes_Check(object.ptr())) {
    const auto bytes = nb::borrow<nb::bytes>(object);
    const auto* const data = reinterpret_cast<const std::byte*>(bytes.data());
    return Value::Bytes(data, data + bytes.size());
  }
  if (PyList_Check(object.ptr()) || PyTuple_Check(object.ptr())) {
    Value::List list;
    for (const nb::handle item : nb::borrow<nb::sequence>(object)) list.push_back(to_value(item));
    return list;
  }
  if (PyDict_Check(object.ptr())) {
    Value::Map map;
    for (const auto& [key, item] : nb::borrow<nb::dict>(object)) {
      if (!PyUnicode_Check(key.ptr())) throw nb::type_error("the keys of a dict of values must be str");
      map.emplace_back(string_of(key), to_value(item));
    }
    return map;
  }
  if (nb::isinstance(object, nb::module_::import_("numpy").attr("generic"))) {
    const nb::object number = object.attr("item")();
    if (!number.type().is(object.type())) return to_value(number);
  }
  const std::string type = nb::cast<std::string>(nb::borrow(object.type()).attr("__qualname__"));
  throw nb::type_error(
      ("not a value: " + type + "; values are None, bool, int, float, str, bytes, list and dict").c_str());
}

std::map<std::string, std::string> to_strings(nb::handle dict) {
  std::map<std::string, std::string> strings;
  for (const auto& [key, value] : nb::borrow<nb::dict>(dict)) {
    if (!PyUnicode_Check(key.ptr()) || !PyUnicode_Check(value.ptr())) {
      throw nb::type_error("metadata are a dict of str to str");
    }
    strings.emplace(string_of(key), string_of(value));
  }
  return strings;
}

}  // namespace stele::python

NB_MODULE(_stele, module) {
  using namespace stele::python;
  // nanobind's types belong to the interpreter that imported the module first; another import would replace them.
  static auto* const first = nanobind::detail::internals;
  if (std::exchange(nanobind::detail::internals, first) != first) {
    throw std::runtime_error("stele can be imported in only one interpreter of a process");
  }
  nanobind::register_exception_translator(translate);
  module.attr("version") = STELE_VERSION_STRING;
  bind_model(module);
  bind_devices(module);
  bind_save(module);
  bind_transforms(module);
  bind_command(module);
  bind_checkpoints(module);
  module.def(
      "load_plugin", [](const nb::str& path) { unwrap(stele::load_plugin(string_of(path))); }, nb::arg("path"));
}
