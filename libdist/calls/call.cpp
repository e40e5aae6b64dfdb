#include "calls/call.hpp"

#include "calls/call_text.hpp"

namespace amldist::calls {

std::string describe(const Call& call) {
  return describe(CallNumbers{call.operation, call.sequence, call.count, call.type});
}

}  // namespace amldist::calls
