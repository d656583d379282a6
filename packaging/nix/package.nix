# packaging/fill.py replaces the owner, the version and the hash.
{
  lib,
  stdenv,
  fetchFromGitHub,
  boost,
  cli11,
  cmake,
  curl,
  flatbuffers,
  libdeflate,
  libhwy,
  ninja,
  openssl,
  protobuf,
  re2,
  xxhash,
  zlib,
  zstd,
}:

stdenv.mkDerivation (finalAttrs: {
  pname = "stele";
  version = "@VERSION@";

  src = fetchFromGitHub {
    owner = "@OWNER@";
    repo = "stele";
    tag = "v${finalAttrs.version}";
    hash = lib.fakeHash;
  };

  nativeBuildInputs = [
    cmake
    flatbuffers
    ninja
    protobuf
  ];

  buildInputs = [
    cli11
    curl
    flatbuffers
    libdeflate
    libhwy
    openssl
    protobuf
    re2
    xxhash
    zlib
    zstd
  ];

  # The public headers include Boost.
  propagatedBuildInputs = [ boost ];

  cmakeFlags = [
    (lib.cmakeBool "BUILD_SHARED_LIBS" true)
    (lib.cmakeBool "CMAKE_FIND_PACKAGE_PREFER_CONFIG" true)
    (lib.cmakeBool "STELE_DEV" false)
    (lib.cmakeBool "STELE_EXAMPLES" false)
    (lib.cmakeBool "STELE_TESTS" false)
  ];

  meta = {
    description = "Saves and loads machine-learning models as C++ structs";
    homepage = "https://github.com/@OWNER@/stele";
    license = lib.licenses.mit;
    mainProgram = "stele";
    platforms = lib.platforms.unix;
  };
})
