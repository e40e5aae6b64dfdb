#include "world/bootstrap/frame_links.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace amldist::world {

FrameLink& FrameLinks::add(std::uint32_t rank, FileDescriptor connection) {
  links_.push_back(std::make_unique<FrameLink>());
  links_.back()->socket = std::move(connection);
  links_.back()->rank = rank;
  return *links_.back();
}

void FrameLinks::add_all(Links links) {
  for (auto& link : links) links_.push_back(std::move(link));
}

FrameLink* FrameLinks::find(std::uint32_t rank) {
  const auto found = std::ranges::find_if(links_, [&](const auto& link) { return link->socket && link->rank == rank; });
  return found == links_.end() ? nullptr : found->get();
}

void FrameLinks::add_to(std::vector<pollfd>& wanted) const {
  for (const auto& link : links_) {
    const bool writes = link->connecting || !link->to_send.empty();
    wanted.push_back({link->socket.get(), static_cast<short>(writes ? POLLIN | POLLOUT : POLLIN), 0});
  }
}

void FrameLinks::serve(std::span<const pollfd> polled) {
  for (std::size_t i = 0; i < polled.size(); ++i) {  // serving them may append others
    const short events = polled[i].revents;
    if ((events & (POLLOUT | POLLERR)) != 0) write_to(*links_[i]);
    if (links_[i]->socket && (events & (POLLIN | POLLHUP | POLLERR)) != 0) read_from(*links_[i]);
  }
}

void FrameLinks::read_from_rank(std::uint32_t rank) {
  if (FrameLink* const link = find(rank)) read_from(*link);
}

void FrameLinks::sweep() {
  std::erase_if(links_, [](const auto& link) { return !link->socket; });
}

void FrameLinks::send(FrameLink& link, std::string_view frame) {
  (link.handshake ? link.held : link.to_send) += frame;
  if (!link.connecting) write_to(link);
}

void FrameLinks::read_from(FrameLink& link) {
  while (link.socket && !link.connecting) {
    const auto state = link.reader.read(link.socket);
    if (state == world::FrameReader::State::incomplete) return;
    if (state != world::FrameReader::State::complete) return drop(link);
    if (link.handshake) {
      take_challenge(link);
      continue;
    }
    world::Frame frame = link.reader.take();
    listener_.on_frame(link, frame);
  }
}

void FrameLinks::write_to(FrameLink& link) {
  link.connecting = false;
  std::size_t sent = 0;
  while (link.socket && sent < link.to_send.size()) {
    const ssize_t now = ::send(link.socket.get(), link.to_send.data() + sent, link.to_send.size() - sent, MSG_NOSIGNAL);
    if (now > 0) {
      link.has_connected = true;
      sent += static_cast<std::size_t>(now);
    } else if (errno == EAGAIN || errno == EINTR) {
      break;
    } else {  // the reading side notices the end, after what the peer sent before it went
      sent = link.to_send.size();
    }
  }
  link.to_send.erase(0, sent);
}

Result<void> FrameLink::begin_handshake(const world::GroupKey& key, std::string join_request) {
  connecting = true;
  has_connected = false;
  reader = world::FrameReader(world::limits.proof_bytes);
  handshake.emplace(key, std::move(join_request));
  to_send = handshake->hello();
  ++attempts;
  if (to_send.empty()) return Error{Errc::unavailable, "cannot get random numbers from the kernel"};
  return {};
}

void FrameLinks::take_challenge(FrameLink& link) {
  const auto proof = link.handshake->take(link.reader.take(), world::Ends::as_joiner(link.socket));
  if (!proof) return drop(link);
  link.handshake.reset();
  link.reader = world::FrameReader(world::limits.frame_bytes);
  link.to_send = *proof + std::exchange(link.held, {});
  write_to(link);
}

void FrameLinks::drop(FrameLink& link) const {
  // A rank whose handshake took too long, or that a flood of strangers displaced, has not ended.
  constexpr int most_attempts = 8;
  const bool may_try = link.handshake && link.has_connected && link.attempts < most_attempts && listener_.restart;
  if (may_try && listener_.restart(link)) return;
  link.socket = FileDescriptor();
  listener_.on_end(link);
}

}  // namespace amldist::world
