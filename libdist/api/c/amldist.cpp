#include "amldist/amldist.h"

#include <cstddef>
#include <cstring>
#include <limits>

#include "api/c/guard.hpp"
#include "base/os/environment.hpp"
#include "base/text/text.hpp"
#include "launch/option/spec.hpp"
#include "launch/rendezvous/own_identity.hpp"
#include "step/cause/fault_note.hpp"

namespace {

using amldist::Errc;
using amldist::Error;
using amldist::Result;

static_assert(sizeof(amldist_identity) == 40, "the layout of amldist_identity is part of the ABI");
static_assert(offsetof(amldist_identity, master_port) == 32, "the layout of amldist_identity is part of the ABI");

}  // namespace

const char* amldist_version(void) { return AMLDIST_VERSION; }

int amldist_get_identity(amldist_identity* identity) {
  return amldist::api::guarded([identity]() -> Result<void> {
    if (identity == nullptr || identity->struct_size < sizeof(amldist_identity)) {
      return Error{Errc::invalid_argument, "amldist_get_identity: set struct_size to sizeof(amldist_identity)"};
    }
    const auto own = amldist::launch::read_own_identity(amldist::process_environment());
    if (!own) return own.error();
    const auto number = [](std::uint32_t value) { return static_cast<std::int32_t>(value); };
    *identity = {identity->struct_size,
                 number(own->identity.rank),
                 number(own->identity.size),
                 number(own->identity.local_rank),
                 number(own->identity.local_size),
                 number(own->identity.node_rank),
                 number(own->identity.nodes),
                 own->master_port.value_or(0)};
    return {};
  });
}

int amldist_check_option(const char* text) {
  return amldist::api::guarded([text]() -> Result<void> {
    if (text == nullptr) return Error{Errc::invalid_argument, "amldist_check_option: the text is NULL"};
    if (amldist::launch::is_help(text)) return {};
    const auto spec = amldist::launch::parse_spec(text);
    if (!spec) return spec.error();
    return {};
  });
}

int amldist_report_faults(int traceback_signal, int traceback_file) {
  return amldist::step::note_faults(traceback_signal, traceback_file) ? 1 : 0;
}
