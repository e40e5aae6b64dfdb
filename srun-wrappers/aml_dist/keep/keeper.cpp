#include "aml_dist/keep/keeper.hpp"

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "aml_dist/common/locked_folder.hpp"
#include "aml_dist/keep/job_state.hpp"
#include "aml_dist/keep/progress.hpp"
#include "aml_dist/keep/slurm_view.hpp"
#include "aml_dist/keep/watched_start.hpp"
#include "base/net/own_network.hpp"
#include "base/os/environment.hpp"
#include "base/os/whole_file.hpp"
#include "base/text/hostlist.hpp"
#include "base/text/text.hpp"
#include "base/time/calendar_time.hpp"
#include "base/time/clock.hpp"
#include "launch/option/spec.hpp"
#include "shared/allocation.hpp"
#include "shared/exit_status.hpp"
#include "shared/terminal.hpp"

namespace amldist::keep {
namespace {

using nlohmann::json;
using std::chrono::seconds;
using text::concat;

constexpr const char* nested_mark = "AMLDIST_KEEP";
constexpr int shells_offset = 128;

void say(const std::string& sentence) { commands::say(concat({"keep: ", sentence})); }

Error refusal(const std::string& sentence) { return {Errc::invalid_argument, concat({"keep: ", sentence})}; }

std::int64_t now_s() { return calendar_ns() / 1'000'000'000; }

std::uint32_t number(const char* name) {
  return static_cast<std::uint32_t>(text::to_number(own_variable(name).value_or(""), UINT32_MAX).value_or(0));
}

/// The job around this process.
struct Job {
  JobRun run;
  std::string name;  ///< for Slurm's commands
  std::vector<std::string> nodes;
  bool is_batch = false;
  bool may_requeue = false;
};

Result<Job> read_job() {
  const auto keeper = own_variable(nested_mark);  // of another job, if a task has submitted this one
  if (keeper && keeper == own_variable("SLURM_JOB_ID"))
    return refusal("it runs below another aml-dist keep already, which starts the step again: give one of them");
  if (number("SLURM_HET_SIZE") > 1)
    return refusal("a heterogeneous job cannot be kept: its components have nodes of their own");
  const auto context = commands::find_job_context();
  if (!context || *context == commands::JobContext::task)
    return refusal("it starts steps, and runs in a step itself: take away the srun in front of it");
  if (*context == commands::JobContext::outside)
    return refusal("there is no job here: write it into a batch script, or start it under salloc");
  Job job;
  job.run = {own_variable("SLURM_CLUSTER_NAME").value_or(""), number("SLURM_JOB_ID"), number("SLURM_RESTART_COUNT")};
  job.name = name_of_job(job.run.job, process_environment());
  const auto nodes = Hostlist::parse(own_variable("SLURM_JOB_NODELIST").value_or(""));
  if (!nodes || nodes->empty()) return refusal("SLURM_JOB_NODELIST does not name the job's nodes");
  job.nodes = nodes->expand();
  job.is_batch = job_field(job.name, "BatchFlag") == "1";
  job.may_requeue = job.is_batch && job_field(job.name, "Requeue") == "1";
  return job;
}

/// The option --aml-dist that the plugin takes if srun's line does not have it: the job's, which Slurm passes on and
/// sbatch copies into a variable, or the user's variable. Empty if the option is not given at all.
std::string option_without_srun() {
  constexpr std::string_view ending = "SPANK_OPTION_aml_dist_aml_dist";
  for (const std::string& variable : all_own_variables()) {
    const auto equals = variable.find('=');
    if (equals == std::string::npos) continue;
    if (std::string_view(variable).substr(0, equals).ends_with(ending)) return variable.substr(equals + 1);
  }
  const auto set = own_variable("SLURM_AML_DIST");
  return set ? *set : own_variable("AMLDIST_OPTION").value_or("");
}

/// One keep for each job: the name of a socket, which goes with its process.
Result<FileDescriptor> claim_job(std::uint32_t job) {
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  const std::string text = concat({"aml-dist-keep-", std::to_string(::geteuid()), "-", std::to_string(job)});
  std::memcpy(name.sun_path + 1, text.data(), text.size());  // abstract: no file
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&name), length) == 0) return socket;
  return refusal(
      concat({"another aml-dist keep of job ", std::to_string(job), " runs here: start one after the other"}));
}

/// For the record of each end, and for what scontrol and the checks write.
Result<tools::LockedFolder> make_folder() {
  std::uint32_t chance = 0;
  if (::getrandom(&chance, sizeof chance, 0) != sizeof chance) return Error{Errc::unavailable, "no random number"};
  const std::string prefix = concat({"aml-dist-keep-", own_host_name(), "-"});  // a node sees no locks of another
  const std::string parent = own_variable("TMPDIR").value_or("/tmp");
  return tools::LockedFolder::make(concat({parent, "/", prefix, std::to_string(chance)}), prefix);
}

class Keeper {
 public:
  Keeper(KeepOptions options, Job job, SrunLine line, std::string folder)
      : options_(std::move(options)), job_(std::move(job)), line_(std::move(line)), folder_(std::move(folder)) {}

  int run() {
    state_file_ = std::filesystem::current_path() / state_file_of(job_.run);
    if (auto status = remember(); !status) return finish(commands::fail(status.error()));
    if (auto status = plan(); !status) return finish(commands::fail(status.error()));
    ::setenv(nested_mark, std::to_string(job_.run.job).c_str(), 1);
    if (const auto ended = choose_first()) return finish(*ended);
    for (;;) {
      if (const auto ended = wait(seconds(0))) return finish(*ended);  // a signal that came while nodes were checked
      if (auto status = start(); !status) return finish(commands::fail(status.error()));
      const Decision decision = decide(options_.limits, state_.history, nodes_);
      exclude(decision.excluded);
      tell(decision, state_.history.back());
      if (const auto ended = follow(decision)) return finish(*ended);
      if (const auto ended = renew()) return finish(*ended);
    }
  }

 private:
  /// What earlier runs of this job left.
  Result<void> remember() {
    auto earlier = read_state(state_file_, job_.run);
    if (!earlier && earlier.error().code != Errc::not_found) {
      say(concat({earlier.error().message, ": it is not used"}));
    } else if (earlier) {
      state_ = std::move(*earlier);
      if (state_.runs)
        state_.history.push_back({.cause = Cause::node_down,
                                  .blamed = {state_.batch_host},
                                  .evidence = "Slurm requeued the job",
                                  .status = 1,
                                  .ended = now_s(),
                                  .ran = 60});
      say(concat({"the job was requeued: ", text::count(state_.history.size(), "start"), " so far",
                  state_.excluded.empty() ? "" : ", without ", names_of(state_.excluded)}));
      if (costly(state_.history) > options_.limits.retries)
        return Error{Errc::unavailable,
                     concat({"keep: all of --retries=", std::to_string(options_.limits.retries), " are used"})};
    }
    state_.batch_host = own_variable("SLURMD_NODENAME").value_or("");
    state_.runs = true;
    const auto status = save();
    if (status) return {};
    if (options_.limits.requeue || options_.limits.requeue_at_limit)
      return Error{Errc::unavailable, concat({"keep: ", status.error().message, ": --requeue needs it"})};
    say(concat({status.error().message, ": after a requeue the budget would begin anew"}));
    return {};
  }

  /// Saved with the start that has ended and before anything is said: who ends this process then must not bring a
  /// guilty node back.
  void exclude(const std::vector<std::string>& nodes) {
    for (const std::string& node : nodes) {
      if (!contains(state_.excluded, node)) state_.excluded.push_back(node);
    }
    static_cast<void>(save());
  }

  Result<void> save() const { return job_.may_requeue ? write_state(state_file_, job_.run, state_) : Result<void>(); }

  /// How many nodes the step has.
  Result<void> plan() {
    const auto all = static_cast<std::uint32_t>(job_.nodes.size());
    const std::string have = concat({"the job has ", text::count(all, "node")});
    if (options_.spares >= all)
      return refusal(
          concat({"--spares=", std::to_string(options_.spares), ", but ", have, ": allocate more nodes than spares"}));
    wanted_ = line_.nodes() != 0 ? line_.nodes() : all - options_.spares;
    if (wanted_ + options_.spares > all)
      return refusal(
          concat({"srun's --nodes=", std::to_string(wanted_), " and --spares=", std::to_string(options_.spares),
                  " make ", std::to_string(wanted_ + options_.spares), " nodes, but ", have}));
    if (options_.limits.min_nodes > wanted_)
      return refusal(concat({"--min-nodes=", std::to_string(options_.limits.min_nodes), ", but the step has ",
                             text::count(wanted_, "node")}));
    const bool requeues = options_.limits.requeue || options_.limits.requeue_at_limit;
    const std::string flag = options_.limits.requeue ? "--requeue" : "--requeue-at-limit";
    if (requeues && !job_.may_requeue)
      return refusal(concat({flag, job_.is_batch ? ", but Slurm may not requeue this job: add #SBATCH --requeue"
                                                 : " needs a batch job"}));
    if (auto status = plan_stop(); !status) return status.error();
    std::error_code ignored;
    if (!options_.checkpoints.empty() && !std::filesystem::is_directory(options_.checkpoints, ignored))
      return Error{Errc::not_found, concat({"keep: --checkpoints ", text::quote(options_.checkpoints),
                                            " is not a folder: make it before"})};
    numbers_ = slurm_numbers();
    return line_.share_out(all, wanted_, options_.limits.min_nodes != 0, process_environment());
  }

  /// When the ranks are asked to stop, so that an end after that is no end of the work.
  Result<void> plan_stop() {
    if (!options_.limits.requeue_at_limit) return {};
    const auto spec = launch::parse_spec(line_.has_kind() ? line_.option() : option_without_srun());
    if (!spec || !spec->stop)
      return refusal("--requeue-at-limit needs the key stop=SECONDS in --aml-dist, which asks the ranks to save");
    end_of_job_ = end_of_job(job_.name);
    if (!end_of_job_ || end_of_job_ == no_time_limit)
      return refusal("--requeue-at-limit, but the job has no time limit: add #SBATCH --time");
    stop_before_ = spec->stop->seconds;
    return {};
  }

  /// Whether a start that ends now was asked to stop. The limit may have been moved, slurmctld may be away, and its
  /// clock may differ a little: a start that was done by itself ends at once the next time.
  [[nodiscard]] bool is_after_stop() {
    constexpr std::int64_t margin = 2;
    if (!stop_before_) return false;
    if (const auto end = end_of_job(job_.name)) end_of_job_ = end;
    return end_of_job_ && *end_of_job_ != no_time_limit &&
           now_s() >= *end_of_job_ - std::int64_t{*stop_before_} - margin;
  }

  [[nodiscard]] std::string progress() const {
    if (!options_.progress.empty()) return progress_of(options_.progress);
    return options_.checkpoints.empty() ? std::string() : newest_below(options_.checkpoints);
  }
  [[nodiscard]] bool watches_progress() const { return !options_.progress.empty() || !options_.checkpoints.empty(); }

  /// Nodes that should not be used, each with the reason.
  std::map<std::string, std::string> unfit(const std::vector<std::string>& nodes) {
    std::map<std::string, std::string> out;
    std::vector<std::string> fine;
    const auto states = node_states(nodes);
    for (auto& [name, machine] : machines_of(states, numbers_.slurmd_port)) known_.insert_or_assign(name, machine);
    Machines machines = known_;  // also where slurmctld is slow to answer
    std::erase_if(machines, [&](const auto& each) { return !contains(nodes, each.first); });
    machines.erase(state_.batch_host);
    std::vector<std::string> deaf = deaf_slurmds(machines);
    if (deaf.size() > 1 && deaf.size() == machines.size()) deaf.clear();  // it is this machine's network
    for (const std::string& node : nodes) {
      const auto state = states.find(node);
      if (state != states.end() && !state->second.is_usable())
        out.emplace(node, concat({"Slurm says ", state->second.word}));
      else if (contains(deaf, node)) out.emplace(node, "its slurmd does not answer");
      else fine.push_back(node);
    }
    take_out(deaf);
    const NodeHealth health = check_nodes(fine, options_.health, folder_);
    // A slurmctld that did not answer, or has just come back, may take an ended step for one that runs.
    checks_were_silent_ = !health.silent.empty();
    overlaps_ = overlaps_ || checks_were_silent_;
    if (!health.silent.empty())
      say(concat({"the check of ", names_of(health.silent), " has not answered: used all the same"}));
    out.insert(health.sick.begin(), health.sick.end());
    return out;
  }

  /// Nodes that are out of the job, and were not in the step.
  void forget(const std::vector<std::string>& nodes) {
    if (nodes.empty()) return;
    for (const std::string& node : nodes) {
      std::erase(job_.nodes, node);
      std::erase(nodes_.spares, node);
    }
    exclude(nodes);
  }

  /// A dead node in the job would end it after SlurmdTimeout.
  void take_out(const std::vector<std::string>& dead) {
    if (dead.empty()) return;
    std::vector<std::string> left = job_.nodes;
    std::erase_if(left, [&](const std::string& each) { return contains(dead, each); });
    if (shrink_job(job_.name, left, folder_)) job_.nodes = left;
  }

  /// The nodes of the first start.
  std::optional<int> choose_first() {
    std::vector<std::string> usable;
    for (const std::string& node : job_.nodes) {
      if (!contains(state_.excluded, node)) usable.push_back(node);
    }
    std::vector<std::string> sick;
    for (const auto& [node, reason] : unfit(usable)) {
      say(concat({node, " is not used: ", reason}));
      sick.push_back(node);
      std::erase(usable, node);
    }
    exclude(sick);
    const auto count = std::min<std::size_t>(usable.size(), wanted_);
    nodes_.step.assign(usable.begin(), usable.begin() + static_cast<std::ptrdiff_t>(count));
    nodes_.spares.assign(usable.begin() + static_cast<std::ptrdiff_t>(count), usable.end());
    if (count == wanted_) return std::nullopt;
    return do_without(state_.excluded,
                      concat({"only ", text::count(count, "node"), " of ", std::to_string(wanted_), " can be used"}));
  }

  /// Before the next start: its nodes must be fit.
  std::optional<int> renew() {
    std::vector<std::string> fresh = nodes_.step;
    while (!fresh.empty()) {
      const auto sick = unfit(fresh);
      if (sick.empty()) return std::nullopt;
      std::vector<std::string> gone;
      std::string why;
      for (const auto& [node, reason] : sick) {
        gone.push_back(node);
        why += concat({why.empty() ? "" : "; ", node, ": ", reason});
      }
      const std::vector<std::string> before = nodes_.step;
      if (const auto ended = do_without(gone, why)) return ended;
      fresh.clear();
      std::ranges::copy_if(nodes_.step, std::back_inserter(fresh),
                           [&](const std::string& each) { return !contains(before, each); });
    }
    return std::nullopt;
  }

  /// Nodes that are unfit before a start: the same table, without cost to the budget.
  std::optional<int> do_without(const std::vector<std::string>& gone, const std::string& why) {
    Limits limits = options_.limits;
    limits.retries = UINT32_MAX;
    limits.per_hour = 0;
    Nodes nodes = nodes_;
    if (nodes.step.size() < wanted_) nodes.step.insert(nodes.step.end(), gone.begin(), gone.end());
    const Start unhealthy{
        .cause = Cause::node_unhealthy, .blamed = gone, .evidence = why, .status = commands::exit_failed, .ran = 60};
    const Decision decision = decide(limits, {&unhealthy, 1}, nodes);
    exclude(decision.excluded);
    tell(decision, unhealthy);
    nodes_.step = nodes.step;
    return follow(decision, commands::exit_failed);
  }

  /// Not saved: the caller saves it together with what follows from it.
  Result<void> start() {
    has_started_ = true;
    const auto restart = std::to_string(state_.history.size());
    const std::string before = progress();
    const std::string record = folder_ + "/end";
    for (const char* const name : {"AMLDIST_RESTART", "TORCHELASTIC_RESTART_COUNT"}) ::setenv(name, restart.c_str(), 1);
    const auto users_record = own_variable(step::end_record_variable);
    ::setenv(step::end_record_variable, record.c_str(), 1);
    tell_start(restart);
    WatchedStart watched({.job = job_.name,
                          .words = line_.words_for(choice(), process_environment()),
                          .record = record,
                          .nodes = nodes_.step,
                          .own_node = own_variable("SLURMD_NODENAME").value_or(""),
                          .allocation = job_.nodes,
                          .slurm = numbers_,
                          .grace = options_.grace,
                          .folder = folder_},
                         signals_, say);
    const auto began = Clock::now();
    auto end = watched.run();
    if (users_record) ::setenv(step::end_record_variable, users_record->c_str(), 1);
    else ::unsetenv(step::end_record_variable);
    if (!end) return Error{end.error().code, concat({"keep: ", end.error().message})};
    if (users_record && end->record) static_cast<void>(append_line(*users_record, end->record->to_line()));
    overlaps_ = overlaps_ || end->still_holds;
    forget(end->idle_gone);
    for (const std::string& node : end->gone) {
      if (end->is_out) std::erase(job_.nodes, node);
    }
    Start start = judge(*end, std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - began).count());
    start.at_limit = start.cause == Cause::done && is_after_stop();
    const bool has_run = end->record || !start.failure.empty() || start.cause == Cause::done;
    if (watches_progress() && has_run) {
      const std::string after = progress();
      const bool is_unknown = after.empty() && !options_.progress.empty();  // the command failed
      if (!is_unknown) start.advanced = !after.empty() && after != before;
    }
    state_.history.push_back(std::move(start));
    return {};
  }

  [[nodiscard]] SrunLine::Choice choice() const {
    const auto place = [this](const std::string& node) { return std::ranges::find(job_.nodes, node); };
    const bool sorted = std::ranges::is_sorted(nodes_.step, {}, place);
    return {nodes_.step, !sorted, options_.grace.count() == 0, overlaps_};
  }

  /// The facts of a start that has ended.
  [[nodiscard]] Start judge(const EndOfStart& end, std::int64_t ran) const {
    Start start{.status = end.status, .ended = now_s(), .ran = ran};
    const bool preempted = end.record && end.record->cause == Cause::preempted;  // its SIGTERM may come here first
    if (end.signal && !preempted) {
      start.cause = Cause::cancelled;
      start.evidence = concat({"signal ", std::to_string(*end.signal)});
      if (start.status == 0) start.status = shells_offset + *end.signal;
    } else if (!end.gone.empty()) {
      start.cause = Cause::node_down;
      start.blamed = end.gone;
      start.evidence = end.why;
    } else if (end.record) {
      read_record(*end.record, start);
    } else {
      read_status(start);
    }
    if (start.cause != Cause::done && start.status == 0) start.status = commands::exit_failed;
    if (start.blamed.empty()) blame_lost_nodes(start);
    return start;
  }

  static void read_record(const step::EndRecord& record, Start& start) {
    start.cause = record.cause;
    start.node = record.node;
    start.failure = failure_of(record);
    start.evidence = record.evidence;
    start.blamed = record.nodes_blamed;
    start.rank_status = record.rank ? record.shell_status() : 0;
    const bool of_node = !record.rank && !record.node.empty();
    if (start.blamed.empty() && of_node) start.blamed = {record.node};
  }

  /// srun made no step with the option: it is its own fault, or the line has no option.
  void read_status(Start& start) const {
    const std::string status = concat({"srun ended with status ", std::to_string(start.status)});
    if (start.status == 0) start.cause = Cause::done;
    const bool has_kind = line_.has_kind() || !option_without_srun().empty();
    const bool is_refused = has_kind && start.ran < at_once;
    if (!is_refused) start.failure = status;
    // A slurmctld that has just come back refuses what it grants soon after.
    if (start.status != 0 && is_refused && !checks_were_silent_) start.cause = Cause::refused;
    start.evidence = start.status != 0 && is_refused ? concat({status, " and started no step"}) : status;
  }

  /// Without a verdict, or where the failed rank's node is down or drained, Slurm's word about the nodes counts.
  void blame_lost_nodes(Start& start) const {
    const bool is_known = start.cause == Cause::done || start.cause == Cause::cancelled ||
                          start.cause == Cause::time_limit || start.cause == Cause::preempted;
    if (is_known) return;
    std::string words;
    for (const auto& [node, state] : node_states(nodes_.step)) {
      const bool of_rank = node == start.node;
      if (of_rank ? state.is_usable() : !state.is_down()) continue;
      start.blamed.push_back(node);
      words += concat({words.empty() ? "" : ", ", node, " is ", state.word});
    }
    if (start.blamed.empty()) return;
    start.cause = Cause::node_down;
    start.evidence = concat({start.evidence, start.evidence.empty() ? "" : "; ", "Slurm says that ", words});
  }

  /// Does what was decided, up to the next start. A status: that is the end.
  std::optional<int> follow(const Decision& decision, int status) {
    if (decision.action == Action::end) return status;
    if (decision.action == Action::requeue) return requeue(status);
    nodes_.step = without(nodes_, decision.excluded);
    std::erase_if(nodes_.spares, [&](const std::string& each) {
      return contains(nodes_.step, each) || contains(decision.excluded, each);
    });
    return wait(decision.wait);
  }
  std::optional<int> follow(const Decision& decision) { return follow(decision, state_.history.back().status); }

  /// Between two starts. A signal ends keep, also one that has come before.
  std::optional<int> wait(seconds length) {
    const auto until = Clock::now() + length;
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
      const auto signal =
          signals_.wait(std::clamp<std::chrono::milliseconds>(left, std::chrono::milliseconds(0), seconds(1)));
      if (signal && asks_to_end(signal->number)) {
        say(concat({"signal ", std::to_string(signal->number), ": it is not started again"}));
        was_cancelled_ = true;
        return shells_offset + signal->number;
      }
      if (!signal && Clock::now() >= until) return std::nullopt;
    }
  }

  /// slurmctld may be away for a while.
  [[nodiscard]] Result<void> requeue_patiently() const {
    constexpr int attempts = 6;
    constexpr std::chrono::milliseconds pause{2000};
    auto done = requeue_job(job_.name);
    for (int attempt = 1; !done && attempt < attempts; ++attempt) {
      std::this_thread::sleep_for(pause);
      done = requeue_job(job_.name);
    }
    return done;
  }

  /// Slurm ends this job's processes soon after; meanwhile the job that waits gets its exclusions.
  std::optional<int> requeue(int status) {
    state_.runs = false;
    if (auto saved = save(); !saved) {
      say(concat({saved.error().message, ": the job is not requeued"}));
      return status;
    }
    if (auto done = requeue_patiently(); !done) {
      say(concat({"the job cannot go back to the queue: ", done.error().message}));
      return status;
    }
    is_requeued_ = true;
    constexpr int attempts = 20;
    constexpr std::chrono::milliseconds pause{200};
    Result<void> excluded = state_.excluded.empty() ? Result<void>() : Error{Errc::unavailable, ""};
    for (int i = 0; i < attempts && !excluded; ++i) {
      excluded = exclude_nodes(job_.name, state_.excluded);
      static_cast<void>(signals_.wait(pause));
    }
    if (!excluded)
      say(concat({"Slurm was not told to start the job without ", names_of(state_.excluded), " (",
                  excluded.error().message, "): if they come again, they are not used"}));
    return status;
  }

  int finish(int status) {
    const Cause last = has_started_ && !state_.history.empty() ? state_.history.back().cause : Cause::unknown;
    // slurmctld counts the restart of a job only once this process has ended, so a preempted one may come back.
    const bool preempted = last == Cause::preempted && job_.may_requeue;
    if (preempted) {
      state_.runs = false;
      static_cast<void>(save());
    }
    const bool by_others = was_cancelled_ || last == Cause::cancelled;  // who may have requeued it
    const auto restarts = text::to_number(by_others ? job_field(job_.name, "Restarts") : std::string(), UINT32_MAX);
    const bool comes_back = is_requeued_ || preempted || (job_.may_requeue && restarts.value_or(0) > job_.run.restarts);
    if (!comes_back) ::unlink(state_file_.c_str());
    return status;
  }

  void tell_start(const std::string& restart) const {
    say(concat({"start ", restart, " on ", names_of(nodes_.step),
                nodes_.spares.empty() ? "" : ", spare: ", names_of(nodes_.spares)}));
    if (options_.json)
      print_json(
          {{"event", "start"}, {"restart", state_.history.size()}, {"nodes", nodes_.step}, {"spares", nodes_.spares}});
  }

  void tell(const Decision& decision, const Start& start) const {
    if (!decision.sentence.empty()) say(decision.sentence);
    if (!options_.json) return;
    print_json({{"event", "decision"},
                {"action", to_string(decision.action)},
                {"cause", step::to_string(start.cause)},
                {"node", start.node},
                {"status", start.status},
                {"excluded", decision.excluded},
                {"wait", decision.wait.count()},
                {"sentence", decision.sentence}});
  }

  static void print_json(json event) {
    event["schema"] = 1;
    event["time"] = now_s();
    static_cast<void>(commands::print(event.dump(-1, ' ', true, json::error_handler_t::replace) + "\n"));
  }

  KeepOptions options_;
  Job job_;
  SrunLine line_;
  std::string folder_;
  std::string state_file_;
  Signals signals_;
  SlurmNumbers numbers_;
  Machines known_;
  JobState state_;
  Nodes nodes_;
  std::uint32_t wanted_ = 0;
  static constexpr std::int64_t at_once = 5;  ///< seconds in which a srun ends that starts no step
  std::optional<std::uint32_t> stop_before_;  ///< seconds of stop=, under --requeue-at-limit
  std::optional<std::int64_t> end_of_job_;    ///< as slurmctld last said, under --requeue-at-limit
  bool overlaps_ = false;
  bool checks_were_silent_ = false;  ///< Slurm did not start the last check, or it did not end
  bool has_started_ = false;         ///< in this run of the job
  bool was_cancelled_ = false;
  bool is_requeued_ = false;
};

}  // namespace

int keep_alive(KeepOptions options) {
  auto line = SrunLine::parse(options.words);
  if (!line) return commands::fail(line.error());
  auto job = read_job();
  if (!job) return commands::fail(job.error());
  const auto claim = claim_job(job->run.job);
  if (!claim) return commands::fail(claim.error());
  const auto folder = make_folder();
  if (!folder) return commands::fail({folder.error().code, concat({"keep: ", folder.error().message})});
  return Keeper(std::move(options), std::move(*job), std::move(*line), folder->path()).run();
}

}  // namespace amldist::keep
