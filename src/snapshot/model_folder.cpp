// Chooses the file of a folder that has its model's weights.
#include "snapshot/model_folder.hpp"

#include <algorithm>
#include <iterator>

#include "base/extension.hpp"
#include "base/skipped.hpp"

namespace stele::inline v0::detail {
namespace {

/// The names that are looked for, in this order (transformers, modeling_utils.py; diffusers, model_loading_utils.py;
/// PEFT, save_and_load.py; mistral-inference).
constexpr std::string_view known_names[] = {
    "model.safetensors",
    "model.safetensors.index.json",
    "diffusion_pytorch_model.safetensors",
    "diffusion_pytorch_model.safetensors.index.json",
    "adapter_model.safetensors",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "diffusion_pytorch_model.bin",
    "diffusion_pytorch_model.bin.index.json",
    "adapter_model.bin",
    "consolidated.safetensors",
};

/// Files of transformers' Trainer and of accelerate beside a model.
constexpr std::string_view training_files[] = {"optimizer.pt", "optimizer.bin", "scheduler.pt",     "scheduler.bin",
                                               "scaler.pt",    "sampler.bin",   "training_args.bin"};

constexpr std::string_view file_extensions[] = {".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf"};
/// Extensions of weights in formats whose files are only opened by their own names.
constexpr std::string_view other_extensions[] = {".h5", ".keras", ".msgpack", ".onnx", ".ot", ".stele", ".npz"};

template <class List>
bool has_any(std::string_view name, const List& extensions) {
  return std::any_of(std::begin(extensions), std::end(extensions),
                     [&](std::string_view e) { return has_extension(name, e); });
}

bool is_index(std::string_view name) { return is_index_of(name, ".safetensors") || is_index_of(name, ".bin"); }

/// Returns the number in "-00001-of-00003" of a file of a set; 0 if there is none.
int number_in_set(std::string_view name) {
  constexpr std::string_view pattern = "-ddddd-of-ddddd";
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  for (std::size_t at = name.find('-'); at != name.npos; at = name.find('-', at + 1)) {
    const std::string_view part = name.substr(at, pattern.size());
    const bool same =
        part.size() == pattern.size() && std::equal(part.begin(), part.end(), pattern.begin(),
                                                    [&](char c, char p) { return p == 'd' ? is_digit(c) : c == p; });
    if (!same) continue;
    int number = 0;
    for (const char c : part.substr(1, 5)) number = 10 * number + (c - '0');
    return number;
  }
  return 0;
}

bool is_choice(std::string_view name) {
  const auto* const training = std::find(std::begin(training_files), std::end(training_files), name);
  if (training != std::end(training_files) || name.starts_with("rng_state") || name.starts_with('.')) return false;
  return has_any(name, file_extensions) || has_any(name, other_extensions) || is_index(name);
}

}  // namespace

bool is_index_of(std::string_view name, std::string_view extension) noexcept {
  constexpr std::string_view end = ".json";
  if (!name.ends_with(end)) return false;
  std::string_view stem = name.substr(0, name.size() - end.size());
  if (!stem.ends_with(".index")) {  // the name of a variant
    const std::size_t dot = stem.rfind('.');
    stem = stem.substr(0, dot == stem.npos ? 0 : dot);
  }
  if (!stem.ends_with(".index")) return false;
  return stem.substr(0, stem.size() - 6).ends_with(extension);
}

ModelFolder model_folder(const std::vector<std::string>& names) {
  std::vector<std::string> choices;
  bool configured = false;
  for (const std::string& name : names) {
    if (name.find('/') != name.npos) continue;
    configured = configured || name == "config.json" || name == "adapter_config.json" || name == "params.json";
    if (is_choice(name)) choices.push_back(name);
  }
  for (const std::string_view extension : file_extensions) {
    const bool indexed =
        std::any_of(choices.begin(), choices.end(), [&](const auto& c) { return is_index_of(c, extension); });
    const bool split = extension == ".gguf";
    std::erase_if(choices, [&](const std::string& c) {
      if (!has_extension(c, extension)) return false;
      const int number = number_in_set(c);
      return indexed ? number != 0 : split && number > 1;  // the first file of a split set opens it
    });
  }
  ModelFolder found;
  for (const std::string_view name : known_names) {
    if (!found.weights.empty()) break;
    if (std::find(choices.begin(), choices.end(), name) != choices.end()) found.weights = name;
  }
  const auto only = [&](const auto& test) {
    if (!found.weights.empty() || std::count_if(choices.begin(), choices.end(), test) != 1) return;
    found.weights = *std::find_if(choices.begin(), choices.end(), test);
  };
  if (configured) {
    only([](const std::string& c) { return has_extension(c, ".safetensors") || is_index_of(c, ".safetensors"); });
  }
  const bool alone = choices.size() == 1 && !has_any(choices.front(), other_extensions);
  if (alone && (configured || has_extension(choices.front(), ".gguf"))) only([](const std::string&) { return true; });
  std::erase(choices, found.weights);
  found.others = std::move(choices);
  return found;
}

std::string note_of_others(const ModelFolder& folder, std::string_view extension) {
  Skipped names;
  for (const std::string& name : folder.others) {
    if (has_extension(name, extension) || is_index_of(name, extension)) names.add(name);
  }
  std::vector<std::string> notes;
  names.leave_out(notes, folder.weights + " is read, and not the folder's");
  return notes.empty() ? std::string() : std::move(notes.front());
}

}  // namespace stele::inline v0::detail
