#include "aml_dist/keep/watched_start.hpp"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <thread>

#include "aml_dist/keep/keep_policy.hpp"
#include "base/net/name_lookup.hpp"
#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"

namespace amldist::keep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using text::concat;

std::string do_or_does(const std::vector<std::string>& nodes) { return nodes.size() == 1 ? " does" : " do"; }

bool is_failure(const step::EndRecord& record) { return record.cause != step::EndRecord::Cause::done; }

}  // namespace

Signals::Signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCONT, SIGCHLD, SIGPIPE})
    sigaddset(&set, signal);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  descriptor_ = FileDescriptor(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

std::optional<Signals::Signal> Signals::wait(milliseconds limit) const noexcept {
  pollfd file = {descriptor_.get(), POLLIN, 0};
  static_cast<void>(::poll(&file, 1, static_cast<int>(limit.count())));
  signalfd_siginfo facts = {};
  while (::read(descriptor_.get(), &facts, sizeof facts) == sizeof facts) {
    const int number = static_cast<int>(facts.ssi_signo);
    if (number != SIGCHLD && number != SIGPIPE) return Signal{number, facts.ssi_code == SI_KERNEL};
  }
  return std::nullopt;
}

bool asks_to_end(int signal) noexcept { return signal == SIGINT || signal == SIGTERM || signal == SIGHUP; }

Machines machines_of(const std::map<std::string, NodeState>& states, std::uint16_t slurmd_port) {
  Machines machines;
  for (const auto& [name, state] : states) {
    const auto addresses = addresses_of(state.address, Clock::now() + seconds(2));
    if (addresses && !addresses->empty())
      machines.emplace(name, Machine{addresses->front(), state.port != 0 ? state.port : slurmd_port});
  }
  return machines;
}

std::vector<std::string> deaf_slurmds(const Machines& machines) {
  constexpr milliseconds limit{1000};
  constexpr milliseconds pause{1500};  // a slurmd that is restarted is away for a moment
  Machines left = machines;
  for (int look = 0; look < 2 && !left.empty(); ++look) {
    if (look > 0) std::this_thread::sleep_for(pause);
    for (const auto& [name, answer] : knock(left, limit)) {
      if (answer == Answer::accepted) left.erase(name);
    }
  }
  std::vector<std::string> deaf;
  for (const auto& [name, machine] : left) deaf.push_back(name);
  return deaf;
}

WatchedStart::WatchedStart(StartFacts facts, const Signals& signals, std::function<void(const std::string&)> say)
    : facts_(std::move(facts)), signals_(signals), say_(std::move(say)) {}

Result<EndOfStart> WatchedStart::run() {
  find_machines();
  silence_.emplace(machines_);
  ::unlink(facts_.record.c_str());
  auto srun = ChildProcess::start({.words = facts_.words});
  if (!srun) return srun.error();
  srun_.emplace(std::move(*srun));
  take_earlier_signals();
  began_ = next_look_ = next_question_ = Clock::now();
  std::optional<int> status;
  while (!(status = srun_->poll())) {
    take_signal();
    if (ends_ && Clock::now() >= next_end_) end_step();  // a slurmctld that is busy may have lost the first request
    if (ends_ || end_.signal) continue;
    if (is_due(next_look_, seconds(1))) {
      look_at_machines();
      if (!ends_) look_at_connections();
    }
    if (is_due(next_question_, seconds(std::clamp(facts_.slurm.slurmd_timeout / 10, 3U, 30U)))) ask_slurmctld();
    if (!ends_) look_at_record();
  }
  end_.status = *status;
  end_.record = read_record();
  return end_;
}

/// Those of the step's nodes whose slurmd takes connections. What is missed here is not watched in this start.
void WatchedStart::find_machines() {
  constexpr int attempts = 3;
  constexpr milliseconds pause{500};
  auto states = node_states(facts_.nodes);
  for (int attempt = 1; states.empty() && attempt < attempts; ++attempt) {
    std::this_thread::sleep_for(pause);
    states = node_states(facts_.nodes);
  }
  machines_ = machines_of(states, facts_.slurm.slurmd_port);
  machines_.erase(facts_.own_node);
  for (const std::string& deaf : deaf_slurmds(machines_)) machines_.erase(deaf);
}

bool WatchedStart::is_due(Clock::time_point& next, seconds every) const {
  if (ends_ || Clock::now() < next) return false;
  next = Clock::now() + every;
  return true;
}

/// The terminal sent them before srun was there.
void WatchedStart::take_earlier_signals() {
  while (const auto signal = signals_.wait(milliseconds(0))) {
    srun_->kill(signal->number);
    if (asks_to_end(signal->number)) end_.signal = signal->number;
  }
}

void WatchedStart::take_signal() {
  constexpr milliseconds pause{200};
  const auto signal = signals_.wait(pause);
  if (!signal) return;
  if (!signal->from_terminal) srun_->kill(signal->number);
  if (asks_to_end(signal->number)) end_.signal = signal->number;
}

void WatchedStart::look_at_machines() {
  std::vector<std::string> silent = silence_->look();
  if (silent.empty()) return;
  // Suspected. slurmctld is asked: where it does not answer either, it may be this machine that has lost its network.
  const auto states = node_states(silent);
  if (states.empty() && silent.size() + 1 >= facts_.nodes.size()) return;
  const auto answering = knock(machines_, milliseconds(1000));
  std::erase_if(silent, [&](const std::string& each) { return answering.at(each) != Answer::silent; });
  if (silent.empty()) return;
  std::string words;
  for (const auto& [name, state] : states) words += concat({words.empty() ? "" : ", ", state.word});
  end_without(silent, concat({names_of(silent), do_or_does(silent), " not answer any more; slurmctld",
                              words.empty() ? std::string(" does not answer") : concat({" says ", words})}));
}

/// Only srun knows soon that the processes on a node have gone: its connection for their output closes.
void WatchedStart::look_at_connections() {
  constexpr seconds to_connect{3};
  if (!has_assumed_ && Clock::now() >= began_ + to_connect) {  // what went before it was seen is asked for once
    has_assumed_ = true;
    for (const auto& [name, machine] : machines_) connected_.insert(machine.address.to_string());
  }
  const auto now = connected_addresses(srun_->id());
  Machines lost;
  for (const auto& [name, machine] : machines_) {
    if (connected_.contains(machine.address.to_string()) && !now.contains(machine.address.to_string()))
      lost.emplace(name, machine);
  }
  connected_ = now;
  if (lost.empty()) return;
  const auto deaf = deaf_slurmds(lost);
  if (!deaf.empty()) end_without(deaf, concat({"slurmd and the tasks of ", names_of(deaf), " have gone"}));
}

/// A slurmd that slurmctld misses and that takes no connection: Slurm would end the whole job when it gives the node
/// up.
void WatchedStart::ask_slurmctld() {
  Machines missed;
  const auto states = node_states(facts_.nodes);
  if (states.empty()) return;  // each question that is not answered takes five seconds
  for (const auto& [name, state] : states) {
    if (state.is_down() && machines_.contains(name)) missed.emplace(name, machines_.at(name));
  }
  const auto deaf = deaf_slurmds(missed);
  if (!deaf.empty()) {
    return end_without(
        deaf, concat({"slurmd of ", names_of(deaf), do_or_does(deaf), " not answer, and slurmctld has missed it"}));
  }
  let_idle_nodes_go();
}

/// The same of nodes of the job that the step does not use, such as a spare. The step goes on.
void WatchedStart::let_idle_nodes_go() {
  std::vector<std::string> idle = facts_.allocation;
  std::erase_if(idle, [&](const std::string& each) {
    return each == facts_.own_node || std::ranges::find(facts_.nodes, each) != facts_.nodes.end();
  });
  if (idle.empty()) return;
  auto missed = node_states(idle);
  std::erase_if(missed, [](const auto& each) { return !each.second.is_down(); });
  const auto deaf = deaf_slurmds(machines_of(missed, facts_.slurm.slurmd_port));
  if (deaf.empty()) return;
  std::vector<std::string> left = facts_.allocation;
  std::erase_if(left, [&](const std::string& each) { return std::ranges::find(deaf, each) != deaf.end(); });
  if (!shrink_job(facts_.job, left, facts_.folder)) return;  // the next look tries again
  say_(concat({"slurmd of ", names_of(deaf), do_or_does(deaf), " not answer, and slurmctld has missed it: the step, ",
               "which does not use it, goes on, and the job releases it"}));
  facts_.allocation = std::move(left);
  end_.idle_gone.insert(end_.idle_gone.end(), deaf.begin(), deaf.end());
}

void WatchedStart::look_at_record() {
  if (failed_at_) {
    if (facts_.grace.count() == 0 || Clock::now() < *failed_at_ + facts_.grace) return;
    say_(concat({"--grace=", std::to_string(facts_.grace.count()), " is over: the other ranks are ended"}));
    return end_step();
  }
  const auto record = read_record();
  if (!record || !is_failure(*record)) return;
  failed_at_ = Clock::now();
  // Ranks fail because another node has died: whose slurmd answers is alive.
  auto deaf = deaf_slurmds(machines_);
  // All at once: it may be this machine that has lost its network, as long as slurmctld does not answer either.
  if (!deaf.empty() && deaf.size() + 1 >= facts_.nodes.size())
    deaf = node_states(deaf).empty() ? std::vector<std::string>() : deaf_slurmds(machines_);
  if (!deaf.empty())
    return end_without(deaf, concat({"slurmd of ", names_of(deaf), do_or_does(deaf), " not answer, and ranks failed"}));
  if (facts_.grace.count() > 0)
    say_(concat({"a rank failed (", record->evidence, "): the others have ", std::to_string(facts_.grace.count()),
                 " s to finish what they write (--grace)"}));
}

void WatchedStart::end_step() {
  constexpr seconds until_next_request{10};
  ends_ = true;
  next_end_ = Clock::now() + until_next_request;
  if (const auto step = step_of(facts_.job, srun_->id())) cancel_step(*step);
  else srun_->kill(SIGTERM);
}

/// Takes the nodes out of the job, so that neither the step nor the job waits for them, and ends the rest of the step.
void WatchedStart::end_without(std::vector<std::string> nodes, const std::string& why) {
  say_(concat({why, ": this start is ended"}));
  ends_ = true;
  next_end_ = Clock::time_point::max();  // srun is killed below
  const auto step = step_of(facts_.job, srun_->id());
  std::vector<std::string> left = facts_.allocation;
  std::erase_if(left, [&](const std::string& each) { return std::ranges::find(nodes, each) != nodes.end(); });
  const auto shrunk = shrink_job(facts_.job, left, facts_.folder);
  if (!shrunk) say_(concat({"the job keeps ", names_of(nodes), ": ", shrunk.error().message}));
  if (step) cancel_step(*step);
  constexpr milliseconds for_last_lines{800};
  if (!srun_->wait_until(Clock::now() + for_last_lines)) srun_->kill(SIGKILL);
  end_.still_holds = !step || !has_gone(*step);
  end_.is_out = static_cast<bool>(shrunk);
  end_.gone = std::move(nodes);
  end_.why = why;
}

bool WatchedStart::has_gone(const std::string& step) const {
  constexpr seconds longest{5};
  constexpr milliseconds pause{300};
  for (const auto until = Clock::now() + longest; Clock::now() < until; std::this_thread::sleep_for(pause)) {
    if (!is_known_step(facts_.job, step)) return true;
    cancel_step(step);
  }
  return false;
}

std::optional<step::EndRecord> WatchedStart::read_record() const {
  const auto text = read_whole_file(facts_.record, std::size_t{16} * step::longest_end_record);
  if (!text || text->empty()) return std::nullopt;
  const auto lines = text::split(*text, '\n');
  return lines.size() < 2 ? std::nullopt : step::EndRecord::parse(lines[lines.size() - 2]);
}

}  // namespace amldist::keep
