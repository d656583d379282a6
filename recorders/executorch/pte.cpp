// Reads the constants of ExecuTorch's programs, `.pte`. Field numbers: schema/program.fbs.
#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "file.hpp"
#include "json/json.hpp"
#include "snapshot/data.hpp"
#include "stele/detail/little_endian.hpp"
#include "stele/recorders/executorch.hpp"

namespace stele::inline v0 {
namespace detail::executorch {
namespace {

constexpr std::uint8_t tensor_value = 5;  // number in the union KernelTypes
/// Maximum number of kinds of delegates that get a note of their own.
constexpr std::size_t max_delegate_notes = 16;

class PteReader {
 public:
  PteReader(const SourcePtr& source, std::uint64_t size, std::uint64_t base, const Limits& limits)
      : in_(source, size), tensors_(source, limits), base_(base) {}

  Result<Snapshot> run() {
    const fb::Table program = in_.root();
    const fb::Vector plans = in_.vector(program, 1, 4);
    inline_ = in_.vector(program, 2, 4);
    segments_ = in_.vector(program, 4, 4);
    constants_ = in_.table(program, 5);
    mutables_ = in_.vector(program, 6, 4);
    STELE_TRY(in_.status());
    for (std::uint64_t i = 0; i < plans.size; ++i) {
      const fb::Table plan = in_.table(plans, i);
      has_operators_ = has_operators_ || in_.vector(plan, 5, 4).size != 0;
      const fb::Vector values = in_.vector(plan, 2, 4), delegates = in_.vector(plan, 7, 4);
      STELE_TRY(in_.status());
      for (std::uint64_t v = 0; v < values.size; ++v) {
        const fb::Table value = in_.table(values, v);
        if (in_.number<std::uint8_t>(value, 0) == tensor_value) STELE_TRY(tensor(in_.table(value, 1)));
        STELE_TRY(in_.status());
      }
      for (std::uint64_t d = 0; d < delegates.size; ++d) {
        const std::string id = in_.text(in_.table(delegates, d), 0);
        STELE_TRY(in_.status());
        if (delegates_.contains(id) || delegates_.size() < max_delegate_notes) ++delegates_[id];
      }
    }
    STELE_TRY(named(in_.vector(program, 7, 4)));
    for (const auto& [id, count] : delegates_) {
      tensors_.note("the data of delegates of the kind " + json::coded_key(id) + ", of which the program has " +
                    std::to_string(count) + ", are not read");
    }
    if (external_ != 0) {
      tensors_.note("the data of " + std::to_string(external_) + " tensors of the program are in a .ptd file");
    }
    STELE_TRY(in_.status());
    if (has_operators_) tensors_.leave_out(std::string(program_part));
    return tensors_.finish();
  }

 private:
  /// Identifies the data of a tensor: the number of a mutable segment and 1, or 0 for constants, and the index in it.
  using DataId = std::pair<std::uint64_t, std::uint32_t>;
  struct Known {
    TensorLayout layout;
    std::uint32_t node = 0;
    std::string name;
  };

  Status tensor(const fb::Table& table) {
    const auto index = in_.number<std::uint32_t>(table, 5);
    const fb::Table extra = in_.table(table, 9);
    if (in_.number<std::int8_t>(extra, 2) == 1) {
      ++external_;
      return in_.status();
    }
    if (index == 0) return in_.status();  // an input or an activation
    const bool is_mutable = static_cast<bool>(in_.table(table, 6));
    const DataId place(is_mutable ? 1 + std::min(in_.number<std::uint64_t>(extra, 0), mutables_.size) : 0, index);
    STELE_TRY_ASSIGN(TensorLayout layout, tensors_.layout(in_, table, 0, 2, 3));
    std::string name = in_.text(extra, 1);
    STELE_TRY(in_.status());
    if (name.empty()) name = (is_mutable ? "mutable." : "constant.") + std::to_string(index);
    const auto known = known_.find(place);
    if (known != known_.end() && known->second.layout == layout) {
      if (known->second.name == name || names_.contains(name)) return {};  // another method uses this constant, too
      STELE_TRY(name_of(name));
      return tensors_.alias(name, known->second.node);
    }
    const Data data = data_of(place);
    STELE_TRY(in_.status());
    STELE_TRY(name_of(name));
    if (in_.number<std::int32_t>(table, 1) != 0) {
      return tensors_.add_unreadable(name, "a tensor with a storage offset", data);
    }
    STELE_TRY_ASSIGN(const std::uint32_t node, tensors_.add(name, layout, data, false));
    if (known != known_.end()) return {};
    tensors_.count(bytes_of(layout));
    STELE_TRY(tensors_.take(sizeof(Known) + 128 + 16 * layout.sizes.size() + name.size()));
    known_.emplace(place, Known{std::move(layout), node, std::move(name)});
    return {};
  }

  static std::uint64_t bytes_of(const TensorLayout& layout) {
    const ScalarType* const type = type_of(layout.type);
    const auto count = element_count(layout.sizes);
    return type != nullptr && count ? byte_length(type->dtype, *count).value_or(0) : 0;
  }

  /// Returns the data from the beginning of a tensor to the end of its buffer or segment.
  Data data_of(const DataId& place) {
    const auto [segment_number, index] = place;
    if (segment_number == 0 && inline_.size != 0) {  // programs up to 2024
      if (index >= inline_.size) return outside(inline_, index);
      const fb::Vector bytes = in_.vector(in_.table(inline_, index), 0, 1);
      return {bytes.at, bytes.size};
    }
    if (segment_number > mutables_.size) return outside(mutables_, index);
    const fb::Table part = segment_number == 0 ? constants_ : in_.table(mutables_, segment_number - 1);
    const fb::Vector offsets = in_.vector(part, 1, 8);
    if (index >= offsets.size) return outside(offsets, index);
    const auto offset = in_.number<std::uint64_t>(offsets, index);
    const Data whole = segment(in_, segments_, in_.number<std::uint32_t>(part, 0), base_);
    if (offset > whole.size) {
      in_.fail(offsets.at, "a constant is outside its segment", "at most " + std::to_string(whole.size),
               std::to_string(offset));
      return {};
    }
    return {whole.at + offset, whole.size - offset};
  }
  Data outside(const fb::Vector& list, std::uint32_t index) {
    in_.fail(list.at, "the data of a constant do not exist", "less than " + std::to_string(list.size),
             std::to_string(index));
    return {};
  }

  /// Makes a name unique.
  Status name_of(std::string& name) {
    STELE_TRY(tensors_.take(2 * name.size() + 128));
    if (const std::string first = name; !names_.insert(name).second) {
      do {
        name = first + '#' + std::to_string(++repeated_[first]);
      } while (!names_.insert(name).second);
      STELE_TRY(tensors_.take(3 * name.size() + 256));
    }
    return {};
  }

  /// Adds the data with a key, which delegates use.
  Status named(const fb::Vector& entries) {
    std::unordered_set<std::uint32_t> seen;
    for (std::uint64_t i = 0; i < entries.size; ++i) {
      const fb::Table entry = in_.table(entries, i);
      std::string key = in_.text(entry, 0);
      const auto number = in_.number<std::uint32_t>(entry, 1);
      const Data data = segment(in_, segments_, number, base_);
      STELE_TRY(in_.status());
      STELE_TRY(tensors_.take(64));
      if (seen.insert(number).second) tensors_.count(data.size);
      STELE_TRY(name_of(key));
      STELE_TRY(tensors_.add_unreadable(key, "data of a delegate", data));
    }
    return in_.status();
  }

  fb::Reader in_;
  Tensors tensors_;
  std::uint64_t base_;
  fb::Vector inline_, segments_, mutables_;
  fb::Table constants_;
  std::map<DataId, Known> known_;
  std::unordered_set<std::string> names_;
  std::unordered_map<std::string, std::uint64_t> repeated_;  // names with their last number
  std::map<std::string, std::uint64_t> delegates_;           // number of delegates by id
  bool has_operators_ = false;
  std::uint64_t external_ = 0;  // tensors whose data are in another file
};

}  // namespace
}  // namespace detail::executorch

bool PteFormat::recognises(std::span<const std::byte> head, std::uint64_t /*size*/) const noexcept {
  return head.size() >= 8 &&
         std::string_view(reinterpret_cast<const char*>(head.data()) + 4, 4) == detail::executorch::pte_identifier;
}

Result<Snapshot> PteFormat::open(SourcePtr source, const OpenContext& context) const {
  using namespace detail::executorch;  // NOLINT(google-build-using-namespace): this file implements the format
  std::byte head[header_at + pte_header] = {};
  if (source->size() < 8) return Error(Errc::truncated, "the file ends inside its header").file(source->name());
  STELE_TRY(source->read_at(
      0, std::span(head).first(static_cast<std::size_t>(std::min<std::uint64_t>(sizeof head, source->size())))));
  const std::string_view text(reinterpret_cast<const char*>(head), sizeof head);
  if (text.substr(4, 4) != pte_identifier) {
    return Error(Errc::bad_magic, "the file is not a program of ExecuTorch").file(source->name());
  }
  // Programs without segments have no extended header.
  std::uint64_t size = source->size(), base = 0;
  if (text.substr(header_at, 4) == pte_magic) {
    size = detail::load_le<std::uint64_t>(head + header_at + 8);
    base = detail::load_le<std::uint64_t>(head + header_at + 16);
    if (size > source->size()) {
      return Error(Errc::malformed, "the program ends after the file").file(source->name()).offset(header_at + 8);
    }
  }
  return PteReader(source, size, base, context.options().limits).run();
}

}  // namespace stele::inline v0
