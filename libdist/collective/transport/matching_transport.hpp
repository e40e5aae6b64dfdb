// Adds messages with tags to a transport that does not support them.
//
// Tagged messages have connections and rings of their own, which are made when the first one is posted: messages
// without a tag cost nothing more. Each is sent as a packet, which contains tag, signature, length and short data; long
// data follows it. The receiver takes the packets of one peer in their order: data for which a receive waits goes to
// its buffer, and other data into a temporary buffer until it is wanted. So messages with other tags never delay one,
// and neither does their receiver.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "collective/transport/transport.hpp"

namespace amldist::collective {

class MatchingTransport final : public Transport {
 public:
  using Make = std::function<std::unique_ptr<Transport>()>;
  /// `make` makes the transport for tagged messages of `ranks` ranks, whose order of posting it keeps for each pair.
  /// `forget` discards, at the end, what other ranks have begun with that transport if this one has not made it.
  MatchingTransport(std::unique_ptr<Transport> plain, std::size_t ranks, Make make, std::function<void()> forget)
      : plain_(std::move(plain)), make_(std::move(make)), forget_(std::move(forget)), peers_(ranks) {}
  ~MatchingTransport() override {
    if (!tagged_) forget_();
  }
  MatchingTransport(const MatchingTransport&) = delete;
  MatchingTransport& operator=(const MatchingTransport&) = delete;

  [[nodiscard]] std::string_view name() const noexcept override { return plain_->name(); }
  [[nodiscard]] std::size_t part_bytes() const noexcept override { return plain_->part_bytes(); }
  [[nodiscard]] bool serves_any_thread() const noexcept override { return plain_->serves_any_thread(); }
  [[nodiscard]] Result<void> post(const Message& message, Direction direction, std::size_t& left,
                                  calls::Watchdog& watchdog) override;
  [[nodiscard]] bool posts_at_once(int peer, int tag) const noexcept override {
    if (tag == Message::untagged) return plain_->posts_at_once(peer, tag);
    return tagged_ != nullptr && (peer == calls::Watchdog::anyone || tagged_->posts_at_once(peer, tag));
  }
  [[nodiscard]] bool move_at_once(const Message& message, Direction direction, Look look) override;
  [[nodiscard]] std::optional<VainLooks> vain_looks(const Message& moved) const noexcept override;
  [[nodiscard]] Result<bool> progress(calls::Watchdog& watchdog) override;
  [[nodiscard]] Result<void> keep_waiting(calls::Watchdog& watchdog) override;
  bool rest(int idle) override;
  [[nodiscard]] int awaited() const noexcept override;
  void interrupt() noexcept override;
  void give_up() noexcept override;

 private:
  struct Head {
    std::uint64_t tag = 0;
    std::uint64_t signature = 0;
    std::uint64_t bytes = 0;
  };
  struct Packet {  // NOLINT(cppcoreguidelines-pro-type-member-init): only the bytes of a message are written and read
    /// Copying more data once more takes longer than a second message.
    static constexpr std::size_t most_data = 1512;
    Head head;
    std::byte data[most_data];
    [[nodiscard]] static constexpr std::size_t data_bytes(std::uint64_t of) noexcept {
      return of <= most_data ? of : 0;
    }
    /// With the message's head, and its data if that is short.
    void fill(const Message& message) noexcept;
    /// As a message to a peer. A receive takes any length.
    [[nodiscard]] Message to(int peer) noexcept;
    [[nodiscard]] Message from(int peer) noexcept;
  };
  struct Sending {
    Packet packet;
    std::size_t left = 0;
    std::size_t* of_caller = nullptr;
  };
  /// A message that arrived before its receive.
  struct Early {
    int peer = 0;
    Head head;
    std::vector<std::byte> data;
    bool is_whole = false;
  };
  /// A receive that has not ended. At most one of the last two: where its data is, or whether it is under way.
  struct Wanted {
    Message message;
    std::size_t* left = nullptr;
    Early* early = nullptr;
    bool is_under_way = false;
    [[nodiscard]] bool is_free() const noexcept { return early == nullptr && !is_under_way; }
    [[nodiscard]] bool takes(int peer, std::uint64_t tag) const noexcept {
      return (message.peer == calls::Watchdog::anyone || message.peer == peer) &&
             static_cast<std::uint64_t>(message.tag) == tag;
    }
  };
  /// What arrives from one rank.
  struct Peer {
    enum class State : std::uint8_t { idle, head, data };
    State state = State::idle;
    std::size_t left = 0;  ///< of the message under way
    std::unique_ptr<Packet> packet;
    Wanted* wanted = nullptr;  ///< whose data is under way; nullptr: that of `early`
    Early* early = nullptr;
  };

  [[nodiscard]] bool has_tagged() const noexcept { return !sendings_.empty() || !wanted_.empty(); }
  /// Not inlined: a plain message is passed on without any work.
  [[gnu::noinline, nodiscard]] Result<void> post_tagged(const Message& message, Direction direction, std::size_t& left,
                                                        calls::Watchdog& watchdog);
  [[nodiscard]] Result<void> send(const Message& message, std::size_t& left, calls::Watchdog& watchdog);
  void receive(const Message& message, std::size_t& left);
  [[nodiscard]] bool send_at_once(const Message& message, Look look);
  [[nodiscard]] bool receive_at_once(const Message& message, Look look);
  [[nodiscard]] bool receive_at_once_from_any(const Message& message, Look look);
  [[nodiscard]] bool receive_at_once_from(int rank, const Message& message, Look for_packet, Look for_rest);
  [[nodiscard]] bool take_rest_at_once(int rank, const Message& message, Look look);
  [[nodiscard]] Result<void> ask_for_heads(calls::Watchdog& watchdog);
  [[nodiscard]] Result<bool> take(int rank, Peer& peer, calls::Watchdog& watchdog);
  [[nodiscard]] Result<void> ask_for_head(int rank, calls::Watchdog& watchdog);
  [[nodiscard]] Result<void> begin_data(int rank, Peer& peer, calls::Watchdog& watchdog);
  [[nodiscard]] Result<Early*> keep_early(int rank, const Head& head);
  void end_data(int rank, Peer& peer);
  [[nodiscard]] Result<bool> take_early(calls::Watchdog& watchdog);
  [[nodiscard]] bool end_sends();
  [[nodiscard]] Result<bool> progress_tagged(calls::Watchdog& watchdog);
  void end(Wanted& wanted, int source);

  std::unique_ptr<Transport> plain_;
  Make make_;
  std::function<void()> forget_;
  std::unique_ptr<Transport> tagged_;                ///< nullptr until it is needed
  std::atomic<Transport*> tagged_of_all_ = nullptr;  ///< the same, for interrupt()
  std::vector<Peer> peers_;
  std::vector<int> asked_;  ///< ranks whose state is not idle
  TimedPauses pauses_;      ///< of a receive from any source
  unsigned looks_ = 0;      ///< for messages of any source, while some ranks were asked
  std::list<Sending> sendings_;
  std::list<Sending> spare_;  ///< for the next send: memory is not taken anew for each
  std::list<Wanted> spare_wanted_;
  std::list<Wanted> wanted_;    ///< oldest first
  std::list<Early> early_;      ///< oldest first
  bool has_sent_head_ = false;  ///< move_at_once() has, of the message that is posted next
  bool has_plain_ = false;      ///< the other transport may have messages under way
};

}  // namespace amldist::collective
