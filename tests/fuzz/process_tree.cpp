// /proc/ID/stat, in which a program may put any name of its own.
#include "base/os/process_tree.hpp"

#include <string>

#include "fuzz.hpp"

namespace amldist::fuzz {

const std::string_view separator = " ";

/// The whole line of an enemy; and a true one, in which only the program's name is the enemy's.
void try_input(std::string_view input) {
  const auto parent = within(input.size() * 48 + 4096, [input] { return parent_in_stat(input); });
  require(!parent || *parent >= 0, "a parent has a number");
  const std::string name(input.substr(0, 15));  // TASK_COMM_LEN less its zero
  require(parent_in_stat("4711 (" + name + ") S 815 4711 4711 0 -1 4194560\n") == 815, "a name cannot forge a parent");
}

}  // namespace amldist::fuzz
