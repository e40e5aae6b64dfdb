#include "world/bootstrap/world_secret.hpp"

#include "base/text/text.hpp"
#include "world/wireup/step_secret.hpp"

namespace amldist::world {
namespace {

using text::concat;
using world::Credentials;
using world::Key;
using world::Trust;

/// Rank 0 makes the secret that comes with its address; the others receive both.
Result<WorldSecret> secret_with_address(const launch::ProcessIdentity& identity, RootAddress& root,
                                        Clock::time_point deadline) {
  WorldSecret out;
  if (identity.rank == 0) {
    const auto key = Key::random();
    if (!key) return key.error();
    root.carry(*key);
  } else if (const auto status = root.look_up(deadline); !status) {
    return status.error();
  }
  if (const auto carried = root.carried()) out.credentials = {*carried, Trust::unproven};
  else out.reason = "rank 0 sent no secret with its address";
  return out;
}

WorldSecret secret_of_file(const EnvironmentReader& environment, const RootAddress& root, std::string_view job) {
  WorldSecret out;
  auto file = world::SecretFile::open(concat({job, " ", root.to_string()}), environment);
  if (file) {
    out.credentials = {file->key(), Trust::authenticated};
    out.file = std::move(*file);
  } else {
    out.reason = file.error().message;
  }
  return out;
}

bool is_on_one_machine(const launch::ProcessIdentity& identity, const RootAddress& root) {
  return identity.nodes == 1U || identity.local_size == identity.size || root.is_loopback();
}

Result<WorldSecret> first_secret(const EnvironmentReader& environment, const std::optional<Key>& given,
                                 const launch::ProcessIdentity& identity, RootAddress& root, std::string_view job,
                                 Clock::time_point deadline) {
  WorldSecret out;
  if (given) {
    out.credentials = {*given, Trust::authenticated};
    return out;
  }
  const auto handed = world::credentials_of_environment(environment);
  if (!handed) return handed.error();
  out.credentials = *handed;
  if (out.credentials.trust != Trust::open) return out;
  if (root.carries_secret()) return secret_with_address(identity, root, deadline);
  if (is_on_one_machine(identity, root)) return secret_of_file(environment, root, job);
  out.reason = "no source has one";
  return out;
}

}  // namespace

Result<WorldSecret> find_world_secret(const EnvironmentReader& environment, launch::SecretPolicy policy,
                                      const std::optional<Key>& given, const launch::ProcessIdentity& identity,
                                      RootAddress& root, std::string_view job, Clock::time_point deadline) {
  auto out = first_secret(environment, given, identity, root, job, deadline);
  if (!out || policy != launch::SecretPolicy::require || out->credentials.trust == Trust::authenticated) return out;
  const bool is_open = out->credentials.trust == Trust::open;
  return Error{
      Errc::unavailable,
      concat(
          {launch::variable::secret, "=require, but ",
           is_open ? concat({"the ranks have no secret (", out->reason, ")"})
                   : concat({"the ranks' secret comes over a service that others may read (", root.to_string(), ")"}),
           ": start the step with srun --aml-dist=KIND, or give all ranks the same ", launch::variable::step_secret})};
}

}  // namespace amldist::world
