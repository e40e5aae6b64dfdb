#include "collective/calls/call.hpp"

#include "collective/calls/call_text.hpp"

namespace amldist::collective {

std::string describe(const Call& call) {
  return describe(CallNumbers{call.operation, call.sequence, call.count, call.type});
}

}  // namespace amldist::collective
