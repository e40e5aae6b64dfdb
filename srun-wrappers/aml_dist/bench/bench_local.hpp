// Ranks on this node, started by the tool: our own, and beside them those of other libraries.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "aml_dist/bench/bench_plan.hpp"
#include "base/os/child_process.hpp"
#include "base/os/file_descriptor.hpp"
#include "base/text/result.hpp"

namespace amldist::tools {

/// Processes that serve requests (bench_serve). They sleep while others are measured, and end with this object.
class LocalRanks {
 public:
  /// Starts `ranks` processes of this program as the ranks of one step.
  [[nodiscard]] static Result<std::unique_ptr<LocalRanks>> start_own(int ranks);
  /// Starts the peer that --peer names: "openmpi", the program that was built with aml-dist; or NAME=MPICC, compiled by
  /// that mpicc now and started by the mpirun (or mpiexec) beside it; "gloo" or gloo=PYTHON, a Python that has torch;
  /// "torch" or torch=PYTHON, one that has the package amldist as well.
  [[nodiscard]] static Result<std::unique_ptr<LocalRanks>> start_peer(const std::string& peer, int ranks);

  LocalRanks(const LocalRanks&) = delete;
  LocalRanks& operator=(const LocalRanks&) = delete;
  ~LocalRanks();

  /// The way to measure with all of them; must not outlive this object.
  [[nodiscard]] MeasuredLibrary library();

 private:
  explicit LocalRanks(std::string name) : name_(std::move(name)) {}
  [[nodiscard]] Result<void> listen();
  [[nodiscard]] Result<void> start_torch(const std::string& peer, int ranks);
  [[nodiscard]] bool is_of_torch() const;
  [[nodiscard]] Result<void> start_mpi(const std::string& peer, int ranks);
  [[nodiscard]] Result<void> accept_ranks(int ranks);
  [[nodiscard]] Result<void> start(const std::vector<std::string>& command,
                                   const std::vector<std::string>& environment);
  [[nodiscard]] Result<bench_result> measure(const bench_request& request);
  [[nodiscard]] bool somebody_died();

  std::string name_;
  std::string folder_;  ///< for the socket and the compiled peer
  FileDescriptor listener_;
  std::vector<FileDescriptor> ranks_;
  std::vector<ChildProcess> processes_;
};

/// Runs `aml-dist bench ARGUMENTS` as each of this many ranks on this node, to the end. Returns the first exit status
/// that is not 0.
[[nodiscard]] Result<int> run_ranks(int ranks, const std::vector<std::string>& arguments);

}  // namespace amldist::tools
