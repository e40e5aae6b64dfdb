#include "aml_dist/keep/job_state.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/os/file_descriptor.hpp"
#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"

namespace amldist::keep {
namespace {

using nlohmann::json;
using text::concat;

constexpr std::size_t longest_state = std::size_t{16} << 20;

json to_json(const Start& start) {
  json out = {{"cause", to_string(start.cause)},  {"node", start.node},         {"blamed", start.blamed},
              {"failure", start.failure},         {"evidence", start.evidence}, {"status", start.status},
              {"rank_status", start.rank_status}, {"ended", start.ended},       {"ran", start.ran}};
  if (start.advanced) out["advanced"] = *start.advanced;
  if (start.at_limit) out["at_limit"] = true;
  return out;
}

Cause cause_of(const std::string& name) {
  for (auto cause = Cause::done; cause != Cause::unknown; cause = Cause{static_cast<int>(cause) + 1}) {
    if (step::to_string(cause) == name) return cause;
  }
  return Cause::unknown;
}

Start to_start(const json& from) {
  Start start{.cause = cause_of(from.at("cause").get<std::string>()),
              .node = from.at("node"),
              .blamed = from.at("blamed"),
              .failure = from.at("failure"),
              .evidence = from.at("evidence"),
              .status = from.at("status"),
              .rank_status = from.at("rank_status"),
              .ended = from.at("ended"),
              .ran = from.at("ran")};
  if (from.contains("advanced")) start.advanced = from.at("advanced").get<bool>();
  start.at_limit = from.value("at_limit", false);
  return start;
}

Error cannot_write(const std::string& path) {
  return {Errc::unavailable, concat({text::quote(path), " cannot be written: ", std::strerror(errno)})};
}

}  // namespace

std::string state_file_of(const JobRun& run) { return concat({".aml-dist-keep-", std::to_string(run.job), ".json"}); }

Result<JobState> read_state(const std::string& path, const JobRun& run) {
  const auto content = read_whole_file_of(path, longest_state, ::geteuid());
  if (!content) {
    return content.error().code == Errc::not_found
               ? content.error()
               : Error{Errc::unavailable, concat({text::quote(path), ": ", content.error().message})};
  }
  try {
    const json root = json::parse(*content);
    const bool earlier = root.at("schema") == 1 && root.at("cluster") == run.cluster && root.at("job") == run.job &&
                         root.at("restarts").get<std::uint32_t>() < run.restarts;
    if (!earlier) return Error{Errc::not_found, concat({text::quote(path), " is not of an earlier run of this job"})};
    JobState state{.excluded = root.at("excluded"), .batch_host = root.at("batch_host"), .runs = root.at("runs")};
    for (const json& each : root.at("history")) state.history.push_back(to_start(each));
    return state;
  } catch (const json::exception&) {
    return Error{Errc::invalid_argument, concat({text::quote(path), " is not a file of keep's"})};
  }
}

Result<void> write_state(const std::string& path, const JobRun& run, const JobState& state) {
  json root = {{"schema", 1},
               {"cluster", run.cluster},
               {"job", run.job},
               {"restarts", run.restarts},
               {"excluded", state.excluded},
               {"batch_host", state.batch_host},
               {"runs", state.runs},
               {"history", json::array()}};
  for (const Start& each : state.history) root["history"].push_back(to_json(each));
  const std::string draft = path + ".new";
  ::unlink(draft.c_str());
  const FileDescriptor file(::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return cannot_write(path);
  const std::string text = root.dump(-1, ' ', true, json::error_handler_t::replace) + "\n";
  const bool written =
      write_all(file.get(), text) && ::fsync(file.get()) == 0 && std::rename(draft.c_str(), path.c_str()) == 0;
  if (written) return {};
  const Error error = cannot_write(path);
  ::unlink(draft.c_str());
  return error;
}

}  // namespace amldist::keep
