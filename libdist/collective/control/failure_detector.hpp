// Finds out who is missing when a call has reached its deadline, and tells all ranks. Used by the control thread only.
//
//   a call's deadline passes on rank 2  --report-->  coordinator: the lowest rank of the communicator that is alive
//   coordinator  --query-->  all its ranks  --status-->  coordinator  (whoever is silent for a moment is missing)
//   coordinator  --verdict-->  all ranks: the communicator is lost, with the sentence; it alone prints the sentence
// If the coordinator itself is silent, the reporter turns to the next rank, at last to itself.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collective/control/comm_watch.hpp"
#include "collective/control/control_frame.hpp"
#include "collective/control/diagnosis.hpp"
#include "os/observed_time.hpp"

namespace amldist::collective {

/// What the failure detector needs of its process.
class FailureDetectorHost {
 public:
  virtual ~FailureDetectorHost() = default;
  FailureDetectorHost() = default;
  FailureDetectorHost(const FailureDetectorHost&) = delete;
  FailureDetectorHost& operator=(const FailureDetectorHost&) = delete;

  [[nodiscard]] virtual std::uint32_t rank() const noexcept = 0;
  [[nodiscard]] virtual std::uint32_t size() const noexcept = 0;
  [[nodiscard]] virtual const std::string& host_of(std::uint32_t world_rank) const = 0;
  /// How the process ended; nullopt: as far as is known, it runs.
  [[nodiscard]] virtual std::optional<Liveness> end_of(std::uint32_t world_rank) const noexcept = 0;
  virtual void send_to(std::uint32_t world_rank, const std::string& frame) = 0;
  /// Prints a sentence.
  virtual void say(const std::string& sentence) = 0;
};

class FailureDetector {
 public:
  explicit FailureDetector(FailureDetectorHost& host) : host_(host) {}

  /// Opens a case for what a rank of `watch` reports. `asked`: another rank has asked this one to coordinate.
  void open(const std::shared_ptr<CommWatch>& watch, const DiagnosisTrigger& trigger, std::chrono::milliseconds grace,
            bool asked);
  /// Takes an answer of a rank: the communicator's number and what follows it in the frame.
  void take_status(std::uint32_t world_rank, Frame& frame);
  /// Does what is due now.
  void poll();
  /// When poll() has something to do, at the latest; max(): never.
  [[nodiscard]] Clock::time_point next_poll() const;
  /// Gives a communicator up on all its ranks.
  void announce(const std::shared_ptr<CommWatch>& watch, const Error& verdict, bool print);
  /// Another rank has printed this sentence: it is not printed here again.
  void has_been_said(std::string sentence) { said_.push_back(std::move(sentence)); }

 private:
  struct Case {
    std::shared_ptr<CommWatch> watch;
    DiagnosisTrigger trigger;
    std::chrono::milliseconds grace{};
    Clock::time_point next{};   // when the patience with whom we wait for ends
    std::size_t candidate = 0;  // rank of the communicator that is to be coordinator
    bool coordinating = false;
    std::vector<std::optional<RankState>> answers;
    Clock::time_point asked{};
    bool is_polled = false;  // it was open when poll() ran before
  };

  void report(Case& current);
  void coordinate(Case& current);
  void ask(Case& current);
  [[nodiscard]] bool is_answered(Case& current);
  [[nodiscard]] std::vector<RankState> states_of(const Case& current) const;
  void conclude(Case& current);
  void say_once(const std::string& sentence);
  [[nodiscard]] bool is_gone(std::uint32_t world_rank) const { return host_.end_of(world_rank).has_value(); }
  [[nodiscard]] std::string name_of(const CommWatch& watch, std::size_t rank) const;
  [[nodiscard]] RankState presumed_state(const CommWatch& watch, std::size_t rank) const;

  FailureDetectorHost& host_;
  std::vector<Case> cases_;
  std::vector<std::string> said_;
  ObservedTime observed_{std::chrono::milliseconds(1000),
                         std::chrono::milliseconds(1500)};  // poll() is called every second
};

/// The answer to a query; `watch` nullptr: the communicator is not here.
[[nodiscard]] std::string status_frame(std::uint64_t communicator, const CommWatch* watch);
/// The verdict on a communicator as a frame.
[[nodiscard]] std::string verdict_frame(const CommWatch& watch, const Error& verdict);

}  // namespace amldist::collective
