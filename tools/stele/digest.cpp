#include "digest.hpp"

#include <array>
#include <cstdint>
#include <cstdio>
#include <new>
#include <utility>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <xxhash.h>

#include "base/hex.hpp"

namespace stele::command {

struct Digest::State {
  const EVP_MD* kind = nullptr;
  EVP_MD_CTX* context = nullptr;
  XXH3_state_t* xxh3 = nullptr;
  XXH64_state_t* xxh64 = nullptr;

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    EVP_MD_CTX_free(context);
    XXH3_freeState(xxh3);
    XXH64_freeState(xxh64);
  }
  bool reset() const {
    if (xxh3 != nullptr) XXH3_64bits_reset(xxh3);
    if (xxh64 != nullptr) XXH64_reset(xxh64, 0);
    return context == nullptr || EVP_DigestInit_ex(context, kind, nullptr) == 1;
  }
};

Digest::Digest(std::unique_ptr<State> state) : state_(std::move(state)) {}
Digest::Digest(Digest&&) noexcept = default;
Digest& Digest::operator=(Digest&&) noexcept = default;
Digest::~Digest() = default;

Result<Digest> Digest::make(std::string_view algorithm) {
  auto state = std::make_unique<State>();
  if (algorithm == "xxh3") {
    state->xxh3 = XXH3_createState();
  } else if (algorithm == "xxh64") {
    state->xxh64 = XXH64_createState();
  } else if (algorithm == "sha1" || algorithm == "sha256") {
    // A digest of weights does not depend on the machine's configuration of OpenSSL, which may name missing modules.
    static const int initialized = OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, nullptr);
    static_cast<void>(initialized);
    state->kind = algorithm == "sha1" ? EVP_sha1() : EVP_sha256();
    state->context = EVP_MD_CTX_new();
  } else {
    return Error(Errc::unsupported, "no such digest").expected("xxh3, xxh64, sha1 or sha256").found(algorithm);
  }
  if (state->xxh3 == nullptr && state->xxh64 == nullptr && state->context == nullptr) STELE_THROW(std::bad_alloc());
  if (!state->reset()) return Error(Errc::unsupported, "OpenSSL does not provide the digest").found(algorithm);
  return Digest(std::move(state));
}

void Digest::update(std::span<const std::byte> bytes) {
  if (state_->xxh3 != nullptr) XXH3_64bits_update(state_->xxh3, bytes.data(), bytes.size());
  if (state_->xxh64 != nullptr) XXH64_update(state_->xxh64, bytes.data(), bytes.size());
  if (state_->context != nullptr) EVP_DigestUpdate(state_->context, bytes.data(), bytes.size());
}

std::string Digest::finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned size = 8;
  if (state_->context != nullptr) {
    EVP_DigestFinal_ex(state_->context, bytes.data(), &size);
  } else {
    const std::uint64_t hash = state_->xxh3 != nullptr ? XXH3_64bits_digest(state_->xxh3) : XXH64_digest(state_->xxh64);
    for (unsigned i = 0; i < size; ++i) bytes.at(i) = static_cast<unsigned char>(hash >> (56 - 8 * i));
  }
  static_cast<void>(state_->reset());  // it worked before
  return detail::hex(std::as_bytes(std::span(bytes)).first(size));
}

}  // namespace stele::command
