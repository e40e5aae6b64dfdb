// Trying the verbs: which devices libibverbs lists, whether memory can be registered, whether a write to oneself
// arrives.
#pragma once

#include <chrono>

#include "fabric/process_facts.hpp"
#include "fabric/question.hpp"

namespace amldist::fabric {

/// Tries every judged device, in a process of its own that is killed when `timeout` has passed: a driver that hangs
/// takes nobody along. Call it from a program with one thread. A build without libibverbs' headers says so.
[[nodiscard]] VerbsFacts probe_verbs(const NodeFacts& node, const Question& question,
                                     std::chrono::milliseconds timeout);

}  // namespace amldist::fabric
