#include "collective/control/control_links.hpp"

namespace amldist::collective {

ControlLinks::ControlLinks(World& world, Listener listener)
    : world_(world),
      listener_(std::move(listener)),
      links_({listener_.on_frame, [this](const FrameLink& link) { listener_.on_end(link.rank, link.left); }}),
      pending_(world.size) {
  links_.add_all(std::move(world_.links));
}

void ControlLinks::add_to(std::vector<pollfd>& wanted) const {
  links_.add_to(wanted);
  pending_.add_to(wanted);
}

void ControlLinks::serve(std::span<const pollfd> polled) {
  links_.serve(polled.first(polled.size() - pending_.size()));
  pending_.serve(Clock::now(), listener_.on_greeting);
}

void ControlLinks::accept_all() { pending_.accept_from(world_.listener, Clock::now(), listener_.on_greeting); }

bool ControlLinks::send_to(std::uint32_t world_rank, const std::string& frame) {
  if (ControlLink* const link = links_.find(world_rank)) {
    FrameLinks::send(*link, frame);
    return true;
  }
  auto socket = start_connection(world_.table.address_of(world_rank), world_.table.port_of(world_rank));
  if (!socket) return socket.error().code == Errc::limit;  // that says nothing of the other rank
  ControlLink& link = links_.add(world_rank, std::move(*socket));
  link.connecting = true;
  link.to_send = FrameWriter(FrameKind::rank_greeting).number(world_.table.nonce()).number(world_.rank).take() + frame;
  return true;
}

void ControlLinks::say_goodbye(bool all) {
  const std::string bye = FrameWriter(FrameKind::bye).number(all ? 1 : 0).take();
  for (const auto& link : links_.all()) {
    if (link->socket) FrameLinks::send(*link, bye);
  }
}

}  // namespace amldist::collective
