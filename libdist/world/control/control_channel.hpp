// The control thread: keeps the connections of the world's tree, hears of ranks that end and passes it on, answers what
// this rank is doing, and finds out who is missing when a call reaches its deadline (failure_detector.hpp). Other
// connections are made when they are needed.
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

#include "world/control/agreements.hpp"
#include "world/control/comm_watch.hpp"
#include "world/control/control_links.hpp"
#include "world/control/failure_detector.hpp"
#include "world/control/tree_gather.hpp"
#include "world/wireup/message_code.hpp"

namespace amldist::world {

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
  [[nodiscard]] const RankTable& table() const noexcept override { return world_.table; }
  [[nodiscard]] const std::string& host_of(std::uint32_t world_rank) const { return world_.table.host_of(world_rank); }
  /// "rank 3 (local 1) on node2".
  [[nodiscard]] std::string name_of(std::uint32_t world_rank) const;
  [[nodiscard]] std::uint64_t nonce() const noexcept { return world_.table.nonce(); }
  [[nodiscard]] Integrity integrity() const noexcept { return world_.integrity; }
  /// The codes of the data that one rank sends another for a communicator.
  [[nodiscard]] world::MessageCodes codes_of(std::uint64_t id, std::uint32_t sender, std::uint32_t receiver) const;
  [[nodiscard]] const std::string& provenance() const noexcept { return world_.provenance; }

  // ---- for threads that run calls ----
  void add(const std::shared_ptr<CommWatch>& watch);
  void remove(const CommWatch& watch);
  /// Whether a process of the world has ended or left; lock-free.
  [[nodiscard]] bool is_gone(std::uint32_t world_rank) const noexcept {
    return gone_[world_rank].load(std::memory_order_acquire) != 0;
  }
  [[nodiscard]] bool is_anyone_gone() const noexcept { return gone_count_.load(std::memory_order_acquire) != 0; }
  /// Finds out why a call does not end, tells all ranks, and returns the diagnosis. Takes a fraction of `timeout`, the
  /// communicator's deadline, and six seconds at most.
  [[nodiscard]] Error find_out(const std::shared_ptr<CommWatch>& watch, const DiagnosisTrigger& trigger,
                               std::chrono::milliseconds timeout);
  /// Opens the next round of a communicator's agreements (agreement.hpp): from now on ranks that fall silent are
  /// noticed. `timeout`: the communicator's deadline. Ranks that have not come by `late_after` are left out.
  void open_agreement(const std::shared_ptr<CommWatch>& watch, const std::shared_ptr<AgreementTicket>& ticket,
                      std::chrono::milliseconds timeout, std::chrono::milliseconds late_after);
  /// Gives this rank's part, and waits for the outcome.
  [[nodiscard]] AgreementOutcome agree(const std::shared_ptr<CommWatch>& watch,
                                       const std::shared_ptr<AgreementTicket>& ticket, std::uint64_t flags,
                                       std::uint64_t purposes);
  /// This rank has heard that it should stop: all ranks agree on when (stop_polls.hpp).
  void begin_stop(const std::shared_ptr<CommWatch>& watch);
  /// Waits until that is known, once a call of this rank has found the mark.
  [[nodiscard]] Result<void> await_stop(CommWatch& watch, calls::Watchdog& watchdog);
  /// Prints a sentence before it returns: the program may end next. Thread-safe.
  void tell(const std::string& sentence);
  /// Gives a communicator up on all its ranks.
  void abort(const std::shared_ptr<CommWatch>& watch, const std::string& sentence);
  /// Connections for the data of a communicator: of two processes, the one with the higher world rank makes it. The
  /// other one's control thread answers, whatever its program does.
  [[nodiscard]] bool makes_connection_to(std::uint32_t world_rank) const noexcept { return world_.rank > world_rank; }
  [[nodiscard]] Result<FileDescriptor> make_data_connection(std::uint64_t id, std::uint32_t world_rank,
                                                            calls::Watchdog& watchdog, int comm_rank);
  /// The connection that the other one made, if it is there already.
  [[nodiscard]] FileDescriptor take_data_connection(std::uint64_t id, std::uint32_t world_rank);
  /// Closes those that were not taken.
  void forget_data_connections(std::uint64_t id);
  /// Every rank's piece, or those of the ranks of this node; collective over the communicator. `number` tells its
  /// gathers apart.
  [[nodiscard]] Result<calls::Pieces> gather_all(const std::shared_ptr<CommWatch>& watch, std::uint64_t number,
                                                 std::string piece, calls::GatherScope scope,
                                                 calls::Watchdog& watchdog);
  /// From now on all ranks leave in good order: nobody has to be told of it.
  void end_together() noexcept { ending_.store(true, std::memory_order_release); }
  void set_log(LogFunction log);
  /// Called about once a second from now on, on the control thread: the flight recorder's heartbeat. When this returns,
  /// the one before is not called any more, nor being called.
  void set_heartbeat(std::function<void()> heartbeat);

 private:
  /// A rank that has ended, to be passed on.
  struct News {
    std::uint32_t rank = 0;
    Liveness standing = Liveness::dead;
    std::uint32_t from = UINT32_MAX;  ///< who said it
    // NOLINTNEXTLINE(modernize-use-nullptr): in what the compiler writes
    friend auto operator<=>(const News&, const News&) = default;
  };

  void run();
  void serve_once();
  void linger();
  [[nodiscard]] int poll_timeout() const;
  void beat();
  void handle(ControlLink& link, Frame& frame);
  void on_join_request(FileDescriptor connection, Frame frame);
  void on_latecomer(const FileDescriptor& connection, Frame frame);
  void on_data_join(FileDescriptor connection, Frame& frame);
  void on_lost(const ControlLink& link, Frame& frame);
  void on_case(std::uint32_t from, Frame& frame);
  void believe_news();
  void mark_gone(std::uint32_t world_rank, Liveness standing, std::uint32_t from);
  void spread_news();
  void gather(const std::shared_ptr<CommWatch>& watch, const GatherKey& key, std::string piece,
              calls::GatherScope scope);
  void on_stop(const std::shared_ptr<CommWatch>& watch);
  void on_gathered(const GatherKey& key, calls::Pieces pieces);
  [[nodiscard]] TreeGather::Neighbours neighbours(const std::vector<std::uint32_t>& members) const;
  [[nodiscard]] std::optional<Liveness> end_of(std::uint32_t world_rank) const noexcept override;
  [[nodiscard]] std::span<const std::uint32_t> ended() const noexcept override { return ended_; }
  void send_to(std::uint32_t world_rank, const std::string& frame) override;
  void say(const std::string& sentence) override;
  void post(std::function<void()> action);
  void wake() noexcept;
  void run_posted();
  [[nodiscard]] std::shared_ptr<CommWatch> find(std::uint64_t id);

  World world_;
  const Clock::time_point born_ = Clock::now();
  const bool is_under_srun_;
  FileDescriptor wake_;
  ControlLinks links_;                                      // control thread only
  FailureDetector detector_;                                // control thread only
  Agreements agreements_;                                   // control thread only
  const CommTree tree_;                                     // of all ranks
  TreeGather gather_;                                       // control thread only
  bool has_told_of_latecomer_ = false;                      // control thread only
  std::vector<std::uint32_t> ended_;                        // control thread only
  std::vector<News> told_;                                  // control thread only: news that others sent
  std::vector<News> news_;                                  // control thread only
  Clock::time_point news_due_ = Clock::time_point::max();   // control thread only
  Clock::time_point news_sent_;                             // control thread only
  Clock::time_point next_beat_ = Clock::time_point::max();  // control thread only
  std::vector<std::atomic<std::uint8_t>> gone_;             // by world rank: 0 there, else a Liveness
  std::atomic<std::uint32_t> gone_count_ = 0;
  std::atomic<bool> stopping_ = false;
  std::atomic<bool> ending_ = false;

  std::mutex heartbeat_mutex_;
  std::function<void()> heartbeat_;

  std::mutex mutex_;  // guards the rest
  std::condition_variable came_;
  std::vector<std::function<void()>> posted_;
  std::map<std::uint64_t, std::shared_ptr<CommWatch>> watches_;
  std::map<std::pair<std::uint64_t, std::uint32_t>, FileDescriptor> data_;
  std::map<GatherKey, calls::Pieces> gathered_;
  LogFunction log_;
  std::thread thread_;
};

}  // namespace amldist::world
