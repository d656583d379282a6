// Plans a safetensors file: its header, and the places of its tensors.
#include <algorithm>

#include "base/name_order.hpp"
#include "encodings/safetensors/dtypes.hpp"
#include "encodings/safetensors/file.hpp"
#include "json/json.hpp"

namespace stele::inline v0::detail::safetensors {

Status check(std::span<const TensorEntry> tensors, const std::map<std::string, std::string>& metadata) {
  for (const TensorEntry& tensor : tensors) {
    const std::string_view name = tensor.name;
    const auto refuse = [&](const char* why) {
      return Error(Errc::not_representable, "safetensors files cannot hold this").path(std::string(name)).found(why);
    };
    if (name == "__metadata__") return refuse("a tensor with the reserved name __metadata__");
    if (!json::valid_utf8(name)) return refuse("a name that is not UTF-8");
    if (element_count(tensor.shape).value_or(0) * bits(tensor.dtype) % 8 != 0)
      return refuse("a tensor whose size is not a whole number of bytes");
  }
  for (const auto& [key, text] : metadata) {
    if (json::valid_utf8(key) && json::valid_utf8(text)) continue;
    return Error(Errc::not_representable, "safetensors files store metadata in UTF-8 only")
        .found("bytes that are not UTF-8");
  }
  return {};
}

Result<FilePlan> plan_file(std::span<const TensorEntry> tensors, const std::map<std::string, std::string>& metadata) {
  struct Item {
    std::size_t order;
    std::uint32_t tensor;
  };
  std::vector<Item> items;
  items.reserve(tensors.size());
  for (const std::uint32_t i :
       order_by_name(static_cast<std::uint32_t>(tensors.size()), [&](std::uint32_t k) { return tensors[k].name; })) {
    items.push_back({dtype_order(tensors[i].dtype), i});
  }
  const auto before = [](const Item& a, const Item& b) { return a.order > b.order; };
  if (!std::is_sorted(items.begin(), items.end(), before)) std::stable_sort(items.begin(), items.end(), before);
  FilePlan plan;
  std::string& header = plan.header;
  json::Writer out(header);
  out.begin_object();
  if (!metadata.empty()) {
    out.key("__metadata__");
    out.begin_object();
    for (const auto& [key, text] : metadata) {
      out.key(key);
      out.string(text);
    }
    out.end_object();
  }
  std::uint64_t at = 0;
  for (const Item& item : items) {
    const TensorEntry& tensor = tensors[item.tensor];
    out.key(tensor.name);
    out.begin_object();
    out.key("dtype");
    out.string(dtypes[item.order].first);
    out.key("shape");
    out.begin_array();
    for (const Extent e : tensor.shape) out.u64(e);
    out.end_array();
    out.key("data_offsets");
    out.begin_array();
    out.u64(at);
    out.u64(at += tensor.bytes);
    out.end_array();
    out.end_object();
    plan.order.push_back(item.tensor);
  }
  plan.bytes = at;
  out.end_object();
  header.resize((header.size() + 7) / 8 * 8, ' ');
  if (header.size() > max_header) {
    return Error(Errc::not_representable, "the header is too large for safetensors")
        .expected("at most 100000000 bytes")
        .found(std::to_string(header.size()));
  }
  return plan;
}

}  // namespace stele::inline v0::detail::safetensors
