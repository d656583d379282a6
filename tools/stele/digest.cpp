#include "digest.hpp"

#include <array>
#include <cstdint>
#include <new>
#include <span>
#include <string>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <xxhash.h>

#include "base/hex.hpp"

namespace stele::command {

namespace {

class Xxh64 final : public facts::Digest {
 public:
  Xxh64() : state_(XXH64_createState()) {
    if (state_ == nullptr) STELE_THROW(std::bad_alloc());
    XXH64_reset(state_.get(), 0);
  }
  void update(std::span<const std::byte> bytes) override { XXH64_update(state_.get(), bytes.data(), bytes.size()); }
  std::string finish() override { return detail::hex(XXH64_digest(state_.get()), 16); }

 private:
  struct Free {
    void operator()(XXH64_state_t* state) const { XXH64_freeState(state); }
  };
  std::unique_ptr<XXH64_state_t, Free> state_;
};

class Evp final : public facts::Digest {
 public:
  Evp() : context_(EVP_MD_CTX_new()) {
    if (context_ == nullptr) STELE_THROW(std::bad_alloc());
  }
  bool begin(const EVP_MD* kind) { return EVP_DigestInit_ex(context_.get(), kind, nullptr) == 1; }
  void update(std::span<const std::byte> bytes) override {
    EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size());
  }
  std::string finish() override {
    std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
    unsigned size = 0;
    EVP_DigestFinal_ex(context_.get(), bytes.data(), &size);
    return detail::hex(std::as_bytes(std::span(bytes)).first(size));
  }

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context_;
};

}  // namespace

Result<std::unique_ptr<facts::Digest>> digest(std::string_view algorithm) {
  if (algorithm == "xxh3") return facts::xxh3();
  if (algorithm == "xxh64") return std::unique_ptr<facts::Digest>(std::make_unique<Xxh64>());
  if (algorithm != "sha1" && algorithm != "sha256") {
    return Error(Errc::unsupported, "no such digest").expected("xxh3, xxh64, sha1 or sha256").found(algorithm);
  }
  // A digest of weights does not depend on the machine's configuration of OpenSSL, which may name missing modules.
  static const int initialized = OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, nullptr);
  static_cast<void>(initialized);
  auto evp = std::make_unique<Evp>();
  if (!evp->begin(algorithm == "sha1" ? EVP_sha1() : EVP_sha256())) {
    return Error(Errc::unsupported, "OpenSSL does not provide the digest").found(algorithm);
  }
  return std::unique_ptr<facts::Digest>(std::move(evp));
}

}  // namespace stele::command
