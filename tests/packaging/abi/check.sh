#!/usr/bin/env bash
# Compares the exported functions and tables of a shared library with the list of the last release, libstele.symbols:
#
#   tests/packaging/abi/check.sh LIBRARY [--update]    # --update writes the list instead
#
# A removed name is an error: programs that were linked with the release need it. Names of detail:: that no public header
# declares are left out: no program refers to them. Names alone do not show changed classes; tools/abi.sh does. A new minor
# version has another soname, so it may remove names, and updates the list.
set -euo pipefail
library=$1
here=$(dirname "$0")
list=$here/libstele.symbols
export LC_ALL=C

words() {  # of the code in the public headers
  find "$here/../../../include/stele" -name '*.hpp' -exec cat {} + | sed -e 's,//.*,,' -e 's/"[^"]*"//g' | grep -oE '[A-Za-z_][A-Za-z0-9_]*' | sort -u
}
public() {  # of the names in stdin
  awk 'NR == FNR { word[$0]; next }
    match($0, /^((vtable|typeinfo|VTT) for )?stele::(precision_)?detail::[A-Za-z0-9_:~]+/) {
      count = split(substr($0, RSTART, RLENGTH), part, /[:~]+/)
      for (i = 3; i <= count; ++i) if (part[i] != "" && !(part[i] in word)) next
    }
    { print }' <(words) -
}
exported() {  # without inline functions, which each program has itself, and without those of the standard library
  nm -D --defined-only -C "$library" | awk '$2 ~ /^[TDBRV]$/ { sub(/^[0-9a-f]+ . /, ""); print }' | grep -E '^(vtable for |typeinfo for |VTT for )?stele::' |
    sed -e 's/std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >/std::string/g' \
        -e 's/std::basic_string_view<char, std::char_traits<char> >/std::string_view/g' -e 's/, 18446744073709551615ul>/>/g' \
        -e 's/stele::v0::/stele::/g' | sort -u | public
}

if [ "${2:-}" = --update ]; then
  exported >"$list"
  wc -l "$list"
else
  removed=$(comm -23 "$list" <(exported))
  echo "abi: $(comm -13 "$list" <(exported) | wc -l) names added since $list"
  if [ -n "$removed" ]; then
    printf '%s\n' "$removed" >&2
    echo "abi: the names above are missing: keep them, or raise the minor version and update the list (docs/release.md#the-soname)" >&2
    exit 1
  fi
fi
