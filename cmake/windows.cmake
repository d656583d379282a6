# Toolchain for 64-bit Windows: Debian's MinGW compiler with POSIX threads, libraries that tools/cross_deps.sh built, Wine
# to run. Programs contain the compiler's libraries, so they need no DLLs but those of Windows.
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR AMD64)
set(CMAKE_C_COMPILER x86_64-w64-mingw32-gcc-posix)
set(CMAKE_CXX_COMPILER x86_64-w64-mingw32-g++-posix)
set(CMAKE_RC_COMPILER x86_64-w64-mingw32-windres)
set(CMAKE_EXE_LINKER_FLAGS_INIT -static)
get_filename_component(CMAKE_FIND_ROOT_PATH "${CMAKE_CURRENT_LIST_DIR}/../build/windows/sysroot" ABSOLUTE)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(OPENSSL_USE_STATIC_LIBS ON)  # links the libraries of Windows that libcrypto needs

# Debian's package wine64 installs its program outside PATH. `wine` is a script, which writes to stderr if only the 64-bit
# program is installed.
find_program(STELE_WINE NAMES wine64 wine PATHS /usr/lib/wine)
mark_as_advanced(STELE_WINE)
if(STELE_WINE)
  set(CMAKE_CROSSCOMPILING_EMULATOR env WINEDEBUG=-all "${STELE_WINE}")
endif()
