// Variables of the flight recorder.
#pragma once

#include <span>
#include <string_view>

#include "base/text/setting.hpp"

namespace amldist::trace {
namespace variable {

inline constexpr std::string_view nccl_profiler = "AMLDIST_NCCL_PROFILER";
inline constexpr std::string_view trace = "AMLDIST_TRACE";
inline constexpr std::string_view trace_folder = "AMLDIST_TRACE_DIR";

}  // namespace variable

/// The table, sorted by name.
[[nodiscard]] std::span<const SettingDescription> setting_descriptions() noexcept;

}  // namespace amldist::trace
