#include "world/control/control_links.hpp"

#include <algorithm>

namespace amldist::world {

ControlLinks::ControlLinks(World& world, Listener listener)
    : world_(world),
      key_(key_of_connections(world)),
      listener_(std::move(listener)),
      links_({listener_.on_frame, [this](const FrameLink& link) { listener_.on_end(link.rank, link.left); },
              [this](FrameLink& link) { return static_cast<bool>(start(link)); }}),
      pending_(world.size, key_) {
  links_.add_all(std::move(world_.links));
  if (world_.late_joiners) latecomers_.emplace(0, world_.late_joiners->key);
}

void ControlLinks::add_to(std::vector<pollfd>& wanted) const {
  links_.add_to(wanted);
  pending_.add_to(wanted);
  if (!latecomers_) return;
  latecomers_->add_to(wanted);
  wanted.push_back({world_.late_joiners->listener.get(), POLLIN, 0});
}

void ControlLinks::serve(std::span<const pollfd> polled) {
  const std::size_t at_late_joiners = latecomers_ ? latecomers_->size() + 1 : 0;
  links_.serve(polled.first(polled.size() - pending_.size() - at_late_joiners));
  const auto now = Clock::now();
  pending_.serve(now, listener_.on_join_request);
  if (!latecomers_) return;
  latecomers_->serve(now, listener_.on_latecomer);
  if (polled.back().revents != 0) latecomers_->accept_from(world_.late_joiners->listener, now, listener_.on_latecomer);
}

Clock::time_point ControlLinks::next_deadline() const noexcept {
  const auto next = pending_.next_deadline();
  return latecomers_ ? std::min(next, latecomers_->next_deadline()) : next;
}

void ControlLinks::accept_all() { pending_.accept_from(world_.listener, Clock::now(), listener_.on_join_request); }

Result<void> ControlLinks::start(ControlLink& link) {
  auto socket = start_connection(world_.table.address_of(link.rank), world_.table.port_of(link.rank));
  if (!socket) return socket.error();
  link.socket = std::move(*socket);
  return link.begin_handshake(key_, FrameWriter(FrameKind::rank_join).number(world_.rank).take());
}

bool ControlLinks::send_to(std::uint32_t world_rank, const std::string& frame) {
  if (ControlLink* const link = links_.find(world_rank)) {
    FrameLinks::send(*link, frame);
    return true;
  }
  auto link = std::make_unique<ControlLink>();
  link->rank = world_rank;
  if (auto status = start(*link); !status) {
    return status.error().code == Errc::limit;  // that says nothing of the other rank
  }
  FrameLinks::send(*link, frame);
  FrameLinks::Links one;
  one.push_back(std::move(link));
  links_.add_all(std::move(one));
  return true;
}

bool ControlLinks::has_unsent(const std::function<bool(std::uint32_t world_rank)>& left_out) const {
  return std::ranges::any_of(links_.all(), [&](const auto& link) {
    return link->socket && (link->handshake || !link->to_send.empty()) && !left_out(link->rank);
  });
}

void ControlLinks::say_goodbye(bool all) {
  const std::string bye = FrameWriter(FrameKind::bye).number(all ? 1 : 0).take();
  for (const auto& link : links_.all()) {
    if (link->socket) FrameLinks::send(*link, bye);
  }
}

}  // namespace amldist::world
