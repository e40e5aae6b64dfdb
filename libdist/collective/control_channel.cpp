#include "collective/control_channel.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>

#include "core/text.hpp"

namespace amldist::collective {
namespace {

using std::chrono::milliseconds;
using text::concat;

/// How long a rank may take to say what it is doing before it counts as silent.
milliseconds grace_of(milliseconds timeout) { return std::clamp(timeout / 4, milliseconds(200), milliseconds(1000)); }

/// Ranks that are still on their way to the call in question are asked again so often.
constexpr milliseconds ask_again(20);

void write_to_stderr(const std::string& line) {
  const std::string whole = line + "\n";
  static_cast<void>(!::write(STDERR_FILENO, whole.data(), whole.size()));  // one write: lines of ranks do not mix
}

/// Signals are for the program's threads.
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

void write_call(FrameWriter& writer, const Call& call) {
  writer.number(static_cast<std::uint64_t>(call.operation))
      .number(static_cast<std::uint64_t>(call.type))
      .number(static_cast<std::uint64_t>(call.redop))
      .number(static_cast<std::uint32_t>(call.root))
      .number(call.count)
      .number(call.sequence);
}

Call read_call(Frame& frame) {
  Call call;
  call.operation = static_cast<Operation>(frame.number());
  call.type = static_cast<DataType>(frame.number());
  call.redop = static_cast<ReduceOp>(frame.number());
  call.root = static_cast<int>(static_cast<std::uint32_t>(frame.number()));
  call.count = frame.number();
  call.sequence = frame.number();
  return call;
}

}  // namespace

// ---------------------------------------------------------------------------------------------------- life of the
// thread
ControlChannel::ControlChannel(World world)
    : world_(std::move(world)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      gone_(world_.size),
      log_(write_to_stderr) {
  for (std::size_t i = 0; i < world_.links.size(); ++i) {
    if (!world_.links[i]) continue;
    auto link = std::make_unique<Link>();
    link->socket = std::move(world_.links[i]);
    link->received = std::move(world_.unread[i]);
    link->rank = static_cast<std::uint32_t>(i);
    links_.push_back(std::move(link));
  }
  const BlockedSignals blocked;
  thread_ = std::thread([this] { run(); });
}

ControlChannel::~ControlChannel() {
  post([this] {
    for (const auto& link : links_) {
      if (link->rank) link->to_send += FrameWriter(FrameKind::bye).take();
      write_to(*link);
    }
    stopping_.store(true, std::memory_order_release);
  });
  thread_.join();
}

void ControlChannel::run() {
  while (!stopping_.load(std::memory_order_acquire)) serve_once();
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
  auto next = next_beat_;
  for (const Case& current : cases_) {
    next = std::min(next, current.coordinating ? std::min(current.next, current.asked + ask_again) : current.next);
  }
  if (next == Clock::time_point::max()) return -1;
  const auto left = std::chrono::duration_cast<milliseconds>(next - Clock::now()).count();
  return static_cast<int>(std::clamp<long long>(left + 1, 0, 1000));
}

void ControlChannel::serve_once() {
  std::vector<pollfd> wanted = {{wake_.get(), POLLIN, 0}, {world_.listener.get(), POLLIN, 0}};
  for (const auto& link : links_) {
    const bool writes = link->connecting || !link->to_send.empty();
    wanted.push_back({link->socket.get(), static_cast<short>(writes ? POLLIN | POLLOUT : POLLIN), 0});
  }
  static_cast<void>(::poll(wanted.data(), wanted.size(), poll_timeout()));
  const std::size_t known = links_.size();
  for (std::size_t i = 0; i < known; ++i) {
    const short events = wanted[i + 2].revents;
    if ((events & (POLLOUT | POLLERR)) != 0) write_to(*links_[i]);
    if (links_[i]->socket && (events & (POLLIN | POLLHUP | POLLERR)) != 0) read_from(*links_[i]);
  }
  if ((wanted[1].revents & POLLIN) != 0) accept_all();
  if ((wanted[0].revents & POLLIN) != 0) run_posted();
  look_at_cases();
  beat();
  sweep();
}

void ControlChannel::beat() {
  if (Clock::now() < next_beat_) return;
  next_beat_ = Clock::now() + std::chrono::seconds(1);
  std::function<void()> heartbeat;
  {
    const std::lock_guard lock(mutex_);
    heartbeat = heartbeat_;
  }
  if (heartbeat) heartbeat();
}

void ControlChannel::accept_all() {
  while (FileDescriptor socket = accept_on(world_.listener)) {
    links_.push_back(std::make_unique<Link>());
    links_.back()->socket = std::move(socket);
  }
}

void ControlChannel::sweep() {
  std::erase_if(links_, [](const auto& link) { return !link->socket; });
}

// --------------------------------------------------------------------------------------------------------------- bytes
void ControlChannel::read_from(Link& link) {
  const bool open = receive_available(link.socket, link.received);
  bool broken = false;
  while (link.socket) {
    auto frame = take_frame(link.received, broken);
    if (!frame) break;
    handle(link, *frame);
  }
  if (link.socket && (!open || broken)) drop(link);
}

void ControlChannel::write_to(Link& link) {
  link.connecting = false;
  while (link.socket && !link.to_send.empty()) {
    const ssize_t sent = ::send(link.socket.get(), link.to_send.data(), link.to_send.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      link.to_send.erase(0, static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN || errno == EINTR) {
      return;
    } else {  // the end shows on the reading side, behind what the peer said before it went
      link.to_send.clear();
    }
  }
}

/// The connection has ended. Without a goodbye the process has, too.
void ControlChannel::drop(Link& link) {
  link.socket = FileDescriptor();
  if (link.rank) mark_gone(*link.rank, link.left ? Standing::left : Standing::dead);
}

void ControlChannel::mark_gone(std::uint32_t world_rank, Standing standing) {
  std::uint8_t there = 0;
  if (!gone_[world_rank].compare_exchange_strong(there, static_cast<std::uint8_t>(standing))) return;
  gone_count_.fetch_add(1, std::memory_order_acq_rel);
  if (world_.rank != 0) return;
  const std::string news =
      FrameWriter(FrameKind::lost).number(world_rank).number(static_cast<std::uint64_t>(standing)).take();
  for (const auto& link : links_) {
    if (link->socket && link->rank && *link->rank != world_rank) send_to(*link->rank, news);
  }
}

void ControlChannel::send_to(std::uint32_t world_rank, std::string frame) {
  const auto found = std::ranges::find_if(
      links_, [&](const auto& link) { return link->socket && link->rank == std::optional(world_rank); });
  if (found != links_.end()) {
    (*found)->to_send += frame;
    if (!(*found)->connecting) write_to(**found);
    return;
  }
  if (is_gone(world_rank)) return;
  const Member& member = world_.members[world_rank];
  auto socket = start_connection(member.address, member.port);
  if (!socket) {
    mark_gone(world_rank, Standing::dead);
    return;
  }
  auto link = std::make_unique<Link>();
  link->socket = std::move(*socket);
  link->rank = world_rank;
  link->connecting = true;
  link->to_send = FrameWriter(FrameKind::hello).number(world_.nonce).number(world_.rank).take() + frame;
  links_.push_back(std::move(link));
}

// -------------------------------------------------------------------------------------------------------------- frames
void ControlChannel::handle(Link& link, Frame& frame) {
  if (!link.rank) {  // a stranger until it has said the nonce
    if (frame.kind() == FrameKind::hello) return on_hello(link, frame);
    if (frame.kind() == FrameKind::hello_data) return on_hello_data(link, frame);
    link.socket = FileDescriptor();
    return;
  }
  switch (frame.kind()) {
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
      return on_status(link, frame);
    case FrameKind::verdict:
      return on_verdict(frame);
    case FrameKind::piece:
      return on_piece(*link.rank, frame);
    case FrameKind::pieces:
      return on_pieces(frame);
    default:
      return;  // of a later release: nothing that this one must know
  }
}

void ControlChannel::on_hello(Link& link, Frame& frame) {
  const std::uint64_t nonce = frame.number();
  const std::uint64_t rank = frame.number();
  if (nonce == world_.nonce && rank < world_.size && !frame.is_short()) link.rank = static_cast<std::uint32_t>(rank);
  else link.socket = FileDescriptor();
}

void ControlChannel::on_hello_data(Link& link, Frame& frame) {
  const std::uint64_t nonce = frame.number();
  const std::uint64_t comm = frame.number();
  const std::uint64_t rank = frame.number();
  // The other side sends data only after this byte: what it sent until now is ours alone.
  const bool greeted =
      nonce == world_.nonce && rank < world_.size && ::send(link.socket.get(), "", 1, MSG_NOSIGNAL) == 1;
  if (greeted) {
    const std::lock_guard lock(mutex_);
    data_.insert_or_assign({comm, static_cast<std::uint32_t>(rank)}, std::move(link.socket));
    came_.notify_all();
  }
  link.socket = FileDescriptor();
}

void ControlChannel::on_lost(Frame& frame) {
  const std::uint64_t rank = frame.number();
  const auto standing = static_cast<Standing>(frame.number());
  if (rank < world_.size && rank != world_.rank) mark_gone(static_cast<std::uint32_t>(rank), standing);
}

void ControlChannel::on_report(const Link& link, Frame& frame) {
  const auto watch = find(frame.number());
  Occasion occasion;
  occasion.reporter = static_cast<std::uint32_t>(frame.number());
  occasion.waits_for = static_cast<int>(static_cast<std::int64_t>(frame.number()));
  occasion.differs = frame.number() != 0;
  const milliseconds grace(frame.number());
  occasion.detail = frame.text();
  if (!watch || occasion.reporter >= watch->members().size()) return;
  if (const auto verdict = watch->verdict()) {  // the news and the report crossed
    send_to(*link.rank, FrameWriter(FrameKind::verdict)
                            .number(watch->id())
                            .number(static_cast<std::uint64_t>(verdict->code))
                            .text(verdict->message)
                            .take());
    return;
  }
  open_case(watch, occasion, grace, true);
}

void ControlChannel::on_query(Link& link, Frame& frame) {
  const std::uint64_t id = frame.number();
  const auto watch = find(id);
  FrameWriter answer(FrameKind::status);
  answer.number(id).number(watch ? 1 : 0);
  const Activity activity = watch ? watch->activity() : Activity();
  answer.number(activity.sequence).number(activity.inside ? 1 : 0);
  write_call(answer, activity.call);
  send_to(*link.rank, answer.take());
}

void ControlChannel::on_status(const Link& link, Frame& frame) {
  const std::uint64_t id = frame.number();
  RankState state;
  state.standing = frame.number() != 0 ? Standing::here : Standing::unaware;
  state.activity.sequence = frame.number();
  state.activity.inside = frame.number() != 0;
  state.activity.call = read_call(frame);
  for (Case& current : cases_) {
    if (current.watch->id() != id || !current.coordinating) continue;
    const auto& members = current.watch->members();
    const auto at = static_cast<std::size_t>(std::ranges::find(members, *link.rank) - members.begin());
    if (at == members.size()) continue;
    state.name = name_of(*current.watch, at);
    current.answers[at] = state;
  }
}

void ControlChannel::on_verdict(Frame& frame) {
  const auto watch = find(frame.number());
  const auto code = static_cast<Errc>(frame.number());
  std::string sentence = frame.text();
  if (watch) watch->give_verdict({code, sentence});
  printed_.push_back(std::move(sentence));
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
  Frame own(whole.substr(4));
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

// --------------------------------------------------------------------------------------------------------------- cases
void ControlChannel::open_case(const std::shared_ptr<CommWatch>& watch, const Occasion& occasion, milliseconds grace,
                               bool asked) {
  if (watch->is_lost()) return;
  for (Case& current : cases_) {
    if (current.watch != watch) continue;
    if (asked && !current.coordinating) coordinate(current);  // two believe that it is our turn
    return;
  }
  cases_.push_back({watch, occasion, grace, Clock::now(), 0, false, {}, {}});
  if (asked) coordinate(cases_.back());
  else pursue(cases_.back());
}

/// Turns to the lowest rank that has not failed us yet.
void ControlChannel::pursue(Case& current) {
  const CommWatch& watch = *current.watch;
  while (current.candidate < watch.rank() && is_gone(watch.members()[current.candidate])) ++current.candidate;
  if (current.candidate >= watch.rank()) return coordinate(current);
  FrameWriter report(FrameKind::report);
  report.number(watch.id())
      .number(current.occasion.reporter)
      .number(static_cast<std::uint64_t>(static_cast<std::int64_t>(current.occasion.waits_for)))
      .number(current.occasion.differs ? 1 : 0)
      .number(static_cast<std::uint64_t>(current.grace.count()))
      .text(current.occasion.detail);
  send_to(watch.members()[current.candidate], report.take());
  current.next = Clock::now() + current.grace + current.grace / 2;
}

void ControlChannel::coordinate(Case& current) {
  const CommWatch& watch = *current.watch;
  current.coordinating = true;
  current.answers.assign(watch.members().size(), std::nullopt);
  current.next = Clock::now() + current.grace;
  ask(current);
}

/// Asks whoever has not answered.
void ControlChannel::ask(Case& current) {
  const CommWatch& watch = *current.watch;
  current.asked = Clock::now();
  for (std::size_t i = 0; i < watch.members().size(); ++i) {
    if (current.answers[i]) continue;
    if (i == watch.rank()) {
      current.answers[i] = RankState{name_of(watch, i), Standing::here, watch.activity(), {}};
    } else {
      send_to(watch.members()[i], FrameWriter(FrameKind::query).number(watch.id()).take());
    }
  }
}

/// Whether everybody has said all that the verdict needs. Where two calls differ, all ranks must have come to that
/// call: the majority decides which is the wrong one.
bool ControlChannel::is_answered(Case& current) {
  const auto& members = current.watch->members();
  for (std::size_t r = 0; r < current.answers.size(); ++r) {
    if (!current.answers[r] && !is_gone(members[r])) return false;
  }
  const auto& reporter = current.answers[current.occasion.reporter];
  if (!current.occasion.differs || !reporter || is_point_to_point(reporter->activity.call.operation)) return true;
  const std::uint64_t reached = reporter->activity.sequence;
  bool all = true;
  for (std::size_t r = 0; r < current.answers.size(); ++r) {
    auto& answer = current.answers[r];
    if (!answer || is_gone(members[r]) || answer->activity.sequence >= reached) continue;
    all = false;
    if (Clock::now() >= current.asked + ask_again) answer.reset();
  }
  if (!all && Clock::now() >= current.asked + ask_again) ask(current);
  return all;
}

void ControlChannel::look_at_cases() {
  std::erase_if(cases_, [](const Case& current) { return current.watch->is_lost(); });
  for (std::size_t i = 0; i < cases_.size(); ++i) {
    Case& current = cases_[i];
    if (current.coordinating) {
      if (is_answered(current) || Clock::now() >= current.next) conclude(current);
    } else if (Clock::now() >= current.next || is_gone(current.watch->members()[current.candidate])) {
      ++current.candidate;
      pursue(current);
    }
  }
  std::erase_if(cases_, [](const Case& current) { return current.watch->is_lost(); });
}

RankState ControlChannel::presumed_state(const CommWatch& watch, std::size_t rank) const {
  const std::uint8_t gone = gone_[watch.members()[rank]].load(std::memory_order_acquire);
  return {name_of(watch, rank), gone == 0 ? Standing::silent : static_cast<Standing>(gone), {}, {}};
}

void ControlChannel::conclude(Case& current) {
  std::vector<RankState> states;
  for (std::size_t i = 0; i < current.answers.size(); ++i) {
    const bool gone = is_gone(current.watch->members()[i]);
    states.push_back(current.answers[i] && !gone ? *current.answers[i] : presumed_state(*current.watch, i));
  }
  announce(current.watch, judge(states, current.occasion), true);
}

void ControlChannel::announce(const std::shared_ptr<CommWatch>& watch, const Error& verdict, bool print_it) {
  if (watch->is_lost()) return;
  // Said before anybody is released: the program may end the moment it learns of the error.
  if (print_it) print(verdict.message);
  const std::string frame = FrameWriter(FrameKind::verdict)
                                .number(watch->id())
                                .number(static_cast<std::uint64_t>(verdict.code))
                                .text(verdict.message)
                                .take();
  for (const std::uint32_t member : watch->members()) {
    if (member != world_.rank) send_to(member, frame);
  }
  watch->give_verdict(verdict);
}

void ControlChannel::print(const std::string& sentence) {
  if (std::ranges::find(printed_, sentence) != printed_.end()) return;
  printed_.push_back(sentence);
  LogFunction log;
  {
    const std::lock_guard lock(mutex_);
    log = log_;
  }
  log("aml-dist: " + sentence);
}

std::string ControlChannel::name_of(const CommWatch& watch, std::size_t rank) const {
  const std::uint32_t world_rank = watch.members()[rank];
  const std::string& host = world_.members[world_rank].host;
  if (watch.members().size() == world_.size) return concat({"rank ", std::to_string(rank), " (", host, ")"});
  return concat({"rank ", std::to_string(rank), " (", host, ", rank ", std::to_string(world_rank), " of the world)"});
}

// --------------------------------------------------------------------------------------------------------- other
// threads
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
  std::erase_if(data_, [&](const auto& each) { return each.first.first == watch.id(); });
}

Error ControlChannel::find_out(const std::shared_ptr<CommWatch>& watch, const Occasion& occasion,
                               milliseconds timeout) {
  const milliseconds grace = grace_of(timeout);
  post([this, watch, occasion, grace] { open_case(watch, occasion, grace, false); });
  // One candidate after the other may be silent; beyond a few of them the answer is the same without a name.
  if (auto verdict = watch->wait_for_verdict(Clock::now() + grace * 6)) return *verdict;
  const Error own = {Errc::timeout, concat({"no rank answers for ", describe(watch->activity().call),
                                            ", which did not end before the deadline"})};
  watch->give_verdict(own);
  return *watch->verdict();
}

void ControlChannel::abort(const std::shared_ptr<CommWatch>& watch, const std::string& sentence) {
  post([this, watch, sentence] { announce(watch, {Errc::aborted, sentence}, false); });
  static_cast<void>(watch->wait_for_verdict(Clock::now() + std::chrono::seconds(1)));
}

Result<FileDescriptor> ControlChannel::data_connection(std::uint64_t comm, std::uint32_t world_rank, Vigil& vigil,
                                                       int comm_rank) {
  const Member& member = world_.members[world_rank];
  while (world_.rank > world_rank) {
    if (auto going_on = vigil.keep_waiting(comm_rank); !going_on) return going_on.error();
    auto socket = connect_to(member.address, member.port, Clock::now() + milliseconds(250));
    if (!socket) {
      std::this_thread::sleep_for(milliseconds(10));
      continue;
    }
    const std::string hello =
        FrameWriter(FrameKind::hello_data).number(world_.nonce).number(comm).number(world_.rank).take();
    if (auto sent = send_all(*socket, hello, Clock::now() + milliseconds(250)); !sent) continue;
    char greeting = 0;
    while (!wait_until_ready(*socket, Readiness::read, Clock::now() + milliseconds(10))) {
      if (auto going_on = vigil.keep_waiting(comm_rank); !going_on) return going_on.error();
    }
    if (::recv(socket->get(), &greeting, 1, 0) == 1) return socket;
  }
  std::unique_lock lock(mutex_);
  for (;;) {
    if (auto found = data_.extract({comm, world_rank})) return std::move(found.mapped());
    came_.wait_for(lock, milliseconds(1));
    lock.unlock();
    auto going_on = vigil.keep_waiting(comm_rank);
    lock.lock();
    if (!going_on) return going_on.error();
  }
}

Result<std::vector<std::string>> ControlChannel::gather_all(const std::shared_ptr<CommWatch>& watch,
                                                            std::uint64_t number, std::string piece, Vigil& vigil) {
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
    Frame own(frame.substr(4));
    on_piece(root, own);
  });
  std::unique_lock lock(mutex_);
  for (;;) {
    if (auto found = gathered_.extract(key)) return std::move(found.mapped());
    came_.wait_for(lock, milliseconds(1));
    lock.unlock();
    auto going_on = vigil.keep_waiting(Vigil::anyone);
    lock.lock();
    if (!going_on) return going_on.error();
  }
}

void ControlChannel::set_heartbeat(std::function<void()> heartbeat) {
  {
    const std::lock_guard lock(mutex_);
    heartbeat_ = std::move(heartbeat);
  }
  post([this] { next_beat_ = Clock::now(); });
}

void ControlChannel::set_log(LogFunction log) {
  const std::lock_guard lock(mutex_);
  log_ = log ? std::move(log) : LogFunction(write_to_stderr);
}

}  // namespace amldist::collective
