// The administrator's file and the arguments in plugstack.conf, read in slurmd, slurmstepd and srun.
#include "launch/site/site_policy.hpp"

#include "fuzz.hpp"

namespace amldist::fuzz::site_policy {

const std::string_view separator = "\n";

void try_input(std::string_view input) {
  const std::string_view content = input.substr(0, launch::longest_config);  // more is refused before it is parsed
  const auto lines = within(content.size() * 64 + 4096, [content] { return launch::config_lines(content); });
  for (const std::string_view line : lines) require(!line.empty() && line.find('\n') == line.npos, "a line is a line");
  launch::SitePolicy policy = launch::SitePolicy::defaults();
  // A line with a slip is compared with every name, and told.
  constexpr std::size_t bytes_per_line = 16384;
  const auto complaints = within(content.size() * 256 + lines.size() * bytes_per_line + 4096,
                                 [&] { return apply_arguments(policy, lines); });
  require(complaints.size() <= lines.size(), "one complaint for a line");
  for (const std::string& complaint : complaints) require_sentence(complaint);
  require(!policy.ports.empty(), "there are always ports");
  require(policy.interface.empty() || launch::is_interface_name(policy.interface), "an interface has a possible name");
  require(policy.suffix.empty() || launch::is_host("x" + policy.suffix), "a suffix ends a host's name");
  require(policy.config_file.empty() || policy.config_file.front() == '/', "config= is absolute");
  launch::SitePolicy again = policy;
  static_cast<void>(apply_arguments(again, lines));
  require(again.ports == policy.ports && again.suffix == policy.suffix && again.disabled == policy.disabled &&
              again.default_kind == policy.default_kind && again.rdma_of_partition == policy.rdma_of_partition &&
              again.rdma_of_feature == policy.rdma_of_feature && again.rdma_of_sku == policy.rdma_of_sku,
          "the same arguments again change nothing");
}

}  // namespace amldist::fuzz::site_policy
