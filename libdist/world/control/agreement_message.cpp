#include "world/control/agreement_message.hpp"

#include <algorithm>

namespace amldist::world {
namespace {

void write(FrameWriter& writer, const Exclusions& excluded) {
  writer.number(excluded.size());
  for (const auto& [rank, why] : excluded) writer.number(rank).number(static_cast<std::uint64_t>(why));
}

bool read(Frame& frame, Exclusions& excluded) {
  const std::uint64_t size = frame.number();
  for (std::uint64_t i = 0; i < size && !frame.is_short(); ++i) {
    const std::uint64_t rank = frame.number();
    const std::uint64_t why = frame.number();
    if (rank > UINT32_MAX || why < 1 || why > static_cast<std::uint64_t>(Exclusion::late)) return false;
    excluded.emplace(static_cast<std::uint32_t>(rank), static_cast<Exclusion>(why));
  }
  return !frame.is_short();
}

}  // namespace

std::string AgreementMessage::to_frame() const {
  FrameWriter writer(FrameKind::agreement);
  writer.number(communicator)
      .number(round)
      .number(static_cast<std::uint64_t>(kind))
      .number(has_arrived ? 1 : 0)
      .number(is_lost ? 1 : 0)
      .number(flags)
      .number(purposes)
      .number(static_cast<std::uint64_t>(left.count()));
  write(writer, excluded);
  writer.number(proposal ? 1 : 0);
  if (proposal) {
    writer.number(proposal->coordinator).number(proposal->value.flags).number(proposal->value.purposes);
    write(writer, proposal->value.excluded);
  }
  return writer.take();
}

std::optional<AgreementMessage> read_agreement_message(Frame& frame) {
  AgreementMessage message;
  message.communicator = frame.number();
  message.round = frame.number();
  const std::uint64_t kind = frame.number();
  message.kind = static_cast<AgreementMessage::Kind>(kind);
  message.has_arrived = frame.number() != 0;
  message.is_lost = frame.number() != 0;
  message.flags = frame.number();
  message.purposes = frame.number();
  constexpr std::uint64_t most = std::chrono::milliseconds::max().count();
  message.left = std::chrono::milliseconds(std::min(frame.number(), most));
  if (kind < 1 || kind > static_cast<std::uint64_t>(AgreementMessage::Kind::out)) return std::nullopt;
  if (!read(frame, message.excluded)) return std::nullopt;
  if (frame.number() != 0) {
    auto& proposal = message.proposal.emplace(AgreementMessage::Proposal{});
    proposal.coordinator = static_cast<std::uint32_t>(frame.number());
    proposal.value.flags = frame.number();
    proposal.value.purposes = frame.number();
    if (!read(frame, proposal.value.excluded)) return std::nullopt;
  }
  const bool needs_proposal = message.kind == AgreementMessage::Kind::propose ||
                              message.kind == AgreementMessage::Kind::accept ||
                              message.kind == AgreementMessage::Kind::decide;
  if (frame.is_short() || (needs_proposal && !message.proposal)) return std::nullopt;
  return message;
}

}  // namespace amldist::world
