// Variables that the plugin sets for libamldist, beside those of the frameworks.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/text/setting.hpp"

namespace amldist::launch {
namespace variable {

inline constexpr std::string_view rdma = "AMLDIST_RDMA";
inline constexpr std::string_view rdma_sku = "AMLDIST_RDMA_SKU";
inline constexpr std::string_view secret = "AMLDIST_SECRET";
inline constexpr std::string_view step_secret = "AMLDIST_STEP_SECRET";
inline constexpr std::string_view stop_file = "AMLDIST_STOP_FILE";
inline constexpr std::string_view stop_signal = "AMLDIST_STOP_SIGNAL";

}  // namespace variable

/// The table, sorted by name.
[[nodiscard]] std::span<const SettingDescription> setting_descriptions() noexcept;

/// Whether to refuse a world that has no secret, or one that others may have read.
enum class SecretPolicy : std::uint8_t { prefer, require };

}  // namespace amldist::launch
