#include "base/os/inherited_descriptors.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

namespace amldist {
namespace {

/// close_range(2) as a raw call: glibc has it from 2.34, Linux from 5.9.
bool close_in_one_call(unsigned first, unsigned last) noexcept {
#ifdef SYS_close_range
  return ::syscall(SYS_close_range, first, last, 0U) == 0;
#else
  static_cast<void>(first);
  static_cast<void>(last);
  return false;
#endif
}

/// Closes `first` up to but not including `end`.
void close_between(unsigned first, unsigned end) noexcept {
  if (first >= end || close_in_one_call(first, end - 1)) return;
  constexpr long most = 65536;
  const long limit = std::clamp(::sysconf(_SC_OPEN_MAX), 256L, most);
  for (unsigned i = first; i < std::min(end, static_cast<unsigned>(limit)); ++i) ::close(static_cast<int>(i));
}

}  // namespace

void close_all_but(int one, int other) noexcept {
  // With -1 nothing is kept open: the number after it is 0.
  const auto [low, high] = std::minmax(one, other);
  close_between(0, static_cast<unsigned>(std::max(low, 0)));
  close_between(static_cast<unsigned>(low + 1), static_cast<unsigned>(std::max(high, 0)));
  close_between(static_cast<unsigned>(high + 1), std::numeric_limits<unsigned>::max());
}

}  // namespace amldist
