// What the wire-up allows a peer; these numbers are defined only here.
#pragma once

#include <chrono>
#include <cstddef>

namespace amldist::world {

struct Limits {
  // Before a peer has proven that it belongs to the group.
  std::size_t proof_bytes = 512;               ///< each of its frames, and the challenge
  std::size_t strangers = 64;                  ///< connections beyond one for each peer; a further one closes another
  std::chrono::milliseconds proof_time{2000};  ///< from accept to the whole proof
  // Afterwards.
  std::size_t join_request_bytes = 4096;               ///< who it is, and the answer
  std::chrono::milliseconds join_request_time{10000};  ///< from accept to the whole join request
  std::size_t frame_bytes = std::size_t{64} << 20;     ///< any frame
  std::size_t text_bytes = std::size_t{1} << 20;       ///< what a node of `aml-dist check` says in one round
  // The side that joins. With several candidates, one that does not answer must not hold up the others for long.
  std::chrono::milliseconds answer_time{1000};  ///< for each of several candidates; join_request_time for a single one
  // What appears in messages.
  std::size_t host_characters = 255;
  std::size_t sentence_characters = 1000;
};

inline constexpr Limits limits;

}  // namespace amldist::world
