#include "aml_dist/bench/bench_local.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/os/environment.hpp"
#include "base/os/processor_place.hpp"
#include "base/text/text.hpp"

namespace amldist::tools {
namespace {

namespace fs = std::filesystem;
using text::concat;

constexpr auto start_limit = std::chrono::seconds(60);
constexpr auto answer_limit = std::chrono::seconds(120);
constexpr std::string_view own_name = "amldist";
constexpr std::string_view gloo_name = "gloo";
constexpr std::string_view own_torch_name = "torch";  ///< libdist as PyTorch uses it
constexpr std::string_view torch_gpu_name = "torch-cuda";
constexpr std::string_view nccl_name = "nccl";  ///< PyTorch's own

Error system_error(std::string_view what) {
  return {Errc::unavailable, concat({"bench: ", what, ": ", std::strerror(errno)})};
}

/// This program's folder: /usr/bin.
fs::path own_folder() {
  std::error_code problem;
  return fs::read_symlink("/proc/self/exe", problem).parent_path();
}

/// A port that is free now.
int free_port() {
  const FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (!socket || ::bind(socket.get(), generic, length) != 0 || ::getsockname(socket.get(), generic, &length) != 0)
    return 0;
  return ntohs(address.sin_port);
}

/// This environment without the variables that would tell a rank that it belongs to an outer step.
std::vector<std::string> clean_environment() {
  constexpr std::array<std::string_view, 9> foreign = {
      "SLURM_", "PMI", "OMPI_", "PRTE_", "RANK=", "LOCAL_", "WORLD_SIZE=", "AMLDIST_STAMP=", "HYDRA"};
  std::vector<std::string> kept;
  for (std::string& variable : all_own_variables()) {
    if (std::ranges::none_of(foreign, [&](std::string_view head) { return variable.starts_with(head); }))
      kept.push_back(std::move(variable));
  }
  return kept;
}

/// The variables that make a process a rank of a step of its own, on this node.
std::vector<std::string> rank_environment(int rank, int ranks, int port) {
  auto environment = clean_environment();
  const std::array<std::string, 5> own = {concat({"RANK=", std::to_string(rank)}),
                                          concat({"WORLD_SIZE=", std::to_string(ranks)}), "MASTER_ADDR=127.0.0.1",
                                          concat({"MASTER_PORT=", std::to_string(port)}), "AMLDIST_BOOTSTRAP=tcp"};
  environment.insert(environment.begin(), own.begin(), own.end());  // the first of two counts
  return environment;
}

void set_variable(std::vector<std::string>& environment, const std::string& name, const std::string& value) {
  std::erase_if(environment, [&](const std::string& each) { return each.starts_with(name + "="); });
  environment.push_back(concat({name, "=", value}));
}

/// Puts a folder in front of the variable's value.
void put_before(std::vector<std::string>& environment, const std::string& name, const std::string& folders) {
  const auto before = own_variable(name);
  set_variable(environment, name, before ? concat({folders, ":", *before}) : folders);
}

/// Variables that let an MPI run some ranks on this machine, for any user and any number of cores. An MPI in a folder
/// of its own (`prefix`; empty: the system's) finds its parts there, as after its own set-up script.
std::vector<std::string> mpi_environment(const fs::path& prefix) {
  auto environment = clean_environment();
  if (!prefix.empty()) {
    put_before(environment, "PATH", prefix / "bin");
    const std::string libraries = prefix / "lib";
    put_before(environment, "LD_LIBRARY_PATH", concat({libraries, ":", libraries, "/libfabric"}));
    set_variable(environment, "I_MPI_ROOT", prefix);
  }
  for (const char* const more :
       {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "OMPI_MCA_rmaps_base_oversubscribe=1",
        "OMPI_MCA_hwloc_base_binding_policy=none", "PRTE_ALLOW_RUN_AS_ROOT=1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1",
        "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe", "PRTE_MCA_hwloc_default_binding_policy=none",
        "I_MPI_FABRICS=shm", "I_MPI_PIN=0"}) {
    environment.emplace_back(more);
  }
  return environment;
}

enum class Output : std::uint8_t { shown, hidden };

Result<ChildProcess> spawn(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                           Output output = Output::shown) {
  ChildProgram program{.words = command, .environment = environment};
  FileDescriptor nowhere;
  if (output == Output::hidden) {
    nowhere = FileDescriptor(::open("/dev/null", O_WRONLY | O_CLOEXEC));
    program.standard_output = program.standard_error = nowhere.get();
  }
  auto child = ChildProcess::start(program);
  if (!child) return Error{child.error().code, concat({"bench: ", child.error().message})};
  return child;
}

Result<void> run_to_end(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                        Output output = Output::shown) {
  auto process = spawn(command, environment, output);
  if (!process) return process.error();
  if (process->wait() == 0) return {};
  return Error{Errc::unavailable, concat({"bench: ", text::quote(command[0]), " failed"})};
}

/// The program of a peer, and the command that starts it.
struct PeerProgram {
  std::string name;
  std::string program;
  std::string launcher;
  fs::path prefix;  ///< of the MPI; empty: the system's
};

Result<PeerProgram> built_in_peer(const std::string& name) {
  const std::string program = own_folder().parent_path() / "libexec/aml-dist" / ("bench-" + name);
  if (::access(program.c_str(), X_OK) != 0) {
    return Error{Errc::not_found, concat({"--peer ", text::quote(name), ": ", text::quote(program),
                                          " is not here; name its compiler: --peer ", name, "=/path/to/mpicc"})};
  }
  return PeerProgram{name, program, "mpirun", {}};
}

Result<PeerProgram> compiled_peer(const std::string& name, const fs::path& compiler, const std::string& folder) {
  std::error_code problem;
  if (!fs::is_regular_file(compiler, problem)) {
    return Error{Errc::not_found, concat({"--peer ", name, ": ", text::quote(compiler.string()), " does not exist"})};
  }
  const fs::path sources = own_folder().parent_path() / "share/aml-dist/bench";
  const std::string program = folder + "/peer";
  const fs::path bin = compiler.parent_path();
  const fs::path prefix = bin == "/usr/bin" || bin.filename() != "bin" ? fs::path() : bin.parent_path();
  const auto compiled = run_to_end({compiler, "-std=c11", "-D_GNU_SOURCE", "-O2", "-o", program, sources / "core.c",
                                    sources / "serve.c", sources / "peer_mpi.c"},
                                   mpi_environment(prefix));
  if (!compiled) {
    return Error{Errc::unavailable,
                 concat({"bench: ", text::quote(compiler.string()), " cannot compile the peer's program"})};
  }
  const bool has_mpirun = ::access((bin / "mpirun").c_str(), X_OK) == 0;
  return PeerProgram{name, program, bin / (has_mpirun ? "mpirun" : "mpiexec"), prefix};
}

Result<PeerProgram> find_peer(const std::string& peer, const std::string& folder) {
  const auto equals = peer.find('=');
  if (equals == std::string::npos) return built_in_peer(peer);
  return compiled_peer(peer.substr(0, equals), peer.substr(equals + 1), folder);
}

/// Reads up to the next newline; nullopt at the end of the stream, at an error, or when the time is up.
std::optional<std::string> read_line(int descriptor, Clock::time_point until) {
  std::string line;
  while (line.size() < 256) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd wait = {descriptor, POLLIN, 0};
    if (left <= 0 || ::poll(&wait, 1, static_cast<int>(left)) <= 0) return std::nullopt;
    char byte = 0;
    if (::read(descriptor, &byte, 1) != 1) return std::nullopt;
    if (byte == '\n') return line;
    line += byte;
  }
  return std::nullopt;
}

bool write_all(int descriptor, std::string_view words) {
  return ::send(descriptor, words.data(), words.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(words.size());
}

std::string line_of(const bench_request& r) {
  const auto number = [](auto value) { return std::to_string(value); };
  return concat({number(r.op), " ", number(r.type), " ", number(r.redop), " ", number(r.in_place), " ", number(r.bytes),
                 " ", number(r.iterations), " ", number(r.off_cache), " ", number(r.own_memory), " ", number(r.rewrite),
                 "\n"});
}

/// Binds the process behind a connection to one processor, so that no two ranks of any library share one while another
/// is idle. Only its first thread, which makes the calls. A process that cannot be bound is measured unbound.
void bind(const FileDescriptor& connection, int processor) {
  ucred peer = {};
  socklen_t length = sizeof peer;
  if (::getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return;
  bind_to_processor(peer.pid, processor);
}

}  // namespace

Result<void> LocalRanks::listen() {
  std::string pattern = fs::temp_directory_path() / "aml-dist-bench-XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) return system_error("no folder for the socket");
  folder_ = pattern;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string path = folder_ + "/socket";
  if (path.size() >= sizeof address.sun_path)
    return Error{Errc::limit, concat({"bench: TMPDIR is too long: ", text::quote(path)})};
  path.copy(address.sun_path, path.size());
  listener_ = FileDescriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool listens = listener_ &&
                       ::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
                       ::listen(listener_.get(), 1024) == 0;
  if (!listens) return system_error("no socket for the ranks");
  return {};
}

Result<void> LocalRanks::start(const std::vector<std::string>& command, const std::vector<std::string>& environment) {
  auto process = spawn(command, environment);
  if (!process) return process.error();
  processes_.push_back(std::move(*process));
  return {};
}

bool LocalRanks::somebody_died() {
  return std::ranges::any_of(processes_, [](ChildProcess& process) { return process.poll().has_value(); });
}

Result<void> LocalRanks::accept_ranks(int ranks) {
  const auto until = Clock::now() + start_limit;
  const std::vector<int> processors = own_processors();
  ranks_.resize(static_cast<std::size_t>(ranks));
  for (int arrived = 0; arrived < ranks;) {
    pollfd wait = {listener_.get(), POLLIN, 0};
    if (::poll(&wait, 1, 200) <= 0) {
      if (somebody_died())
        return Error{Errc::unavailable, concat({"bench: ", name_, " ended before it could be measured"})};
      if (Clock::now() > until)
        return Error{Errc::timeout, concat({"bench: ", name_, " did not start all its ranks in 60 s"})};
      continue;
    }
    FileDescriptor connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const auto hello = connection ? read_line(connection.get(), until) : std::nullopt;
    const auto words = hello ? text::split(*hello, ' ') : std::vector<std::string_view>();
    const auto number = words.size() == 4 ? text::to_number(words[2], ranks_.size() - 1) : std::nullopt;
    const std::size_t rank = number.value_or(ranks_.size());
    const auto size = words.size() == 4 ? text::to_number(words[3], 1U << 20) : std::nullopt;
    if (rank == ranks_.size() || !size || *size != ranks_.size() || ranks_[rank]) {
      return Error{Errc::peer, concat({"bench: ", name_, " did not come up as ", text::count(ranks_.size(), "rank")})};
    }
    if (ranks_.size() <= processors.size()) bind(connection, processors[rank]);
    ranks_[rank] = std::move(connection);
    ++arrived;
  }
  return {};
}

Result<std::unique_ptr<LocalRanks>> LocalRanks::start_own(int ranks) {
  std::unique_ptr<LocalRanks> own(new LocalRanks(std::string(own_name)));
  if (auto status = own->listen(); !status) return status.error();
  const int port = free_port();
  for (int rank = 0; rank < ranks; ++rank) {
    auto started = own->start({"/proc/self/exe", "bench", "--worker", own->folder_ + "/socket"},
                              rank_environment(rank, ranks, port));
    if (!started) return started.error();
  }
  if (auto status = own->accept_ranks(ranks); !status) return status.error();
  return own;
}

Result<void> LocalRanks::start_mpi(const std::string& peer, int ranks) {
  const auto program = find_peer(peer, folder_);
  if (!program) return program.error();
  return start({program->launcher, "-n", std::to_string(ranks), program->program, program->name, folder_ + "/socket"},
               mpi_environment(program->prefix));
}

/// Ranks of torch.distributed, over Gloo, NCCL or libdist; each is a Python of its own.
Result<void> LocalRanks::start_torch(const std::string& peer, int ranks) {
  const auto equals = peer.find('=');
  const std::string python = equals == std::string::npos ? "python3" : peer.substr(equals + 1);
  const bool is_ours = name_ == own_torch_name || name_ == torch_gpu_name;
  const std::string_view wanted = is_ours ? "torch with the package amldist" : "torch";
  const std::string import = concat({"import torch.distributed", is_ours ? ", amldist.torch" : ""});
  if (auto there = run_to_end({python, "-c", import}, clean_environment(), Output::hidden); !there) {
    return Error{Errc::not_found, concat({"--peer ", peer, ": ", text::quote(python), " has no ", wanted,
                                          "; name a Python that has: --peer ", name_, "=/path/to/python3"})};
  }
  const std::string program = own_folder().parent_path() / "share/aml-dist/bench/peer_gloo.py";
  const int port = free_port();
  for (int rank = 0; rank < ranks; ++rank) {
    auto environment = rank_environment(rank, ranks, port);
    environment.insert(environment.begin(), "GLOO_SOCKET_IFNAME=lo");
    if (auto status = start({python, program, name_, folder_ + "/socket"}, environment); !status) return status;
  }
  return {};
}

bool LocalRanks::is_of_torch() const {
  return name_ == gloo_name || name_ == own_torch_name || name_ == torch_gpu_name || name_ == nccl_name;
}

Result<std::unique_ptr<LocalRanks>> LocalRanks::start_peer(const std::string& peer, int ranks) {
  std::unique_ptr<LocalRanks> made(new LocalRanks(peer.substr(0, peer.find('='))));
  if (auto status = made->listen(); !status) return status.error();
  auto started = made->is_of_torch() ? made->start_torch(peer, ranks) : made->start_mpi(peer, ranks);
  if (!started) return started.error();
  if (auto status = made->accept_ranks(ranks); !status) return status.error();
  return made;
}

LocalRanks::~LocalRanks() {
  ranks_.clear();  // the end of the stream tells them to exit
  const auto until = Clock::now() + std::chrono::seconds(5);
  for (ChildProcess& process : processes_) {
    if (process.wait_until(until)) continue;
    process.kill(SIGKILL);
    process.wait();
  }
  std::error_code ignored;
  if (!folder_.empty()) fs::remove_all(folder_, ignored);
}

Result<bench_result> LocalRanks::measure(const bench_request& request) {
  const auto until = Clock::now() + answer_limit;
  const Error gone{Errc::peer, concat({"bench: a rank of ", name_, " ended or hangs while it is measured"})};
  const std::string line = line_of(request);
  for (const FileDescriptor& rank : ranks_) {
    if (!write_all(rank.get(), line)) return gone;
  }
  bench_result all{0, 0, BENCH_FINE};
  for (const FileDescriptor& rank : ranks_) {
    const auto answer = read_line(rank.get(), until);
    bench_result one{};
    unsigned long long wrong = 0;
    // A rank of ours wrote the line.  NOLINTNEXTLINE(cert-err34-c)
    if (!answer || std::sscanf(answer->c_str(), "%d %lf %llu", &one.status, &one.microseconds, &wrong) != 3)
      return gone;
    all.status = std::max(all.status, one.status);
    all.microseconds = std::max(all.microseconds, one.microseconds);
    all.wrong += wrong;
  }
  if (all.status == BENCH_FAILED) return Error{Errc::peer, concat({"bench: ", name_, " reports an error"})};
  if (all.status == BENCH_NO_MEMORY)
    return Error{Errc::internal, concat({"bench: no memory for the buffers of ", name_})};
  return all;
}

MeasuredLibrary LocalRanks::library() {
  return {name_, static_cast<int>(ranks_.size()), [this](const bench_request& request) { return measure(request); }};
}

Result<int> run_ranks(int ranks, const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {"/proc/self/exe", "bench"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const int port = free_port();
  std::vector<ChildProcess> processes;
  for (int rank = 0; rank < ranks; ++rank) {
    auto process = spawn(command, rank_environment(rank, ranks, port));
    if (!process) return process.error();
    processes.push_back(std::move(*process));
  }
  int first = 0;
  for (ChildProcess& process : processes) {
    const int status = process.wait();
    if (first == 0) first = status;
  }
  return first;
}

}  // namespace amldist::tools
