#include "ir/proto/text_format.hpp"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>

#include <string>
#include <utility>

#include "io/text.hpp"

namespace stele::inline v0::detail::ir {

namespace {

/// Keeps the first error of the parser.
class FirstError final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column, const std::string& text) override {
    if (found_) return;
    found_ = true;
    message_ = text;
    place_ = "line " + std::to_string(line + 1) + ", column " + std::to_string(column + 1);
  }
  Error error() const {
    return Error(Errc::malformed, "the text is not in this format").found(message_ + ", " + place_);
  }

 private:
  bool found_ = false;
  std::string message_, place_;
};

}  // namespace

Status read_text(const Input& input, google::protobuf::Message& message) {
  STELE_TRY_ASSIGN(const SourcePtr source, input.open("", {}));
  STELE_TRY_ASSIGN(const std::string text, detail::read_text(*source, max_text_bytes));
  google::protobuf::io::ArrayInputStream stream(text.data(), static_cast<int>(text.size()));
  google::protobuf::TextFormat::Parser parser;
  FirstError first;
  parser.RecordErrorsTo(&first);
  parser.SetRecursionLimit(16);
  if (!parser.Parse(&stream, &message)) return first.error().file(input.name());
  return {};
}

}  // namespace stele::inline v0::detail::ir
