#include "aml_dist/trace/trace_step.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>

#include "aml_dist/common/slurmstepd.hpp"
#include "base/net/own_network.hpp"
#include "base/os/environment.hpp"
#include "base/text/text.hpp"
#include "base/time/calendar_time.hpp"
#include "shared/programs.hpp"
#include "trace/record/record_folder.hpp"
#include "trace/record/settings.hpp"

namespace amldist::tools {
namespace {

namespace fs = std::filesystem;
using text::concat;
using trace::Recording;
using trace::Writer;

/// Folders whose subfolders are steps: this user's, and for root all users'.
std::vector<std::string> all_roots() {
  auto roots =
      trace::believed_roots(trace::trace_roots(own_variable(trace::variable::trace_folder).value_or(""), ::geteuid()));
  if (::geteuid() != 0) return roots;
  for (const char* const parent : {"/dev/shm", "/tmp"}) {
    std::error_code problem;
    for (const auto& entry : fs::directory_iterator(parent, fs::directory_options::skip_permission_denied, problem)) {
      const std::string path = entry.path();
      const bool fits = entry.path().filename().string().starts_with("aml-dist-") && entry.is_directory(problem) &&
                        !entry.is_symlink(problem);
      if (fits && std::ranges::find(roots, path) == roots.end()) roots.push_back(path);
    }
  }
  return roots;
}

bool holds_recorders(const fs::path& folder) {
  std::error_code problem;
  for (const auto& entry : fs::directory_iterator(folder, fs::directory_options::skip_permission_denied, problem)) {
    if (entry.path().extension() == ".trace") return true;
  }
  return false;
}

std::vector<std::string> step_folders_in(const std::string& root) {
  std::vector<std::string> folders;
  std::error_code problem;
  for (const auto& entry : fs::directory_iterator(root, fs::directory_options::skip_permission_denied, problem)) {
    const bool real = entry.is_directory(problem) && !entry.is_symlink(problem);
    if (real && holds_recorders(entry.path())) folders.push_back(entry.path());
  }
  return folders;
}

/// "42" names all steps of job 42.
bool is_named(const std::string& folder, const std::string& name) {
  const std::string own = fs::path(folder).filename();
  return own == name || own.starts_with(name + ".");
}

Result<std::string> only_one(const std::vector<std::string>& found, const std::string& name) {
  if (found.size() == 1) return found.front();
  if (found.empty()) {
    return Error{Errc::not_found,
                 concat({"no flight recorder of ", text::quote(name),
                         " on this node: steps that ended well leave none, and other nodes keep their own "
                         "(AMLDIST_TRACE_DIR on a shared file system brings them together)"})};
  }
  std::vector<std::string_view> names(found.begin(), found.end());
  names.resize(std::min<std::size_t>(names.size(), 4));
  return Error{Errc::invalid_argument, concat({text::quote(name), " matches ", std::to_string(found.size()),
                                               " steps, name one: ", text::join(names)})};
}

/// A job that was requeued gives its steps the same names again. Where the step runs on this node, what is older is of
/// an earlier run; of other nodes' recorders in a shared folder, as far as their clocks can tell.
void drop_earlier_run(std::vector<Recording>& recordings) {
  const auto is_gone = [](const Recording& one) { return one.writer == Writer::gone; };
  if (std::ranges::none_of(recordings, is_gone)) return;
  const auto age = age_of_step(recordings.front().job);
  if (!age) return;
  constexpr std::chrono::seconds moment{1};
  constexpr std::chrono::seconds between_clocks{30};
  std::erase_if(recordings, [&](const Recording& one) {
    const auto most = *age + (one.created_monotonic_ns != 0 ? moment : between_clocks);
    return is_gone(one) && one.age_ms() > most.count();
  });
}

/// The latest moment recorded in any recorder.
std::int64_t last_sign(const std::vector<Recording>& recordings) {
  std::int64_t last = 0;
  for (const Recording& recording : recordings) {
    last = std::max(last, recording.latest_ns);
    for (const auto& call : recording.calls) last = std::max({last, call.enqueued_ns, call.started_ns, call.ended_ns});
  }
  return last;
}

std::string_view without_domain(std::string_view host) { return host.substr(0, host.find('.')); }

}  // namespace

bool is_here(std::string_view host) {
  return host.empty() || host == own_variable("SLURMD_NODENAME") ||
         without_domain(host) == without_domain(own_host_name());
}

std::vector<std::string> list_step_folders() {
  std::vector<std::string> folders;
  for (const std::string& root : all_roots()) std::ranges::move(step_folders_in(root), std::back_inserter(folders));
  std::ranges::stable_sort(folders, [](const std::string& a, const std::string& b) {
    std::error_code problem;
    return fs::last_write_time(a, problem) > fs::last_write_time(b, problem);
  });
  return folders;
}

Result<std::string> find_step_folder(const std::string& name) {
  std::error_code problem;
  if (fs::is_directory(name, problem)) {
    const auto inner = holds_recorders(name) ? std::vector<std::string>{name} : step_folders_in(name);
    if (inner.empty()) {
      return Error{Errc::not_found, concat({text::quote(name), " holds no flight recorder (no file *.trace)"})};
    }
    return only_one(inner, name);
  }
  if (!trace::is_trace_name(name)) {
    return Error{Errc::not_found, concat({text::quote(name), " is neither a folder nor a step (JOBID.STEP)"})};
  }
  std::vector<std::string> found = list_step_folders();
  std::erase_if(found, [&](const std::string& folder) { return !is_named(folder, name); });
  return only_one(found, name);
}

Result<TracedStep> read_traced_step(const std::string& folder) {
  auto read = trace::read_step_recordings(folder);
  if (!read) return read.error();
  if (read->recordings.empty())
    return Error{Errc::unavailable, read->problems.empty() ? "all recorders were removed meanwhile: the step ended well"
                                                           : read->problems.front()};
  drop_earlier_run(read->recordings);
  if (read->recordings.empty())
    return Error{Errc::not_found, concat({"all recorders in ", text::quote(folder),
                                          " are of an earlier run of the job, and the step that runs has none here"})};
  TracedStep step;
  step.folder = folder;
  step.recordings = std::move(read->recordings);
  step.problems = std::move(read->problems);
  step.stalls = trace::find_stalls(step.recordings);
  step.hang = trace::diagnose_hang(step.recordings);
  const bool lives =
      std::ranges::any_of(step.recordings, [](const Recording& one) { return one.writer != Writer::gone; });
  step.now_ns = lives ? calendar_ns() : last_sign(step.recordings);
  return step;
}

}  // namespace amldist::tools
