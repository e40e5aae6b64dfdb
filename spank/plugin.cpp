// The plugin's symbols: what Slurm finds by name, and the guard that nothing passes.
//
// Contexts and privilege (spank(7)): init and init_post_opt run everywhere, as the user in srun, sbatch and salloc, as
// root in slurmstepd; local_user_init as the user in srun; task_init as the user in the task's own process; task_exit
// as root in slurmstepd. Return values follow from what Slurm does with them: a negative one from srun's callbacks and
// from task_init refuses the step, while one from slurmstepd's init or init_post_opt would drain the node, so those
// always return 0.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <span>
#include <string_view>

#include "spank/command_line.hpp"
#include "spank/contexts.hpp"
#include "spank/report.hpp"
#include "spank/slurm_headers.hpp"

namespace amldist::spank {
namespace {

constexpr int refused = -1;

/// The one Session of this process. SPANK hands callbacks no pointer of ours, so it has to live in a function.
std::unique_ptr<Session>& session() noexcept {
  static std::unique_ptr<Session> instance;
  return instance;
}

/// Runs a callback's body; whatever it throws ends here.
template <typename Body>
int guarded(int on_exception, Body body) noexcept {
  try {
    return session() ? body(*session()) : 0;
  } catch (const std::exception& problem) {
    tell_step(problem.what());
  } catch (...) {
    tell_step("unknown internal error");
  }
  return on_exception;
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
    try {
      plan_step(state, Handle(spank));
    } catch (const std::exception& problem) {
      state.failure = Error{Errc::internal, problem.what()};
    }
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

using amldist::spank::guarded;
using amldist::spank::Handle;
using amldist::spank::Session;

int slurm_spank_init(spank_t spank, int argc, char** argv) {
  try {
    return amldist::spank::start(spank, argc, argv);
  } catch (...) {
    return 0;  // without memory for its state the plugin does nothing; the option stays unknown and is refused
  }
}

int slurm_spank_init_post_opt(spank_t spank, int /*argc*/, char** /*argv*/) {
  const spank_context_t context = spank_context();
  if (context == S_CTX_REMOTE) return amldist::spank::plan_in_slurmstepd(spank);
  if (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR) return 0;
  return guarded(amldist::spank::refused, [context](Session& state) {
    const int status = amldist::spank::refuse_user(amldist::spank::check_option(state));
    if (status == 0 && context == S_CTX_LOCAL) amldist::spank::open_reports(state);
    return status;
  });
}

int slurm_spank_local_user_init(spank_t spank, int /*argc*/, char** /*argv*/) {
  return guarded(amldist::spank::refused, [spank](Session& state) {
    return amldist::spank::refuse_user(amldist::spank::prepare_launch(state, Handle(spank)));
  });
}

int slurm_spank_task_init(spank_t spank, int /*argc*/, char** /*argv*/) {
  return guarded(amldist::spank::refused, [spank](Session& state) {
    return amldist::spank::start_task(state, Handle(spank)) ? 0 : amldist::spank::refused;
  });
}

int slurm_spank_task_exit(spank_t spank, int /*argc*/, char** /*argv*/) {
  return guarded(0, [spank](Session& state) {
    amldist::spank::finish_task(state, Handle(spank));
    return 0;
  });
}

int slurm_spank_exit(spank_t /*spank*/, int /*argc*/, char** /*argv*/) {
  amldist::spank::session().reset();
  return 0;
}
}
#pragma GCC visibility pop
