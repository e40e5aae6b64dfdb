// What srun, sbatch and salloc know between two callbacks. SPANK calls one after the other: no lock is needed.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spank/server/step_server.hpp"
#include "spank/slurm/step_request.hpp"

namespace amldist::spank {

/// What all three know.
struct SubmitterSession {
  StepRequest request;
  std::vector<std::string> complaints;  ///< what was skipped in the administrator's arguments
  std::string option_text;              ///< the option's last mention, as it was written
  bool option_is_inherited = false;     ///< that mention came from sbatch or salloc, and may be overruled
  bool mentions_differ = false;         ///< the command line mentions the option with different values

  /// Takes the option from the environment where no mention gave it, and hands on what holds for more than this
  /// program: sbatch's and salloc's to the job, srun's to the nodes.
  void take_variables(bool is_srun);

  /// Takes a mention of the option. Does not fail: what is wrong with the text is said by check_option(), since Slurm
  /// would add the whole text to a failure here.
  void take_option(std::string_view text);
};

/// What only srun knows.
struct SrunSession : SubmitterSession {
  bool in_job = false;                    ///< the job was there before this srun, and goes on after its step
  std::size_t program_words = 0;          ///< the step's program and its arguments, once srun has read its command line
  std::vector<std::string> record_files;  ///< that get the record of the step's end
  std::unique_ptr<StepServer> server;     ///< receives the nodes' messages; empty if srun does not listen
};

/// Removes an outer step's SLURM_NTASKS_PER_NODE. In srun, sbatch and salloc, before they read their environment.
void forget_outer_tasks_per_node() noexcept;

/// The option that sbatch or salloc handed on to this srun, nullopt without one. Slurm passes it in a variable whose
/// name ends in the plugin's name and the option's.
[[nodiscard]] std::optional<std::string> inherited_option();

}  // namespace amldist::spank
