#include "spank/slurm/output.hpp"

#include <cstdio>

#include "spank/slurm/slurm_headers.hpp"

namespace amldist::spank {

void tell_user(std::string_view sentence) noexcept {
  std::fprintf(stderr, "aml-dist: %.*s\n", static_cast<int>(sentence.size()), sentence.data());
}

void tell_step(std::string_view sentence) noexcept {
  slurm_spank_log("aml-dist: %.*s", static_cast<int>(sentence.size()), sentence.data());
}

void log_for_administrator(std::string_view sentence) noexcept {
  slurm_error("aml-dist: %.*s", static_cast<int>(sentence.size()), sentence.data());
}

}  // namespace amldist::spank
