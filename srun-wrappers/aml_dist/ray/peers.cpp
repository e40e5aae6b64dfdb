#include "aml_dist/ray/peers.hpp"

#include <algorithm>

#include "base/net/socket.hpp"
#include "base/text/text.hpp"

namespace amldist::ray {
namespace {

using text::concat;
using world::Frame;
using world::FrameReader;
using State = Peers::Peer::State;

Error of_node(std::string_view host, std::string_view why) { return {Errc::peer, concat({host, ": ", why})}; }

}  // namespace

Result<Peers> Peers::open(const Place& place) {
  auto listener = listen_on(place.port(launch::RayPort::meeting));
  if (!listener) return Error{Errc::unavailable, listener.error().message};
  world::Acceptor acceptor({group_name(place), 1, place.nodes, "node", "node", "node 0"}, place.credentials);
  return Peers(std::move(*listener), std::move(acceptor), place.nodes);
}

void Peers::add_to(std::vector<pollfd>& files) const {
  files.push_back({listener_.get(), POLLIN, 0});
  acceptor_.add_to(files);
  for (std::uint32_t node = 1; node < peers_.size(); ++node) {
    if (acceptor_.link(node)) files.push_back({acceptor_.link(node).get(), POLLIN, 0});
  }
}

Result<void> Peers::serve() {
  const auto admitted = acceptor_.serve(listener_, Clock::now());
  if (!admitted) return admitted.error();
  for (const world::JoinRequest& each : *admitted) {
    Peer& peer = peers_.at(each.number);
    Frame details = each.details;
    peer = {State::present, each.host, Introduction::read(details), FrameReader(longest_message)};
    watch_connection(acceptor_.link(static_cast<std::uint32_t>(each.number)));
    if (peer.introduction.problem.empty()) continue;
    refuse(static_cast<std::uint32_t>(each.number));
    return of_node(peer.host, peer.introduction.problem);
  }
  for (std::uint32_t node = 1; node < peers_.size(); ++node) {
    if (auto status = hear(node); !status) return status;
  }
  return {};
}

Result<void> Peers::hear(std::uint32_t node) {
  Peer& peer = peers_[node];
  while (acceptor_.link(node)) {
    const auto state = peer.reader.read(acceptor_.link(node));
    if (state == FrameReader::State::incomplete) return {};
    if (state != FrameReader::State::complete) {
      acceptor_.dismiss(node);
      peer.state = State::gone;
      return of_node(peer.host, "its aml-dist ray has ended");
    }
    Frame frame = peer.reader.take();
    if (frame.kind<MeetingKind>() == MeetingKind::joined) peer.state = State::joined;
    else if (frame.kind<MeetingKind>() == MeetingKind::failed) return of_node(peer.host, frame.text());
  }
  return {};
}

void Peers::start_present() {
  for (std::uint32_t node = 1; node < peers_.size(); ++node) {
    if (peers_[node].state != State::present) continue;
    peers_[node].state = State::starting;
    send(node, MeetingKind::start);
  }
}

void Peers::give_up(std::string_view why) {
  for (std::uint32_t node = 1; node < peers_.size(); ++node) {
    if (!acceptor_.link(node)) continue;
    send(node, MeetingKind::failed, why);
    why = {};
  }
}

void Peers::send(std::uint32_t node, MeetingKind kind, std::string_view text) {
  constexpr auto patience = std::chrono::seconds(2);
  // One that does not take it is closed: hear() finds that.
  static_cast<void>(send_all(acceptor_.link(node), message(kind, text), Clock::now() + patience));
}

bool Peers::are_complete() const noexcept {
  return std::all_of(peers_.begin() + 1, peers_.end(), [](const Peer& each) { return each.state == State::joined; });
}

std::string Peers::present() const {
  std::string out;
  for (std::uint32_t node = 1; node < peers_.size(); ++node) {
    if (acceptor_.link(node)) out += concat({out.empty() ? "" : ", ", peers_[node].host});
  }
  return out;
}

std::string Peers::missing(const Place& place) const {
  std::vector<std::string> absent = place.hosts;
  std::erase(absent, place.host);
  std::vector<std::string> slow;
  for (const Peer& each : peers_) {
    std::erase(absent, each.host);
    if (each.state == State::starting) slow.push_back(each.host);
  }
  const auto list = [](const std::vector<std::string>& hosts) {
    const std::vector<std::string_view> words(hosts.begin(), hosts.end());
    return text::join(words);
  };
  std::string out;
  if (!absent.empty())
    out = concat({"no word from ", list(absent), ": does aml-dist ray run there, and is the head's port reachable?"});
  if (!slow.empty()) out += concat({out.empty() ? "" : "; ", "Ray does not come up on ", list(slow)});
  return out;
}

/// Throws away what a node still says.
void Peers::drain(std::uint32_t node) {
  auto state = FrameReader::State::complete;
  while (state == FrameReader::State::complete) {
    state = peers_[node].reader.read(acceptor_.link(node));
    if (state == FrameReader::State::complete) static_cast<void>(peers_[node].reader.take());
  }
  if (state == FrameReader::State::incomplete) return;
  acceptor_.dismiss(node);
  peers_[node].state = State::gone;
}

void Peers::end(std::chrono::milliseconds patience, bool wait_for_late) {
  const auto deadline = Clock::now() + patience;
  std::vector<bool> told(peers_.size());
  while (Clock::now() < deadline) {
    bool is_over = true;
    for (std::uint32_t node = 1; node < peers_.size(); ++node) {
      if (!acceptor_.link(node)) {
        is_over = is_over && !(wait_for_late && peers_[node].state == State::absent);
        continue;
      }
      peers_[node].state = State::starting;
      if (!told[node]) send(node, MeetingKind::end);
      told[node] = true;
      drain(node);
      is_over = is_over && !acceptor_.link(node);
    }
    if (is_over) return;
    std::vector<pollfd> files;
    add_to(files);
    constexpr int tick = 100;  // ms
    static_cast<void>(::poll(files.data(), files.size(), tick));
    if (!acceptor_.serve(listener_, Clock::now())) return;
  }
}

}  // namespace amldist::ray
