#include "collective/transport/transport_choice.hpp"

#include <algorithm>
#include <map>

#include "base/text/text.hpp"
#include "collective/node/channel/oversubscription.hpp"
#include "collective/transport/loopback_transport.hpp"
#include "collective/transport/mpi_transport.hpp"
#include "collective/transport/tcp_transport.hpp"

namespace amldist::collective {
namespace {

using text::concat;

/// The ranks' common MPI tag; nullopt if a rank does not use MPI: then `rank` is the first such rank.
std::optional<int> common_tag(const calls::Pieces& offers, std::size_t& rank) {
  int tag = 0;
  for (const calls::Pieces::Run& run : offers.runs()) {
    rank = run.first;
    const auto number = text::to_number(std::string_view(run.piece).substr(0, run.piece.find('\n')), INT32_MAX);
    if (!number) return std::nullopt;
    tag = std::max(tag, static_cast<int>(*number));
  }
  return tag;
}

/// Users may send to themselves; collectives never do.
std::unique_ptr<Transport> with_loopback(std::unique_ptr<Transport> others, const world::CommWatch& watch) {
  return std::make_unique<LoopbackTransport>(std::move(others), static_cast<int>(watch.rank()));
}

/// Text of this rank's offer: its tag, if it uses MPI, and its machine.
std::string offer_of(int tag, bool has_mpi) {
  return concat({has_mpi ? std::to_string(tag) : "", "\n", own_machine()});
}

/// Whether a machine has several nodes, as with containers. All ranks get the same result.
bool share_nodes_a_machine(const calls::Pieces& offers, const world::RankTable& table, const world::CommWatch& watch) {
  std::map<std::string_view, std::uint32_t> node_of_machine;
  for (const calls::Pieces::Run& run : offers.runs()) {
    const std::string_view machine = std::string_view(run.piece).substr(run.piece.find('\n') + 1);
    for (std::uint32_t rank = run.first; rank < run.first + run.count; ++rank) {
      const std::uint32_t node = table.node_of(watch.members()[rank]);
      if (node_of_machine.try_emplace(machine, node).first->second != node) return true;
    }
  }
  return false;
}

/// Each rank tells its processors to the ranks that may share them.
Result<bool> find_oversubscription(const calls::Pieces& offers, const world::RankTable& table,
                                   const world::CommWatch& watch, const Gather& gather) {
  const bool shared = share_nodes_a_machine(offers, table, watch);
  const auto pieces = gather(own_place(), shared ? calls::GatherScope::all_ranks : calls::GatherScope::node);
  if (!pieces) return pieces.error();
  return are_oversubscribed(*pieces, watch.rank());
}

/// By rank: whether it is on this machine.
std::vector<bool> near_ranks(const world::ControlChannel& channel, const world::CommWatch& watch) {
  const world::RankTable& table = channel.table();
  const std::uint32_t own = watch.members()[watch.rank()];
  std::vector<bool> near;
  for (const std::uint32_t rank : watch.members()) {
    near.push_back(table.host_of(rank) == table.host_of(own) || table.address_of(rank) == table.address_of(own));
  }
  return near;
}

}  // namespace

Result<TransportChoice> choose_transport(world::ControlChannel& channel, const world::CommWatch& watch,
                                         const Gather& gather, world::MpiSession* mpi, calls::Watchdog& watchdog) {
  const bool has_codes = channel.integrity() != world::Integrity::off;  // MPI's messages have no code
  const bool offers = !has_codes && mpi != nullptr && mpi->carries_data() && mpi->has_tags();
  TransportChoice choice;
  if (watch.members().size() > 1) {
    const auto all = gather(offer_of(offers ? mpi->next_tag() : 0, offers), calls::GatherScope::all_ranks);
    if (!all) return all.error();
    const auto oversubscribed_ranks = find_oversubscription(*all, channel.table(), watch, gather);
    if (!oversubscribed_ranks) return oversubscribed_ranks.error();
    choice.is_oversubscribed = *oversubscribed_ranks;
    std::size_t without = 0;
    const auto tag = common_tag(*all, without);
    if (tag && offers) {
      if (auto status = mpi->open(watchdog); !status) return status.error();
      mpi->take_tag(*tag + 1);
      using Signing = MpiTransport::Signing;
      const bool oversubscribed = choice.is_oversubscribed;
      choice.shares_memory = true;
      const auto near = near_ranks(channel, watch);
      choice.collectives = std::make_unique<MpiTransport>(*mpi, watch, *tag, Signing::each_call, oversubscribed, near);
      choice.messages = with_loopback(
          std::make_unique<MpiTransport>(*mpi, watch, *tag + 1, Signing::each_message, oversubscribed, near), watch);
      return choice;
    }
    if (offers) choice.why_not_mpi = concat({"rank ", std::to_string(without), " does not use MPI"});
  }
  constexpr std::uint64_t of_messages = 0x6d65737361676573;  // identifiers are random: this derives another one
  choice.collectives = std::make_unique<TcpTransport>(channel, watch, watch.id(), choice.is_oversubscribed);
  choice.messages = with_loopback(
      std::make_unique<TcpTransport>(channel, watch, watch.id() ^ of_messages, choice.is_oversubscribed), watch);
  return choice;
}

}  // namespace amldist::collective
