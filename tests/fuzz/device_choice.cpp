// Variables of a job that choose devices: SLURM_STEP_GPUS, which root reads when a task has failed, and NCCL_IB_HCA,
// UCX_NET_DEVICES and UCX_TLS, by which the fabric is verified.
//
// Input: a line that names a device, then the variable.
#include "fabric/facts/numbered_gpus.hpp"
#include "fabric/facts/selection.hpp"
#include "fuzz.hpp"

namespace amldist::fuzz::device_choice {
namespace {

using fabric::NcclSelection;

void check_gpus(std::string_view list) {
  constexpr std::size_t most_gpus = 64;
  const auto numbers = within(4096 + list.size() * 64, [list] { return fabric::parse_gpu_list(list); });
  require(numbers.size() <= most_gpus, "no more GPUs than a node can have");
  for (const std::uint32_t number : numbers) require(number <= 1023, "a GPU has a small number");
}

void check_nccl(std::string_view device, std::string_view text, NcclSelection::Grammar grammar) {
  const auto chosen = within(4096 + text.size() * 128, [=] { return NcclSelection::parse(text, grammar); });
  const bool takes = chosen.takes(device, 1);
  require(!chosen.takes_by_prefix_only(device, 1) || takes, "what is taken by its prefix is taken");
  if (chosen.entries().empty()) require(takes != chosen.excludes(), "an empty list selects all, with '^' none");
}

}  // namespace

const std::string_view separator = ",";

void try_input(std::string_view input) {
  Input lines(input);
  const std::string device(lines.line().substr(0, 64));
  const std::string_view text = lines.rest();
  check_gpus(text);
  check_nccl(device, text, NcclSelection::Grammar::current);
  check_nccl(device, text, NcclSelection::Grammar::before_2_30);
  const auto ucx = within(4096 + text.size() * 256, [text] { return fabric::UcxSelection::parse(text); });
  static_cast<void>(ucx.takes(device, 1));
  static_cast<void>(fabric::ucx_allows_verbs(text));
}

}  // namespace amldist::fuzz::device_choice
