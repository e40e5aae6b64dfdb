#include "aml_run/runs/copy_results.hpp"

#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "base/text/text.hpp"

namespace amldist::run {
namespace {

namespace fs = std::filesystem;
using text::concat;
using text::quote;

Error failed(const fs::path& path, const std::error_code& code) {
  return {Errc::unavailable, concat({quote(path.string()), " cannot be copied: ", code.message()})};
}

/// A new folder PATH/NAME. Existing files are not changed.
Result<fs::path> make_folder(const std::string& path, std::string_view name) {
  std::error_code code;
  const fs::path folder = fs::absolute(path.empty() ? fs::path(".") : fs::path(path), code).lexically_normal() / name;
  fs::create_directories(folder.parent_path(), code);
  const bool is_new = fs::create_directory(folder, code);
  if (!is_new && (!code || code == std::errc::file_exists)) {
    return Error{Errc::invalid_argument,
                 concat({quote(folder.string()), " exists already: give another folder with --download-path"})};
  }
  if (code) return failed(folder, code);
  return folder;
}

/// Links stay links: a job may have linked its data set.
Result<void> copy_all(const fs::path& from, const fs::path& to) {
  std::error_code code;
  fs::copy(from, to, fs::copy_options::recursive | fs::copy_options::copy_symlinks, code);
  return code ? Result<void>(failed(from, code)) : Result<void>();
}

Result<void> copy_if_there(const fs::path& from, const fs::path& to) {
  std::error_code code;
  return fs::exists(from, code) ? copy_all(from, to) : Result<void>();
}

/// A job's own results in its working folder, and where they are copied: all of outputs/ and logs/ in a snapshot, else
/// only the folder with its number, because other jobs may work there.
std::vector<std::pair<fs::path, std::string>> own_folders(std::string_view id, const fs::path& work_folder) {
  if (work_folder.empty()) return {};
  const bool is_snapshot =
      work_folder.filename() == "code" && work_folder.parent_path().parent_path().filename() == "aml-runs";
  if (!is_snapshot) return {{work_folder / "outputs" / id, "outputs"}};
  return {{work_folder / "outputs", "outputs"}, {work_folder / "logs", "logs"}};
}

}  // namespace

Result<std::string> copy_run_results(const Run& run, const std::string& path) {
  const auto folder = make_folder(path, run.name);
  if (!folder) return folder.error();
  std::error_code code;
  for (const fs::directory_entry& entry : fs::directory_iterator(run.folder, code)) {
    const std::string name = entry.path().filename().string();
    if (name == "jobs" || name == "state" || name == "stopped") continue;  // about the run itself, not its results
    if (auto status = copy_all(entry.path(), *folder / name); !status) return status.error();
  }
  if (code) return failed(run.folder, code);
  return folder->string();
}

Result<std::string> copy_job_results(std::string_view id, const JobState& state, const std::string& path) {
  const auto folder = make_folder(path, id);
  if (!folder) return folder.error();
  for (const std::string& log : {state.output, state.error}) {
    if (log.empty()) continue;
    const fs::path to = *folder / fs::path(log).filename();
    std::error_code code;
    if (fs::exists(to, code)) continue;
    if (auto status = copy_if_there(log, to); !status) return status.error();
  }
  for (const auto& [from, to] : own_folders(id, state.folder)) {
    if (auto status = copy_if_there(from, *folder / to); !status) return status.error();
  }
  return folder->string();
}

}  // namespace amldist::run
