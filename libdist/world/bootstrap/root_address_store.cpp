// Rank 0's address over a key-value store of the caller's, such as a process group's in PyTorch.
#include "base/text/text.hpp"
#include "world/bootstrap/store.hpp"

namespace amldist::world {
namespace {

using text::concat;

class StoreRootAddress final : public RootAddress {
 public:
  StoreRootAddress(KeyValueStore store, std::string_view name, PortRanges ports)
      : RootAddress(std::move(ports)), store_(std::move(store)), key_(concat({"amldist/", name, "/rank0"})) {}

  [[nodiscard]] std::string to_string() const override { return "rank 0 by the caller's store"; }
  [[nodiscard]] bool carries_secret() const override { return true; }

  [[nodiscard]] Result<FileDescriptor> publish() override {
    auto listener = listen_within(ports());
    if (!listener) return listener;
    if (auto status = store_.set(key_, addresses_text(*listener, *this)); !status) return status.error();
    return listener;
  }

  [[nodiscard]] Result<std::vector<Endpoint>> look_up(Clock::time_point deadline) override {
    if (!text_.empty()) return endpoints_;
    auto text = store_.get(key_, deadline);
    if (!text) return text.error();
    return take(std::move(*text));
  }

 private:
  /// A store outlives a rank 0 that was killed before the world was formed: its successor sets the key again.
  [[nodiscard]] bool is_replaced(Clock::time_point deadline) override {
    auto text = store_.get(key_, deadline);
    return text && *text != text_ && take(std::move(*text));
  }

  Result<std::vector<Endpoint>> take(std::string text) {
    auto endpoints = endpoints_of(text, *this);
    if (!endpoints) return endpoints;
    text_ = std::move(text);
    endpoints_ = *endpoints;
    return endpoints;
  }

  KeyValueStore store_;
  std::string key_;
  std::string text_;  ///< the text of the endpoints
  std::vector<Endpoint> endpoints_;
};

}  // namespace

std::unique_ptr<RootAddress> root_address_by_store(KeyValueStore store, std::string_view name, PortRanges ports) {
  return std::make_unique<StoreRootAddress>(std::move(store), name, std::move(ports));
}

}  // namespace amldist::world
