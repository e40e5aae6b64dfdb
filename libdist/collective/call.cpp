#include "collective/call.hpp"

#include "core/text.hpp"

namespace amldist::collective {
namespace {

constexpr std::uint64_t mixed(std::uint64_t digest, std::uint64_t value) noexcept {
  digest = (digest ^ value) * 0x9e3779b97f4a7c15ULL;
  return digest ^ (digest >> 29);
}

}  // namespace

std::uint32_t signature_of(const Call& call) noexcept {
  const bool counted = call.operation != Operation::allgatherv && call.operation != Operation::alltoallv;
  const auto word = static_cast<std::uint64_t>(call.operation) | static_cast<std::uint64_t>(call.type) << 8 |
                    static_cast<std::uint64_t>(is_reduction(call.operation) ? call.redop : ReduceOp::sum) << 16 |
                    static_cast<std::uint64_t>(static_cast<std::uint32_t>(call.root)) << 32;
  const std::uint64_t digest = mixed(mixed(1, word), counted ? call.count : 0);
  return static_cast<std::uint32_t>(digest ^ (digest >> 32));
}

std::string describe(const Call& call) {
  std::string text = text::concat({to_string(call.operation), " #", std::to_string(call.sequence)});
  const bool bare = call.operation == Operation::barrier || call.operation == Operation::split ||
                    call.operation == Operation::finalize || call.operation == Operation::init ||
                    call.operation == Operation::none;
  if (!bare) text += text::concat({" (", std::to_string(call.count), " ", to_string(call.type), ")"});
  return text;
}

}  // namespace amldist::collective
