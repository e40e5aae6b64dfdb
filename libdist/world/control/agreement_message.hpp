// What the ranks of a communicator send each other while they agree (agreement.hpp), as frames.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "world/control/control_frame.hpp"

namespace amldist::world {

/// Why a rank has no part in what the others agree on.
enum class Exclusion : std::uint8_t {
  dead = 1,  ///< its process has ended
  left,      ///< it has finalized the communicator, or the world
  silent,    ///< it did not answer: stopped, or its node is gone
  late,      ///< it answers, but did not make the call before the deadline
};

/// By rank of the communicator.
using Exclusions = std::map<std::uint32_t, Exclusion>;

/// What the ranks agreed on. The same on every rank that gets one.
struct Decision {
  std::uint64_t flags = 0;     ///< bitwise AND of what the ranks gave
  std::uint64_t purposes = 0;  ///< bitwise OR of the purposes of their calls
  Exclusions excluded;         ///< who had no part in it

  friend bool operator==(const Decision&, const Decision&) = default;
};

/// One message. Each of them also says whom the sender has excluded.
struct AgreementMessage {
  enum class Kind : std::uint8_t {
    arrive = 1,  ///< up: the programs of all ranks here and below have made the call. With what was accepted before
    ask,         ///< the sender waits for the receiver
    here,        ///< the answer: alive, and nothing more to say
    propose,     ///< down: accept this
    accept,      ///< up: all ranks here and below have
    decide,      ///< down: all have accepted; this is what was agreed on
    out,         ///< the sender has no part in this communicator, or none any more
  };
  /// A proposal is known by the root that made it: each proposes at most once in a round.
  struct Proposal {
    std::uint32_t coordinator = 0;  ///< the root's place in the tree
    Decision value;
  };

  std::uint64_t communicator = 0;
  std::uint64_t round = 0;  ///< counts the agreements of the communicator, from 1
  Kind kind = Kind::here;
  bool has_arrived = false;                ///< the sender's program has made the call
  bool is_lost = false;                    ///< the communicator has failed for the sender
  std::uint64_t flags = ~std::uint64_t{};  ///< arrive: AND of what the ranks give; ask, here: of what was seen
  std::uint64_t purposes = 0;              ///< arrive
  /// ask: how long the sender waits until whoever has not come is late.
  std::chrono::milliseconds left = std::chrono::milliseconds::max();
  std::optional<Proposal> proposal;  ///< arrive, propose, accept, decide
  Exclusions excluded;

  [[nodiscard]] std::string to_frame() const;
};

/// nullopt: it is none.
[[nodiscard]] std::optional<AgreementMessage> read_agreement_message(Frame& frame);

}  // namespace amldist::world
