// The member table: who the processes of a world are, and where they listen. Rank 0 makes it from what each says of
// itself behind its greeting, and sends it to all.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/ipv4.hpp"
#include "core/result.hpp"
#include "wireup/frame.hpp"

namespace amldist::collective {

/// One process of the world.
struct Member {
  std::string host;        ///< its host name, printable
  std::string node;        ///< equal for processes that share memory
  std::uint32_t pid = 0;   ///< as its own node sees it
  Ipv4 address;            ///< where it listens, as the reader of the table reaches it
  std::uint16_t port = 0;  ///< of its listener
};

struct MemberTable {
  std::uint64_t nonce = 0;  ///< random, the same on all ranks: strangers do not know it
  std::vector<Member> members;
};

/// What a process says of itself behind its greeting: node, pid and port.
void write_details(wireup::FrameWriter& greeting, const Member& self);
/// False: fields are missing.
[[nodiscard]] bool read_details(wireup::Frame& details, Member& member);

/// An address of 0 stands for "the host of rank 0": each reader knows by which address it reaches that.
[[nodiscard]] std::string to_frame(const MemberTable& table);
/// The table for `size` ranks; `root`: rank 0's address. Errors: peer, when it is no such table.
[[nodiscard]] Result<MemberTable> read_member_table(wireup::Frame& frame, std::uint32_t size, Ipv4 root);

}  // namespace amldist::collective
