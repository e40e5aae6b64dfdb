// One start of the step: srun, what happens to its nodes meanwhile, and how it ended.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "aml_dist/keep/node_watch.hpp"
#include "aml_dist/keep/slurm_view.hpp"
#include "base/os/child_process.hpp"
#include "base/os/file_descriptor.hpp"
#include "step/messages/end_record.hpp"

namespace amldist::keep {

/// Signals that keep gets, as it reads them between other things. SIGPIPE is among them: nobody may be left to read
/// what keep says, and it has to tidy up all the same.
class Signals {
 public:
  Signals();
  struct Signal {
    int number;
    bool from_terminal;  ///< then srun has it too
  };
  /// Waits at most this long for another signal than SIGPIPE, or for the end of a child.
  [[nodiscard]] std::optional<Signal> wait(std::chrono::milliseconds limit) const noexcept;

 private:
  FileDescriptor descriptor_;
};

/// Whether the user, or Slurm in the user's name, asks to end.
[[nodiscard]] bool asks_to_end(int signal) noexcept;

struct StartFacts {
  std::string job = {};                      ///< its name for Slurm's commands
  std::vector<std::string> words = {};       ///< srun's
  std::string record = {};                   ///< path of the record of its end
  std::vector<std::string> nodes = {};       ///< of the step
  std::string own_node = {};                 ///< that of this process, which nobody can replace
  std::vector<std::string> allocation = {};  ///< all nodes of the job
  SlurmNumbers slurm = {};
  std::chrono::seconds grace{0};  ///< for the other ranks, after one has failed
  std::string folder = {};        ///< for scontrol's files
};

struct EndOfStart {
  int status = 0;                              ///< of srun
  std::optional<int> signal = {};              ///< with which keep was asked to end
  std::optional<step::EndRecord> record = {};  ///< absent where srun made no step with the option
  std::vector<std::string> gone = {};          ///< nodes that do not answer
  std::string why = {};                        ///< the sentence about them
  std::vector<std::string> idle_gone = {};     ///< nodes that the step did not use, and that are out of the job
  bool is_out = false;                         ///< they are out of the job
  bool still_holds = false;                    ///< Slurm may not have given back what the step used
};

class WatchedStart {
 public:
  /// `say`: a line for the user.
  WatchedStart(StartFacts facts, const Signals& signals, std::function<void(const std::string&)> say);

  /// Runs srun to its end. Errors: not_found, srun cannot be started.
  [[nodiscard]] Result<EndOfStart> run();

 private:
  void take_earlier_signals();
  void take_signal();
  void look_at_machines();
  void look_at_connections();
  void ask_slurmctld();
  void let_idle_nodes_go();
  void look_at_record();
  void end_without(std::vector<std::string> nodes, const std::string& why);
  void find_machines();
  void end_step();
  /// Waits until slurmctld has forgotten the step; false: it has not.
  [[nodiscard]] bool has_gone(const std::string& step) const;
  [[nodiscard]] std::optional<step::EndRecord> read_record() const;
  [[nodiscard]] bool is_due(Clock::time_point& next, std::chrono::seconds every) const;

  StartFacts facts_;
  const Signals& signals_;
  std::function<void(const std::string&)> say_;
  Machines machines_;  ///< whose slurmd took a connection when the step started
  std::optional<SilenceWatch> silence_;
  std::optional<ChildProcess> srun_;
  EndOfStart end_;
  std::set<std::string> connected_;
  bool has_assumed_ = false;  ///< that srun was connected with all nodes
  Clock::time_point began_{};
  Clock::time_point next_look_{};
  Clock::time_point next_question_{};
  std::optional<Clock::time_point> failed_at_;  ///< when the record said that a rank failed
  bool ends_ = false;                           ///< keep ends the step itself
  Clock::time_point next_end_;                  ///< when it asks for that again
};

/// The machines of nodes, as slurmctld knows their addresses.
[[nodiscard]] Machines machines_of(const std::map<std::string, NodeState>& states, std::uint16_t slurmd_port);

/// Those of the nodes of which slurmd does not answer a connection, asked twice.
[[nodiscard]] std::vector<std::string> deaf_slurmds(const Machines& machines);

}  // namespace amldist::keep
