// The symbols that Slurm finds by name, and the guard that stops every exception.
//
// Contexts and privilege (spank(7)): init and init_post_opt run everywhere, as the user in srun, sbatch and salloc, as
// root in slurmstepd; local_user_init as the user in srun; task_init as the user in the task's own process; task_exit
// as root in slurmstepd. Return values follow from what Slurm does with them: a negative one from srun's callbacks and
// from task_init refuses the step, while one from slurmstepd's init or init_post_opt would drain the node, so those
// always return 0.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string_view>
#include <variant>

#include "base/os/environment.hpp"
#include "spank/slurm/duplicate_load.hpp"
#include "spank/slurm/output.hpp"
#include "spank/slurm/slurm_headers.hpp"
#include "spank/srun/command_line.hpp"
#include "spank/srun/launcher.hpp"
#include "spank/srun/submitter_session.hpp"
#include "spank/stepd/node_start.hpp"
#include "spank/stepd/stepd_session.hpp"
#include "spank/task/task_end.hpp"
#include "spank/task/task_start.hpp"
#include "step/messages/launch_record.hpp"

namespace amldist::spank {
namespace {

constexpr int refused = -1;

/// The state that this process keeps between init and exit. Empty in slurmd, prolog and epilog.
using Session = std::variant<std::monostate, SubmitterSession, SrunSession, StepdSession>;

/// The Session of this process. SPANK passes no pointer of ours to callbacks, so it has to live in a function.
Session& session() noexcept {
  static Session instance;
  return instance;
}

/// The session of sbatch, salloc or srun; nullptr in any other process.
SubmitterSession* submitter() noexcept {
  if (auto* const srun = std::get_if<SrunSession>(&session())) return srun;
  return std::get_if<SubmitterSession>(&session());
}

/// Whether an earlier callback of this process threw, presumably because memory was exhausted. From then on the
/// session's content cannot be trusted.
bool& broken() noexcept {
  static bool value = false;
  return value;
}

/// How often plugstack.conf names this very file. Slurm then calls each callback that often, one after the other.
int& lines_with_this_file() noexcept {
  static int value = 1;
  return value;
}

enum class Callback : std::uint8_t { init_post_opt, local_user_init, task_init, task_post_fork, task_exit };

/// Whether this call of a callback repeats the same event.
bool is_repeated(Callback callback) noexcept {
  static std::array<std::atomic<int>, 5> calls{};
  return calls[static_cast<std::size_t>(callback)]++ % lines_with_this_file() != 0;
}

constexpr std::string_view out_of_memory =
    "out of memory in this process: the step cannot get its environment; try again";

/// Runs a callback's body and stops every exception.
template <typename Body>
int guarded(int on_exception, Body body) noexcept {
  try {
    return body();
  } catch (...) {  // nothing may leave through C into slurmstepd
    broken() = true;
  }
  return on_exception;
}

/// Runs a callback's body on the session of the given type; returns 0 in a process that has another.
template <typename Type, typename Body>
int guarded_in(int on_exception, Body body) noexcept {
  auto* const state = std::get_if<Type>(&session());
  if (state == nullptr) return 0;
  return guarded(on_exception, [&] { return body(*state); });
}

/// Begins a callback of srun, sbatch or salloc that may refuse.
int refuse_if_broken() noexcept {
  if (!broken()) return 0;
  tell_user(out_of_memory);
  return refused;
}

/// Ends every callback of srun that may refuse. A refused step leaves no port, thread or variable of ours.
int settle_in_srun(int status) noexcept {
  const int settled = refuse_if_broken() != 0 ? refused : status;
  auto* const srun = std::get_if<SrunSession>(&session());
  if (settled != 0 && srun != nullptr) withdraw_launch(*srun);
  return settled;
}

/// Whether srun sent us a launch record. Allocates nothing.
bool step_is_ours(spank_t spank) noexcept {
  std::array<char, 8> beginning{};
  const spank_err_t status =
      spank_getenv(spank, step::launch_record_variable, beginning.data(), static_cast<int>(beginning.size()));
  return status == ESPANK_SUCCESS || status == ESPANK_NOSPACE;
}

int refuse_user(const Result<void>& result) {
  if (result) return 0;
  tell_user(result.error().message);
  return refused;
}

/// Prints the help text and ends the program, which has done nothing yet.
[[noreturn]] void answer_help() {
  std::fputs(launch::option_help().c_str(), stdout);
  std::fflush(stdout);
  std::_Exit(0);
}

extern "C" int take_option(int /*value*/, const char* text, int remote) {
  return guarded(0, [=] {
    // srun looks for a command before it comes to init_post_opt, so help must be answered here.
    if (remote == 0 && text != nullptr && launch::is_help(text)) answer_help();
    const std::string_view option = text != nullptr ? text : "";
    if (auto* const state = submitter()) state->take_option(option);
    if (auto* const state = std::get_if<StepdSession>(&session())) state->request.option = launch::parse_spec(option);
    return 0;
  });
}

void register_option(spank_t spank) {
  // Slurm copies the structure but wants char*, as C writes string literals.
  static char name[] = "aml-dist";
  static char arginfo[] = "KIND[,KEY=VALUE]";
  static char usage[] =
      "distributed environment as on Azure ML: pytorch, tensorflow, mpi, jax, ray, none; help for all keys";
  spank_option option = {name, arginfo, usage, 1, 0, take_option};
  static_cast<void>(spank_option_register(spank, &option));
}

/// The arguments after the plugin's name in plugstack.conf.
struct Arguments {
  int count;
  char** words;

  [[nodiscard]] launch::SitePolicy policy(std::vector<std::string>& complaints) const {
    const std::vector<std::string_view> arguments(words, words + count);
    return launch::load_policy(arguments, complaints);
  }
};

void start_submitter(SubmitterSession& state, const Arguments& arguments) {
  forget_outer_tasks_per_node();
  state.request.policy = arguments.policy(state.complaints);
}

void start_slurmstepd(StepdSession& state, const Arguments& arguments) {
  std::vector<std::string> complaints;  // slurmd has logged them, and srun prints them
  state.request.policy = arguments.policy(complaints);
}

void start_slurmd(const Arguments& arguments) {
  std::vector<std::string> complaints;
  const launch::SitePolicy policy = arguments.policy(complaints);
  for (const std::string& complaint : complaints) log_for_administrator(complaint);
  if (!policy.refusal.empty() && !policy.disabled) log_for_administrator(policy.refusal);
}

/// Tells the administrator, and once for a step the user, that there is another copy.
void warn_duplicate_load(const DuplicateLoad& duplicate) {
  if (spank_context() == S_CTX_SLURMD) log_for_administrator(to_sentence(duplicate));
  if (spank_context() == S_CTX_LOCAL) tell_user(to_sentence(duplicate));
}

/// Whether another line of plugstack.conf is active in this process. An inactive copy has no session and does nothing.
bool another_is_in_charge() {
  const DuplicateLoad duplicate = find_duplicate_load();
  if (!duplicate.first.empty()) {
    warn_duplicate_load(duplicate);
    return true;
  }
  if (std::holds_alternative<std::monostate>(session())) return false;
  ++lines_with_this_file();
  warn_duplicate_load({duplicate.own, duplicate.own});
  return true;
}

/// The session comes first: later callbacks need it even if memory runs out here.
void start(spank_t spank, const Arguments& arguments) {
  if (another_is_in_charge()) return;
  switch (spank_context()) {
    case S_CTX_SLURMD:
      return start_slurmd(arguments);
    case S_CTX_LOCAL:
      start_submitter(session().emplace<SrunSession>(), arguments);
      break;
    case S_CTX_ALLOCATOR:
      start_submitter(session().emplace<SubmitterSession>(), arguments);
      if (asks_only_for_help()) answer_help();
      break;
    case S_CTX_REMOTE:
      start_slurmstepd(session().emplace<StepdSession>(), arguments);
      break;
    default:
      return;
  }
  register_option(spank);
}

/// Always 0: an error here would drain the node. It is stored, and task_init reports it.
int plan_in_slurmstepd(spank_t spank) noexcept {
  return guarded_in<StepdSession>(0, [spank](StepdSession& state) {
    if (broken()) return 0;  // task_init says so
    const Handle handle(spank);
    for (const char* const name : {option_variable, sent_option_variable}) {
      state.request.take_variable(name, handle.variable(name));
    }
    state.node = start_node(state.request, handle);
    if (state.node.plan() != nullptr) state.kernel_log = step::KernelLog::open_at_end();
    return 0;
  });
}

int check_in_submitter() noexcept {
  SubmitterSession* const state = submitter();
  return state == nullptr ? 0 : guarded(refused, [state] {
    state->take_variables(std::holds_alternative<SrunSession>(session()));
    return refuse_user(check_option(*state));
  });
}

int check_in_srun() noexcept {
  const int checked = check_in_submitter();
  if (checked != 0) return checked;
  return guarded_in<SrunSession>(refused, [](SrunSession& state) {
    open_server(state);
    if (const int expected = refuse_user(expect_no_srun(state)); expected != 0) return expected;
    return refuse_user(make_secret(state));
  });
}

}  // namespace
}  // namespace amldist::spank

// const has internal linkage in C++ unless declared first; SPANK_PLUGIN() would leave no symbols.
#pragma GCC visibility push(default)
extern "C" {
extern const char plugin_name[];
extern const char plugin_type[];
extern const unsigned int plugin_version;
extern const unsigned int spank_plugin_version;
const char plugin_name[] = "aml_dist";
const char plugin_type[] = "spank";
const unsigned int plugin_version = SLURM_VERSION_NUMBER;
const unsigned int spank_plugin_version = 1;

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 5, 0)
// If our init ever failed, the job should fail and no node be drained. spank.h declares a variable; Slurm only reads
// it.
extern const int init_failure_mode __asm__("slurm_spank_init_failure_mode");
const int init_failure_mode = ESPANK_JOB_FAILURE;
#endif

using amldist::spank::Callback;
using amldist::spank::Handle;
using amldist::spank::SrunSession;
using amldist::spank::StepdSession;

int slurm_spank_init(spank_t spank, int argc, char** argv) {
  return amldist::spank::guarded(0, [=] {
    amldist::spank::start(spank, {argc, argv});
    return 0;
  });
}

int slurm_spank_init_post_opt(spank_t spank, int /*argc*/, char** /*argv*/) {
  if (amldist::spank::is_repeated(Callback::init_post_opt)) return 0;
  switch (spank_context()) {
    case S_CTX_REMOTE:
      return amldist::spank::plan_in_slurmstepd(spank);
    case S_CTX_LOCAL:
      return amldist::spank::settle_in_srun(amldist::spank::check_in_srun());
    case S_CTX_ALLOCATOR: {
      const int status = amldist::spank::check_in_submitter();
      return amldist::spank::refuse_if_broken() != 0 ? amldist::spank::refused : status;
    }
    default:
      return 0;
  }
}

int slurm_spank_local_user_init(spank_t spank, int /*argc*/, char** /*argv*/) {
  if (amldist::spank::is_repeated(Callback::local_user_init)) return 0;
  const int status = amldist::spank::guarded_in<SrunSession>(amldist::spank::refused, [spank](SrunSession& state) {
    const auto prepared = amldist::spank::prepare_launch(state, Handle(spank));
    if (!prepared) amldist::spank::note_refusal(state, Handle(spank), prepared.error().message);
    return amldist::spank::refuse_user(prepared);
  });
  const int settled = amldist::spank::settle_in_srun(status);
  const auto* const state = std::get_if<SrunSession>(&amldist::spank::session());
  return settled != 0 && state != nullptr && amldist::spank::leave_refusal_to_nodes(*state) ? 0 : settled;
}

int slurm_spank_task_init(spank_t spank, int /*argc*/, char** /*argv*/) {
  if (amldist::spank::is_repeated(Callback::task_init)) return 0;
  const int status = amldist::spank::guarded_in<StepdSession>(amldist::spank::refused, [spank](StepdSession& state) {
    return amldist::spank::start_task(state.node, Handle(spank)) ? 0 : amldist::spank::refused;
  });
  if (!amldist::spank::broken() || !amldist::spank::step_is_ours(spank)) return status;
  // The step must not wait for this task, nor srun take its end for the program's.
  const auto* const state = std::get_if<StepdSession>(&amldist::spank::session());
  if (state != nullptr) state->node.task_refused.store(true);
  amldist::spank::tell_step(amldist::spank::out_of_memory);
  return amldist::spank::refused;
}

int slurm_spank_task_post_fork(spank_t spank, int /*argc*/, char** /*argv*/) {
  if (amldist::spank::is_repeated(Callback::task_post_fork)) return 0;
  return amldist::spank::guarded_in<StepdSession>(0, [spank](StepdSession& state) {
    if (state.node.stand_in) state.node.stand_in->serve(state.node.served);
    if (!state.stop_watch) state.stop_watch = amldist::spank::watch_for_stop(state.node, Handle(spank));
    amldist::spank::watch_for_hangs(state.node, Handle(spank), state.hang_watchers);
    return 0;
  });
}

int slurm_spank_task_exit(spank_t spank, int /*argc*/, char** /*argv*/) {
  if (amldist::spank::is_repeated(Callback::task_exit)) return 0;
  return amldist::spank::guarded_in<StepdSession>(0, [spank](StepdSession& state) {
    amldist::spank::finish_task(state, Handle(spank));
    return 0;
  });
}

int slurm_spank_exit(spank_t /*spank*/, int /*argc*/, char** /*argv*/) {
  amldist::spank::session().emplace<std::monostate>();
  amldist::spank::broken() = false;
  amldist::spank::lines_with_this_file() = 1;
  return 0;
}
}
#pragma GCC visibility pop
