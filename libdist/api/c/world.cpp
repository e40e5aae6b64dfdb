// The C functions that make worlds: they check the caller's description of one. No logic.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "amldist/amldist.h"
#include "api/c/guard.hpp"
#include "api/c/handles.hpp"
#include "api/c/world_fabric.hpp"
#include "base/os/environment.hpp"
#include "base/text/text.hpp"
#include "world/wireup/key.hpp"

namespace {

using amldist::Clock;
using amldist::Errc;
using amldist::Error;
using amldist::Result;
using amldist::api::guarded;
using amldist::api::WorldGuard;
using amldist::collective::Communicator;
using amldist::collective::WorldConfig;
using amldist::text::concat;
using amldist::world::Key;
using amldist::world::KeyValueStore;

static_assert(sizeof(amldist_config) == 64 && offsetof(amldist_config, label) == 56,
              "the layout of amldist_config is part of the ABI");
static_assert(sizeof(amldist_store) == 32, "the layout of amldist_store is part of the ABI");

/// The size that programs built with the first headers pass.
constexpr std::size_t config_without_label = offsetof(amldist_config, label);
constexpr std::int32_t highest_port = 65535;
constexpr std::size_t shortest_secret = 32;
constexpr std::size_t longest_name = 128;
constexpr std::size_t longest_value = 4096;

Error wrong(std::string_view function, std::string_view why) {
  return {Errc::invalid_argument, concat({function, ": ", why})};
}

Result<WorldConfig::RankAndSize> to_rank_and_size(const amldist_config& config, std::string_view function) {
  if (config.size < 0 || config.rank < 0 || (config.size == 0 && config.rank != 0)) {
    return wrong(function, concat({"rank=", std::to_string(config.rank), " of size=", std::to_string(config.size),
                                   " is invalid: give both, or 0 for both to take them from the environment"}));
  }
  if (config.size != 0 && config.rank >= config.size) {
    return wrong(function,
                 concat({"rank=", std::to_string(config.rank), " is not below size=", std::to_string(config.size)}));
  }
  return WorldConfig::RankAndSize{static_cast<std::uint32_t>(config.rank), static_cast<std::uint32_t>(config.size)};
}

Result<Key> to_key(std::string_view secret, std::string_view function) {
  if (const auto key = Key::from_hex(secret)) return *key;
  if (secret.size() >= shortest_secret) return Key::from_secret(secret);
  return wrong(function, concat({"the secret has ", std::to_string(secret.size()), " characters: use at least ",
                                 std::to_string(shortest_secret), " that cannot be guessed"}));
}

/// The caller's callbacks, which must not be called after the world is made.
Result<KeyValueStore> to_store(const amldist_store& store, std::string_view function) {
  if (store.struct_size < sizeof(amldist_store)) {
    return wrong(function, "set the store's struct_size to sizeof(amldist_store)");
  }
  if (store.set == nullptr || store.get == nullptr) return wrong(function, "the store lacks set or get");
  const amldist_store callbacks = store;
  KeyValueStore out;
  out.set = [callbacks](const std::string& key, const std::string& value) -> Result<void> {
    const int status = callbacks.set(callbacks.context, key.c_str(), value.data(), value.size());
    if (status == 0) return {};
    return Error{Errc::unavailable, concat({"rank 0's address cannot be written to the caller's store: set() returned ",
                                            std::to_string(status)})};
  };
  out.get = [callbacks](const std::string& key, Clock::time_point deadline) -> Result<std::string> {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    std::string value(longest_value, '\0');
    std::size_t bytes = 0;
    const int status = callbacks.get(callbacks.context, key.c_str(), value.data(), value.size(), &bytes,
                                     static_cast<int>(std::clamp<std::int64_t>(left, 1, INT32_MAX)));
    if (status != 0 || bytes > value.size()) {
      const Errc code = Clock::now() >= deadline ? Errc::timeout : Errc::unavailable;
      return Error{code, concat({"rank 0's address is not in the caller's store: is rank 0 running? (get() returned ",
                                 std::to_string(status), ")"})};
    }
    value.resize(bytes);
    return value;
  };
  return out;
}

/// Checks where the ranks meet.
Result<void> take_place(const amldist_config& config, std::string_view function, WorldConfig& out) {
  if (config.port < 0 || config.port > highest_port) {
    return wrong(function, concat({"port=", std::to_string(config.port), " is not a port: use 1 to 65535, or 0"}));
  }
  out.port = static_cast<std::uint16_t>(config.port);
  if (config.address != nullptr) out.address = config.address;
  if (config.store == nullptr) return {};
  if (out.has_own_place()) return wrong(function, "a store and an address or port are both given: give only one");
  auto store = to_store(*config.store, function);
  if (!store) return store.error();
  out.store = std::move(*store);
  return {};
}

Result<WorldConfig> to_config(const amldist_config* config, std::string_view function) {
  if (config == nullptr) return wrong(function, "the configuration is NULL");
  if (config->struct_size < config_without_label) {
    return wrong(function, "set struct_size to sizeof(amldist_config)");
  }
  const auto own = to_rank_and_size(*config, function);
  if (!own) return own.error();
  WorldConfig out;
  if (own->size != 0) out.rank_and_size = *own;
  if (auto status = take_place(*config, function, out); !status) return status.error();
  if (config->name != nullptr) out.name = config->name;
  if (out.name.size() > longest_name) {
    return wrong(function, concat({"the name has more than ", std::to_string(longest_name), " characters"}));
  }
  const bool has_label = config->struct_size >= sizeof(amldist_config) && config->label != nullptr;
  if (has_label) out.label = config->label;
  if (config->secret == nullptr) return out;
  const auto key = to_key(config->secret, function);
  if (!key) return key.error();
  out.secret = *key;
  return out;
}

Result<std::unique_ptr<Communicator>> make_world(std::chrono::milliseconds timeout, WorldConfig config) {
  const auto environment = amldist::process_environment();
  const auto wanted = amldist::fabric::WorldPolicy::read(environment);
  if (!wanted) return wanted.error();
  auto made = Communicator::init(environment, timeout, std::move(config));
  if (!made) return made.error();
  if (auto status = amldist::api::verify_fabric(**made, *wanted, environment); !status) return status.error();
  return made;
}

Result<void> init(amldist_comm** world, WorldConfig config, int timeout_ms, std::string_view function) {
  if (timeout_ms < 0) return wrong(function, concat({"timeout_ms=", std::to_string(timeout_ms), " is negative"}));
  const std::chrono::milliseconds timeout(timeout_ms);
  if (config.has_own_place()) {
    auto made = make_world(timeout, std::move(config));
    if (!made) return made.error();
    *world = amldist::api::make_handle(std::move(*made));
    return {};
  }
  WorldGuard guard;
  if (!guard.is_taken()) {
    return wrong(function, "this process has a world already: use it, amldist_split() it, or finalize it first");
  }
  auto made = make_world(timeout, std::move(config));
  if (!made) return made.error();
  *world = amldist::api::make_handle(std::move(*made), true);
  guard.keep();
  return {};
}

/// `config` of a call that has one; nullptr: use the environment.
int init_guarded(amldist_comm** world, const amldist_config* config, bool has_config, int timeout_ms,
                 std::string_view function) {
  return guarded([&]() -> Result<void> {
    if (world == nullptr) {
      return Error{Errc::invalid_argument, concat({function, ": the place for the communicator is NULL"})};
    }
    *world = nullptr;
    if (!has_config) return init(world, {}, timeout_ms, function);
    auto parsed = to_config(config, function);
    if (!parsed) return parsed.error();
    return init(world, std::move(*parsed), timeout_ms, function);
  });
}

}  // namespace

int amldist_init(amldist_comm** world, int timeout_ms) {
  return init_guarded(world, nullptr, false, timeout_ms, "amldist_init");
}

int amldist_init_config(amldist_comm** world, const amldist_config* config, int timeout_ms) {
  return init_guarded(world, config, true, timeout_ms, "amldist_init_config");
}

int amldist_init_store(amldist_comm** world, const amldist_store* store, int rank, int size, int timeout_ms) {
  amldist_config config = {};
  config.struct_size = sizeof config;
  config.rank = rank;
  config.size = size;
  config.store = store;
  if (store == nullptr || size < 1) {
    return guarded([&]() -> Result<void> {
      return wrong("amldist_init_store", store == nullptr
                                             ? "the store is NULL"
                                             : concat({"size=", std::to_string(size), " is invalid: give 1 or more"}));
    });
  }
  return init_guarded(world, &config, true, timeout_ms, "amldist_init_store");
}
