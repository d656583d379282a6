# Writes the bytes of a file as the array stele::detail::NAME:
# cmake -D IN=file -D OUT=file.cpp -D NAME=name -P embed.cmake
file(READ "${IN}" hex HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
file(WRITE "${OUT}" "#include <span>\n\nnamespace stele::inline v0::detail {\n\n"
     "static const unsigned char bytes_of_${NAME}[] = {${bytes}};\n"
     "extern const std::span<const unsigned char> ${NAME};\n"
     "const std::span<const unsigned char> ${NAME}(bytes_of_${NAME});\n\n"
     "}  // namespace stele::inline v0::detail\n")
