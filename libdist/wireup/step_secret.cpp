#include "wireup/step_secret.hpp"

#include <sodium.h>

#include "core/settings.hpp"
#include "core/text.hpp"

namespace amldist::wireup {

Result<Credentials> credentials_of_environment(const EnvironmentReader& environment) {
  auto digits = environment(variable::step_secret);
  if (!digits || digits->empty()) return Credentials{};
  const auto key = Key::from_hex(*digits);
  ::sodium_memzero(digits->data(), digits->size());
  if (key) return Credentials{*key, Trust::authenticated};
  return Error{Errc::invalid_argument, text::concat({variable::step_secret,
                                                     " is not 64 hexadecimal digits: let the plugin set it "
                                                     "(srun --aml-dist=KIND), or unset it"})};
}

}  // namespace amldist::wireup
