// The start of a world: who this process is, where the others are, and what all communicators of the process share.
#include <unistd.h>

#include "base/text/text.hpp"
#include "collective/communicator/communicator.hpp"
#include "collective/communicator/record_place.hpp"
#include "launch/placement/process_identity.hpp"
#include "trace/record/record_folder.hpp"

namespace amldist::collective {
namespace {

using text::concat;

/// Whether Open MPI's mpirun started this process, perhaps inside a step of Slurm. Its daemons on other nodes are a
/// step of their own, so that ranks of one world see different numbers of steps.
bool is_by_mpirun(const EnvironmentReader& environment) {
  const std::string name_space = environment("PMIX_NAMESPACE").value_or("");
  return environment("OMPI_UNIVERSE_SIZE") && !name_space.empty() && !name_space.starts_with("slurm.");
}

/// A time-out that may be caused by mpirun keeping the step's secret on its own node.
Error with_hint(const Error& error, const EnvironmentReader& environment) {
  if (error.code != Errc::timeout || !is_by_mpirun(environment) || !environment("SLURM_JOB_ID")) return error;
  const std::string name(launch::variable::step_secret);
  return {error.code, concat({error.message, "; this process has ", environment(name) ? "" : "no ", name,
                              ", which mpirun passes to other nodes with -x ", name, " only"})};
}

/// Tells the processes of one step from those of another that uses the same port.
std::string job_name(const EnvironmentReader& environment) {
  const auto word = [&](std::string_view name) { return environment(name).value_or(""); };
  const std::string step = word(is_by_mpirun(environment) ? "PMIX_NAMESPACE" : "SLURM_STEP_ID");
  return concat({word("SLURM_JOB_ID"), ".", step, ".", word("TORCHELASTIC_RUN_ID"), ".", word("PBS_JOBID"),
                 word("LSB_JOBID"), word("FLUX_JOB_ID"), word("AZUREML_RUN_ID")});
}

/// The environment, with the caller's address of rank 0.
EnvironmentReader with_address(const EnvironmentReader& environment, const WorldConfig& config) {
  return [&environment, &config](std::string_view name) -> std::optional<std::string> {
    if (name == "MASTER_ADDR" && !config.address.empty()) return config.address;
    if (name == "MASTER_PORT" && config.port != 0) return std::to_string(config.port);
    return environment(name);
  };
}

Result<launch::ProcessIdentity> identity_of(const WorldConfig& config, const EnvironmentReader& environment) {
  if (!config.rank_and_size) return launch::read_process_identity(environment, ::getpid());
  launch::ProcessIdentity identity;
  identity.rank = config.rank_and_size->rank;
  identity.size = config.rank_and_size->size;
  identity.source = "the caller";
  return identity;
}

/// Whether the environment's description of nodes agrees with where the processes are.
Result<void> check_places(const launch::ProcessIdentity& told, const launch::Identity& found) {
  const auto differ = [](std::optional<std::uint32_t> a, std::uint32_t b) { return a && *a != b; };
  const auto error = [&](std::string_view what, std::uint32_t said, std::uint32_t is) {
    return Error{Errc::mismatch,
                 concat({told.source, " says ", what, " ", std::to_string(said), " for rank ",
                         std::to_string(found.rank), " but the host names of all ranks say ", std::to_string(is)})};
  };
  if (differ(told.local_rank, found.local_rank)) return error("local rank", *told.local_rank, found.local_rank);
  if (differ(told.local_size, found.local_size)) return error("local size", *told.local_size, found.local_size);
  if (differ(told.node_rank, found.node_rank)) return error("node rank", *told.node_rank, found.node_rank);
  if (differ(told.nodes, found.nodes)) return error("nodes", *told.nodes, found.nodes);
  return {};
}

void tell(std::string_view sentence) {
  const std::string line = concat({"aml-dist: ", sentence, "\n"});
  static_cast<void>(::write(STDERR_FILENO, line.data(), line.size()) == 0);
}

Result<std::unique_ptr<world::RootAddress>> root_of(const EnvironmentReader& environment, const Settings& settings,
                                                    const launch::ProcessIdentity& told, world::MpiSession* mpi,
                                                    WorldConfig& config) {
  if (config.store) return root_address_by_store(std::move(*config.store), config.name, settings.world.ports);
  if (!config.address.empty() && config.port != 0) {  // the caller's port is for this world alone
    return world::root_address_at({{config.address, config.port}, "the caller's"}, settings.world.ports);
  }
  Settings used = settings;
  if (config.has_own_place()) used.world.bootstrap = world::Bootstrap::tcp;
  return choose_root_address(with_address(environment, config), used.world, told, mpi);
}

/// Removed with its last owner.
std::shared_ptr<const world::SecretFile> kept(world::SecretFile file) {
  return {new world::SecretFile(std::move(file)), [](const world::SecretFile* one) {
            one->remove_unless_used();
            delete one;
          }};
}

/// Joins the ranks whose rank 0 is at `root`; if the world cannot be formed, rank 0 says why.
Result<world::World> join_at(world::RootAddress& root, const EnvironmentReader& environment, const Settings& settings,
                             const launch::ProcessIdentity& told, const WorldConfig& config,
                             Clock::time_point deadline) {
  std::string job = concat({job_name(environment), config.name.empty() ? "" : " ", config.name});
  if (settings.world.integrity != world::Integrity::off) job += concat({" with ", to_string(settings.world.integrity)});
  auto secret = find_world_secret(environment, settings.world.secret, config.secret, told, root, job, deadline);
  if (!secret) return secret.error();
  if (told.rank == 0 && secret->credentials.trust == world::Trust::open) {
    tell(concat({"this world is open: any process that reaches rank 0's port can join it (", secret->reason,
                 "): start the step with srun --aml-dist=KIND"}));
  }
  auto joined = join_world(told, root, *secret, job, settings.world.node_name, deadline);
  if (!joined) joined = with_hint(joined.error(), environment);
  if (!joined && told.rank == 0) {
    if (secret->file) secret->file->remove_unless_used();
    tell(joined.error().message);
  }
  if (joined && joined->late_joiners && secret->file) joined->late_joiners->secret = kept(std::move(*secret->file));
  return joined;
}

/// The world of this step.
Result<world::World> join(const EnvironmentReader& environment, const Settings& settings,
                          const launch::ProcessIdentity& told, world::MpiSession* mpi, WorldConfig& config,
                          Clock::time_point deadline) {
  if (told.size == 1) {
    world::World world = world::single_process_world(settings.world.node_name);
    world.provenance = told.source;
    return world;
  }
  auto root = root_of(environment, settings, told, mpi, config);
  if (!root) return root.error();
  for (;;) {
    auto joined = join_at(**root, environment, settings, told, config, deadline);
    if (joined || !(*root)->take_move()) return joined;
  }
}

/// Records into `place`; if that is not possible, `process.trace` says why.
bool open_recorder(Process& process, const RecordPlace& place) {
  process.trace = "no flight recorder";
  const auto folder = trace::make_trace_folder(process.settings.trace_folder, place.owner.job);
  if (!folder || !*folder) {
    if (!folder) process.trace += concat({": ", folder.error().message});
    return false;
  }
  auto recorder = trace::ProcessRecorder::open(**folder, place.owner);
  if (!recorder) {
    process.trace += concat({": ", recorder.error().message});
    return false;
  }
  process.recorder = std::move(*recorder);
  process.step_ranks = place.step_ranks;
  process.trace = concat({"flight recorder ", process.recorder->path()});
  process.channel->set_heartbeat([&process] { process.recorder->calls().tick(); });
  return true;
}

}  // namespace

Result<std::unique_ptr<Communicator>> Communicator::init(const EnvironmentReader& environment, milliseconds timeout,
                                                         WorldConfig config) {
  auto settings = Settings::read(environment);
  if (!settings) return settings.error();
  const milliseconds limit = timeout.count() > 0 ? timeout : settings->world.timeout;
  const auto deadline = Clock::now() + limit;
  const auto told = identity_of(config, environment);
  if (!told) return told.error();
  const bool is_of_step = !config.has_own_place();
  // MPI knows the ranks of its own world, not those of the caller's.
  auto mpi = told->size > 1 && is_of_step && !config.rank_and_size ? world::MpiSession::find(settings->world, *told)
                                                                   : std::unique_ptr<world::MpiSession>();
  if (!mpi) return mpi.error();
  auto joined = join(environment, *settings, *told, mpi->get(), config, deadline);
  if (!joined) return joined.error();
  world::World world = std::move(*joined);
  world.integrity = settings->world.integrity;
  world.tcp_congestion = settings->world.tcp_congestion;
  std::vector<std::uint32_t> members(world.size);
  for (std::uint32_t r = 0; r < world.size; ++r) members[r] = r;
  const std::uint32_t rank = world.rank;
  const std::uint64_t id = world.table.nonce();
  auto process = std::make_shared<Process>();
  process->settings = std::move(*settings);
  process->mpi = std::move(*mpi);
  process->channel = std::make_unique<world::ControlChannel>(std::move(world), process->settings.world.is_under_srun);
  std::unique_ptr<Communicator> out(
      new Communicator(process, std::make_shared<world::CommWatch>(id, std::move(members), rank), limit));
  calls::Call call;
  call.operation = calls::Operation::init;
  if (auto status = out->build(call); !status) return status.error();
  if (auto status = check_places(*told, out->identity_); !status) return status.error();
  out->is_world_ = true;
  out->keeps_recorder_ = true;
  if (auto status = out->start_recorder(environment, is_of_step, call); !status) return status.error();
  out->recorder_.add(out->context_.watch(), config.label.empty() ? "world" : std::string_view(config.label));
  out->provenance_ += concat({"; ", process->trace});
  return out;
}

/// A step runs without a flight recorder as well. A world that the caller has named is recorded in the step if its
/// processes have ranks there, so that all worlds of a step are seen together.
Result<void> Communicator::start_recorder(const EnvironmentReader& environment, bool is_of_step,
                                          const calls::Call& call) {
  Process& process = *process_;
  process.trace = "no flight recorder";
  if (context_.size() == 1) return {};
  world::CommWatch& watch = context_.watch();
  trace::RecorderOwner owner = {world_name(watch.id()), identity_.rank, identity_.size, identity_.local_rank,
                                process.channel->host_of(identity_.rank)};
  std::optional<RecordPlace> place;
  if (is_of_step) {
    if (const auto step = step_name(environment)) owner.job = *step;
  } else {
    CallWatchdog watchdog(context_);
    watch.enter(call);
    const auto ranks_in_step = gather_.gather_all(rank_in_step(environment), watchdog);
    watch.leave();
    if (!ranks_in_step) return ranks_in_step.error();
    place = shared_place(ranks_in_step->by_rank(), owner, environment);
  }
  if (!place || !open_recorder(process, *place)) open_recorder(process, {owner});
  return {};
}

}  // namespace amldist::collective
