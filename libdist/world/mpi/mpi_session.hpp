// MPI in this process: used if the program has initialised it, or initialised here if the user asks for it.
//
//   AMLDIST_TRANSPORT=mpi   data between nodes goes over MPI; initialised here if the program has not done it
//   AMLDIST_TRANSPORT=tcp   data never goes over MPI
//   AMLDIST_BOOTSTRAP=mpi   the ranks find rank 0 over MPI; initialised here if the program has not done it
//   none of them            MPI is used if the program has initialised Open MPI
// MPI's rank and size must agree with the launcher's.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "calls/watchdog.hpp"
#include "launch/placement/process_identity.hpp"
#include "world/mpi/functions.h"
#include "world/settings.hpp"

namespace amldist::world {

/// Opens the part that is linked with MPI: `named` if given, else the one beside this library, else as the dynamic
/// linker finds it. It stays open. Errors: unavailable, mismatch (another release).
[[nodiscard]] Result<const amldist_mpi_functions*> load_mpi(const std::string& named = {});

class MpiSession {
 public:
  /// MPI as this process uses it; a null pointer if it is not to be used. Errors: unavailable if the user asks for it
  /// and it is not available, mismatch if MPI and the launcher disagree.
  [[nodiscard]] static Result<std::unique_ptr<MpiSession>> find(const Settings& settings,
                                                                const launch::ProcessIdentity& identity);
  /// Uses functions whose MPI is initialised. `initialized_here`: the destructor finalises MPI.
  MpiSession(const amldist_mpi_functions& functions, bool initialized_here);
  /// Frees MPI's objects after end_well(); otherwise leaves them, because other ranks may not answer.
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  [[nodiscard]] const amldist_mpi_functions& functions() const noexcept { return functions_; }
  [[nodiscard]] bool serves_any_thread() const noexcept { return any_thread_; }
  /// Whether MPI itself yields the processor when idle: mpirun sets this if there are more ranks than processors.
  [[nodiscard]] bool yields() const noexcept { return yields_; }
  /// Whether data goes over MPI, or the user wants it only for the bootstrap.
  [[nodiscard]] bool carries_data() const noexcept { return carries_data_; }
  /// For messages: "Open MPI v4.1.4".
  [[nodiscard]] const std::string& library() const noexcept { return library_; }

  /// Creates the communicator for data if there is none yet; collective over the world.
  [[nodiscard]] Result<void> open(calls::Watchdog& watchdog);
  [[nodiscard]] amldist_mpi_handle comm() const noexcept { return comm_; }

  /// Tags distinguish communicators; each has two. This is the lowest tag that no communicator of this process uses.
  /// The ranks agree on the highest of theirs, and use it and the next.
  [[nodiscard]] int next_tag() const noexcept { return next_tag_; }
  void take_tag(int tag) noexcept { next_tag_ = tag + 1; }
  [[nodiscard]] bool has_tags() const noexcept { return next_tag_ + 1 < largest_tag_; }

  /// "MPI_ERR_TRUNCATE: message truncated" for an error number.
  [[nodiscard]] std::string error_text(int error) const;
  /// Keeps memory that MPI may still read after a communicator has failed.
  void keep(std::vector<std::byte> memory) { abandoned_.push_back(std::move(memory)); }
  void end_well() noexcept { ended_well_ = true; }
  /// Whether MPI was finalised although it carries data here: no function of it may be called any more.
  [[nodiscard]] bool is_over() const noexcept { return comm_ != 0 && functions_.state() == AMLDIST_MPI_FINALIZED; }

 private:
  [[nodiscard]] Result<void> check(const launch::ProcessIdentity& identity);

  const amldist_mpi_functions& functions_;
  const bool initialized_here_;
  bool carries_data_ = true;
  bool any_thread_ = false;
  bool yields_ = false;
  bool ended_well_ = false;
  int largest_tag_ = 0;
  int next_tag_ = 1;
  amldist_mpi_handle comm_ = 0;
  std::string library_;
  std::vector<std::vector<std::byte>> abandoned_;
};

}  // namespace amldist::world
