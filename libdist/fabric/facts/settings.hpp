// Variables of the fabric's checks: which libraries are opened, and the policy of a world.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/text/setting.hpp"
#include "launch/option/spec.hpp"

namespace amldist::fabric {
namespace variable {

inline constexpr std::string_view cuda_library = "AMLDIST_CUDA";
inline constexpr std::string_view verbs_library = "AMLDIST_LIBIBVERBS";
inline constexpr std::string_view nvml_library = "AMLDIST_NVML";

}  // namespace variable

/// The table, sorted by name.
[[nodiscard]] std::span<const SettingDescription> setting_descriptions() noexcept;

/// The policy by which a world verifies its fabric: AMLDIST_RDMA and AMLDIST_RDMA_SKU, as the plugin sets them.
struct WorldPolicy {
  launch::RdmaPolicy rdma = launch::RdmaPolicy::off;
  std::string sku;  ///< empty if no SKU is named

  /// Errors: invalid_argument, with the variable, its value and the valid values.
  [[nodiscard]] static Result<WorldPolicy> read(const EnvironmentReader& environment);
};

}  // namespace amldist::fabric
