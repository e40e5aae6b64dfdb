// What the fuzz targets share: invariants that abort, a meter for memory, and numbers and texts out of raw input.
//
// A target is one file that defines try_input() and separator in the namespace of its name. libFuzzer calls it through
// fuzz.cpp, which also hands it now and then a long text, made of the input again and again, since a fuzzer alone
// hardly ever comes to the kernel's 128 KiB. All targets are one program, which is linked once, and has a name for
// each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/text/environment.hpp"

namespace amldist::fuzz {

// The list that CMake writes.
#define TARGET(name)                       \
  namespace name {                         \
  extern const std::string_view separator; \
  void try_input(std::string_view input);  \
  }
#include "targets.def"
#undef TARGET

struct Target {
  std::string_view name;
  /// Reads hostile input and checks what it makes of it.
  void (*try_input)(std::string_view input);
  /// Separates the copies of the input in a long text, as the target's grammar does.
  const std::string_view* separator;
};

/// Ends the process with the sentence if the invariant does not hold.
void require(bool holds, const char* invariant);

/// A message is one sentence for a terminal: not empty, not long, nothing but printable ASCII.
void require_sentence(std::string_view message);

/// Bytes that were asked of malloc so far in this process.
[[nodiscard]] std::size_t allocated() noexcept;

/// Result of `work`, which may ask for at most this much memory in all. What asks for much also takes long, so this is
/// a limit on time that does not depend on the machine.
template <typename Work>
auto within(std::size_t most_bytes, Work work) {
  const std::size_t before = allocated();
  auto result = work();
  require(allocated() - before <= most_bytes, "asked for more memory than such an input may cost");
  return result;
}

/// Takes values off the front of an input; zeros and empty texts when it has ended.
class Input {
 public:
  explicit Input(std::string_view bytes) noexcept : rest_(bytes) {}

  [[nodiscard]] bool ended() const noexcept { return rest_.empty(); }
  std::uint8_t byte() noexcept;
  /// 0 to `most`.
  std::uint32_t number(std::uint32_t most) noexcept;
  /// Up to the next line's end.
  std::string_view line() noexcept;
  std::string_view rest() noexcept { return std::exchange(rest_, {}); }

 private:
  std::string_view rest_;
};

}  // namespace amldist::fuzz
