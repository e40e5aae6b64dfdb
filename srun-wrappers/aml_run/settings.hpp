// Variables of aml-run.
#pragma once

#include <span>
#include <string_view>

#include "base/text/setting.hpp"

namespace amldist::run {
namespace variable {

inline constexpr std::string_view instance_types = "AMLDIST_INSTANCE_TYPES";

}  // namespace variable

/// The table, sorted by name.
[[nodiscard]] std::span<const SettingDescription> setting_descriptions() noexcept;

}  // namespace amldist::run
