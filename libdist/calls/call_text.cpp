#include "calls/call_text.hpp"

#include <array>
#include <limits>
#include <string_view>

#include "base/text/text.hpp"

namespace amldist::calls {
namespace {

using text::concat;

/// Whether a call moves elements.
bool has_elements(Operation operation) noexcept {
  return operation != Operation::barrier && operation != Operation::split && operation != Operation::finalize &&
         operation != Operation::init && operation != Operation::none;
}

/// ", 4 MiB"; empty if the size is not known.
std::string bytes_clause(const CallNumbers& call) {
  const std::uint64_t size = size_of(call.type);
  const bool fits = size != 0 && call.count <= std::numeric_limits<std::uint64_t>::max() / size;
  return fits && call.count != 0 ? concat({", ", describe_bytes(call.count * size)}) : std::string();
}

}  // namespace

std::string describe(const CallNumbers& call) {
  std::string words(to_string(call.operation));
  if (call.sequence != 0) words += concat({" #", std::to_string(call.sequence)});
  if (!has_elements(call.operation)) return words;
  return words + concat({" (", std::to_string(call.count), " ", to_string(call.type), bytes_clause(call), ")"});
}

std::string describe_bytes(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 5> units = {" bytes", " KiB", " MiB", " GiB", " TiB"};
  std::size_t unit = 0;
  while (bytes != 0 && bytes % 1024 == 0 && unit + 1 < units.size()) {
    bytes /= 1024;
    ++unit;
  }
  return concat({std::to_string(bytes), units[unit]});
}

}  // namespace amldist::calls
