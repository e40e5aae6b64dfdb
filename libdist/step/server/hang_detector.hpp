// srun under hang=: gathers what the nodes tell of their ranks, and says when a step hangs, and why.
//
// A step hangs when somebody has waited in a call for SECONDS and the same diagnosis
// (trace/diagnosis/hang_diagnosis.hpp) was reached again and again for half that time. So neither a step that computes,
// nor one that was suspended, nor one that is slow but moves, hangs. A node that tells nothing of its ranks gets half a
// minute at least. A rank that is waited for and does something else meanwhile (trace/record/process_activity.hpp) is
// told, and counts as hung only `busy` times later; never where it waits for a reader of its output. While a debugger
// holds a rank of the step, nothing is judged.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/time/clock.hpp"
#include "trace/diagnosis/hang_diagnosis.hpp"
#include "trace/diagnosis/straggler.hpp"

namespace amldist::step {

class HangDetector {
 public:
  /// `tasks`: of the step; where launchers number the ranks (`learns`), the most that there may be. `ends`: the step is
  /// ended when it hangs, so nothing is told twice; else each hang is told, and once more when it has lasted ten times
  /// as long.
  HangDetector(std::uint32_t seconds, std::uint32_t tasks, std::uint32_t busy = 5, bool ends = true,
               bool learns = false)
      : seconds_(seconds), tasks_(tasks), busy_(busy), ends_(ends), learns_(learns), knows_tasks_(!learns) {}

  /// In place of a node's longest wait, while a debugger holds one of its ranks.
  static constexpr std::string_view debugged = "debugged";
  /// The same while none of its ranks has a recorder.
  static constexpr std::string_view unrecorded = "unrecorded";

  /// What a node's longest wait, in milliseconds, calls for: nothing, states, or stacks.
  struct Wish {
    bool states = false;
    std::string stacks = {};  ///< ranks whose stacks are wanted, "2,0"; empty: none
  };
  [[nodiscard]] Wish take_wait(std::string_view text, Clock::time_point now);
  void take_state(std::string_view text, Clock::time_point now);
  void take_stack(std::string_view text);
  void take_cause(std::string_view text);
  void take_shares(std::string_view text, Clock::time_point now);

  /// Takes any message of a node that watches; the reply, empty for none. nullopt: it is about something else.
  [[nodiscard]] std::optional<std::string> take(std::string_view datagram, std::uint64_t token, Clock::time_point now);

  /// Nodes are asked for the states of their ranks, though nobody has waited for long.
  void ask_for_states(Clock::time_point now) noexcept {
    if (!last_look_) last_look_ = now;
  }

  /// When the next look is due; nullopt: when something comes.
  [[nodiscard]] std::optional<Clock::time_point> due() const;

  /// What was found: after the stacks have come, or have not.
  struct Hang {
    bool is_busy = false;  ///< the rank that is waited for does something: no reason to end the step yet
    std::string sentence;  ///< "allreduce #41: rank 2 (local 0) on node2 has not called it for 60 s; 7 ranks wait"
    std::string place;     ///< "train_step at train.py:33": the rank that is waited for; empty: not known, or several
    std::optional<std::uint32_t> rank;  ///< the first that is to blame; nullopt: nothing tells who is
    std::string node;                   ///< its host
    std::string cause;                  ///< what its node says may be why it does not come; empty: nothing
    std::string report;                 ///< the whole: states of all ranks, all stalls, stacks
  };
  [[nodiscard]] std::optional<Hang> look(Clock::time_point now);

  /// The straggler, which all wait for again and again though the step goes on, once: "rank 2 (local 0) on node2: the
  /// others wait for it 61 % of their time, which is 97 % of their waits".
  [[nodiscard]] std::optional<std::string> straggler(Clock::time_point now);

  /// Once, where no rank has had a recorder for long: "hang=60: no rank has recorded a call in the first 60 s, ...".
  [[nodiscard]] std::optional<std::string> unwatched(Clock::time_point now);

 private:
  [[nodiscard]] bool is_fresh(std::size_t state, Clock::time_point now) const;
  [[nodiscard]] bool does_anyone_wait(std::span<const trace::Recording> recordings) const;
  [[nodiscard]] std::chrono::milliseconds age_of_culprits(Clock::time_point now) const;
  [[nodiscard]] std::optional<std::vector<trace::Recording>> fresh_states(Clock::time_point now) const;
  void take_activity(std::size_t state);
  [[nodiscard]] bool is_node_silent(Clock::time_point now) const;
  enum class Culprits : std::uint8_t { idle, unknown, busy, blocked };
  [[nodiscard]] Culprits culprits(Clock::time_point now) const;
  void forget_states();
  void begin_again(std::optional<trace::HangDiagnosis> found, Clock::time_point now);
  [[nodiscard]] bool is_told(std::chrono::milliseconds waited, bool is_busy) const;
  [[nodiscard]] bool have_stacks_come(Clock::time_point now);
  [[nodiscard]] Hang hang(std::chrono::milliseconds waited, bool is_busy, Clock::time_point now) const;
  [[nodiscard]] std::string report() const;
  [[nodiscard]] std::string place() const;

  std::uint32_t seconds_;
  std::uint32_t tasks_;
  std::uint32_t busy_;
  bool ends_;
  bool learns_;       ///< the first state says how many ranks there are
  bool knows_tasks_;  ///< nodes tell of each rank, with a recorder or without
  std::vector<trace::Recording> states_;
  std::vector<Clock::time_point> told_at_;  ///< of each of states_
  /// The totals with which the newest ones are compared, and those that will take their place. Their `runnable` is the
  /// least that was told since.
  struct Marks {
    trace::ActivityTotals mark;
    trace::ActivityTotals next;
  };
  std::vector<Marks> marks_;                                            ///< of each of states_
  std::map<std::pair<std::uint32_t, std::string>, std::size_t> index_;  ///< in states_, by rank and source
  std::map<std::uint32_t, std::string> stacks_;
  std::map<std::uint32_t, std::string> causes_;
  std::optional<trace::HangDiagnosis> diagnosis_;  ///< of states that may have changed since
  std::optional<Clock::time_point> since_;         ///< when the diagnosis was first reached
  std::optional<Clock::time_point> last_look_;
  std::optional<Clock::time_point> asked_at_;       ///< for stacks
  std::string asked_;                               ///< ranks
  std::optional<Clock::time_point> first_wait_at_;  ///< when the first node told something
  bool is_recorded_ = false;  ///< a rank has had a recorder, or the user was told that nothing is recorded
  std::optional<Clock::time_point> held_until_;  ///< a debugger holds a rank, or held it
  struct Told {
    trace::HangDiagnosis diagnosis;  ///< only to be compared: its recordings may be gone
    std::chrono::milliseconds waited;
    bool is_busy;
  };
  std::optional<Told> told_;
  bool over_ = false;
  struct ToldShare {
    trace::OwnWaits waits;
    Clock::time_point at;
  };
  std::map<std::uint32_t, ToldShare> shares_;  ///< by rank
  std::optional<std::uint32_t> straggler_;     ///< that all wait for, since
  std::optional<Clock::time_point> straggler_since_;
  std::optional<Clock::time_point> weighed_at_;  ///< when straggler() last looked
  bool named_ = false;
};

}  // namespace amldist::step
