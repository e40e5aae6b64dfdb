// Uniform agreement among the ranks of one communicator that are still there, whatever dies meanwhile: what
// amldist_agree() and amldist_shrink() rest on, as MPI_Comm_agree and MPI_Comm_shrink of ULFM do.
//
//   every rank      --arrive-->   coordinator: the lowest rank that is not excluded. It waits for all the others.
//   coordinator     --propose-->  every rank, which keeps the proposal and answers with accept
//   coordinator     --decide-->   every rank, once all have accepted
//
// If the coordinator is excluded, the ranks arrive at the next one, with the proposal that they have accepted. It must
// propose the one of the highest coordinator among these. So a decision that any rank has returned stands: every rank
// that was not excluded had accepted it. Exclusions only grow, and travel with every message; hence a rank never goes
// back to an earlier coordinator, whose rank serves as the number of its proposal.
//
// A rank is excluded when it has ended, when it is silent for a while that another waits for it, and when the deadline
// passes before its program has made the call. A rank that hears of its own exclusion has no part any more, for good:
// it gets no decision, and tells the others. This is how a process that was stopped learns, when it goes on, that the
// others went on without it. Only a network that is cut in two, with no word across, makes two groups.
//
// No sockets, no threads, no clock of its own: the control thread gives it messages and the time.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "collective/control/agreement_message.hpp"
#include "collective/control/failure_detector.hpp"

namespace amldist::collective {

/// All rounds of one communicator on one of its ranks. Ranks are those of the communicator.
class Agreement {
 public:
  using Duration = Clock::duration;
  /// `members`: world ranks.
  Agreement(FailureDetectorHost& host, std::uint64_t communicator, std::vector<std::uint32_t> members,
            std::uint32_t own);

  // ---- the program's side; rounds are opened in order, 1, 2, ... ----
  struct Limits {
    Duration patience{};  ///< a rank that is silent for so long is excluded by those who wait for it
    Duration deadline{};  ///< how long the others may take to make the call
  };
  /// The program is on its way to this round: from now on the others are watched.
  void open(std::uint64_t round, Clock::time_point now, const Limits& limits);
  /// The program has come, and gives this.
  void arrive(std::uint64_t round, std::uint64_t flags, std::uint64_t purposes);
  /// The communicator has failed here: the others hear of that, too, who may not know it yet and wait in a call.
  void set_lost() noexcept { is_lost_ = true; }
  /// Leaves a rank out, from the next proposal on.
  void exclude(std::uint32_t rank, Exclusion why);

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
  struct Arrival {
    std::uint64_t flags = 0;
    std::uint64_t purposes = 0;
    std::optional<Proposal> accepted;
  };
  struct Round {
    bool is_open = false;
    Duration opened{};
    Duration deadline{};
    Duration proposed{};
    std::map<std::uint32_t, Arrival> arrivals;  ///< own included
    std::set<std::uint32_t> arrived;            ///< whoever said so of itself
    std::uint64_t flags_seen = ~std::uint64_t{};
    std::optional<Proposal> accepted;
    std::optional<std::uint32_t> told;  ///< the coordinator that this rank has arrived at
    std::set<std::uint32_t> accepted_by;
    std::map<std::uint32_t, Duration> asked;
    std::optional<Decision> decision;

    [[nodiscard]] bool waits() const noexcept { return is_open && !decision; }
  };

  [[nodiscard]] bool is_in(std::uint32_t rank) const { return !excluded_.contains(rank); }
  [[nodiscard]] std::uint32_t coordinator() const;
  [[nodiscard]] bool coordinates() const { return coordinator() == own_; }
  [[nodiscard]] bool has_proposed(const Round& round) const {
    return round.accepted && round.accepted->coordinator == own_;
  }
  [[nodiscard]] bool is_waiting() const;
  [[nodiscard]] std::vector<std::uint32_t> awaited(const Round& round) const;
  [[nodiscard]] Decision choose(const Round& round) const;

  void note_new_coordinator();
  void merge(const Exclusions& excluded);
  void step_out(Exclusion why);
  void answer(std::uint32_t asker, std::uint64_t number, Round& round);
  void take_in_round(std::uint32_t from, const AgreementMessage& message, Round& round);
  void advance_all();
  void advance(std::uint64_t number, Round& round);
  void coordinate(std::uint64_t number, Round& round);
  void learn(std::uint64_t number, const Decision& value, bool decided_here);
  void find_ended();
  void watch(std::uint64_t number, Round& round);
  void find_late(Round& round);

  [[nodiscard]] AgreementMessage message(Kind kind, std::uint64_t number) const;
  void send(std::uint32_t to, const AgreementMessage& message);
  void send(std::uint32_t to, Kind kind, std::uint64_t number) { send(to, message(kind, number)); }
  void send_decision(std::uint32_t to, std::uint64_t number, const Decision& value);
  void send_arrival(std::uint64_t number, const Round& round);

  FailureDetectorHost& host_;
  const std::uint64_t communicator_;
  const std::vector<std::uint32_t> members_;
  const std::uint32_t own_;

  Duration patience_{};
  bool is_lost_ = false;
  Exclusions excluded_;  ///< this rank itself: it is out
  std::map<std::uint64_t, Round> rounds_;
  std::uint64_t newest_ = 0;  ///< round that this rank's program opened
  /// Time in which this process ran: one that was stopped, or whose node was, does not hold that against the others.
  Duration elapsed_{};
  std::optional<Clock::time_point> polled_;
  std::vector<Duration> heard_;
  std::uint32_t known_coordinator_ = 0;
  Duration coordinated_since_{};
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

}  // namespace amldist::collective
