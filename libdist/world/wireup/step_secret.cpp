#include "world/wireup/step_secret.hpp"

#include <sodium.h>

#include "base/text/text.hpp"
#include "launch/option/settings.hpp"

namespace amldist::world {

Result<Credentials> credentials_of_environment(const EnvironmentReader& environment) {
  auto digits = environment(launch::variable::step_secret);
  if (!digits || digits->empty()) return Credentials{};
  const auto key = Key::from_hex(*digits);
  ::sodium_memzero(digits->data(), digits->size());
  if (key) return Credentials{*key, Trust::authenticated};
  return Error{Errc::invalid_argument, text::concat({launch::variable::step_secret,
                                                     " is not 64 hexadecimal digits: let the plugin set it "
                                                     "(srun --aml-dist=KIND), or unset it"})};
}

}  // namespace amldist::world
