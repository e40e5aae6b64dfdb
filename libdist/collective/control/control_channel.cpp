#include "collective/control/control_channel.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "core/text.hpp"

namespace amldist::collective {
namespace {

using std::chrono::milliseconds;
using text::concat;

/// How long a rank may take to say what it is doing before it counts as silent.
milliseconds grace_of(milliseconds timeout) { return std::clamp(timeout / 3, milliseconds(300), milliseconds(1000)); }

void write_to_stderr(const std::string& line) {
  const std::string whole = line + "\n";
  static_cast<void>(!::write(STDERR_FILENO, whole.data(), whole.size()));  // one write: lines of ranks do not mix
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
      links_(world_,
             {[this](FileDescriptor connection, Frame frame) { on_greeting(std::move(connection), std::move(frame)); },
              [this](ControlLink& link, Frame& frame) { handle(link, frame); },
              [this](std::uint32_t rank, bool left) { mark_gone(rank, left ? Liveness::left : Liveness::dead); }}),
      detector_(*this),
      gone_(world_.size),
      log_(write_to_stderr) {
  const BlockedSignals blocked;
  thread_ = std::thread([this] { run(); });
}

ControlChannel::~ControlChannel() {
  post([this] {
    links_.say_goodbye();
    stopping_.store(true, std::memory_order_release);
  });
  thread_.join();
}

void ControlChannel::run() {
  while (!stopping_.load(std::memory_order_acquire)) serve_once();
  linger();
}

/// A verdict that this rank gave last may still wait for the other side's proof.
void ControlChannel::linger() {
  const auto end = Clock::now() + std::chrono::seconds(1);
  while (links_.has_unsent() && Clock::now() < end) {
    std::vector<pollfd> wanted;
    links_.add_to(wanted);
    constexpr int milliseconds = 10;
    static_cast<void>(::poll(wanted.data(), wanted.size(), milliseconds));
    links_.serve(wanted);
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
  static_cast<void>(!::write(wake_.get(), &one, sizeof one));
}

void ControlChannel::run_posted() {
  std::uint64_t count = 0;
  static_cast<void>(!::read(wake_.get(), &count, sizeof count));
  std::vector<std::function<void()>> actions;
  {
    const std::lock_guard lock(mutex_);
    actions.swap(posted_);
  }
  for (const auto& action : actions) action();
}

int ControlChannel::poll_timeout() const {
  const auto next = std::min({next_beat_, detector_.next_poll(), links_.next_deadline()});
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
  if ((wanted[0].revents & POLLIN) != 0) run_posted();
  detector_.poll();
  beat();
  links_.sweep();
}

void ControlChannel::beat() {
  if (Clock::now() < next_beat_) return;
  next_beat_ = Clock::now() + std::chrono::seconds(1);
  const std::lock_guard lock(heartbeat_mutex_);
  if (heartbeat_) heartbeat_();
}

void ControlChannel::mark_gone(std::uint32_t world_rank, Liveness standing) {
  std::uint8_t there = 0;
  if (!gone_[world_rank].compare_exchange_strong(there, static_cast<std::uint8_t>(standing))) return;
  gone_count_.fetch_add(1, std::memory_order_acq_rel);
  if (world_.rank != 0) return;
  const std::string news =
      FrameWriter(FrameKind::lost).number(world_rank).number(static_cast<std::uint64_t>(standing)).take();
  links_.send_to_all_but(world_rank, news);
}

void ControlChannel::send_to(std::uint32_t world_rank, const std::string& frame) {
  if (!is_gone(world_rank) && !links_.send_to(world_rank, frame)) mark_gone(world_rank, Liveness::dead);
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
      return;
    case FrameKind::lost:
      return on_lost(frame);
    case FrameKind::report:
      return on_report(link, frame);
    case FrameKind::query:
      return on_query(link, frame);
    case FrameKind::status:
      return detector_.take_status(link.rank, frame);
    case FrameKind::verdict:
      return on_verdict(frame);
    case FrameKind::piece:
      return on_piece(link.rank, frame);
    case FrameKind::pieces:
      return on_pieces(frame);
    default:
      return;  // of a later release: nothing that this one must know
  }
}

/// The greeting of a later connection, whose other end has proven that it belongs to this world.
void ControlChannel::on_greeting(FileDescriptor connection, Frame frame) {
  const auto kind = frame.kind<FrameKind>();
  if (kind == FrameKind::data_greeting) return on_data_greeting(std::move(connection), frame);
  const std::uint64_t rank = frame.number();
  if (kind != FrameKind::rank_greeting || rank >= world_.size || frame.is_short()) return;
  links_.add(static_cast<std::uint32_t>(rank), std::move(connection));
}

void ControlChannel::on_data_greeting(FileDescriptor connection, Frame& frame) {
  const std::uint64_t comm = frame.number();
  const std::uint64_t rank = frame.number();
  if (rank >= world_.size || frame.is_short()) return;
  // The other side sends data only after this byte: what it sent until now is ours alone.
  if (::send(connection.get(), "", 1, MSG_NOSIGNAL) != 1) return;
  const std::lock_guard lock(mutex_);
  data_.insert_or_assign({comm, static_cast<std::uint32_t>(rank)}, std::move(connection));
  came_.notify_all();
}

void ControlChannel::on_lost(Frame& frame) {
  const std::uint64_t rank = frame.number();
  const auto standing = static_cast<Liveness>(frame.number());
  if (rank < world_.size && rank != world_.rank) mark_gone(static_cast<std::uint32_t>(rank), standing);
}

void ControlChannel::on_report(const ControlLink& link, Frame& frame) {
  const auto watch = find(frame.number());
  DiagnosisTrigger trigger;
  trigger.reporter = static_cast<std::uint32_t>(frame.number());
  trigger.waits_for = static_cast<int>(static_cast<std::int64_t>(frame.number()));
  trigger.differs = frame.number() != 0;
  const milliseconds grace(frame.number());
  trigger.detail = frame.text();
  if (!watch || trigger.reporter >= watch->members().size()) return;
  if (const auto verdict = watch->verdict()) {  // the news and the report crossed
    send_to(link.rank, verdict_frame(*watch, *verdict));
    return;
  }
  detector_.open(watch, trigger, grace, true);
}

void ControlChannel::on_query(ControlLink& link, Frame& frame) {
  const std::uint64_t id = frame.number();
  const auto watch = find(id);
  send_to(link.rank, status_frame(id, watch.get()));
}

void ControlChannel::on_verdict(Frame& frame) {
  const auto watch = find(frame.number());
  const auto code = static_cast<Errc>(frame.number());
  std::string sentence = frame.text();
  if (watch) watch->give_verdict({code, sentence});
  detector_.has_been_said(std::move(sentence));
}

void ControlChannel::on_piece(std::uint32_t world_rank, Frame& frame) {
  const GatherKey key = {frame.number(), frame.number()};
  const std::uint64_t rank = frame.number();
  const std::uint64_t size = frame.number();
  std::string piece = frame.text();
  if (frame.is_short() || rank >= size || size > world_.size) return;
  Gathering& gathering = gatherings_[key];
  gathering.pieces.resize(size);
  gathering.members.resize(size);
  gathering.pieces[rank] = std::move(piece);
  gathering.members[rank] = world_rank;
  if (!std::ranges::all_of(gathering.pieces, [](const auto& each) { return each.has_value(); })) return;
  FrameWriter all(FrameKind::pieces);
  all.number(key.first).number(key.second).number(size);
  for (const auto& each : gathering.pieces) all.text(*each);
  const std::string whole = all.take();
  const auto members = std::move(gathering.members);
  gatherings_.erase(key);
  for (const std::uint32_t member : members) {
    if (member != world_.rank) send_to(member, whole);
  }
  Frame own(whole.substr(wireup::frame_head));
  on_pieces(own);
}

void ControlChannel::on_pieces(Frame& frame) {
  const GatherKey key = {frame.number(), frame.number()};
  const std::uint64_t size = frame.number();
  std::vector<std::string> pieces;
  for (std::uint64_t i = 0; i < size && !frame.is_short(); ++i) pieces.push_back(frame.text());
  const std::lock_guard lock(mutex_);
  gathered_.insert_or_assign(key, std::move(pieces));
  came_.notify_all();
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
}

Error ControlChannel::find_out(const std::shared_ptr<CommWatch>& watch, const DiagnosisTrigger& trigger,
                               milliseconds timeout) {
  const milliseconds grace = grace_of(timeout);
  post([this, watch, trigger, grace] { detector_.open(watch, trigger, grace, false); });
  // One candidate after the other may be silent; after a few of them the verdict is given without a name.
  if (auto verdict = watch->wait_for_verdict(Clock::now() + grace * 6)) return *verdict;
  const Error own = {Errc::timeout, concat({"no rank answers for ", describe(watch->activity().call),
                                            ", which did not end before the deadline"})};
  watch->give_verdict(own);
  return *watch->verdict();
}

void ControlChannel::tell(const std::string& sentence) {
  post([this, sentence] { say(sentence); });
}

void ControlChannel::abort(const std::shared_ptr<CommWatch>& watch, const std::string& sentence) {
  post([this, watch, sentence] { detector_.announce(watch, {Errc::aborted, sentence}, false); });
  static_cast<void>(watch->wait_for_verdict(Clock::now() + std::chrono::seconds(1)));
}

Result<FileDescriptor> ControlChannel::make_data_connection(std::uint64_t id, std::uint32_t world_rank,
                                                            Watchdog& watchdog, int comm_rank) {
  const Member& member = world_.members[world_rank];
  const std::string greeting = FrameWriter(FrameKind::data_greeting).number(id).number(world_.rank).take();
  for (;;) {
    if (auto going_on = watchdog.keep_waiting(comm_rank); !going_on) return going_on.error();
    auto socket = connect_to(member.address, member.port, Clock::now() + milliseconds(250));
    if (!socket) {
      std::this_thread::sleep_for(milliseconds(10));
      continue;
    }
    const auto wait = [&]() -> Result<void> {
      while (!wait_until_ready(*socket, Readiness::read, Clock::now() + milliseconds(10))) {
        if (auto going_on = watchdog.keep_waiting(comm_rank); !going_on) return going_on;
      }
      return {};
    };
    wireup::JoinerHandshake handshake(links_.key(), greeting);
    const auto soon = [] { return Clock::now() + milliseconds(250); };
    if (auto sent = send_all(*socket, handshake.hello(), soon()); !sent) continue;
    if (auto waited = wait(); !waited) return waited.error();
    auto challenge = wireup::read_frame(*socket, wireup::limits.proof_bytes, soon());
    if (!challenge) continue;
    const auto proof = handshake.take(std::move(*challenge), wireup::Ends::as_joiner(*socket));
    if (!proof) continue;
    if (auto sent = send_all(*socket, *proof, soon()); !sent) continue;
    if (auto waited = wait(); !waited) return waited.error();
    char ready = 0;
    if (::recv(socket->get(), &ready, 1, 0) == 1) return socket;
  }
}

wireup::MessageCodes ControlChannel::codes_of(std::uint64_t id, std::uint32_t sender, std::uint32_t receiver) const {
  const std::string purpose =
      concat({"data of ", std::to_string(id), " from ", std::to_string(sender), " to ", std::to_string(receiver)});
  return {world_.integrity, links_.key().key().derive(purpose)};
}

FileDescriptor ControlChannel::take_data_connection(std::uint64_t id, std::uint32_t world_rank) {
  const std::lock_guard lock(mutex_);
  auto found = data_.extract({id, world_rank});
  return found ? std::move(found.mapped()) : FileDescriptor();
}

void ControlChannel::forget_data_connections(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  std::erase_if(data_, [id](const auto& each) { return each.first.first == id; });
}

Result<std::vector<std::string>> ControlChannel::gather_all(const std::shared_ptr<CommWatch>& watch,
                                                            std::uint64_t number, std::string piece,
                                                            Watchdog& watchdog) {
  const GatherKey key = {watch->id(), number};
  const std::uint32_t root = watch->members()[0];
  std::string frame = FrameWriter(FrameKind::piece)
                          .number(key.first)
                          .number(key.second)
                          .number(watch->rank())
                          .number(watch->members().size())
                          .text(piece)
                          .take();
  post([this, root, frame = std::move(frame)] {
    if (root != world_.rank) return send_to(root, frame);
    Frame own(frame.substr(wireup::frame_head));
    on_piece(root, own);
  });
  std::unique_lock lock(mutex_);
  for (;;) {
    if (auto found = gathered_.extract(key)) return std::move(found.mapped());
    came_.wait_for(lock, milliseconds(1));
    lock.unlock();
    auto going_on = watchdog.keep_waiting(Watchdog::anyone);
    lock.lock();
    if (!going_on) return going_on.error();
  }
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

}  // namespace amldist::collective
