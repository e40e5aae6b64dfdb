// /proc/ID/stat, in which a program may put any name of its own.
#include "base/os/process_tree.hpp"

#include <string>

#include "fuzz.hpp"

namespace amldist::fuzz::process_tree {

const std::string_view separator = " ";

/// The whole line of an enemy; and a true one, in which only the program's name is the enemy's.
void try_input(std::string_view input) {
  const auto process = within(input.size() * 48 + 4096, [input] { return parse_process_stat(input); });
  require(!process || (process->id >= 0 && process->parent >= 0), "processes have numbers");
  const std::string name(input.substr(0, 15));  // TASK_COMM_LEN less its zero
  const auto own = parse_process_stat("4711 (" + name + ") S 815 4711 4711 0 -1 4194560 1 2 3 4 10 20 30 40 20 0\n");
  require(own && own->parent == 815 && own->state == 'S' && own->cpu_ticks == 100, "a name forges nothing");
}

}  // namespace amldist::fuzz::process_tree
