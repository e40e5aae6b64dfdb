#include "collective/communicator/context/call_recorder.hpp"

#include "trace/diagnosis/call_words.hpp"

namespace amldist::collective {

void CallRecorder::add(const world::CommWatch& watch, std::string_view name, std::uint32_t parent) {
  if (process_.recorder == nullptr) return;
  const std::vector<std::uint32_t> ranks = process_.in_step(watch.members());
  const std::string members = trace::name_of_members(ranks);
  slot_ = process_.recorder->add_communicator({watch.id(), watch.rank(), static_cast<std::uint32_t>(ranks.size()),
                                               name.empty() ? members : name, parent, ranks});
  recorder_ = &process_.recorder->calls();
}

void CallRecorder::fail(Ticket ticket, const Error& error) {
  if (recorder_ == nullptr) return;
  recorder_->fail(ticket, status_number(error.code));
  process_.recorder->note(error.message);
}

}  // namespace amldist::collective
