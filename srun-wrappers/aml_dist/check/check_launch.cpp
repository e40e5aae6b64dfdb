#include "aml_dist/check/check_launch.hpp"

#include <algorithm>
#include <chrono>

#include "base/os/environment.hpp"
#include "base/text/text.hpp"
#include "base/time/clock.hpp"
#include "fabric/between_nodes/launch_pairs.hpp"
#include "fabric/between_nodes/node_settings.hpp"
#include "step/messages/node_texts.hpp"

namespace amldist::tools {
namespace {

using fabric::Check;
using fabric::Verdict;
using text::concat;

/// For all rounds: the nodes do not arrive at the same moment.
constexpr std::chrono::seconds pairs_timeout{30};
constexpr std::chrono::seconds write_timeout{10};

/// Exchanges texts through srun, until the deadline.
fabric::PeerExchange exchange_over(const step::SrunLink& srun, const CheckOptions& options,
                                   const fabric::NodeNames& names) {
  // The more nodes there are, the less often each asks.
  const std::chrono::milliseconds longest_pause{50 + options.launch_nodes / 5};
  return [=, ask = ask_over(srun), deadline = Clock::now() + pairs_timeout](std::uint32_t round, const std::string& own,
                                                                            std::span<const std::uint32_t> peers) {
    step::RoundOutcome outcome =
        step::exchange_texts(ask, srun.channel.token, round, options.launch_node, own, peers, deadline, longest_pause);
    fabric::PeerTexts out{std::move(outcome.texts), outcome.is_decided, ""};
    if (out.is_over || out.texts.size() == peers.size()) return out;
    const auto name = outcome.silent ? names.find(*outcome.silent) : names.end();
    out.problem =
        outcome.srun_answered
            ? concat({name == names.end() ? "another node" : name->second, " took no part in the writes between ",
                      "the nodes within ", std::to_string(pairs_timeout.count()), " s"})
            : "the nodes exchange addresses through srun, which did not answer: is it of an older release?";
    return out;
  };
}

}  // namespace

std::vector<Check> write_between_nodes(const CheckOptions& options, const fabric::NodeFacts& node,
                                       const fabric::CheckRequest& request) {
  const auto pairs = launch::rdma_pairs_from_name(options.launch_pairs);
  if (!pairs) return {};
  const auto rounds = fabric::pair_rounds(*pairs, options.launch_node, options.launch_nodes);
  const auto first = std::ranges::find_if(rounds, [](const fabric::PairRound& each) { return each.to.has_value(); });
  if (first == rounds.end()) return {};
  const auto srun = step::read_srun_link(own_variable);
  if (!srun)
    return {{"ib.pair", Verdict::fail, "there is no srun through which the nodes could exchange addresses",
             "rdma_pairs=off"}};
  const fabric::RingPlan plan = fabric::plan_of(*first, options.launch_node, write_timeout);
  const auto ring = fabric::RingTest::open(node, request, plan);
  if (ring == nullptr) {
    return {
        {"ib.pair", Verdict::unknown, "aml-dist was built without libibverbs' headers", "install a build with them"}};
  }
  const auto names = fabric::node_names_from(options.launch_names);
  const auto check = run_launch_pairs(*ring, plan, rounds, names, exchange_over(*srun, options, names));
  return check ? std::vector<Check>{*check} : std::vector<Check>();
}

void tell_settings(const CheckOptions& options, const fabric::NodeSummary& node, launch::RdmaPolicy policy) {
  constexpr std::chrono::seconds patience{2};
  const auto srun = options.launch_nodes > 1 ? step::read_srun_link(own_variable) : std::nullopt;
  if (!srun) return;
  const std::string text = to_text(fabric::NodeSettings{options.launch_nodes, policy, node});
  static_cast<void>(step::exchange_texts(step::ask_over(*srun), srun->channel.token, fabric::settings_round,
                                         options.launch_node, text, {}, Clock::now() + patience,
                                         std::chrono::milliseconds(50)));
}

}  // namespace amldist::tools
