#include "trace/mpi/tracer.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <new>
#include <string>
#include <utility>

#include "base/os/environment.hpp"
#include "base/text/text.hpp"
#include "trace/diagnosis/call_words.hpp"
#include "trace/record/record_folder.hpp"
#include "trace/record/settings.hpp"

namespace amldist::trace::mpi {
namespace {

using trace::make_trace_folder;
using trace::name_of_members;
using Ticket = FlightRecorder::Ticket;

/// FNV-1a: the same on every rank, and good enough for a few thousand communicators.
std::uint64_t digest(std::uint64_t start, std::uint64_t number) noexcept {
  constexpr std::uint64_t prime = 0x100000001b3;
  constexpr int bits = 64;
  for (int shift = 0; shift < bits; shift += 8) start = (start ^ ((number >> shift) & 0xff)) * prime;
  return start;
}
constexpr std::uint64_t world_id = 0xcbf29ce484222325;

std::uint64_t digest(std::span<const std::uint32_t> ranks) noexcept {
  std::uint64_t id = digest(world_id, ranks.size());
  for (const std::uint32_t rank : ranks) id = digest(id, rank);
  return id;
}

std::optional<std::uint32_t> number_in(std::string_view name) {
  const auto number = text::to_number(own_variable(name).value_or(""), 1U << 30);
  return number ? std::optional(static_cast<std::uint32_t>(*number)) : std::nullopt;
}

extern "C" int copy_nothing(MPI_Comm /*comm*/, int /*keyval*/, void* /*extra*/, void* /*in*/, void* /*out*/,
                            int* flag) {
  *flag = 0;
  return 0;
}

extern "C" int delete_communicator(MPI_Comm /*comm*/, int /*keyval*/, void* attribute, void* /*extra*/) {
  tracer().forget(static_cast<Communicator*>(attribute));
  return 0;
}

}  // namespace

constinit std::atomic<Tracer*> the_tracer{nullptr};

Tracer& make_tracer() noexcept {
  // NOLINTNEXTLINE(bugprone-unhandled-exception-at-new): without memory for one object the program cannot start either
  static auto* const one = new Tracer;  // never destroyed: threads may be in MPI while the process ends
  the_tracer.store(one, std::memory_order_release);
  return *one;
}

ThreadState& this_thread() noexcept {
  static thread_local ThreadState state;
  return state;
}

void* find_real(const char* name) noexcept { return ::dlsym(tracer().libmpi(), name); }

Tracer::Use Tracer::use(void* libmpi) noexcept try {
  if (libmpi_ != nullptr) return Use::yes;
  const auto abi = Abi::of(libmpi);
  if (!abi) return own_variable(variable::trace).value_or("").empty() ? Use::unwanted : Use::other_interface;
  abi_ = *abi;
  libmpi_ = libmpi;
  return Use::yes;
} catch (...) {  // no memory: the program goes on untraced
  return Use::unwanted;
}

void Tracer::start(std::uint32_t rank, std::uint32_t size) noexcept try {
  const std::string step = own_variable(variable::trace).value_or("");
  if (step.empty()) return;  // calls pass through
  const auto folder = make_trace_folder(own_variable(variable::trace_folder).value_or(""), step);
  if (!folder || !*folder) {
    if (!folder) std::fprintf(stderr, "aml-dist: rank %u is not traced: %s\n", rank, folder.error().message.c_str());
    return;
  }
  auto recorder = FlightRecorder::create(**folder, {step, rank, size, number_in("SLURM_LOCALID").value_or(0),
                                                    own_variable("SLURMD_NODENAME").value_or(""), "mpi", true});
  if (recorder) recorder_ = std::move(*recorder);
  else std::fprintf(stderr, "aml-dist: rank %u is not traced: %s\n", rank, recorder.error().message.c_str());
} catch (...) {  // out of memory: the program runs untraced
}

Ticket Tracer::initializing() noexcept try {
  const auto rank = number_in("SLURM_PROCID");
  const auto size = number_in("SLURM_STEP_NUM_TASKS");
  if (libmpi_ == nullptr || recorder_.on() || !rank || !size || *rank >= *size || *size < 2) return 0;
  start(*rank, *size);
  std::vector<std::uint32_t> all(*size);
  for (std::uint32_t i = 0; i < *size; ++i) all[i] = i;
  const std::uint32_t slot = recorder_.add_communicator({world_id, *rank, *size, "world", 0, all});
  return recorder_.begin({calls::Operation::init, unknown_type, calls::ReduceOp::sum, slot, 1, 0});
} catch (...) {  // no memory: this call leaves no record
  return 0;
}

void Tracer::opening_session() noexcept try {
  const bool is_first = !has_session_.exchange(true);
  if (!is_first || on() || own_variable(variable::trace).value_or("").empty() || number_in("SLURM_PROCID") != 0U)
    return;
  std::fputs(
      "aml-dist: trace: this program opens an MPI session: what it calls without MPI_Init is not recorded, and not "
      "watched for hangs\n",
      stderr);
} catch (...) {  // no memory for a variable
}

void Tracer::initialized(Ticket ticket, int status) noexcept try {
  if (!on() || ticket == 0) return;
  int rank = -1;
  int size = -1;
  int keyval = 0;
  const auto step_size = number_in("SLURM_STEP_NUM_TASKS");
  const bool known = status == 0 && find_real_as<int(MPI_Comm, int*)>("PMPI_Comm_rank")(abi_.world, &rank) == 0 &&
                     find_real_as<int(MPI_Comm, int*)>("PMPI_Comm_size")(abi_.world, &size) == 0;
  const auto make_keyval = find_real_as<int(decltype(&copy_nothing), decltype(&delete_communicator), int*, void*)>(
      "PMPI_Comm_create_keyval");
  if (!known || step_size != static_cast<std::uint32_t>(size) ||
      number_in("SLURM_PROCID") != static_cast<std::uint32_t>(rank) || is_spawned() ||
      make_keyval(copy_nothing, delete_communicator, &keyval, nullptr) != 0) {
    recorder_.close(FlightRecorder::Ending::well);  // a world of its own: no rank of the step waits for it
    return;
  }
  keyval_ = keyval;
  main_depth_ = &depth();
  find_real_as<int(MPI_Comm, MPI_Group*)>("PMPI_Comm_group")(abi_.world, &world_group_);
  recorder_.complete(ticket);
  int threads = abi_.thread_multiple;
  const auto ask_threads = find_real_as<int(int*)>("PMPI_Query_thread");
  has_threads_ = ask_threads == nullptr || ask_threads(&threads) != 0 || threads >= abi_.thread_multiple;
  if (!has_threads_) recorder_.one_at_a_time();
  recorder_.tick();  // long enough after the first reading for a good rate
  const std::lock_guard lock(mutex_);
  auto* const world = new Communicator;
  world->is_recorded = true;
  world->id = world_id;
  world->rank = static_cast<std::uint32_t>(rank);
  world->sequence = 1;  // MPI_Init
  world->world_ranks.resize(static_cast<std::size_t>(size));
  for (std::uint32_t i = 0; i < world->world_ranks.size(); ++i) world->world_ranks[i] = i;
  find_real_as<int(MPI_Comm, int, void*)>("PMPI_Comm_set_attr")(abi_.world, keyval, world);
} catch (...) {  // no memory: the program goes on untraced
  recorder_.close(FlightRecorder::Ending::well);
}

Ticket Tracer::finalizing() noexcept {
  if (!on()) return 0;
  Communicator* const world = find(abi_.world);
  if (world == nullptr) return 0;
  const Ticket ticket = recorder_.begin(
      {calls::Operation::finalize, unknown_type, calls::ReduceOp::sum, world->slot, next_number(*world), 0});
  return ticket;
}

void Tracer::aborting() noexcept {
  if (on()) recorder_.announce(FlightRecorder::Ending::aborted);
}

void Tracer::finalized(Ticket ticket, int status) noexcept {
  if (!on()) return;
  if (status != 0) return fail(ticket, status);
  recorder_.complete(ticket);
  if (has_failed_.load(std::memory_order_relaxed)) recorder_.close_and_keep_after_failure();
  else recorder_.close(FlightRecorder::Ending::well);
}

void Tracer::fail(Ticket ticket, int error) noexcept {
  static auto* const class_of = find_real_as<int(int, int*)>("PMPI_Error_class");
  int kind = error;
  if (class_of != nullptr) static_cast<void>(class_of(error, &kind));
  has_failed_.store(true, std::memory_order_relaxed);
  recorder_.fail(ticket, kind == abi_.error_truncate ? trace::recorder_format::too_long : -1);
}

/// Such a process has a world of its own, whose ranks may look like those of a step.
bool Tracer::is_spawned() const noexcept {
  const auto ask = find_real_as<int(MPI_Comm*)>("PMPI_Comm_get_parent");
  MPI_Comm parent = abi_.no_comm;
  return ask != nullptr && ask(&parent) == 0 && parent != abi_.no_comm;
}

std::vector<std::uint32_t> Tracer::world_ranks_of(MPI_Comm comm, const char* group_of) const {
  MPI_Group group{};
  if (find_real_as<int(MPI_Comm, MPI_Group*)>(group_of)(comm, &group) != 0) return {};
  auto ranks = world_ranks_of_group(group);
  find_real_as<int(MPI_Group*)>("PMPI_Group_free")(&group);
  return ranks;
}

/// In the group's order; empty if it has processes that are not of the world.
std::vector<std::uint32_t> Tracer::world_ranks_of_group(MPI_Group group) const {
  int size = 0;
  if (find_real_as<int(MPI_Group, int*)>("PMPI_Group_size")(group, &size) != 0 || size <= 0) return {};
  std::vector<int> own(static_cast<std::size_t>(size));
  std::vector<int> of_world(own.size());
  for (int i = 0; i < size; ++i) own[static_cast<std::size_t>(i)] = i;
  find_real_as<int(MPI_Group, int, const int*, MPI_Group, int*)>("PMPI_Group_translate_ranks")(
      group, size, own.data(), world_group_, of_world.data());
  if (std::ranges::any_of(of_world, [](int rank) { return rank < 0; })) return {};  // spawned
  return {of_world.begin(), of_world.end()};
}

/// The id of a communicator that was not made by a numbered call of all its members. If ranks make, or first use,
/// several such communicators of the same members in different orders, they give them different ids. Needs the lock.
std::uint64_t Tracer::next_id(std::span<const std::uint32_t> members, Origin origin, int tag) {
  const std::uint64_t id =
      digest(digest(digest(members), static_cast<std::uint64_t>(origin)), static_cast<std::uint64_t>(tag));
  return digest(id, ++same_members_[id]);
}

/// Sets everything except the id and the slot.
void Tracer::find_members(MPI_Comm comm, Communicator& made) const {
  int rank = 0;
  int size = 0;
  int is_between = 0;
  find_real_as<int(MPI_Comm, int*)>("PMPI_Comm_rank")(comm, &rank);
  find_real_as<int(MPI_Comm, int*)>("PMPI_Comm_size")(comm, &size);
  find_real_as<int(MPI_Comm, int*)>("PMPI_Comm_test_inter")(comm, &is_between);
  made.is_between = is_between != 0;
  made.is_recorded = made.is_between || size > 1;
  made.rank = static_cast<std::uint32_t>(rank);
  made.world_ranks = world_ranks_of(comm);
  if (!made.is_between) return;
  auto others = world_ranks_of(comm, "PMPI_Comm_remote_group");
  if (made.world_ranks.empty() || others.empty()) return made.world_ranks.clear();
  if (others.front() < made.world_ranks.front()) {
    made.rank += static_cast<std::uint32_t>(others.size());
    made.world_ranks.swap(others);
  } else {
    made.peers_at = static_cast<std::int32_t>(made.world_ranks.size());
  }
  made.world_ranks.insert(made.world_ranks.end(), others.begin(), others.end());
}

/// `id` 0: uses next_id(). Needs the lock.
Communicator* Tracer::add_known(MPI_Comm comm, std::uint64_t id, Origin origin) noexcept try {
  auto* const made = new Communicator;
  find_members(comm, *made);
  const bool is_judged = made->is_recorded && !made->world_ranks.empty();
  made->slot = trace::recorder_format::no_slot;
  if (is_judged) {
    if (made->is_between && origin == Origin::unknown) origin = Origin::between;
    made->id = id == 0 ? next_id(made->world_ranks, origin) : digest(id, made->world_ranks.front());
    const auto size = static_cast<std::uint32_t>(made->world_ranks.size());
    std::string name = text::concat({made->is_between ? "between " : "", name_of_members(made->world_ranks)});
    const std::uint64_t same = ++same_names_[name];  // made by all its members in the same order
    if (same > 1) name += text::concat({" (", std::to_string(same), ")"});
    made->slot = recorder_.add_communicator({made->id, made->rank, size, name, 0, made->world_ranks});
  }
  find_real_as<int(MPI_Comm, int, void*)>("PMPI_Comm_set_attr")(comm, *keyval_, made);
  return made;
} catch (...) {  // no memory: calls on this communicator leave no record
  return nullptr;
}

void Tracer::rename(MPI_Comm comm, std::string_view name) noexcept {
  const Communicator* const known = find(comm);
  if (known == nullptr || known->id == world_id) return;
  const std::lock_guard lock(mutex_);
  recorder_.rename_communicator(known->slot, name);
}

Communicator* Tracer::find_attribute(MPI_Comm comm, ThreadState& thread, std::uint64_t deletions) noexcept {
  if (!keyval_ || comm == abi_.no_comm) return nullptr;
  static auto* const get = find_real_as<int(MPI_Comm, int, void*, int*)>("PMPI_Comm_get_attr");
  void* attribute = nullptr;
  int has = 0;
  if (get(comm, *keyval_, static_cast<void*>(&attribute), &has) != 0) return nullptr;
  auto* found = static_cast<Communicator*>(attribute);
  if (has == 0) {
    const std::lock_guard lock(mutex_);
    // Another thread may have added it meanwhile. To replace its attribute MPI would call forget(), which locks, too.
    if (get(comm, *keyval_, static_cast<void*>(&attribute), &has) != 0) return nullptr;
    found = has != 0 ? static_cast<Communicator*>(attribute) : add_known(comm, 0);
  }
  if (found == nullptr || !found->is_recorded) return nullptr;
  thread.last_comm = comm;
  thread.last = found;
  thread.deletions = deletions;
  return found;
}

std::uint64_t Tracer::id_of_made(const Communicator& parent, std::uint64_t sequence) noexcept {
  return parent.id != 0 ? digest(digest(world_id, parent.id), sequence) : 0;
}

void Tracer::add(MPI_Comm made, std::uint64_t id) noexcept {
  if (made == abi_.no_comm) return;
  const std::lock_guard lock(mutex_);
  static_cast<void>(add_known(made, id));
}

void Tracer::add_joined(MPI_Comm made) noexcept {
  if (!on() || made == abi_.no_comm) return;
  const std::lock_guard lock(mutex_);
  static_cast<void>(add_known(made, 0, Origin::between));
}

void Tracer::opened(std::uintptr_t handle, const Communicator& by, std::uint64_t sequence,
                    std::string_view what) noexcept try {
  if (by.id == 0) return;
  auto made = std::make_unique<Communicator>();
  made->id = digest(id_of_made(by, sequence), by.world_ranks.front());
  made->rank = by.rank;
  made->is_recorded = true;
  const std::lock_guard lock(mutex_);
  made->slot = recorder_.add_communicator({made->id, by.rank, static_cast<std::uint32_t>(by.world_ranks.size()),
                                           text::concat({what, " of ", name_of_members(by.world_ranks)}), by.slot,
                                           by.world_ranks});
  opened_.insert_or_assign(handle, std::move(made));
} catch (...) {  // out of memory: its calls are not recorded
}

Communicator* Tracer::find_opened(std::uintptr_t handle) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = opened_.find(handle);
  return found != opened_.end() ? found->second.get() : nullptr;
}

void Tracer::closed(std::uintptr_t handle) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = opened_.find(handle);
  if (found == opened_.end()) return;
  recorder_.close_communicator(found->second->slot);
  opened_.erase(found);
}

Tracer::GroupCall Tracer::creating(MPI_Comm parent, MPI_Group group, int tag) noexcept try {
  if (!on() || find(parent) == nullptr) return {};
  const auto members = world_ranks_of_group(group);
  int rank = abi_.undefined;
  find_real_as<int(MPI_Group, int*)>("PMPI_Group_rank")(group, &rank);
  if (members.size() < 2 || rank < 0) return {};
  const std::lock_guard lock(mutex_);
  GroupCall call;
  call.id = next_id(members, Origin::group, tag);
  call.slot = recorder_.add_communicator({digest(call.id, 0), static_cast<std::uint32_t>(rank),
                                          static_cast<std::uint32_t>(members.size()),
                                          text::concat({"group of ", name_of_members(members)}), 0, members});
  call.ticket = recorder_.begin({other::create, unknown_type, calls::ReduceOp::sum, call.slot, 1, 0, -1,
                                 function_number("MPI_Comm_create_group")});
  return call;
} catch (...) {  // no memory: this call leaves no record
  return {};
}

void Tracer::created(const GroupCall& call, int status, MPI_Comm made) noexcept {
  if (call.id == 0) return;
  if (status == 0) recorder_.complete(call.ticket);
  else fail(call.ticket, status);
  const std::lock_guard lock(mutex_);
  recorder_.close_communicator(call.slot);
  if (status == 0 && made != abi_.no_comm) static_cast<void>(add_known(made, call.id));
}

void Tracer::forget(Communicator* communicator) noexcept {
  if (communicator == nullptr) return;
  deletions_.fetch_add(1, std::memory_order_release);
  if (communicator->id == world_id) return;  // in MPI_Finalize, whose record needs it
  {
    const std::lock_guard lock(mutex_);
    if (communicator->is_recorded) recorder_.close_communicator(communicator->slot);
  }
  delete communicator;
}

calls::DataType Tracer::look_up(MPI_Datatype type) const noexcept {
  const auto known = std::span(abi_.types).first(abi_.type_count);
  const auto found = std::ranges::find(known, type, &Abi::Type::handle);
  if (found == known.end()) return unknown_type;
  recent_type_.store(&*found, std::memory_order_relaxed);
  return found->type;
}

/// For data types that the program has created.
std::uint64_t Tracer::real_bytes(std::int64_t count, MPI_Datatype type) noexcept {
  static auto* const size_of_type = find_real_as<int(MPI_Datatype, int*)>("PMPI_Type_size");
  int size = 0;
  if (size_of_type(type, &size) != 0 || size < 0) return 0;
  return static_cast<std::uint64_t>(count) * static_cast<std::uint64_t>(size);
}

/// A handle that comes again belongs to a call that has ended: MPI has one handle for all calls that end at once, and
/// reuses the others.
void Tracer::remember(MPI_Request request, const PostedCall& posted) noexcept try {
  if (posted.ticket == 0) return;
  if (request == abi_.no_request) return recorder_.complete(posted.ticket);
  PostedCall before;
  {
    const std::lock_guard lock(requests_mutex_);
    before = std::exchange(requests_[key_of(request)], posted);
  }
  if (before.ticket != 0) recorder_.complete(before.ticket);
} catch (...) {  // out of memory: its end will not be seen
}

Tracer::PostedCall Tracer::find_posted(MPI_Request request) noexcept {
  const std::lock_guard lock(requests_mutex_);
  const auto found = requests_.find(key_of(request));
  if (found == requests_.end()) return {};
  PostedCall posted = found->second;
  posted.known_by = posted.ticket;
  return posted;
}

/// MPI may have given the handle to a call of another thread since the wait for this one ended.
void Tracer::drop(MPI_Request request, const PostedCall& posted) noexcept {
  const std::lock_guard lock(requests_mutex_);
  const auto found = requests_.find(key_of(request));
  if (found != requests_.end() && found->second.ticket == posted.known_by) requests_.erase(found);
}

void Tracer::fail(MPI_Request request, const PostedCall& posted, int error) noexcept {
  fail(posted.ticket, error);
  drop(request, posted);
}

void Tracer::complete(MPI_Request request, const PostedCall& posted) noexcept {
  recorder_.complete(posted.ticket);
  drop(request, posted);
  if (posted.made != nullptr) add(*posted.made, posted.id_of_made);
}

bool Tracer::is_main_thread() const noexcept { return main_depth_ == &depth(); }

bool Tracer::polls_in_vain() noexcept {
  if (!is_main_thread()) return false;
  const auto finding = poll_meter_.found_nothing(recorder_.recorded());
  if (finding == PollMeter::Finding::busy) {
    stop_polls();
    poll_meter_.begin_interval(recorder_.recorded());
  }
  return finding == PollMeter::Finding::waits;
}

void Tracer::polled(MPI_Request request, PostedCall posted) noexcept try {
  if (posted.ticket == 0 || std::ranges::find(polled_, posted.ticket) != polled_.end()) return;
  if (polled_.empty()) polled_since_ = poll_meter_.begin_ticks();
  if (!recorder_.poll(posted.ticket, polled_since_)) {
    posted.ticket = recorder_.enqueue_again(posted.call);
    remember(request, posted);
    recorder_.poll(posted.ticket, polled_since_);
  }
  polled_.push_back(posted.ticket);
} catch (...) {  // out of memory: that it waits is not seen
}

void Tracer::polls_told() noexcept {
  recorder_.tick();
  poll_meter_.begin_interval(recorder_.recorded());
}

void Tracer::stop_polls() noexcept {
  for (const Ticket ticket : polled_) recorder_.suspend(ticket);
  polled_.clear();
}

void Tracer::prepare(MPI_Request request, const trace::RecordedCall& call) noexcept try {
  const std::lock_guard lock(requests_mutex_);
  persistent_.insert_or_assign(key_of(request), call);
} catch (...) {  // out of memory: it is not recorded
}

void Tracer::prepare(MPI_Request request, trace::RecordedCall call, const Communicator& parent,
                     std::uint64_t sequence) noexcept try {
  constexpr std::uint32_t most =
      trace::recorder_format::communicator_slots / 2;  // the program's own communicators need the rest
  call.communicator = trace::recorder_format::no_slot;
  {
    const std::lock_guard lock(mutex_);
    if (persistent_slots_ < most && parent.id != 0) {
      const std::string name = text::concat({"persistent ", trace::name_of(call.operation), " #",
                                             std::to_string(sequence), " of ", name_of_members(parent.world_ranks)});
      const std::uint64_t id = digest(digest(digest(world_id, parent.id), sequence), parent.world_ranks.front());
      const auto size = static_cast<std::uint32_t>(parent.world_ranks.size());
      call.communicator = recorder_.add_communicator({id, parent.rank, size, name, parent.slot, parent.world_ranks});
    }
    if (call.communicator != trace::recorder_format::no_slot) ++persistent_slots_;
  }
  prepare(request, call);
} catch (...) {  // out of memory: it is not recorded
}

Ticket Tracer::started(MPI_Request request) noexcept {
  std::optional<trace::RecordedCall> call;
  {
    const std::lock_guard lock(requests_mutex_);
    const auto found = persistent_.find(key_of(request));
    if (found != persistent_.end()) {
      if (trace::recorder_format::is_collective(found->second.operation)) ++found->second.sequence;
      call = found->second;
    }
  }
  if (!call) return 0;
  const Ticket ticket = recorder_.enqueue(*call);
  remember(request, {.ticket = ticket, .call = *call});
  return ticket;
}

void Tracer::free(MPI_Request request) noexcept {
  std::optional<trace::RecordedCall> call;
  {
    const std::lock_guard lock(requests_mutex_);
    const auto found = persistent_.find(key_of(request));
    if (found == persistent_.end()) return;
    call = found->second;
    persistent_.erase(found);
  }
  if (!trace::recorder_format::is_collective(call->operation) || call->communicator == trace::recorder_format::no_slot)
    return;
  const std::lock_guard lock(mutex_);
  recorder_.close_communicator(call->communicator);
  --persistent_slots_;
}

}  // namespace amldist::trace::mpi
