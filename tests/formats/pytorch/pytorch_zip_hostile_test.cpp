// PyTorch's zip files whose containers lie: entries, checksums, compression, version, byte order.
#include <stele/expansion.hpp>
#include <stele/recorders/binary.hpp>
#include <stele/transform.hpp>

#include <string>
#include <vector>

#include "encodings/zip_support.hpp"
#include "support/pytorch_outcome.hpp"

namespace pytorch_zip_hostile_test {

namespace {

using namespace stele;
using namespace stele_test;
using namespace stele_test::pytorch_files;
using namespace std::string_literals;
using namespace std::string_view_literals;

std::string object() { return pickled(ordered({{"w", floats()}})); }

/// The usual file, of members that a test changes.
RawZip raw_file() {
  RawZip file;
  for (const auto& [name, bytes] : records(object())) file.entries.emplace_back(name, bytes);
  return file;
}
RawMember& member(RawZip& file, std::string_view name) {
  for (RawMember& m : file.entries) {
    if (m.name == "archive/" + std::string(name)) return m;
  }
  throw std::runtime_error("no such member");
}
std::string with_record(const std::string& name, const std::string& bytes) {
  RawZip file = raw_file();
  std::erase_if(file.entries, [&](const RawMember& m) { return m.name == "archive/" + name; });
  file.entries.emplace_back("archive/" + name, bytes);
  return file.make();
}
std::string without(std::string_view name) {
  RawZip file = raw_file();
  std::erase_if(file.entries, [&](const RawMember& m) { return m.name == "archive/" + std::string(name); });
  return file.make();
}
std::string first_leaf(std::string_view file, const PytorchOptions& options = {}) {
  return good(content(good(opened(file, options)).leaf(0)));
}

}  // namespace

TEST_CASE("pytorch hostile zip: entries and their names") {
  CHECK(first_leaf(raw_file().make()) == eight);
  const auto with = [](const std::string& name, bool first = false) {
    RawZip file = raw_file();
    file.entries.insert(first ? file.entries.begin() : file.entries.end(), RawMember(name));
    return file.make();
  };
  const std::string_view outside = "not in the folder";
  CHECK(opened(with("archive/other")));
  CHECK_REFUSED(with("other/data/1"), Errc::malformed, outside);
  CHECK_REFUSED(with("other/data.pkl"), Errc::malformed, outside);
  CHECK_REFUSED(with("other/data.pkl", true), Errc::malformed, outside);
  CHECK_REFUSED(with("archive"), Errc::malformed, outside);
  CHECK_REFUSED(with("archive2/data/1"), Errc::malformed, outside);
  CHECK_REFUSED(with("data.pkl"), Errc::malformed, outside);
  CHECK_REFUSED(with("data.pkl", true), Errc::malformed, outside);
  for (const char* name : {"/data/1", "../data/1", "archive\\data/1"}) {
    CAPTURE(name);
    CHECK_REFUSED(with(name), Errc::malformed, outside);
    CHECK_REFUSED(with(name, true), Errc::malformed, outside);
  }
  for (const char* name : {"archive/../data/1", "archive//data"}) {  // torch.load ignores them, too
    CAPTURE(name);
    CHECK(opened(with(name)));
    CHECK(opened(with(name, true)));
  }
  CHECK_REFUSED(with("archive/data/0"), Errc::duplicate, "archive/data/0");
  CHECK_REFUSED(with("archive/data.pkl"), Errc::duplicate, "archive/data.pkl");
  CHECK_REFUSED(RawZip().make(), Errc::bad_magic, "");
  CHECK_REFUSED("", Errc::bad_magic, "");
  CHECK_REFUSED("PK\3\4", Errc::malformed, "");
  CHECK_REFUSED("PYTORCH1", Errc::bad_magic, "");
}

TEST_CASE("pytorch hostile zip: data.pkl that is missing, empty or longer") {
  CHECK_REFUSED(without("data.pkl"), Errc::malformed, "no data.pkl");
  CHECK_REFUSED(with_record("data.pkl", ""), Errc::truncated, "data.pkl");
  CHECK_REFUSED(with_record("data.pkl", "\x80"), Errc::truncated, "data.pkl");
  CHECK_REFUSED(with_record("data.pkl", "{}"), Errc::bad_magic, "data.pkl");
  CHECK_REFUSED(with_record("data.pkl", object() + "."), Errc::malformed, "bytes follow the pickle");
  CHECK_REFUSED(with_record("data.pkl", object() + object()), Errc::malformed, "bytes follow the pickle");
  for (std::size_t size = 2; size + 1 < object().size(); ++size) {
    const std::string cut = with_record("data.pkl", object().substr(0, size));
    CAPTURE(size);
    CHECK(code_of(opened(cut)) == Errc::truncated);
  }
  CHECK_REFUSED(without("data/0"), Errc::malformed, "no record for the storage");
  CHECK_REFUSED(with_record("data/0", eight + "9"), Errc::malformed, "size of the storage differs");
  CHECK_REFUSED(with_record("data/0", eight.substr(1)), Errc::malformed, "size of the storage differs");
}

TEST_CASE("pytorch hostile zip: versions and byte orders") {
  for (const char* version : {"1", "3\n", "10\n", "3 \r\n"}) CHECK(opened(with_record("version", version)));
  for (const char* name : {"version", "byteorder"}) CHECK(opened(without(name)));
  CHECK_REFUSED(with_record("version", "0"), Errc::unsupported, "expected 1 to 10, found 0");
  CHECK_REFUSED(with_record("version", "11\n"), Errc::unsupported, "found 11");
  CHECK_REFUSED(with_record("version", "4294967295"), Errc::unsupported, "found 4294967295");
  for (const char* version : {"x", "", "-1", "3x", "4294967296", "99999999999999999999", "\n3"}) {
    CAPTURE(version);
    CHECK_REFUSED(with_record("version", version), Errc::malformed, "not a number");
  }
  CHECK_REFUSED(with_record("version", std::string(5000, '3')), Errc::limit, "");
  RawZip later = raw_file();
  member(later, "version").name = "archive/.data/version";
  CHECK(opened(later.make()));
  member(later, ".data/version").data = "0\n";
  member(later, ".data/version").crc = crc_of("0\n");
  CHECK_REFUSED(later.make(), Errc::unsupported, "version");
  for (const char* order : {"middle", "", "Little", "little\n", "bigger"}) {
    CHECK_REFUSED(with_record("byteorder", order), Errc::malformed, "byte order");
  }
  CHECK(first_leaf(with_record("byteorder", "big")) == "43218765");
}

TEST_CASE("pytorch hostile zip: wrong checksums") {
  const PytorchOptions ignoring{.ignore_checksums = true};
  const PytorchRecorder<> strict, lax{PytorchFormat(ignoring)};
  RawZip storage = raw_file();
  member(storage, "data/0").crc ^= 1;
  const std::string file = storage.make();
  const Snapshot snapshot = good(opened(file));
  CHECK(unlike(content(snapshot.leaf(0)), Errc::checksum, "") != "none: ok");
  CHECK(code_of(content(snapshot.leaf(0))) == Errc::checksum);
  CHECK(code_of(strict.verify(bytes_of(file))) == Errc::checksum);
  CHECK(code_of(strict.load<std::map<std::string, Tensor<float>>>(bytes_of(file))) == Errc::checksum);
  CHECK(first_leaf(file, ignoring) == eight);
  CHECK(good(lax.verify(bytes_of(file))).count(Report::What::unchecked) == 1);
  CHECK(good(lax.load<std::map<std::string, Tensor<float>>>(bytes_of(file))).at("w").size() == 2);
  // A part of a storage, and gathered elements, need the checksum of the whole.
  for (const View& view : {View{0, {1}, {1}}, View{0, {2, 2}, {0, 1}}}) {
    RawZip part = raw_file();
    RawMember& pickle = member(part, "data.pkl");
    pickle = RawMember(pickle.name, pickled(tensor(floats_storage("0", 2), view)));
    CHECK(good(content(good(opened(part.make())).leaf(0))).size() == 4 * (view.size.size() == 1 ? 1 : 4));
    member(part, "data/0").crc ^= 1;
    CHECK(code_of(content(good(opened(part.make())).leaf(0))) == Errc::checksum);
  }
  RawZip pickle = raw_file();
  member(pickle, "data.pkl").crc ^= 1;
  CHECK_REFUSED(pickle.make(), Errc::checksum, "data.pkl");
  CHECK(first_leaf(pickle.make(), ignoring) == eight);
  RawZip other = raw_file();
  member(other, "version").crc ^= 1;
  CHECK_REFUSED(other.make(), Errc::checksum, "version");
}

TEST_CASE("pytorch hostile zip: headers and descriptors that lie") {
  const auto with = [](auto change) {
    RawZip file = raw_file();
    change(member(file, "data/0"));
    return file.make();
  };
  // PyTorch leaves the local header without CRC and sizes, and puts them behind the data; no reader needs them there.
  const auto described = [](const std::string& descriptor) {
    return [descriptor](RawMember& m) {
      m.flags = 8;
      m.local_crc = m.local_size = m.local_compressed = 0;
      m.behind = descriptor;
    };
  };
  CHECK(first_leaf(with(described("PK\7\10" + little(crc_of(eight), 4) + little(8, 4) + little(8, 4)))) == eight);
  CHECK(first_leaf(with(described(""))) == eight);
  CHECK(first_leaf(with(described("PK\7\10" + std::string(12, 'x')))) == eight);
  CHECK_REFUSED(with([](RawMember& m) { m.local_size = 4; }), Errc::malformed, "");
  CHECK_REFUSED(with([](RawMember& m) { m.local_compressed = 4; }), Errc::malformed, "");
  CHECK_REFUSED(with([](RawMember& m) { m.local_crc = 4; }), Errc::malformed, "");
  CHECK_REFUSED(with([](RawMember& m) { m.local_name = "archive/data/1"; }), Errc::malformed, "");
  CHECK_REFUSED(with([](RawMember& m) { m.size = 9; }), Errc::malformed, "");
  CHECK_REFUSED(with([](RawMember& m) { m.compressed = 0xfffffff0; }), Errc::malformed, "");
  CHECK_REFUSED(with([](RawMember& m) { m.flags = 1; }), Errc::unsupported, "encrypted");
  CHECK(code_of(opened(with([](RawMember& m) { m.method = 12; }))) == Errc::unsupported);
  CHECK_REFUSED(with([](RawMember& m) { m.header = 0; }), Errc::malformed, "");  // data.pkl, by another name
}

TEST_CASE("pytorch hostile zip: deflated entries that grow") {
  // A string of 64 MiB in 64 KiB: more than the file's bytes admit.
  const std::string large = text(std::string(std::size_t{64} << 20, '\0'));
  Records all = records(pickled(large));
  const std::string bomb = zipped(all, zip::deflated);
  REQUIRE(bomb.size() < 100'000);
  CHECK_REFUSED(bomb, Errc::limit, "data.pkl needs too much memory");
  all = records(pickled(ordered({{"w", tensor(floats_storage("0", 1 << 22), {0, {1 << 22}, {1}})}})),
                {{"data/0", std::string(std::size_t{16} << 20, '\0')}});
  const std::string model = zipped(all, zip::deflated);
  const Snapshot zeros = good(opened(model));
  CHECK(good(content(zeros.leaf(0))).size() == std::size_t{16} << 20);
  // More than DEFLATE can make of those bytes; less or more than it does make.
  const auto lying = [](std::uint64_t size) {
    RawZip file = raw_file();
    RawMember& m = member(file, "data/0");
    const std::string name = m.name;
    m = deflated_entry(std::string(400, 'x'));
    m.name = name;
    m.size = size;
    RawMember& pickle = member(file, "data.pkl");
    const auto count = static_cast<std::int64_t>(size / 4);
    pickle = RawMember(pickle.name, pickled(tensor(floats_storage("0", count), {0, {count}, {1}})));
    return file.make();
  };
  CHECK(first_leaf(lying(400)).size() == 400);
  CHECK_REFUSED(lying(1 << 20), Errc::limit, "");
  CHECK(code_of(content(good(opened(lying(396))).leaf(0))) == Errc::malformed);
  CHECK(code_of(content(good(opened(lying(404))).leaf(0))) == Errc::malformed);
}

TEST_CASE("pytorch hostile zip: expanded tensors load only as far as the limits admit") {
  constexpr std::int64_t tera = std::int64_t{1} << 40;
  const auto file = [](std::int64_t count) {
    return zip_file(ordered({{"w", tensor(floats_storage("0", 2), {0, {count}, {0}})}}));
  };
  const PytorchRecorder<> recorder;
  using Map = std::map<std::string, Tensor<float>>;
  CHECK(good(recorder.load<Map>(bytes_of(file(1000)))).at("w").size() == 1000);
  const Snapshot large = good(opened(file(tera)));
  CHECK(large.leaf(0).byte_size() == std::uint64_t{4} << 40);
  std::string part(8, '\0');
  CHECK(large.leaf(0).read(std::uint64_t{3} << 40, std::as_writable_bytes(std::span(part))));
  CHECK(part == "12341234");
  CHECK(code_of(recorder.load<Map>(bytes_of(file(tera)))) == Errc::limit);
  Map live{{"w", Tensor<float>::zeros({2})}};
  CHECK_FALSE(recorder.load_into(live, bytes_of(file(tera))));
  CHECK(live.at("w").size() == 2);
  // A thousand names of one tensor of 1 MiB, each of which a class without ties would copy.
  std::string names = put(tensor(floats_storage("0", 2), {0, {1 << 18}, {0}}), 1) + "0}(";
  for (int i = 0; i < 1000; ++i) names += text("w" + std::to_string(i)) + get(1);
  CHECK(code_of(recorder.load<Map>(bytes_of(zip_file(names + "u")))) == Errc::limit);

  // Saves, dry runs and renamed parts are bounded too; the open's limits raise the bound.
  const BinaryRecorder<> binary;
  const auto refused = saved(binary, large);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code() == Errc::limit);
  CHECK(refused.error().path() == "w");
  SaveOptions dry;
  dry.dry_run = true;
  CHECK(code_of(saved(binary, large, dry)) == Errc::limit);
  CHECK(code_of(saved(binary, good(with_prefix(large, "part")))) == Errc::limit);
  CHECK(code_of(check_expansion(large)) == Errc::limit);
  CHECK(code_of(check_expansion(good(opened(file(1 << 23))))) == Errc::limit);
  CHECK(check_expansion(good(opened(file(1 << 22)))));
  LoadOptions options;
  options.limits.total_bytes = options.limits.tensor_bytes = std::uint64_t{33} << 20;
  const std::string above = file(1 << 23);
  CHECK(check_expansion(good(recorder.open(bytes_of(above), options))));
  CHECK(good(recorder.load<Map>(bytes_of(above), options)).at("w").size() == 1 << 23);
  // A verification reads the storages once, and still finds damage.
  std::string bytes = file(tera);
  CHECK(recorder.verify(bytes_of(bytes)));
  bytes[bytes.find("1234")] ^= 1;
  CHECK(code_of(recorder.verify(bytes_of(bytes))) == Errc::checksum);
}

TEST_CASE("pytorch hostile zip: expanded tensors in every kind of file") {
  constexpr std::int64_t tera = std::int64_t{1} << 40;
  const std::string wide = tensor(floats_storage("0", 2), {0, {tera}, {0}});
  LegacyFile legacy;
  legacy.object = dict({{"w", wide}});
  TarFile tar;
  tar.tensors[0].size = {tera};
  tar.tensors[0].stride = {0};
  Weight weight;
  weight.sizes = R"([{"as_int": 1099511627776}])";
  weight.strides = R"([{"as_int": 0}])";
  const std::pair<std::string, std::string> files[] = {
      {"legacy", legacy.make()},
      {"tar", tar.make()},
      {"script", zip_file(built(call("__torch__.Net", "M", {}), dict({{"w", wide}})))},
      {"exported program", zipped(program(weights({{"w", weight.json()}})))}};
  for (const auto& file_of_kind : files) {
    CAPTURE(file_of_kind.first);
    const std::string& bytes = file_of_kind.second;
    const Snapshot file = good(opened(bytes));
    REQUIRE(file.leaf_count() == 1);
    CHECK(file.leaf(0).byte_size() == std::uint64_t{4} << 40);
    std::string part(8, '\0');
    CHECK(file.leaf(0).read(std::uint64_t{3} << 40, std::as_writable_bytes(std::span(part))));
    CHECK(part == "12341234");
    CHECK(code_of(check_expansion(file)) == Errc::limit);
    const Unexpanded stored = unexpanded(file);
    CHECK(stored.snapshot.leaf(0).size() == 1);
    CHECK(good(content(stored.snapshot.leaf(0))) == "1234");
    CHECK(stored.times == std::vector<std::uint64_t>{std::uint64_t{tera}});
    CHECK(check_expansion(stored.snapshot));
    CHECK(code_of(saved(BinaryRecorder<>(), file)) == Errc::limit);
    CHECK(code_of(PytorchRecorder<>().load<std::map<std::string, Tensor<float>>>(bytes_of(bytes))) == Errc::limit);
    CHECK(PytorchRecorder<>().verify(bytes_of(bytes)));
  }
}

}  // namespace pytorch_zip_hostile_test
