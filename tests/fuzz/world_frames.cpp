// What a rank of a world can send another one over a control connection, behind the handshake: agreements, and what
// ranks are doing. A rank is trusted, but one with a defect must not bring the others down.
//
// Input: a byte that chooses the kind, then the frame's fields.
#include "fuzz.hpp"
#include "world/control/agreement_message.hpp"
#include "world/control/merged_states.hpp"
#include "world/wireup/frame.hpp"

namespace amldist::fuzz::world_frames {
namespace {

using namespace world;

constexpr std::uint32_t size = 5;
constexpr std::size_t most_bytes = std::size_t{16} << 20;

/// A frame as a reader hands it over: its length in front is gone.
world::Frame frame_of(std::string_view content) { return world::Frame(std::string(content)); }

bool read_agreement(std::string_view content) {
  auto frame = frame_of(content);
  const auto message = read_agreement_message(frame);
  if (!message) return true;
  // What is written is read back the same.
  auto again = frame_of(std::string_view(message->to_frame()).substr(world::frame_head));
  const auto copy = read_agreement_message(again);
  require(copy.has_value() && copy->to_frame() == message->to_frame(), "a message survives being passed on");
  return true;
}

bool read_states(std::string_view content) {
  auto frame = frame_of(content);
  static_cast<void>(frame.number());
  const world::MergedStates states = world::MergedStates::read(frame, size);
  for (const auto& [bytes, runs] : states.states()) {
    for (const world::MergedStates::Run& run : runs) {
      require(run.first < size && run.count <= size - run.first, "states are of ranks of the world");
    }
  }
  return true;
}

}  // namespace

const std::string_view separator = "";

void try_input(std::string_view input) {
  if (input.empty()) return;
  const bool of_agreement = static_cast<unsigned char>(input.front()) % 2 == 0;
  within(most_bytes, [&] { return of_agreement ? read_agreement(input.substr(1)) : read_states(input.substr(1)); });
}

}  // namespace amldist::fuzz::world_frames
