#include "spank/slurm/accounting.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <pwd.h>
#include <unistd.h>

#include "base/text/text.hpp"
#include "spank/slurm/slurm_headers.hpp"
extern "C" {
#include <slurm/slurmdb.h>
}

namespace amldist::spank {
namespace {

/// The functions of libslurm, each by its name.
struct Functions {
  template <typename Function>
  static Function* find(const char* name) noexcept {
    return reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
  }

  decltype(::slurmdb_connection_get)* connect = find<decltype(::slurmdb_connection_get)>("slurmdb_connection_get");
  decltype(::slurmdb_connection_close)* close = find<decltype(::slurmdb_connection_close)>("slurmdb_connection_close");
  decltype(::slurmdb_jobs_get)* jobs = find<decltype(::slurmdb_jobs_get)>("slurmdb_jobs_get");
  decltype(::slurm_list_create)* make_list = find<decltype(::slurm_list_create)>("slurm_list_create");
  decltype(::slurm_list_append)* append = find<decltype(::slurm_list_append)>("slurm_list_append");
  decltype(::slurm_list_pop)* first = find<decltype(::slurm_list_pop)>("slurm_list_pop");

  [[nodiscard]] bool are_there() const noexcept {
    return connect != nullptr && close != nullptr && jobs != nullptr && make_list != nullptr && append != nullptr &&
           first != nullptr;
  }
};

/// Nobody is the highest number.
std::optional<std::uint32_t> requester_of(const Functions& slurm, void* connection, std::uint32_t job_id) {
  slurm_selected_step_t job = {};
  job.array_task_id = NO_VAL;
  job.het_job_offset = NO_VAL;
  job.step_id.job_id = job_id;
  job.step_id.step_id = NO_VAL;
  job.step_id.step_het_comp = NO_VAL;
  slurmdb_job_cond_t wanted = {};
  wanted.db_flags = SLURMDB_JOB_FLAG_NOTSET;
  wanted.flags = JOBCOND_FLAG_NO_STEP | JOBCOND_FLAG_NO_TRUNC;
  wanted.step_list = slurm.make_list(nullptr);
  slurm.append(wanted.step_list, &job);
  auto* const jobs = slurm.jobs(connection, &wanted);
  const auto* const found = jobs != nullptr ? static_cast<const slurmdb_job_rec_t*>(slurm.first(jobs)) : nullptr;
  constexpr std::uint32_t nobody = ~std::uint32_t{0};
  const bool is_known =
      found != nullptr && found->jobid == job_id && found->requid != nobody && found->requid != NO_VAL;
  return is_known ? std::optional(found->requid) : std::nullopt;
}

std::string name_of(std::uint32_t user) {
  const passwd* const known = ::getpwuid(user);
  return known != nullptr ? std::string(known->pw_name) : text::concat({"user ", std::to_string(user)});
}

}  // namespace

std::optional<std::string> canceller_of_job(std::uint32_t job_id) {
  for (int i = 0; i <= STDERR_FILENO; ++i) static_cast<void>(::open("/dev/null", O_RDWR));  // the lowest that are free
  const Functions slurm;
  std::uint16_t flags = 0;
  void* connection = slurm.are_there() ? slurm.connect(&flags) : nullptr;
  if (connection == nullptr) return std::nullopt;
  const auto user = requester_of(slurm, connection, job_id);  // what it returns is freed with the process
  static_cast<void>(slurm.close(&connection));
  return user ? std::optional(name_of(*user)) : std::nullopt;
}

}  // namespace amldist::spank
