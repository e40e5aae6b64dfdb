// Turns what is known about a task into the variables that its framework reads.
//
// Each kind has one file with one translator: a pure function that adds the framework's variables to a patch. To add a
// framework, write <kind>.cpp with one function of this signature and name it in task_environment.cpp.
#pragma once

#include "base/text/environment.hpp"
#include "base/text/result.hpp"
#include "launch/option/spec.hpp"
#include "launch/placement/identity.hpp"
#include "launch/placement/step_facts.hpp"
#include "launch/rendezvous/rendezvous.hpp"

namespace amldist::launch {

/// Input of a translator. References are valid during the call.
struct TaskFacts {
  const Spec& spec;
  const Placement& placement;
  const Rendezvous& rendezvous;
  const Identity& identity;
  const EnvironmentReader& inherited;  ///< the task's environment before the patch
};

/// Adds a kind's variables. Errors only for what cannot be expressed (mismatch, limit); then the patch is unchanged.
using Translator = Result<void> (*)(const TaskFacts& task, EnvironmentPatch& patch);

Result<void> translate_pytorch(const TaskFacts& task, EnvironmentPatch& patch);
Result<void> translate_mpi(const TaskFacts& task, EnvironmentPatch& patch);
Result<void> translate_tensorflow(const TaskFacts& task, EnvironmentPatch& patch);
Result<void> translate_jax(const TaskFacts& task, EnvironmentPatch& patch);
Result<void> translate_ray(const TaskFacts& task, EnvironmentPatch& patch);

}  // namespace amldist::launch
