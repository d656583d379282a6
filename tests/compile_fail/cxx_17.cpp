#include <stele/stele.hpp>
// FLAGS: -std=c++17
// EXPECT-FIRST: stele needs C\+\+20: compile with -std=c\+\+20
// LINES-GCC: 12
// LINES-CLANG: 12
