// The plugin's symbols: what Slurm finds by name, and the guard that nothing passes.
//
// Contexts and privilege (spank(7)): init and init_post_opt run everywhere, as the user in srun, sbatch and salloc, as
// root in slurmstepd; local_user_init as the user in srun; task_init as the user in the task's own process; task_exit
// as root in slurmstepd. Return values follow from what Slurm does with them: a negative one from srun's callbacks and
// from task_init refuses the step, while one from slurmstepd's init or init_post_opt would drain the node, so those
// always return 0.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string_view>

#include "spank/command_line.hpp"
#include "spank/contexts.hpp"
#include "spank/report.hpp"
#include "spank/slurm_headers.hpp"
#include "step_messages/launch_record.hpp"

namespace amldist::spank {
namespace {

constexpr int refused = -1;

/// The one Session of this process. SPANK hands callbacks no pointer of ours, so it has to live in a function.
std::unique_ptr<Session>& session() noexcept {
  static std::unique_ptr<Session> instance;
  return instance;
}

/// Whether something was thrown in an earlier callback of this process: out of memory, for all we know. From then on
/// nothing that the session holds can be trusted to be whole.
bool& broken() noexcept {
  static bool value = false;
  return value;
}

constexpr std::string_view breakdown = "out of memory in this process: the step cannot get its environment; try again";

/// Runs a callback's body; whatever it throws ends here.
template <typename Body>
int guarded(int on_exception, Body body) noexcept {
  try {
    return session() ? body(*session()) : 0;
  } catch (...) {
    broken() = true;
  }
  return on_exception;
}

/// What a callback of srun, sbatch or salloc that may refuse does first.
int refuse_if_broken() noexcept {
  if (!broken()) return 0;
  tell_user(breakdown);
  return refused;
}

/// The end of every callback of srun that may refuse. A refused step leaves no port, thread or variable of ours.
int settle_in_srun(int status) noexcept {
  const int settled = refuse_if_broken() != 0 ? refused : status;
  if (settled != 0 && session()) withdraw_launch(*session());
  return settled;
}

/// Whether srun sent us a launch record, told without memory.
bool step_is_ours(spank_t spank) noexcept {
  std::array<char, 8> beginning{};
  const spank_err_t status =
      spank_getenv(spank, launch_record_variable, beginning.data(), static_cast<int>(beginning.size()));
  return status == ESPANK_SUCCESS || status == ESPANK_NOSPACE;
}

int refuse_user(const Result<void>& result) {
  if (result) return 0;
  tell_user(result.error().message);
  return refused;
}

/// Prints the help text and ends the program, which has done nothing yet.
[[noreturn]] void answer_help() {
  std::fputs(option_help().c_str(), stdout);
  std::fflush(stdout);
  std::_Exit(0);
}

extern "C" int take_option(int /*value*/, const char* text, int remote) {
  return guarded(0, [=](Session& state) {
    // srun looks for a command before it comes to init_post_opt, so help must be answered here.
    if (remote == 0 && text != nullptr && is_help(text)) answer_help();
    keep_option(state, text);
    return 0;
  });
}

void register_option(spank_t spank) {
  // Slurm copies the structure but wants char*, as C writes string literals.
  static char name[] = "aml-dist";
  static char arginfo[] = "KIND[,KEY=VALUE]";
  static char usage[] =
      "distributed environment as on Azure ML: pytorch, tensorflow, mpi, jax, none; help for all keys";
  spank_option option = {name, arginfo, usage, 1, 0, take_option};
  static_cast<void>(spank_option_register(spank, &option));
}

void load_site_policy(Session& state, int argc, char** argv) {
  const std::vector<std::string_view> arguments(argv, argv + argc);
  state.policy = load_policy(arguments, state.complaints);
}

int start(spank_t spank, int argc, char** argv) {
  session() = std::make_unique<Session>();
  return guarded(0, [=](Session& state) {
    load_site_policy(state, argc, argv);
    const spank_context_t context = spank_context();
    if (context == S_CTX_SLURMD) {
      for (const std::string& complaint : state.complaints) log_for_administrator(complaint);
    } else if (context == S_CTX_LOCAL || context == S_CTX_ALLOCATOR || context == S_CTX_REMOTE) {
      if (context == S_CTX_ALLOCATOR && asks_only_for_help()) answer_help();
      register_option(spank);
    }
    return 0;
  });
}

/// Always 0: an error here would drain the node. It is kept, and task_init reports it.
int plan_in_slurmstepd(spank_t spank) noexcept {
  return guarded(0, [spank](Session& state) {
    plan_step(state, Handle(spank));
    return 0;
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
// Should our init ever fail, then the job, and no node is drained. spank.h declares a variable; Slurm only reads it.
extern const int init_failure_mode __asm__("slurm_spank_init_failure_mode");
const int init_failure_mode = ESPANK_JOB_FAILURE;
#endif

using amldist::spank::guarded;
using amldist::spank::Handle;
using amldist::spank::Session;

int slurm_spank_init(spank_t spank, int argc, char** argv) {
  try {
    return amldist::spank::start(spank, argc, argv);
  } catch (...) {
    amldist::spank::broken() = true;
    return 0;
  }
}

int slurm_spank_init_post_opt(spank_t spank, int /*argc*/, char** /*argv*/) {
  const spank_context_t context = spank_context();
  if (context == S_CTX_REMOTE) return amldist::spank::plan_in_slurmstepd(spank);
  if (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR) return 0;
  const int status = guarded(amldist::spank::refused, [context](Session& state) {
    const int checked = amldist::spank::refuse_user(amldist::spank::check_option(state));
    if (checked == 0 && context == S_CTX_LOCAL) amldist::spank::open_reports(state);
    return checked;
  });
  if (context == S_CTX_LOCAL) return amldist::spank::settle_in_srun(status);
  return amldist::spank::refuse_if_broken() != 0 ? amldist::spank::refused : status;
}

int slurm_spank_local_user_init(spank_t spank, int /*argc*/, char** /*argv*/) {
  const int status = guarded(amldist::spank::refused, [spank](Session& state) {
    return amldist::spank::refuse_user(amldist::spank::prepare_launch(state, Handle(spank)));
  });
  const int settled = amldist::spank::settle_in_srun(status);
  const auto& state = amldist::spank::session();
  return settled != 0 && state && amldist::spank::leave_refusal_to_nodes(*state) ? 0 : settled;
}

int slurm_spank_task_init(spank_t spank, int /*argc*/, char** /*argv*/) {
  const int status = guarded(amldist::spank::refused, [spank](Session& state) {
    return amldist::spank::start_task(state, Handle(spank)) ? 0 : amldist::spank::refused;
  });
  if (!amldist::spank::broken() || !amldist::spank::step_is_ours(spank)) return status;
  // The step must not wait for this task, nor srun take its end for the program's.
  if (const auto& state = amldist::spank::session()) static_cast<void>(state->task_refused.raise());
  amldist::spank::tell_step(amldist::spank::breakdown);
  return amldist::spank::refused;
}

int slurm_spank_task_exit(spank_t spank, int /*argc*/, char** /*argv*/) {
  return guarded(0, [spank](Session& state) {
    amldist::spank::finish_task(state, Handle(spank));
    return 0;
  });
}

int slurm_spank_exit(spank_t /*spank*/, int /*argc*/, char** /*argv*/) {
  amldist::spank::session().reset();
  amldist::spank::broken() = false;
  return 0;
}
}
#pragma GCC visibility pop
