#include "spank/stepd/hang_watch.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <memory>
#include <optional>
#include <span>

#include "base/net/ip_address.hpp"
#include "base/os/whole_file.hpp"
#include "base/text/tasks_per_node.hpp"
#include "base/text/text.hpp"
#include "base/time/clock.hpp"
#include "spank/stepd/watched_recorders.hpp"
#include "step/cause/kernel_log.hpp"
#include "step/cause/task_cause.hpp"
#include "step/messages/control_message.hpp"
#include "step/messages/rank_state.hpp"
#include "step/messages/wait_shares.hpp"
#include "step/server/hang_detector.hpp"
#include "trace/diagnosis/straggler.hpp"
#include "trace/record/process_stack.hpp"
#include "trace/record/record_folder.hpp"
#include "trace/record/record_reader.hpp"

namespace amldist::spank {
namespace {

using std::chrono::milliseconds;
using text::concat;
using trace::Recording;
using trace::Writer;

constexpr std::array<std::string_view, 4> sources = {"", ".mpi", ".nccl", ".torch"};
constexpr std::array<std::string_view, 4> sources_for_stacks = {".torch", ".nccl", ".mpi", ""};
constexpr milliseconds reading_timeout{5000};
constexpr milliseconds stack_patience{1500};

// ---- in the child, with the user's rights ----

/// The value of a line of /proc/ID/status, such as "State"; empty if it is not there.
std::string status_of(std::int32_t process, std::string_view name) {
  constexpr std::size_t most = 4096;
  const std::string status = read_file_start(concat({"/proc/", std::to_string(process), "/status"}), most);
  for (const std::string_view line : text::split(status, '\n')) {
    if (line.starts_with(name) && line.substr(name.size()).starts_with(":\t"))
      return std::string(line.substr(name.size() + 2));
  }
  return {};
}

/// A tracer of system calls stops a process as well, but lets it go on at once: then it is switched to now and then.
bool is_held_by_debugger(const Recording& recording) {
  constexpr std::string_view switches = "voluntary_ctxt_switches";
  const auto is_stopped = [&] { return status_of(recording.pid, "State").starts_with('t'); };
  if (recording.writer != Writer::stopped || !is_stopped()) return false;
  const std::string before = status_of(recording.pid, switches);
  constexpr timespec moment = {0, 50'000'000};
  static_cast<void>(::nanosleep(&moment, nullptr));
  return is_stopped() && status_of(recording.pid, switches) == before;
}

std::vector<std::uint32_t> ranks_of(const WatchedNode& node) {
  return node.has_launchers ? named_ranks(node) : node.ranks;
}

/// The longest wait on this node in milliseconds, or the word for a rank that a debugger holds or for no recorder at
/// all.
std::string longest_wait(const WatchedNode& node) {
  std::int64_t longest = 0;
  bool is_recorded = false;
  for (const std::uint32_t rank : ranks_of(node)) {
    for (const std::string_view source : sources) {
      const auto recording = recording_of(node, rank, source);
      if (!recording) continue;
      is_recorded = true;
      if (is_held_by_debugger(*recording)) return std::string(step::HangDetector::debugged);
      longest = std::max(longest, step::longest_wait_ms(*recording, recording->present_ns()));
    }
  }
  return is_recorded ? std::to_string(longest) : std::string(step::HangDetector::unrecorded);
}

/// What is known of a task without a recorder: its process, which slurmstepd started.
std::optional<Recording> unrecorded_task(const WatchedNode& node, std::uint32_t rank, const ProcessTable& processes) {
  const auto own = std::ranges::find(node.ranks, rank);
  const auto index = static_cast<std::size_t>(own - node.ranks.begin());
  if (node.has_launchers || index >= node.processes.size()) return std::nullopt;
  Recording task;
  task.source = trace::without_file;
  task.host = node.host;
  task.rank = rank;
  task.size = node.size;
  task.local_rank = static_cast<std::uint32_t>(index);
  const ProcessStat* const process = processes.find(node.processes[index]);
  // Its number may be another's by now.
  const bool lives = process != nullptr && process->parent == ::getppid() && process->state != 'Z';
  task.writer = !lives ? Writer::gone : process->state == 'T' ? Writer::stopped : Writer::runs;
  task.has_exited = !lives && has_exited(node, rank);
  if (lives) task.totals = trace::totals_of(process->id, processes);
  return task;
}

/// Between the parts of a piece: the texts in it have no such character.
constexpr std::string_view separator = "\x1e";
/// An answer has room for any one of them.
static_assert(longest_answer_as_user > step::longest_rank_state + 64);
static_assert(longest_answer_as_user > step::longest_wait_shares + 64);

/// An answer that has room for some of many things: where the next answer has to go on, then a text for each datagram.
std::string piece(std::size_t next, const std::vector<std::string>& texts) {
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  return concat({std::to_string(next), separator, text::join(views, separator)});
}

/// A piece: what this node's ranks from the `first` one on wait, each by the first of its recorders that tells.
std::string shares_of(const WatchedNode& node, std::size_t first) {
  constexpr std::size_t room = longest_answer_as_user - step::longest_wait_shares - 64;
  const auto ranks = ranks_of(node);
  std::vector<std::string> texts;
  std::size_t used = 0;
  while (first < ranks.size() && used < room) {
    const std::uint32_t rank = ranks[first++];
    for (const std::string_view source : sources) {
      const auto recording = recording_of(node, rank, source);
      const auto own = recording ? trace::own_waits(*recording, recording->present_ns()) : std::nullopt;
      if (!own) continue;
      step::add_wait_share(node.host, *own, texts);
      used = 0;
      for (const std::string& each : texts) used += each.size() + 1;
      break;
    }
  }
  return piece(first, texts);
}

/// What a rank's recorder for one source shows, with what its process has done. Of a rank without any recorder, what is
/// known of its process, in place of the last source.
std::optional<Recording> state_of(const WatchedNode& node, std::uint32_t rank, std::string_view source,
                                  const ProcessTable& processes) {
  if (auto recording = recording_of(node, rank, source)) {
    recording->totals = trace::totals_of(recording->pid, processes);
    return recording;
  }
  const auto is_recorded = [&](std::string_view other) { return has_recorder(node, rank, other); };
  const bool has_none = source == sources.back() && std::ranges::none_of(sources, is_recorded);
  return has_none ? unrecorded_task(node, rank, processes) : std::nullopt;
}

/// A piece: the states of this node's ranks, each by each of the sources, from the `first` one on.
std::string states_of(const WatchedNode& node, std::size_t first) {
  constexpr std::size_t room = longest_answer_as_user - step::longest_rank_state - 64;
  const auto ranks = ranks_of(node);
  const auto processes = ProcessTable::read();
  std::vector<std::string> texts;
  for (std::size_t used = 0; first < ranks.size() * sources.size() && used < room; ++first) {
    const auto state = state_of(node, ranks[first / sources.size()], sources[first % sources.size()], processes);
    if (!state) continue;
    texts.push_back(step::to_rank_state(*state, state->present_ns()));
    used += texts.back().size() + 1;
  }
  return piece(first, texts);
}

/// Recorders of PyTorch come first: behind them is a thread that can tell Python's stacks.
std::string stack_of_rank(const WatchedNode& node, std::uint32_t rank) {
  for (const std::string_view source : sources_for_stacks) {
    const auto recording = recording_of(node, rank, source);
    if (recording && recording->writer != Writer::gone) return trace::stack_of(*recording, stack_patience);
  }
  return {};
}

// ---- in slurmstepd ----

class WatchThread {
 public:
  WatchThread(WatchedNode node, int stop) : node_(std::move(node)), stop_(stop), srun_(node_.srun) {}

  void run() {
    while (srun_ && !stopped_within(pause())) {
      const auto wait = ask([this] { return longest_wait(node_); });
      if (!wait || wait->empty()) continue;
      if (!stand_in_) find_stand_in();
      watcher().send(to_datagram(step::Subject::waits, *wait, token()));
      const std::string reply = answer();
      note_silence(reply.empty());
      follow(reply);
      send_shares();
    }
  }

 private:
  [[nodiscard]] const step::Token& token() const { return node_.srun.channel.token; }

  /// srun, and when it has gone, its stand-in.
  [[nodiscard]] step::NodeSocket& watcher() { return srun_has_gone_ && stand_in_ ? *stand_in_ : srun_; }

  /// srun knows where it is.
  void find_stand_in() {
    if (node_.stand_in_port != 0) {
      if (!tell(node_.srun, to_datagram(step::Subject::stand_in, std::to_string(node_.stand_in_port), token()))) return;
      stand_in_.emplace(step::SrunLink{*Ipv4::parse("127.0.0.1"), {node_.stand_in_port, token()}});
      return;
    }
    const auto place =
        amldist::step::ask(node_.srun, step::MessageType::which_stand_in, step::Subject::stand_in, 1).value_or("");
    const auto colon = std::min(place.rfind(':'), place.size());
    const auto address = IpAddress::parse(std::string_view(place).substr(0, colon));
    constexpr std::uint64_t largest_port = 65535;
    const auto port = text::to_number(std::string_view(place).substr(std::min(colon + 1, place.size())), largest_port);
    if (address && port) stand_in_.emplace(step::SrunLink{*address, {static_cast<std::uint16_t>(*port), token()}});
  }

  /// One lost datagram says nothing, and an srun that is stopped for a moment comes back.
  void note_silence(bool silent) {
    constexpr int gone_after = 4;
    silences_ = silent ? silences_ + 1 : 0;
    if (silences_ >= gone_after) srun_has_gone_ = true;
  }

  [[nodiscard]] bool stopped_within(milliseconds pause) const {
    pollfd stop = {stop_, POLLIN, 0};
    return ::poll(&stop, 1, static_cast<int>(pause.count())) != 0;
  }

  /// Nothing once slurmstepd ends: it waits for this thread, and many questions may be left.
  [[nodiscard]] std::optional<std::string> ask(const std::function<std::string()>& question) {
    if (stopped_within(milliseconds(0))) return std::nullopt;
    const auto ask_believed = [&] {  // in a copy of this process
      node_.roots = trace::believed_roots(std::move(node_.roots));
      return question();
    };
    auto answer = answer_as_user(node_.rights, ask_believed, reading_timeout);
    unanswered_ = answer ? 0 : unanswered_ + 1;
    return answer;
  }

  /// Until the next look. On a file system that never answers, each look costs a process that may stay behind, so the
  /// pause doubles with each that had to be killed.
  [[nodiscard]] milliseconds pause() const {
    constexpr int most_doublings = 8;
    constexpr milliseconds longest{300'000};
    return unanswered_ == 0 ? pause_ : std::min(idle_pause() * (1 << std::min(unanswered_, most_doublings)), longest);
  }

  /// srun's reply, or nothing within a second or once slurmstepd ends.
  [[nodiscard]] std::string answer() {
    constexpr milliseconds patience{1000};
    const auto end = Clock::now() + patience;
    for (auto left = patience; left.count() > 0; left = std::chrono::ceil<milliseconds>(end - Clock::now())) {
      std::array<pollfd, 2> ready{pollfd{watcher().descriptor(), POLLIN, 0}, pollfd{stop_, POLLIN, 0}};
      if (::poll(ready.data(), ready.size(), static_cast<int>(left.count())) <= 0 || ready[1].revents != 0) return {};
      if (auto reply = watcher().answer(milliseconds(0)); !reply.empty()) return reply;
    }
    return {};
  }

  void follow(const std::string& reply) {
    pause_ = idle_pause();
    if (const auto ranks = parse_text(step::Subject::wants_stacks, reply, token())) send_stacks(*ranks);
    else if (step::parse_message_type(reply, token()) == step::MessageType::wants_states) send_states();
    else return;
    pause_ = busy_pause;
  }

  /// Now and then: they are about the last minute.
  void send_shares() {
    constexpr std::chrono::seconds between{3};
    if (Clock::now() - shares_sent_ < between) return;
    shares_sent_ = Clock::now();
    send_pieces(step::Subject::shares, shares_of, most_ranks());
  }

  void send_states() { send_pieces(step::Subject::state, states_of, most_ranks() * sources.size()); }

  [[nodiscard]] std::size_t most_ranks() const { return node_.has_launchers ? most_named_ranks : node_.ranks.size(); }

  /// Sends what a child finds, piece by piece up to `end`; stops where it does not answer in time, or has no more.
  void send_pieces(step::Subject subject, std::string (*piece_of)(const WatchedNode&, std::size_t), std::size_t end) {
    for (std::size_t first = 0; first < end;) {
      const auto answer = ask([&] { return piece_of(node_, first); });
      const auto texts = text::split(answer ? *answer : std::string_view(), separator.front());
      const auto next = text::to_number(texts.front(), end);
      if (!next || *next <= first) return;
      first = *next;
      for (const std::string_view each : std::span(texts).subspan(1)) {
        if (!each.empty()) watcher().send(to_datagram(subject, each, token()));
      }
    }
  }

  void send_stacks(std::string_view ranks) {
    for (const std::string_view word : text::split(ranks, ',')) {
      const auto rank = text::to_number(word, most_tasks);
      const bool is_here = rank && (node_.has_launchers || std::ranges::find(node_.ranks, *rank) != node_.ranks.end());
      if (!is_here) continue;
      send_cause(static_cast<std::uint32_t>(*rank));
      const auto stack = ask([&] { return stack_of_rank(node_, static_cast<std::uint32_t>(*rank)); });
      if (!stack || stack->empty()) continue;
      watcher().send(to_datagram(step::Subject::stack, concat({word, ";", *stack}), token()));
    }
  }

  /// Before its stack, so that it comes in time.
  void send_cause(std::uint32_t rank) {
    const auto own = std::ranges::find(node_.ranks, rank);
    const auto index = static_cast<std::size_t>(own - node_.ranks.begin());
    if (node_.has_launchers || own == node_.ranks.end() || !node_.memory_group) return;
    step::TaskEnd task{.host = node_.host,
                       .group = node_.memory_group(index),
                       .log_was_read = kernel_log_.is_open(),
                       .log = kernel_log_.read(),
                       .now_us = step::kernel_clocks_us()};
    if (task.group) task.memory = read_memory_use(*task.group);
    const auto cause = find_lost_process(task);
    if (cause)
      watcher().send(to_datagram(step::Subject::cause, concat({std::to_string(rank), ";", cause->text}), token()));
  }

  static constexpr milliseconds busy_pause{1000};
  [[nodiscard]] milliseconds idle_pause() const {
    constexpr std::int64_t least = 1000;
    constexpr std::int64_t most = 10'000;
    return milliseconds(std::clamp<std::int64_t>(std::int64_t{node_.seconds} * 250, least, most));
  }

  WatchedNode node_;
  int stop_;
  step::NodeSocket srun_;
  milliseconds pause_ = idle_pause();
  Clock::time_point shares_sent_ = Clock::now();
  step::KernelLog kernel_log_ = step::KernelLog::open_at_end();
  std::optional<step::NodeSocket> stand_in_;
  int unanswered_ = 0;  ///< questions to the user's files, one after the other
  int silences_ = 0;    ///< without an answer, one after the other
  bool srun_has_gone_ = false;
};

}  // namespace

HangWatch::HangWatch(WatchedNode node) noexcept {
  const auto run = [node = std::move(node)](int stop) { WatchThread(node, stop).run(); };
  static_cast<void>(thread_.start(run));
}

}  // namespace amldist::spank
