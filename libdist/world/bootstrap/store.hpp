// A key-value store that all ranks of a world reach, given by the caller.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "world/bootstrap/root_address.hpp"

namespace amldist::world {

struct KeyValueStore {
  std::function<Result<void>(const std::string& key, const std::string& value)> set;
  /// Waits until the key has a value. Errors: timeout, or the store's own.
  std::function<Result<std::string>(const std::string& key, Clock::time_point deadline)> get;
};

/// `name` distinguishes worlds that use one store.
[[nodiscard]] std::unique_ptr<RootAddress> root_address_by_store(KeyValueStore store, std::string_view name,
                                                                 PortRanges ports);

}  // namespace amldist::world
