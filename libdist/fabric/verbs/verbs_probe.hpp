// Tries the verbs: which devices libibverbs lists, whether memory can be registered, whether an RDMA write to the
// device itself arrives.
#pragma once

#include <chrono>

#include "fabric/checks/check_request.hpp"
#include "fabric/facts/process_facts.hpp"

namespace amldist::fabric {

/// Tries every judged device, in a separate process that is killed after `timeout`, so that a hanging driver does not
/// block the caller. Call it from a single-threaded program. A build without libibverbs' headers reports that as the
/// reason.
[[nodiscard]] VerbsFacts probe_verbs(const NodeFacts& node, const CheckRequest& request,
                                     std::chrono::milliseconds timeout);

}  // namespace amldist::fabric
