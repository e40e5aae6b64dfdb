// The request for a step: the user's --aml-dist, or else the site's default.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/text/result.hpp"
#include "launch/option/spec.hpp"
#include "launch/site/site_policy.hpp"

namespace amldist::spank {

/// The option for programs that cannot give one, such as slurmrestd's clients: used if neither the command line nor
/// sbatch or salloc gave the option.
inline constexpr const char* option_variable = "SLURM_AML_DIST";
/// The same under a name that is not Slurm's, because some clients (snakemake) remove SLURM_* from the environment of
/// what they submit. sbatch and salloc set it where an option holds for the whole job; counts where option_variable is
/// not set.
inline constexpr const char* job_option_variable = "AMLDIST_OPTION";
/// How srun hands the value of job_option_variable to the nodes, also under --export=NONE.
inline constexpr const char* sent_option_variable = "SLURM_AMLDIST_OPTION";

struct StepRequest {
  launch::SitePolicy policy;
  /// The option, parsed when it was given, or its parse error; the last mention wins. nullopt: not given.
  std::optional<Result<launch::Spec>> option;
  const char* variable = nullptr;  ///< whose value `option` is; nullptr: it was given

  /// Takes the value of one of the variables above where the option was not given; an empty value counts as unset.
  void take_variable(const char* name, const std::optional<std::string>& value);

  /// The option; kind none when it was not given.
  [[nodiscard]] Result<launch::Spec> spec() const;
  /// The option, or else the site's default kind for the partition.
  [[nodiscard]] Result<launch::Spec> spec_in_partition(std::string_view partition) const;
  /// An error if the site's settings have a fault: then no step that uses the option may start.
  [[nodiscard]] Result<void> settings_are_usable() const;
  /// Whether no step can be affected: switched off, or neither an option nor a default.
  [[nodiscard]] bool is_idle() const noexcept { return policy.disabled || (!option && policy.default_kind.empty()); }
};

}  // namespace amldist::spank
