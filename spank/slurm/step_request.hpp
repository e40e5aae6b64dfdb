// What a step is to be: what the user asked for with --aml-dist, and what the site does where he asked for nothing.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/text/result.hpp"
#include "launch/option/spec.hpp"
#include "launch/site/site_policy.hpp"

namespace amldist::spank {

/// The option for programs that cannot give one, such as slurmrestd's clients: counts where neither the command line
/// nor sbatch or salloc gave the option.
inline constexpr const char* option_variable = "SLURM_AML_DIST";

struct StepRequest {
  launch::SitePolicy policy;
  /// The option, parsed when it was given, or why it cannot be parsed; the last mention wins. nullopt: not given.
  std::optional<Result<launch::Spec>> option;
  bool is_from_variable = false;  ///< `option` is the value of option_variable

  /// Takes the value of option_variable where the option was not given; an empty value counts as none.
  void take_variable(const std::optional<std::string>& value);

  /// The option; kind none when it was not given.
  [[nodiscard]] Result<launch::Spec> spec() const;
  /// The option, or without one the site's default kind for the partition.
  [[nodiscard]] Result<launch::Spec> spec_in_partition(std::string_view partition) const;
  /// An error where the site's settings have a fault: then no step that uses the option may start.
  [[nodiscard]] Result<void> settings_are_usable() const;
  /// Whether no step can concern us: switched off, or neither an option nor a default.
  [[nodiscard]] bool is_idle() const noexcept { return policy.disabled || (!option && policy.default_kind.empty()); }
};

}  // namespace amldist::spank
