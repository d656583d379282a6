// Regular expressions of foreign configurations. The expected results are those of Python 3.11's re.
#include <doctest/doctest.h>

#include <string>

#include "base/regex.hpp"

namespace regex_test {

using stele::detail::regex::Regex;

TEST_CASE("regular expressions of configurations match as Python's do") {
  struct Row {
    const char *expression, *text;
    bool beginning, part;  // re.match, re.search
  };
  const Row rows[] = {
      {R"(.*down_proj)", "model.layers.0.mlp.down_proj", true, true},
      {R"(.*mlp\.gate$)", "model.layers.0.mlp.gate_proj", false, false},
      {R"(.*mlp\.gate$)", "model.layers.0.mlp.gate", true, true},
      {R"(mlp\.gate)", "model.layers.0.mlp.gate_proj", false, true},
      {R"(model\.layers\.(0|1|2)\..*)", "model.layers.10.x", false, false},
      {R"(model\.layers\.(?:0|1|2)\..*)", "model.layers.2.x", true, true},
      {R"(.*\.(q|k|v)_proj$)", "a.v_proj", true, true},
      {R"(.*\.[qkv]_proj)", "a.o_proj", false, false},
      {R"(.*layers\.\d+\.)", "x.layers.12.", true, true},
      {R"(.*layers\.[0-9]{1,2}$)", "layers.123", false, false},
      {R"(.*layers\.[0-9]{2,}$)", "layers.123", true, true},
      {R"([^.]+\.[^.]+$)", "a.b.c", false, true},
      {R"(a*?b)", "aaab", true, true},
      {R"(()*x)", "x", true, true},
      {R"((a|)+$)", "aab", false, true},
      {R"((a*)*b)", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac", false, false},
      {R"(\bq\b)", "a.q.b", false, true},
      {R"(\w+$)", "a.b", false, true},
      {R"(a.b$)",
       "a\xC3\xA9"
       "b",
       true, true},
      {R"(a[]-]b)", "a-b", true, true},
      {R"(^$)", "", true, true},
      {R"(x)", "", false, false},
      {R"()", "abc", true, true},
      {R"(a$|b)", "cb", false, true},
  };
  for (const Row& row : rows) {
    CAPTURE(row.expression);
    CAPTURE(row.text);
    const auto regex = Regex::compile(row.expression);
    REQUIRE(regex);
    CHECK(regex->matches_beginning(row.text) == row.beginning);
    CHECK(regex->matches_part(row.text) == row.part);
  }
}

TEST_CASE("regular expressions of configurations with other syntax are refused") {
  for (const char* const expression : {"(?!a)",
                                       "(?=a)",
                                       "(?<=a)b",
                                       "(?i)a",
                                       "(?P<n>a)",
                                       R"((a)\1)",
                                       "*a",
                                       "a**",
                                       "a*+",
                                       "a{2}{3}",
                                       "a{,3}",
                                       "a{3,2}",
                                       "(",
                                       ")",
                                       "(a",
                                       "[a",
                                       "[b-a]",
                                       "[[:alpha:]]",
                                       "a{99999}",
                                       R"(\p{L})",
                                       R"(\x41)",
                                       "\\",
                                       "\xC3\xA9",
                                       "^*",
                                       "((((((((((((((((((((((((((((((((((((a))))))))))))))))))))))))))))))))))))",
                                       "(a{100}){100}",
                                       "((a{1000}){1000}){1000}"}) {
    CAPTURE(expression);
    CHECK_FALSE(Regex::compile(expression));
  }
  CHECK_FALSE(Regex::compile(std::string(5000, 'a')));
}

TEST_CASE("regular expressions of configurations cannot make a match slow") {
  const std::string text(2000, 'a');  // an exponential match would never end
  for (const char* const expression : {"(a*)*b", "(a|a)*b", "(a|aa)+$b", "(.*)*(.*)*b", "a{1,500}a{1,500}b"}) {
    CAPTURE(expression);
    const auto regex = Regex::compile(expression);
    REQUIRE(regex);
    CHECK_FALSE(regex->matches_part(text));
  }
}

}  // namespace regex_test
