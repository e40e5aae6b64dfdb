#include "aml_run/runs/run.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/os/file_descriptor.hpp"
#include "base/text/text.hpp"
#include "shared/programs.hpp"

namespace amldist::run {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using text::concat;

constexpr std::size_t longest_run_file = std::size_t{16} * 1024 * 1024;

std::string run_file(const std::string& folder) { return folder + "/run.json"; }

ordered_json job_to_json(const RunJob& job) {
  return {{"name", job.name},     {"needs", job.needs},           {"after_any_end", job.after_any_end},
          {"trials", job.trials}, {"concurrent", job.concurrent}, {"ids", job.ids}};
}

RunJob job_of(const ordered_json& json) {
  RunJob job;
  job.name = json.at("name").get<std::string>();
  job.needs = json.at("needs").get<std::vector<std::string>>();
  job.after_any_end = json.at("after_any_end").get<bool>();
  job.trials = json.at("trials").get<std::uint32_t>();
  job.concurrent = json.at("concurrent").get<std::uint32_t>();
  job.ids = json.at("ids").get<std::vector<std::string>>();
  return job;
}

Result<Run> read_run(const std::string& folder) {
  const auto content = commands::read_file(run_file(folder), longest_run_file);
  if (!content) return content.error();
  try {
    const auto json = ordered_json::parse(*content);
    Run run;
    run.folder = folder;
    run.name = fs::path(folder).filename().string();
    run.kind = json.at("kind").get<std::string>();
    run.source = json.at("source").get<std::string>();
    run.continue_on_failure = json.at("continue_on_failure").get<bool>();
    for (const auto& job : json.at("jobs")) run.jobs.push_back(job_of(job));
    for (RunJob& job : run.jobs) {
      auto script = commands::read_file(concat({folder, "/jobs/", job.name, ".sh"}), longest_run_file);
      if (script) job.script = std::move(*script);
    }
    return run;
  } catch (const nlohmann::json::exception&) {
    return Error{Errc::invalid_argument, concat({run_file(folder), " is not what aml-run wrote: it cannot be read"})};
  }
}

Error cannot_write(const std::string& path) {
  return {Errc::unavailable, concat({text::quote(path), " cannot be written: ", std::strerror(errno)})};
}

bool has_job(const Run& run, std::string_view id) {
  id = id.substr(0, id.find('_'));
  return std::ranges::any_of(run.jobs,
                             [&](const RunJob& job) { return std::ranges::find(job.ids, id) != job.ids.end(); });
}

}  // namespace

RunJob* Run::find(std::string_view job_name) {
  const auto found = std::ranges::find(jobs, job_name, &RunJob::name);
  return found == jobs.end() ? nullptr : &*found;
}

const RunJob* Run::find(std::string_view job_name) const {
  const auto found = std::ranges::find(jobs, job_name, &RunJob::name);
  return found == jobs.end() ? nullptr : &*found;
}

std::string sweep_folder_of(const Run& run, const RunJob& job) {
  return run.kind == "sweep" ? run.folder : concat({run.folder, "/", job.name});
}

std::string runs_folder() {
  std::error_code ignored;
  return (fs::current_path(ignored) / "aml-runs").string();
}

std::string next_run_name(std::string_view wanted) {
  std::string name;
  for (const char c : wanted) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    if (plain) name += c;
    else if (!name.empty() && name.back() != '-') name += '-';
    if (name.size() == 60) break;
  }
  while (name.ends_with('-')) name.pop_back();
  if (name.empty()) name = "run";
  const std::string folder = runs_folder();
  for (std::size_t number = 1;; ++number) {
    std::error_code ignored;
    std::string candidate = concat({name, "-", std::to_string(number)});
    if (!fs::exists(concat({folder, "/", candidate}), ignored)) return candidate;
  }
}

Result<void> replace_file(const std::string& path, std::string_view content) {
  const std::string temporary = concat({path, ".", std::to_string(::getpid())});
  {
    const FileDescriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!file) return cannot_write(temporary);
    while (!content.empty()) {
      const ssize_t count = ::write(file.get(), content.data(), content.size());
      if (count < 0 && errno != EINTR) return cannot_write(temporary);
      if (count > 0) content.remove_prefix(static_cast<std::size_t>(count));
    }
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) return cannot_write(path);
  return {};
}

Result<void> save_run(const Run& run) {
  auto jobs = ordered_json::array();
  for (const RunJob& job : run.jobs) jobs.push_back(job_to_json(job));
  const ordered_json json = {{"kind", run.kind},
                             {"source", run.source},
                             {"continue_on_failure", run.continue_on_failure},
                             {"jobs", std::move(jobs)}};
  return replace_file(run_file(run.folder), json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n");
}

Result<void> create_run(const Run& run) {
  std::error_code wrong;
  for (const char* const folder : {"/jobs", "/logs", "/state"}) {
    fs::create_directories(run.folder + folder, wrong);
    if (wrong) {
      return Error{Errc::unavailable, concat({text::quote(run.folder + folder), " cannot be made: ", wrong.message()})};
    }
  }
  for (const RunJob& job : run.jobs) {
    if (auto done = replace_file(concat({run.folder, "/jobs/", job.name, ".sh"}), job.script); !done) return done;
  }
  return save_run(run);
}

Result<Run> open_run(std::string_view id) {
  const std::string name(id);
  std::error_code ignored;
  for (const std::string& folder :
       {concat({runs_folder(), "/", name}), fs::absolute(name, ignored).lexically_normal().string()}) {
    if (!name.empty() && fs::exists(run_file(folder), ignored)) return read_run(folder);
  }
  for (Run& run : all_runs()) {
    if (has_job(run, id)) return std::move(run);
  }
  return Error{Errc::not_found, concat({"there is no run ", text::quote(id), " in ", runs_folder(),
                                        ": aml-run --list shows those there are"})};
}

std::vector<Run> all_runs() {
  std::vector<std::string> folders;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(runs_folder(), ignored)) {
    if (fs::exists(run_file(entry.path().string()), ignored)) folders.push_back(entry.path().string());
  }
  std::ranges::sort(folders);
  std::vector<Run> runs;
  for (const std::string& folder : folders) {
    if (auto run = read_run(folder)) runs.push_back(std::move(*run));
  }
  return runs;
}

void mark_stopped(const Run& run, std::string_view why) {
  const FileDescriptor file(::open((run.folder + "/stopped").c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (file && ::write(file.get(), why.data(), why.size()) < 0) ::unlink((run.folder + "/stopped").c_str());
}

void clear_stopped(const Run& run) { ::unlink((run.folder + "/stopped").c_str()); }

std::string why_stopped(const Run& run) {
  const auto text = commands::read_file(run.folder + "/stopped", 4096);
  if (!text) return {};
  return text->empty() ? "no reason is given" : *text;
}

}  // namespace amldist::run
