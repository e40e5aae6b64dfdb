// What a communicator makes beside the program: calls that do not wait, and the messages of users.
//
// Two kinds, two ways. Calls that all ranks make come one after the other, in their order: that is what ranks agree on.
// Sends and receives of host buffers are taken up at once and move on their own, whatever call is being made: a rank
// may do anything between the two directions of an exchange. Messages of device buffers are calls on a stream; those
// that stand together are made as one.
#include "collective/communicator/call_watchdog.hpp"
#include "collective/communicator/message_traffic.hpp"
#include "core/text.hpp"

namespace amldist::collective {

using text::concat;

Result<void> Communicator::make_messages(std::span<Call> messages) {
  const bool of_device =
      std::ranges::any_of(messages, [this](const Call& call) { return device_of_buffers(call).has_value(); });
  if (of_device) drain();
  if (of_device || !has_work()) return perform_group(messages);
  std::vector<std::shared_ptr<Request>> requests;
  for (const Call& message : messages) requests.push_back(enqueue({message}));
  Result<void> all;
  for (const auto& request : requests) {
    request->wait();
    if (all && !request->result()) all = request->result();
  }
  return all;
}

Result<std::shared_ptr<Request>> Communicator::begin(std::vector<Call> calls, Worker worker) {
  if (group_depth_ > 0) {
    return Error{Errc::invalid_argument, concat({"i", to_string(calls.front().operation),
                                                 " inside a group: use the blocking call, "
                                                 "amldist_group_end() runs it"})};
  }
  for (Call& call : calls) {
    if (auto fine = check(call); !fine) return fine.error();
    call.stream = stream_;
  }
  has_begun_ = true;
  return enqueue(std::move(calls), worker);
}

std::shared_ptr<Request> Communicator::enqueue(std::vector<Call> calls, Worker worker) {
  const bool is_message = is_point_to_point(calls.front().operation) && !device_of_buffers(calls.front());
  auto request = std::make_shared<Request>(std::move(calls),
                                           [this](const Request& one, bool to_the_end) { pursue(one, to_the_end); });
  {
    const std::lock_guard lock(mutex_);
    if (is_message) arriving_.push_back(request);
    else queue_.push_back(request);
    if (is_message) has_arrivals_.store(true, std::memory_order_release);
    // Where the back end is only for the program's own thread, calls run when that next waits for one.
    const bool is_wanted = worker == Worker::woken && backend_->serves_any_thread();
    if (is_wanted && !worker_.joinable()) worker_ = std::thread([this] { work(); });
  }
  if (worker == Worker::woken) for_worker_.notify_one();
  if (is_message) backend_->messages().interrupt();
  return request;
}

bool Communicator::is_busy() {
  const std::lock_guard lock(mutex_);
  return !is_idle();
}

/// Messages of device buffers begin when somebody waits for one of them, or for what comes behind: those begun together
/// run as one, and cannot wait for each other across two ranks.
bool Communicator::can_begin_call() const {
  return !queue_.empty() && (wanted_ || !is_point_to_point(queue_.back()->first().operation) ||
                             !is_point_to_point(queue_.front()->first().operation));
}

/// The first call, or all messages in front.
std::vector<std::shared_ptr<Request>> Communicator::next_calls() {
  std::vector<std::shared_ptr<Request>> calls;
  if (!can_begin_call()) return calls;
  do {
    calls.push_back(queue_.front());
    queue_.pop_front();
  } while (!queue_.empty() && is_point_to_point(calls.front()->first().operation) &&
           is_point_to_point(queue_.front()->first().operation));
  wanted_ = wanted_ && !queue_.empty();
  return calls;
}

/// A request is done when the device is, too.
Result<void> Communicator::perform_to_the_end(const std::vector<std::shared_ptr<Request>>& requests) {
  Result<void> result;
  if (requests.size() == 1) {
    for (Call call : requests.front()->calls()) {
      if (result) result = perform(call);
    }
  } else {
    std::vector<Call> messages;
    for (const auto& request : requests) messages.push_back(request->first());
    result = perform_group(messages);
  }
  return result ? synchronize(requests.front()->first().stream) : result;
}

/// One step of what was begun: takes new messages up, then makes the next call or moves messages.
void Communicator::turn(std::unique_lock<std::mutex>& lock, int& idle) {
  working_ = true;
  const auto arrived = std::exchange(arriving_, {});
  has_arrivals_.store(false, std::memory_order_relaxed);
  const auto calls = next_calls();
  lock.unlock();
  for (const auto& message : arrived) traffic_->post(message);
  if (!calls.empty()) {
    const auto result = perform_to_the_end(calls);
    for (const auto& request : calls) request->complete(result);
  }
  idle = traffic_->progress() || !calls.empty() ? 0 : idle + 1;
  if (idle > 0) traffic_->rest(idle);
  lock.lock();
  working_ = false;
  under_way_ = traffic_->size();
  changed_.notify_all();
}

bool Communicator::has_turn_for_worker() const {
  return !working_ && !helped_ && (can_begin_call() || !arriving_.empty() || under_way_ != 0);
}

void Communicator::work() {
  std::unique_lock lock(mutex_);
  for (int idle = 0;;) {
    for_worker_.wait(lock, [this] { return stopping_ || has_turn_for_worker(); });
    if (stopping_) return;
    turn(lock, idle);
  }
}

/// Somebody waits for a request. Whoever waits to the end makes the turns: that costs no change of threads, and the
/// processor that it runs on is free.
void Communicator::pursue(const Request& request, bool to_the_end) {
  std::unique_lock lock(mutex_);
  wanted_ = !queue_.empty();
  const bool has_worker = worker_.joinable();
  if (has_worker && !to_the_end) return for_worker_.notify_one();
  helped_ = true;
  if (has_worker && working_) backend_->messages().interrupt();
  int idle = 0;
  do {
    if (working_) changed_.wait(lock, [this] { return !working_; });
    else turn(lock, idle);
  } while (!request.is_done() && (to_the_end || !queue_.empty()));
  helped_ = false;
  if (has_turn_for_worker()) for_worker_.notify_one();
}

void Communicator::serve_messages() {
  if (!traffic_) return;
  if (has_arrivals_.load(std::memory_order_acquire)) {
    std::vector<std::shared_ptr<Request>> arrived;
    {
      const std::lock_guard lock(mutex_);
      arrived.swap(arriving_);
      has_arrivals_.store(false, std::memory_order_relaxed);
    }
    for (const auto& message : arrived) traffic_->post(message);
  }
  traffic_->progress();
}

void Communicator::let_mpi_move_on() {
  const MpiSession* const mpi = process_->mpi.get();
  if (mpi == nullptr || mpi->comm() == 0 || !backend_) return;
  // A back end that any thread may use is used by other threads than MPI may know.
  if (mpi->serves_any_thread() || !backend_->serves_any_thread()) mpi->functions().move_on();
}

void Communicator::drain() {
  std::unique_lock lock(mutex_);
  wanted_ = !queue_.empty();
  for (int idle = 0; !is_idle();) {
    if (working_) changed_.wait(lock, [this] { return !working_; });
    else turn(lock, idle);
  }
}

std::uint64_t Communicator::number_message(const Call& message, bool of_device) noexcept {
  if (!of_device && message.operation == Operation::send) ++sent_[static_cast<std::size_t>(message.root)];
  if (!of_device && message.operation == Operation::recv) ++received_;
  return ++messages_;
}

Result<void> Communicator::settle_messages(const Call& call, CallWatchdog& watchdog) {
  std::uint64_t due = 0;
  Call tally = call;
  tally.operation = Operation::reduce_scatter;
  tally.type = DataType::uint64;
  tally.count = 1;
  tally.send = sent_.data();
  tally.recv = &due;
  if (auto told = backend_->run(tally, watchdog); !told) return told;
  // One rank that has left something, and how much.
  const std::uint64_t left = due - std::min(due, received_);
  std::uint64_t found =
      left == 0 ? 0 : (std::uint64_t{watch_->rank()} + 1) << 32 | std::min<std::uint64_t>(left, UINT32_MAX);
  tally.operation = Operation::allreduce;
  tally.redop = ReduceOp::max;
  tally.send = tally.recv = &found;
  if (auto told = backend_->run(tally, watchdog); !told || found == 0) return told;
  const auto rank = static_cast<std::uint32_t>((found >> 32) - 1);
  const std::uint64_t number = found & UINT32_MAX;
  const std::string sentence =
      concat({"rank ", std::to_string(rank), " (", host(rank), ") came to ", collective::describe(call),
              " without having received ", std::to_string(number),
              number == 1 ? " message that was sent to it" : " messages that were sent to it"});
  if (watch_->rank() == 0) process_->channel->tell(sentence);
  return Error{Errc::peer, sentence};
}

// ---- groups ----
Result<void> Communicator::group_begin() {
  ++group_depth_;
  return {};
}

Result<void> Communicator::group_end() {
  if (group_depth_ == 0) return Error{Errc::invalid_argument, "amldist_group_end() without amldist_group_begin()"};
  if (--group_depth_ > 0) return {};
  Result<void> done = make_group();
  group_.clear();
  return done;
}

/// Calls of all ranks in their order, then the messages together.
Result<void> Communicator::make_group() {
  const auto is_collective = [](const Call& call) { return !is_point_to_point(call.operation); };
  for (Call& call : group_) {
    if (!is_collective(call)) continue;
    if (auto done = make(call); !done) return done;
  }
  std::erase_if(group_, is_collective);
  return group_.empty() ? Result<void>() : make_messages(group_);
}

}  // namespace amldist::collective
