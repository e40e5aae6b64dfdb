#include "step/server/roll_call.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/text/text.hpp"

namespace amldist::step {
namespace {

using std::chrono::seconds;
using text::concat;

/// Nodes report when they have read the launch record, so nearly at the same time.
constexpr seconds quiet{1};
constexpr seconds between_questions{1};
/// From the first sight of tasks: their node reported before it forked them, and repeats that until it is heard.
constexpr seconds for_a_report{2};
/// A healthy node starts a step well within a second. Slurm's work grows with the square of the variables: ten thousand
/// are two seconds of a processor, of which a busy node may have little.
seconds time_to_start(std::size_t variables) {
  constexpr seconds least{8};
  constexpr seconds longest{600};
  constexpr std::size_t most = 100'000;
  constexpr std::size_t for_a_second = 2'000'000;
  const std::size_t pairs = std::min(variables, most) * std::min(variables, most);
  return std::min(longest, least + seconds(pairs / for_a_second));
}
constexpr seconds for_a_prolog{600};
/// Nodes that Slurm is asked about, and that a sentence names.
constexpr std::size_t most_named = 4;

}  // namespace

RollCall::RollCall(std::vector<std::string> hosts, Clock::time_point now, std::size_t variables)
    : missing_(std::make_move_iterator(hosts.begin()), std::make_move_iterator(hosts.end())),
      for_a_start_(time_to_start(variables)),
      changed_(now) {}

bool RollCall::take(std::string_view host, Clock::time_point now) {
  if (present_.contains(host)) return true;
  const auto found = missing_.find(host);
  if (found == missing_.end()) return false;
  present_.insert(missing_.extract(found));
  if (const auto said = said_.find(host); said != said_.end()) said_.erase(said);
  changed_ = now;
  return true;
}

std::optional<Clock::time_point> RollCall::due() const {
  if (is_complete()) return std::nullopt;
  return std::max(changed_ + quiet, asked_ ? *asked_ + between_questions : changed_);
}

std::vector<std::string> RollCall::first_missing() const {
  const auto count = static_cast<std::ptrdiff_t>(std::min(missing_.size(), most_named));
  return {missing_.begin(), std::next(missing_.begin(), count)};
}

std::vector<std::string> RollCall::to_ask(Clock::time_point now) {
  const auto next = due();
  if (!next || now < *next) return {};
  asked_ = now;
  return first_missing();
}

void RollCall::note(const std::string& host, NodePresence presence, Clock::time_point now) {
  if (asked_) asked_ = std::max(*asked_, now);  // the pause begins with the last answer
  if (!missing_.contains(host)) return;
  Said& node = said_[host];
  const bool absent = presence == NodePresence::absent || presence == NodePresence::in_prolog;
  if (presence == NodePresence::has_started && !node.started) node.started = now;
  if (absent && !node.absent_since) node.absent_since = now;
  if (!absent) node.absent_since.reset();
  node.patience = presence == NodePresence::in_prolog ? for_a_prolog : for_a_start_;
}

RollCall::Fault RollCall::fault_of(const Said& node, Clock::time_point now) {
  if (node.started && now - *node.started >= for_a_report) return Fault::started;
  return node.absent_since && now - *node.absent_since >= node.patience ? Fault::absent : Fault::none;
}

RollCall::Verdict RollCall::blame(std::vector<std::string> nodes, bool certain) const {
  const std::string_view own = nodes.size() > 1 ? "their" : "its";
  const std::vector<std::string_view> names(nodes.begin(), nodes.end());
  std::string sentence = concat(
      {text::join(names, ", "), " started ", own, " tasks without aml-dist", certain ? "" : ", or could not start them",
       " (", own, " plugstack.conf does not load the plugin", certain ? "" : ", or the plugin's file is missing there",
       present_.empty() ? ", or UDP from there does not reach srun" : "", "): the step is ended"});
  return {std::move(nodes), std::move(sentence)};
}

std::optional<RollCall::Verdict> RollCall::verdict(Clock::time_point now) const {
  std::vector<std::string> nodes;
  bool certain = true;
  for (const auto& [host, node] : said_) {
    const Fault fault = fault_of(node, now);
    if (fault != Fault::none) nodes.push_back(host);
    certain = certain && fault != Fault::absent;
  }
  return nodes.empty() ? std::nullopt : std::optional(blame(std::move(nodes), certain));
}

RollCall::Verdict RollCall::verdict_at_end() const { return blame(first_missing(), false); }

}  // namespace amldist::step
