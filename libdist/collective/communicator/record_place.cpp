#include "collective/communicator/record_place.hpp"

#include <unistd.h>

#include <set>
#include <span>
#include <string_view>

#include "base/text/hex.hpp"
#include "base/text/tasks_per_node.hpp"
#include "base/text/text.hpp"
#include "launch/placement/process_identity.hpp"
#include "trace/record/record_folder.hpp"
#include "trace/record/settings.hpp"
#include "world/wireup/key.hpp"

namespace amldist::collective {
namespace {

using text::concat;

struct RankInStep {
  std::string_view step;
  std::uint32_t rank;
  std::uint32_t size;
};

std::optional<RankInStep> parse_rank_in_step(std::string_view words) {
  const auto space = words.find(' ');
  const auto slash = words.find('/');
  if (space == std::string_view::npos || slash == std::string_view::npos || slash < space) return std::nullopt;
  const auto rank = text::to_number(words.substr(space + 1, slash - space - 1), most_tasks);
  const auto size = text::to_number(words.substr(slash + 1), most_tasks);
  if (!trace::is_trace_name(words.substr(0, space)) || !rank || !size || *rank >= *size) return std::nullopt;
  return RankInStep{words.substr(0, space), static_cast<std::uint32_t>(*rank), static_cast<std::uint32_t>(*size)};
}

}  // namespace

std::string world_name(std::uint64_t nonce) {
  std::string name = "world-";
  const auto hash = world::hash_of(concat({"recorder of world ", to_hex(nonce, sizeof nonce)}));
  for (const unsigned char byte : std::span(hash).first(sizeof nonce)) append_hex(name, byte);
  return trace::trace_name(name);
}

std::optional<std::string> step_name(const EnvironmentReader& environment) {
  // Below a launcher that the plugin has started Slurm's own variables are hidden.
  const std::string traced = environment(trace::variable::trace).value_or("");
  if (trace::is_trace_name(traced)) return traced;
  const auto job = environment("SLURM_JOB_ID");
  const auto step = environment("SLURM_STEP_ID");
  if (!job || !step) return std::nullopt;
  return trace::trace_name(concat({*job, ".", *step}));
}

std::string rank_in_step(const EnvironmentReader& environment) {
  const auto step = step_name(environment);
  const auto told = launch::read_process_identity(environment, ::getpid());
  if (!step || !told || told->size < 2) return {};
  return concat({*step, " ", std::to_string(told->rank), "/", std::to_string(told->size)});
}

std::optional<RecordPlace> shared_place(const std::vector<std::string>& ranks_in_step, const trace::RecorderOwner& own,
                                        const EnvironmentReader& environment) {
  const auto mine = own.rank < ranks_in_step.size() ? parse_rank_in_step(ranks_in_step[own.rank]) : std::nullopt;
  if (!mine) return std::nullopt;
  RecordPlace place{own};
  std::set<std::uint32_t> taken;
  for (const std::string& each : ranks_in_step) {
    const auto found = parse_rank_in_step(each);
    const bool fits =
        found && found->step == mine->step && found->size == mine->size && taken.insert(found->rank).second;
    if (!fits) return std::nullopt;
    place.step_ranks.push_back(found->rank);
  }
  place.owner.job = mine->step;
  place.owner.rank = mine->rank;
  place.owner.size = mine->size;
  const auto told = launch::read_process_identity(environment, ::getpid());
  if (told && told->local_rank) place.owner.local_rank = *told->local_rank;
  return place;
}

}  // namespace amldist::collective
