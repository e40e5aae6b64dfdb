#include "aml_run/runs/run.hpp"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "aml_run/owned_folder.hpp"
#include "base/text/text.hpp"
#include "shared/json.hpp"

namespace amldist::run {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using text::concat;
using Missing = OwnedFolder::Missing;

constexpr std::size_t longest_run_file = std::size_t{16} * 1024 * 1024;

constexpr const char* run_file = "run.json";

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

Result<Run> read_run(const OwnedFolder& folder) {
  const auto content = folder.read(run_file, longest_run_file);
  if (!content) return content.error();
  try {
    const auto json = commands::parse_json(*content);
    Run run;
    run.folder = folder.path();
    run.name = fs::path(run.folder).filename().string();
    run.kind = json.at("kind").get<std::string>();
    run.source = json.at("source").get<std::string>();
    run.continue_on_failure = json.at("continue_on_failure").get<bool>();
    for (const auto& job : json.at("jobs")) run.jobs.push_back(job_of(job));
    const auto scripts = folder.enter("jobs", Missing::fails);
    if (!scripts) return scripts.error();
    for (RunJob& job : run.jobs) {
      auto script = scripts->read(job.name + ".sh", longest_run_file);
      if (!script) return script.error();
      job.script = std::move(*script);
    }
    return run;
  } catch (const nlohmann::json::exception&) {
    return Error{Errc::invalid_argument,
                 concat({folder.path(), "/", run_file, " cannot be read: aml-run did not write it"})};
  }
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

Result<void> save_run(const Run& run) {
  const auto folder = OwnedFolder::open(run.folder);
  if (!folder) return folder.error();
  auto jobs = ordered_json::array();
  for (const RunJob& job : run.jobs) jobs.push_back(job_to_json(job));
  const ordered_json json = {{"kind", run.kind},
                             {"source", run.source},
                             {"continue_on_failure", run.continue_on_failure},
                             {"jobs", std::move(jobs)}};
  return folder->write(run_file, commands::json_text(json, 1));
}

Result<std::string> make_run_folder(const std::string& name) {
  const std::string place = fs::path(runs_folder()).parent_path().string();
  const auto runs = OwnedFolder::open(place, "aml-runs", Missing::is_made);
  if (!runs) return runs.error();
  const auto folder = runs->make(name);
  return folder ? Result<std::string>(folder->path()) : Result<std::string>(folder.error());
}

Result<void> create_run(const Run& run) {
  if (auto status = make_run_folder(run.name); !status) return status.error();
  const auto folder = OwnedFolder::open(run.folder);
  if (!folder) return folder.error();
  for (const char* const name : {"jobs", "logs", "state"}) {
    if (auto status = folder->make(name); !status) return status.error();
  }
  const auto scripts = folder->enter("jobs", Missing::fails);
  if (!scripts) return scripts.error();
  for (const RunJob& job : run.jobs) {
    if (auto status = scripts->write(job.name + ".sh", job.script); !status) return status;
  }
  return save_run(run);
}

Result<Run> open_run(std::string_view id) {
  const std::string name(id);
  std::error_code ignored;
  for (const std::string& path :
       {concat({runs_folder(), "/", name}), fs::absolute(name, ignored).lexically_normal().string()}) {
    if (name.empty() || !fs::exists(concat({path, "/", run_file}), ignored)) continue;
    const auto folder = OwnedFolder::open(path);
    return folder ? read_run(*folder) : Result<Run>(folder.error());
  }
  auto runs = all_runs();
  if (!runs) return runs.error();
  for (Run& run : *runs) {
    if (has_job(run, id)) return std::move(run);
  }
  return Error{Errc::not_found,
               concat({"there is no run ", text::quote(id), " in ", runs_folder(), ": aml-run --list shows all runs"})};
}

Result<std::vector<Run>> all_runs() {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(runs_folder(), ignored))
    names.push_back(entry.path().filename().string());
  std::vector<Run> runs;
  if (names.empty()) return runs;
  const auto folder = OwnedFolder::open(fs::path(runs_folder()).parent_path().string(), "aml-runs", Missing::fails);
  if (!folder) return folder.error();
  std::ranges::sort(names);
  for (const std::string& name : names) {
    const auto own = folder->enter(name, Missing::fails);
    auto run = own ? read_run(*own) : Result<Run>(own.error());
    if (run) runs.push_back(std::move(*run));
  }
  return runs;
}

void mark_stopped(const Run& run, std::string_view why) {
  if (const auto folder = OwnedFolder::open(run.folder)) static_cast<void>(folder->create("stopped", why));
}

void clear_stopped(const Run& run) {
  if (const auto folder = OwnedFolder::open(run.folder)) folder->remove("stopped");
}

std::string why_stopped(const Run& run) {
  const auto folder = OwnedFolder::open(run.folder);
  const auto text = folder ? folder->read("stopped", 4096) : Result<std::string>(folder.error());
  if (!text) return {};
  return text->empty() ? "no reason is given" : *text;
}

}  // namespace amldist::run
