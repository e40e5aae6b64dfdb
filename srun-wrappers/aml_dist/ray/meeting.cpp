#include "aml_dist/ray/meeting.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "base/text/text.hpp"

namespace amldist::ray {

void Introduction::add_to(world::FrameWriter& writer) const {
  writer.text(program.version).text(program.python).text(problem);
  writer.number(resources.cpus).number(resources.gpus).number(resources.object_store);
}

Introduction Introduction::read(world::Frame& frame) {
  Introduction out;
  out.program.version = frame.text();
  out.program.python = frame.text();
  out.problem = frame.text();
  out.resources.cpus = static_cast<std::uint32_t>(frame.number());
  out.resources.gpus = static_cast<std::uint32_t>(frame.number());
  out.resources.object_store = frame.number();
  return out;
}

std::string group_name(const Place& place) { return text::concat({"aml-dist ray ", place.step}); }

std::string message(MeetingKind kind, std::string_view text) {
  constexpr std::size_t most = 1000;
  return world::FrameWriter(kind).text(text.substr(0, most)).take();
}

void watch_connection(const FileDescriptor& socket) noexcept {
  const auto set = [&](int level, int name, int value) {
    static_cast<void>(::setsockopt(socket.get(), level, name, &value, sizeof value));
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 4);
}

}  // namespace amldist::ray
