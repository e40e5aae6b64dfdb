// Work that a thread does while its own call waits for another rank (as MPICH's progress hooks).
#pragma once

namespace amldist::collective {

/// Called from inside a wait, again and again; never waits itself. Used by one thread at a time.
class ProgressHook {
 public:
  virtual ~ProgressHook() = default;
  ProgressHook() = default;
  ProgressHook(const ProgressHook&) = delete;
  ProgressHook& operator=(const ProgressHook&) = delete;

  virtual void drive() = 0;
};

}  // namespace amldist::collective
