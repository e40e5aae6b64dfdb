#include "collective/communicator.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>

#include "collective/recorder_place.hpp"
#include "collective/split_wishes.hpp"
#include "core/text.hpp"
#include "placement/process_identity.hpp"

namespace amldist::collective {
namespace {

using text::concat;

constexpr milliseconds default_timeout(300000);

Result<milliseconds> effective_timeout(const EnvironmentReader& environment, milliseconds asked) {
  if (asked.count() > 0) return asked;
  const auto value = environment("AMLDIST_TIMEOUT_MS");
  if (!value || value->empty()) return default_timeout;
  const auto number = text::to_number(*value, INT32_MAX);
  if (number && *number > 0) return milliseconds(*number);
  return Error{Errc::invalid_argument,
               concat({"AMLDIST_TIMEOUT_MS=", text::quote(*value), " is no number of milliseconds from 1 on"})};
}

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
Result<World> join(const EnvironmentReader& environment, const ProcessIdentity& told, MpiSession* mpi,
                   Clock::time_point deadline) {
  if (told.size == 1) {
    World world = lonely_world();
    world.provenance = told.source;
    return world;
  }
  auto point = choose_meeting_point(environment, told, mpi);
  if (!point) return point.error();
  auto joined = join_world(told, **point, job_name(environment), deadline);
  if (!joined && told.rank == 0) {
    const std::string line = concat({"aml-dist: ", joined.error().message, "\n"});
    static_cast<void>(!::write(STDERR_FILENO, line.data(), line.size()));
  }
  return joined;
}

/// "42.0" under Slurm, else a name that the processes of this world share.
std::string trace_step(const EnvironmentReader& environment, std::uint64_t nonce) {
  const auto job = environment("SLURM_JOB_ID");
  const auto step = environment("SLURM_STEP_ID");
  if (job && step) return trace_name(concat({*job, ".", *step}));
  std::array<char, 17> digits = {};
  std::to_chars(digits.data(), digits.data() + digits.size() - 1, nonce, 16);
  return trace_name(concat({"world-", digits.data()}));
}

/// The flight recorder, where one can be had: a step runs without it as well.
void start_recorder(Process& process, const EnvironmentReader& environment, const Identity& id, std::uint64_t nonce) {
  process.trace = "no flight recorder";
  if (id.size == 1) return;
  const std::string step = trace_step(environment, nonce);
  const auto folder = make_trace_folder(environment, step);
  if (!folder || !*folder) {
    if (!folder) process.trace += concat({": ", folder.error().message});
    return;
  }
  auto recorder =
      FlightRecorder::create(**folder, {step, id.rank, id.size, id.local_rank, process.channel->member(id.rank).host});
  if (!recorder) {
    process.trace += concat({": ", recorder.error().message});
    return;
  }
  process.recorder = std::move(*recorder);
  process.trace = concat({"flight recorder ", process.recorder.path()});
  process.channel->set_heartbeat([&process] { process.recorder.tick(); });
}

/// What a rank gives in a call, in bytes; or gets, where it gives nothing.
std::uint64_t recorded_bytes(const Call& call) noexcept { return call.count * size_of(call.type); }

bool has_root(Operation operation) noexcept {
  return operation == Operation::reduce || operation == Operation::broadcast || operation == Operation::gather ||
         operation == Operation::scatter;
}

}  // namespace

// --------------------------------------------------------------------------------------------------------------- vigil
/// The deadline is counted from the first look, a few microseconds after the call began: calls that do not wait never
/// ask the clock.
class Communicator::CallVigil final : public Vigil {
 public:
  explicit CallVigil(Communicator& owner) : owner_(owner) {}

  [[nodiscard]] Result<void> keep_waiting(int rank) override {
    if (owner_.watch_->is_lost()) return *owner_.watch_->verdict();
    if (owner_.process_->channel->is_anyone_gone() && is_gone_for_good(rank)) return find_out({own(), rank, false, {}});
    if (Clock::now() >= deadline()) return find_out({own(), rank, false, {}});
    return {};
  }

  [[nodiscard]] Error differs(int rank) override { return find_out({own(), rank, true, {}}); }

  [[nodiscard]] Error lost(int rank, std::string_view what) override {
    // The control connection tells a death from a departure; it hears of it at about the same time.
    const auto soon = Clock::now() + milliseconds(200);
    while (!is_gone(rank) && !owner_.watch_->is_lost() && Clock::now() < soon) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    return find_out({own(), rank, false, std::string(what)});
  }

  [[nodiscard]] Clock::time_point deadline() const noexcept override {
    if (deadline_ == Clock::time_point()) deadline_ = Clock::now() + timeout();
    return deadline_;
  }

 private:
  [[nodiscard]] std::uint32_t own() const noexcept { return owner_.watch_->rank(); }
  [[nodiscard]] milliseconds timeout() const noexcept { return milliseconds(owner_.timeout_.load()); }
  [[nodiscard]] Error find_out(const Occasion& occasion) {
    return owner_.process_->channel->find_out(owner_.watch_, occasion, timeout());
  }
  /// What a rank sent before it went may still be on its way: the news of its end travels by another road.
  [[nodiscard]] bool is_gone_for_good(int rank) {
    constexpr auto underway = milliseconds(100);
    if (!is_gone(rank)) return false;
    if (suspect_ != rank || suspected_at_ == Clock::time_point()) {
      suspect_ = rank;
      suspected_at_ = Clock::now();
    }
    return Clock::now() - suspected_at_ >= underway;
  }
  [[nodiscard]] bool is_gone(int rank) const {
    const auto& members = owner_.watch_->members();
    if (rank != anyone) return owner_.process_->channel->is_gone(members[static_cast<std::size_t>(rank)]);
    return std::ranges::any_of(members,
                               [this](std::uint32_t member) { return owner_.process_->channel->is_gone(member); });
  }

  Communicator& owner_;
  mutable Clock::time_point deadline_;
  int suspect_ = anyone;
  Clock::time_point suspected_at_;
};

/// gather_all for the device back end's own set-up.
class Communicator::CallExchange final : public Exchange {
 public:
  CallExchange(Communicator& owner, CallVigil& vigil) : owner_(owner), vigil_(vigil) {}
  [[nodiscard]] int rank() const noexcept override { return static_cast<int>(owner_.watch_->rank()); }
  [[nodiscard]] int size() const noexcept override { return static_cast<int>(owner_.watch_->members().size()); }
  [[nodiscard]] Result<std::vector<std::string>> gather_all(std::string piece,
                                                            Clock::time_point /*deadline*/) override {
    return owner_.gather_all(std::move(piece), vigil_);  // the vigil has the same deadline
  }

 private:
  Communicator& owner_;
  CallVigil& vigil_;
};

Result<void> Communicator::create_device_backend(int device, CallVigil& vigil) {
  const char* const named = std::getenv(nccl_variable);
  CallExchange exchange(*this, vigil);
  auto made = NcclBackend::create(load_nccl(named != nullptr ? named : ""), *process_->cuda.look(process_->ticks.now()),
                                  device, exchange, vigil.deadline());
  if (!made) return made.error();
  device_backend_ = std::move(*made);
  device_backend_->set_deterministic(deterministic_);
  return {};
}

void Communicator::set_deterministic(bool on) {
  deterministic_ = on;
  backend_->set_deterministic(on);
  if (device_backend_) device_backend_->set_deterministic(on);
}

// ------------------------------------------------------------------------------------------------------------ building
Communicator::Communicator(std::shared_ptr<Process> process, std::shared_ptr<CommWatch> watch, milliseconds timeout)
    : process_(std::move(process)), watch_(std::move(watch)), timeout_(timeout.count()) {}

Result<std::unique_ptr<Communicator>> Communicator::init(const EnvironmentReader& environment, milliseconds timeout) {
  const auto limit = effective_timeout(environment, timeout);
  if (!limit) return limit.error();
  const auto deadline = Clock::now() + *limit;
  const auto told = read_process_identity(environment);
  if (!told) return told.error();
  auto mpi = told->size > 1 ? MpiSession::find(environment, *told) : std::unique_ptr<MpiSession>();
  if (!mpi) return mpi.error();
  auto joined = join(environment, *told, mpi->get(), deadline);
  if (!joined) return joined.error();
  World world = std::move(*joined);
  std::vector<std::uint32_t> members(world.size);
  for (std::uint32_t r = 0; r < world.size; ++r) members[r] = r;
  const std::uint32_t rank = world.rank;
  const std::uint64_t id = world.nonce;
  auto process = std::make_shared<Process>();
  process->mpi = std::move(*mpi);
  process->channel = std::make_unique<ControlChannel>(std::move(world));
  std::unique_ptr<Communicator> out(
      new Communicator(process, std::make_shared<CommWatch>(id, std::move(members), rank), *limit));
  Call occasion;
  occasion.operation = Operation::init;
  if (auto built = out->build(occasion); !built) return built.error();
  if (auto same = check_places(*told, out->identity_); !same) return same.error();
  out->is_world_ = true;
  start_recorder(*process, environment, out->identity_, id);
  out->recorder_slot_ = process->recorder.add_communicator(id, rank, out->identity_.size, "world");
  out->provenance_ += concat({"; ", process->trace});
  return out;
}

Result<void> Communicator::build(const Call& occasion) {
  process_->channel->add(watch_);
  watch_->enter(occasion);
  CallVigil vigil(*this);
  auto backend = HostBackend::create(
      *process_->channel, *watch_, [&](std::string piece) { return gather_all(std::move(piece), vigil); },
      process_->mpi.get(), vigil);
  if (!backend) return backend.error();
  backend_ = std::move(*backend);
  watch_->leave();
  describe_place();
  return {};
}

void Communicator::describe_place() {
  const std::uint32_t size = static_cast<std::uint32_t>(watch_->members().size());
  // The nodes as the processes see them, also where memory cannot be shared.
  std::vector<std::string> names;
  for (const std::uint32_t member : watch_->members()) names.push_back(process_->channel->member(member).node);
  const Topology places = Topology::of(names, static_cast<int>(watch_->rank()));
  std::vector<std::uint32_t> node_of_rank(size);
  for (std::uint32_t n = 0; n < places.nodes.size(); ++n) {
    for (const int rank : places.nodes[n]) node_of_rank[static_cast<std::size_t>(rank)] = n;
  }
  const auto map = TaskMap::from_nodes_of_ranks(node_of_rank, static_cast<std::uint32_t>(places.nodes.size()));
  if (map) task_map_ = map->to_string();
  identity_ = {watch_->rank(),
               size,
               static_cast<std::uint32_t>(places.own_index),
               static_cast<std::uint32_t>(places.own_ranks().size()),
               static_cast<std::uint32_t>(places.own_node),
               static_cast<std::uint32_t>(places.nodes.size())};
  provenance_ = concat({process_->channel->provenance(), "; ", backend_->describe()});
}

Result<std::vector<std::string>> Communicator::gather_all(std::string piece, Vigil& vigil) {
  if (watch_->members().size() == 1) return std::vector<std::string>{std::move(piece)};
  return process_->channel->gather_all(watch_, gathers_++, std::move(piece), vigil);
}

Communicator::~Communicator() {
  drain();
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (worker_.joinable()) worker_.join();
  process_->channel->remove(*watch_);
  if (finalized_) close_recorder();
}

// --------------------------------------------------------------------------------------------------------------- calls
Result<void> Communicator::check(const Call& call) const {
  const auto refuse = [&](std::string_view why) {
    return Error{Errc::invalid_argument, concat({to_string(call.operation), ": ", why})};
  };
  const auto size = static_cast<int>(watch_->members().size());
  const bool rooted = has_root(call.operation);
  if ((rooted || is_point_to_point(call.operation)) && (call.root < 0 || call.root >= size)) {
    return refuse(concat({rooted ? "root " : "peer ", std::to_string(call.root), " is not one of the ranks 0 to ",
                          std::to_string(size - 1)}));
  }
  const auto own = static_cast<int>(watch_->rank());
  if (is_point_to_point(call.operation) && call.root == own) return refuse("the peer is the calling rank itself");
  const std::size_t unit = size_of(call.type);
  const std::size_t most = SIZE_MAX / 2 / unit / static_cast<std::size_t>(size);
  if (call.count > most) return refuse("the count is beyond any memory");
  const bool receives = !rooted || call.operation == Operation::scatter || call.root == own;
  const bool sends = call.operation != Operation::recv && !(call.operation == Operation::scatter && call.root != own);
  const bool gets = call.operation != Operation::send && call.operation != Operation::barrier && receives;
  const bool listed = call.operation == Operation::alltoallv || call.operation == Operation::allgatherv;
  if (call.count == 0 || listed || call.operation == Operation::barrier) return {};
  if (call.operation == Operation::broadcast)
    return call.recv == nullptr ? Result<void>(refuse("the buffer is NULL")) : Result<void>();
  if (sends && call.send == nullptr) return refuse("the buffer to send is NULL");
  if (gets && call.recv == nullptr) return refuse("the buffer to receive is NULL");
  return {};
}

Result<void> Communicator::refuse_if_lost() const {
  if (!watch_->is_lost()) return {};
  return Error{Errc::aborted, watch_->verdict()->message};
}

/// Recorder and watch around what a back end does.
template <typename Run>
Result<void> Communicator::watched(const Call& call, Run run_it) {
  FlightRecorder& recorder = process_->recorder;
  const bool has_partner = has_root(call.operation) || is_point_to_point(call.operation);
  const auto ticket = recorder.begin({call.operation, call.type, call.redop, recorder_slot_, call.sequence,
                                      recorded_bytes(call), has_partner ? call.root : -1});
  watch_->enter(call);
  CallVigil vigil(*this);
  Result<void> result = run_it(vigil);
  watch_->leave();
  if (result) {
    recorder.complete(ticket);
  } else {
    recorder.fail(ticket, status_number(result.error().code));
    recorder.note(result.error().message);
    // An argument that only the back end could refuse does not lose the communicator; all else does.
    if (!watch_->is_lost()) process_->channel->abort(watch_, result.error().message);
  }
  return result;
}

/// On the calling thread or the worker, never on both.
Result<void> Communicator::perform(Call& call) {
  if (auto healthy = refuse_if_lost(); !healthy) return healthy;
  call.sequence = is_point_to_point(call.operation) ? ++messages_ : ++collectives_;
  return watched(call, [&](CallVigil& vigil) -> Result<void> {
    const auto backend = backend_for(call, vigil);
    if (!backend) return backend.error();
    return (*backend)->run(call, vigil);
  });
}

Result<void> Communicator::perform_group(std::vector<Call> messages) {
  if (messages.empty()) return {};
  if (auto healthy = refuse_if_lost(); !healthy) return healthy;
  for (Call& message : messages) message.sequence = ++messages_;
  return watched(messages.back(), [&](CallVigil& vigil) -> Result<void> {
    const auto backend = backend_for(messages.back(), vigil);
    if (!backend) return backend.error();
    return (*backend)->run_group(messages, vigil);
  });
}

/// Device buffers go over NCCL, everything else does not need it.
Result<Backend*> Communicator::backend_for(const Call& call, CallVigil& vigil) {
  // Ticks are at least as many as nanoseconds: it looks a little more often than it must.
  const CudaDriver* const driver = process_->cuda.look(process_->ticks.now());
  if (driver == nullptr || call.count == 0) return backend_.get();
  const auto device = device_of(*driver, call.send != nullptr ? call.send : call.recv);
  if (!device) return backend_.get();
  if (!device_backend_) {
    if (auto made = create_device_backend(*device, vigil); !made) return made.error();
  }
  return device_backend_.get();
}

Result<void> Communicator::run(Call call) {
  if (auto fine = check(call); !fine) return fine;
  call.stream = stream_;
  if (group_depth_ > 0) {
    group_.push_back(call);
    return {};
  }
  if (has_begun_) drain();
  return perform(call);
}

Result<std::shared_ptr<Request>> Communicator::begin(Call call) {
  if (group_depth_ > 0) {
    return Error{Errc::invalid_argument, concat({"i", to_string(call.operation),
                                                 " inside a group: use the blocking call, "
                                                 "amldist_group_end() runs it"})};
  }
  if (auto fine = check(call); !fine) return fine.error();
  call.stream = stream_;
  auto request = std::make_shared<Request>(call, [this] { pursue(); });
  has_begun_ = true;
  const std::lock_guard lock(mutex_);
  queue_.push_back(request);
  // Where the back end is only for the program's own thread, calls run when that next waits for one.
  if (backend_->serves_any_thread() && !worker_.joinable()) worker_ = std::thread([this] { work(); });
  changed_.notify_all();
  return request;
}

/// Runs the calls that do not wait, in order.
void Communicator::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || can_begin(); });
    if (queue_.empty()) return;
    run_queue(lock);
  }
}

/// Sends and receives begin when somebody waits for one of them, or for what comes behind: those begun together run as
/// one, and cannot wait for each other across two ranks.
bool Communicator::can_begin() const {
  return !queue_.empty() && (wanted_ || !is_point_to_point(queue_.back()->call().operation) ||
                             !is_point_to_point(queue_.front()->call().operation));
}

/// Somebody waits for a request.
void Communicator::pursue() {
  if (!worker_.joinable()) return drain();
  const std::lock_guard lock(mutex_);
  wanted_ = !queue_.empty();
  changed_.notify_all();
}

/// The first call, or all sends and receives in front.
void Communicator::run_queue(std::unique_lock<std::mutex>& lock) {
  std::vector<std::shared_ptr<Request>> requests;
  do {
    requests.push_back(queue_.front());
    queue_.pop_front();
  } while (!queue_.empty() && is_point_to_point(requests.front()->call().operation) &&
           is_point_to_point(queue_.front()->call().operation));
  working_ = true;
  wanted_ = wanted_ && !queue_.empty();
  lock.unlock();
  Result<void> result;
  if (requests.size() == 1) {
    Call call = requests.front()->call();
    result = perform_to_the_end(call);
  } else {
    std::vector<Call> messages;
    for (const auto& request : requests) messages.push_back(request->call());
    result = perform_group_to_the_end(std::move(messages));
  }
  for (const auto& request : requests) request->complete(result);
  lock.lock();
  working_ = false;
  changed_.notify_all();
}

/// A request is done when the device is, too.
Result<void> Communicator::perform_to_the_end(Call& call) {
  auto result = perform(call);
  return result ? synchronize(call.stream) : result;
}

Result<void> Communicator::perform_group_to_the_end(std::vector<Call> messages) {
  void* const stream = messages.front().stream;
  auto result = perform_group(std::move(messages));
  return result ? synchronize(stream) : result;
}

Result<void> Communicator::synchronize(void* stream) {
  if (!device_backend_) return {};
  CallVigil vigil(*this);
  return device_backend_->synchronize(stream, vigil);
}

void Communicator::drain() {
  std::unique_lock lock(mutex_);
  if (!worker_.joinable()) {
    while (!queue_.empty() && !working_) run_queue(lock);
    return;
  }
  wanted_ = !queue_.empty();
  changed_.notify_all();
  changed_.wait(lock, [this] { return queue_.empty() && !working_; });
}

// -------------------------------------------------------------------------------------------------------------- groups
Result<void> Communicator::group_begin() {
  ++group_depth_;
  return {};
}

Result<void> Communicator::group_end() {
  if (group_depth_ == 0) return Error{Errc::invalid_argument, "amldist_group_end() without amldist_group_begin()"};
  if (--group_depth_ > 0) return {};
  drain();
  const std::vector<Call> calls = std::exchange(group_, {});
  std::vector<Call> messages;
  for (Call call : calls) {
    if (is_point_to_point(call.operation)) {
      messages.push_back(call);
    } else if (auto done = perform(call); !done) {
      return done;
    }
  }
  return perform_group(std::move(messages));
}

// --------------------------------------------------------------------------------------------------------------- split
Result<std::unique_ptr<Communicator>> Communicator::split(int color, int key) {
  if (group_depth_ > 0) return Error{Errc::invalid_argument, "split inside a group"};
  drain();
  if (auto healthy = refuse_if_lost(); !healthy) return healthy.error();
  Call call;
  call.operation = Operation::split;
  call.sequence = ++collectives_;
  watch_->enter(call);
  CallVigil vigil(*this);
  const auto wishes = gather_all(wish_text(color, key), vigil);
  watch_->leave();
  if (!wishes) return wishes.error();
  ++splits_;
  if (color < 0) return std::unique_ptr<Communicator>();
  std::vector<std::uint32_t> members;
  std::uint32_t own = 0;
  for (const std::uint32_t rank : ranks_of_color(*wishes, color)) {
    if (rank == watch_->rank()) own = static_cast<std::uint32_t>(members.size());
    members.push_back(watch_->members()[rank]);
  }
  std::uint64_t id = watch_->id();
  for (const std::uint64_t part : {splits_, static_cast<std::uint64_t>(static_cast<std::uint32_t>(color))}) {
    id = (id ^ (part + 1)) * 0x9e3779b97f4a7c15ULL;
    id ^= id >> 31;
  }
  std::unique_ptr<Communicator> out(new Communicator(process_, std::make_shared<CommWatch>(id, std::move(members), own),
                                                     milliseconds(timeout_.load())));
  if (auto built = out->build(call); !built) return built.error();
  out->recorder_slot_ = process_->recorder.add_communicator(id, own, out->identity_.size, {}, recorder_slot_);
  return out;
}

// -----------------------------------------------------------------------------------------------------------------
// rest
Result<void> Communicator::finalize() {
  drain();
  finalized_ = true;
  if (watch_->is_lost() || watch_->members().size() == 1) return {};
  Call call;
  call.operation = Operation::finalize;
  auto done = perform(call);
  if (done && is_world_ && process_->mpi) process_->mpi->end_well();
  return done;
}

void Communicator::close_recorder() noexcept {
  process_->recorder.close_communicator(recorder_slot_);
  if (!is_world_) return;
  process_->channel->set_heartbeat(nullptr);
  process_->recorder.close(watch_->is_lost() ? FlightRecorder::Ending::failed : FlightRecorder::Ending::well);
}

Result<void*> Communicator::allocate(std::size_t bytes) { return backend_->allocate(bytes); }
Result<void> Communicator::release(void* memory) { return backend_->release(memory); }

Result<void> Communicator::set_timeout(milliseconds timeout) {
  if (timeout.count() < 0) return Error{Errc::invalid_argument, "amldist_set_timeout: the deadline is negative"};
  timeout_.store(timeout.count() == 0 ? default_timeout.count() : timeout.count());
  return {};
}

void Communicator::abort() {
  const Identity& id = identity_;
  process_->channel->abort(
      watch_, concat({"the communicator was aborted by rank ", std::to_string(id.rank), " (", host(id.rank),
                      ") in or after ", collective::describe(watch_->activity().call)}));
}

}  // namespace amldist::collective
