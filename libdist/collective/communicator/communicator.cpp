#include "collective/communicator/communicator.hpp"

#include <algorithm>

#include "base/text/text.hpp"
#include "collective/communicator/call_check.hpp"
#include "collective/communicator/context/call_watchdog.hpp"
#include "collective/communicator/context/stop_request.hpp"
#include "collective/communicator/split_requests.hpp"

namespace amldist::collective {

using text::concat;

// ---- building ----
Communicator::Communicator(std::shared_ptr<Process> process, std::shared_ptr<world::CommWatch> watch,
                           milliseconds timeout)
    : process_(std::move(process)),
      context_(*process_->channel, std::move(watch), timeout),
      recorder_(*process_),
      numbers_(context_.size()),
      refused_(context_, numbers_, recorder_),
      gather_(context_),
      devices_(context_, gather_, recorder_, process_->cuda, process_->settings.nccl_library) {}

Result<void> Communicator::build(const calls::Call& call, calls::Watchdog& watchdog) {
  world::CommWatch& watch = context_.watch();
  process_->channel->add(context_.shared_watch());
  calls::Call before_the_first = call;
  before_the_first.sequence = 0;  // it has the number of a call on the parent: one of this group's own has that, too
  watch.enter(before_the_first);
  auto backend = HostBackend::create(
      *process_->channel, watch,
      [&](std::string piece, calls::GatherScope scope) {
        return gather_.gather_all(std::move(piece), watchdog, scope);
      },
      mpi(), process_->settings, watchdog);
  if (!backend) return backend.error();
  host_ = std::move(*backend);
  const bool tells = call.operation == calls::Operation::init && context_.rank() == 0 && !host_->fall_back().empty();
  if (tells) process_->channel->tell(host_->fall_back());
  connect_parts();
  watch.leave();
  describe_place();
  return {};
}

void Communicator::connect_parts() {
  const TickClock& ticks = process_->ticks;
  mpi_.emplace(mpi(), host_->serves_any_thread());
  messages_.emplace(PendingMessages::Owner{context_, numbers_, refused_, recorder_, *mpi_, ticks}, host_->messages());
  progress_.emplace(*messages_, *mpi_);
  runner_.emplace(
      CallRunner::Parts{context_, numbers_, refused_, recorder_, *host_, devices_, gather_, *progress_, ticks});
  engine_.emplace(*runner_, *messages_, host_->serves_any_thread(), process_->fork_guard);
}

void Communicator::describe_place() {
  const world::CommWatch& watch = context_.watch();
  // The nodes as the processes see them, even if memory cannot be shared.
  std::vector<std::uint32_t> where;
  for (const std::uint32_t member : watch.members()) where.push_back(process_->channel->table().node_of(member));
  const Topology places = Topology::of(where, static_cast<int>(watch.rank()));
  std::vector<std::uint32_t> node_of_rank(context_.size());
  for (std::uint32_t n = 0; n < places.nodes.size(); ++n) {
    for (const int rank : places.nodes[n]) node_of_rank[static_cast<std::size_t>(rank)] = n;
  }
  const auto map = launch::TaskMap::from_nodes_of_ranks(node_of_rank, static_cast<std::uint32_t>(places.nodes.size()));
  if (map) task_map_ = map->to_string();
  identity_ = {watch.rank(),
               context_.size(),
               static_cast<std::uint32_t>(places.own_index),
               static_cast<std::uint32_t>(places.own_ranks().size()),
               static_cast<std::uint32_t>(places.own_node),
               static_cast<std::uint32_t>(places.nodes.size())};
  const bool left_mpi = is_shrunk_ && process_->mpi && process_->mpi->carries_data();
  provenance_ = concat({process_->channel->provenance(), "; ", host_->describe(),
                        left_mpi ? " (not MPI, which cannot continue after a rank is lost)" : ""});
}

Communicator::~Communicator() {
  engine_.reset();
  devices_.stop_watching();
  process_->channel->remove(context_.watch());
  if (is_finalized_) close_recorder();
}

// ---- calls ----
Result<void> Communicator::run(calls::Call& call) {
  if (!passes_quick_check(call, identity_.size)) {
    if (auto status = check_call(call, context_.rank(), context_.size()); !status) return status;
  }
  call.stream = stream_;
  if (group_depth_ == 0) return run_in_order(call);
  if (call.lists != nullptr) call.lists = &lists_of_group_.emplace_back(*call.lists).view();
  group_.push_back(call);
  return {};
}

/// Runs on this thread, unless an earlier call is still in progress.
Result<void> Communicator::run_in_order(calls::Call& call) {
  if (ends_at_once(call)) return {};
  if (!engine_->has_work()) return runner_->run(call);
  if (is_on_device(call)) {
    engine_->drain();
    return runner_->run(call);
  }
  return result_of(submit(call));
}

/// Waits for what submit() returned.
Result<void> Communicator::result_of(const RequestPtr& request) {
  if (!request) return {};
  request->wait();
  return request->result();
}

/// Makes a message that takes no waiting.
bool Communicator::ends_at_once(calls::Call& call) {
  if (!is_point_to_point(call.operation)) return false;
  const Message message = HostBackend::message_of(call);
  const std::uint64_t now = read_clock(message);
  return !is_on_device(call, now) && engine_->try_message(call, message, now);
}

Result<void> Communicator::check_begin(const calls::Call& call) const {
  if (group_depth_ > 0) {
    return Error{Errc::invalid_argument, concat({"i", to_string(call.operation),
                                                 " inside a group: use the blocking call, "
                                                 "amldist_group_end() runs it"})};
  }
  return check_call(call, context_.rank(), context_.size());
}

Result<void> Communicator::begin(calls::Call& call, RequestPtr& request) {
  if (auto status = prepare(call); !status) return status;
  request = submit(call);
  return {};
}

Result<RequestPtr> Communicator::begin(std::vector<calls::Call> calls, ProgressBy by) {
  for (calls::Call& call : calls) {
    if (auto status = prepare(call); !status) return status.error();
  }
  return engine_->submit(std::move(calls), by);
}

[[gnu::always_inline]] inline RequestPtr Communicator::submit(calls::Call& call) {
  if (!is_point_to_point(call.operation)) return engine_->submit(call);
  const Message message = HostBackend::message_of(call);
  const bool on_device = is_on_device(call, read_clock(message));
  return on_device ? engine_->submit(call) : engine_->submit_message(call, message, clock_);
}

// ---- groups ----
Result<void> Communicator::group_begin() {
  ++group_depth_;
  return {};
}

Result<void> Communicator::group_end() {
  if (group_depth_ == 0) return Error{Errc::invalid_argument, "amldist_group_end() without amldist_group_begin()"};
  if (--group_depth_ > 0) return {};
  Result<void> done = run_group();
  group_.clear();
  lists_of_group_.clear();
  return done;
}

/// Runs calls of all ranks in their order, then the messages together.
Result<void> Communicator::run_group() {
  const auto is_collective = [](const calls::Call& call) { return !is_point_to_point(call.operation); };
  for (calls::Call& call : group_) {
    if (!is_collective(call)) continue;
    if (auto status = run_in_order(call); !status) return status;
  }
  std::erase_if(group_, is_collective);
  if (group_.empty()) return {};
  if (auto status = check_group(group_); !status) return status;
  return run_messages_in_order(group_);
}

Result<void> Communicator::run_messages_in_order(std::span<calls::Call> messages) {
  const bool on_device = std::ranges::any_of(messages, [this](const calls::Call& call) { return is_on_device(call); });
  if (on_device) engine_->drain();
  if (on_device || !engine_->has_work()) return runner_->run_group(messages);
  std::vector<RequestPtr> requests;
  for (calls::Call& message : messages) requests.push_back(submit(message));
  Result<void> all;
  for (const auto& request : requests) {
    auto result = result_of(request);
    if (all) all = std::move(result);
  }
  return all;
}

// ---- split ----
Result<std::unique_ptr<Communicator>> Communicator::split(int color, int key) {
  if (group_depth_ > 0) return Error{Errc::invalid_argument, "split inside a group"};
  const SplitRequest own = {color, key};
  std::vector<SplitRequest> requests(context_.size());
  calls::Call call;
  call.operation = calls::Operation::split;
  call.send = &own;
  call.recv = requests.data();
  if (auto status = run_in_order(call); !status) return status.error();
  call.sequence = numbers_.collectives();
  ++splits_;
  if (color < 0) return std::unique_ptr<Communicator>();
  std::vector<std::uint32_t> members;
  std::uint32_t own_rank = 0;
  for (const std::uint32_t rank : ranks_of_color(requests, color)) {
    if (rank == context_.rank()) own_rank = static_cast<std::uint32_t>(members.size());
    members.push_back(context_.watch().members()[rank]);
  }
  const std::uint64_t id = split_id(context_.watch().id(), splits_, color);
  std::unique_ptr<Communicator> out(new Communicator(
      process_, std::make_shared<world::CommWatch>(id, std::move(members), own_rank), context_.timeout()));
  out->is_shrunk_ = is_shrunk_;
  if (auto status = out->build(call); !status) return status.error();
  out->recorder_.add(out->context_.watch(), {}, recorder_.communicator());
  return out;
}

// ---- stop ----
Result<bool> Communicator::should_stop() {
  if (group_depth_ > 0) return Error{Errc::invalid_argument, "should_stop inside a group"};
  if (const auto reason = health()) return Error{Errc::aborted, reason->message};
  world::StopPolls& polls = context_.watch().stop();
  const auto poll = polls.begin();
  if (!poll.is_marked) {
    if (!has_begun_stop_ && stop_is_requested()) {
      has_begun_stop_ = true;
      context_.channel().begin_stop(context_.shared_watch());
    }
    return false;
  }
  if (polls.decided() == 0) {
    CallWatchdog watchdog(context_);  // nothing to drive: the control threads alone answer
    if (auto status = context_.channel().await_stop(context_.watch(), watchdog); !status) return status.error();
  }
  const bool stops = poll.number >= polls.decided();
  if (stops) note_stop();  // its other communicators stop, too
  return stops;
}

// ---- the end ----
Result<void> Communicator::finalize() {
  if (process_->mpi && process_->mpi->is_over() && !context_.is_lost()) {
    is_finalized_ = true;
    const Error late = {Errc::mismatch,
                        "amldist_finalize: the program has finalised MPI, which carries this communicator's messages: "
                        "call amldist_finalize() before MPI_Finalize()"};
    context_.watch().give_diagnosis(late);
    return late;
  }
  engine_->drain();
  devices_.await_all();
  is_finalized_ = true;
  if (context_.is_lost() || context_.size() == 1) return {};
  auto done = runner_->finalize();
  if (done && is_world_) process_->channel->end_together();
  if (done && is_world_ && mpi() != nullptr) process_->mpi->end_well();
  return done;
}

void Communicator::close_recorder() noexcept {
  recorder_.close();
  if (!keeps_recorder_ || process_->recorder == nullptr) return;
  process_->channel->set_heartbeat(nullptr);
  process_->recorder->leave(context_.is_lost() ? trace::FlightRecorder::Ending::failed
                                               : trace::FlightRecorder::Ending::well);
}

// ---- settings ----
Result<void> Communicator::set_timeout(milliseconds timeout) {
  if (timeout.count() < 0) return Error{Errc::invalid_argument, "amldist_set_timeout: the deadline is negative"};
  context_.set_timeout(timeout.count() == 0 ? Settings().world.timeout : timeout);
  return {};
}

void Communicator::abort() {
  process_->channel->abort(context_.shared_watch(),
                           concat({"the communicator was aborted by ", context_.name_of(identity_.rank),
                                   " in or after ", calls::describe(context_.watch().activity().call)}));
}

}  // namespace amldist::collective
