#include "collective/transport.hpp"

namespace amldist::collective {

Result<void> Transport::exchange(std::span<const Message> sends, std::span<const Message> receives, Vigil& vigil) {
  std::size_t left = 0;
  const auto run = [&]() -> Result<void> {
    for (const Message& message : receives) {
      if (auto posted = post(message, Direction::receive, left, vigil); !posted) return posted;
    }
    for (const Message& message : sends) {
      if (auto posted = post(message, Direction::send, left, vigil); !posted) return posted;
    }
    for (int idle = 0; left != 0;) {
      const auto moved = progress(vigil);
      if (!moved) return moved.error();
      idle = *moved ? 0 : idle + 1;
      if (*moved || !rest(idle)) continue;
      if (auto going_on = vigil.keep_waiting(awaited()); !going_on) return going_on;
    }
    return {};
  };
  auto result = run();
  if (!result) give_up();
  return result;
}

}  // namespace amldist::collective
