// Pickles as text, for the tests of pickles.
#pragma once

#include <doctest/doctest.h>

#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "encodings/pickle/pickle.hpp"
#include "stele/source.hpp"

namespace stele_test::pickles {

using namespace std::string_literals;
using namespace stele;
namespace pickle = stele::detail::pickle;
using pickle::Kind;
using pickle::Objects;
using pickle::Ref;

/// Returns a budget that admits a pickle of that size.
inline detail::IndexBudget budget(std::size_t size) {
  return detail::IndexBudget(Limits{}, size, detail::index_rate::token);
}

inline Result<Objects> read(std::string_view bytes) {
  detail::Cursor in(borrow_bytes(std::as_bytes(std::span(bytes))));
  auto memory = budget(bytes.size());
  return pickle::read(in, memory);
}

inline std::string hex(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    out += two;
  }
  return out;
}

/// The same list, of everything that the operations of each protocol make, by CPython 3.11.2: pickle.dumps(all, n) with
/// shared = ["s"]; own = [1]; own.append(own)
/// all = [None, True, False, 1, 300, -1, 70000, 2**40, -2**63, 2**63, 1.5, "a", "\u00e9", b"\0\xff", b"",
/// bytearray(b"z"),
///        bytearray(), (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), {}, {"k": 1, "l": 2}, {"m": 3}, {1}, frozenset([2]),
///        OrderedDict(a=1, b=2), Counter("aab"), defaultdict(list, x=[5]), complex(1, 2), shared, shared, own]
constexpr std::string_view golden2 =
    "80025d7100284e88894b014d2c014affffffff4a701101008a060000000000018a0800000000000000808a09000000000000008000473ff8"
    "00000000000058010000006171015802000000c3a97102635f636f646563730a656e636f64650a7103580300000000c3bf71045806000000"
    "6c6174696e317105867106527107635f5f6275696c74696e5f5f0a62797465730a710829527109635f5f6275696c74696e5f5f0a62797465"
    "61727261790a710a680358010000007a710b680586710c52710d85710e52710f680a29527110294b018571114b014b028671124b014b024b"
    "03877113284b014b024b034b047471147d71157d71162858010000006b71174b0158010000006c71184b02757d711958010000006d711a4b"
    "0373635f5f6275696c74696e5f5f0a7365740a711b5d711c4b016185711d52711e635f5f6275696c74696e5f5f0a66726f7a656e7365740a"
    "711f5d71204b026185712152712263636f6c6c656374696f6e730a4f726465726564446963740a7123295271242868014b01580100000062"
    "71254b027563636f6c6c656374696f6e730a436f756e7465720a71267d71272858010000006171284b0258010000006271294b017585712a"
    "52712b63636f6c6c656374696f6e730a64656661756c74646963740a712c635f5f6275696c74696e5f5f0a6c6973740a712d85712e52712f"
    "58010000007871305d71314b056173635f5f6275696c74696e5f5f0a636f6d706c65780a7132473ff0000000000000474000000000000000"
    "8671335271345d713558010000007371366168355d7137284b01683765652e";
constexpr std::string_view golden3 =
    "80035d7100284e88894b014d2c014affffffff4a701101008a060000000000018a0800000000000000808a09000000000000008000473ff8"
    "00000000000058010000006171015802000000c3a97102430200ff710343007104636275696c74696e730a6279746561727261790a710543"
    "017a7106857107527108680529527109294b0185710a4b014b0286710b4b014b024b0387710c284b014b024b034b0474710d7d710e7d710f"
    "2858010000006b71104b0158010000006c71114b02757d711258010000006d71134b0373636275696c74696e730a7365740a71145d71154b"
    "0161857116527117636275696c74696e730a66726f7a656e7365740a71185d71194b026185711a52711b63636f6c6c656374696f6e730a4f"
    "726465726564446963740a711c2952711d2868014b01580100000062711e4b027563636f6c6c656374696f6e730a436f756e7465720a711f"
    "7d71202858010000006171214b0258010000006271224b017585712352712463636f6c6c656374696f6e730a64656661756c74646963740a"
    "7125636275696c74696e730a6c6973740a712685712752712858010000007871295d712a4b056173636275696c74696e730a636f6d706c65"
    "780a712b473ff000000000000047400000000000000086712c52712d5d712e580100000073712f61682e5d7130284b01683065652e";
constexpr std::string_view golden4 =
    "80049567010000000000005d94284e88894b014d2c014affffffff4a701101008a060000000000018a0800000000000000808a0900000000"
    "0000008000473ff80000000000008c0161948c02c3a994430200ff944300948c086275696c74696e73948c09627974656172726179949394"
    "43017a94859452946807295294294b0185944b014b0286944b014b024b038794284b014b024b034b0474947d947d94288c016b944b018c01"
    "6c944b02757d948c016d944b03738f94284b0190284b0291948c0b636f6c6c656374696f6e73948c0b4f7264657265644469637494939429"
    "52942868014b018c0162944b027568188c07436f756e7465729493947d94288c0161944b028c0162944b01758594529468188c0b64656661"
    "756c746469637494939468058c046c697374949394859452948c0178945d944b05617368058c07636f6d706c6578949394473ff000000000"
    "0000474000000000000000869452945d948c0173946168305d94284b01683265652e";
constexpr std::string_view golden5 =
    "8005955f010000000000005d94284e88894b014d2c014affffffff4a701101008a060000000000018a0800000000000000808a0900000000"
    "0000008000473ff80000000000008c0161948c02c3a994430200ff944300949601000000000000007a9496000000000000000094294b0185"
    "944b014b0286944b014b024b038794284b014b024b034b0474947d947d94288c016b944b018c016c944b02757d948c016d944b03738f9428"
    "4b0190284b0291948c0b636f6c6c656374696f6e73948c0b4f726465726564446963749493942952942868014b018c0162944b027568138c"
    "07436f756e7465729493947d94288c0161944b028c0162944b01758594529468138c0b64656661756c74646963749493948c086275696c74"
    "696e73948c046c697374949394859452948c0178945d944b05617368218c07636f6d706c6578949394473ff0000000000000474000000000"
    "000000869452945d948c01739461682c5d94284b01682e65652e";
constexpr std::string_view goldens[] = {golden2, golden3, golden4, golden5};

inline std::string unhex(std::string_view digits) {
  std::string out;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    out.push_back(static_cast<char>(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16)));
  }
  return out;
}

/// Writes an object like Python's repr(): bytes and big integers as b<hex> and i<hex>, an object as
/// `module.name(args)[items]{entries}|state`, a persistent id as @id. An object inside itself is "...".
class Shower {
 public:
  explicit Shower(const Objects& objects) : objects_(objects), open_(objects.size()) {}
  std::string show(Ref r) {
    if (open_[r]) return "...";
    open_[r] = true;
    std::string out = text(r);
    open_[r] = false;
    return out;
  }

 private:
  std::string text(Ref r) {
    const Objects& o = objects_;
    switch (o.kind(r)) {
      case Kind::none:
        return "None";
      case Kind::boolean:
        return o.boolean(r) ? "True" : "False";
      case Kind::integer:
        return std::to_string(o.integer(r));
      case Kind::big:
        return "i" + hex(o.text(r));
      case Kind::real: {
        char number[40];
        std::snprintf(number, sizeof number, "%.17g", o.real(r));
        return "f" + std::string(number);
      }
      case Kind::string:
        return "'" + std::string(o.text(r)) + "'";
      case Kind::bytes:
        return "b" + hex(o.text(r));
      case Kind::list:
        return "[" + list(o.items(r)) + "]";
      case Kind::tuple:
        return "(" + list(o.items(r)) + ")";
      case Kind::dict: {
        std::string out;
        if (o.callable(r) != pickle::no_ref) out = show(o.callable(r));
        if (o.args(r) != pickle::no_ref) out += show(o.args(r));
        return out + "{" + pairs(o.items(r)) + "}" + state(r);
      }
      case Kind::set:
        return "set[" + list(o.items(r)) + "]";
      case Kind::global:
        return std::string(o.module(r)) + "." + std::string(o.name(r));
      case Kind::object: {
        std::string out = show(o.callable(r)) + show(o.args(r));
        if (!o.items(r).empty()) out += "[" + list(o.items(r)) + "]";
        if (!o.entries(r).empty()) out += "{" + pairs(o.entries(r)) + "}";
        return out + state(r);
      }
      case Kind::persistent:
        return "@" + show(o.args(r));
    }
    return {};
  }
  std::string state(Ref r) { return objects_.state(r) == pickle::no_ref ? "" : "|" + show(objects_.state(r)); }
  std::string list(std::span<const Ref> items) {
    std::string out;
    for (const Ref item : items) out += (out.empty() ? "" : ", ") + show(item);
    return out;
  }
  std::string pairs(std::span<const Ref> items) {
    std::string out;
    for (std::size_t i = 0; i < items.size(); i += 2) {
      out += (i == 0 ? "" : ", ") + show(items[i]) + ": " + show(items[i + 1]);
    }
    return out;
  }

  const Objects& objects_;
  std::vector<bool> open_;
};

inline std::string show(const Objects& objects, Ref r) { return Shower(objects).show(r); }
/// Returns what a pickle contains, or the error's code and offset.
inline std::string show(std::string_view bytes) {
  const auto objects = read(bytes);
  if (objects) return show(*objects, objects->root());
  const Error& e = objects.error();
  return std::string(name(e.code())) + " at " + (e.offset() ? std::to_string(*e.offset()) : "?");
}

}  // namespace stele_test::pickles
