#include "collective/transport/transport_choice.hpp"

#include <algorithm>

#include "collective/node/oversubscription.hpp"
#include "collective/transport/loopback_transport.hpp"
#include "collective/transport/mpi_transport.hpp"
#include "collective/transport/tcp_transport.hpp"
#include "core/text.hpp"

namespace amldist::collective {
namespace {

using text::concat;

/// The ranks' common MPI tag; nullopt if a rank does not use MPI: then `rank` is the first such rank.
std::optional<int> common_tag(const std::vector<std::string>& offers, std::size_t& rank) {
  int tag = 0;
  for (rank = 0; rank < offers.size(); ++rank) {
    const auto number = text::to_number(std::string_view(offers[rank]).substr(0, offers[rank].find('\n')), INT32_MAX);
    if (!number) return std::nullopt;
    tag = std::max(tag, static_cast<int>(*number));
  }
  return tag;
}

/// Users may send to themselves; collectives never do.
std::unique_ptr<Transport> with_loopback(std::unique_ptr<Transport> others, const CommWatch& watch) {
  return std::make_unique<LoopbackTransport>(std::move(others), static_cast<int>(watch.rank()));
}

/// Text of this rank's offer: its tag, if it uses MPI, and its processors.
std::string offer_of(int tag, bool has_mpi) {
  return concat({has_mpi ? std::to_string(tag) : "", "\n", own_processors()});
}

std::vector<std::string> processors_of(const std::vector<std::string>& offers) {
  std::vector<std::string> out;
  for (const std::string& offer : offers) out.push_back(offer.substr(offer.find('\n') + 1));
  return out;
}

/// By rank: whether it is on this machine.
std::vector<bool> near_ranks(const ControlChannel& channel, const CommWatch& watch) {
  const Member& own = channel.member(watch.members()[watch.rank()]);
  std::vector<bool> near;
  for (const std::uint32_t rank : watch.members()) {
    const Member& each = channel.member(rank);
    near.push_back(each.host == own.host || each.address == own.address);
  }
  return near;
}

}  // namespace

Result<TransportChoice> choose_transport(ControlChannel& channel, const CommWatch& watch, const Gather& gather,
                                         MpiSession* mpi, Watchdog& watchdog) {
  const bool has_codes = channel.integrity() != Integrity::off;  // MPI's messages have none
  const bool offers = !has_codes && mpi != nullptr && mpi->carries_data() && mpi->has_tags();
  TransportChoice choice;
  if (watch.members().size() > 1) {
    const auto all = gather(offer_of(offers ? mpi->next_tag() : 0, offers));
    if (!all) return all.error();
    choice.is_oversubscribed = are_oversubscribed(processors_of(*all), watch.rank());
    std::size_t without = 0;
    const auto tag = common_tag(*all, without);
    if (tag && offers) {
      if (auto opened = mpi->open(watchdog); !opened) return opened.error();
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
  choice.collectives = std::make_unique<TcpTransport>(channel, watch, watch.id());
  choice.messages = with_loopback(std::make_unique<TcpTransport>(channel, watch, watch.id() ^ of_messages), watch);
  return choice;
}

}  // namespace amldist::collective
