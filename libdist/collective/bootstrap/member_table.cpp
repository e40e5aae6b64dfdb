#include "collective/bootstrap/member_table.hpp"

#include "core/printable.hpp"
#include "core/text.hpp"
#include "wireup/limits.hpp"

namespace amldist::collective {
namespace {

enum class BootstrapKind : std::uint8_t { member_table = 16 };

}  // namespace

void write_details(wireup::FrameWriter& greeting, const Member& self) {
  greeting.text(self.node).number(self.pid).number(self.port);
}

bool read_details(wireup::Frame& details, Member& member) {
  member.node = details.text();
  member.pid = static_cast<std::uint32_t>(details.number());
  member.port = static_cast<std::uint16_t>(details.number());
  return !details.is_short();
}

std::string to_frame(const MemberTable& table) {
  wireup::FrameWriter writer(BootstrapKind::member_table);
  writer.number(table.nonce).number(table.members.size());
  for (const Member& member : table.members) {
    writer.text(member.host).text(member.node).number(member.pid).number(member.address.bits).number(member.port);
  }
  return writer.take();
}

Result<MemberTable> read_member_table(wireup::Frame& frame, std::uint32_t size, Ipv4 root) {
  const Error wrong = {Errc::peer, "rank 0 sent something else than the table of ranks: are all ranks of one release?"};
  MemberTable table;
  table.nonce = frame.number();
  if (frame.kind<BootstrapKind>() != BootstrapKind::member_table || frame.number() != size) return wrong;
  for (std::uint32_t rank = 0; rank < size && !frame.is_short(); ++rank) {
    Member member;
    member.host = text::printable(frame.text(), wireup::limits.host_characters);
    member.node = frame.text();
    member.pid = static_cast<std::uint32_t>(frame.number());
    member.address.bits = static_cast<std::uint32_t>(frame.number());
    member.port = static_cast<std::uint16_t>(frame.number());
    if (member.address.bits == 0) member.address = root;
    table.members.push_back(std::move(member));
  }
  if (frame.is_short()) return wrong;
  return table;
}

}  // namespace amldist::collective
