// The text of a call: in errors, in the flight recorder's messages and in `aml-dist trace`.
#pragma once

#include <cstdint>
#include <string>

#include "calls/data_type.hpp"

namespace amldist::calls {

/// A call in numbers. They may be meaningless, because they may come from a damaged file.
struct CallNumbers {
  Operation operation = Operation::none;
  std::uint64_t sequence = 0;  ///< 0: unknown, left out of the text
  std::uint64_t count = 0;     ///< elements, as amldist.h counts them for the operation
  DataType type = DataType::uint8;
};

/// "allreduce #17 (1048576 float32, 4 MiB)", "recv (10 float32, 40 bytes)", "barrier #3".
[[nodiscard]] std::string describe(const CallNumbers& call);

/// "640 KiB", "1 MiB", "300 bytes": exact, in the largest unit that divides it.
[[nodiscard]] std::string describe_bytes(std::uint64_t bytes);

}  // namespace amldist::calls
