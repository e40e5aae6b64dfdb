#include "world/wireup/handshake.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

#include "world/wireup/limits.hpp"

namespace amldist::world {
namespace {

constexpr std::uint64_t handshake_protocol = 0x616d6c6469737403;  // "amldist" and a version

/// 16 bytes of an IPv6 address, or of an IPv4 address mapped into one; 2 bytes of the port.
std::string bytes_of(const sockaddr_storage& address) {
  std::string out;
  if (address.ss_family == AF_INET) {
    sockaddr_in four = {};
    std::memcpy(&four, &address, sizeof four);
    out.assign(10, '\0');
    out.append(2, '\xff');
    out.append(reinterpret_cast<const char*>(&four.sin_addr), sizeof four.sin_addr);
    out.append(reinterpret_cast<const char*>(&four.sin_port), sizeof four.sin_port);
  } else if (address.ss_family == AF_INET6) {
    sockaddr_in6 six = {};
    std::memcpy(&six, &address, sizeof six);
    out.append(reinterpret_cast<const char*>(&six.sin6_addr), sizeof six.sin6_addr);
    out.append(reinterpret_cast<const char*>(&six.sin6_port), sizeof six.sin6_port);
  }
  return out;
}

using AddressQuestion = int (*)(int, sockaddr*, socklen_t*);

std::string address_of(const FileDescriptor& socket, AddressQuestion ask) {
  sockaddr_storage address = {};
  socklen_t length = sizeof address;
  return ask(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0 ? bytes_of(address) : std::string();
}

/// The text that a role authenticates: it has the key, and saw this hello and this nonce between these two addresses.
Code proof_of(std::string_view role, const GroupKey& group, std::string_view hello, std::string_view nonce,
              const Ends& ends) {
  const bool binds = group.is_secret();
  return group.key().code_of(
      {role, hello, nonce, binds ? std::string_view(ends.joiner) : "", binds ? std::string_view(ends.host) : ""});
}

}  // namespace

GroupKey::GroupKey(const Credentials& credentials, std::string_view name)
    : key_(credentials.key.derive(name)),
      mark_(key_.code_of({"mark of the group"})),
      is_secret_(credentials.trust != Trust::open) {}

Ends Ends::as_joiner(const FileDescriptor& socket) {
  return {address_of(socket, ::getsockname), address_of(socket, ::getpeername)};
}

Ends Ends::as_host(const FileDescriptor& socket) {
  return {address_of(socket, ::getpeername), address_of(socket, ::getsockname)};
}

// ---- the hosting side ----
std::size_t HostHandshake::most_bytes() const noexcept {
  return state_ == State::waits_for_join_request ? limits.join_request_bytes : limits.proof_bytes;
}

std::string HostHandshake::take(const GroupKey& group, Frame frame, const Ends& ends) {
  const State before = state_;
  state_ = State::stranger;
  if (before == State::waits_for_hello) return take_hello(group, frame, ends);
  if (before == State::waits_for_proof) take_proof(frame);
  if (before == State::waits_for_join_request) take_join_request(std::move(frame));
  return {};
}

std::string HostHandshake::take_hello(const GroupKey& group, Frame& frame, const Ends& ends) {
  if (frame.kind<HandshakeKind>() != HandshakeKind::hello || frame.number() != handshake_protocol) return {};
  const std::string mark = frame.text();
  const std::string nonce_of_joiner = frame.text();
  const std::string join_request_hash = frame.text();
  if (frame.is_short() || nonce_of_joiner.size() != key_bytes || join_request_hash.size() != key_bytes) return {};
  if (!are_equal(group.mark(), mark)) {
    state_ = State::elsewhere;
    return {};
  }
  const auto nonce = random_bytes();
  if (!nonce) return {};
  std::memcpy(join_request_hash_.data(), join_request_hash.data(), join_request_hash_.size());
  const Code own = proof_of("host", group, frame.content(), as_text(*nonce), ends);
  expected_ = proof_of("joiner", group, frame.content(), as_text(*nonce), ends);
  state_ = State::waits_for_proof;
  return FrameWriter(HandshakeKind::challenge).text(as_text(*nonce)).text(as_text(own)).take();
}

void HostHandshake::take_proof(Frame& frame) {
  if (frame.kind<HandshakeKind>() != HandshakeKind::proof) return;
  if (are_equal(expected_, frame.text())) state_ = State::waits_for_join_request;
}

void HostHandshake::take_join_request(Frame&& frame) {
  if (!are_equal(join_request_hash_, as_text(hash_of(frame.content())))) return;
  join_request_ = std::move(frame);
  state_ = State::complete;
}

// ---- the joining side ----
JoinerHandshake::JoinerHandshake(GroupKey group, std::string join_request)
    : group_(std::move(group)), join_request_(std::move(join_request)) {
  const auto nonce = random_bytes();
  if (!nonce || join_request_.size() < frame_head) return;
  hello_ = FrameWriter(HandshakeKind::hello)
               .number(handshake_protocol)
               .text(as_text(group_.mark()))
               .text(as_text(*nonce))
               .text(as_text(hash_of(std::string_view(join_request_).substr(frame_head))))
               .take();
}

std::optional<std::string> JoinerHandshake::take(Frame frame, const Ends& ends) {
  if (hello_.empty() || frame.kind<HandshakeKind>() != HandshakeKind::challenge) return std::nullopt;
  const std::string nonce = frame.text();
  const std::string code = frame.text();
  const std::string_view hello = std::string_view(hello_).substr(frame_head);
  if (nonce.size() != key_bytes || !are_equal(proof_of("host", group_, hello, nonce, ends), code)) {
    return std::nullopt;
  }
  const Code own = proof_of("joiner", group_, hello, nonce, ends);
  return FrameWriter(HandshakeKind::proof).text(as_text(own)).take() + join_request_;
}

}  // namespace amldist::world
