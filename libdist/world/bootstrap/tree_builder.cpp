#include "world/bootstrap/tree_builder.hpp"

#include <algorithm>

#include "base/text/printable.hpp"
#include "base/text/text.hpp"
#include "world/bootstrap/node_leader.hpp"
#include "world/bootstrap/sealed_bytes.hpp"
#include "world/bootstrap/tree_shape.hpp"
#include "world/wireup/joiner.hpp"
#include "world/wireup/limits.hpp"

namespace amldist::world {
namespace {

using std::chrono::milliseconds;
using text::concat;
using world::Frame;
using world::FrameWriter;
using world::HandshakeKind;
using world::JoinRequest;

/// How long joined ranks are collected before they are reported upwards: many ranks in few messages.
constexpr milliseconds batch_time(5);
/// How long a leader tries to reach its parent before it asks the root again where the parent is.
constexpr milliseconds parent_time(1000);
/// How long a leader that has the table waits for its children. A living child connects within parent_time, or asks
/// again.
constexpr std::chrono::seconds for_children(30);
/// Time for rank 0's message at the deadline to arrive.
constexpr milliseconds last_word(2000);

std::string position_frame(const TreePosition& place) {
  return FrameWriter(BootstrapKind::place)
      .number(place.index)
      .number(place.parent_rank)
      .text(place.parent_address.as_bytes())
      .number(place.parent_port)
      .take();
}

TreePosition read_position(Frame& frame) {
  TreePosition place;
  place.index = static_cast<std::uint32_t>(frame.number());
  place.parent_rank = static_cast<std::uint32_t>(frame.number());
  place.parent_address = IpAddress::from_bytes(frame.text()).value_or(IpAddress());
  place.parent_port = static_cast<std::uint16_t>(frame.number());
  return place;
}

std::string joined_frame(const std::vector<JoinedProcess>& joined) {
  FrameWriter writer(BootstrapKind::joined);
  writer.number(joined.size());
  for (const JoinedProcess& each : joined) {
    writer.number(std::uint64_t{each.rank} << 16 | each.port)
        .number(each.vertex)
        .number(each.process)
        .number(each.size);
  }
  return writer.take();
}

std::vector<JoinedProcess> read_joined(Frame& frame) {
  std::vector<JoinedProcess> joined;
  for (std::uint64_t count = frame.number(); count > 0; --count) {
    JoinedProcess each;
    const std::uint64_t rank_and_port = frame.number();
    each.rank = static_cast<std::uint32_t>(rank_and_port >> 16);
    each.port = static_cast<std::uint16_t>(rank_and_port);
    each.vertex = static_cast<std::uint32_t>(frame.number());
    each.process = frame.number();
    each.size = frame.number();
    if (frame.is_short()) break;
    joined.push_back(each);
  }
  return joined;
}

std::string table_frame(const IpAddress& root, std::string_view table) {
  return FrameWriter(BootstrapKind::table).text(root.as_bytes()).text(table).take();
}

}  // namespace

std::string OwnPlace::join_request(JoinPurpose purpose) const {
  const bool in_node = purpose == JoinPurpose::follower;
  const JoinRequest join_request = {in_node ? node_group : group, rank, size, process, host, {}};
  auto writer = join_request.to_frame();
  writer.number(static_cast<std::uint64_t>(purpose)).number(port).text(node);
  return writer.take();
}

std::string OwnPlace::join_request_about(std::span<const std::uint32_t> heard) const {
  auto writer = JoinRequest{group, rank, size, process, host, {}}.to_frame();
  writer.number(static_cast<std::uint64_t>(JoinPurpose::heard));
  for (const std::uint32_t each : heard) writer.number(each);
  return writer.take();
}

TreeBuilder::TreeBuilder(const OwnPlace& own, const FileDescriptor& listener, const FileDescriptor& node_listener)
    : own_(own),
      listener_(listener),
      node_listener_(node_listener),
      pending_(own.size, own.key),
      links_({[this](FrameLink& link, Frame& frame) { on_frame(link, frame); },
              [this](const FrameLink& link) { on_end(link); }}),
      joined_ranks_({own.group, 0, own.rank == 0 ? own.size : 0}) {}

// ---- the root ----
Result<BuiltTree> TreeBuilder::serve_as_root(const FileDescriptor& published, RootAddress& root,
                                             Clock::time_point deadline) {
  root_address_ = own_address(published);
  if (root_address_.is_unspecified()) root_address_ = *Ipv4::parse("127.0.0.1");  // at least it listens
  static_cast<void>(joined_ranks_.add_leader({own_.group, own_.rank, own_.size, own_.process, own_.host, {}},
                                             {own_.host, own_.node, own_.rank, {}}, own_.port));
  while (!joined_ranks_.is_complete()) {
    if (Clock::now() >= deadline) return give_up(missing());
    root.progress();
    constexpr milliseconds between_progress(10);
    serve_once(&published, std::min(deadline, Clock::now() + between_progress));
    if (joined_ranks_.contradiction().empty()) continue;
    refused_ = Error{Errc::mismatch, joined_ranks_.contradiction()};
    return refuse_those_who_come(published, root, deadline);
  }
  table_ = joined_ranks_.table(world::random_number());
  distribute(table_);
  return built();
}

Error TreeBuilder::missing() const {
  const auto absent = joined_ranks_.missing();
  return {
      Errc::timeout,
      concat({absent.size() == 1 ? "rank " : "ranks ", world::list_numbers(absent), absent.size() == 1 ? " is" : " are",
              " missing in amldist_init: ", std::to_string(joined_ranks_.present()), " of ", std::to_string(own_.size),
              " processes came to rank 0 (", own_.host, ") before the deadline"})};
}

Result<BuiltTree> TreeBuilder::give_up(Error error) {
  refuse_all(error);
  return error;
}

/// Waits until all have been told, including ranks that have not connected yet: they would wait for rank 0 until their
/// deadline.
Result<BuiltTree> TreeBuilder::refuse_those_who_come(const FileDescriptor& published, RootAddress& root,
                                                     Clock::time_point deadline) {
  refuse_all(*refused_);
  while (!joined_ranks_.have_all_been_seen() && Clock::now() < deadline) {
    root.progress();
    serve_once(&published, std::min(deadline, Clock::now() + milliseconds(10)));
  }
  return *refused_;
}

// ---- other leaders ----
Result<BuiltTree> TreeBuilder::serve_as_leader(RootAddress& root, Clock::time_point deadline) {
  if (auto status = climb(root, deadline); !status) {
    return root.has_moved() ? status.error() : leave(root, status.error());  // no process has been accepted yet
  }
  const auto end = deadline + last_word;
  while (table_.empty()) {
    if (refused_) return leave(root, *refused_);
    if (Clock::now() >= end)
      return give_up({Errc::timeout, concat({"amldist_init: rank 0 is at ", root_address_.to_string(),
                                             " but the world was not complete before the deadline"})});
    serve_once(nullptr, std::min(end, joined_due_));
    if (Clock::now() >= joined_due_) send_joined();
  }
  distribute(table_);
  await_children(end);
  return built();
}

/// Rank 0 counts a leader as present from the moment it has assigned its place: a child of this leader may still be on
/// its way here when the table arrives.
void TreeBuilder::await_children(Clock::time_point end) {
  if (const auto most = tree_children(index_, own_.size); most.first == most.end) return;
  const auto table = RankTable::read(std::string(table_), own_.size, root_address_);
  if (!table) return;  // built() returns the reason
  const auto children = tree_children(index_, table->vertices());
  end = std::min(end, Clock::now() + for_children);
  for (std::uint32_t child = children.first; child < children.end; ++child) {
    const std::uint32_t rank = table->leader_of(child);
    const auto has_come = [&] { return std::ranges::find(came_below_, rank) != came_below_.end(); };
    while (!has_come() && Clock::now() < end) serve_once(nullptr, end);
    if (!has_come()) ended_.push_back(rank);
  }
}

/// Tells the ranks of the node. Those that arrived meanwhile wait at the listener; their proof takes a moment.
Result<BuiltTree> TreeBuilder::leave(RootAddress& root, const Error& error) {
  constexpr milliseconds for_proofs(500);
  refused_ = error;
  accept_followers();
  for (const auto end = Clock::now() + for_proofs; pending_.size() != 0 && Clock::now() < end;) {
    serve_once(nullptr, end);
  }
  for (const FrameLink* const each : followers_) heard_.push_back(each->rank);
  refuse_all(error);
  if (error.code == Errc::mismatch) report_who_heard(root);
  return error;
}

/// The root stays until all have been told of a refusal (refuse_those_who_come), and cannot see whom only a leader
/// told.
void TreeBuilder::report_who_heard(RootAddress& root) {
  constexpr std::size_t of_a_join_request = 256;
  constexpr milliseconds patience(500);  // if the root has ended, it need not know any more
  const world::Destination destination = {[&root](Clock::time_point until) { return root.look_up(until); }, "", ""};
  for (std::span<const std::uint32_t> left = heard_; !left.empty();) {
    const auto some = left.first(std::min(left.size(), of_a_join_request));
    static_cast<void>(world::join(destination, own_.join_request_about(some), own_.key, Clock::now() + patience));
    left = left.subspan(some.size());
  }
}

/// Asks the root for a place, and connects to the parent.
Result<void> TreeBuilder::climb(RootAddress& root, Clock::time_point deadline) {
  bool has_tried = false;
  const auto find = [&](Clock::time_point until) -> Result<std::vector<Endpoint>> {
    if (std::exchange(has_tried, true) && root.ask_again(until)) return another_rank_0();
    return root.look_up(until);
  };
  const world::Destination destination = {find, concat({"rank 0 is missing in amldist_init: ", root.to_string()}), ""};
  for (;;) {
    auto joined = world::join(destination, own_.join_request(JoinPurpose::leader), own_.key, deadline);
    if (!joined) return joined.error();
    root_address_ = peer_address(joined->link);
    auto frame = world::read_frame(joined->link, world::limits.join_request_bytes, deadline);
    if (!frame) continue;
    if (frame->kind<HandshakeKind>() == HandshakeKind::refused) return world::read_refusal(*frame);
    if (frame->kind<BootstrapKind>() != BootstrapKind::place) {
      return Error{Errc::peer, "rank 0 sent an unexpected message: do all ranks use the same release of aml-dist?"};
    }
    const TreePosition place = read_position(*frame);
    index_ = place.index;
    if (place.is_below_root()) {
      parent_ = &links_.add(0, std::move(joined->link));
      return {};
    }
    joined->link = FileDescriptor();
    const auto connected = connect_to_parent(place, std::min(deadline, Clock::now() + parent_time));
    if (!connected) return connected.error();
    if (*connected) return {};
  }
}

Result<bool> TreeBuilder::connect_to_parent(const TreePosition& place, Clock::time_point deadline) {
  const IpAddress address = place.parent_address.is_unspecified() ? root_address_ : place.parent_address;
  auto connection = connect_to(address, place.parent_port, deadline);
  if (!connection) return false;
  const auto accepted = world::introduce(*connection, own_.join_request(JoinPurpose::child), own_.key, deadline);
  if (!accepted) return accepted.error();
  if (*accepted) parent_ = &links_.add(place.parent_rank, std::move(*connection));
  return *accepted;
}

// ---- both ----
void TreeBuilder::serve_once(const FileDescriptor* published, Clock::time_point deadline) {
  std::vector<pollfd> wanted = {{listener_.get(), POLLIN, 0}, {node_listener_.get(), POLLIN, 0}};
  if (published != nullptr) wanted.push_back({published->get(), POLLIN, 0});
  const std::size_t listeners = wanted.size();
  links_.add_to(wanted);
  const std::size_t links = wanted.size() - listeners;
  pending_.add_to(wanted);
  const auto until = std::min(deadline, pending_.next_deadline());
  const auto left = std::chrono::ceil<milliseconds>(until - Clock::now()).count();
  static_cast<void>(::poll(wanted.data(), wanted.size(), static_cast<int>(std::clamp<long long>(left, 0, 1000))));
  links_.serve(std::span(wanted).subspan(listeners, links));
  const auto handler = [this](FileDescriptor connection, Frame frame) {
    on_join_request(std::move(connection), std::move(frame));
  };
  const auto now = Clock::now();
  pending_.serve(now, handler);
  if (wanted[0].revents != 0) pending_.accept_from(listener_, now, handler);
  if (wanted[1].revents != 0) accept_followers();
  if (published != nullptr && wanted[2].revents != 0) pending_.accept_from(*published, now, handler);
  links_.sweep();
}

void TreeBuilder::accept_followers() {
  while (FileDescriptor connection = accept_on_node(node_listener_)) {
    pending_.add(std::move(connection), Clock::now(),
                 [this](FileDescriptor each, Frame frame) { on_join_request(std::move(each), std::move(frame)); });
  }
}

void TreeBuilder::on_join_request(FileDescriptor connection, Frame frame) {
  auto join_request = JoinRequest::parse(std::move(frame));
  if (!join_request) return;
  const auto purpose = static_cast<JoinPurpose>(join_request->details.number());
  const bool in_node = purpose == JoinPurpose::follower;
  if (join_request->group != (in_node ? own_.node_group : own_.group))
    return answer(connection, world::elsewhere_frame());
  if (refused_) {
    note_who_heard(*join_request, purpose);
    return answer(connection, world::refused_frame(*refused_));
  }
  if (purpose == JoinPurpose::heard) return answer(connection, world::elsewhere_frame());
  const auto rank = static_cast<std::uint32_t>(join_request->number);
  if (purpose == JoinPurpose::leader) return let_leader_in(std::move(connection), *join_request);
  const auto port = static_cast<std::uint16_t>(join_request->details.number());
  answer(connection, world::accepted_frame());
  FrameLink& link = links_.add(rank, std::move(connection));
  (in_node ? followers_ : children_).push_back(&link);
  if (in_node) return note({rank, index_, port, join_request->process, join_request->size});
  came_below_.push_back(rank);
  if (is_distributed_) FrameLinks::send(link, table_frame({}, table_));
}

void TreeBuilder::note_who_heard(JoinRequest& join_request, JoinPurpose purpose) {
  if (own_.rank != 0) return heard_.push_back(static_cast<std::uint32_t>(join_request.number));
  joined_ranks_.mark_seen(join_request.number);
  while (purpose == JoinPurpose::heard) {
    const std::uint64_t rank = join_request.details.number();
    if (join_request.details.is_short()) return;
    joined_ranks_.mark_seen(rank);
  }
}

void TreeBuilder::let_leader_in(FileDescriptor connection, JoinRequest& join_request) {
  if (own_.rank != 0) return answer(connection, world::elsewhere_frame());
  const auto rank = static_cast<std::uint32_t>(join_request.number);
  const auto port = static_cast<std::uint16_t>(join_request.details.number());
  TableNode node = {join_request.host, join_request.details.text(), rank, {}};
  if (join_request.details.is_short()) return;
  const IpAddress from = peer_address(connection);
  if (!from.is_loopback() && from != own_address(connection)) node.address = from;
  const TreePosition place = joined_ranks_.add_leader(join_request, std::move(node), port);
  if (!joined_ranks_.contradiction().empty()) {
    return answer(connection, world::refused_frame({Errc::mismatch, joined_ranks_.contradiction()}));
  }
  answer(connection, world::accepted_frame() + position_frame(place));
  if (place.is_below_root()) children_.push_back(&links_.add(rank, std::move(connection)));
}

void TreeBuilder::on_frame(FrameLink& link, Frame& frame) {
  if (&link == parent_ && frame.kind<HandshakeKind>() == HandshakeKind::refused) {
    refused_ = world::read_refusal(frame);
    return;
  }
  switch (frame.kind<BootstrapKind>()) {
    case BootstrapKind::joined:
      for (const JoinedProcess& each : read_joined(frame)) note(each);
      return;
    case BootstrapKind::table:
      if (&link != parent_ || !table_.empty()) return;
      static_cast<void>(frame.text());
      table_ = frame.text();
      return;
    default:
      early_.emplace_back(link.rank, std::move(frame));
  }
}

void TreeBuilder::on_end(const FrameLink& link) {
  std::erase(children_, &link);
  std::erase(followers_, &link);
  const bool replaced =
      std::ranges::any_of(links_.all(), [&](const auto& each) { return each->socket && each->rank == link.rank; });
  if (!replaced) ended_.push_back(link.rank);
  if (&link != parent_) return;
  parent_ = nullptr;
  if (table_.empty() && !refused_) {
    refused_ = Error{Errc::peer, concat({"rank ", std::to_string(link.rank), " ended in amldist_init"})};
  }
}

void TreeBuilder::note(const JoinedProcess& joined) {
  if (own_.rank == 0) return joined_ranks_.add(joined);
  if (joined_.empty()) joined_due_ = Clock::now() + batch_time;
  joined_.push_back(joined);
}

void TreeBuilder::send_joined() {
  if (parent_ != nullptr) FrameLinks::send(*parent_, joined_frame(joined_));
  joined_.clear();
  joined_due_ = Clock::time_point::max();
}

/// The ranks of the node share one copy if the system has shared memory.
void TreeBuilder::distribute(std::string_view table) {
  const std::string down = table_frame({}, table);
  for (FrameLink* const child : children_) FrameLinks::send(*child, down);
  is_distributed_ = true;
  if (followers_.empty()) return;
  auto sealed = SealedBytes::create(table);
  const std::string file_frame = FrameWriter(BootstrapKind::table_file).text(root_address_.as_bytes()).take();
  for (FrameLink* const follower : followers_) {
    if (sealed && send_with_file(follower->socket, file_frame, sealed->file())) continue;
    FrameLinks::send(*follower, table_frame(root_address_, table));
  }
  if (sealed) shared_ = {sealed->bytes(), sealed->owner()};
}

void TreeBuilder::refuse_all(const Error& error) {
  const std::string frame = world::refused_frame(error);
  for (const auto* list : {&children_, &followers_}) {
    for (FrameLink* const each : *list) FrameLinks::send(*each, frame);
  }
}

Result<BuiltTree> TreeBuilder::built() {
  BuiltTree out;
  auto table = shared_.owner ? RankTable::read(std::move(shared_), own_.size, root_address_)
                             : RankTable::read(std::move(table_), own_.size, root_address_);
  if (!table) return table.error();
  out.table = std::move(*table);
  // Whoever knows the key may have come as a rank that there is not. The control thread has no place for one.
  const auto is_none = [this](std::uint32_t rank) { return rank >= own_.size; };
  out.links = links_.take_all();
  std::erase_if(out.links, [&](const auto& link) { return !link->socket || is_none(link->rank); });
  out.early = std::move(early_);
  std::erase_if(out.early, [&](const auto& each) { return is_none(each.first); });
  out.ended = std::move(ended_);
  std::erase_if(out.ended, is_none);
  out.process_of_rank = joined_ranks_.process_of_rank();
  return out;
}

Result<RankTable> receive_table(const FileDescriptor& leader, std::uint32_t size, Clock::time_point deadline) {
  auto came = read_frame_with_file(leader, deadline + last_word);
  if (!came && came.error().code == Errc::timeout)
    return Error{Errc::timeout, "amldist_init: the world was not complete before the deadline"};
  if (!came)
    return Error{Errc::peer, concat({"the leader of this node ended in amldist_init: ", came.error().message})};
  Frame& frame = came->frame;
  if (frame.kind<HandshakeKind>() == HandshakeKind::refused) return world::read_refusal(frame);
  const auto kind = frame.kind<BootstrapKind>();
  const IpAddress root = IpAddress::from_bytes(frame.text()).value_or(IpAddress());
  if (kind == BootstrapKind::table) return RankTable::read(frame.text(), size, root);
  if (kind != BootstrapKind::table_file) return Error{Errc::peer, "the leader of this node sent no rank table"};
  auto sealed = SealedBytes::open(std::move(came->file));
  if (!sealed) return sealed.error();
  return RankTable::read(RankTable::Storage{sealed->bytes(), sealed->owner()}, size, root);
}

}  // namespace amldist::world
