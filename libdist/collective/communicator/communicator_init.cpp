// The start of a world: who this process is, where the others are, and what all communicators of the process share.
#include <unistd.h>

#include "collective/communicator/communicator.hpp"
#include "core/hex.hpp"
#include "core/text.hpp"
#include "placement/process_identity.hpp"
#include "recorder/record_folder.hpp"

namespace amldist::collective {
namespace {

using text::concat;

/// What tells the processes of one step from another's that uses the same port.
std::string job_name(const EnvironmentReader& environment) {
  const auto word = [&](std::string_view name) { return environment(name).value_or(""); };
  return concat({word("SLURM_JOB_ID"), ".", word("SLURM_STEP_ID"), ".", word("TORCHELASTIC_RUN_ID")});
}

/// Whether what the environment says of nodes agrees with where the processes are.
Result<void> check_places(const ProcessIdentity& told, const Identity& found) {
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

/// The world of this step; where it does not come about, rank 0 says so.
Result<World> join(const EnvironmentReader& environment, const Settings& settings, const ProcessIdentity& told,
                   MpiSession* mpi, Clock::time_point deadline, FileDescriptor& meeting_place) {
  if (told.size == 1) {
    World world = single_process_world(settings.node_name);
    world.provenance = told.source;
    return world;
  }
  auto root = choose_root_address(environment, settings, told, mpi);
  if (!root) return root.error();
  auto joined = join_world(told, **root, job_name(environment), settings.node_name, deadline);
  if (!joined && told.rank == 0) {
    const std::string line = concat({"aml-dist: ", joined.error().message, "\n"});
    static_cast<void>(!::write(STDERR_FILENO, line.data(), line.size()));
  }
  if (joined && told.rank == 0) meeting_place = (*root)->take_place();
  return joined;
}

/// "42.0" under Slurm, else a name that the processes of this world share.
std::string trace_step(const EnvironmentReader& environment, std::uint64_t nonce) {
  const auto job = environment("SLURM_JOB_ID");
  const auto step = environment("SLURM_STEP_ID");
  if (job && step) return trace_name(concat({*job, ".", *step}));
  return trace_name(concat({"world-", to_hex(nonce, sizeof nonce)}));
}

/// The flight recorder, where one can be had: a step runs without it as well.
void start_recorder(Process& process, const EnvironmentReader& environment, const Identity& id, std::uint64_t nonce) {
  process.trace = "no flight recorder";
  if (id.size == 1) return;
  const std::string step = trace_step(environment, nonce);
  const auto folder = make_trace_folder(process.settings.trace_folder, step);
  if (!folder || !*folder) {
    if (!folder) process.trace += concat({": ", folder.error().message});
    return;
  }
  auto recorder =
      FlightRecorder::create(**folder, {step, id.rank, id.size, id.local_rank, process.channel->host_of(id.rank)});
  if (!recorder) {
    process.trace += concat({": ", recorder.error().message});
    return;
  }
  process.recorder = std::move(*recorder);
  process.trace = concat({"flight recorder ", process.recorder.path()});
  process.channel->set_heartbeat([&process] { process.recorder.tick(); });
}

}  // namespace

Result<std::unique_ptr<Communicator>> Communicator::init(const EnvironmentReader& environment, milliseconds timeout) {
  auto settings = Settings::read(environment);
  if (!settings) return settings.error();
  const milliseconds limit = timeout.count() > 0 ? timeout : settings->timeout;
  const auto deadline = Clock::now() + limit;
  const auto told = read_process_identity(environment, ::getpid());
  if (!told) return told.error();
  auto mpi = told->size > 1 ? MpiSession::find(*settings, *told) : std::unique_ptr<MpiSession>();
  if (!mpi) return mpi.error();
  FileDescriptor meeting_place;
  auto joined = join(environment, *settings, *told, mpi->get(), deadline, meeting_place);
  if (!joined) return joined.error();
  World world = std::move(*joined);
  std::vector<std::uint32_t> members(world.size);
  for (std::uint32_t r = 0; r < world.size; ++r) members[r] = r;
  const std::uint32_t rank = world.rank;
  const std::uint64_t id = world.table.nonce();
  auto process = std::make_shared<Process>();
  process->settings = std::move(*settings);
  process->mpi = std::move(*mpi);
  process->meeting_place = std::move(meeting_place);
  process->channel = std::make_unique<ControlChannel>(std::move(world), process->settings.is_under_srun);
  std::unique_ptr<Communicator> out(
      new Communicator(process, std::make_shared<CommWatch>(id, std::move(members), rank), limit));
  Call call;
  call.operation = Operation::init;
  if (auto built = out->build(call); !built) return built.error();
  if (auto same = check_places(*told, out->identity_); !same) return same.error();
  out->is_world_ = true;
  out->keeps_recorder_ = true;
  start_recorder(*process, environment, out->identity_, id);
  out->recorder_.set_communicator(process->recorder.add_communicator(id, rank, out->identity_.size, "world"));
  out->provenance_ += concat({"; ", process->trace});
  return out;
}

}  // namespace amldist::collective
