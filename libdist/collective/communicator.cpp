#include "collective/communicator.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>

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
  return Error{Errc::invalid_argument, concat({"AMLDIST_TIMEOUT_MS=", text::quote(*value),
                                               " is no number of milliseconds from 1 on"})};
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
    return Error{Errc::mismatch, concat({told.source, " says ", what, " ", std::to_string(said), " for rank ",
                                         std::to_string(found.rank), " but the host names of all ranks say ",
                                         std::to_string(is)})};
  };
  if (differ(told.local_rank, found.local_rank)) return error("local rank", *told.local_rank, found.local_rank);
  if (differ(told.local_size, found.local_size)) return error("local size", *told.local_size, found.local_size);
  if (differ(told.node_rank, found.node_rank)) return error("node rank", *told.node_rank, found.node_rank);
  if (differ(told.nodes, found.nodes)) return error("nodes", *told.nodes, found.nodes);
  return {};
}

bool has_root(Operation operation) noexcept {
  return operation == Operation::reduce || operation == Operation::broadcast || operation == Operation::gather ||
         operation == Operation::scatter;
}

}  // namespace

// ------------------------------------------------------------------------------------------------------------- request
Request::Request(const Call& call) : call_(call) {
  std::span<const std::size_t>* const spans[4] = {&call_.send_counts, &call_.send_offsets, &call_.recv_counts,
                                                  &call_.recv_offsets};
  for (std::size_t i = 0; i < 4; ++i) {
    lists_[i].assign(spans[i]->begin(), spans[i]->end());
    *spans[i] = lists_[i];
  }
}

void Request::wait() {
  std::unique_lock lock(mutex_);
  came_.wait(lock, [this] { return is_done(); });
}

void Request::complete(Result<void> result) {
  const std::lock_guard lock(mutex_);
  result_ = std::move(result);
  done_.store(true, std::memory_order_release);
  came_.notify_all();
}

// --------------------------------------------------------------------------------------------------------------- vigil
/// The deadline is counted from the first look, a few microseconds after the call began: calls that do not wait never
/// ask the clock.
class Communicator::CallVigil final : public Vigil {
 public:
  explicit CallVigil(Communicator& owner) : owner_(owner) {}

  [[nodiscard]] Result<void> keep_waiting(int rank) override {
    if (owner_.watch_->is_lost()) return *owner_.watch_->verdict();
    if (owner_.channel_->is_anyone_gone() && is_gone_for_good(rank)) return find_out({own(), rank, false, {}});
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
    return owner_.channel_->find_out(owner_.watch_, occasion, timeout());
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
    if (rank != anyone) return owner_.channel_->is_gone(members[static_cast<std::size_t>(rank)]);
    return std::ranges::any_of(members, [this](std::uint32_t member) { return owner_.channel_->is_gone(member); });
  }

  Communicator& owner_;
  mutable Clock::time_point deadline_;
  int suspect_ = anyone;
  Clock::time_point suspected_at_;
};

// ------------------------------------------------------------------------------------------------------------ building
Communicator::Communicator(std::shared_ptr<ControlChannel> channel, std::shared_ptr<CommWatch> watch,
                           milliseconds timeout)
    : channel_(std::move(channel)), watch_(std::move(watch)), timeout_(timeout.count()) {}

Result<std::unique_ptr<Communicator>> Communicator::init(const EnvironmentReader& environment, milliseconds timeout) {
  const auto limit = effective_timeout(environment, timeout);
  if (!limit) return limit.error();
  const auto deadline = Clock::now() + *limit;
  const auto told = read_process_identity(environment);
  if (!told) return told.error();
  World world = lonely_world();
  if (told->size > 1) {
    auto point = choose_meeting_point(environment, *told);
    if (!point) return point.error();
    auto joined = join_world(*told, **point, job_name(environment), deadline);
    if (!joined) return joined.error();
    world = std::move(*joined);
  } else {
    world.provenance = told->source;
  }
  std::vector<std::uint32_t> members(world.size);
  for (std::uint32_t r = 0; r < world.size; ++r) members[r] = r;
  const std::uint32_t rank = world.rank;
  const std::uint64_t id = world.nonce;
  auto channel = std::make_shared<ControlChannel>(std::move(world));
  std::unique_ptr<Communicator> out(
      new Communicator(channel, std::make_shared<CommWatch>(id, std::move(members), rank), *limit));
  Call occasion;
  occasion.operation = Operation::init;
  if (auto built = out->build(occasion); !built) return built.error();
  if (auto same = check_places(*told, out->identity_); !same) return same.error();
  return out;
}

Result<void> Communicator::build(const Call& occasion) {
  channel_->add(watch_);
  watch_->enter(occasion);
  CallVigil vigil(*this);
  auto backend = HostBackend::create(*channel_, *watch_, [&](std::string piece) {
    return gather_all(std::move(piece), vigil);
  });
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
  for (const std::uint32_t member : watch_->members()) names.push_back(channel_->member(member).node);
  const Topology places = Topology::of(names, static_cast<int>(watch_->rank()));
  std::vector<std::uint32_t> node_of_rank(size);
  for (std::uint32_t n = 0; n < places.nodes.size(); ++n) {
    for (const int rank : places.nodes[n]) node_of_rank[static_cast<std::size_t>(rank)] = n;
  }
  const auto map = TaskMap::from_nodes_of_ranks(node_of_rank, static_cast<std::uint32_t>(places.nodes.size()));
  if (map) task_map_ = map->to_string();
  identity_ = {watch_->rank(), size, static_cast<std::uint32_t>(places.own_index),
               static_cast<std::uint32_t>(places.own_ranks().size()), static_cast<std::uint32_t>(places.own_node),
               static_cast<std::uint32_t>(places.nodes.size())};
  provenance_ = concat({channel_->provenance(), "; ", backend_->describe()});
}

Result<std::vector<std::string>> Communicator::gather_all(std::string piece, Vigil& vigil) {
  if (watch_->members().size() == 1) return std::vector<std::string>{std::move(piece)};
  return channel_->gather_all(watch_, gathers_++, std::move(piece), vigil);
}

Communicator::~Communicator() {
  drain();
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (worker_.joinable()) worker_.join();
  channel_->remove(*watch_);
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
  if (call.operation == Operation::broadcast) return call.recv == nullptr ? Result<void>(refuse("the buffer is NULL")) : Result<void>();
  if (sends && call.send == nullptr) return refuse("the buffer to send is NULL");
  if (gets && call.recv == nullptr) return refuse("the buffer to receive is NULL");
  return {};
}

Result<void> Communicator::refuse_if_lost() const {
  if (!watch_->is_lost()) return {};
  return Error{Errc::aborted, watch_->verdict()->message};
}

/// On the calling thread or the worker, never on both.
Result<void> Communicator::perform(Call& call) {
  if (auto healthy = refuse_if_lost(); !healthy) return healthy;
  call.sequence = is_point_to_point(call.operation) ? ++messages_ : ++collectives_;
  watch_->enter(call);
  CallVigil vigil(*this);
  auto result = backend_->run(call, vigil);
  watch_->leave();
  return result;
}

Result<void> Communicator::run(Call call) {
  if (auto fine = check(call); !fine) return fine;
  call.stream = stream_;
  if (group_depth_ > 0) {
    group_.push_back(call);
    return {};
  }
  if (worker_.joinable()) drain();
  return perform(call);
}

Result<std::shared_ptr<Request>> Communicator::begin(Call call) {
  if (group_depth_ > 0) {
    return Error{Errc::invalid_argument, concat({"i", to_string(call.operation), " inside a group: use the blocking call, "
                                                 "amldist_group_end() runs it"})};
  }
  if (auto fine = check(call); !fine) return fine.error();
  call.stream = stream_;
  auto request = std::make_shared<Request>(call);
  const std::lock_guard lock(mutex_);
  queue_.push_back(request);
  if (!worker_.joinable()) worker_ = std::thread([this] { work(); });
  changed_.notify_all();
  return request;
}

/// Runs the calls that do not wait, in order.
void Communicator::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const auto request = queue_.front();
    queue_.pop_front();
    working_ = true;
    lock.unlock();
    Call call = request->call();
    request->complete(perform(call));
    lock.lock();
    working_ = false;
    changed_.notify_all();
  }
}

void Communicator::drain() {
  std::unique_lock lock(mutex_);
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
  if (worker_.joinable()) drain();
  const std::vector<Call> calls = std::exchange(group_, {});
  std::vector<Call> messages;
  for (Call call : calls) {
    if (is_point_to_point(call.operation)) {
      messages.push_back(call);
    } else if (auto done = perform(call); !done) {
      return done;
    }
  }
  if (messages.empty()) return {};
  if (auto healthy = refuse_if_lost(); !healthy) return healthy;
  for (Call& message : messages) message.sequence = ++messages_;
  watch_->enter(messages.back());
  CallVigil vigil(*this);
  auto result = backend_->run_group(messages, vigil);
  watch_->leave();
  return result;
}

// --------------------------------------------------------------------------------------------------------------- split
Result<std::unique_ptr<Communicator>> Communicator::split(int color, int key) {
  if (group_depth_ > 0) return Error{Errc::invalid_argument, "split inside a group"};
  if (worker_.joinable()) drain();
  if (auto healthy = refuse_if_lost(); !healthy) return healthy.error();
  Call call;
  call.operation = Operation::split;
  call.sequence = ++collectives_;
  watch_->enter(call);
  CallVigil vigil(*this);
  const auto wishes = gather_all(concat({std::to_string(color), " ", std::to_string(key)}), vigil);
  watch_->leave();
  if (!wishes) return wishes.error();
  struct Wish {
    int key;
    std::uint32_t rank;
  };
  std::vector<Wish> chosen;
  for (std::uint32_t r = 0; r < wishes->size(); ++r) {
    const std::string& wish = (*wishes)[r];
    const auto space = wish.find(' ');
    int their_color = 0;
    Wish their = {0, r};
    std::from_chars(wish.data(), wish.data() + space, their_color);
    std::from_chars(wish.data() + space + 1, wish.data() + wish.size(), their.key);
    if (their_color == color) chosen.push_back(their);
  }
  ++splits_;
  if (color < 0) return std::unique_ptr<Communicator>();
  std::ranges::stable_sort(chosen, {}, &Wish::key);
  std::vector<std::uint32_t> members;
  std::uint32_t own = 0;
  for (const Wish& wish : chosen) {
    if (wish.rank == watch_->rank()) own = static_cast<std::uint32_t>(members.size());
    members.push_back(watch_->members()[wish.rank]);
  }
  std::uint64_t id = watch_->id();
  for (const std::uint64_t part : {splits_, static_cast<std::uint64_t>(static_cast<std::uint32_t>(color))}) {
    id = (id ^ (part + 1)) * 0x9e3779b97f4a7c15ULL;
    id ^= id >> 31;
  }
  std::unique_ptr<Communicator> out(new Communicator(
      channel_, std::make_shared<CommWatch>(id, std::move(members), own), milliseconds(timeout_.load())));
  if (auto built = out->build(call); !built) return built.error();
  return out;
}

// ----------------------------------------------------------------------------------------------------------------- rest
Result<void> Communicator::finalize() {
  drain();
  if (watch_->is_lost() || watch_->members().size() == 1) return {};
  Call call;
  call.operation = Operation::finalize;
  return perform(call);
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
  channel_->abort(watch_, concat({"the communicator was aborted by rank ", std::to_string(id.rank), " (", host(id.rank),
                                  ") in or after ", collective::describe(watch_->activity().call)}));
}

}  // namespace amldist::collective
