// Adds messages of a rank to itself to a transport that carries those to other ranks.
#pragma once

#include <deque>
#include <memory>

#include "collective/transport/transport.hpp"

namespace amldist::collective {

class LoopbackTransport final : public Transport {
 public:
  LoopbackTransport(std::unique_ptr<Transport> others, int own_rank)
      : others_(std::move(others)), own_rank_(own_rank) {}

  [[nodiscard]] std::string_view name() const noexcept override { return others_->name(); }
  [[nodiscard]] std::size_t part_bytes() const noexcept override { return others_->part_bytes(); }
  [[nodiscard]] bool serves_any_thread() const noexcept override { return others_->serves_any_thread(); }
  [[nodiscard]] Result<void> post(const Message& message, Direction direction, std::size_t& left,
                                  calls::Watchdog& watchdog) override;
  [[nodiscard]] bool posts_at_once(int peer, int tag) const noexcept override {
    return peer == own_rank_ || others_->posts_at_once(peer, tag);
  }
  [[nodiscard]] bool shares_processors() const noexcept override { return others_->shares_processors(); }
  [[nodiscard]] bool move_at_once(const Message& message, Direction direction, Look look) override {
    return message.peer != own_rank_ && others_->move_at_once(message, direction, look);
  }
  [[nodiscard]] std::optional<VainLooks> vain_looks(const Message& moved) const noexcept override {
    return others_->vain_looks(moved);
  }
  [[nodiscard]] Result<bool> progress(calls::Watchdog& watchdog) override;
  bool rest(int idle) override { return others_->rest(idle); }
  [[nodiscard]] int awaited() const noexcept override;
  void interrupt() noexcept override { others_->interrupt(); }
  void give_up() noexcept override;

 private:
  struct Half {
    Message message;
    std::size_t* left = nullptr;
  };

  std::unique_ptr<Transport> others_;
  int own_rank_;
  std::deque<Half> sends_;  ///< oldest first, like the receives: the k-th send matches the k-th receive
  std::deque<Half> receives_;
};

}  // namespace amldist::collective
