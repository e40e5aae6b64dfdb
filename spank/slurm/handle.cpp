#include "spank/slurm/handle.hpp"

#include <algorithm>

#include "base/text/text.hpp"

namespace amldist::spank {
namespace {

using text::concat;

Error item_error(const char* name, spank_err_t status) {
  return {Errc::unavailable, concat({"Slurm did not give ", name, ": ", spank_strerror(status)})};
}

}  // namespace

Result<std::uint32_t> Handle::number(spank_item_t item, const char* name) const {
  std::uint32_t value = 0;
  const spank_err_t status = spank_get_item(spank_, item, &value);
  if (status != ESPANK_SUCCESS) return item_error(name, status);
  return value;
}

Result<std::uint32_t> Handle::global_rank(std::uint32_t local_id) const {
  std::uint32_t rank = 0;
  const spank_err_t status = spank_get_item(spank_, S_JOB_LOCAL_TO_GLOBAL_ID, local_id, &rank);
  if (status != ESPANK_SUCCESS) return item_error("S_JOB_LOCAL_TO_GLOBAL_ID", status);
  return rank;
}

std::vector<std::string> Handle::command() const {
  int count = 0;
  char** words = nullptr;
  const spank_err_t status = spank_get_item(spank_, S_JOB_ARGV, &count, &words);
  if (status != ESPANK_SUCCESS || words == nullptr) return {};
  return {words, words + std::max(count, 0)};
}

std::string Handle::program() const {
  const auto words = command();
  return words.empty() ? std::string() : words.front();
}

std::optional<std::string> Handle::variable(std::string_view name) const {
  const std::string key(name);
  // spank_getenv cuts without a way to learn the length: grow up to what the kernel allows for one string.
  for (std::size_t size = 512; size <= longest_environment_string; size *= 4) {
    std::string value(size, '\0');
    const spank_err_t status = spank_getenv(spank_, key.c_str(), value.data(), static_cast<int>(value.size()));
    if (status == ESPANK_SUCCESS) {
      value.resize(std::min(value.find('\0'), value.size()));
      return value;
    }
    if (status == ESPANK_ENV_NOEXIST) return std::nullopt;
    if (status != ESPANK_NOSPACE) {
      if (!read_error_) read_error_ = status;
      return std::nullopt;
    }
  }
  return std::nullopt;
}

Result<void> Handle::environment_was_read() const {
  if (!read_error_) return {};
  return Error{Errc::unavailable, concat({"Slurm did not give the job's environment: ", spank_strerror(*read_error_)})};
}

EnvironmentReader Handle::environment() const {
  return [this](std::string_view name) { return variable(name); };
}

Result<void> Handle::apply(const EnvironmentPatch& patch) const {
  for (const auto& change : patch.changes()) {
    const spank_err_t status = change.value ? spank_setenv(spank_, change.name.c_str(), change.value->c_str(), 1)
                                            : spank_unsetenv(spank_, change.name.c_str());
    const bool nothing_to_remove = !change.value && status != ESPANK_SUCCESS && !variable(change.name);
    if (status != ESPANK_SUCCESS && !nothing_to_remove) {
      return Error{Errc::internal, concat({"Slurm did not set ", change.name, ": ", spank_strerror(status)})};
    }
  }
  return {};
}

}  // namespace amldist::spank
