# cmake -D IN=file -D OUT=file.cpp -P embed.cmake: the bytes of a file as stele::detail::nd4j_operators.
file(READ "${IN}" hex HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
file(WRITE "${OUT}" "#include <span>\n\nnamespace stele {\ninline namespace v0 {\nnamespace detail {\n\n"
     "static const unsigned char bytes[] = {${bytes}};\n"
     "extern const std::span<const unsigned char> nd4j_operators;\n"
     "const std::span<const unsigned char> nd4j_operators(bytes);\n\n"
     "}  // namespace detail\n}  // namespace v0\n}  // namespace stele\n")
