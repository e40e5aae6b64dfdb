// The control thread: keeps the connection to rank 0 (on rank 0: to everybody), hears of deaths, answers what this rank
// is doing, and finds out who is missing when a call comes to its deadline.
//
//   a call's deadline passes on rank 2  --report-->  coordinator: the lowest rank of the communicator that is alive
//   coordinator  --query-->  all its ranks  --status-->  coordinator  (whoever is silent for a moment is missing)
//   coordinator  --verdict-->  all ranks: the communicator is lost, with the sentence; it alone prints the sentence
// If the coordinator itself is silent, the reporter turns to the next rank, at last to itself. Connections beside the
// one to rank 0 are made when they are needed.
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

#include "collective/comm_watch.hpp"
#include "collective/diagnosis.hpp"
#include "collective/wire.hpp"
#include "collective/world.hpp"

namespace amldist::collective {

/// Takes the lines for people; called on the control thread.
using LogFunction = std::function<void(const std::string& line)>;

class ControlChannel {
 public:
  /// Takes the world's connections over and starts the thread.
  explicit ControlChannel(World world);
  /// Tells the others that this process leaves in good order, and ends the thread.
  ~ControlChannel();
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;

  [[nodiscard]] std::uint32_t rank() const noexcept { return world_.rank; }
  [[nodiscard]] std::uint32_t size() const noexcept { return world_.size; }
  [[nodiscard]] const Member& member(std::uint32_t world_rank) const { return world_.members[world_rank]; }
  [[nodiscard]] std::uint64_t nonce() const noexcept { return world_.nonce; }
  [[nodiscard]] const std::string& provenance() const noexcept { return world_.provenance; }

  // ------------------------------------------------------------------------------------- for threads that make calls
  void add(const std::shared_ptr<CommWatch>& watch);
  void remove(const CommWatch& watch);
  /// A process of the world that has ended or left; lock-free.
  [[nodiscard]] bool is_gone(std::uint32_t world_rank) const noexcept {
    return gone_[world_rank].load(std::memory_order_acquire) != 0;
  }
  [[nodiscard]] bool is_anyone_gone() const noexcept { return gone_count_.load(std::memory_order_acquire) != 0; }
  /// Finds out what became of a call, tells all ranks, and returns the verdict. `timeout` is the communicator's;
  /// finding out takes at most a fraction of it (a second or two at most).
  [[nodiscard]] Error find_out(const std::shared_ptr<CommWatch>& watch, const Occasion& occasion,
                               std::chrono::milliseconds timeout);
  /// Gives a communicator up on all its ranks.
  void abort(const std::shared_ptr<CommWatch>& watch, const std::string& sentence);
  /// A connection for the data of a communicator between this process and another; the higher world rank connects.
  [[nodiscard]] Result<FileDescriptor> data_connection(std::uint64_t comm, std::uint32_t world_rank, Vigil& vigil,
                                                       int comm_rank);
  /// Every rank's piece, in rank order; collective over the communicator. `number` tells its gathers apart.
  [[nodiscard]] Result<std::vector<std::string>> gather_all(const std::shared_ptr<CommWatch>& watch,
                                                            std::uint64_t number, std::string piece, Vigil& vigil);
  void set_log(LogFunction log);
  /// Called about once a second from now on, on the control thread: the flight recorder's heartbeat.
  void set_heartbeat(std::function<void()> heartbeat);

 private:
  using GatherKey = std::pair<std::uint64_t, std::uint64_t>;  // communicator, number
  struct Link {
    FileDescriptor socket;
    std::string received;
    std::string to_send;
    std::optional<std::uint32_t> rank;  // nullopt: it has not said who it is
    bool connecting = false;
    bool left = false;  // said goodbye
  };
  /// A gather_all of which this rank is the root.
  struct Gathering {
    std::vector<std::optional<std::string>> pieces;
    std::vector<std::uint32_t> members;  // world ranks
  };
  /// A diagnosis under way.
  struct Case {
    std::shared_ptr<CommWatch> watch;
    Occasion occasion;
    std::chrono::milliseconds grace{};
    Clock::time_point next{};   // when the patience with whom we wait for ends
    std::size_t candidate = 0;  // rank of the communicator that is to be coordinator
    bool coordinating = false;
    std::vector<std::optional<RankState>> answers;
    Clock::time_point asked{};
  };

  void run();
  void serve_once();
  [[nodiscard]] int poll_timeout() const;
  void beat();
  void accept_all();
  void read_from(Link& link);
  void write_to(Link& link);
  void drop(Link& link);
  void sweep();
  void handle(Link& link, Frame& frame);
  void on_hello(Link& link, Frame& frame);
  void on_hello_data(Link& link, Frame& frame);
  void on_lost(Frame& frame);
  void on_report(const Link& link, Frame& frame);
  void on_query(Link& link, Frame& frame);
  void on_status(const Link& link, Frame& frame);
  void on_verdict(Frame& frame);
  void on_piece(std::uint32_t world_rank, Frame& frame);
  void on_pieces(Frame& frame);
  void mark_gone(std::uint32_t world_rank, Standing standing);
  void send_to(std::uint32_t world_rank, std::string frame);
  void post(std::function<void()> action);
  void wake() noexcept;
  void run_posted();

  void open_case(const std::shared_ptr<CommWatch>& watch, const Occasion& occasion, std::chrono::milliseconds grace,
                 bool asked);
  void pursue(Case& current);
  void coordinate(Case& current);
  void ask(Case& current);
  [[nodiscard]] bool is_answered(Case& current);
  void look_at_cases();
  void conclude(Case& current);
  void announce(const std::shared_ptr<CommWatch>& watch, const Error& verdict, bool print);
  void print(const std::string& sentence);
  [[nodiscard]] std::shared_ptr<CommWatch> find(std::uint64_t id);
  [[nodiscard]] std::string name_of(const CommWatch& watch, std::size_t rank) const;
  [[nodiscard]] RankState presumed_state(const CommWatch& watch, std::size_t rank) const;

  World world_;
  FileDescriptor wake_;
  std::vector<std::unique_ptr<Link>> links_;                // control thread only
  std::vector<Case> cases_;                                 // control thread only
  std::vector<std::string> printed_;                        // control thread only
  std::map<GatherKey, Gathering> gatherings_;               // control thread only
  Clock::time_point next_beat_ = Clock::time_point::max();  // control thread only
  std::vector<std::atomic<std::uint8_t>> gone_;             // by world rank: 0 there, else a Standing
  std::atomic<std::uint32_t> gone_count_ = 0;
  std::atomic<bool> stopping_ = false;

  std::mutex mutex_;  // guards the rest
  std::condition_variable came_;
  std::vector<std::function<void()>> posted_;
  std::map<std::uint64_t, std::shared_ptr<CommWatch>> watches_;
  std::map<std::pair<std::uint64_t, std::uint32_t>, FileDescriptor> data_;
  std::map<GatherKey, std::vector<std::string>> gathered_;
  LogFunction log_;
  std::function<void()> heartbeat_;
  std::thread thread_;
};

}  // namespace amldist::collective
