// How the nodes of a step exchange texts during `aml-dist check`: in rounds over the star of wireup/, whose accepting
// side runs on node 0. In a round every node contributes one text and gets the texts that it asked for. A round is a
// barrier. The number of rounds does not depend on the number of nodes.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/os/file_descriptor.hpp"
#include "base/text/result.hpp"
#include "world/wireup/key.hpp"
#include "world/wireup/limits.hpp"

namespace amldist::fabric {

/// A node's place in its step, as every node must name it.
struct NodePlace {
  std::string host;  ///< of node 0: a name or an IPv4 address
  std::uint16_t port = 0;
  std::string step;  ///< "JOB.STEP"
  std::uint32_t node = 0;
  std::uint32_t nodes = 1;
  world::Credentials credentials = {};  ///< of the step
};

/// The accepting side, on node 0: a thread that collects texts and distributes them. Its destructor ends the exchange.
class NodeExchangeServer {
 public:
  /// Listens at once. If a node has not connected, or has sent nothing, for `patience`, all others are told its number,
  /// and the exchange ends. Errors: unavailable, with why the port cannot be used.
  [[nodiscard]] static Result<std::unique_ptr<NodeExchangeServer>> open(const NodePlace& place,
                                                                        std::chrono::milliseconds patience);
  NodeExchangeServer(const NodeExchangeServer&) = delete;
  NodeExchangeServer& operator=(const NodeExchangeServer&) = delete;
  ~NodeExchangeServer();

 private:
  NodeExchangeServer() = default;
  FileDescriptor stop_;
  std::thread thread_;
};

/// A node's side.
class NodeExchange {
 public:
  /// Connects, trying again until `patience` has passed: nodes do not start at the same moment.
  [[nodiscard]] static Result<NodeExchange> join(const NodePlace& place, std::chrono::milliseconds patience);
  /// A side whose connection was made, of `nodes` nodes.
  NodeExchange(FileDescriptor link, std::uint32_t nodes, std::chrono::milliseconds patience)
      : link_(std::move(link)), nodes_(nodes), patience_(patience) {}

  /// The nodes whose texts a node asks for.
  struct Wanted {
    bool all = false;
    std::vector<std::uint32_t> nodes;
  };
  /// One round: the texts of the wanted nodes by number. `text` is cut to wireup::limits.text_bytes. Errors: the
  /// accepting side's, or unavailable with the errno.
  [[nodiscard]] Result<std::map<std::uint32_t, std::string>> round(const Wanted& wanted, std::string_view text);

 private:
  FileDescriptor link_;
  std::uint32_t nodes_;
  std::chrono::milliseconds patience_;
};

}  // namespace amldist::fabric
