#include "collective/communicator/context/call_recorder.hpp"

#include "trace/diagnosis/call_words.hpp"

namespace amldist::collective {

void CallRecorder::add(const world::CommWatch& watch, std::string_view name, std::uint32_t parent) {
  if (process_.recorder == nullptr) return;
  const std::vector<std::uint32_t> ranks = process_.in_step(watch.members());
  const std::string members = trace::name_of_members(ranks);
  watch_ = &watch;
  slot_ = process_.recorder->add_communicator({watch.id(), watch.rank(), static_cast<std::uint32_t>(ranks.size()),
                                               name.empty() ? members : name, parent, ranks});
  recorder_ = &process_.recorder->calls();
}

void CallRecorder::fail(Ticket ticket, const Error& error) {
  if (recorder_ == nullptr) return;
  recorder_->fail(ticket, status_number(error.code));
  const auto wrong = wrong_call();
  process_.recorder->note(wrong ? watch_->diagnosis()->message : error.message, wrong);
}

/// nullopt, too, where the sentence gives ranks other numbers than the step does.
std::optional<trace::recorder_format::WrongCall> CallRecorder::wrong_call() const {
  const world::ErrorSubject subject = watch_->error_subject();
  const auto& members = watch_->members();
  if (subject.wrong == 0 || process_.in_step(members) != members) return std::nullopt;
  const bool is_one = subject.wrong == 1 && subject.rank >= 0;
  return trace::recorder_format::WrongCall{is_one ? std::optional(members[static_cast<std::size_t>(subject.rank)])
                                                  : std::nullopt};
}

}  // namespace amldist::collective
