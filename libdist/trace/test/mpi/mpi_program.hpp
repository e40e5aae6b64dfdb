// Plays an MPI program of two ranks: loads the part that records, and an MPI whose calls end at once (fake_mpi.c).
//
// One process per test, because a process has one recorder; each ends before MPI_Finalize would remove its file.
#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "scratch.hpp"
#include "trace/record/record_reader.hpp"

namespace amldist::trace::mpi_test {

using calls::Operation;
using testing::ScratchFolder;
using trace::CallRecord;
using trace::Recording;
using trace::recorder_format::State;

inline constexpr int world = 0x44000000;
inline constexpr int float32 = 0x4c00040a;
inline constexpr int sum = 0x58000003;

/// MPI as the program sees it.
class Mpi {
 public:
  Mpi() : part_(::dlopen(PART, RTLD_NOW | RTLD_LOCAL)), fake_(::dlopen(FAKE_MPI, RTLD_NOW | RTLD_LOCAL)) {}
  [[nodiscard]] int use() const { return function<int(void*)>("amldist_mpitrace_use")(fake_); }
  template <typename... Arguments>
  int call(const char* name, Arguments... arguments) const {
    return function<int(Arguments...)>(name)(arguments...);
  }
  /// What happens once at a place in MPI: see fake_mpi.c.
  void at(const char* hook, void (*does)()) const { *static_cast<void (**)()>(::dlsym(fake_, hook)) = does; }
  /// By a call that is not recorded.
  [[nodiscard]] int make_communicator() const {
    int made = 0;
    reinterpret_cast<int (*)(int, int*)>(::dlsym(fake_, "PMPI_Comm_dup"))(world, &made);
    return made;
  }
  /// A call that is not recorded, because MPI itself tells what it ends.
  void free_communicator(int comm) const { reinterpret_cast<int (*)(int*)>(::dlsym(fake_, "PMPI_Comm_free"))(&comm); }

 private:
  template <typename Function>
  [[nodiscard]] Function* function(const char* name) const {
    return reinterpret_cast<Function*>(::dlsym(part_, name));
  }
  void* part_;
  void* fake_;
};

/// Runs the program in a process of its own and reads what it recorded.
inline Recording recorded_by(const std::function<void(const Mpi&)>& program) {
  const ScratchFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("AMLDIST_TRACE", "42.0", 1);
    ::setenv("AMLDIST_TRACE_DIR", folder.path().c_str(), 1);
    ::setenv("SLURM_PROCID", "0", 1);
    ::setenv("SLURM_STEP_NUM_TASKS", "2", 1);
    const Mpi mpi;
    if (mpi.use() != 1) ::_exit(1);
    mpi.call<int*, char***>("MPI_Init", nullptr, nullptr);
    program(mpi);
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  auto recording = trace::read_recording(AT_FDCWD, folder.path() + "/42.0/0.mpi.trace");
  EXPECT_TRUE(recording) << (recording ? "" : recording.error().message);
  return recording ? std::move(*recording) : Recording{};
}

inline std::vector<CallRecord> calls_on(const Recording& recording, std::string_view communicator) {
  std::vector<CallRecord> found;
  for (const CallRecord& call : recording.calls) {
    const auto* const of = recording.communicator(call.communicator);
    if (of != nullptr && of->name == communicator) found.push_back(call);
  }
  return found;
}

inline int allreduce(const Mpi& mpi, int comm = world, int count = 4) {
  float in = 0;
  float out = 0;
  return mpi.call<const void*, void*, int, int, int, int>("MPI_Allreduce", &in, &out, count, float32, sum, comm);
}

inline constexpr int fails = 1001;
inline constexpr int never_ends = 1002;

inline int receive(const Mpi& mpi, int tag, int source = 1) {
  static float in = 0;
  int request = 0;
  mpi.call<void*, int, int, int, int, int, int*>("MPI_Irecv", &in, 1, float32, source, tag, world, &request);
  return request;
}

}  // namespace amldist::trace::mpi_test
