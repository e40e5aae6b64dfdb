// Finds out who is missing when a call has reached its deadline, and tells all ranks. Used by the control thread only.
//
//   a call's deadline passes  --report-->  the rank above in the communicator's tree, and so on to the root
//   root  --query-->  the ranks below, and so on  --status-->  back up, merged: ranks in one state share one entry
//   root  --diagnosis-->  down the tree: the communicator is lost, with the sentence; the root alone prints it
//
// Who gets a report, a query or a diagnosis says at once that it has heard. A rank that does not is left out of the
// tree: the ranks around it turn to those beyond, and it is asked by itself. So a leader or a root that is stopped
// hides nobody. Those left out travel with every frame, so that the others need not find out again.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/time/observed_time.hpp"
#include "world/control/comm_tree.hpp"
#include "world/control/comm_watch.hpp"
#include "world/control/control_frame.hpp"
#include "world/control/diagnosis.hpp"
#include "world/control/merged_states.hpp"

namespace amldist::world {

/// What the failure detector needs of its process.
class FailureDetectorHost {
 public:
  virtual ~FailureDetectorHost() = default;
  FailureDetectorHost() = default;
  FailureDetectorHost(const FailureDetectorHost&) = delete;
  FailureDetectorHost& operator=(const FailureDetectorHost&) = delete;

  [[nodiscard]] virtual std::uint32_t rank() const noexcept = 0;
  [[nodiscard]] virtual std::uint32_t size() const noexcept = 0;
  [[nodiscard]] virtual const RankTable& table() const noexcept = 0;
  /// How the process ended; nullopt: as far as is known, it runs.
  [[nodiscard]] virtual std::optional<Liveness> end_of(std::uint32_t world_rank) const noexcept = 0;
  /// The ranks whose end_of() is known, in the order in which it became known.
  [[nodiscard]] virtual std::span<const std::uint32_t> ended() const noexcept = 0;
  virtual void send_to(std::uint32_t world_rank, const std::string& frame) = 0;
  /// Prints a sentence.
  virtual void say(const std::string& sentence) = 0;
  [[nodiscard]] virtual Clock::time_point now() const { return Clock::now(); }
};

/// Why a communicator is lost.
struct LossReason {
  Error error;
  std::vector<std::uint32_t> silent;  ///< ranks of the communicator that did not answer: a shrink leaves them out
  ErrorSubject subject;
};

class FailureDetector {
 public:
  explicit FailureDetector(FailureDetectorHost& host) : host_(host) {}

  /// A call of this rank came to its deadline.
  void open(const std::shared_ptr<CommWatch>& watch, const DiagnosisTrigger& trigger, std::chrono::milliseconds grace);
  /// Gives a communicator up on all its ranks.
  void announce(const std::shared_ptr<CommWatch>& watch, const Error& diagnosis, bool print);

  // Frames of another rank, behind the communicator's number; `watch` nullptr: it is not here.
  void on_report(std::uint32_t from, const std::shared_ptr<CommWatch>& watch, Frame& frame);
  void on_query(std::uint32_t from, std::uint64_t id, const std::shared_ptr<CommWatch>& watch, Frame& frame);
  void on_status(std::uint32_t from, std::uint64_t id, Frame& frame);
  void on_pair_counts(std::uint32_t from, std::uint64_t id, Frame& frame);
  void on_diagnosis(std::uint32_t from, const std::shared_ptr<CommWatch>& watch, Frame& frame);
  void on_heard(std::uint32_t from, std::uint64_t id, Frame& frame);

  /// Whether a diagnosis says of a rank of the world that it does not answer: what it is sent may never arrive. One
  /// that was only left out of a tree may be late for a moment, and waits for the diagnosis.
  [[nodiscard]] bool is_silent(std::uint32_t world_rank) const { return silent_.contains(world_rank); }
  /// Whether a diagnosis is on its way to neighbours that have not said yet that they have it.
  [[nodiscard]] bool is_telling() const noexcept { return !spreading_.empty(); }
  /// Does what is due now.
  void poll();
  /// When poll() has something to do, at the latest; max(): never.
  [[nodiscard]] Clock::time_point next_poll() const;

 private:
  using Ranks = std::set<std::uint32_t>;  // of the world

  /// A rank that was asked.
  struct Asked {
    Clock::time_point since;
    bool alone = false;  ///< for itself only: the ranks below it are asked by others
    bool heard = false;
    bool answered = false;
  };
  struct Case {
    std::shared_ptr<CommWatch> watch;
    std::shared_ptr<const CommTree> tree;
    std::optional<DiagnosisTrigger> trigger;
    std::chrono::milliseconds grace{};
    Ranks silent;  ///< left out of the tree

    std::optional<std::uint32_t> told;  ///< the rank above that got the report
    Clock::time_point told_at;
    bool is_heard = false;

    bool is_root = false;
    std::optional<std::uint32_t> asker;  ///< the rank above that wants to know
    std::uint64_t round = 0;
    Clock::time_point until;  ///< then what has come must do
    Clock::time_point asked_at;
    Clock::time_point answered_at;  ///< when the last answer came
    std::map<std::uint32_t, Asked> asked;
    MergedStates answers;
    MergedStates before;  ///< of the round before
    bool is_answered = false;

    std::set<std::uint32_t> witnesses;  ///< ranks of the communicator whose pair counts are wanted
    std::map<std::uint32_t, PairCounts> pairs;
    std::size_t gone = 0;  ///< members that had ended at gone_at, when there were new ones last
    Clock::time_point gone_at;
  };
  /// A diagnosis on its way.
  struct Spreading {
    std::shared_ptr<CommWatch> watch;
    std::shared_ptr<const CommTree> tree;
    LossReason diagnosis;
    Ranks silent;  ///< left out of the tree
    Ranks told;
    std::map<std::uint32_t, Clock::time_point> waits_for;  ///< who has not heard, since when
  };

  [[nodiscard]] Case* find(std::uint64_t id);
  Case& case_of(const std::shared_ptr<CommWatch>& watch);
  [[nodiscard]] CommTree::IsOut out_of(const Ranks& silent) const;
  static void leave_out(const CommTree& tree, Ranks& silent, std::uint32_t rank);
  void allow_for_a_stop();
  void watch_own_lag();
  [[nodiscard]] Clock::duration with_lag(std::chrono::milliseconds time) const noexcept;
  void rise(Case& current);
  void coordinate(Case& current);
  void ask(Case& current);
  void ask_those_below(Case& current);
  void ask_one(Case& current, std::uint32_t rank, bool alone);
  void poll_rising(Case& current);
  void poll_asking(Case& current);
  [[nodiscard]] bool is_complete(const Case& current) const;
  [[nodiscard]] bool is_time_up(const Case& current) const;
  [[nodiscard]] bool have_all_answered(const Case& current) const;
  void finish_round(Case& current);
  void send_up(Case& current, const MergedStates& states);
  [[nodiscard]] static bool must_ask_again(const Case& current);
  [[nodiscard]] bool must_ask_for_pairs(Case& current);
  [[nodiscard]] std::vector<RankState> states_of(const Case& current) const;
  [[nodiscard]] bool is_settling(Case& current) const;
  void conclude(Case& current);
  void spread(const std::shared_ptr<CommWatch>& watch, const LossReason& diagnosis, Ranks left_out, std::uint32_t from);
  void tell(Spreading& spreading, std::uint32_t from);
  void say_once(const std::string& sentence);
  void send_heard(std::uint32_t to, std::uint64_t id, FrameKind what);
  [[nodiscard]] bool is_gone(std::uint32_t world_rank) const { return host_.end_of(world_rank).has_value(); }

  FailureDetectorHost& host_;
  std::vector<std::unique_ptr<Case>> cases_;
  std::vector<Spreading> spreading_;
  Ranks silent_;  ///< as any diagnosis says
  std::vector<std::string> said_;
  /// While there is something to find out, poll() is called that often.
  static constexpr std::chrono::milliseconds step_{10};
  Clock::time_point polled_;  ///< while there is something to find out
  Clock::duration lag_{};     ///< how late poll() was called, at most
  ObservedTime observed_{step_, std::chrono::milliseconds(300)};
};

/// The diagnosis on a communicator as a frame. `left_out`: ranks of the world that are left out of its tree.
[[nodiscard]] std::string diagnosis_frame(const CommWatch& watch, const LossReason& diagnosis,
                                          const std::vector<std::uint32_t>& left_out);

/// How long a rank may take to say that it has heard, before others are asked in its place.
[[nodiscard]] std::chrono::milliseconds patience_of(std::chrono::milliseconds grace) noexcept;

}  // namespace amldist::world
