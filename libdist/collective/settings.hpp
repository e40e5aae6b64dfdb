// The variables that configure a world's collectives, beside those of the world itself.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/text/setting.hpp"
#include "collective/kernels/instruction_set.hpp"
#include "world/settings.hpp"

namespace amldist::collective {
namespace variable {

inline constexpr std::string_view instruction_set = "AMLDIST_ISA";
inline constexpr std::string_view nccl_library = "AMLDIST_NCCL";
inline constexpr std::string_view single_copy = "AMLDIST_SINGLE_COPY";

}  // namespace variable

/// The table, sorted by name.
[[nodiscard]] std::span<const SettingDescription> setting_descriptions() noexcept;

/// Long messages of a node in a single copy: never, if that is faster, or also reductions of ranks that are near.
enum class SingleCopyPolicy : std::uint8_t { off, on, always };

/// The settings of a communicator.
struct Settings {
  world::Settings world;
  InstructionSet instruction_set = InstructionSet::avx512;  ///< the highest that reductions may use
  SingleCopyPolicy single_copy = SingleCopyPolicy::on;
  std::string nccl_library;  ///< empty: the one that the process has loaded, else libnccl.so.2
  std::string trace_folder;  ///< "off", "none" or a path; empty: the user's folder in /dev/shm

  /// Errors: invalid_argument, with the variable, its value and the valid values.
  [[nodiscard]] static Result<Settings> read(const EnvironmentReader& environment);
};

}  // namespace amldist::collective
