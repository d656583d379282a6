// MessagePack as rmp-serde writes it, with named fields.
#include "leaves/source_range.hpp"
#include "tokens.hpp"

namespace stele::inline v0::detail::burn {
namespace {

class MpkReader final : public TokenReader {
 public:
  explicit MpkReader(SourcePtr source) : in_(std::move(source)) {}
  Status next(Token& token) override { return in_.next(token); }
  std::unique_ptr<TokenReader> clone() const override { return std::make_unique<MpkReader>(*this); }
  Provider provider(const Token& bytes) const override { return {&source_ops, in_.source().get(), bytes.at}; }
  std::shared_ptr<const void> keeper() const override { return in_.source(); }

 private:
  msgpack::Reader in_;
};

class MpkWriter final : public TokenWriter {
 public:
  MpkWriter(LeafGather* gather, ReadContext& context, std::uint64_t& size)
      : out_(gather), gather_(gather), context_(context), size_(size) {}

  Status begin_map(std::size_t entries) override { return out_.begin_map(entries); }
  Status key(std::string_view name) override { return out_.text(name); }
  Status begin_list(std::size_t entries) override { return out_.begin_list(entries); }
  Status end() override { return {}; }
  Status nil() override { return out_.nil(); }
  Status unit() override { return out_.begin_list(0); }
  Status value(const Value& value) override { return out_.value(value); }
  Status bytes(const LeafView& leaf) override {
    STELE_TRY(out_.begin_bytes(leaf.byte_size()));
    return gather_ != nullptr ? gather_->leaf(leaf, context_) : Status();
  }
  Status finish() override {
    size_ = out_.size();
    return {};
  }

 private:
  msgpack::Writer out_;
  LeafGather* gather_;
  ReadContext& context_;
  std::uint64_t& size_;
};

}  // namespace

std::unique_ptr<TokenReader> mpk_reader(SourcePtr source) { return std::make_unique<MpkReader>(std::move(source)); }

std::unique_ptr<TokenWriter> mpk_writer(LeafGather* gather, ReadContext& context, std::uint64_t& size) {
  return std::make_unique<MpkWriter>(gather, context, size);
}

}  // namespace stele::inline v0::detail::burn
