#include "step/messages/server_release.hpp"

#include "base/text/text.hpp"
#include "launch/placement/task_map.hpp"
#include "step/messages/datagram.hpp"

namespace amldist::step {

std::string WorkerEnd::to_datagram(std::uint64_t token) const {
  return encode(token, {"ended", chief ? "chief" : "worker", std::to_string(rank), std::to_string(wait_status),
                        std::to_string(chiefs), std::to_string(workers)});
}

std::optional<WorkerEnd> WorkerEnd::parse(std::string_view datagram, std::uint64_t token) {
  constexpr std::size_t field_count = 6;
  constexpr std::uint64_t most_status = 0xffff;
  const auto fields = decode(datagram, token);
  if (!fields || fields->size() != field_count || fields->front() != "ended") return std::nullopt;
  const std::string_view role = (*fields)[1];
  const auto rank = text::to_number((*fields)[2], most_tasks - 1);
  const auto status = text::to_number((*fields)[3], most_status);
  const auto chiefs = text::to_number((*fields)[4], 1);
  const auto workers = text::to_number((*fields)[5], most_tasks);
  if ((role != "chief" && role != "worker") || !rank || !status || !chiefs || !workers) return std::nullopt;
  if (*rank >= *chiefs + *workers) return std::nullopt;
  return WorkerEnd{role == "chief", static_cast<std::uint32_t>(*rank), static_cast<std::uint32_t>(*status),
                   static_cast<std::uint32_t>(*chiefs), static_cast<std::uint32_t>(*workers)};
}

void ServerRelease::take(const WorkerEnd& end, Clock::time_point now) {
  chiefs_ = end.chiefs;
  workers_ = end.workers;
  const bool well = end.wait_status == 0;
  if (end.chief) {
    if (well && !chief_ended_well_) chief_ended_well_ = now;
    return;
  }
  ended_.insert(end.rank);
  if (well) ended_well_.insert(end.rank);
}

bool ServerRelease::due(Clock::time_point now) const {
  if (chiefs_ > 0) return chief_ended_well_ && (ended_.size() == workers_ || now - *chief_ended_well_ >= grace);
  return workers_ > 0 && ended_well_.size() == workers_;
}

}  // namespace amldist::step
