// Darknet's files: those of both programs, without their networks, and damaged ones.
#include <doctest/doctest.h>

#include <stele/bundle.hpp>
#include <stele/recorders/any.hpp>
#include <stele/recorders/read_only.hpp>
#include <stele/recover.hpp>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <tuple>

#include "fuzz/leaves.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace darknet_test {

namespace {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;

std::string golden(const std::string& name) { return read_text(test_data("darknet") + "/" + name); }

DarknetRecorder<> with(const std::string& cfg) { return DarknetRecorder<>(DarknetFormat({.cfg = cfg})); }

/// Returns a file of version 0.2.`revision` with this many numbers: 0, 1, 2, … .
std::string file_of(int numbers, char revision = 0) {
  std::string file = "\0\0\0\0\2\0\0\0"s + revision + "\0\0\0\7\0\0\0\0\0\0\0"s;
  for (int i = 0; i < numbers; ++i) {
    const auto value = static_cast<float>(i);
    file.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return file;
}

const std::string net = "[net]\nwidth=2\nheight=2\nchannels=1\n";
const std::string connected = "[connected]\noutput=1\n";  // 5 numbers after `net`

struct Connected {
  Tensor<float> biases, weights;
};
struct Layer {
  Connected connected;
};

}  // namespace

TEST_CASE("darknet: the arrays of both programs are found at their places") {
  for (const char* name : {"small", "alexey"}) {
    CAPTURE(name);
    const Snapshot opened = good(DarknetRecorder<>().open(test_data("darknet") + "/" + name + ".weights"));
    std::map<std::string, std::pair<float, std::uint64_t>> expected;
    std::istringstream lines(golden(name + ".txt"s));
    std::string key;
    for (std::pair<float, std::uint64_t> place; lines >> key >> place.first >> place.second;) expected[key] = place;
    CHECK(opened.leaf_count() == expected.size());
    CHECK(opened.notes().empty());
    for (std::size_t i = 0; i < opened.leaf_count(); ++i) {
      const LeafView leaf = opened.leaf(i);
      std::string path = leaf.path();  // without the section
      const std::size_t dot = path.find('.');
      path.erase(dot, path.find('.', dot + 1) - dot);
      CAPTURE(path);
      REQUIRE(expected.contains(path));
      float first = -1;
      REQUIRE(leaf.read(0, std::as_writable_bytes(std::span(&first, 1))));
      CHECK(first * 8 == expected[path].first);
      CHECK(leaf.size() == expected[path].second);
    }
  }
  const Snapshot small = good(DarknetRecorder<>().open(test_data("darknet") + "/small.weights"));
  CHECK(small.metadata().at("darknet.version") == "0.2.0");
  const auto shape = [&](const char* path) { return to_string(small.find(path)->shape()); };
  CHECK(shape("0.convolutional.weights") == "[4, 3, 3, 3]");
  CHECK(shape("2.convolutional.weights") == "[4, 2, 3, 3]");
  CHECK(shape("6.deconvolutional.weights") == "[8, 2, 2, 2]");
  CHECK(shape("12.connected.weights") == "[5, 3]");
}

TEST_CASE("darknet: the network is found next to the weights, also under the names of training") {
  for (const char* name : {"m.weights", "m_final.weights", "m_best.weights", "m_last.weights", "m_1000.weights",
                           "m.conv.5", "m_other.weights"}) {
    CAPTURE(name);
    const TempDir dir;
    std::ofstream(dir / "m.cfg") << net << connected;
    std::ofstream(dir / name, std::ios::binary) << file_of(5);
    const Snapshot opened = good(DarknetRecorder<>().open(dir / name));
    const bool found = name != "m_other.weights"s && name != "m.conv.5"s;
    CHECK(opened.leaf_count() == (found ? 2 : 1));
    CHECK(opened.notes().empty() == found);
  }
}

TEST_CASE("darknet: without a network, the numbers are one tensor with a note") {
  const std::string file = file_of(5);
  const Snapshot opened = good(DarknetRecorder<>().open(bytes_of(file)));
  REQUIRE(opened.leaf_count() == 1);
  CHECK(opened.leaf(0).path() == "weights");
  CHECK(to_string(opened.leaf(0).shape()) == "[5]");
  CHECK(opened.notes().at(0) == "the weights have no names: the network's .cfg file is unknown");
  const Layer layer = std::get<0>(good(with(net + connected).load<std::tuple<Layer>>(bytes_of(file))));
  CHECK(layer.connected.biases(0) == 0);
  CHECK(layer.connected.weights(0, 3) == 4);
}

TEST_CASE("darknet: the number of images, and files of old versions") {
  const std::string file = file_of(5);
  CHECK(good(DarknetRecorder<>().open(bytes_of(file))).metadata().at("darknet.seen") == "7");
  const std::string old = "\0\0\0\0\1\0\0\0\0\0\0\0\x09\0\0\0"s + file.substr(20);
  const Snapshot opened = good(with(net + connected).open(bytes_of(old)));
  CHECK(opened.metadata().at("darknet.seen") == "9");
  CHECK(opened.metadata().at("darknet.version") == "0.1.0");
  CHECK(opened.find("0.connected.weights")->size() == 4);
  const std::string transposed = "\0\0\0\0\xe9\3\0\0\0\0\0\0\x09\0\0\0"s + file.substr(20);
  CHECK(unreadable_reason(*good(with(net + connected).open(bytes_of(transposed))).find("0.connected.weights")) ==
        "a transposed matrix of an old version");
  const std::string flipped = file_of(2);
  CHECK(unreadable_reason(*good(with(net + "[conv]\nflipped=1\nactivation=linear").open(bytes_of(flipped)))
                               .find("0.convolutional.weights")) == "a transposed matrix (flipped=1)");
}

TEST_CASE("darknet: a file may end between two layers") {
  const std::string cfg = net + connected + connected;  // 5 and 2 numbers
  const std::string whole = file_of(7), half = file_of(5), cut = file_of(6), more = file_of(8);
  CHECK(good(with(cfg).open(bytes_of(whole))).leaf_count() == 4);
  const Snapshot opened = good(with(cfg).open(bytes_of(half)));
  CHECK(opened.leaf_count() == 2);
  CHECK(opened.notes().at(0) == "the file ends before the layer 1.connected");
  const Error error = bad(with(cfg).open(bytes_of(cut)));
  CHECK(error.code() == Errc::truncated);
  CHECK(error.path() == "1.connected.weights");
  CHECK(code_of(with(cfg).open(bytes_of(more))) == Errc::malformed);
}

TEST_CASE("darknet: an unknown section ends the named tensors") {
  const std::string cfg = net + connected + "[transformer]\nheads=2\n" + connected;
  const std::string file = file_of(9);
  const Snapshot opened = good(with(cfg).open(bytes_of(file)));
  REQUIRE(opened.leaf_count() == 3);
  CHECK(opened.leaf(2).path() == "1.transformer");
  CHECK(unreadable_reason(opened.leaf(2)) == "a network with a section [transformer] is not supported");
  CHECK(opened.leaf(2).byte_size() == 16);
}

TEST_CASE("darknet: options that change the weights") {
  const std::pair<const char*, int> cases[] = {
      {"[convolutional]\nfilters=2\nsize=3\npad=1\nbatch_normalize=1\n", 26},
      {"[convolutional]\nfilters=2\nsize=3\npad=1\nbatch_normalize=1\ndontloadscales=1\n", 20},
      {"[convolutional]\nfilters=2\nnumload=1\n", 2},
      {"[convolutional]\nfilters=2\ndontload=1\n[connected]\noutput=1\n", 9},
      {"[conv]\r\n filters = 2\r\n # a comment\r\n\r\n;another\r\n", 4},
      {"[convolutional]\nfilters=2\nfilters=3\n", 4},  // the first counts
  };
  for (const auto& each : cases) {
    CAPTURE(each.first);
    const std::string file = file_of(each.second);
    CHECK(with(net + each.first).open(bytes_of(file)));
  }
}

TEST_CASE("darknet: damaged networks and files") {
  const std::string file = file_of(5);
  for (const std::string& cfg :
       {"x"s, "[net"s, "[]\n"s, "width=2\n"s, connected, net + "[connected]\noutput\n", net + "[connected]\noutput=0\n",
        net + "[connected]\noutput=-1\n", net + "[convolutional]\nfilters=1\nstride=0\n",
        net + "[convolutional]\nfilters=1\ngroups=0\n", net + "[convolutional]\nfilters=2147483647\nsize=2147483647\n",
        net + "[route]\nlayers=5\n", net + "[route]\n", net + "[reorg]\nstride=2147483647\n",
        net + "[upsample]\nstride=2147483647\n", net + "[route]\nlayers=-1\n" + connected,
        "[net]\nwidth=2147483647\nheight=2147483647\nchannels=9\n" + connected}) {
    CAPTURE(cfg);
    CHECK(code_of(with(cfg).open(bytes_of(file))) != Errc());
  }
  CHECK(code_of(DarknetRecorder<>().open(bytes_of(file.substr(0, 22)))) == Errc::malformed);
  const std::string whole = golden("small.weights"), cfg = golden("small.cfg");
  for (std::size_t n = 0; n < whole.size(); n += n < 64 ? 1 : 61) {
    const std::string part = whole.substr(0, n);
    const auto opened = with(cfg).open(bytes_of(part));
    if (n < 20 || n % 4 != 0) CHECK_FALSE(opened);
    if (opened) read_leaves(*opened, n);
  }
  for (std::size_t i = 0; i < cfg.size(); ++i) {
    for (const int flip : {1, 0x10, 0xff}) {
      std::string damaged = cfg;
      damaged[i] = static_cast<char>(damaged[i] ^ flip);
      const auto opened = with(damaged).open(bytes_of(whole));
      if (opened) read_leaves(*opened, whole.size());
    }
  }
  for (std::size_t i = 0; i < 20; ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 0xff);
    const auto opened = with(cfg).open(bytes_of(damaged));
    if (opened) read_leaves(*opened, whole.size());
  }
}

TEST_CASE("darknet: files are recognized by their header, and only read") {
  const TempDir dir;
  std::filesystem::copy_file(test_data("darknet") + "/small.weights", dir / "thing");
  std::filesystem::copy_file(test_data("darknet") + "/small.cfg", dir / "thing.cfg");
  CHECK(good(stele::open(dir / "thing")).leaf_count() > 10);
  CHECK(code_of(stele::save(Layer{}, dir / "w.weights", quick())) == Errc::unsupported);
}

}  // namespace darknet_test
