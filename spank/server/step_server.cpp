#include "spank/server/step_server.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iterator>
#include <map>

#include "base/net/datagram_socket.hpp"
#include "base/text/text.hpp"
#include "base/time/calendar_time.hpp"
#include "base/time/clock.hpp"
#include "spank/server/end_of_step.hpp"
#include "spank/server/hang_report.hpp"
#include "spank/server/job_comment.hpp"
#include "spank/server/message_server.hpp"
#include "spank/slurm/accounting.hpp"
#include "spank/slurm/output.hpp"
#include "spank/slurm/slurm_api.hpp"
#include "step/messages/control_message.hpp"
#include "step/messages/end_record.hpp"
#include "step/messages/srun_link.hpp"
#include "step/server/hang_detector.hpp"
#include "step/server/inbox.hpp"
#include "step/server/roll_call.hpp"
#include "step/server/stop_timer.hpp"

namespace amldist::spank {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using text::concat;

/// From the first report to the line: time for the reports of tasks that died with it, and for the job's state.
constexpr milliseconds settling{1000};
constexpr seconds longest_settling{4};
/// For the sentence of a node that refuses, which is on its way to srun: srun hears no more once its step is being
/// ended.
constexpr milliseconds to_be_read{500};
/// States and stacks of ranks are longer than other messages.
constexpr std::size_t longest_message = 4096 + step::seal_bytes;
/// What the kernel keeps, as far as it lets a user have it, until the thread comes to read it: strangers fill it, too.
constexpr int kept_bytes = 4 << 20;
/// Time limits are whole minutes: a shorter step needs no request to slurmctld.
constexpr seconds before_any_limit{50};
/// Of notices, in root's process.
constexpr std::size_t most_notices_of_stand_in = std::size_t{8} << 20;
/// For slurmctld and the user's file systems, in root's process.
constexpr seconds patience{2};
/// A node that waits for an answer asks at least twice a second.
constexpr milliseconds silence_that_ends{3500};
/// After the last task of the stand-in's node.
constexpr seconds longest_rest{5};
constexpr seconds between_kills{10};

MessageServer messages_of(const ServedStep& step, std::uint64_t token) {
  MessageServer::Step served{.token = token, .tasks = step.tasks, .nodes = step.nodes, .record = step.record};
  served.tell = step.rights ? tell_step : tell_user;
  if (step.rights) served.most_notices = most_notices_of_stand_in;
  return MessageServer(std::move(served));
}

std::uint32_t node_count(const ServedStep& step) {
  std::uint32_t nodes = 0;
  for (const ServedNodes& part : step.hosts) nodes += static_cast<std::uint32_t>(part.names.size());
  return nodes;
}

using Cause = step::EndRecord::Cause;

/// The thread's work, with everything it owns.
class ServerThread {
 public:
  ServerThread(const DatagramSocket& socket, const step::Token& token, ServedStep step)
      : socket_(socket),
        token_(token),
        step_(std::move(step)),
        server_(messages_of(step_, token)),
        inbox_(token, step_.nodes != 0 ? step_.nodes : node_count(step_)) {
    constexpr std::uint32_t most_of_a_launcher = 512;
    const launch::TraceChoice& trace = step_.trace;
    const std::uint32_t ranks = trace.has_launchers ? step_.tasks * most_of_a_launcher : step_.tasks;
    if (trace.hang != 0) hang_.emplace(trace.hang, ranks, trace.busy, trace.ends, trace.has_launchers);
    if (step_.stop) stop_.emplace(seconds(step_.stop->seconds), Clock::now());
  }

  void run(int stop) {
    std::vector<std::string> hosts;
    for (const ServedNodes& part : step_.hosts) std::ranges::move(part.names.expand(), std::back_inserter(hosts));
    most_waiting_ = 4 * hosts.size();  // whoever has the token may send from many ports
    roll_.emplace(std::move(hosts), Clock::now(), step_.variables);
    while (!ended_ || has_to_do()) {
      wait(stop);
      receive();
      call_roll();
      watch_for_hangs();
      watch_for_stop();
      if (server_.failure().is_refused() && !std::exchange(ends_refused_, true)) kill_at_ = Clock::now() + to_be_read;
      if (kill_at_ && Clock::now() >= *kill_at_) kill();
      if (!asked_for_limit_ && !is_at_gate() && Clock::now() >= began_ + before_any_limit) ask_for_limit();
      if (server_.failure().stands() && !first_at_) note_first();
      if (first_at_ && !decided_) decide_if_settled();
    }
    if (!is_recorded_) record_quiet_end();
    tell_dropped();
  }

 private:
  [[nodiscard]] bool is_srun() const noexcept { return !step_.rights; }

  /// After the tasks of a stand-in's node: whether a node may still ask, or the line is due.
  [[nodiscard]] bool has_to_do() const {
    if (is_srun() || Clock::now() >= ended_at_ + longest_rest) return false;
    if (kill_at_ && !has_killed_) return true;
    const bool asked = last_question_ && Clock::now() - *last_question_ < silence_that_ends;
    return asked || (first_at_ && !decided_);
  }

  /// Nodes wait for an answer, which would have to wait for slurmctld.
  [[nodiscard]] bool is_at_gate() const { return !has_started_ && !roll_->is_complete(); }

  void tell(const std::string& line) const {
    if (is_srun()) return tell_user(line);
    tell_step(line);  // an srun that was only stopped prints it
  }

  /// Once, at the end.
  void tell_dropped() const {
    const std::string step = concat({std::to_string(step_.job_id), ".", std::to_string(step_.step_id)});
    const std::string dropped = inbox_.dropped(concat({"the port of step ", step}));
    if (dropped.empty()) return;
    if (!is_srun()) log_for_administrator(dropped);
    else if (step_.verbose) tell_user(dropped);
  }

  /// What `work` returns, done with the user's rights; empty if it took too long.
  [[nodiscard]] std::string as_user(const std::function<std::string()>& work) const {
    return is_srun() ? work() : answer_as_user(*step_.rights, work, patience).value_or("");
  }

  /// Asks Slurm about nodes that have not reported, and ends a step of which one has tasks without aml-dist. About one
  /// node at a time: an answer may take two seconds, and the other nodes want theirs meanwhile.
  void call_roll() {
    if (has_started_ || ended_ || decided_ || server_.failure().is_refused()) return;
    if (const auto verdict = roll_->verdict(Clock::now())) return end_step_without(*verdict);
    if (to_ask_.empty()) to_ask_ = roll_->to_ask(Clock::now());
    if (to_ask_.empty()) return;
    const std::string host = std::move(to_ask_.back());
    to_ask_.pop_back();
    roll_->note(host, ask_slurm(host), Clock::now());
  }

  /// In a process of its own also in srun: libslurm may wait for long, and prints an error where a step is not there.
  [[nodiscard]] step::NodePresence ask_slurm(const std::string& host) const {
    const auto part = std::ranges::find_if(step_.hosts, [&](const ServedNodes& each) {
      const auto names = each.names.expand();
      return std::ranges::find(names, host) != names.end();
    });
    const auto ask = [&] {
      return std::to_string(static_cast<int>(presence_of_step(part->job_id, step_.step_id, part->component, host)));
    };
    const auto answer = text::to_number(in_child(ask), 4);
    return answer ? step::NodePresence{static_cast<int>(*answer)} : step::NodePresence::unknown;
  }

  /// The tasks that wait end first and by themselves, so that Slurm takes the step for failed; then what runs without
  /// aml-dist is killed.
  void end_step_without(const step::RollCall::Verdict& verdict) {
    decided_ = true;
    first_at_ = Clock::now();
    is_bare_ = true;
    tell_waiting(step::MessageType::refuse_step);
    if (is_srun()) end_srun_with(EXIT_FAILURE);
    record(missing_plugin(verdict));
    kill_at_ = Clock::now() + settling;
  }

  [[nodiscard]] step::EndRecord missing_plugin(const step::RollCall::Verdict& verdict) const {
    const std::string own_fault = step_.why_unsent != nullptr ? step_.why_unsent() : "";
    if (!own_fault.empty()) return {.cause = Cause::plugin_missing, .status = EXIT_FAILURE, .evidence = own_fault};
    return {.cause = Cause::plugin_missing,
            .node = verdict.nodes.size() == 1 ? verdict.nodes.front() : "",
            .status = EXIT_FAILURE,
            .evidence = verdict.sentence,
            .nodes_blamed = verdict.nodes};
  }

  void tell_waiting(step::MessageType answer) {
    for (const auto& [place, stamp] : waiting_) {
      reply(to_datagram(answer, token_), stamp, place);
    }
    waiting_.clear();
  }

  /// What a node that reports itself is told.
  step::MessageType take_node(std::string_view host, const step::Stamp& stamp, const DatagramPlace& sender) {
    static_cast<void>(roll_->take(host, Clock::now()));
    if (is_bare_ || server_.failure().is_refused()) return step::MessageType::refuse_step;
    if (roll_->is_complete()) {
      has_started_ = true;
      tell_waiting(step::MessageType::start);
      return step::MessageType::start;
    }
    if (waiting_.size() < most_waiting_ || waiting_.contains(sender)) waiting_[sender] = stamp;
    return step::MessageType::not_yet;
  }

  void watch_for_hangs() {
    if (!hang_) return;
    if (const auto hang = hang_->look(Clock::now())) act_on(*hang);
    if (const auto line = hang_->straggler(Clock::now())) tell(concat({"straggler: ", *line}));
    if (const auto line = hang_->unwatched(Clock::now())) tell(*line);
  }

  void watch_for_stop() {
    if (!stop_ || ended_ || decided_) return;
    if (stop_->wants_limit(Clock::now())) ask_for_time_left();
    if (!stop_->raise(Clock::now())) return;
    const bool signals = step_.stop->signal != 0;
    tell(concat({"stop: the ranks are asked to stop, ", time_left_ ? std::to_string(time_left_->count()) : "",
                 " s before the time limit: ", signals ? "by a signal, and by " : "by ",
                 "the file that AMLDIST_STOP_FILE names"}));
    if (signals) signal_all(step_.stop->signal);
  }

  /// In a process of its own, because libslurm may wait for long.
  [[nodiscard]] std::string in_child(const std::function<std::string()>& work) const {
    const UserRights rights = step_.rights.value_or(UserRights{::geteuid(), ::getegid()});
    return answer_as_user(rights, work, patience).value_or("");
  }

  void ask_for_time_left() {
    const std::string answer = in_child([&]() -> std::string {
      const StepLimit limit = time_left(step_.job_id, step_.step_id);
      if (!limit.answered) return {};
      return limit.left ? std::to_string(std::max<std::int64_t>(limit.left->count(), 0)) : "no limit";
    });
    if (answer.empty()) return stop_->take_silence(Clock::now());
    const auto left = text::to_number(answer, 1ULL << 40);
    const bool is_first = !std::exchange(knows_time_left_, true);
    time_left_ = left ? std::optional(seconds(static_cast<std::int64_t>(*left))) : std::nullopt;
    stop_->take(time_left_, Clock::now());
    if (!is_first || left) return;
    tell(concat({"stop=", std::to_string(step_.stop->seconds),
                 ": there is no time limit, so the ranks are asked to stop by ", "'aml-dist stop ",
                 std::to_string(step_.job_id), ".", std::to_string(step_.step_id),
                 "', a preemption or scancel --signal alone: set one with --time"}));
  }

  /// Every component of the step.
  void signal_all(int signal) const {
    std::set<std::uint32_t> jobs = {step_.job_id};
    for (const ServedNodes& part : step_.hosts) jobs.insert(part.job_id);
    static_cast<void>(in_child([&]() -> std::string {
      for (const std::uint32_t job : jobs) static_cast<void>(signal_step(job, step_.step_id, signal));
      return {};
    }));
  }

  [[nodiscard]] std::string answer_when_stop() const {
    const auto left = stop_ ? stop_->until_stop(Clock::now()) : std::nullopt;
    return to_datagram(step::Subject::stop_in, left ? std::to_string(left->count()) : "never", token_);
  }

  /// In the working folder; in /tmp where that is not to be had, or never answers.
  [[nodiscard]] std::string write_report(const std::string& step, const std::string& report) const {
    const std::string file = in_child([&] {
      const bool is_there = is_srun() || ::chdir(step_.folder.c_str()) == 0;
      return is_there ? write_hang_report("", step, report) : std::string();
    });
    return file.empty() ? in_child([&] { return write_hang_report("/tmp/", step, report); }) : file;
  }

  /// Says that the step hangs, and ends it where the user wants that.
  void act_on(const step::HangDetector::Hang& hang) {
    const std::string step = concat({std::to_string(step_.job_id), ".", std::to_string(step_.step_id)});
    const std::string file = write_report(step, hang.report);
    const std::string line = concat({hang.sentence, hang.place.empty() ? "" : concat({"; it is in ", hang.place}),
                                     hang.cause.empty() ? "" : concat({"; ", hang.cause}),
                                     file.empty() ? "" : concat({"; its stack is in ", file})});
    const std::string_view what = hang.is_busy ? "busy: " : "hang: ";
    if (!is_srun()) log_for_administrator(concat({"step ", step, ", whose srun does not answer: ", what, line}));
    if (!step_.trace.ends || hang.is_busy) return tell(concat({what, line}));
    decided_ = true;  // the deaths that follow are ours
    first_at_ = Clock::now();
    if (is_srun()) end_srun_with(exit_hang);
    record({.cause = Cause::hang, .rank = hang.rank, .node = hang.node, .status = exit_hang, .evidence = line});
    static_cast<void>(signal_step(step_.job_id, step_.step_id, SIGTERM));
    kill_at_ = Clock::now() + kill_wait();
  }

  /// Is repeated until the step has ended: slurmctld may be away.
  void kill() {
    has_killed_ = true;
    kill_at_ = Clock::now() + between_kills;
    signal_all(SIGKILL);
  }

  void note_first() {
    first_at_ = Clock::now();
    if (hang_) hang_->ask_for_states(*first_at_);
    ask_for_limit();
    constexpr seconds rounding{1};
    at_limit_ = limit_at_ && *first_at_ >= *limit_at_ - rounding;
  }

  /// Asked for early too, since slurmctld may have forgotten a step whose tasks it ended.
  void ask_for_limit() {
    asked_for_limit_ = true;
    const std::string answer = as_user([&]() -> std::string {
      const StepLimit limit = limit_of_step(step_.job_id, step_.step_id);
      if (!limit.answered) return {};
      const std::int64_t left = limit.left ? limit.left->count() : -1;
      return limit.left ? std::to_string(std::max<std::int64_t>(left, 0)) : "no limit";
    });
    slurmctld_answers_ = !answer.empty();
    if (const auto left = text::to_number(answer, 1ULL << 40))
      limit_at_ = Clock::now() + seconds(static_cast<std::int64_t>(*left));
  }

  /// While the recorders of ranks that end still come in, a little longer: they tell for whom those ended.
  void decide_if_settled() {
    const auto now = Clock::now();
    const std::size_t states = server_.last_states().size();
    if (std::exchange(states_, states) != states)
      settled_at_ = std::min(now + settling / 2, *first_at_ + longest_settling);
    const milliseconds least = hang_ ? 2 * settling : settling;  // nodes that watch tell of ranks that live, too
    settled_at_ = std::max(settled_at_, *first_at_ + least);
    if ((ended_ && is_srun()) || now >= settled_at_) decide();
  }

  /// " by alice", where accounting knows it; slurmctld does not tell.
  [[nodiscard]] std::string by_whom() const {
    const std::string who =
        step::clean_cause(in_child([&] { return canceller_of_job(step_.job_id).value_or(""); }), 64);
    return who.empty() ? "" : concat({" by ", who});
  }

  /// What ended the step, if that was Slurm.
  [[nodiscard]] std::optional<step::EndRecord> end_by_slurm() const {
    if (at_limit_) return ended_by_slurm(Cause::time_limit, "the step's time limit was reached");
    if (!slurmctld_answers_) return std::nullopt;
    const auto end = text::to_number(as_user([&] {
                                       const auto found = end_of_job(step_.job_id);
                                       return found ? std::to_string(static_cast<int>(*found)) : std::string();
                                     }),
                                     static_cast<std::uint64_t>(JobEnd::requeued));
    if (!end) return std::nullopt;
    switch (JobEnd{static_cast<std::uint8_t>(*end)}) {
      case JobEnd::time_limit:
        return ended_by_slurm(Cause::time_limit, "the job's time limit was reached");
      case JobEnd::deadline:
        return ended_by_slurm(Cause::time_limit, "the job's deadline was reached");
      case JobEnd::preempted:
        return ended_by_slurm(Cause::preempted, "the job was preempted: another job got its nodes");
      case JobEnd::node_lost:
        return ended_by_slurm(Cause::node_down, "a node of the job does not answer any more, or could not be started");
      case JobEnd::cancelled:
        return ended_by_slurm(Cause::cancelled,
                              concat({"the job was cancelled", by_whom(), " (scancel, or Ctrl-C in srun)"}));
      case JobEnd::requeued:
        break;
    }
    return ended_by_slurm(Cause::cancelled, "the job was put back into the queue");
  }

  /// A step that hangs because a rank lost a process ends so, too.
  [[nodiscard]] step::EndRecord with_memory_note(step::EndRecord end) const {
    const std::string& note = server_.failure().memory_note();
    if (!note.empty()) end.evidence += concat({"; before, ", note});
    return end;
  }

  [[nodiscard]] static step::EndRecord ended_by_slurm(Cause cause, std::string_view what) {
    return {.cause = cause, .evidence = std::string(what)};
  }

  void decide() {
    decided_ = true;
    if (!server_.failure().stands()) return;
    if (auto end = end_by_slurm()) return record(with_memory_note(std::move(*end)), false);
    const bool kills = is_srun() && (step_.kills_on_bad_exit ? *step_.kills_on_bad_exit
                                                             : slurmctld_answers_ && kills_on_bad_exit_by_default());
    record(server_.failure().record({!ended_, kills, is_srun(), server_.last_states().has_mpi()},
                                    server_.last_states().cause()));
  }

  /// The end of a step of which no failure was heard. srun's status is known only later.
  void record_quiet_end() {
    const bool lacks_nodes = !has_started_ && !step_.hosts.empty();
    if (server_.failure().is_refused()) {
      const std::string& node = server_.failure().refusing_node();
      return write({.cause = Cause::refused,
                    .node = node,
                    .status = EXIT_FAILURE,
                    .evidence = concat({node, " did not let its tasks start, and said why"})});
    }
    const bool has_files = !step_.record_files.empty();
    if (!is_srun()) {
      if (has_files && !step_.hosts.empty()) write({.cause = Cause::done, .status = 0});
      return;
    }
    if (!has_files && !lacks_nodes) return;
    if (const auto end = has_files ? end_by_slurm() : std::nullopt) return write(*end);
    const step::EndRecord good =
        lacks_nodes ? missing_plugin(roll_->verdict_at_end()) : step::EndRecord{.cause = Cause::done};
    const step::EndRecord bad = {.cause = lacks_nodes ? Cause::launch_failed : Cause::unknown,
                                 .evidence = "srun says why"};
    end_srun_with_record(completed(good), completed(bad), step_.record_files);
  }

  [[nodiscard]] step::EndRecord completed(step::EndRecord record) const {
    record.step = concat({std::to_string(step_.job_id), ".", std::to_string(step_.step_id)});
    if (!step_.record_files.empty()) record.time = calendar_ns() / 1'000'000'000;
    return record;
  }

  /// Tells the user how the step ended, and writes it down. `comments`: also on the job, whose state does not tell it.
  void record(const step::EndRecord& end, bool comments = true) {
    const std::string line = end.sentence();
    if (!line.empty()) tell(line);
    if (is_srun() && step_.comments && comments && !line.empty()) comment_on_job(step_.job_id, step_.step_id, line);
    write(end);
  }

  void write(const step::EndRecord& end) {
    if (std::exchange(is_recorded_, true) || step_.record_files.empty()) return;
    const auto append = [&] {
      static_cast<void>(::chdir(step_.folder.c_str()) == 0 || ::chdir("/") == 0);
      return append_end_record(completed(end), step_.record_files);
    };
    const std::string complaint = is_srun() ? write_end_record(completed(end), step_.record_files) : in_child(append);
    if (!complaint.empty()) tell(complaint);
  }

  [[nodiscard]] std::optional<Clock::time_point> next_due() const {
    constexpr milliseconds soon{100};
    std::optional<Clock::time_point> first = ended_ ? std::optional(Clock::now() + soon) : failure_due();
    const bool asks = !ended_ && !has_started_ && !decided_ && !server_.failure().is_refused();
    const bool stops = stop_ && !ended_ && !decided_;
    for (const auto& due : {hang_ ? hang_->due() : std::nullopt, stops ? stop_->due() : std::nullopt, kill_at_,
                            asks ? roll_due() : std::nullopt}) {
      if (due && (!first || *due < *first)) first = due;
    }
    return first;
  }

  [[nodiscard]] std::optional<Clock::time_point> roll_due() const {
    return to_ask_.empty() ? roll_->due() : std::optional(Clock::now());
  }

  [[nodiscard]] std::optional<Clock::time_point> failure_due() const {
    if (first_at_) return decided_ ? std::nullopt : std::optional(std::max(settled_at_, *first_at_ + settling));
    return asked_for_limit_ || is_at_gate() ? std::nullopt : std::optional(began_ + before_any_limit);
  }

  /// Until something arrives or is due, or the process ends.
  void wait(int stop) {
    constexpr int no_file = -1;
    std::array<pollfd, 2> files = {{{socket_.descriptor(), POLLIN, 0}, {ended_ ? no_file : stop, POLLIN, 0}}};
    int timeout = -1;
    if (const auto due = next_due()) {
      const auto left = std::chrono::ceil<milliseconds>(*due - Clock::now());
      timeout = static_cast<int>(std::max<std::int64_t>(0, left.count()));
    }
    static_cast<void>(::poll(files.data(), files.size(), timeout));
    if (ended_ || files[1].revents == 0) return;
    ended_ = true;
    ended_at_ = Clock::now();
  }

  /// Reads what has arrived. Bounded, so that a flood cannot keep the process from ending.
  void receive() {
    constexpr int most_at_once = 4096;
    std::array<char, longest_message> datagram{};
    for (int i = 0; i < most_at_once; ++i) {
      DatagramPlace sender;
      const auto got = socket_.receive(datagram, sender);
      if (!got) return;
      const auto letter = inbox_.take({datagram.data(), *got}, Clock::now());
      const std::string answer = letter ? take(*letter, sender) : std::string();
      if (answer.empty()) continue;
      last_question_ = Clock::now();
      reply(answer, letter->stamp, sender);
    }
  }

  void reply(std::string_view message, const step::Stamp& stamp, const DatagramPlace& to) const {
    socket_.send(seal(token_, step::Direction::to_node, stamp, message), to);
  }

  /// The reply to a message; empty: none.
  std::string take(const step::Inbox::Letter& letter, const DatagramPlace& sender) {
    if (auto answer = server_.take(letter.message, Clock::now())) return std::move(*answer);
    if (const auto host = parse_text(step::Subject::here, letter.message, token_))
      return to_datagram(take_node(*host, letter.stamp, sender), token_);
    if (step::parse_message_type(letter.message, token_) == step::MessageType::when_stop) return answer_when_stop();
    if (!hang_) return {};
    if (letter.is_late) {
      inbox_.count_late();
      return {};
    }
    if (const auto state = parse_text(step::Subject::state, letter.message, token_); state && first_at_)
      server_.take_state(*state);
    if (const auto taken = hang_->take(letter.message, token_, Clock::now())) return *taken;
    if (const auto taken = take_stand_in(letter.message, sender)) return *taken;
    const bool asks = step::parse_message_type(letter.message, token_) == step::MessageType::which_stand_in;
    if (!asks) return {};
    return stand_in_.empty() ? to_datagram(step::MessageType::not_yet, token_)
                             : to_datagram(step::Subject::stand_in, stand_in_, token_);
  }

  /// The stand-in is reached where its node's messages come from.
  std::optional<std::string> take_stand_in(std::string_view datagram, const DatagramPlace& sender) {
    const auto port = parse_text(step::Subject::stand_in, datagram, token_);
    if (!port) return std::nullopt;
    constexpr std::uint64_t largest_port = 65535;
    if (const auto number = text::to_number(*port, largest_port))
      stand_in_ = concat({sender.address.to_string(), ":", std::to_string(*number)});
    return to_datagram(step::MessageType::heard, token_);
  }

  const DatagramSocket& socket_;
  step::Token token_;
  ServedStep step_;
  MessageServer server_;
  step::Inbox inbox_;
  std::optional<step::RollCall> roll_;
  /// Where tasks that hold their node's ask from, and the stamps of their last questions.
  std::map<DatagramPlace, step::Stamp> waiting_;
  std::size_t most_waiting_ = 0;
  std::vector<std::string> to_ask_;         ///< nodes about which Slurm is asked next
  bool has_started_ = false;                ///< every node has reported
  bool has_killed_ = false;                 ///< SIGKILL was sent to the step
  bool is_bare_ = false;                    ///< a node has started tasks without aml-dist
  std::optional<step::HangDetector> hang_;  ///< only under hang=
  std::optional<step::StopTimer> stop_;     ///< only under stop=
  std::optional<seconds> time_left_;        ///< as slurmctld said last
  bool knows_time_left_ = false;            ///< it has said so once
  Clock::time_point began_ = Clock::now();
  bool ended_ = false;  ///< srun, or the tasks of the stand-in's node
  Clock::time_point ended_at_ = {};
  bool asked_for_limit_ = step_.rights.has_value();  ///< a stand-in asks when a task has failed
  bool slurmctld_answers_ = true;              ///< if not, it is not asked again: each time libslurm waits for long
  std::optional<Clock::time_point> limit_at_;  ///< the end of the step's own time limit
  std::optional<Clock::time_point> first_at_;
  Clock::time_point settled_at_ = {};
  std::size_t states_ = 0;  ///< that have come from ranks at their ends
  bool at_limit_ = false;
  bool decided_ = false;
  bool is_recorded_ = false;
  std::optional<Clock::time_point> kill_at_;  ///< the end of KillWait, after a hang; or soon, in a refused step
  bool ends_refused_ = false;                 ///< a node has refused the step, and the others are ended
  std::optional<Clock::time_point> last_question_;
  std::string stand_in_;  ///< "10.0.0.1:40123", "fd00::1:40123"; empty: not known yet
};

}  // namespace

Result<std::unique_ptr<StepServer>> StepServer::open(Ports ports, const step::Token& token) {
  DatagramSocket socket = DatagramSocket::for_all();
  static_cast<void>(::setsockopt(socket.descriptor(), SOL_SOCKET, SO_RCVBUF, &kept_bytes, sizeof kept_bytes));
  bool bound = false;
  for (std::uint32_t port = ports.first; socket && !bound && port <= ports.second; ++port)
    bound = socket.bind(static_cast<std::uint16_t>(port));
  const std::uint16_t own = bound ? socket.port() : std::uint16_t{0};
  if (own == 0)
    return Error{Errc::unavailable, concat({"UDP port ", std::to_string(ports.first), ": ", std::strerror(errno)})};
  return std::unique_ptr<StepServer>(new StepServer(std::move(socket), {own, token}));
}

StepServer::StepServer(DatagramSocket socket, step::ReportChannel channel) noexcept
    : socket_(std::move(socket)), channel_(channel) {}

void StepServer::serve(ServedStep step) noexcept {
  if (thread_.is_started()) return;
  try {
    const auto thread = std::make_shared<ServerThread>(socket_, channel_.token, std::move(step));
    static_cast<void>(thread_.start([thread](int stop) { thread->run(stop); }));
  } catch (const std::exception&) {  // out of memory
  }
}

}  // namespace amldist::spank
