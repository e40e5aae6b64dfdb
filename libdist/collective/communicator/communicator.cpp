#include "collective/communicator/communicator.hpp"

#include <algorithm>

#include "collective/communicator/call_watchdog.hpp"
#include "collective/communicator/device_calls.hpp"
#include "collective/communicator/message_traffic.hpp"
#include "collective/communicator/split_requests.hpp"
#include "core/text.hpp"

namespace amldist::collective {
namespace {

using text::concat;

/// What a rank gives in a call, in bytes; or gets, where it gives nothing.
std::uint64_t recorded_bytes(const Call& call) noexcept { return call.count * size_of(call.type); }

bool has_root(Operation operation) noexcept {
  return operation == Operation::reduce || operation == Operation::broadcast || operation == Operation::gather ||
         operation == Operation::scatter;
}

bool is_used(std::span<const std::size_t> counts) {
  return std::ranges::any_of(counts, [](std::size_t count) { return count != 0; });
}

/// Of one rank's lists in allgatherv or alltoallv. `most`: elements that any memory can have.
Result<void> check_lists(const Call& call, std::size_t own, std::size_t most) {
  const auto refuse = [&](std::string_view why) {
    return Error{Errc::invalid_argument, concat({to_string(call.operation), ": ", why})};
  };
  const auto differ = [&](std::size_t given, std::string_view where, std::size_t expected) {
    return refuse(concat({std::to_string(given), where, std::to_string(expected)}));
  };
  for (const auto list : {call.send_counts, call.send_offsets, call.recv_counts, call.recv_offsets}) {
    if (std::ranges::any_of(list, [&](std::size_t number) { return number > most; }))
      return refuse("a count or an offset is beyond any memory");
  }
  const bool gathers = call.operation == Operation::allgatherv;
  if (gathers && call.count != call.recv_counts[own])
    return differ(call.count, " elements are given, but counts[own rank] is ", call.recv_counts[own]);
  if (!gathers && call.send_counts[own] != call.recv_counts[own])
    return differ(call.send_counts[own], " elements are sent to the own rank, which expects ", call.recv_counts[own]);
  if (call.send == nullptr && (gathers ? call.count != 0 : is_used(call.send_counts)))
    return refuse("the buffer to send is NULL");
  if (call.recv == nullptr && is_used(call.recv_counts)) return refuse("the buffer to receive is NULL");
  return {};
}

}  // namespace

// ---- device ----
Result<void> Communicator::create_device_backend(int device, CallWatchdog& watchdog) {
  CallExchange exchange(*this, watchdog);
  const CudaDriver& driver = *process_->cuda.look(process_->ticks.now());
  auto made =
      NcclBackend::create(load_nccl(process_->settings.nccl_library), driver, device, exchange, watchdog.deadline());
  if (!made) return made.error();
  device_backend_ = std::move(*made);
  device_backend_->set_deterministic(deterministic_);
  device_calls_ = std::make_unique<DeviceCalls>(*this, driver, *device_backend_);
  return {};
}

void Communicator::set_deterministic(bool on) {
  deterministic_ = on;
  backend_->set_deterministic(on);
  if (device_backend_) device_backend_->set_deterministic(on);
}

// ---- building ----
Communicator::Communicator(std::shared_ptr<Process> process, std::shared_ptr<CommWatch> watch, milliseconds timeout)
    : process_(std::move(process)), watch_(std::move(watch)), timeout_(timeout.count()) {}

Result<void> Communicator::build(const Call& call) {
  process_->channel->add(watch_);
  watch_->enter(call);
  sent_.resize(watch_->members().size());
  CallWatchdog watchdog(*this);
  auto backend = HostBackend::create(
      *process_->channel, *watch_, [&](std::string piece) { return gather_all(std::move(piece), watchdog); },
      process_->mpi.get(), process_->settings.instruction_set, watchdog);
  if (!backend) return backend.error();
  backend_ = std::move(*backend);
  traffic_ = std::make_unique<MessageTraffic>(*this);
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

Result<std::vector<std::string>> Communicator::gather_all(std::string piece, Watchdog& watchdog) {
  if (watch_->members().size() == 1) return std::vector<std::string>{std::move(piece)};
  return process_->channel->gather_all(watch_, gathers_++, std::move(piece), watchdog);
}

Communicator::~Communicator() {
  drain();
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  for_worker_.notify_one();
  if (worker_.joinable()) worker_.join();
  device_calls_.reset();
  process_->channel->remove(*watch_);
  if (finalized_) close_recorder();
}

// ---- calls ----
Result<void> Communicator::run(Call& call) {
  if (!is_right_at_a_glance(call)) {
    if (auto fine = check(call); !fine) return fine;
  }
  call.stream = stream_;
  if (group_depth_ == 0) return make(call);
  group_.push_back(call);
  return {};
}

/// After what was begun before; on this thread if nothing is in its way.
Result<void> Communicator::make(Call& call) {
  if (!has_work()) return perform(call);
  if (device_of_buffers(call)) {
    drain();
    return perform(call);
  }
  const auto request = enqueue({call});
  request->wait();
  return request->result();
}

/// Nothing that check() looks for can be wrong with it: as most calls are.
bool Communicator::is_right_at_a_glance(const Call& call) const noexcept {
  const bool has_buffers = call.operation == Operation::send   ? call.send != nullptr
                           : call.operation == Operation::recv ? call.recv != nullptr
                                                               : call.send != nullptr && call.recv != nullptr;
  return has_buffers && call.count >> 32 == 0 && call.recv_counts.empty() &&
         static_cast<std::uint32_t>(call.root) < watch_->members().size();
}

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
  const std::size_t unit = size_of(call.type);
  const auto most = [&] { return SIZE_MAX / 2 / unit / static_cast<std::size_t>(size); };
  const bool worth_dividing = call.count >> 32 != 0;  // below, not even 2^28 ranks of 8 bytes each pass the limit
  if (worth_dividing && call.count > most()) return refuse("the count is beyond any memory");
  const bool receives = !rooted || call.operation == Operation::scatter || call.root == own;
  const bool sends = call.operation != Operation::recv && !(call.operation == Operation::scatter && call.root != own);
  const bool gets = call.operation != Operation::send && call.operation != Operation::barrier && receives;
  if (call.operation == Operation::alltoallv || call.operation == Operation::allgatherv)
    return check_lists(call, watch_->rank(), most());
  if (call.count == 0 || call.operation == Operation::barrier) return {};
  if (call.operation == Operation::broadcast)
    return call.recv == nullptr ? Result<void>(refuse("the buffer is NULL")) : Result<void>();
  if (sends && call.send == nullptr) return refuse("the buffer to send is NULL");
  if (gets && call.recv == nullptr) return refuse("the buffer to receive is NULL");
  return {};
}

/// The communicator is lost. The first call that comes too late is recorded as failed for that reason: who reads the
/// recorder of a process that ended after it can tell that another's end was the cause.
Error Communicator::refuse(const Call& late) {
  const Error reason = *watch_->verdict();
  if (!has_refused_.exchange(true)) {
    Call call = late;
    call.sequence = (is_point_to_point(call.operation) ? messages_ : collectives_) + 1;
    close_record(record(call, process_->ticks.now()), reason);
  }
  return {Errc::aborted, reason.message};
}

FlightRecorder::Ticket Communicator::record(const Call& call, std::uint64_t began) {
  const bool has_partner = has_root(call.operation) || is_point_to_point(call.operation);
  return process_->recorder.begin({call.operation, call.type, call.redop, recorder_slot_, call.sequence,
                                   recorded_bytes(call), has_partner ? call.root : -1},
                                  began);
}

void Communicator::close_record(FlightRecorder::Ticket ticket, const Result<void>& result) {
  if (result) return process_->recorder.complete(ticket);
  process_->recorder.fail(ticket, status_number(result.error().code));
  const std::lock_guard lock(process_->noting);
  process_->recorder.note(result.error().message);
}

/// Recorder and watch around what a back end does. What it enqueued on a device goes on there.
template <typename Run>
Result<void> Communicator::watched(const Call& call, std::uint64_t began, bool on_device, Run run_it) {
  const auto ticket = record(call, began);
  watch_->enter(call);
  CallWatchdog watchdog(*this);
  Result<void> result = run_it(watchdog);
  if (result && on_device) device_calls_->add(call, ticket);  // before it leaves: nobody is to see it outside
  watch_->leave();
  if (!result) fail(ticket, result.error());
  else if (!on_device) process_->recorder.complete(ticket);
  return result;
}

/// Whatever goes wrong in a call loses the communicator; what cannot be called is refused before.
void Communicator::fail(FlightRecorder::Ticket ticket, const Error& error) {
  close_record(ticket, error);
  if (!watch_->is_lost()) process_->channel->abort(watch_, error.message);
}

/// On the calling thread or the worker, never on both.
Result<void> Communicator::perform(Call& call) {
  if (watch_->is_lost()) return refuse(call);
  const std::uint64_t began = process_->ticks.now();
  const auto device = device_of_buffers(call, began);
  if (device) {
    if (auto supported = NcclBackend::supports(call); !supported) return supported;
  }
  call.sequence = is_point_to_point(call.operation) ? number_message(call, device.has_value()) : ++collectives_;
  if (call.operation == Operation::split) return exchange_split_requests(call);
  if (device) return perform_on(*device, call, began);
  backend_->give(call);  // first of all: the others wait for it
  return watched(call, began, false, [&](CallWatchdog& watchdog) { return backend_->run(call, watchdog); });
}

Result<void> Communicator::perform_on(int device, const Call& call, std::uint64_t began) {
  return watched(call, began, true, [&](CallWatchdog& watchdog) -> Result<void> {
    const auto backend = backend_for(device, watchdog);
    return backend ? name_who_is_gone((*backend)->run(call, watchdog), watchdog) : backend.error();
  });
}

Result<void> Communicator::perform_group(std::span<Call> messages) {
  if (watch_->is_lost()) return refuse(messages.back());
  const auto device = device_of_buffers(messages.back());
  for (Call& message : messages) message.sequence = number_message(message, device.has_value());
  return watched(messages.back(), process_->ticks.now(), device.has_value(),
                 [&](CallWatchdog& watchdog) -> Result<void> {
                   const auto backend = backend_for(device, watchdog);
                   if (!backend) return backend.error();
                   return name_who_is_gone((*backend)->run_group(messages, watchdog), watchdog);
                 });
}

/// `now` in ticks, which are at least as many as nanoseconds: it looks a little more often than it must.
std::optional<int> Communicator::device_of_buffers(const Call& call, std::uint64_t now) {
  const CudaDriver* const driver = process_->cuda.look(now);
  if (driver == nullptr || call.count == 0) return std::nullopt;
  return device_of(*driver, call.send != nullptr ? call.send : call.recv);
}

/// Device buffers go over NCCL, everything else does not need it.
Result<Backend*> Communicator::backend_for(std::optional<int> device, CallWatchdog& watchdog) {
  if (!device) return backend_.get();
  if (!device_backend_) {
    if (auto made = create_device_backend(*device, watchdog); !made) return made.error();
  }
  return device_backend_.get();
}

Result<void> Communicator::synchronize(void* stream) {
  if (!device_backend_) return {};
  CallWatchdog watchdog(*this);
  return name_who_is_gone(device_backend_->synchronize(stream, watchdog), watchdog);
}

/// NCCL only knows that a connection broke, or that it was aborted; the control connection knows whose process ended.
Result<void> Communicator::name_who_is_gone(Result<void> result, CallWatchdog& watchdog) {
  if (result) return result;
  if (result.error().code == Errc::peer && !watch_->is_lost())
    return watchdog.lost(Watchdog::anyone, result.error().message);
  if (result.error().code != Errc::aborted) return result;
  const auto verdict = watch_->wait_for_verdict(Clock::now() + std::chrono::seconds(1));
  return verdict ? *verdict : result;
}

// ---- split ----
Result<void> Communicator::exchange_split_requests(const Call& call) {
  watch_->enter(call);
  CallWatchdog watchdog(*this);
  auto requests = gather_all(split_request_, watchdog);
  watch_->leave();
  if (!requests) return requests.error();
  split_requests_ = std::move(*requests);
  return {};
}

Result<std::unique_ptr<Communicator>> Communicator::split(int color, int key) {
  if (group_depth_ > 0) return Error{Errc::invalid_argument, "split inside a group"};
  Call call;
  call.operation = Operation::split;
  split_request_ = split_request_text(color, key);
  if (auto made = make(call); !made) return made.error();
  call.sequence = collectives_;
  ++splits_;
  if (color < 0) return std::unique_ptr<Communicator>();
  std::vector<std::uint32_t> members;
  std::uint32_t own = 0;
  for (const std::uint32_t rank : ranks_of_color(split_requests_, color)) {
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

// ---- rest ----
Result<void> Communicator::finalize() {
  drain();
  if (device_calls_) device_calls_->await_all();
  finalized_ = true;
  if (watch_->is_lost() || watch_->members().size() == 1) return {};
  Call call;
  call.operation = Operation::finalize;
  call.sequence = ++collectives_;
  auto done = watched(call, process_->ticks.now(), false, [&](CallWatchdog& watchdog) {
    auto met = backend_->run(call, watchdog);
    return met ? settle_messages(call, watchdog) : met;
  });
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
  timeout_.store(timeout.count() == 0 ? Settings().timeout.count() : timeout.count());
  return {};
}

void Communicator::abort() {
  const Identity& id = identity_;
  process_->channel->abort(
      watch_, concat({"the communicator was aborted by rank ", std::to_string(id.rank), " (", host(id.rank),
                      ") in or after ", collective::describe(watch_->activity().call)}));
}

}  // namespace amldist::collective
