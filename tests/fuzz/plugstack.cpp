// plugstack.conf, in which srun looks how Slurm loads the plugin.
#include "launch/site/plugstack.hpp"

#include "fuzz.hpp"
#include "launch/site/site_policy.hpp"

namespace amldist::fuzz::plugstack {

const std::string_view separator = "\n";

void try_input(std::string_view input) {
  const std::string_view content = input.substr(0, launch::longest_config);
  const auto stack = within(content.size() * 192 + 4096, [content] { return launch::parse_plugstack(content); });
  require(stack.lines.empty() || content.find("spank_aml_dist.so") != content.npos, "nobody loads us without our name");
  require(stack.includes.size() <= content.size() / 7 + 1, "an include is a line");
  for (const std::string& pattern : stack.includes) {
    require(pattern.find_first_of(" \t\n") == pattern.npos && content.find(pattern) != content.npos, "a word of it");
  }
}

}  // namespace amldist::fuzz::plugstack
