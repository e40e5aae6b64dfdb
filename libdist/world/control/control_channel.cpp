#include "world/control/control_channel.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <utility>

#include "base/net/congestion_control.hpp"
#include "base/text/text.hpp"
#include "base/time/observed_time.hpp"
#include "trace/diagnosis/call_words.hpp"
#include "world/wireup/join_request.hpp"

namespace amldist::world {
namespace {

using std::chrono::milliseconds;
using text::concat;

/// How long a rank may take to say what it is doing before it counts as silent.
milliseconds grace_of(milliseconds timeout) { return std::clamp(timeout / 3, milliseconds(300), milliseconds(600)); }

void write_to_stderr(const std::string& line) {
  const std::string whole = line + "\n";
  static_cast<void>(::write(STDERR_FILENO, whole.data(), whole.size()) == 0);  // one write: lines of ranks do not mix
}

/// If a task was killed, srun stops reading output once all tasks have ended (Slurm's step_launch.c,
/// slurm_step_launch_wait_finish). The line that names the dead rank would be lost, and what the program prints about
/// the error. So the process that printed the line ends half a second after the others.
void end_after_the_others() {
  static const int registered = std::atexit([] {
    static_cast<void>(std::fflush(nullptr));
    std::this_thread::sleep_for(milliseconds(500));
  });
  static_cast<void>(registered);
}

/// Of the gather that ends in a stop: the others are numbered from 0.
constexpr std::uint64_t number_of_stop = UINT64_MAX;
constexpr std::uint64_t most_polls = UINT64_MAX / 4;

/// Of an end that this process saw itself.
constexpr std::uint32_t no_teller = UINT32_MAX;

/// How long the news of ranks that have ended are collected, after others were sent.
constexpr milliseconds between_news(20);

std::vector<std::uint32_t> all_ranks(std::uint32_t size) {
  std::vector<std::uint32_t> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0U);
  return ranks;
}

/// Sorted news, without what `reader` said itself; empty if that is all.
template <typename News>
std::string lost_frame(const std::vector<News>& news, std::uint32_t reader) {
  struct Run {
    std::uint32_t first;
    std::uint32_t count;
    Liveness standing;
  };
  std::vector<Run> runs;
  for (const News& each : news) {
    if (each.from == reader || each.rank == reader) continue;
    const bool goes_on =
        !runs.empty() && runs.back().first + runs.back().count == each.rank && runs.back().standing == each.standing;
    if (goes_on) ++runs.back().count;
    else runs.push_back({each.rank, 1, each.standing});
  }
  if (runs.empty()) return {};
  FrameWriter writer(FrameKind::lost);
  writer.number(runs.size());
  for (const Run& run : runs)
    writer.number(run.first).number(run.count).number(static_cast<std::uint64_t>(run.standing));
  return writer.take();
}

/// Signals are delivered to the program's threads only.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

// ---- life of the thread ----
ControlChannel::ControlChannel(World world, bool is_under_srun)
    : world_(std::move(world)),
      is_under_srun_(is_under_srun),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      links_(
          world_,
          {[this](FileDescriptor connection, Frame frame) { on_join_request(std::move(connection), std::move(frame)); },
           [this](const FileDescriptor& connection, Frame frame) { on_latecomer(connection, std::move(frame)); },
           [this](ControlLink& link, Frame& frame) { handle(link, frame); },
           [this](std::uint32_t rank, bool left) {
             mark_gone(rank, left ? Liveness::left : Liveness::dead, no_teller);
           }}),
      detector_(*this),
      agreements_(*this, [this](std::uint64_t id) { return find(id); }),
      tree_(world_.table, all_ranks(world_.size)),
      gather_({[this](std::uint32_t rank, const std::string& frame) { send_to(rank, frame); },
               [this](const GatherKey& key, calls::Pieces pieces) { on_gathered(key, std::move(pieces)); }}),
      gone_(world_.size),
      log_(write_to_stderr) {
  const BlockedSignals blocked;
  thread_ = std::thread([this] { run(); });
}

ControlChannel::~ControlChannel() {
  post([this] {
    links_.say_goodbye(ending_.load(std::memory_order_acquire));
    stopping_.store(true, std::memory_order_release);
  });
  thread_.join();
}

void ControlChannel::run() {
  for (auto& [rank, frame] : world_.early) {
    ControlLink link;
    link.rank = rank;
    handle(link, frame);
  }
  believe_news();  // before the thread sleeps until something comes
  for (const std::uint32_t rank : world_.ended) mark_gone(rank, Liveness::dead, no_teller);
  while (!stopping_.load(std::memory_order_acquire)) serve_once();
  linger();
}

/// A diagnosis that this rank gave last may still wait for the other side's proof, or for those behind one that does
/// not hear it: whoever has not got it when all others are gone can only find that all others are gone. Two that want
/// to tell each other need each to be let in.
void ControlChannel::linger() {
  const auto end = Clock::now() + std::chrono::seconds(2);
  const auto is_silent = [this](std::uint32_t rank) { return detector_.is_silent(rank); };
  while ((detector_.is_telling() || links_.has_unsent(is_silent)) && Clock::now() < end) {
    std::vector<pollfd> wanted = {{world_.listener.get(), POLLIN, 0}};
    links_.add_to(wanted);
    constexpr int milliseconds = 10;
    static_cast<void>(::poll(wanted.data(), wanted.size(), milliseconds));
    links_.serve(std::span(wanted).subspan(1));
    if ((wanted[0].revents & POLLIN) != 0) links_.accept_all();
    believe_news();
    detector_.poll();
    links_.sweep();
  }
}

void ControlChannel::post(std::function<void()> action) {
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(action));
  }
  wake();
}

void ControlChannel::wake() noexcept {
  const std::uint64_t one = 1;
  static_cast<void>(::write(wake_.get(), &one, sizeof one) == 0);
}

void ControlChannel::run_posted() {
  std::uint64_t count = 0;
  static_cast<void>(::read(wake_.get(), &count, sizeof count) == 0);
  std::vector<std::function<void()>> actions;
  {
    const std::lock_guard lock(mutex_);
    actions.swap(posted_);
  }
  for (const auto& action : actions) action();
}

int ControlChannel::poll_timeout() const {
  const auto next =
      std::min({next_beat_, detector_.next_poll(), agreements_.next_poll(), links_.next_deadline(), news_due_});
  if (next == Clock::time_point::max()) return -1;
  const auto left = std::chrono::duration_cast<milliseconds>(next - Clock::now()).count();
  return static_cast<int>(std::clamp<long long>(left + 1, 0, 1000));
}

void ControlChannel::serve_once() {
  std::vector<pollfd> wanted = {{wake_.get(), POLLIN, 0}, {world_.listener.get(), POLLIN, 0}};
  links_.add_to(wanted);
  static_cast<void>(::poll(wanted.data(), wanted.size(), poll_timeout()));
  links_.serve(std::span(wanted).subspan(2));
  if ((wanted[1].revents & POLLIN) != 0) links_.accept_all();
  believe_news();
  if ((wanted[0].revents & POLLIN) != 0) run_posted();
  detector_.poll();
  agreements_.poll();
  spread_news();
  beat();
  links_.sweep();
}

void ControlChannel::beat() {
  if (Clock::now() < next_beat_) return;
  next_beat_ = Clock::now() + std::chrono::seconds(1);
  const std::lock_guard lock(heartbeat_mutex_);
  if (heartbeat_) heartbeat_();
}

void ControlChannel::mark_gone(std::uint32_t world_rank, Liveness standing, std::uint32_t from) {
  std::uint8_t there = 0;
  if (world_rank == world_.rank || world_rank >= world_.size) return;
  if (!gone_[world_rank].compare_exchange_strong(there, static_cast<std::uint8_t>(standing))) return;
  gone_count_.fetch_add(1, std::memory_order_acq_rel);
  ended_.push_back(world_rank);
  if (standing == Liveness::left && ending_.load(std::memory_order_acquire)) return;
  news_.push_back({world_rank, standing, from});
  news_due_ = std::min(news_due_, std::max(Clock::now(), news_sent_ + between_news));
}

/// Along the tree, in batches: where many ranks end together, nobody hears of each in a message of its own. The
/// neighbours are those of the tree without the ranks that are gone, which so get connected.
void ControlChannel::spread_news() {
  if (Clock::now() < news_due_) return;
  news_due_ = Clock::time_point::max();
  news_sent_ = Clock::now();
  std::vector<News> news = std::exchange(news_, {});  // sending may find others gone
  std::ranges::sort(news);
  const auto is_out = [this](std::uint32_t rank) { return is_gone(rank); };
  auto neighbours = tree_.children_of(world_.rank, is_out);
  if (const auto parent = tree_.parent_of(world_.rank, is_out)) neighbours.push_back(*parent);
  for (const std::uint32_t neighbour : neighbours) {
    const std::string frame = lost_frame(news, neighbour);
    if (!frame.empty()) send_to(neighbour, frame);
  }
}

void ControlChannel::send_to(std::uint32_t world_rank, const std::string& frame) {
  if (!is_gone(world_rank) && !links_.send_to(world_rank, frame)) mark_gone(world_rank, Liveness::dead, no_teller);
}

std::string ControlChannel::name_of(std::uint32_t world_rank) const {
  return trace::describe_rank(world_rank, table().local_ranks()[world_rank], host_of(world_rank));
}

std::optional<Liveness> ControlChannel::end_of(std::uint32_t world_rank) const noexcept {
  const std::uint8_t gone = gone_[world_rank].load(std::memory_order_acquire);
  return gone == 0 ? std::nullopt : std::optional(static_cast<Liveness>(gone));
}

void ControlChannel::say(const std::string& sentence) {
  LogFunction log;
  {
    const std::lock_guard lock(mutex_);
    log = log_;
  }
  log("aml-dist: " + sentence);
  if (is_under_srun_) end_after_the_others();
}

// ---- frames ----
void ControlChannel::handle(ControlLink& link, Frame& frame) {
  switch (frame.kind<FrameKind>()) {
    case FrameKind::bye:
      link.left = true;
      if (frame.number() != 0) ending_.store(true, std::memory_order_release);
      return;
    case FrameKind::lost:
      return on_lost(link, frame);
    case FrameKind::report:
    case FrameKind::query:
    case FrameKind::status:
    case FrameKind::pair_counts:
    case FrameKind::heard:
    case FrameKind::diagnosis:
      return on_case(link.rank, frame);
    case FrameKind::piece:
      return gather_.on_piece(frame);
    case FrameKind::pieces:
      return gather_.on_pieces(frame);
    case FrameKind::agreement:
      return agreements_.take(link.rank, frame);
    case FrameKind::stop:
      return on_stop(find(frame.number()));
    default:
      return;  // of a later release: nothing that this one must know
  }
}

/// The join request of a later connection, whose other end has proven that it belongs to this world.
void ControlChannel::on_join_request(FileDescriptor connection, Frame frame) {
  const auto kind = frame.kind<FrameKind>();
  if (kind == FrameKind::data_join) return on_data_join(std::move(connection), frame);
  const std::uint64_t rank = frame.number();
  if (kind != FrameKind::rank_join || rank >= world_.size || frame.is_short()) return;
  links_.add(static_cast<std::uint32_t>(rank), std::move(connection));
}

/// A process that comes as one of the ranks that are here. Of two jobs with one MASTER_PORT and no secret, rank 0 of
/// one and rank 1 of the other may have met: nothing tells them apart, until the second rank 1 comes. In the first
/// moments either may be the wrong one, so the world ends; later it is the one that comes.
void ControlChannel::on_latecomer(const FileDescriptor& connection, Frame frame) {
  const auto answer = [&](const std::string& text) { static_cast<void>(send_all(connection, text, Clock::now())); };
  const auto join_request = world::JoinRequest::parse(std::move(frame));
  if (!join_request || join_request->group != world_.late_joiners->group) return answer(world::elsewhere_frame());
  const auto& known = world_.late_joiners->process_of_rank;
  const auto rank = static_cast<std::uint32_t>(join_request->number);
  const bool is_here = join_request->number < known.size() && rank != world_.rank && !is_gone(rank);
  // A process that has left this world comes for the next one.
  if (!is_here || is_same_process(known[rank], join_request->process)) return answer(world::elsewhere_frame());
  const Error error = {Errc::mismatch, concat({"two processes came as rank ", std::to_string(rank), ": one from ",
                                               host_of(rank), ", and one from ", join_request->host,
                                               " when the world was complete: do two jobs have one MASTER_PORT?"})};
  answer(world::refused_frame(error));
  constexpr std::chrono::seconds first_moments(30);
  const bool ends = Clock::now() - born_ < first_moments;
  if (!std::exchange(has_told_of_latecomer_, true)) say(error.message);
  if (!ends) return;
  std::vector<std::shared_ptr<CommWatch>> watches;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, watch] : watches_) watches.push_back(watch);
  }
  for (const auto& watch : watches) detector_.announce(watch, error, false);
}

void ControlChannel::on_data_join(FileDescriptor connection, Frame& frame) {
  const std::uint64_t comm = frame.number();
  const std::uint64_t rank = frame.number();
  if (rank >= world_.size || frame.is_short()) return;
  // The other side sends data only after this byte: what it sent until now is ours alone.
  if (::send(connection.get(), "", 1, MSG_NOSIGNAL) != 1) return;
  const std::lock_guard lock(mutex_);
  data_.insert_or_assign({comm, static_cast<std::uint32_t>(rank)}, std::move(connection));
  came_.notify_all();
}

void ControlChannel::on_lost(const ControlLink& link, Frame& frame) {
  for (std::uint64_t runs = frame.number(); runs > 0 && !frame.is_short(); --runs) {
    const std::uint64_t first = frame.number();
    const std::uint64_t end = std::min<std::uint64_t>(first + frame.number(), world_.size);
    const std::uint64_t number = frame.number();
    const auto standing = number == static_cast<std::uint64_t>(Liveness::left) ? Liveness::left : Liveness::dead;
    if (number != static_cast<std::uint64_t>(standing)) continue;  // no end of a rank
    for (std::uint64_t rank = first; rank < end && !frame.is_short(); ++rank) {
      told_.push_back({static_cast<std::uint32_t>(rank), standing, link.rank});
    }
  }
}

/// The news of an end may come before what that rank sent last, which can be the diagnosis: that is read first.
void ControlChannel::believe_news() {
  while (!told_.empty()) {
    for (const News& each : std::exchange(told_, {})) {
      links_.read_from_rank(each.rank);
      mark_gone(each.rank, each.standing, each.from);
    }
  }
}

/// What concerns a call that did not end.
void ControlChannel::on_case(std::uint32_t from, Frame& frame) {
  const std::uint64_t id = frame.number();
  switch (frame.kind<FrameKind>()) {
    case FrameKind::report:
      return detector_.on_report(from, find(id), frame);
    case FrameKind::query:
      return detector_.on_query(from, id, find(id), frame);
    case FrameKind::status:
      return detector_.on_status(from, id, frame);
    case FrameKind::pair_counts:
      return detector_.on_pair_counts(from, id, frame);
    case FrameKind::heard:
      return detector_.on_heard(from, id, frame);
    default:
      return detector_.on_diagnosis(from, find(id), frame);
  }
}

// ---- for other threads ----
std::shared_ptr<CommWatch> ControlChannel::find(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto found = watches_.find(id);
  return found == watches_.end() ? nullptr : found->second;
}

void ControlChannel::add(const std::shared_ptr<CommWatch>& watch) {
  const std::lock_guard lock(mutex_);
  watches_.insert_or_assign(watch->id(), watch);
}

void ControlChannel::remove(const CommWatch& watch) {
  const std::lock_guard lock(mutex_);
  watches_.erase(watch.id());
  std::erase_if(gathered_, [&](const auto& each) { return each.first.communicator == watch.id(); });
  posted_.emplace_back([this, id = watch.id()] { gather_.forget(id); });  // in its own time
}

Error ControlChannel::find_out(const std::shared_ptr<CommWatch>& watch, const DiagnosisTrigger& trigger,
                               milliseconds timeout) {
  const milliseconds grace = grace_of(timeout);
  post([this, watch, trigger, grace] { detector_.open(watch, trigger, grace); });
  // One candidate after the other may be silent; after a few of them the diagnosis is given without a name. A name that
  // comes late, as on a machine with too much to do, is better. Time in which this process was stopped does not count.
  constexpr milliseconds look(50);
  constexpr milliseconds stop(300);
  ObservedTime observed(look, stop);
  auto end = Clock::now() + grace * 10;
  for (auto now = Clock::now(); now < end; now = Clock::now()) {
    end += observed.missed(now);
    if (auto diagnosis = watch->wait_for_diagnosis(std::min(end, now + look))) return *diagnosis;
  }
  const calls::Call call = watch->activity().call;
  const Error own = {Errc::timeout,
                     concat({describe(call), " did not end before the deadline, and no other rank answers"})};
  watch->give_diagnosis(own, {}, {-1, call.operation, call.sequence});
  return *watch->diagnosis();
}

void ControlChannel::open_agreement(const std::shared_ptr<CommWatch>& watch,
                                    const std::shared_ptr<AgreementTicket>& ticket, milliseconds timeout,
                                    milliseconds late_after) {
  // A rank may still wait in an earlier call for one that is silent. It comes when that call's deadline has passed,
  // which is no earlier than this one's, and it has found out for whom it waits.
  const milliseconds grace = grace_of(timeout);
  const Agreement::Limits times = {grace, late_after + 3 * grace};
  post([this, watch, ticket, times] { agreements_.open(watch, ticket, times); });
}

AgreementOutcome ControlChannel::agree(const std::shared_ptr<CommWatch>& watch,
                                       const std::shared_ptr<AgreementTicket>& ticket, std::uint64_t flags,
                                       std::uint64_t purposes) {
  post([this, watch, ticket, flags, purposes] { agreements_.arrive(*watch, *ticket, flags, purposes); });
  return ticket->wait();
}

void ControlChannel::tell(const std::string& sentence) { say(sentence); }

void ControlChannel::abort(const std::shared_ptr<CommWatch>& watch, const std::string& sentence) {
  post([this, watch, sentence] { detector_.announce(watch, {Errc::aborted, sentence}, false); });
  static_cast<void>(watch->wait_for_diagnosis(Clock::now() + std::chrono::seconds(1)));
}

Result<FileDescriptor> ControlChannel::make_data_connection(std::uint64_t id, std::uint32_t world_rank,
                                                            calls::Watchdog& watchdog, int comm_rank) {
  const std::string join_request = FrameWriter(FrameKind::data_join).number(id).number(world_.rank).take();
  for (;;) {
    if (auto status = watchdog.keep_waiting(comm_rank); !status) return status.error();
    auto socket = connect_to(world_.table.address_of(world_rank), world_.table.port_of(world_rank),
                             Clock::now() + milliseconds(250));
    if (!socket) {
      watchdog.troubled(comm_rank, socket.error().message);
      std::this_thread::sleep_for(milliseconds(10));
      continue;
    }
    const auto wait = [&]() -> Result<void> {
      while (!wait_until_ready(*socket, Readiness::read, Clock::now() + milliseconds(10))) {
        if (auto status = watchdog.keep_waiting(comm_rank); !status) return status;
      }
      return {};
    };
    world::JoinerHandshake handshake(links_.key(), join_request);
    const auto soon = [] { return Clock::now() + milliseconds(250); };
    if (auto sent = send_all(*socket, handshake.hello(), soon()); !sent) continue;
    if (auto status = wait(); !status) return status.error();
    auto challenge = world::read_frame(*socket, world::limits.proof_bytes, soon());
    if (!challenge) continue;
    const auto proof = handshake.take(std::move(*challenge), world::Ends::as_joiner(*socket));
    if (!proof) continue;
    if (auto sent = send_all(*socket, *proof, soon()); !sent) continue;
    if (auto status = wait(); !status) return status.error();
    char ready = 0;
    if (::recv(socket->get(), &ready, 1, 0) != 1) continue;
    watchdog.troubled(comm_rank, "");
    congestion_control::choose(*socket, world_.tcp_congestion);
    return socket;
  }
}

world::MessageCodes ControlChannel::codes_of(std::uint64_t id, std::uint32_t sender, std::uint32_t receiver) const {
  const std::string purpose =
      concat({"data of ", std::to_string(id), " from ", std::to_string(sender), " to ", std::to_string(receiver)});
  return {world_.integrity, links_.key().key().derive(purpose)};
}

FileDescriptor ControlChannel::take_data_connection(std::uint64_t id, std::uint32_t world_rank) {
  const std::lock_guard lock(mutex_);
  auto found = data_.extract({id, world_rank});
  if (!found) return {};
  congestion_control::choose(found.mapped(), world_.tcp_congestion);
  return std::move(found.mapped());
}

void ControlChannel::forget_data_connections(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  std::erase_if(data_, [id](const auto& each) { return each.first.first == id; });
}

Result<calls::Pieces> ControlChannel::gather_all(const std::shared_ptr<CommWatch>& watch, std::uint64_t number,
                                                 std::string piece, calls::GatherScope scope,
                                                 calls::Watchdog& watchdog) {
  const GatherKey key = {watch->id(), number};
  post([this, watch, key, scope, piece = std::move(piece)] { gather(watch, key, piece, scope); });
  std::unique_lock lock(mutex_);
  for (;;) {
    if (auto found = gathered_.extract(key)) return std::move(found.mapped());
    came_.wait_for(lock, milliseconds(10));  // for the watchdog: what is awaited wakes it
    lock.unlock();
    auto going_on = watchdog.keep_waiting(calls::Watchdog::anyone);
    lock.lock();
    if (!going_on) return going_on.error();
  }
}

void ControlChannel::gather(const std::shared_ptr<CommWatch>& watch, const GatherKey& key, std::string piece,
                            calls::GatherScope scope) {
  const auto& members = watch->members();
  const auto place = [&] {
    if (scope == calls::GatherScope::node) return neighbours_in_node(world_.table, members, world_.rank);
    return neighbours(members);
  };
  gather_.begin(key, watch->rank(), std::move(piece), place());
}

TreeGather::Neighbours ControlChannel::neighbours(const std::vector<std::uint32_t>& members) const {
  if (members.size() == world_.size) return neighbours_in_tree(tree_, world_.rank);
  return neighbours_in_tree(CommTree(world_.table, members), world_.rank);
}

void ControlChannel::on_gathered(const GatherKey& key, calls::Pieces pieces) {
  const auto watch = key.number == number_of_stop ? find(key.communicator) : nullptr;
  const std::lock_guard lock(mutex_);
  if (key.number == number_of_stop) {
    std::uint64_t last = 0;
    for (const calls::Pieces::Run& run : pieces.runs())
      last = std::max<std::uint64_t>(last, text::to_number(run.piece, most_polls).value_or(0));
    if (watch) watch->stop().decide(last + 1);
  } else {
    gathered_.insert_or_assign(key, std::move(pieces));
  }
  came_.notify_all();
}

// ---- stop ----
void ControlChannel::begin_stop(const std::shared_ptr<CommWatch>& watch) {
  post([this, watch] { on_stop(watch); });
}

/// A rank that has finalized the communicator is not there any more: no other one can be waiting then.
void ControlChannel::on_stop(const std::shared_ptr<CommWatch>& watch) {
  const auto polls = watch ? watch->stop().set_mark() : std::nullopt;
  if (!polls) return;
  auto around = neighbours(watch->members());
  const std::string frame = FrameWriter(FrameKind::stop).number(watch->id()).take();
  if (around.parent) send_to(*around.parent, frame);
  for (const std::uint32_t child : around.children) send_to(child, frame);
  gather_.begin({watch->id(), number_of_stop}, watch->rank(), std::to_string(*polls), std::move(around));
}

Result<void> ControlChannel::await_stop(CommWatch& watch, calls::Watchdog& watchdog) {
  std::unique_lock lock(mutex_);
  while (watch.stop().decided() == 0) {
    came_.wait_for(lock, milliseconds(10));  // for the watchdog: what is awaited wakes it
    lock.unlock();
    auto going_on = watchdog.keep_waiting(calls::Watchdog::anyone);
    lock.lock();
    if (!going_on) return going_on;
  }
  return {};
}

void ControlChannel::set_heartbeat(std::function<void()> heartbeat) {
  {
    const std::lock_guard lock(heartbeat_mutex_);
    heartbeat_ = std::move(heartbeat);
  }
  post([this] { next_beat_ = Clock::now(); });
}

void ControlChannel::set_log(LogFunction log) {
  const std::lock_guard lock(mutex_);
  log_ = log ? std::move(log) : LogFunction(write_to_stderr);
}

}  // namespace amldist::world
