#include "spank/server/end_of_step.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <utility>

#include "base/os/answer_as_user.hpp"
#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"

namespace amldist::spank {
namespace {

constexpr std::chrono::seconds patience_with_files{5};

/// How srun is to exit.
struct Exit {
  std::optional<int> status;
  step::EndRecord good;
  step::EndRecord bad;
  std::vector<std::string> files;
};

Exit& wanted_exit() noexcept {
  static Exit wanted;
  return wanted;
}

/// What glibc calls at the end of the process, before it would hand on the status of the tasks.
void leave(int status, void* /*nothing*/) {
  Exit& wanted = wanted_exit();
  if (wanted.status) {
    std::fflush(nullptr);
    ::_exit(*wanted.status);
  }
  try {
    step::EndRecord& end = status == 0 ? wanted.good : wanted.bad;
    const bool changes = status == 0 && end.cause != step::EndRecord::Cause::done;
    if (!changes) end.status = static_cast<std::uint32_t>(status & 0xff);
    std::fflush(nullptr);
    if (changes) std::fprintf(stderr, "aml-dist: %s\n", end.sentence().c_str());
    const std::string complaint = write_end_record(end, wanted.files);
    if (!complaint.empty()) std::fprintf(stderr, "aml-dist: %s\n", complaint.c_str());
    if (changes) ::_exit(static_cast<int>(end.status.value_or(EXIT_FAILURE)));
  } catch (const std::exception&) {  // out of memory
  }
}

/// srun unloads its plugins before it exits; this one has to stay for leave().
void call_at_the_end() noexcept {
  Dl_info own = {};
  static const char anchor = 0;
  if (::dladdr(&anchor, &own) == 0 || ::dlopen(own.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE) == nullptr)
    return;
  static_cast<void>(::on_exit(leave, nullptr));
}

}  // namespace

std::string append_end_record(const step::EndRecord& record, const std::vector<std::string>& files) {
  std::string complaint;
  for (const std::string& file : files) {
    errno = 0;
    if (append_line(file, record.to_line()) || !complaint.empty()) continue;
    complaint = text::concat({"the record of this step's end cannot be written to ", file, ": ",
                              errno != 0 ? std::strerror(errno) : "it is not a file, or the disk is full"});
  }
  return complaint;
}

std::string write_end_record(const step::EndRecord& record, const std::vector<std::string>& files) {
  if (files.empty()) return {};
  const auto append = [&] { return append_end_record(record, files); };
  const auto complaint = answer_as_user({::geteuid(), ::getegid()}, append, patience_with_files);
  return complaint.value_or("the record of this step's end is not written: its file system does not answer");
}

void end_srun_with(int status) noexcept {
  wanted_exit().status = status;
  call_at_the_end();
}

void end_srun_with_record(step::EndRecord good, step::EndRecord bad, std::vector<std::string> files) noexcept {
  wanted_exit() = {std::nullopt, std::move(good), std::move(bad), std::move(files)};
  call_at_the_end();
}

}  // namespace amldist::spank
