// The control thread: keeps the connection to rank 0 (on rank 0: to everybody), hears of ranks that
// end, answers what this rank is doing, and finds out who is missing when a call reaches its deadline
// (failure_detector.hpp). Other connections than the one to rank 0 are made when they are needed.
//
// The thread sleeps in poll() while nothing happens. It runs from bootstrap to the world's finalize.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collective/control/comm_watch.hpp"
#include "collective/control/control_links.hpp"
#include "collective/control/failure_detector.hpp"
#include "wireup/message_code.hpp"

namespace amldist::collective {

/// Receives the lines for people, on the control thread.
using LogFunction = std::function<void(const std::string& line)>;

class ControlChannel final : private FailureDetectorHost {
 public:
  /// Takes the world's connections over and starts the thread. `is_under_srun`: srun reads what this process writes.
  ControlChannel(World world, bool is_under_srun);
  /// Tells the others that this process leaves in good order, and ends the thread.
  ~ControlChannel() override;
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;

  [[nodiscard]] std::uint32_t rank() const noexcept override { return world_.rank; }
  [[nodiscard]] std::uint32_t size() const noexcept override { return world_.size; }
  [[nodiscard]] const Member& member(std::uint32_t world_rank) const { return world_.members[world_rank]; }
  [[nodiscard]] std::uint64_t nonce() const noexcept { return world_.nonce; }
  [[nodiscard]] Integrity integrity() const noexcept { return world_.integrity; }
  /// The codes of the data that one rank sends another for a communicator.
  [[nodiscard]] wireup::MessageCodes codes_of(std::uint64_t id, std::uint32_t sender, std::uint32_t receiver) const;
  [[nodiscard]] const std::string& provenance() const noexcept { return world_.provenance; }

  // ---- for threads that run calls ----
  void add(const std::shared_ptr<CommWatch>& watch);
  void remove(const CommWatch& watch);
  /// Whether a process of the world has ended or left; lock-free.
  [[nodiscard]] bool is_gone(std::uint32_t world_rank) const noexcept {
    return gone_[world_rank].load(std::memory_order_acquire) != 0;
  }
  [[nodiscard]] bool is_anyone_gone() const noexcept { return gone_count_.load(std::memory_order_acquire) != 0; }
  /// Finds out why a call does not end, tells all ranks, and returns the verdict. Takes a fraction of `timeout`, the
  /// communicator's deadline, and two seconds at most.
  [[nodiscard]] Error find_out(const std::shared_ptr<CommWatch>& watch, const DiagnosisTrigger& trigger,
                               std::chrono::milliseconds timeout);
  /// Prints a sentence, before anything that is asked of the control thread afterwards.
  void tell(const std::string& sentence);
  /// Gives a communicator up on all its ranks.
  void abort(const std::shared_ptr<CommWatch>& watch, const std::string& sentence);
  /// Connections for the data of a communicator: of two processes, the one with the higher world rank makes it. The
  /// other one's control thread answers, whatever its program does.
  [[nodiscard]] bool makes_connection_to(std::uint32_t world_rank) const noexcept { return world_.rank > world_rank; }
  [[nodiscard]] Result<FileDescriptor> make_data_connection(std::uint64_t id, std::uint32_t world_rank,
                                                            Watchdog& watchdog, int comm_rank);
  /// The connection that the other one made, if it is there already.
  [[nodiscard]] FileDescriptor take_data_connection(std::uint64_t id, std::uint32_t world_rank);
  /// Closes those that were not taken.
  void forget_data_connections(std::uint64_t id);
  /// Every rank's piece, in rank order; collective over the communicator. `number` tells its gathers apart.
  [[nodiscard]] Result<std::vector<std::string>> gather_all(const std::shared_ptr<CommWatch>& watch,
                                                            std::uint64_t number, std::string piece,
                                                            Watchdog& watchdog);
  void set_log(LogFunction log);
  /// Called about once a second from now on, on the control thread: the flight recorder's heartbeat. When this returns,
  /// the one before is not called any more, nor being called.
  void set_heartbeat(std::function<void()> heartbeat);

 private:
  using GatherKey = std::pair<std::uint64_t, std::uint64_t>;  // communicator, number
  /// A gather_all of which this rank is the root.
  struct Gathering {
    std::vector<std::optional<std::string>> pieces;
    std::vector<std::uint32_t> members;  // world ranks
  };

  void run();
  void serve_once();
  void linger();
  [[nodiscard]] int poll_timeout() const;
  void beat();
  void handle(ControlLink& link, Frame& frame);
  void on_greeting(FileDescriptor connection, Frame frame);
  void on_data_greeting(FileDescriptor connection, Frame& frame);
  void on_lost(Frame& frame);
  void on_report(const ControlLink& link, Frame& frame);
  void on_query(ControlLink& link, Frame& frame);
  void on_verdict(Frame& frame);
  void on_piece(std::uint32_t world_rank, Frame& frame);
  void on_pieces(Frame& frame);
  void mark_gone(std::uint32_t world_rank, Liveness standing);
  [[nodiscard]] const std::string& host_of(std::uint32_t world_rank) const override {
    return world_.members[world_rank].host;
  }
  [[nodiscard]] std::optional<Liveness> end_of(std::uint32_t world_rank) const noexcept override;
  void send_to(std::uint32_t world_rank, const std::string& frame) override;
  void say(const std::string& sentence) override;
  void post(std::function<void()> action);
  void wake() noexcept;
  void run_posted();
  [[nodiscard]] std::shared_ptr<CommWatch> find(std::uint64_t id);

  World world_;
  const bool is_under_srun_;
  FileDescriptor wake_;
  ControlLinks links_;                                      // control thread only
  FailureDetector detector_;                                // control thread only
  std::map<GatherKey, Gathering> gatherings_;               // control thread only
  Clock::time_point next_beat_ = Clock::time_point::max();  // control thread only
  std::vector<std::atomic<std::uint8_t>> gone_;             // by world rank: 0 there, else a Liveness
  std::atomic<std::uint32_t> gone_count_ = 0;
  std::atomic<bool> stopping_ = false;

  std::mutex heartbeat_mutex_;
  std::function<void()> heartbeat_;

  std::mutex mutex_;  // guards the rest
  std::condition_variable came_;
  std::vector<std::function<void()>> posted_;
  std::map<std::uint64_t, std::shared_ptr<CommWatch>> watches_;
  std::map<std::pair<std::uint64_t, std::uint32_t>, FileDescriptor> data_;
  std::map<GatherKey, std::vector<std::string>> gathered_;
  LogFunction log_;
  std::thread thread_;
};

}  // namespace amldist::collective
