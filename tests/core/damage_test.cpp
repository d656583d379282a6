// Every truncation and every flipped bit of a small file of each format: with checksums all of them are found; without,
// what is read is an error or a value. Nothing beyond the file is touched, and opening keeps to its bound of memory.
#include <stele/bundle.hpp>
#include <stele/recorders/pytorch.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <string>

#include "support/any_recorder.hpp"
#include "support/child.hpp"
#include "support/models.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"
#include "support/sanitizers.hpp"
#include "support/stele_file.hpp"
#include "support/temp_dir.hpp"

namespace damage_test {

namespace {

using namespace stele;
using namespace stele_test;

/// A bit of everything that files say.
struct Small {
  Param<Tensor<float, 1>> a;
  Tensor<std::uint8_t, 1> b;
  Tensor<double, 2> none;
  Tensor<bool, 1> mask;
  std::shared_ptr<Twig> tied, again;
  std::vector<std::optional<Twig>> list;
  std::map<std::string, Tensor<float16, 1>> heads;
  std::string text;
  Value any;
  STELE_MODULE(Small, a, b, none, mask, tied, again, list, heads, text, any)
};

Small small(float n) {
  Small s;
  s.a = {Tensor<float, 1>::filled({140}, n), ParamId::from_u64(7)};  // just enough to be worth compressing
  s.b = Tensor<std::uint8_t, 1>({3}, {1, 2, static_cast<std::uint8_t>(n)});
  s.none = Tensor<double, 2>({0, 4});
  s.mask = Tensor<bool, 1>({2}, {true, n > 1});
  s.tied = s.again = std::make_shared<Twig>();
  s.tied->weight = Tensor<float>(Shape{}, {n});
  s.list.resize(2);
  s.heads.emplace("h", Tensor<float16, 1>({1}, {float16(n)}));
  s.text = "value " + std::to_string(n);
  s.any = Value(Value::Map{{"k", Value(Value::List{Value(1.5), Value()})}});
  return s;
}

SaveOptions with_metadata() {
  SaveOptions options;
  options.metadata = {{"author", "x"}};
  return options;
}

/// A copy of some bytes that ends where memory ends.
class AtTheEdge {
 public:
  explicit AtTheEdge(std::size_t most) : page_(static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))) {
    size_ = (most / page_ + 2) * page_;
    void* const memory = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    begin_ = static_cast<char*>(memory);
    edge_ = begin_ + size_ - page_;
    REQUIRE(::mprotect(edge_, page_, PROT_NONE) == 0);
  }
  AtTheEdge(const AtTheEdge&) = delete;
  AtTheEdge& operator=(const AtTheEdge&) = delete;
  ~AtTheEdge() { ::munmap(begin_, size_); }
  std::string_view copy(std::string_view bytes) {
    std::memcpy(edge_ - bytes.size(), bytes.data(), bytes.size());
    return {edge_ - bytes.size(), bytes.size()};
  }

 private:
  std::size_t page_;
  std::size_t size_ = 0;
  char* begin_ = nullptr;
  char* edge_ = nullptr;
};

/// Calls `visit` with every damaged form of a file, and with what was done to it.
template <class Visit>
std::string each_damage(const std::string& file, Visit&& visit) {
  AtTheEdge memory(file.size());
  std::string problem;
  for (std::size_t size = 0; size < file.size() && problem.empty(); ++size) {
    problem = visit(memory.copy(std::string_view(file).substr(0, size)), true);
    if (!problem.empty()) problem += " in the first " + std::to_string(size) + " bytes";
  }
  std::string damaged = file;
  constexpr std::size_t step = sanitizers ? 7 : 1;  // they take 15 times as long
  for (std::size_t bit = 0; bit < 8 * file.size() && problem.empty(); bit += step) {
    const char mask = static_cast<char>(1 << bit % 8);
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ mask);
    problem = visit(memory.copy(damaged), false);
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ mask);
    if (!problem.empty()) problem += " with bit " + std::to_string(bit) + " flipped";
  }
  return problem;
}

/// Runs `f` in a process that cannot take more memory than opening `size` bytes may.
template <class F>
std::string in_bounds(std::size_t size, F&& f) {
  return in_child([&]() -> std::string {
    if (!sanitizers) {
      const std::uint64_t most =
          address_space() + 2 * size + (std::uint64_t{17} << 20);  // 1 MiB of the allocator's own
      const rlimit limit{most, most};
      if (::setrlimit(RLIMIT_AS, &limit) != 0) return "no limit";
    }
    return f();
  });
}

/// Returns the fault of a recorder with these damaged bytes; empty if there is none.
template <class R>
std::string taken(const R& recorder, const SourcePtr& source, bool must_fail) {
  const auto opened = recorder.open(source);
  const auto verified = recorder.verify(source);
  const auto loaded = recorder.template load<Small>(source);
  static const Small before = small(2);
  static const Image image_before = image(before);
  Small live = small(2);
  const auto in_place = recorder.load_into(live, source);
  for (const Errc code : {code_of(opened), code_of(verified), code_of(loaded), code_of(in_place)}) {
    if (code == Errc::out_of_memory) return "too much memory was taken";
  }
  if (!opened && (verified || loaded || in_place)) return "what cannot be opened was read";
  if (must_fail && verified) return "not found by verify()";
  if (must_fail && loaded) return "loaded";
  if (must_fail && in_place) return "loaded in place";
  if (!in_place && (in_place.error().partially_applied() || image(live) != image_before)) return "partly loaded";
  return {};
}

}  // namespace

STELE_TEST_EACH_RECORDER("damage: every truncation and every flipped bit") {
  const auto bytes = saved(recorder, small(1), with_metadata());
  REQUIRE_MESSAGE(bytes, why(bytes));
  const std::string file(text_of(bytes->span()));
  REQUIRE(file.size() < 4000);
  CHECK(recorder.load<Small>(bytes_of(file)));
  CHECK(in_bounds(file.size(), [&] {
          return each_damage(file, [&](std::string_view damaged, bool cut) {
            return taken(recorder, borrow_bytes(bytes_of(damaged)),
                         cut || (can(recorder).checksums && !is_zip_file(recorder)));
          });
        }) == "");
}

TEST_CASE_TEMPLATE("damage: every flipped bit with hashes made right again", R, BinaryRecorder<>,
                   CompressedRecorder<>) {
  // Damage that the hashes no longer detect is an error or another record.
  const R recorder;
  const auto bytes = saved(recorder, small(1), with_metadata());
  REQUIRE_MESSAGE(bytes, why(bytes));
  const std::string file(text_of(bytes->span()));
  AtTheEdge memory(file.size());
  CHECK(in_bounds(file.size(), [&] {
          return each_damage(file, [&](std::string_view damaged, bool) {
            std::string fixed(damaged);
            fix_hashes(fixed);
            return taken(recorder, borrow_bytes(bytes_of(memory.copy(fixed))), false);
          });
        }) == "");
}

TEST_CASE("damage: every truncation and every flipped bit of shards and their index") {
  const ShardedSafetensorsRecorder<> recorder{ShardedSafetensorsFormat(300)};
  const std::string index = "m.safetensors.index.json";
  const auto bundle = memory_bundle();
  const auto sink = good(bundle->create(index));
  good(recorder.save(small(1), *sink, with_metadata()));
  for (const std::string& name :
       {index, std::string("m-00001-of-00002.safetensors"), std::string("m-00002-of-00002.safetensors")}) {
    CAPTURE(name);
    const auto source = good(bundle->open(name));
    const std::string file(text_of(source->view()));
    const auto put = [&](std::string_view text) {
      const auto changed = bundle->create(name);
      return changed && (*changed)->write(bytes_of(text)) && (*changed)->commit();
    };
    const std::size_t needed = file.size() - (name == index ? 1 : 0);  // it ends with the end of a line
    CHECK(in_bounds(file.size(), [&] {
            return each_damage(file, [&](std::string_view damaged, bool cut) -> std::string {
              if (!put(damaged)) return "cannot be written";
              return taken(recorder, bundle->open(index).value(), cut && damaged.size() < needed);
            });
          }) == "");
  }
  CHECK_FALSE(good(bundle->contains("m-00003-of-00003.safetensors")));
}

TEST_CASE("damage: every truncation and every flipped bit of PyTorch's other files") {
  // The zip file of state_dicts is that of the recorder, above.
  for (const std::string name :
       {"legacy.pt", "legacy_adam.pt", "legacy_module.pt", "tar.pt", "libtorch_module.pt", "export.pt2"}) {
    CAPTURE(name);
    std::string file = read_text(test_data("pytorch") + "/" + name);
    REQUIRE(file.size() > 500);
    if (name == "tar.pt") file.resize(5120);  // the rest is padding
    const PytorchRecorder<> recorder;
    const auto fault = [&](std::string_view damaged, bool cut) -> std::string {
      const SourcePtr source = borrow_bytes(bytes_of(damaged));
      const auto opened = recorder.open(source);
      const auto verified = recorder.verify(source);
      if (code_of(opened) == Errc::out_of_memory || code_of(verified) == Errc::out_of_memory) {
        return "too much memory was taken";
      }
      if (!opened) return verified ? "what cannot be opened was verified" : "";
      if (cut && verified) return "not found by verify()";
      for (std::size_t i = 0; verified && i < opened->leaf_count(); ++i) {
        if (opened->leaf(i).byte_size() <= file.size() && !content(opened->leaf(i))) return "verified, but not read";
      }
      return {};
    };
    CHECK(fault(file, false) == "");
    CHECK(in_bounds(file.size(), [&] { return each_damage(file, fault); }) == "");
  }
}

}  // namespace damage_test
