#include "spank/stepd/start_gate.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>

#include "base/os/process_end.hpp"
#include "base/text/text.hpp"

namespace amldist::spank {
namespace {

using std::chrono::milliseconds;

/// Srun listens before the step exists. A stand-in's node may be slow to start.
constexpr milliseconds silence_of_srun{2500};
constexpr milliseconds silence_of_stand_in{600'000};

Error unheard(const std::string& host, const step::SrunLink& srun) {
  return {Errc::unavailable,
          text::concat({host, " does not hear from ", srun.address.to_string(), " (UDP port ",
                        std::to_string(srun.channel.port), ") whether every node of the step has aml-dist, so its ",
                        "tasks do not start: let UDP pass from the nodes to srun (SrunPortRange)"})};
}

}  // namespace

StartGate StartGate::make() { return {SharedAtomic<pid_t>::make(), SharedAtomic<State>::make()}; }

Result<void> StartGate::wait(const step::SrunLink& srun, const std::string& host, bool has_srun) const {
  constexpr long longest_pause_ns = 20'000'000;
  timespec pause = {0, 200'000};
  while (state.load() == State::closed) {
    const pid_t other = asking.load();
    // Its own number: the task that asked has ended, and this one has got its number.
    if (other == 0 || other == ::getpid() || process_has_ended(other)) {
      if (!asking.replace(other, ::getpid())) continue;
      const auto answer = report_node(srun, host, has_srun ? silence_of_srun : silence_of_stand_in, true);
      state.store(answer == step::MessageType::start ? State::open : State::refused);
      if (!answer) return unheard(host, srun);
    } else {
      static_cast<void>(::nanosleep(&pause, nullptr));
      pause.tv_nsec = std::min(2 * pause.tv_nsec, longest_pause_ns);
    }
  }
  if (state.load() == State::open) return {};
  return Error{Errc::unavailable, ""};
}

}  // namespace amldist::spank
