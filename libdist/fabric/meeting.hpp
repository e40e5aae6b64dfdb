// Where the nodes of a step meet: a star of TCP connections to the first node, and rounds in which everybody says
// something and hears what some others said. A round is a barrier too. The number of rounds does not depend on the
// number of nodes.
//
//   frame:   four bytes of length (network order), then that many bytes
//   hello:   "aml-dist-meeting 1 STEP NODE NODES"
//   round:   "WANTED\n" and the text; WANTED is "*", "-" or "3,5"     to the host
//   answer:  for each wanted node "NODE LENGTH\n" and the text            from it
//   end:     "!" and a sentence                                          when the meeting breaks up
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/result.hpp"
#include "os/file_descriptor.hpp"

namespace amldist::fabric {

/// The step that meets, as every node must name it.
struct MeetingPlace {
  std::string host;  ///< of node 0: a name or an IPv4 address
  std::uint16_t port = 0;
  std::string step;  ///< "JOB.STEP"
  std::uint32_t node = 0;
  std::uint32_t nodes = 1;
};

/// Longest text of one node in one round, in bytes.
inline constexpr std::size_t longest_text = std::size_t{1} << 20;

/// The host's side, on node 0: a thread that collects and answers. Destroyed, it ends the meeting.
class MeetingHost {
 public:
  /// Listens at once. Nodes that have not come, or not spoken, when `patience` has passed are named to all others, and
  /// the meeting ends. Errors: unavailable with the port's errno.
  [[nodiscard]] static Result<std::unique_ptr<MeetingHost>> open(const MeetingPlace& place,
                                                                 std::chrono::milliseconds patience);
  MeetingHost(const MeetingHost&) = delete;
  MeetingHost& operator=(const MeetingHost&) = delete;
  ~MeetingHost();

 private:
  MeetingHost() = default;
  FileDescriptor stop_;
  std::thread thread_;
};

/// A node's side.
class Meeting {
 public:
  /// Connects, trying again until `patience` has passed: nodes do not start at the same moment.
  [[nodiscard]] static Result<Meeting> join(const MeetingPlace& place, std::chrono::milliseconds patience);

  /// Whose texts a node wants to hear.
  struct Wanted {
    bool all = false;
    std::vector<std::uint32_t> nodes;
  };
  /// One round. The texts of the wanted nodes by number. Errors: unavailable, with what the host says or the errno.
  [[nodiscard]] Result<std::map<std::uint32_t, std::string>> round(const Wanted& wanted, std::string_view text);

 private:
  explicit Meeting(FileDescriptor socket, std::chrono::milliseconds patience)
      : socket_(std::move(socket)), patience_(patience) {}
  FileDescriptor socket_;
  std::chrono::milliseconds patience_;
};

}  // namespace amldist::fabric
