// A folder while its format is looked for: each format asks for the same names.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/of_machine.hpp"
#include "stele/bundle.hpp"

namespace stele::inline v0::detail {

/// Answers the questions of all formats about a folder. It is listed at most once. Remembers the first failure of the
/// machine or the network, which formats cannot distinguish from a folder of another format. Used by one thread.
class AskedFolder final : public Bundle {
 public:
  /// `local`: the folder's files are on this machine. The files of other folders are looked up in their list.
  AskedFolder(const Bundle& folder, bool local) : folder_(folder), local_(local) {}

  Result<SourcePtr> open(std::string_view name) const override;
  Result<std::shared_ptr<const Bundle>> beneath() const override { return noted(folder_.beneath()); }
  Result<std::unique_ptr<Sink>> create(std::string_view name) override;
  Result<bool> contains(std::string_view name) const override;
  Result<std::vector<std::string>> names() const override { return list(); }
  void remove(std::string_view) noexcept override {}

  const std::optional<Error>& failure() const noexcept { return failure_; }

 private:
  template <class T>
  Result<T> noted(Result<T> answer) const {
    if (!answer && !failure_ && is_of_machine(answer.error())) failure_ = answer.error();
    return answer;
  }
  const Result<std::vector<std::string>>& list() const;

  const Bundle& folder_;
  bool local_;
  mutable std::optional<Result<std::vector<std::string>>> names_{};
  mutable std::optional<Error> failure_{};
};

}  // namespace stele::inline v0::detail
