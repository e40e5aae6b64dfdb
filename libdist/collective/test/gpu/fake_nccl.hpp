// How tests steer the fake NCCL that they have loaded.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace amldist::testing {

/// One stream: operations that were enqueued on it and have not run.
struct FakeStream {
  std::atomic<int> pending = 0;
};

/// What goes wrong, and what was seen. Ranks are threads of one process.
struct FakeNccl {
  std::atomic<int> fail_init = 0;        ///< result of ncclCommInitRankConfig
  std::atomic<bool> init_hangs = false;  ///< it never leaves ncclInProgress
  std::atomic<int> async_error = 0;      ///< what ncclCommGetAsyncError tells of every communicator
  std::atomic<int> call_result = 0;      ///< result of every collective
  std::atomic<int> busy_answers = 0;     ///< so often the next calls answer ncclInProgress before they succeed
  std::atomic<int> alive = 0;            ///< communicators that are neither destroyed nor aborted
  std::atomic<int> aborted = 0;
  std::atomic<int> destroyed = 0;
  std::atomic<int> registered = 0;
  std::atomic<int> allocated = 0;
  std::mutex mutex;
  std::map<std::string, int> calls;  ///< by NCCL's name; guarded by mutex
};

}  // namespace amldist::testing
