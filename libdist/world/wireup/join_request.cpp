#include "world/wireup/join_request.hpp"

#include <sys/random.h>

#include <algorithm>

#include "base/net/socket.hpp"
#include "base/text/printable.hpp"
#include "base/text/text.hpp"
#include "world/wireup/limits.hpp"

namespace amldist::world {
namespace {

using text::concat;

constexpr std::uint64_t protocol = 0x616d6c6469737402;  // "amldist" and a version

}  // namespace

FrameWriter JoinRequest::to_frame() const {
  FrameWriter writer(HandshakeKind::join_request);
  writer.number(protocol).text(group).number(number).number(size).number(process).text(host);
  return writer;
}

std::optional<JoinRequest> JoinRequest::parse(Frame frame) {
  if (frame.kind<HandshakeKind>() != HandshakeKind::join_request || frame.number() != protocol) return std::nullopt;
  JoinRequest out;
  out.group = frame.text();
  out.number = frame.number();
  out.size = frame.number();
  out.process = frame.number();
  out.host = text::printable(frame.text(), limits.host_characters);
  if (frame.is_short()) return std::nullopt;
  out.details = std::move(frame);
  return out;
}

Admission admit(const JoinRequest& join_request, const Group& group, const KnownPeer* present) {
  if (join_request.group != group.name) return {HandshakeKind::elsewhere, ""};
  const std::string peer = concat({group.peer, " ", std::to_string(join_request.number)});
  if (join_request.size != group.size) {
    return {HandshakeKind::refused, concat({peer, " (", join_request.host, ") was started as one of ",
                                            text::count(join_request.size, group.noun), ", ", group.place,
                                            " as one of ", std::to_string(group.size)})};
  }
  if (join_request.number < group.first || join_request.number >= group.size) {
    return {HandshakeKind::refused, concat({peer, " (", join_request.host, ") is not a number of this step, which has ",
                                            text::count(group.size, group.noun)})};
  }
  if (present != nullptr && present->process != join_request.process) {
    return {HandshakeKind::refused,
            concat({"two processes came as ", peer, ": one from ", present->host, ", one from ", join_request.host})};
  }
  return {};
}

std::string accepted_frame() { return FrameWriter(HandshakeKind::accepted).number(protocol).take(); }

std::string elsewhere_frame() { return FrameWriter(HandshakeKind::elsewhere).number(protocol).take(); }

void answer(const FileDescriptor& connection, const std::string& frame) {
  static_cast<void>(send_all(connection, frame, Clock::now()));
}

bool is_acceptance(Frame& frame) noexcept {
  return frame.kind<HandshakeKind>() == HandshakeKind::accepted && frame.number() == protocol;
}

std::string refused_frame(const Error& error) {
  return FrameWriter(HandshakeKind::refused)
      .number(static_cast<std::uint64_t>(error.code))
      .text(std::string_view(error.message).substr(0, limits.sentence_characters))
      .take();
}

Error read_refusal(Frame& frame) {
  const std::uint64_t code = frame.number();
  std::string sentence = text::printable(frame.text(), limits.sentence_characters);
  if (sentence.empty()) sentence = "the group of processes has ended, and no reason was given";
  const bool known = code <= static_cast<std::uint64_t>(Errc::aborted);
  return {known ? static_cast<Errc>(code) : Errc::peer, std::move(sentence)};
}

std::uint64_t random_number() noexcept {
  std::uint64_t number = 0;
  static_cast<void>(::getrandom(&number, sizeof number, 0) == 0);
  return std::max<std::uint64_t>(number, 1);
}

std::string list_numbers(const std::vector<std::uint32_t>& numbers) {
  constexpr std::size_t most = 16;
  std::string out;
  for (std::size_t i = 0; i < std::min(numbers.size(), most); ++i) {
    out += concat({i == 0 ? "" : ", ", std::to_string(numbers[i])});
  }
  if (numbers.size() > most) out += concat({" and ", text::count(numbers.size() - most, "other")});
  return out;
}

}  // namespace amldist::world
