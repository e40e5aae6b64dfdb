// The private memory of the other processes of a node: read by the kernel in a single copy (process_vm_readv(2), Linux
// 3.2), without a staging buffer. Intel MPI, MPICH and Open MPI call it CMA.
//
// It is never written: a rank that was stopped in a call would do so when it continues, and the survivors may use that
// memory for something else by then (decision 27).
//
// The kernel allows it to processes of one user, as it allows a debugger; Yama's ptrace_scope=1, some containers and
// other PID namespaces do not. So all ranks of a node try it when a communicator is made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/result.hpp"

namespace amldist::collective {

class PeerMemory {
 public:
  /// For `ranks` processes; none of them is opened yet.
  explicit PeerMemory(std::size_t ranks) : processes_(ranks, 0) {}

  /// A number in this process's memory that others read to find out whether they can. They may do so while it exists.
  class Sample {
   public:
    /// `value`: unique to this process.
    explicit Sample(std::uint64_t value) : value_(value) {}
    ~Sample() = default;
    Sample(const Sample&) = delete;
    Sample& operator=(const Sample&) = delete;
    /// "PROCESS:ADDRESS:VALUE", for open() in another process.
    [[nodiscard]] std::string address() const;

   private:
    std::uint64_t value_;
  };

  /// Whether this process may read the memory of the process that has that sample; that process is then rank `rank`.
  /// The text is not trusted: a process that does not have that value at that address is not opened.
  [[nodiscard]] bool open(std::size_t rank, std::string_view sample_address);

  /// Copies from an address in the process of an opened rank. Errors, as clauses for people: peer (that process has
  /// ended, or the call fails otherwise); invalid_argument (one of the two ranges is not memory, or the kernel does not
  /// let this process read it). Thread-safe.
  [[nodiscard]] Result<void> read(std::size_t rank, void* to, std::uint64_t from, std::size_t bytes) const;

 private:
  std::vector<int> processes_;
};

/// For an address that comes from this rank: leaves the range unchanged, but ends the process, as any other algorithm
/// would, if the range is not writable memory.
void write_to_each_page(std::byte* data, std::size_t bytes);
/// The error for `bytes` that a rank gave as a buffer to send although they are not memory of its process, or not
/// readable by another; `why` as PeerMemory::read() returned it.
[[nodiscard]] Error bad_buffer_of(int rank, std::string_view host, std::size_t bytes, std::string_view why);

}  // namespace amldist::collective
