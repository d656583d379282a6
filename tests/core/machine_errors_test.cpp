// An error of the machine or the network is never taken for a broken or foreign file.
#include <doctest/doctest.h>
#include <stele/bundle.hpp>
#include <stele/recorders/any.hpp>
#include <stele/stele.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "support/models.hpp"
#include "support/recorders.hpp"

namespace machine_errors_test {

using namespace stele;
using namespace stele_test;

namespace {

constexpr Errc of_machine[] = {Errc::io, Errc::timed_out, Errc::out_of_memory, Errc::cancelled};

enum class Question { names, open, contains, none };

/// A folder with the files `listed`, which fails to answer one kind of question.
class FailingFolder final : public Bundle {
 public:
  FailingFolder(Question question, Errc code, std::vector<std::string> listed = {})
      : question_(question), code_(code), listed_(std::move(listed)) {}
  Result<SourcePtr> open(std::string_view name) const override { return answer<SourcePtr>(Question::open, name); }
  Result<std::unique_ptr<Sink>> create(std::string_view name) override {
    return answer<std::unique_ptr<Sink>>(Question::none, name);
  }
  Result<bool> contains(std::string_view name) const override {
    if (question_ != Question::contains) return false;
    return answer<bool>(Question::contains, name);
  }
  Result<std::vector<std::string>> names() const override {
    ++lists;
    if (question_ != Question::names) return listed_;
    return answer<std::vector<std::string>>(Question::names, "");
  }
  void remove(std::string_view) noexcept override {}

  mutable int lists = 0;

 private:
  template <class T>
  Result<T> answer(Question question, std::string_view name) const {
    return Error(question == question_ ? code_ : Errc::not_found, "planted").file(name);
  }
  Question question_;
  Errc code_;
  std::vector<std::string> listed_;
};

/// A file of which only the first bytes can be read.
class FailingFile final : public Source {
 public:
  FailingFile(std::string name, std::string bytes, std::uint64_t good, Errc code, std::shared_ptr<const Bundle> beside)
      : Source(std::move(name)), bytes_(std::move(bytes)), good_(good), code_(code), beside_(std::move(beside)) {}
  std::uint64_t size() const noexcept override { return bytes_.size(); }
  std::shared_ptr<const Bundle> bundle() const override { return beside_; }
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    if (offset + out.size() > good_) return Error(code_, "planted").file(name());
    return borrow_bytes(bytes_of(bytes_))->read_at(offset, out);
  }

 private:
  std::string bytes_;
  std::uint64_t good_;
  Errc code_;
  std::shared_ptr<const Bundle> beside_;
};

void fails_with(Errc code, const SourcePtr& source) {
  const auto format = format_of_content(*source);
  REQUIRE_FALSE(format);
  CHECK_MESSAGE(format.error().code() == code, format.error().to_string());
  CHECK(format.error().message() == "planted");
  const auto opened = open(source);
  REQUIRE_FALSE(opened);
  CHECK(opened.error().code() == code);
}

}  // namespace

TEST_CASE("errors of the machine: a folder that cannot be read is not of an unknown format") {
  for (const Errc code : of_machine) {
    for (const Question question : {Question::names, Question::open, Question::contains}) {
      CAPTURE(static_cast<int>(code));
      CAPTURE(static_cast<int>(question));
      // A question about a name is only asked if the list has it, or cannot have it.
      if (question == Question::contains) continue;
      const std::vector<std::string> listed = {"checkpoint", "model-1.safetensors", "model-2.safetensors"};
      const auto folder = std::make_shared<FailingFolder>(question, code, listed);
      fails_with(code, bundle_source(folder, "folder"));
      CHECK(folder->lists <= 2);  // once for each call
    }
  }
  for (const Question question : {Question::open, Question::none}) {
    const auto other = std::make_shared<FailingFolder>(question, Errc::not_found);
    CHECK(format_of_content(*bundle_source(other, "folder")).error().code() == Errc::bad_magic);
  }
}

TEST_CASE("errors of the machine: a server that lists nothing") {
  // names() is unsupported over http: the formats ask for names.
  class Unlisted final : public Bundle {
   public:
    explicit Unlisted(Errc code) : code_(code) {}
    Result<SourcePtr> open(std::string_view) const override { return Error(code_, "planted"); }
    Result<std::unique_ptr<Sink>> create(std::string_view) override { return Error(code_, "planted"); }
    Result<bool> contains(std::string_view) const override { return Error(code_, "planted"); }
    Result<std::vector<std::string>> names() const override { return Error(Errc::unsupported, "no lists"); }
    void remove(std::string_view) noexcept override {}

   private:
    Errc code_;
  };
  for (const Errc code : of_machine) fails_with(code, bundle_source(std::make_shared<Unlisted>(code), "folder"));
  const auto none = bundle_source(std::make_shared<Unlisted>(Errc::not_found), "folder");
  CHECK(format_of_content(*none).error().code() == Errc::bad_magic);
}

TEST_CASE("errors of the machine: a file of which only the beginning can be read") {
  struct Plain {
    Vec weight;
  };
  Plain model;
  model.weight = Vec(Tensor<float, 1>::filled({2000}, 1));
  for (const Errc code : of_machine) {
    CAPTURE(static_cast<int>(code));
    BufferSink npz;
    good(NpzRecorder<>().save(model, npz));
    std::string zip(text_of(npz.take().span()));
    // The name of the first entry decides nothing: the directory does.
    zip.replace(zip.find("weight.npy"), 10, "other.text");
    fails_with(code, std::make_shared<FailingFile>("m.zip", zip, 1024, code, nullptr));
    fails_with(code, std::make_shared<FailingFile>("m.safetensors", zip, 0, code, nullptr));
    // The lookup of a model beside the weights has failed.
    const auto beside = std::make_shared<FailingFolder>(Question::contains, code);
    fails_with(code, std::make_shared<FailingFile>("m.bin", std::string(2000, '\x7f'), 2000, code, beside));
  }
}

}  // namespace machine_errors_test
