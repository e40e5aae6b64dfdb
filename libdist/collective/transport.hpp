// Messages between the ranks of one communicator: several sends and receives at once, none of which can block another.
// What carries them is behind this interface: TCP everywhere, MPI where the processes have it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "collective/backend.hpp"

namespace amldist::collective {

/// One message. `peer` is a rank of the communicator, other than the own one. Signature and length travel with the
/// data: a receiver that expects something else says so instead of taking the wrong bytes.
struct Message {
  int peer = 0;
  std::byte* data = nullptr;  ///< a send only reads it
  std::size_t bytes = 0;
  std::uint32_t signature = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  /// "tcp", "mpi"; static.
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  /// Whether any thread may use it, or only the one from which the program makes its calls.
  [[nodiscard]] virtual bool serves_any_thread() const noexcept = 0;
  /// Runs all messages to their end. Messages between the same two ranks arrive in the order of the lists. Not used
  /// again after an error.
  [[nodiscard]] virtual Result<void> exchange(std::span<const Message> sends, std::span<const Message> receives,
                                              Vigil& vigil) = 0;
};

}  // namespace amldist::collective
