// Archives that change: what is moved and what is written, arrays that tags share, any sequence of edits.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <thread>

#include "recorders/archive/graph_fb.hpp"
#include "recorders/archive/lines.hpp"
#include "support/archive.hpp"
#include "support/random_model.hpp"
#include "support/temp_dir.hpp"

namespace archive_edit_test {

namespace {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;
using Names = std::vector<std::string>;

const ArchiveRecorder<> recorder;

void append(const Checkpoint& c, const std::string& path, const std::string& tag) {
  good(recorder.edit(c, path, tag, ArchiveEdit::append, quick()));
}
void record(const Checkpoint& c, const std::string& path, const std::string& tag) {
  good(recorder_of({.tag = tag}).save(c, path, quick()));
}
Arrays state_of(const Checkpoint& c, const std::string& key) {
  const Snapshot* arrays = c.optimizer.find(key);
  return arrays != nullptr ? arrays_of(*arrays) : Arrays();
}

/// Names of the entries that are arrays.
Names array_names(const std::string& path) {
  Names names;
  for (const auto& [name, bytes] : unzipped(read_text(path))) {
    if (std::count(name.begin(), name.end(), '/') == 2) names.push_back(name);
  }
  return names;
}
std::string lines(const std::string& path, const std::string& name) { return entry(unzipped(read_text(path)), name); }

Checkpoint trained(float n) {
  Checkpoint c = checkpoint({{"a", floats({n, 2})}, {"b", floats({3, n})}});
  c.optimizer.set_snapshot("M", snapshot({{"a", floats({n, 5})}, {"b", floats({6, n})}}));
  c.optimizer.set_snapshot("V", snapshot({{"a", floats({n, 7})}, {"b", floats({8, n})}}));
  return c;
}

struct Net {
  Tensor<float, 1> a, b;
  STELE_MODULE(Net, a, b)
};

}  // namespace

TEST_CASE("archive: an edit moves what is there and touches none of it") {
  const TempDir dir;
  const std::string path = dir / "m.zip";
  record(trained(1), path, "one");
  std::string old = read_text(path);
  // A byte of an array is damaged, and nobody looks.
  old[old.find(bytes_of_numbers(std::vector<float>{6, 1})) + 1] ^= 4;
  write_text(path, old);
  const auto before = good(zip::Directory::open(borrow_bytes(bytes_of(old)), 1U << 20U));
  append(trained(10), path, "two");
  const std::string now = read_text(path);
  const auto after = good(zip::Directory::open(borrow_bytes(bytes_of(now)), 1U << 20U));
  for (const zip::Entry& e : before->entries()) {
    CAPTURE(e.name);
    if (e.name == "tags.txt") continue;
    const zip::Entry* same = after->find(e.name);
    REQUIRE(same != nullptr);
    CHECK(same->header == e.header);
    CHECK(same->crc == e.crc);
    CHECK(now.substr(static_cast<std::size_t>(e.header), static_cast<std::size_t>(e.end - e.header)) ==
          old.substr(static_cast<std::size_t>(e.header), static_cast<std::size_t>(e.end - e.header)));
  }
  const Checkpoint one = good(open_archive(path, "one"));
  CHECK(code_of(content(one.optimizer.find("M")->find("b").value())) == Errc::checksum);
  CHECK(arrays_of(one.parameters) == arrays_of(trained(1).parameters));
  const Checkpoint two = good(open_archive(path, "two"));
  CHECK(state_of(two, "M") == state_of(trained(10), "M"));
  // And so where what is there moves to another place, deflated entries and their alignment too.
  Random random(1);
  const std::string noise = random.bytes(1000);
  write_text(
      path, zipped_by([&](zip::Writer& w) {
        good(w.add("x/params.txt", bytes_of("w 0\n")));
        good(w.add("x/params/0.fb", bytes_of(array_entry({1}))));
        good(w.add("y/params.txt", bytes_of("w 0\nv 1\n" + std::string(200, '\n')), zip::deflated));
        good(w.add("y/params/0.fb", bytes_of(array_entry(DType::u8, {1000}, noise))));
        good(w.add("y/params/1.fb", bytes_of(array_entry(DType::u8, {900}, std::string(900, 'n'))), zip::deflated));
        good(w.add("tags.txt", bytes_of("x\ny\n")));
      }));
  const auto first = good(zip::Directory::open(good(open_file(path)), 1U << 20U));
  good(recorder.edit(checkpoint({}), path, "x", ArchiveEdit::replace, quick()));
  const auto second = good(zip::Directory::open(good(open_file(path)), 1U << 20U));
  for (const char* name : {"y/params.txt", "y/params/0.fb", "y/params/1.fb"}) {
    const zip::Entry &was = *first->find(name), &is = *second->find(name);
    CHECK(is.header != was.header);
    CHECK(is.method == was.method);
    CHECK(is.compressed == was.compressed);
    CHECK(is.crc == was.crc);
    if (is.method == zip::stored) CHECK(good(second->data(is)) % 64 == good(first->data(was)) % 64);
  }
  CHECK(arrays_of(good(open_archive(path, "y")).parameters) ==
        Arrays{{"w", {DType::u8, {1000}, noise}}, {"v", {DType::u8, {900}, std::string(900, 'n')}}});
}

TEST_CASE("archive: what was opened from the file is referred to") {
  const TempDir dir;
  const std::string path = dir / "m.zip";
  record(trained(1), path, "one");
  const Names arrays = array_names(path);
  REQUIRE(arrays.size() == 6);
  append(good(open_archive(path)), path, "two");
  CHECK(array_names(path) == arrays);
  CHECK(lines(path, "two/params.txt") == "a one/0\nb one/1\n");
  CHECK(lines(path, "two/updater.txt") == "a one/0 one/1\nb one/2 one/3\n");
  // One parameter is another.
  Checkpoint c = good(open_archive(path, "two"));
  Arrays changed = arrays_of(c.parameters);
  changed["b"] = floats({-1, -2});
  c.parameters = snapshot(changed);
  append(c, path, "copied");  // by value: nothing says that it is the same
  CHECK(array_names(path).size() == 8);
  const Checkpoint kept = good(open_archive(path, "two"));
  SnapshotBuilder builder;
  builder.set_flat();
  builder.begin(NodeKind::module, "");
  const LeafView a = kept.parameters.find("a").value();
  builder.tensor("a", a.dtype(), a.shape(), a.byte_size(), a.provider());
  const float other[2] = {-3, -4};
  builder.tensor("b", DType::f32, a.shape(), 8, {&memory_ops, other, 0});
  builder.end();
  Checkpoint mixed{builder.finish()};
  mixed.optimizer = kept.optimizer;
  append(mixed, path, "mixed");
  CHECK(array_names(path).size() == 9);
  CHECK(lines(path, "mixed/params.txt") == "a one/0\nb 0\n");
  CHECK(arrays_of(good(open_archive(path, "mixed")).parameters) ==
        Arrays{{"a", floats({1, 2})}, {"b", floats({-3, -4})}});
  // Not from another file, nor at another precision, nor where the array goes.
  const std::string twin = dir / "twin.zip";
  write_text(twin, read_text(path));
  append(good(open_archive(path, "one")), twin, "far");
  CHECK(array_names(twin).size() == 9 + 6);
  good(ArchiveRecorder<HalfPrecision>().edit(good(open_archive(path, "one")), path, "half", ArchiveEdit::append,
                                             quick()));
  CHECK(lines(path, "half/params.txt") == "a 0\nb 1\n");
  CHECK(lines(path, "half/updater.txt") == "a one/0 one/1\nb one/2 one/3\n");  // state stays as it is
  good(recorder.edit(good(open_archive(path, "one")), path, "one", ArchiveEdit::replace, quick()));
  for (const char* tag : {"one", "two", "mixed"}) {
    CHECK(arrays_of(good(open_archive(path, tag)).parameters).at("a") == floats({1, 2}));
    CHECK(state_of(good(open_archive(path, tag)), "V") == state_of(trained(1), "V"));
  }
}

TEST_CASE("archive: precision of each tag") {
  const TempDir dir;
  const std::string path = dir / "m.zip";
  record(trained(1), path, "full");
  good(ArchiveRecorder<HalfPrecision>().edit(trained(1), path, "half", ArchiveEdit::append, quick()));
  CHECK(arrays_of(good(open_archive(path, "full")).parameters) == arrays_of(trained(1).parameters));
  const Checkpoint half = good(open_archive(path, "half"));
  CHECK(arrays_of(half.parameters) ==
        Arrays{{"a", {DType::f16, {2}, bytes_of_numbers(std::vector<std::uint16_t>{0x3c00, 0x4000})}},
               {"b", {DType::f16, {2}, bytes_of_numbers(std::vector<std::uint16_t>{0x4200, 0x3c00})}}});
  CHECK(state_of(half, "M") == state_of(trained(1), "M"));
}

TEST_CASE("archive: equal arrays are found") {
  const TempDir dir;
  const std::string path = dir / "m.zip";
  const auto same = recorder_of({.tag = "one", .deduplicate = true});
  Checkpoint c = checkpoint({{"a", floats({1, 2})},
                             {"b", floats({1, 2})},
                             {"c", floats({2, 1}, {1, 2})},                   // another shape
                             {"d", {DType::i32, {2}, floats({1, 2}).bytes}},  // another dtype
                             {"e", floats({})},
                             {"f", floats({})}});
  c.optimizer.set_snapshot("M", snapshot({{"a", floats({1, 2})}, {"b", floats({1, 2})}}));
  c.optimizer.set_snapshot("V", snapshot({{"a", floats({1, 2})}, {"b", floats({5, 5})}}));
  good(same.save(c, path, quick()));
  CHECK(lines(path, "one/params.txt") == "a 0\nb 0\nc 1\nd 2\ne 3\nf 4\n");
  CHECK(lines(path, "one/updater.txt") == "a 0 0\nb 0 1\n");
  good(same.edit(c, path, "two", ArchiveEdit::append, quick()));
  CHECK(lines(path, "two/params.txt") == "a one/0\nb one/0\nc one/1\nd one/2\ne 0\nf 1\n");
  CHECK(lines(path, "two/updater.txt") == "a one/0 one/0\nb one/0 one/1\n");
  good(same.edit(checkpoint({{"x", floats({9, 9})}, {"a", floats({1, 2})}}), path, "three", ArchiveEdit::append,
                 quick()));
  CHECK(lines(path, "three/params.txt") == "a one/0\nx 0\n");
  append(checkpoint({{"a", floats({1, 2})}}), path, "plain");  // not asked for
  CHECK(lines(path, "plain/params.txt") == "a 0\n");
  // The arrays of a replaced tag move to the tags that refer to them.
  good(same.edit(checkpoint({{"y", floats({9, 9})}}), path, "one", ArchiveEdit::replace, quick()));
  CHECK(lines(path, "one/params.txt") == "y three/0\n");
  CHECK(arrays_of(good(open_archive(path, "two")).parameters) == arrays_of(c.parameters));
  CHECK(state_of(good(open_archive(path, "two")), "V") == state_of(c, "V"));
  CHECK(arrays_of(good(open_archive(path, "three")).parameters).at("a") == floats({1, 2}));
}

TEST_CASE("archive: A7 arrays of a tag that goes stay where they are referred to") {
  const TempDir dir;
  const std::string path = dir / "m.zip";
  record(trained(1), path, "base");
  append(good(open_archive(path)), path, "first");
  append(good(open_archive(path, "base")), path, "second");
  const Checkpoint expected = trained(1);
  SaveOptions dry = quick();
  dry.dry_run = true;
  good(remove_archive_tag(path, "BASE", dry));
  CHECK(tags_of(path) == Names{"base", "first", "second"});
  good(remove_archive_tag(path, "BASE", quick()));
  CHECK(tags_of(path) == Names{"first", "second"});
  CHECK(array_names(path).size() == 6);
  CHECK(lines(path, "first/params.txt") == "a 0\nb 1\n");
  CHECK(lines(path, "first/updater.txt") == "a 0 1\nb 2 3\n");
  CHECK(lines(path, "second/params.txt") == "a first/0\nb first/1\n");
  CHECK(lines(path, "second/updater.txt") == "a first/0 first/1\nb first/2 first/3\n");
  good(remove_archive_tag(path, "first", quick()));
  const Checkpoint second = good(open_archive(path));
  CHECK(arrays_of(second.parameters) == arrays_of(expected.parameters));
  for (const char* key : {"M", "V"}) CHECK(state_of(second, key) == state_of(expected, key));
  CHECK(array_names(path).size() == 6);
}

TEST_CASE("archive: A7 numbers, and arrays beside their table") {
  // `keep` has numbers of its own already; arrays lie in other entries, in another order of bytes and of axes.
  const std::string bytes = in_file_order(bytes_of_numbers(std::vector<float>{1, 2, 3, 4, 5, 6}), DType::f32);
  std::string big;
  for (std::size_t i = 0; i < bytes.size(); ++i) big += bytes[i / 4 * 4 + 3 - i % 4];
  detail::samediff::ArrayFacts facts{DType::f32, {2, 3}, 24, {}, true};
  detail::samediff::ArrayFacts permuted{DType::f32, {3, 1, 2}, 24, {2, 0, 1}, true};
  const Entries entries = {{"gone/params.txt", "a 0\nb 1\nc 2\n"},
                           {"gone/params/0.fb", detail::samediff::array_alone(facts, "data")},
                           {"gone/params/data", big},
                           {"gone/params/1.fb", detail::samediff::array_alone(permuted, "1.bin")},
                           {"gone/params/1.bin", big},
                           {"gone/params/2.fb", array_entry({7})},
                           {"gone/params/3.fb", array_entry({8})},
                           {"gone/updater/0.fb", array_entry({9})},
                           {"gone/unknown", "goes too"},
                           {"keep/params.txt", "a gone/0\nb GONE/1\nc gone/2\nagain Gone/0\nown 0\nother 2\n"},
                           {"keep/params/0.fb", array_entry({10})},
                           {"keep/params/2.fb", array_entry({11})},
                           {"keep/params/3.bin", "not an array, but a name that is taken"},
                           {"keep/updater.txt", "c M=gone/0\n"},
                           {"more/params.txt", "x gone/3\ny gone/1\nz keep/2\n"},
                           {"tags.txt", "gone\nkeep\nmore\n"}};
  const TempDir dir;
  const std::string path = dir / "m.zip";
  write_text(path, zipped(entries));
  const Arrays kept = arrays_of(good(open_archive(path, "keep")).parameters);
  const Arrays more = arrays_of(good(open_archive(path, "more")).parameters);
  CHECK(kept.at("a") == floats({2, 3}, {1, 2, 3, 4, 5, 6}));
  CHECK(kept.at("b") == floats({3, 1, 2}, {1, 4, 2, 5, 3, 6}));
  good(remove_archive_tag(path, "gone", quick()));
  CHECK(lines(path, "keep/params.txt") == "a 1\nb 4\nc 5\nagain 1\nown 0\nother 2\n");
  CHECK(lines(path, "keep/updater.txt") == "c M=0\n");
  CHECK(lines(path, "more/params.txt") == "x 0\ny keep/4\nz keep/2\n");
  CHECK(lines(path, "keep/params/1.bin") == big);
  CHECK(lines(path, "keep/params/4.bin") == big);
  for (const std::string& name : names_of(unzipped(read_text(path)))) CHECK_FALSE(name.starts_with("gone"));
  CHECK(arrays_of(good(open_archive(path, "keep")).parameters) == kept);
  CHECK(arrays_of(good(open_archive(path, "more")).parameters) == more);
  CHECK(state_of(good(open_archive(path, "keep")), "M") == Arrays{{"c", floats({9})}});

  // Two tables of one entry cannot both be moved.
  for (const char* other : {"data", "0.fb"}) {
    Entries shared = entries;
    shared[3].second = detail::samediff::array_alone(facts, other);
    if (other == "0.fb"s)
      shared[1].second = std::string(24, 'x'), shared[3].second = detail::samediff::array_alone(facts, "0.fb");
    write_text(path, zipped(shared));
    const std::string before = read_text(path);
    CHECK_FALSE(remove_archive_tag(path, "gone", quick()).has_value());
    CHECK(read_text(path) == before);
  }
}

TEST_CASE("archive: edits at the same time all take effect") {
  const TempDir dir;
  const std::string path = dir / "m.zip";
  record(checkpoint({{"w", floats({0})}}), path, "gone");
  append(checkpoint({{"w", floats({0})}}), path, "kept");
  std::vector<std::thread> threads;
  std::vector<Errc> codes(7, Errc::none);
  for (int i = 0; i < 7; ++i) {
    threads.emplace_back([&, i] {
      const std::string tag = "t" + std::to_string(i);
      const Checkpoint c = checkpoint({{"w", floats({static_cast<float>(i)})}});
      for (const ArchiveEdit how : {ArchiveEdit::append, ArchiveEdit::replace}) {
        const Errc code =
            i == 6 ? how == ArchiveEdit::append ? code_of(remove_archive_tag(path, "gone", quick())) : Errc::none
                   : code_of(recorder.edit(c, path, tag, how, quick()));
        if (code != Errc::none) codes[static_cast<std::size_t>(i)] = code;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Errc code : codes) CHECK(code == Errc::none);
  Names tags = good(archive_tags(path));
  std::sort(tags.begin(), tags.end());
  CHECK(tags == Names{"kept", "t0", "t1", "t2", "t3", "t4", "t5"});
  CHECK(dir.names() == Names{"m.zip"});
}

TEST_CASE("archive: an edit never replaces a file that was saved meanwhile, and waits no longer than its caller") {
  const TempDir dir;
  const std::string path = dir / "m.zip";
  record(checkpoint({{"w", floats({1})}}), path, "one");
  SaveOptions options = quick();
  options.progress = [&](const Progress&) {
    record(checkpoint({{"w", floats({2})}}), path, "newer");
    return true;
  };
  const Checkpoint c = checkpoint({{"w", floats({3})}});
  CHECK(code_of(recorder.edit(c, path, "two", ArchiveEdit::append, options)) == Errc::io);
  CHECK(good(archive_tags(path)) == Names{"newer"});
  // An edit within an edit waits for a lock that this thread has.
  Errc inner = Errc::none;
  int calls = 0;
  options.progress = [&](const Progress&) {
    SaveOptions nested = quick();
    nested.progress = [&](const Progress&) { return ++calls < 3; };
    inner = code_of(recorder.edit(c, path, "inner", ArchiveEdit::append, nested));
    return true;
  };
  good(recorder.edit(c, path, "two", ArchiveEdit::append, options));
  CHECK(inner == Errc::cancelled);
  CHECK(calls == 3);
  CHECK(good(archive_tags(path)) == Names{"newer", "two"});
}

TEST_CASE("archive: edits that cannot be") {
  const TempDir dir;
  const std::string path = dir / "m.zip";
  const Entries entries = {{"t/params.txt", "w 0\n"},
                           {"t/params/0.fb", array_entry({1})},
                           {"New/params/0.fb", array_entry({2})},
                           {"file", ""},
                           {"tags.txt", "t\n"}};
  const std::string before = zipped(entries);
  const auto error = [&](const std::string& tag, const Checkpoint& c, const SaveOptions& options = quick()) {
    write_text(path, before);
    const Errc code = code_of(recorder.edit(c, path, tag, ArchiveEdit::append, options));
    CHECK(read_text(path) == before);
    CHECK(dir.names() == Names{"m.zip"});
    return code;
  };
  const Checkpoint fine = checkpoint({{"w", floats({1})}});
  CHECK(error("new", fine) == Errc::exists);  // a folder that is no tag is not written into
  CHECK(error("FILE", fine) == Errc::exists);
  CHECK(error("x", checkpoint({{"w", {DType::c64, {1}, std::string(8, '\0')}}})) == Errc::not_representable);
  CHECK(error("x", checkpoint({{"w", {DType::string, {0}, ""}}})) == Errc::not_representable);
  CHECK(error("x", checkpoint({{"\xff", floats({1})}})) == Errc::not_representable);
  SaveOptions options = quick();
  options.metadata = {{"stele", R"({"version":1})"}};
  CHECK(error("x", fine, options) == Errc::not_representable);
  options = quick();
  options.progress = [](const Progress&) { return false; };
  CHECK(error("x", fine, options) == Errc::cancelled);
  options = quick();
  options.dry_run = true;
  CHECK(error("x", fine, options) == Errc::none);
  Checkpoint many = fine;
  for (int i = 0; i < 65; ++i) many.optimizer.set_snapshot("k" + std::to_string(i), snapshot({{"w", floats({1})}}));
  CHECK(error("x", many) == Errc::not_representable);
  CHECK(code_of(recorder.edit(fine, dir / "none", "x", ArchiveEdit::append, quick())) == Errc::not_found);
  CHECK(code_of(remove_archive_tag(dir / "none", "x", quick())) == Errc::not_found);
  write_text(path, "no zip file");
  CHECK(code_of(recorder.edit(fine, path, "x", ArchiveEdit::append, quick())) == Errc::malformed);
  write_text(path, "");
  CHECK_FALSE(recorder.edit(fine, path, "x", ArchiveEdit::append, quick()).has_value());
  CHECK(read_text(path).empty());
}

TEST_CASE("archive: modules") {
  const TempDir dir;
  const std::string path = dir / "net";
  Net net{Tensor<float, 1>({2}, {1, 2}), Tensor<float, 1>({3}, {3, 4, 5})};
  Net moment{Tensor<float, 1>({2}, {6, 7}), Tensor<float, 1>({3}, {8, 9, 10})};
  Checkpoint c{good(snapshot_of(net))};
  good(c.optimizer.set("M", moment));
  good(recorder.save(c, path, quick()));
  net.a[0] = 11;
  good(recorder.append(net, path, "later", quick()));
  const auto first = recorder_of({.tag = "main"});
  CHECK(image(good(recorder.load<Net>(path))) == image(net));
  CHECK(good(first.load<Net>(path)).a[0] == 1);
  Net live{Tensor<float, 1>({2}), Tensor<float, 1>({3})};
  good(first.load_into(live, path));
  CHECK(live.b[2] == 5);
  Net state{Tensor<float, 1>({2}), Tensor<float, 1>({3})};
  const Checkpoint back = good(first.open_checkpoint(path));
  good(back.optimizer.load_into("M", state));
  CHECK(image(state) == image(moment));
  CHECK(code_of(back.optimizer.load_into("V", state)) == Errc::not_found);
  good(recorder.verify(path));

  LoadOptions options;
  options.storage = Storage::mmap;
  Report report;
  const Net viewed = good(first.load<Net>(path, reporting(options, report)));
  CHECK(report.count(Report::What::copied) == 0);
  CHECK(reinterpret_cast<std::uintptr_t>(viewed.a.span().data()) % 64 == 0);
  CHECK(image(viewed) == image(good(first.load<Net>(path))));
}

namespace {

/// The expected content of an archive.
struct Model {
  struct Tag {
    std::string name;
    Arrays parameters, moments;
  };
  std::vector<Tag> tags;
};

Arrays random_arrays(Random& random) {
  Arrays all;
  for (std::size_t n = random.below(5); n != 0; --n) {
    // Few kinds, so that some are equal.
    const std::size_t size = random.below(3) * 40;
    Array a{DType::u8, {size}, std::string(size, static_cast<char>('a' + random.below(2)))};
    all.insert_or_assign("p" + std::to_string(random.below(6)), std::move(a));
  }
  return all;
}

Checkpoint checkpoint_of(const Model::Tag& tag) {
  Checkpoint c = checkpoint(tag.parameters);
  if (!tag.moments.empty()) c.optimizer.set_snapshot("M", snapshot(tag.moments));
  return c;
}

void check(const Model& model, const std::string& path) {
  unzipped(read_text(path));
  const auto tags = tags_of(path);
  REQUIRE(tags.size() == model.tags.size());
  for (std::size_t i = 0; i < tags.size(); ++i) {
    CHECK(tags[i] == model.tags[i].name);
    const Checkpoint c = good(open_archive(path, tags[i]));
    CHECK(arrays_of(c.parameters) == model.tags[i].parameters);
    CHECK(state_of(c, "M") == model.tags[i].moments);
  }
}

}  // namespace

TEST_CASE("archive: any sequence of edits") {
  const TempDir dir;
  const std::string path = dir / "m.zip";
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    Model model{{{"t0", random_arrays(random), {}}}};
    record(checkpoint_of(model.tags[0]), path, "t0");
    for (int step = 1; step < 25; ++step) {
      CAPTURE(step);
      const auto recorder_now = recorder_of({.deduplicate = random.chance(50), .deflate = random.chance(30)});
      const std::size_t at = random.below(model.tags.size());
      Model::Tag tag{"t" + std::to_string(step), random_arrays(random), {}};
      for (const auto& [name, array] : tag.parameters) {
        if (random.chance(40))
          tag.moments[name] = {DType::u8, array.shape, std::string(array.bytes.size(), random.chance(50) ? 'a' : 'm')};
      }
      Checkpoint c = checkpoint_of(tag);
      if (random.chance(40)) {
        // The content of another tag, opened lazily.
        const Model::Tag& source = model.tags[random.below(model.tags.size())];
        tag.parameters = source.parameters;
        tag.moments = source.moments;
        c = good(open_archive(path, source.name));
      }
      switch (random.below(4)) {
        case 0:
          if (model.tags.size() > 1) {
            good(remove_archive_tag(path, model.tags[at].name, quick()));
            model.tags.erase(model.tags.begin() + static_cast<std::ptrdiff_t>(at));
            break;
          }
          [[fallthrough]];
        case 1:
          good(recorder_now.edit(c, path, tag.name, ArchiveEdit::append, quick()));
          model.tags.push_back(tag);
          break;
        case 2:
          tag.name = model.tags[at].name;
          good(recorder_now.edit(c, path, tag.name, ArchiveEdit::replace, quick()));
          model.tags[at] = tag;
          break;
        default:
          tag.name = model.tags[at].name;
          good(recorder_now.edit(c, path, tag.name, ArchiveEdit::touch, quick()));
          model.tags.erase(model.tags.begin() + static_cast<std::ptrdiff_t>(at));
          model.tags.push_back(tag);
      }
      check(model, path);
    }
  }
}

}  // namespace archive_edit_test
