// Uniform agreement among the ranks of one communicator that are still there, whatever dies meanwhile: what
// amldist_agree() and amldist_shrink() rest on, as MPI_Comm_agree and MPI_Comm_shrink of ULFM do.
//
//   arrive    up the tree (comm_tree.hpp): the programs of all ranks below have made the call, and this is what they give
//   propose   down: the root has heard of all ranks. Each keeps the proposal
//   accept    up: all ranks below have kept it
//   decide    down: all have
//
// The tree is that of the ranks that are not excluded: the view. Exclusions only grow, and travel with every message.
// What comes up counts only if sender and receiver have the same view; when a rank's view changes it tells those around
// it, and all begin again to arrive, or to accept, over the new tree. So no rank sends or receives more than a few
// messages for each rank that it is connected to in the tree, and a loss costs each as much once more.
//
// If the root is excluded, the ranks arrive at the next one with the proposal that they have accepted. It must propose
// the one of the latest root among these. So a decision that any rank has returned stands: every rank that was not
// excluded had accepted it. A rank never goes back to an earlier root, whose place in the tree serves as the number of
// its proposal; each root proposes at most once in a round.
//
// A rank is excluded when it has ended, when it is silent for a while that another waits for it, and when the deadline
// passes before its program has made the call. A rank that hears of its own exclusion has no part any more, for good:
// it gets no decision, and tells those around it. This is how a process that was stopped learns, when it goes on, that
// the others went on without it. Only a network that is cut in two, with no word across, makes two groups.
//
// No sockets, no threads, no clock of its own: the control thread gives it messages and the time.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "world/control/agreement_message.hpp"
#include "world/control/comm_tree.hpp"
#include "world/control/failure_detector.hpp"

namespace amldist::world {

/// All rounds of one communicator on one of its ranks. Ranks are those of the communicator.
class Agreement {
 public:
  using Duration = Clock::duration;
  /// `members`: world ranks, which outlive this object; `tree`: theirs.
  Agreement(FailureDetectorHost& host, std::uint64_t communicator, std::span<const std::uint32_t> members,
            std::shared_ptr<const CommTree> tree, std::uint32_t own);

  // ---- the program's side; rounds are opened in order, 1, 2, ... ----
  struct Limits {
    Duration patience{};  ///< a rank that is silent for so long is excluded by those who wait for it
    Duration deadline{};  ///< how long the others may take to make the call; the shortest of any rank counts
  };
  /// The program is on its way to this round: from now on the others are watched.
  void open(std::uint64_t number, Clock::time_point now, const Limits& limits);
  /// The program has come, and gives this.
  void arrive(std::uint64_t number, std::uint64_t flags, std::uint64_t purposes);
  /// The communicator has failed here: the others hear of that, too, who may not know it yet and wait in a call.
  void set_lost() noexcept { is_lost_ = true; }
  /// Leaves other ranks out, from the next proposal on.
  void exclude(const Exclusions& ranks);

  // ---- the others' side ----
  void take(std::uint32_t from, const AgreementMessage& message);
  /// Looks at who has ended, who is silent and who is late.
  void poll(Clock::time_point now);
  /// When poll() has something to do, at the latest; max(): never.
  [[nodiscard]] Clock::time_point next_poll() const;

  // ---- results ----
  /// nullptr: none yet.
  [[nodiscard]] const Decision* decision(std::uint64_t round) const;
  /// Why this rank itself has no part any more.
  [[nodiscard]] std::optional<Exclusion> own_exclusion() const;
  [[nodiscard]] const Exclusions& excluded() const noexcept { return excluded_; }
  /// AND of the flags that are known here of a round: what others gave can only take bits away.
  [[nodiscard]] std::uint64_t flags_so_far(std::uint64_t round) const;

 private:
  using Kind = AgreementMessage::Kind;
  using Proposal = AgreementMessage::Proposal;
  /// What a rank gives, or all ranks of a part of the tree.
  struct Arrival {
    std::uint64_t flags = 0;
    std::uint64_t purposes = 0;
    std::optional<Proposal> accepted;
  };
  struct Round {
    bool is_open = false;
    Duration opened{};
    Duration deadline = Duration::max();
    std::uint64_t flags_seen = ~std::uint64_t{};
    std::optional<Arrival> own;
    std::set<std::uint32_t> arrived;             ///< whoever said so of itself
    std::map<std::uint32_t, Duration> not_come;  ///< who said last that it has not, and when
    std::optional<Proposal> accepted;
    std::optional<Decision> decision;

    // ---- of this view ----
    std::map<std::uint32_t, Arrival> arrivals;  ///< by child, of all that are below it
    bool has_gone_up = false;                   ///< the arrival of this rank and of those below
    bool is_proposed = false;                   ///< the proposal has come here, and was passed on
    Duration proposed{};
    std::set<std::uint32_t> accepted_by;
    bool has_accepted = false;  ///< with all that are below

    [[nodiscard]] bool waits() const noexcept { return is_open && !decision; }
    void forget_view();
  };
  /// A rank that this one is connected to in the tree.
  struct Neighbour {
    Duration since{};
    Duration heard{};
    Duration asked{};
    bool is_hidden = false;  ///< none yet: it is on the node of one that may be silent
  };

  [[nodiscard]] bool is_in(std::uint32_t rank) const { return !excluded_.contains(rank); }
  [[nodiscard]] bool is_root() const noexcept { return !parent_; }
  [[nodiscard]] bool is_child(std::uint32_t rank) const;
  [[nodiscard]] bool has_proposed(const Round& round) const {
    return is_root() && round.accepted && round.accepted->coordinator == root_place_;
  }
  [[nodiscard]] bool is_waiting() const;
  [[nodiscard]] bool is_awaited(const Round& round, std::uint32_t rank) const;
  [[nodiscard]] static Arrival joined(const Round& round);
  [[nodiscard]] Decision choose(const Round& round) const;
  [[nodiscard]] std::uint32_t rank_of(std::uint32_t world_rank) const;
  [[nodiscard]] bool has_ended(std::uint32_t rank) const { return host_.end_of(members_[rank]).has_value(); }
  [[nodiscard]] bool would_be_beside(std::uint32_t rank) const;

  void look_around();
  void merge(const Exclusions& excluded);
  void step_out(Exclusion why);
  void answer(std::uint32_t asker, std::uint64_t number, Round& round);
  void take_in_round(std::uint32_t from, const AgreementMessage& message, Round& round);
  void take_proposal(const AgreementMessage& message, Round& round);
  void advance_all();
  void advance(std::uint64_t number, Round& round);
  void pass_proposal_on(std::uint64_t number, Round& round);
  void learn(std::uint64_t number, const Decision& value, std::uint32_t from);
  void find_ended();
  void watch(std::uint64_t number, Round& round);
  void look_behind(std::uint32_t rank);
  void find_late(Round& round);

  [[nodiscard]] AgreementMessage message(Kind kind, std::uint64_t number) const;
  void send(std::uint32_t to, const AgreementMessage& message);
  void send(std::uint32_t to, Kind kind, std::uint64_t number) { send(to, message(kind, number)); }
  void send_decision(std::uint32_t to, std::uint64_t number, const Decision& value);
  void send_arrival(std::uint64_t number, const Round& round);
  void send_acceptance(std::uint64_t number);

  FailureDetectorHost& host_;
  const std::uint64_t communicator_;
  const std::span<const std::uint32_t> members_;
  const std::shared_ptr<const CommTree> tree_;
  const std::uint32_t own_;

  Duration patience_{};
  bool is_lost_ = false;
  std::map<std::uint64_t, Round> rounds_;
  std::uint64_t newest_ = 0;  ///< round that this rank's program opened
  /// Time in which this process ran: one that was stopped, or whose node was, does not hold that against the others.
  Duration elapsed_{};
  std::optional<Clock::time_point> polled_;
  std::size_t ended_ = 0;  ///< of those that have ended in the world: how many find_ended() has looked at

  // ---- the view ----
  Exclusions excluded_;  ///< this rank itself: it is out
  std::optional<std::uint32_t> parent_;
  std::vector<std::uint32_t> children_;
  std::uint32_t root_place_ = 0;
  std::map<std::uint32_t, Neighbour> neighbours_;
};

/// "rank 1 (node2) has ended; rank 3 (node4) does not answer". `name_of`: a rank's name.
template <typename NameOf>
[[nodiscard]] std::string describe(const Exclusions& excluded, NameOf name_of) {
  std::string text;
  for (const auto& [rank, why] : excluded) {
    if (!text.empty()) text += "; ";
    text += name_of(rank);
    text += why == Exclusion::dead     ? " has ended"
            : why == Exclusion::left   ? " has left"
            : why == Exclusion::silent ? " does not answer (stopped, or its node is gone)"
                                       : " did not come before the deadline";
  }
  return text;
}

}  // namespace amldist::world
