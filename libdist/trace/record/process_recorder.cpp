#include "trace/record/process_recorder.hpp"

#include <unistd.h>

#include <mutex>
#include <utility>
#include <vector>

#include "base/text/text.hpp"

namespace amldist::trace {
namespace {

using text::concat;

struct OpenRecorder {
  pid_t process = 0;
  std::string folder;
  std::uint32_t rank = 0;
  std::weak_ptr<ProcessRecorder> recorder = {};
};

/// The recorders that this process has open. A child of fork() inherits the list but uses nothing of it.
struct OpenRecorders {
  std::mutex mutex;
  std::vector<OpenRecorder> list;
};

OpenRecorders& open_recorders() {
  // NOLINTNEXTLINE(bugprone-unhandled-exception-at-new): without memory for one object the program cannot go on either
  static auto* const one = new OpenRecorders;  // never destroyed: worlds may end while the process does
  return *one;
}

}  // namespace

Result<std::shared_ptr<ProcessRecorder>> ProcessRecorder::open(const std::string& folder, const RecorderOwner& owner) {
  OpenRecorders& open = open_recorders();
  const std::lock_guard lock(open.mutex);
  std::erase_if(open.list, [](const OpenRecorder& each) { return each.recorder.expired(); });
  for (const OpenRecorder& each : open.list) {
    const auto known = each.recorder.lock();
    if (known == nullptr || each.process != ::getpid() || each.folder != folder || !known->enter()) continue;
    if (each.rank == owner.rank) return known;
    known->leave(FlightRecorder::Ending::well);
    return Error{Errc::mismatch,
                 concat({"this process records as rank ", std::to_string(each.rank), " and not as rank ",
                         std::to_string(owner.rank), " in ", text::quote(folder)})};
  }
  auto created = FlightRecorder::create(folder, owner);
  if (!created) return created.error();
  auto made = std::make_shared<ProcessRecorder>(std::move(*created));
  made->worlds_ = 1;
  open.list.push_back({::getpid(), folder, owner.rank, made});
  return made;
}

/// Returns false if the last world has left it meanwhile.
bool ProcessRecorder::enter() noexcept {
  const std::lock_guard lock(mutex_);
  if (!recorder_.on()) return false;
  ++worlds_;
  return true;
}

std::uint32_t ProcessRecorder::add_communicator(const RecordedCommunicator& communicator) noexcept {
  const std::lock_guard lock(mutex_);
  return recorder_.add_communicator(communicator);
}

void ProcessRecorder::note(std::string_view sentence, const std::optional<recorder_format::WrongCall>& wrong) noexcept {
  const std::lock_guard lock(mutex_);
  recorder_.note(sentence, wrong);
}

void ProcessRecorder::leave(FlightRecorder::Ending ending) noexcept {
  const std::lock_guard lock(mutex_);
  has_failed_ = has_failed_ || ending == FlightRecorder::Ending::failed;
  if (worlds_ == 0 || --worlds_ > 0) return;
  recorder_.close(has_failed_ ? FlightRecorder::Ending::failed : FlightRecorder::Ending::well);
}

}  // namespace amldist::trace
