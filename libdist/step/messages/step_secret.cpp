#include "step/messages/step_secret.hpp"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/text/hex.hpp"
#include "base/text/text.hpp"
#include "launch/option/settings.hpp"

namespace amldist::step {
namespace {

constexpr std::size_t secret_bytes = 32;

bool is_secret(std::string_view text) {
  return text.size() == 2 * secret_bytes &&
         std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace

void forget_outer_secret() noexcept {
  ::unsetenv(launch::variable::step_secret.data());
  ::unsetenv(secret_variable);
}

Result<void> send_secret() {
  std::array<unsigned char, secret_bytes> bytes{};
  ssize_t got = 0;
  do got = ::getrandom(bytes.data(), bytes.size(), 0);
  while (got < 0 && errno == EINTR);
  if (got != static_cast<ssize_t>(bytes.size())) {
    return Error{Errc::unavailable, text::concat({"cannot get random bytes for the step's secret: ",
                                                  got < 0 ? std::strerror(errno) : "too few"})};
  }
  std::string text;
  for (const unsigned char byte : bytes) append_hex(text, byte);
  if (::setenv(secret_variable, text.c_str(), 1) == 0) return {};
  return Error{Errc::internal, "out of memory: srun cannot add a variable to its environment"};
}

std::string read_secret(const EnvironmentReader& environment) {
  auto text = environment(secret_variable).value_or("");
  return is_secret(text) ? text : std::string();
}

void give_secret(const std::string& secret, const EnvironmentReader& inherited, EnvironmentPatch& patch) {
  if (!secret.empty()) patch.set(launch::variable::step_secret, secret);
  else if (inherited(launch::variable::step_secret)) patch.unset(launch::variable::step_secret);
  if (inherited(secret_variable)) patch.unset(secret_variable);
}

}  // namespace amldist::step
