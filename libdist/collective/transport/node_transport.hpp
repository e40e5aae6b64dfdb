// Messages between the ranks of one node through shared memory; another transport carries those to other nodes. There
// is one ring for each ordered pair of ranks, in memory of the communicator. A message is preceded by its signature and
// length. A long message goes part by part through blocks that both ranks of a pair use in turn, or the reader fetches
// it from the other process in a single copy, if the kernel allows that.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/os/file_descriptor.hpp"
#include "collective/node/channel/message_blocks.hpp"
#include "collective/node/channel/message_memory.hpp"
#include "collective/node/channel/message_ring.hpp"
#include "collective/node/channel/slot_channel.hpp"
#include "collective/node/memory/peer_memory.hpp"
#include "collective/transport/message_queue.hpp"
#include "collective/transport/transport.hpp"
#include "collective/tuning/algorithm_choice.hpp"

namespace amldist::collective {

class NodeTransport final : public Transport {
 public:
  /// Bytes of shared memory for `ranks` of one node.
  [[nodiscard]] static std::size_t memory_bytes(std::uint32_t ranks) noexcept { return MessageMemory::bytes_of(ranks); }
  /// `memory` must be zeroed, aligned to a cache line, and outlive this object. The ranks of `place` are in ascending
  /// order.
  /// `peers`: if the ranks may read each other's memory (all of them or none); else null. It must outlive this object.
  NodeTransport(std::unique_ptr<Transport> others, std::byte* memory, const NodeGroup& place, bool oversubscribed,
                const PeerMemory* peers = nullptr);

  [[nodiscard]] std::string_view name() const noexcept override { return others_->name(); }
  [[nodiscard]] std::size_t part_bytes() const noexcept override { return others_->part_bytes(); }
  [[nodiscard]] bool serves_any_thread() const noexcept override { return others_->serves_any_thread(); }
  [[nodiscard]] Result<void> post(const Message& message, Direction direction, std::size_t& left,
                                  calls::Watchdog& watchdog) override;
  [[nodiscard]] bool posts_at_once(int peer, int tag) const noexcept override {
    return index_of(peer) ? true : others_->posts_at_once(peer, tag);
  }
  [[nodiscard]] bool shares_processors() const noexcept override { return oversubscribed_; }
  [[nodiscard]] bool move_at_once(const Message& message, Direction direction, Look look) override;
  [[nodiscard]] std::optional<VainLooks> vain_looks(const Message& moved) const noexcept override;
  [[nodiscard]] Result<bool> progress(calls::Watchdog& watchdog) override;
  [[nodiscard]] Result<void> keep_waiting(calls::Watchdog& watchdog) override;
  bool rest(int idle) override;
  [[nodiscard]] int awaited() const noexcept override;
  void interrupt() noexcept override;
  void give_up() noexcept override;

 private:
  /// Bytes of the word with the signature, and of the length.
  static constexpr std::size_t header_words = RingEnd::word_bytes + sizeof(std::uint64_t);
  /// Data begins on a cache line of its own, since copying it to another offset within one takes twice as long, unless
  /// a brief message needs a line less if its data follows the words. If data is fetched, its address follows them.
  [[nodiscard]] static constexpr std::size_t header_bytes(std::size_t data) noexcept {
    const std::size_t in_last_line = data % MessageRing::line;
    const bool saves_a_line = in_last_line != 0 && header_words + in_last_line <= MessageRing::line;
    return data == 0 || (saves_a_line && data <= MessageRing::brief) ? header_words : MessageRing::line;
  }
  /// Whether a message of this many bytes of header and data goes in one part, and is never fetched.
  [[nodiscard]] static constexpr bool is_short(std::size_t all) noexcept {
    return all <= tuning::longest_short_message;
  }
  struct Progress {
    explicit Progress(const Message& all, std::size_t* counter = nullptr, std::size_t index = 0)
        : message(all), left(counter), neighbour(index) {}
    Message message;
    std::size_t* left;
    std::size_t neighbour;  ///< index of the peer on the node
    std::size_t done = 0;   ///< bytes of header and data
    MessageWay way = MessageWay::copied;
    /// For a receive that is fetched, the address in the peer's process; for a send, its number among the offered ones.
    std::uint64_t from = 0;
    Clock::time_point begun = {};  ///< for a receive: when its header came, if it is timed
    bool goes_both_ways = false;   ///< its class, see tuning::message_class()
    [[nodiscard]] bool is_offered() const noexcept { return way == MessageWay::fetched; }  ///< the receiver fetches it
    [[nodiscard]] std::size_t header() const noexcept { return header_bytes(message.bytes); }
    [[nodiscard]] std::size_t all() const noexcept { return header() + message.bytes; }
    [[nodiscard]] std::size_t remaining() const noexcept { return all() - done; }
    [[nodiscard]] MessageStart start() const noexcept { return {message.signature, way, goes_both_ways}; }
    /// Both ends move the same parts. The header of a long message has no bytes in the blocks: it only makes the first
    /// part shorter.
    [[nodiscard]] std::size_t next_part() const noexcept;
    /// The part of the data that is among the next `bytes` bytes of header and data.
    [[nodiscard]] std::span<std::byte> data(std::size_t bytes) const noexcept;
  };
  struct Begun {
    Progress message;
    Direction direction;
  };
  /// Messages in one direction, oldest first.
  using Queue = MessageQueue<Progress>;
  /// Both rings to one rank of the node, and the pair's blocks; unused for this rank itself.
  struct Neighbour {
    RingWriter to;
    RingReader from;
    BlockOwner blocks;
    Queue sends;
    Queue receives;
  };

  [[nodiscard]] bool is_idle() const noexcept { return sending_.empty() && receiving_.empty(); }
  /// nullopt: a rank of another node, or this one.
  [[nodiscard]] std::optional<std::size_t> index_of(int peer) const noexcept;
  [[nodiscard]] static bool has_several_ways(const Message& message) noexcept {
    return message.bytes >= tuning::message_tried_from;
  }
  /// Whether it is worth looking for a message that comes after these: only if their number is zero or a power of two,
  /// because each look takes the cache line from its writer, which may not have begun to write.
  [[nodiscard]] static bool is_worth_a_look(const Queue& awaited) noexcept {
    const std::size_t count = awaited.size();
    return (count & (count - 1)) == 0;  // std::has_single_bit() is a call on processors that may lack it
  }
  /// Gives a message that is to be sent its class and its way. It goes both ways if several receives from that rank are
  /// under way, the newest of a long message. With one, the ranks may take turns: nobody copies twice then. Ranks that
  /// share processors try nothing: there a message takes longer for many reasons than for its way.
  void choose_way(const Neighbour& neighbour, Progress& send) const noexcept;
  static void count(RingWriter& ring, const Progress& send) noexcept;
  [[nodiscard]] bool send_at_once(Neighbour& neighbour, const Message& message) const noexcept;
  [[nodiscard]] bool take_arrived(std::size_t neighbour) noexcept;
  template <typename Pause>
  [[nodiscard]] std::optional<RingReader::Announced> await_header(RingReader& ring, const Message& message, int polls,
                                                                  Pause pause) const noexcept;
  [[nodiscard]] bool receive_at_once(RingReader& ring, const Message& message, int polls) noexcept;
  [[nodiscard]] static bool take_short(RingReader& ring, RingReader::Announced announced, std::byte* to) noexcept;
  void begin_receiving(RingReader& ring, RingReader::Announced announced, Progress& receive) const noexcept;
  void pause() noexcept;
  template <typename Move>
  [[nodiscard]] bool move_in_step(Progress message, Direction direction, Move move);
  [[nodiscard]] bool send_in_step(std::size_t neighbour, const Message& message);
  [[nodiscard]] bool receive_in_step(std::size_t neighbour, const Message& message, int polls);
  [[nodiscard]] static std::optional<std::size_t> put_short(RingWriter& ring, Progress& send) noexcept;
  [[nodiscard]] static std::optional<std::size_t> put_parts(Neighbour& neighbour, Progress& send) noexcept;
  [[nodiscard]] static std::optional<std::size_t> put(Neighbour& neighbour, Progress& send) noexcept;
  [[nodiscard]] static std::optional<std::size_t> take_parts(Neighbour& neighbour, Progress& receive) noexcept;
  [[nodiscard]] static std::optional<bool> show(RingWriter& ring, Progress& send) noexcept;
  [[nodiscard]] static std::optional<bool> put_ahead(Neighbour& neighbour, std::span<Progress> oldest) noexcept;
  [[nodiscard]] static std::optional<std::size_t> offer_alone(RingWriter& ring, Progress& send) noexcept;
  [[nodiscard]] Result<bool> offer(Progress& oldest, calls::Watchdog& watchdog);
  [[nodiscard]] bool pull_short(Progress& receive) noexcept;
  [[nodiscard]] Result<bool> begin_pulling(Progress& receive, calls::Watchdog& watchdog);
  void begin_timing(RingReader& ring, Progress& receive) const noexcept;
  static void end_timing(RingReader& ring, const Progress& receive) noexcept;
  [[nodiscard]] Result<void> fetch_part(Progress& receive);
  [[nodiscard]] Result<bool> fetch(Progress& receive, calls::Watchdog& watchdog);
  [[nodiscard]] Error why_not_fetched(const Progress& receive, const Error& error, calls::Watchdog& watchdog) const;
  [[nodiscard]] Result<bool> stream(Progress& receive, calls::Watchdog& watchdog);
  [[nodiscard]] bool has_something_else(const Progress& receive) noexcept;
  [[nodiscard]] Result<bool> push(Progress& send, calls::Watchdog& watchdog);
  [[nodiscard]] Result<bool> pull(Progress& receive, calls::Watchdog& watchdog);
  template <typename Move>
  [[nodiscard]] Result<bool> advance(std::vector<std::size_t>& active, Queue Neighbour::*queue, Move move);
  void nap(Clock::duration waited);

  std::unique_ptr<Transport> others_;
  static constexpr std::uint32_t elsewhere = UINT32_MAX;
  std::vector<int> ranks_;              ///< of the communicator, on this node
  std::vector<std::uint32_t> indices_;  ///< among them, by rank; `elsewhere`: this rank, or one of another node
  std::size_t own_;                     ///< index among them
  std::string host_;
  const PeerMemory* peers_;
  bool oversubscribed_;
  FileDescriptor interrupted_;
  std::atomic<bool> naps_ = false;
  std::vector<Neighbour> neighbours_;
  std::vector<std::size_t> sending_;  ///< neighbours to which messages are under way, in the order in which they began
  std::vector<std::size_t> receiving_;  ///< those from which messages are expected
  bool others_are_idle_ = true;         ///< the other transport has no messages under way
  std::optional<Begun> begun_;          ///< what move_at_once() has begun, for the next post()
  bool has_taken_ = false;              ///< messages ended outside of progress()
  TimedPauses pauses_;
  bool is_new_ = false;     ///< a message was posted since the last rest()
  bool has_slept_ = false;  ///< in the last rest(), before the present progress()
  Clock::time_point idle_since_;
};

}  // namespace amldist::collective
