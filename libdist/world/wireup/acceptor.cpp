#include "world/wireup/acceptor.hpp"

#include <utility>

#include "base/net/socket.hpp"

namespace amldist::world {

Acceptor::Acceptor(Group group, const Credentials& credentials)
    : group_(std::move(group)), pending_(group_.size, GroupKey(credentials, group_.name)), peers_(group_.size) {}

Result<std::vector<JoinRequest>> Acceptor::serve(const FileDescriptor& listener, Clock::time_point now) {
  const auto handler = [this](FileDescriptor connection, Frame frame) {
    greet(std::move(connection), std::move(frame));
  };
  pending_.serve(now, handler);
  pending_.accept_from(listener, now, handler);
  if (!contradiction_.empty()) return Error{Errc::mismatch, contradiction_};
  return std::exchange(admitted_, {});
}

void Acceptor::add(FileDescriptor connection, Clock::time_point now) {
  pending_.add(std::move(connection), now,
               [this](FileDescriptor each, Frame frame) { greet(std::move(each), std::move(frame)); });
}

void Acceptor::greet(FileDescriptor connection, Frame frame) {
  auto join_request = JoinRequest::parse(std::move(frame));
  if (!join_request) return;  // of another release of aml-dist
  const Peer* const same = join_request->number < peers_.size() ? &peers_[join_request->number] : nullptr;
  const KnownPeer present = same != nullptr ? KnownPeer{same->process, same->host} : KnownPeer{};
  const Admission admission = admit(*join_request, group_, same != nullptr && same->link ? &present : nullptr);
  if (admission.answer == HandshakeKind::accepted) return let_in(std::move(connection), std::move(*join_request));
  if (admission.answer == HandshakeKind::elsewhere) return answer(connection, elsewhere_frame());
  if (contradiction_.empty()) contradiction_ = admission.reason;
  answer(connection, refused_frame({Errc::mismatch, admission.reason}));
}

/// If a process gave up waiting for the answer and connected again, its new connection is used.
void Acceptor::let_in(FileDescriptor connection, JoinRequest join_request) {
  answer(connection, accepted_frame());
  Peer& peer = peers_[join_request.number];
  if (!peer.link) ++present_;
  peer = {std::move(connection), join_request.process, join_request.host};
  admitted_.push_back(std::move(join_request));
}

std::vector<std::uint32_t> Acceptor::missing() const {
  std::vector<std::uint32_t> out;
  for (std::uint32_t number = group_.first; number < group_.size; ++number) {
    if (!peers_[number].link) out.push_back(number);
  }
  return out;
}

void Acceptor::dismiss(std::uint32_t number) {
  Peer& peer = peers_.at(number);
  if (peer.link) --present_;
  peer = {};
}

void Acceptor::refuse_all(const Error& error, Clock::time_point deadline) {
  const std::string frame = refused_frame(error);
  for (const Peer& peer : peers_) {
    if (peer.link) static_cast<void>(send_all(peer.link, frame, deadline));
  }
}

std::vector<FileDescriptor> Acceptor::take_links() {
  std::vector<FileDescriptor> links;
  links.reserve(peers_.size());
  for (Peer& peer : peers_) links.push_back(std::move(peer.link));
  return links;
}

}  // namespace amldist::world
