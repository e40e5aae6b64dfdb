// The processes that this one starts, and whatever they start: all end with it, whoever their parents are.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <initializer_list>
#include <string>
#include <vector>

#include "base/os/child_process.hpp"
#include "base/text/result.hpp"

namespace amldist::ray {

/// Orphans below this process become its children from now on, so that family() has them.
void adopt_orphans();

/// Takes the ends of adopted ones, for which nobody waits: they would count as processes of the step until its end.
/// `awaited`: the children whose ends their owners take.
void reap_orphans(std::initializer_list<pid_t> awaited) noexcept;

/// A program that the kernel kills when this process dies, with signals as a shell starts one.
struct Member {
  std::vector<std::string> words;
  std::vector<std::string> environment;  ///< "NAME=VALUE"
  int output = -1;                       ///< descriptor for both of its outputs; negative: this process's
  bool own_group = true;                 ///< signals to this process's group do not reach it
};
/// A program that cannot be started says so and ends with status 126 or 127. Errors: internal.
[[nodiscard]] Result<ChildProcess> start(const Member& member);

/// Ends every process below this one: SIGTERM to all, then SIGKILL to those that are left after `grace`, until
/// none is. The children of ChildProcess must have been waited for, or are not of interest any more. Returns how many
/// there were.
std::size_t end_family(std::chrono::milliseconds grace);

}  // namespace amldist::ray
