#include "step/messages/failure_report.hpp"

#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <csignal>
#include <limits>
#include <span>
#include <utility>

#include "base/text/hex.hpp"
#include "base/text/text.hpp"
#include "launch/option/spec.hpp"
#include "launch/placement/task_map.hpp"
#include "step/messages/datagram.hpp"
#include "trace/diagnosis/last_call.hpp"

namespace amldist::step {
namespace {

using text::concat;

constexpr std::string_view report_version = "2";

/// The value of "name=value".
std::optional<std::string_view> value_of(std::string_view field, std::string_view name) {
  const bool right_name = field.size() > name.size() && field.starts_with(name) && field[name.size()] == '=';
  return right_name ? std::optional(field.substr(name.size() + 1)) : std::nullopt;
}

std::string_view word_of(FailureReport::Kind kind) {
  return kind == FailureReport::Kind::failed ? "failed" : "refused";
}

std::optional<FailureReport::Kind> parse_kind(std::string_view word) {
  if (word == "failed") return FailureReport::Kind::failed;
  if (word == "refused") return FailureReport::Kind::refused;
  return std::nullopt;
}

/// sigabbrev_np(3) is newer than the C libraries of some supported systems.
std::string signal_name(int number) {
  struct Name {
    int number;
    const char* name;
  };
  constexpr Name names[] = {{SIGHUP, "SIGHUP"},   {SIGINT, "SIGINT"},       {SIGQUIT, "SIGQUIT"}, {SIGILL, "SIGILL"},
                            {SIGTRAP, "SIGTRAP"}, {SIGABRT, "SIGABRT"},     {SIGBUS, "SIGBUS"},   {SIGFPE, "SIGFPE"},
                            {SIGKILL, "SIGKILL"}, {SIGUSR1, "SIGUSR1"},     {SIGSEGV, "SIGSEGV"}, {SIGUSR2, "SIGUSR2"},
                            {SIGPIPE, "SIGPIPE"}, {SIGALRM, "SIGALRM"},     {SIGTERM, "SIGTERM"}, {SIGXCPU, "SIGXCPU"},
                            {SIGXFSZ, "SIGXFSZ"}, {SIGVTALRM, "SIGVTALRM"}, {SIGPROF, "SIGPROF"}, {SIGSYS, "SIGSYS"}};
  const auto* const found = std::ranges::find(names, number, &Name::number);
  return found != std::end(names) ? found->name : "";
}

std::string describe_exit(int status) {
  // A shell exits with 128 + N when its program was killed by signal N.
  constexpr int shells_offset = 128;
  const std::string name = status > shells_offset ? signal_name(status - shells_offset) : "";
  const std::string meaning = name.empty() ? "" : concat({" (128 + ", name, ")"});
  return concat({"exit status ", std::to_string(status), meaning});
}

/// "0.3 s", "312 s", "41 min", "2 h 5 min".
std::string duration(std::uint64_t milliseconds) {
  constexpr std::uint64_t second = 1000;
  constexpr std::uint64_t minute = 60 * second;
  constexpr std::uint64_t hour = 60 * minute;
  if (milliseconds < 100 * second) {
    return concat({std::to_string(milliseconds / second), ".", std::to_string(milliseconds % second / 100), " s"});
  }
  if (milliseconds < 10 * minute) return concat({std::to_string(milliseconds / second), " s"});
  if (milliseconds < 100 * minute) return concat({std::to_string(milliseconds / minute), " min"});
  return concat({std::to_string(milliseconds / hour), " h ", std::to_string(milliseconds % hour / minute), " min"});
}

bool ended_by(std::uint32_t wait_status, int signal) {
  const int status = static_cast<int>(wait_status);
  return WIFSIGNALED(status) && WTERMSIG(status) == signal;
}

constexpr int shells_offset = 128;

/// As a shell says it, which exits so if its command was killed: the exit status, or 128 + signal.
int shell_status(std::uint32_t wait_status) {
  const int status = static_cast<int>(wait_status);
  return WIFSIGNALED(status) ? shells_offset + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

std::string ReportChannel::to_string() const {
  return concat({report_version, ";port=", std::to_string(port), ";token=", to_hexadecimal(token.mark),
                 to_hexadecimal(token.rest)});
}

std::optional<ReportChannel> ReportChannel::parse(std::string_view text) {
  if (text.size() > longest_datagram) return std::nullopt;
  const auto fields = text::split(text, ';');
  if (fields.size() != 3 || fields[0] != report_version) return std::nullopt;
  const auto port = text::to_number(value_of(fields[1], "port").value_or(""), 65535);
  const auto token = value_of(fields[2], "token").value_or("");
  const auto mark = from_hex(token.substr(0, token.size() / 2));
  const auto rest = from_hex(token.substr(token.size() / 2));
  if (!port || *port == 0 || !mark || !rest) return std::nullopt;
  const ReportChannel channel{static_cast<std::uint16_t>(*port), {*mark, *rest}};
  return channel.to_string() == text ? std::optional(channel) : std::nullopt;
}

namespace {

/// A text of a cause has ';' between its halves, which divides the fields of a datagram.
constexpr char sent_semicolon = '\x1f';

std::string sent(std::string text) {
  std::ranges::replace(text, ';', sent_semicolon);
  return text;
}

std::string received(std::string_view field) {
  std::string text(field);
  std::ranges::replace(text, sent_semicolon, ';');
  return text;
}

}  // namespace

const std::string* FailureReport::text_of(Cause::Kind wanted) const noexcept {
  const auto found = std::ranges::find(causes, wanted, &Cause::kind);
  return found != causes.end() ? &found->text : nullptr;
}

std::string FailureReport::to_datagram(std::uint64_t token) const {
  std::string out = encode(token, {word_of(kind), std::to_string(rank), std::to_string(local_rank),
                                   std::to_string(wait_status), std::to_string(elapsed_ms), host});
  if (!last_call.empty() || !causes.empty()) out += concat({";", last_call});
  for (const Cause& cause : causes) out += concat({";", step::to_string(cause.kind), ";", sent(cause.text)});
  return out;
}

namespace {

/// The findings at the end of a report: kind and text, by turns.
std::optional<std::vector<Cause>> parse_causes(std::span<const std::string_view> fields) {
  if (fields.size() % 2 != 0 || fields.size() > 2 * FailureReport::most_causes) return std::nullopt;
  std::vector<Cause> causes;
  for (std::size_t i = 0; i < fields.size(); i += 2) {
    const auto kind = parse_cause_kind(fields[i]);
    std::string text = received(fields[i + 1]);
    const bool is_right = kind && *kind != Cause::Kind::none && !text.empty() && is_cause_text(text);
    if (!is_right || std::ranges::find(causes, *kind, &Cause::kind) != causes.end()) return std::nullopt;
    causes.push_back({*kind, std::move(text)});
  }
  return causes;
}

}  // namespace

std::optional<FailureReport> FailureReport::parse(std::string_view datagram, std::uint64_t token) {
  constexpr std::size_t call_field = 6;  // if the recorder's last call is known, or causes follow
  constexpr std::uint64_t most_milliseconds = std::numeric_limits<std::uint64_t>::max() / 2;
  constexpr std::uint64_t most_status = 0xffff;
  const auto decoded = decode(datagram, token);
  if (!decoded || decoded->size() < call_field) return std::nullopt;
  const std::span<const std::string_view> fields = *decoded;
  const bool tells_call = fields.size() > call_field;
  const std::string_view last_call = tells_call ? fields[call_field] : std::string_view();
  auto causes = parse_causes(fields.subspan(std::min(call_field + 1, fields.size())));
  const bool has_call = !last_call.empty();
  if (!causes || (has_call && !trace::is_last_call(last_call)) || (tells_call && !has_call && causes->empty()))
    return std::nullopt;
  const auto kind = parse_kind(fields[0]);
  const auto rank = text::to_number(fields[1], most_tasks - 1);
  const auto local_rank = text::to_number(fields[2], most_tasks - 1);
  const auto status = text::to_number(fields[3], most_status);
  const auto elapsed = text::to_number(fields[4], most_milliseconds);
  if (!kind || !rank || !local_rank || !status || !elapsed || !launch::is_host(fields[5])) return std::nullopt;
  return FailureReport{*kind,
                       static_cast<std::uint32_t>(*rank),
                       static_cast<std::uint32_t>(*local_rank),
                       static_cast<std::uint32_t>(*status),
                       *elapsed,
                       std::string(fields[5]),
                       std::string(last_call),
                       std::move(*causes)};
}

std::string describe_end(std::uint32_t wait_status) {
  const int status = static_cast<int>(wait_status);
  if (!WIFSIGNALED(status)) return describe_exit(WEXITSTATUS(status));
  const std::string name = signal_name(WTERMSIG(status));
  return concat({"signal ", std::to_string(WTERMSIG(status)), name.empty() ? "" : concat({" (", name, ")"}),
                 WCOREDUMP(status) ? ", core dumped" : ""});
}

void FirstFailure::take(const FailureReport& report) {
  if (report.kind == FailureReport::Kind::refused) {
    refused_by_ = report.host;
    return;
  }
  const bool in_step = alike_.empty() || report.rank < alike_.size();
  if (!in_step) return;
  note_memory(report);
  constexpr std::size_t most_kept = 8192;
  if (ends_.size() < most_kept) ends_.try_emplace(report.rank, report);
  if (!is_failure(report.wait_status)) return take_unfinished(report);
  if (!first_ || is_earlier_cause(report)) {
    first_ = report;
    alike_.assign(alike_.size(), false);
    alike_count_ = 0;
    for (const auto& [rank, end] : ends_) count_if_alike(end);  // reports come in any order
  }
  count_if_alike(report);
}

void FirstFailure::count_if_alike(const FailureReport& report) {
  const bool counts = shell_status(report.wait_status) == shell_status(first_->wait_status) && !alike_.empty();
  if (!counts || alike_[report.rank]) return;
  alike_[report.rank] = true;
  ++alike_count_;
}

void FirstFailure::note_memory(const FailureReport& report) {
  using enum Cause::Kind;
  if (!memory_note_.empty()) return;
  for (const Cause::Kind kind : {lost_process, out_of_memory}) {
    const auto* const text = report.text_of(kind);
    if (text == nullptr) continue;
    memory_note_ = concat({"rank ", std::to_string(report.rank), " (local ", std::to_string(report.local_rank), ") on ",
                           report.host, ": ", kind == out_of_memory ? "out of memory: " : "", *text});
    return;
  }
}

/// Keeps the first task that ended with status 0 without MPI_Finalize. One that ended inside a call, or later than the
/// first failure, was asked to end by a signal and is not the cause. Its report may arrive a moment before the others'.
void FirstFailure::take_unfinished(const FailureReport& report) {
  constexpr std::uint64_t moment_ms = 200;  // nodes do not start a step at the same time
  const bool is_late = first_ && report.elapsed_ms > first_->elapsed_ms + moment_ms;
  if (!unfinished_ && !is_late && trace::is_between_calls(report.last_call)) unfinished_ = report;
}

namespace {

/// 0: the cause is known, and lies in this task or its node; 1: it may; 2: another rank's end is the cause.
int distance_from_cause(const FailureReport& report) {
  using enum Cause::Kind;
  if (trace::has_aborted(report.last_call)) return 0;
  for (const Cause::Kind kind : {out_of_memory, unhealthy, link})
    if (report.text_of(kind) != nullptr) return 0;
  return trace::is_broken_by_another(report.last_call) || report.text_of(peer) != nullptr ? 2 : 1;
}

/// As Slurm ends the others after a first failure.
bool was_terminated(std::uint32_t wait_status) { return shell_status(wait_status) == shells_offset + SIGTERM; }

/// As Slurm, PMIx and people end a task.
bool was_ended(const FailureReport& report) {
  return ended_by(report.wait_status, SIGKILL) || was_terminated(report.wait_status);
}

bool has_crashed(const FailureReport& report) {
  constexpr std::array<int, 4> faults = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
  return std::ranges::any_of(faults, [&](int signal) { return ended_by(report.wait_status, signal); });
}

/// With cause and evidence still to come.
EndRecord end_of(const FailureReport& report) {
  const int status = static_cast<int>(report.wait_status);
  EndRecord record{.cause = EndRecord::Cause::rank_exit, .rank = report.rank, .node = report.host};
  if (WIFSIGNALED(status)) {
    record.cause = EndRecord::Cause::rank_signal;
    record.signal = static_cast<std::uint32_t>(WTERMSIG(status));
  } else {
    record.status = static_cast<std::uint32_t>(WEXITSTATUS(status));
  }
  return record;
}

/// The end of a step whose ranks made calls that do not match: MPI ends the first that notices.
EndRecord wrong_call(const RecordedCause& recorded, const FailureReport& first) {
  EndRecord record = end_of(first);
  record.rank = recorded.ranks.size() == 1 ? std::optional(recorded.ranks.front()) : std::nullopt;
  record.node = record.rank ? recorded.node : "";
  record.evidence = concat({recorded.wrong_call, "; the first to fail because of it ended with ",
                            describe_end(first.wait_status), ", ", duration(first.elapsed_ms), " after the start"});
  return record;
}

}  // namespace

/// Tasks that Slurm kills because of a first death are not broken by another rank either, but are reported after the
/// cause. Those that it terminates are never the cause of what was reported before. A task that crashed was not killed
/// for another's end, though slurmstepd may have seen that one first.
bool FirstFailure::is_earlier_cause(const FailureReport& report) const {
  const int distance = distance_from_cause(report);
  const int before = distance_from_cause(*first_);
  if (distance == 1 && before == 1) return has_crashed(report) && was_ended(*first_);
  return distance < before && (distance == 0 || !was_terminated(report.wait_status));
}

namespace {
/// The call of a rank with which it ends well.
std::string_view proper_end_of(std::string_view source) {
  return source == "amldist" ? "amldist_finalize" : source == "torch" ? "destroy_process_group" : "MPI_Finalize";
}
}  // namespace

/// Whether a task failed because another rank had left it: a PMIx server kills the others then with SIGKILL, and Open
/// MPI 5 ends a process whose call meets a closed connection. Of other libraries' ranks only those count for which the
/// others waited, which is told by their recorders.
bool FirstFailure::has_unfinished_cause(bool has_mpi) const {
  const bool is_killed = ended_by(first_->wait_status, SIGKILL);
  return unfinished_ && has_mpi && (is_killed || first_->last_call.starts_with("in "));
}

/// Whether the first task to fail may have ended because of another: it was killed or asked to end, or failed in a
/// call.
bool FirstFailure::may_be_consequence() const {
  return distance_from_cause(*first_) != 0 && (was_ended(*first_) || first_->last_call.starts_with("in "));
}

/// Of the tasks for which the others waited, the first to end; nullptr if none of them is known to have ended by
/// itself. A task that was killed counts only if the first failure was a kill, too.
const FailureReport* FirstFailure::recorded_cause(const RecordedCause& recorded) const {
  const FailureReport* found = nullptr;
  const auto order = [](const FailureReport& end) { return std::pair(was_ended(end), end.elapsed_ms); };
  for (const std::uint32_t rank : recorded.ranks) {
    const auto end = ends_.find(rank);
    if (end == ends_.end() || (was_ended(end->second) && !was_ended(*first_))) continue;
    if (!is_failure(end->second.wait_status) && !trace::is_between_calls(end->second.last_call)) continue;
    if (found == nullptr || order(end->second) < order(*found)) found = &end->second;
  }
  return found;
}

EndRecord FirstFailure::record(const RestOfStep& rest, const std::optional<RecordedCause>& recorded) const {
  assert(stands());
  const bool counts = recorded && may_be_consequence();
  if (counts && !recorded->wrong_call.empty()) return wrong_call(*recorded, *first_);
  const FailureReport* const told = counts && !has_crashed(*first_) ? recorded_cause(*recorded) : nullptr;
  const FailureReport& cause = told != nullptr ? *told : has_unfinished_cause(rest.has_mpi) ? *unfinished_ : *first_;
  EndRecord record = end_of(cause);
  record.evidence = description(cause, rest, proper_end_of(told != nullptr ? recorded->source : "mpi"));
  using enum Cause::Kind;
  const bool is_nodes = cause.text_of(unhealthy) != nullptr || cause.text_of(link) != nullptr;
  record.cause = cause.text_of(out_of_memory) != nullptr ? EndRecord::Cause::out_of_memory
                 : cause.text_of(unhealthy) != nullptr   ? EndRecord::Cause::node_unhealthy
                 : cause.text_of(link) != nullptr        ? EndRecord::Cause::link
                 : is_cancelled(rest)                    ? EndRecord::Cause::cancelled
                                                         : record.cause;
  if (is_nodes) record.nodes_blamed = {cause.host};
  return record;
}

/// All tasks ended as this one did.
bool FirstFailure::are_all_alike(const FailureReport& cause) const {
  return alike_.size() > 1 && alike_count_ == alike_.size() &&
         shell_status(cause.wait_status) == shell_status(first_->wait_status);
}

/// Whether all tasks were ended alike from outside. A shell whose command was killed before itself exits with that
/// signal's status; one task at least must have been ended by the signal. With kill_on_bad_exit Slurm sent SIGTERM to
/// the other tasks because the first one failed.
bool FirstFailure::is_cancelled(const RestOfStep& rest) const {
  const auto by = [this](int signal) {
    return std::ranges::any_of(ends_, [&](const auto& end) { return ended_by(end.second.wait_status, signal); });
  };
  const bool killed = by(SIGKILL) && shell_status(first_->wait_status) == shells_offset + SIGKILL;
  const bool terminated = by(SIGTERM) && was_terminated(first_->wait_status) && !rest.kill_on_bad_exit;
  const bool is_explained = distance_from_cause(*first_) == 0;
  return (killed || terminated) && !is_explained && are_all_alike(*first_);
}

namespace {

/// How a task ended, and of what: "exit status 1: RuntimeError: ... at train.py:88", "out of memory: ...".
std::string end_with_cause(const FailureReport& report) {
  using enum Cause::Kind;
  if (const auto* const memory = report.text_of(out_of_memory)) return concat({"out of memory: ", *memory});
  for (const Cause::Kind kind : {space, exception, peer})
    if (const auto* const text = report.text_of(kind)) return concat({describe_end(report.wait_status), ": ", *text});
  return describe_end(report.wait_status);
}

/// What the node says besides. The kernel's words bring their own time.
std::string node_words(const FailureReport& report) {
  using enum Cause::Kind;
  std::string out;
  for (const Cause::Kind kind : {fact, lost_process, unhealthy, link})
    if (const auto* const text = report.text_of(kind)) out += concat({"; ", *text});
  return out;
}

/// The clause about a SIGKILL: memory was not the reason, or the node could not find out.
std::string outside(const FailureReport& report) {
  if (!ended_by(report.wait_status, SIGKILL) || distance_from_cause(report) == 0) return "";
  const auto* const killed = report.text_of(Cause::Kind::killed);
  return concat({"; ", killed != nullptr ? std::string_view(*killed)
                                         : "SIGKILL comes from outside: no memory left, or a cancelled step"});
}

std::string time_of(const FailureReport& report) {
  using enum Cause::Kind;
  const bool kernel_tells = report.text_of(unhealthy) != nullptr || report.text_of(link) != nullptr;
  return kernel_tells ? std::string() : concat({", ", duration(report.elapsed_ms), " after the start"});
}

}  // namespace

/// `last_call`: which a task that ended with status 0 has not made.
std::string FirstFailure::description(const FailureReport& cause, const RestOfStep& rest,
                                      std::string_view last_call) const {
  const bool unfinished = !is_failure(cause.wait_status);
  return concat({"rank ", std::to_string(cause.rank), " (local ", std::to_string(cause.local_rank), ") on ", cause.host,
                 ": ", end_with_cause(cause), unfinished ? concat({" without ", last_call}) : "", time_of(cause),
                 cause.last_call.empty() ? "" : ", ", cause.last_call,
                 trace::was_cut_short(cause.last_call) ? "; nothing recorded tells whose call is wrong" : "",
                 node_words(cause), unfinished ? "" : clause(cause, rest)});
}

std::string FirstFailure::clause(const FailureReport& cause, const RestOfStep& rest) const {
  const bool terminated = was_terminated(cause.wait_status);
  // With kill_on_bad_exit Slurm sent SIGTERM to the other tasks because the first one failed.
  if (are_all_alike(cause) && !(terminated && rest.kill_on_bad_exit)) {
    return concat({"; all ", std::to_string(alike_.size()), " tasks ended this way",
                   is_cancelled(rest) ? ", as after scancel" : ""});
  }
  if (rest.runs && !rest.kill_on_bad_exit && !have_all_failed()) {
    return concat({outside(cause), "; the others may wait for it: ",
                   rest.has_srun ? "srun --kill-on-bad-exit would end the step" : "scancel would end the step"});
  }
  return outside(cause);
}

}  // namespace amldist::step
