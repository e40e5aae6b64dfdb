#include "collective/calls/call.hpp"

#include "core/text.hpp"

namespace amldist::collective {
std::string describe(const Call& call) {
  std::string text = text::concat({to_string(call.operation), " #", std::to_string(call.sequence)});
  const bool bare = call.operation == Operation::barrier || call.operation == Operation::split ||
                    call.operation == Operation::finalize || call.operation == Operation::init ||
                    call.operation == Operation::none;
  if (!bare) text += text::concat({" (", std::to_string(call.count), " ", to_string(call.type), ")"});
  return text;
}

}  // namespace amldist::collective
