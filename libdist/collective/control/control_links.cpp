#include "collective/control/control_links.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace amldist::collective {

ControlLinks::ControlLinks(World& world, Listener listener)
    : world_(world), key_(key_of_connections(world)), listener_(std::move(listener)), pending_(world.size, key_) {
  for (std::size_t i = 0; i < world_.links.size(); ++i) {
    if (!world_.links[i]) continue;
    add(static_cast<std::uint32_t>(i), std::move(world_.links[i]));
  }
}

void ControlLinks::add(std::uint32_t world_rank, FileDescriptor connection) {
  links_.push_back(std::make_unique<ControlLink>());
  links_.back()->socket = std::move(connection);
  links_.back()->rank = world_rank;
}

void ControlLinks::add_to(std::vector<pollfd>& wanted) const {
  for (const auto& link : links_) {
    const bool writes = link->connecting || !link->to_send.empty();
    wanted.push_back({link->socket.get(), static_cast<short>(writes ? POLLIN | POLLOUT : POLLIN), 0});
  }
  pending_.add_to(wanted);
}

void ControlLinks::serve(std::span<const pollfd> polled) {
  const std::size_t links = polled.size() - pending_.size();  // serving them may add others
  for (std::size_t i = 0; i < links; ++i) {
    const short events = polled[i].revents;
    if ((events & (POLLOUT | POLLERR)) != 0) write_to(*links_[i]);
    if (links_[i]->socket && (events & (POLLIN | POLLHUP | POLLERR)) != 0) read_from(*links_[i]);
  }
  pending_.serve(Clock::now(), listener_.on_greeting);
}

void ControlLinks::accept_all() { pending_.accept_from(world_.listener, Clock::now(), listener_.on_greeting); }

void ControlLinks::sweep() {
  std::erase_if(links_, [](const auto& link) { return !link->socket; });
}

void ControlLinks::read_from(ControlLink& link) {
  while (link.socket && !link.connecting) {
    const auto state = link.reader.read(link.socket);
    if (state == wireup::FrameReader::State::incomplete) return;
    if (state != wireup::FrameReader::State::complete) return drop(link);
    if (link.handshake) {
      take_challenge(link);
      continue;
    }
    Frame frame = link.reader.take();
    listener_.on_frame(link, frame);
  }
}

void ControlLinks::write_to(ControlLink& link) {
  link.connecting = false;
  while (link.socket && !link.to_send.empty()) {
    const ssize_t sent = ::send(link.socket.get(), link.to_send.data(), link.to_send.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      link.has_connected = true;
      link.to_send.erase(0, static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN || errno == EINTR) {
      return;
    } else {  // the end shows on the reading side, behind what the peer said before it went
      link.to_send.clear();
    }
  }
}

void ControlLinks::take_challenge(ControlLink& link) {
  const auto proof = link.handshake->take(link.reader.take(), wireup::Ends::as_joiner(link.socket));
  if (!proof) return drop(link);
  link.handshake.reset();
  link.reader = wireup::FrameReader(wireup::limits.frame_bytes);
  link.to_send = *proof + std::exchange(link.held, {});
  write_to(link);
}

bool ControlLinks::start(ControlLink& link) {
  const Member& member = world_.members[link.rank];
  auto socket = start_connection(member.address, member.port);
  if (!socket) return false;
  link.socket = std::move(*socket);
  link.connecting = true;
  link.has_connected = false;
  link.reader = wireup::FrameReader(wireup::limits.proof_bytes);
  link.handshake.emplace(key_, FrameWriter(FrameKind::rank_greeting).number(world_.rank).take());
  link.to_send = link.handshake->hello();
  ++link.attempts;
  return !link.to_send.empty();
}

void ControlLinks::drop(ControlLink& link) {
  // A rank whose handshake took too long, or that was closed out by a flood of strangers, is not gone.
  constexpr int most_attempts = 8;
  if (link.handshake && link.has_connected && link.attempts < most_attempts && start(link)) return;
  link.socket = FileDescriptor();
  listener_.on_end(link.rank, link.left);
}

ControlLink* ControlLinks::find(std::uint32_t world_rank) {
  const auto found =
      std::ranges::find_if(links_, [&](const auto& link) { return link->socket && link->rank == world_rank; });
  return found == links_.end() ? nullptr : found->get();
}

bool ControlLinks::send_to(std::uint32_t world_rank, const std::string& frame) {
  if (ControlLink* const link = find(world_rank)) {
    link->queue(frame);
    if (!link->connecting) write_to(*link);
    return true;
  }
  auto link = std::make_unique<ControlLink>();
  link->rank = world_rank;
  if (!start(*link)) return false;
  link->queue(frame);
  links_.push_back(std::move(link));
  return true;
}

void ControlLinks::send_to_all_but(std::uint32_t world_rank, const std::string& frame) {
  for (const auto& link : links_) {
    if (!link->socket || link->rank == world_rank) continue;
    link->queue(frame);
    if (!link->connecting) write_to(*link);
  }
}

bool ControlLinks::has_unsent() const noexcept {
  return std::ranges::any_of(
      links_, [](const auto& link) { return link->socket && (link->handshake || !link->to_send.empty()); });
}

void ControlLinks::say_goodbye() {
  for (const auto& link : links_) {
    link->queue(FrameWriter(FrameKind::bye).take());
    write_to(*link);
  }
}

}  // namespace amldist::collective
