// Reads the persistable variables of programs.
//
// ProgramDesc (paddle/phi/core/framework/framework.proto), protobuf:
//  1. ProgramDesc: blocks = 1. BlockDesc: vars = 3.
//  2. VarDesc: name = 1, type = 2, persistable = 3.
//  3. VarType: type = 1, dense_tensor = 3. DenseTensorDesc: tensor = 1, a TensorDesc (record.hpp).
//
// Paddle 3 (PIR, paddle/fluid/pir/serialize_deserialize), JSON: {"base_code": {"magic": "pir", …}, "program":
// {"regions":
// [{"blocks": [{"ops": [op, …]}]}]}}. Only the outermost block counts, as in Paddle's own writer. An op is
//  4. a parameter: {"#": "p", "A": […, name], "O": {"TT": type}, …}
//  5. other data: {"#": "1.data", "A": [{"N": "name", "AT": {"D": name}}, …], "O": [{"TT": type}], "OA": [{"N":
//     "persistable", "AT": {"D": [{"D": true}]}}, …]}
//  6. with a type {"#": "0.t_dtensor", "D": [{"#": "0.t_f32"}, [extents], layout, LoD, offset]}.
#include "program.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>

#include "base/in_file.hpp"
#include "json/json.hpp"
#include "record.hpp"
#include "stele/bundle.hpp"
#include "stele/bytes.hpp"

namespace stele::inline v0 {
namespace detail::paddle {
namespace {

// Maximum size of a program (2 GiB), the limit of protobuf messages.
constexpr std::uint64_t max_program = std::uint64_t{1} << 31;

class ProgramReader {
 public:
  explicit ProgramReader(const Source& source) : source_(source) {}

  Result<std::vector<PaddleVariable>> run() {
    if (source_.size() > max_program)
      return Error(Errc::limit, "the program is too large")
          .file(source_.name())
          .expected("at most " + std::to_string(max_program) + " bytes")
          .found(std::to_string(source_.size()));
    memory_ = IndexBudget({}, source_.size(), index_rate::index);
    Bytes bytes(static_cast<std::size_t>(source_.size()));
    STELE_TRY(source_.read_at(0, bytes.span()));
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    auto r = text.starts_with('{') ? read_pir(text) : read_desc_of(protobuf::Reader(bytes.span()));
    if (r) r = sort();
    STELE_TRY(in_file(std::move(r), source_.name()));
    return std::move(list_);
  }

 private:
  Status add(PaddleVariable variable) {
    const std::uint64_t cost =
        sizeof(PaddleVariable) + 2 * variable.name.size() + sizeof(std::int64_t) * variable.shape.size();
    if (!memory_.take(cost)) return index_error("the program declares too many variables for its size");
    list_.push_back(std::move(variable));
    return {};
  }

  Status sort() {
    const auto by_name = [](const PaddleVariable& a, const PaddleVariable& b) { return a.name < b.name; };
    std::stable_sort(list_.begin(), list_.end(), by_name);
    // Blocks may repeat a declaration of their parent blocks.
    list_.erase(std::unique(list_.begin(), list_.end()), list_.end());
    const auto same = std::adjacent_find(
        list_.begin(), list_.end(), [](const PaddleVariable& a, const PaddleVariable& b) { return a.name == b.name; });
    if (same == list_.end()) return {};
    return Error(Errc::duplicate, "the program declares the variable twice, with different types").path(same->name);
  }

  // ---- ProgramDesc

  Status read_desc_of(protobuf::Reader program) {
    while (program.next()) {
      if (!program.is(1)) continue;
      protobuf::Reader block = program.message();
      while (block.next()) {
        if (block.is(3)) STELE_TRY(read_var(block.message()));
      }
      STELE_TRY(block.status());
    }
    return program.status();
  }

  Status read_var(protobuf::Reader var) {
    PaddleVariable variable;
    bool persistable = false;
    std::uint64_t kind = dense_tensor;
    std::optional<protobuf::Reader> tensor;
    while (var.next()) {
      if (var.is(1)) variable.name = var.text();
      if (var.is(3)) persistable = var.number() != 0;
      if (!var.is(2)) continue;
      protobuf::Reader type = var.message();
      while (type.next()) {
        if (type.is(1)) kind = type.number();
        if (!type.is(3)) continue;
        protobuf::Reader dense = type.message();
        while (dense.next()) {
          if (dense.is(1)) tensor = dense.message();
        }
        STELE_TRY(dense.status());
      }
      STELE_TRY(type.status());
    }
    STELE_TRY(var.status());
    constexpr std::array<std::uint64_t, 4> no_data = {9, 10, 15, 17};  // feeds, fetches, READER, RAW
    if (!persistable || std::find(no_data.begin(), no_data.end(), kind) != no_data.end()) return {};
    if (kind != dense_tensor || !tensor) {
      return Error(Errc::unsupported, "the variable is not a dense tensor")
          .path(variable.name)
          .found("type " + std::to_string(kind));
    }
    if (auto r = read_desc(*tensor, variable.dtype, variable.shape); !r) {
      return std::move(r).error().path(variable.name);
    }
    return add(std::move(variable));
  }

  // ---- PIR

  Status read_pir(std::string_view text) {
    json::Reader in(text, {0, true, json::kDeepest});
    bool magic = false;
    members(in, [&](std::string_view name) {
      if (name == "base_code") {
        members(in, [&](std::string_view part) {
          if (part != "magic") return in.skip_value();
          magic = string(in) == "pir";
          return in.ok();
        });
        return in.ok();
      }
      if (name != "program") return in.skip_value();
      return first(in, "regions", [&] { return first(in, "blocks", [&] { return read_block(in); }); });
    });
    const bool finished = in.finish();
    if (!problem_) return std::move(problem_);
    if (!finished) return in.status();
    if (!magic)
      return Error(Errc::bad_magic, "the JSON document is not a Paddle program").expected("\"magic\": \"pir\"");
    return {};
  }

  template <class Member>
  static bool members(json::Reader& in, Member member) {
    std::string scratch;
    std::string_view key;
    if (!in.begin_object()) return false;
    while (in.next_key(key, scratch)) {
      const std::string name(key);
      if (!member(std::string_view(name))) return false;
    }
    return in.ok();
  }
  template <class Element>
  static bool elements(json::Reader& in, Element element) {
    if (!in.begin_array()) return false;
    for (std::size_t i = 0; in.next_element(); ++i) {
      if (!element(i)) return false;
    }
    return in.ok();
  }
  /// Reads the first element of the member `name`; skips the other elements.
  template <class Element>
  static bool first(json::Reader& in, std::string_view name, Element element) {
    return members(in, [&](std::string_view key) {
      if (key != name) return in.skip_value();
      return elements(in, [&](std::size_t i) { return i == 0 ? element() : in.skip_value(); });
    });
  }
  static std::string string(json::Reader& in) {
    std::string scratch;
    std::string_view text;
    return in.read_string(text, scratch) ? std::string(text) : std::string();
  }

  bool read_block(json::Reader& in) {
    return members(in, [&](std::string_view key) {
      if (key != "ops") return in.skip_value();
      return elements(in, [&](std::size_t) { return read_op(in); });
    });
  }

  bool read_op(json::Reader& in) {
    enum class Kind : std::uint8_t { other, parameter, data } kind = Kind::other;
    PaddleVariable variable;
    bool persistable = false;
    bool stored = false;  // the result has attributes, which a program that cannot be trained lacks
    const bool read = members(in, [&](std::string_view key) {
      if (key == "#") {
        const std::string name = string(in);
        kind = name == "p" ? Kind::parameter : name == "1.data" ? Kind::data : Kind::other;
        persistable = kind == Kind::parameter;
        return in.ok();
      }
      if (kind == Kind::parameter && key == "A") {
        return elements(in, [&](std::size_t) {
          if (in.peek() != json::Kind::string) return in.skip_value();
          variable.name = string(in);
          return in.ok();
        });
      }
      if (kind == Kind::parameter && key == "O") return read_result(in, variable);
      if (kind == Kind::parameter && key == "OA") {  // [persistable, stop_gradient, trainable]
        return elements(in, [&](std::size_t i) {
          if (i != 0 || in.peek() != json::Kind::number) return in.skip_value();
          std::int64_t flag = 0;
          if (!in.read_i64(flag)) return false;
          persistable = flag != 0;
          return stored = true;
        });
      }
      if (kind != Kind::data) return in.skip_value();
      if (key == "A") return read_attributes(in, "name", [&] { return (variable.name = string(in), in.ok()); });
      if (key == "O") return elements(in, [&](std::size_t) { return read_result(in, variable); });
      if (key == "OA") {
        return read_attributes(in, "persistable", [&] {
          return elements(in, [&](std::size_t) {
            return members(in, [&](std::string_view part) {
              return part == "D" && in.peek() == json::Kind::boolean ? in.read_bool(persistable) : in.skip_value();
            });
          });
        });
      }
      return in.skip_value();
    });
    // Paddle's rule: parameters with this name are not in the file, such as an LSTM's dropout_state__non_persistable.
    if (kind == Kind::parameter && !stored) persistable = variable.name.find("__non_persistable") == std::string::npos;
    if (!read || !persistable) return read;
    if (variable.dtype == DType::none || variable.name.empty()) {
      return in.fail(Errc::unsupported, "a named dense tensor of a known dtype", "the parameter is not supported");
    }
    if (auto r = add(std::move(variable)); !r) {
      problem_ = std::move(r);
      return in.fail(Errc::limit, "");
    }
    return true;
  }

  /// Reads attributes: [{"N": name, "AT": {"D": value}}, …], with the two members in any order.
  template <class Value>
  static bool read_attributes(json::Reader& in, std::string_view wanted, Value value) {
    return elements(in, [&](std::size_t) {
      std::string name;
      std::optional<json::Reader> at;
      const bool read = members(in, [&](std::string_view key) {
        if (key == "N") return (name = string(in), in.ok());
        if (key == "AT") at = in;
        return in.skip_value();
      });
      if (!read || name != wanted || !at) return read;
      json::Reader after = in;
      in = *at;  // returns to the value
      const bool good = members(in, [&](std::string_view key) { return key == "D" ? value() : in.skip_value(); });
      if (good) in = after;
      return good;
    });
  }

  bool read_result(json::Reader& in, PaddleVariable& variable) {
    return members(in, [&](std::string_view key) {
      if (key != "TT") return in.skip_value();
      return members(in, [&](std::string_view part) {
        if (part != "D") return in.skip_value();
        return elements(in, [&](std::size_t i) {
          if (i == 0 && in.peek() == json::Kind::object) {
            return members(in, [&](std::string_view type) {
              if (type != "#") return in.skip_value();
              variable.dtype = dtype_of_type(string(in));
              return in.ok();
            });
          }
          if (i != 1) return in.skip_value();
          variable.shape.clear();
          return elements(in, [&](std::size_t) {
            if (variable.shape.size() == max_rank)
              return in.fail(Errc::limit, "at most 9 dimensions", "the parameter has too many dimensions");
            return in.read_i64(variable.shape.emplace_back());
          });
        });
      });
    });
  }

  static DType dtype_of_type(std::string_view name) {
    constexpr std::array<std::pair<std::string_view, DType>, 16> types = {{
        {"0.t_bool", DType::boolean},
        {"0.t_ui8", DType::u8},
        {"0.t_i8", DType::i8},
        {"0.t_i16", DType::i16},
        {"0.t_i32", DType::i32},
        {"0.t_i64", DType::i64},
        {"0.t_f16", DType::f16},
        {"0.t_bf16", DType::bf16},
        {"0.t_f32", DType::f32},
        {"0.t_f64", DType::f64},
        {"0.t_c64", DType::c64},
        {"0.t_c128", DType::c128},
        {"0.t_f8e4m3fn", DType::f8_e4m3fn},
        {"0.t_f8e5m2", DType::f8_e5m2},
        {"0.t_ui32", DType::u32},
        {"0.t_ui64", DType::u64},
    }};
    const auto found = std::find_if(types.begin(), types.end(), [&](const auto& t) { return t.first == name; });
    return found != types.end() ? found->second : DType::none;
  }

  static constexpr std::uint64_t dense_tensor = 7;
  const Source& source_;
  IndexBudget memory_;
  std::vector<PaddleVariable> list_;
  Status problem_;
};

/// Returns true if JSON begins like a program. Other JSON files, such as a record of the model, may have a program's
/// name.
Result<bool> is_pir(const Source& source) {
  char head[64];
  const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(source.size(), sizeof head));
  STELE_TRY(source.read_at(0, std::as_writable_bytes(std::span(head, size))));
  std::string text;
  std::copy_if(head, head + size, std::back_inserter(text), [](char c) { return c > ' '; });
  return text.starts_with("{\"base_code\"");
}

}  // namespace

Result<std::vector<PaddleVariable>> read_program(const Source& source) { return ProgramReader(source).run(); }

Result<SourcePtr> program_beside(const Bundle& folder, std::string_view name) {
  std::vector<std::string> candidates;
  constexpr std::string_view ending = ".pdiparams";
  if (name.ends_with(ending)) {
    const std::string stem(name.substr(0, name.size() - ending.size()));
    candidates = {stem + ".pdmodel", stem + ".json"};
  } else if (name == "__params__") {
    candidates = {"__model__", "__model__.json"};
  }
  for (const std::string& candidate : candidates) {
    STELE_TRY_ASSIGN(const bool contained, folder.contains(candidate));
    if (!contained) continue;
    STELE_TRY_ASSIGN(SourcePtr source, folder.open(candidate));
    if (!candidate.ends_with(".json")) return source;
    STELE_TRY_ASSIGN(const bool program, is_pir(*source));
    if (program) return source;
  }
  return SourcePtr();
}

}  // namespace detail::paddle

Result<std::vector<PaddleVariable>> paddle_program(const Input& from) {
  return detail::guarded([&]() -> Result<std::vector<PaddleVariable>> {
    STELE_TRY_ASSIGN(const SourcePtr source, from.open("", default_load_options()));
    return detail::paddle::read_program(*source);
  });
}

}  // namespace stele::inline v0
