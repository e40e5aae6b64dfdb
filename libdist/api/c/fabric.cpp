// The C interface of the fabric's verification.
#include <cstring>

#include "amldist/amldist.h"
#include "api/c/guard.hpp"
#include "base/os/environment.hpp"
#include "base/text/text.hpp"
#include "fabric/checks/checks.hpp"
#include "fabric/report/report_json.hpp"

namespace {

using amldist::Errc;
using amldist::Error;
using amldist::Result;
namespace fabric = amldist::fabric;

Result<fabric::CheckRequest> make_request(const char* policy, const char* sku) {
  const auto named = policy != nullptr ? amldist::launch::policy_from_name(policy) : std::nullopt;
  if (!named) return Error{Errc::invalid_argument, "amldist_verify_node: the policy is require, prefer or off"};
  fabric::CheckRequest request;
  request.policy = *named;
  request.policy_source = "the caller";
  request.environment = amldist::process_environment();
  auto found = fabric::find_sku(sku != nullptr ? sku : "");
  if (!found) return found.error();
  request.sku = std::move(*found);
  return request;
}

amldist_verdict verdict_of(fabric::Verdict verdict) {
  switch (verdict) {
    case fabric::Verdict::pass:
      return AMLDIST_VERDICT_PASS;
    case fabric::Verdict::warn:
      return AMLDIST_VERDICT_WARN;
    case fabric::Verdict::fail:
      return AMLDIST_VERDICT_FAIL;
    case fabric::Verdict::unknown:
      return AMLDIST_VERDICT_UNKNOWN;
    case fabric::Verdict::skip:
      break;
  }
  return AMLDIST_VERDICT_SKIP;
}

Result<void> hand_out(const std::string& text, char* json, std::size_t size) {
  if (json == nullptr) return {};
  if (text.size() >= size) {
    return Error{Errc::limit,
                 amldist::text::concat({"amldist_verify_node: the object needs ", std::to_string(text.size() + 1),
                                        " bytes, the buffer has ", std::to_string(size)})};
  }
  std::memcpy(json, text.c_str(), text.size() + 1);
  return {};
}

}  // namespace

int amldist_verify_node(const char* policy, const char* sku, char* json, size_t size) {
  amldist_verdict verdict = AMLDIST_VERDICT_SKIP;
  const int status = amldist::api::guarded([&]() -> Result<void> {
    const auto request = make_request(policy, sku);
    if (!request) return request.error();
    const fabric::NodeFacts node = fabric::read_node(fabric::Roots());
    fabric::Evidence evidence;
    evidence.process = fabric::read_process(node);
    evidence.process->verbs.reason = "no device is used by a library call: aml-dist check does it";
    const fabric::Report report = verify_node(node, *request, evidence);
    verdict = verdict_of(report.verdict());
    const fabric::FabricSettings settings = settings_of(node, *request);
    return hand_out(to_json(fabric::NodeReport{node.host, report, settings}), json, size);
  });
  return status == AMLDIST_OK ? verdict : status;
}
