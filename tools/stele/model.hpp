// The files that commands read and write: opening in any format, names, loops over tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <stele/checkpoint.hpp>
#include <stele/format.hpp>
#include <stele/snapshot.hpp>

#include "terminal.hpp"

namespace stele::command {

/// The choice of what to open in a file.
struct Opening {
  std::string names{};  // of a positional format: a text of layout_of(), a Paddle program, or a model
  std::string tag{};    // of an archive; empty: the newest
  std::string part{};   // a path in the file; empty: all
};

/// An open file.
struct Model {
  std::string path;
  std::shared_ptr<const Format> format;
  Snapshot snapshot;
};

/// Opens a file or folder of any format. Errors: those of format_of_content() and of opening.
Result<Model> open_model(const std::string& path, const Opening& opening = {}, unsigned threads = 0);
/// Returns the snapshot with tensors of blocks as f32. Leaves keep their numbers.
Result<Snapshot> with_numbers(const Snapshot& snapshot);
/// Returns the load options for `opening`: the layout of its names. Errors: those of reading them.
Result<LoadOptions> load_options(const Opening& opening, unsigned threads);
/// Returns the format of `name`, or of the extension of `path` if `name` is empty. Errors: unsupported.
Result<std::shared_ptr<const Format>> target_format(const std::string& name, const std::string& path);
/// Returns nullptr if the format has no checkpoints.
const CheckpointFormat* as_checkpoints(const Format& format);

/// A tensor's name, with the number of its leaf; ties have several.
struct Named {
  std::string name;
  std::uint32_t leaf = 0;
  bool tied = false;  // not the first name of the leaf
};
/// Returns every name of every tensor, in the order of the file. Errors: limit.
Result<std::vector<Named>> names_of(const Snapshot& snapshot);
/// Returns the names that match any of the patterns (stele/pattern.hpp); all without patterns.
Result<std::vector<Named>> names_of(const Snapshot& snapshot, const std::vector<std::string>& patterns);

/// Calls work(i, context) for each i below `count`, from several threads, or from one in order if the leaves are to be
/// read in order. Returns the error with the smallest i.
Status for_each_leaf(const Snapshot& snapshot, std::size_t count, unsigned threads,
                     const std::function<Status(std::size_t, ReadContext&)>& work);

/// Returns a size such as "512", "64k", "5G" or "1.5GiB" (powers of 1024; "GB" is 10^9). Errors: invalid_argument.
Result<std::uint64_t> parse_size(const std::string& text);

}  // namespace stele::command
