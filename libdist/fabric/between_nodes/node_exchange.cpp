#include "fabric/between_nodes/node_exchange.hpp"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <exception>
#include <optional>

#include "base/net/own_network.hpp"
#include "base/net/socket.hpp"
#include "base/text/text.hpp"
#include "world/wireup/acceptor.hpp"
#include "world/wireup/joiner.hpp"

namespace amldist::fabric {
namespace {

using text::concat;
using world::Frame;
using world::FrameReader;
using world::FrameWriter;
using world::HandshakeKind;
using world::limits;

constexpr std::uint32_t most_nodes = 65536;

enum class ExchangeKind : std::uint8_t {
  contribution = 40,  ///< to node 0: whether all are wanted, how many else, their numbers; the text
  text,               ///< from node 0: a node's number and its text
  end_of_round,       ///< from node 0
};

std::string group_name(const NodePlace& place) { return concat({"aml-dist check ", place.step}); }

/// The longest contribution.
std::size_t contribution_bytes(std::uint32_t nodes) {
  constexpr std::size_t head = 64;
  return head + sizeof(std::uint64_t) * nodes + limits.text_bytes;
}

std::optional<NodeExchange::Wanted> read_wanted(Frame& frame, std::uint32_t nodes) {
  NodeExchange::Wanted wanted;
  wanted.all = frame.number() != 0;
  const std::uint64_t count = frame.number();
  for (std::uint64_t i = 0; i < count && !frame.is_short(); ++i) {
    const std::uint64_t node = frame.number();
    if (node >= nodes) return std::nullopt;
    wanted.nodes.push_back(static_cast<std::uint32_t>(node));
  }
  return wanted;
}

/// The accepting side's work, in its thread.
class Serving {
 public:
  Serving(FileDescriptor listener, int stop, const NodePlace& place, std::chrono::milliseconds patience)
      : listener_(std::move(listener)),
        stop_(stop),
        patience_(patience),
        acceptor_({group_name(place), 0, place.nodes, "node", "node", "node 0"}, place.credentials) {
    for (std::uint32_t node = 0; node < place.nodes; ++node) peers_.emplace_back(contribution_bytes(place.nodes));
  }

  void run() {
    deadline_ = Clock::now() + patience_;
    while (!over_ && wait()) {
      accept();
      for (std::uint32_t node = 0; node < peers_.size() && !over_; ++node) hear(node);
      if (over_) return;
      if (std::ranges::all_of(peers_, &Peer::spoke)) distribute();
      else if (Clock::now() >= deadline_) give_up();
    }
  }

 private:
  struct Peer {
    explicit Peer(std::size_t most) : reader(most) {}
    FrameReader reader;
    bool spoke = false;
    NodeExchange::Wanted wanted;
    std::string text;
  };

  /// Waits until a message arrives. False if the exchange must end.
  bool wait() {
    std::vector<pollfd> files = {{stop_, POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    acceptor_.add_to(files);
    for (std::uint32_t node = 0; node < peers_.size(); ++node) {
      if (acceptor_.link(node) && !peers_[node].spoke) files.push_back({acceptor_.link(node).get(), POLLIN, 0});
    }
    const auto until = std::min(deadline_, acceptor_.next_deadline());
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    static_cast<void>(::poll(files.data(), files.size(), static_cast<int>(std::max<std::int64_t>(0, left))));
    return files.front().revents == 0;
  }

  void accept() {
    const auto admitted = acceptor_.serve(listener_, Clock::now());
    if (!admitted) return end(admitted.error());
    for (const world::JoinRequest& each : *admitted) {
      peers_[each.number].reader = FrameReader(contribution_bytes(static_cast<std::uint32_t>(peers_.size())));
    }
  }

  void hear(std::uint32_t node) {
    Peer& peer = peers_[node];
    if (!acceptor_.link(node) || peer.spoke) return;
    const auto state = peer.reader.read(acceptor_.link(node));
    if (state == FrameReader::State::incomplete) return;
    if (state == FrameReader::State::complete && take(peer, peer.reader.take())) return;
    end({Errc::unavailable, concat({"node ", std::to_string(node), " left before the end"})});
  }

  bool take(Peer& peer, Frame frame) {
    if (frame.kind<ExchangeKind>() != ExchangeKind::contribution) return false;
    auto wanted = read_wanted(frame, static_cast<std::uint32_t>(peers_.size()));
    peer.text = frame.text();
    if (!wanted || frame.is_short() || peer.text.size() > limits.text_bytes) return false;
    peer.wanted = std::move(*wanted);
    peer.spoke = true;
    return true;
  }

  /// All nodes have contributed: each gets the texts that it asked for.
  void distribute() {
    deadline_ = Clock::now() + patience_;
    for (std::uint32_t node = 0; node < peers_.size(); ++node) {
      if (auto status = answer(node); !status) {
        return end(
            {Errc::unavailable, concat({"node ", std::to_string(node),
                                        " does not receive the other nodes' results: ", status.error().message})});
      }
    }
    for (Peer& peer : peers_) peer.spoke = false;
  }

  [[nodiscard]] Result<void> answer(std::uint32_t node) const {
    constexpr std::size_t at_once = std::size_t{64} << 10;
    const NodeExchange::Wanted& wanted = peers_[node].wanted;
    std::string frames;
    for (std::uint32_t i = 0; i < (wanted.all ? peers_.size() : wanted.nodes.size()); ++i) {
      const std::uint32_t source = wanted.all ? i : wanted.nodes[i];
      frames += FrameWriter(ExchangeKind::text).number(source).text(peers_[source].text).take();
      if (frames.size() < at_once) continue;
      if (auto status = send_all(acceptor_.link(node), frames, deadline_); !status) return status;
      frames.clear();
    }
    frames += FrameWriter(ExchangeKind::end_of_round).take();
    return send_all(acceptor_.link(node), frames, deadline_);
  }

  void give_up() {
    std::vector<std::uint32_t> silent;
    for (std::uint32_t node = 0; node < peers_.size(); ++node) {
      if (!peers_[node].spoke) silent.push_back(node);
    }
    const bool all_came = acceptor_.is_complete();
    end({Errc::timeout,
         concat({"nothing from node ", world::list_numbers(silent), all_came ? " any more" : ": it did not come",
                 " within ", std::to_string(patience_.count() / 1000), " s"})});
  }

  void end(const Error& why) {
    over_ = true;
    acceptor_.refuse_all({Errc::unavailable, why.message}, Clock::now() + std::chrono::seconds(1));
  }

  FileDescriptor listener_;
  int stop_;
  std::chrono::milliseconds patience_;
  Clock::time_point deadline_;
  world::Acceptor acceptor_;
  std::vector<Peer> peers_;
  bool over_ = false;
};

void serve(Serving serving) noexcept {
  try {
    serving.run();
  } catch (const std::exception&) {  // out of memory: the nodes see the connections close
  }
}

}  // namespace

Result<std::unique_ptr<NodeExchangeServer>> NodeExchangeServer::open(const NodePlace& place,
                                                                     std::chrono::milliseconds patience) {
  if (place.nodes == 0 || place.nodes > most_nodes) return Error{Errc::limit, "too many nodes for one check"};
  auto listener = listen_on(place.port);
  if (!listener) {
    return Error{Errc::unavailable, concat({listener.error().message, ": give another port with --port"})};
  }
  std::unique_ptr<NodeExchangeServer> out(new NodeExchangeServer());
  out->stop_ = FileDescriptor(::eventfd(0, EFD_CLOEXEC));
  out->thread_ = std::thread(serve, Serving(std::move(*listener), out->stop_.get(), place, patience));
  return out;
}

NodeExchangeServer::~NodeExchangeServer() {
  if (!thread_.joinable()) return;
  static_cast<void>(::eventfd_write(stop_.get(), 1));
  thread_.join();
}

Result<NodeExchange> NodeExchange::join(const NodePlace& place, std::chrono::milliseconds patience) {
  const world::Destination destination = {
      [&place](Clock::time_point /*deadline*/) {
        return Result<std::vector<Endpoint>>({{place.host, place.port}});
      },
      concat({"node 0 (", text::quote(place.host), ", port ", std::to_string(place.port), ")"}),
      ": is there a firewall in between, or does its own check not run?"};
  const world::JoinRequest join_request = {group_name(place),      place.node,      place.nodes,
                                           world::random_number(), own_host_name(), {}};
  const world::GroupKey group(place.credentials, group_name(place));
  auto joined = world::join(destination, join_request.to_frame().take(), group, Clock::now() + patience);
  if (!joined) return Error{Errc::unavailable, joined.error().message};
  // The accepting side waits as long as this one does; its sentence about who is missing must have time to arrive.
  return NodeExchange(std::move(joined->link), place.nodes, patience + std::chrono::seconds(5));
}

Result<std::map<std::uint32_t, std::string>> NodeExchange::round(const Wanted& wanted, std::string_view text) {
  const auto deadline = Clock::now() + patience_;
  FrameWriter contribution(ExchangeKind::contribution);
  contribution.number(wanted.all ? 1 : 0).number(wanted.nodes.size());
  for (const std::uint32_t node : wanted.nodes) contribution.number(node);
  contribution.text(text.substr(0, limits.text_bytes));
  if (auto status = send_all(link_, contribution.take(), deadline); !status) return status.error();
  for (std::map<std::uint32_t, std::string> out;;) {
    constexpr std::size_t head = 64;
    auto frame = world::read_frame(link_, head + limits.text_bytes, deadline);
    if (!frame) return Error{Errc::unavailable, frame.error().message};
    if (frame->kind<HandshakeKind>() == HandshakeKind::refused) return world::read_refusal(*frame);
    if (frame->kind<ExchangeKind>() == ExchangeKind::end_of_round) return out;
    const std::uint64_t node = frame->number();
    std::string said = frame->text();
    if (frame->kind<ExchangeKind>() != ExchangeKind::text || frame->is_short() || node >= nodes_) {
      return Error{Errc::internal, "node 0 sent a malformed answer: do all nodes use the same release of aml-dist?"};
    }
    out[static_cast<std::uint32_t>(node)] = std::move(said);
  }
}

}  // namespace amldist::fabric
