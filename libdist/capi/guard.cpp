#include "capi/guard.hpp"

namespace amldist::capi {
namespace {

std::string& last_sentence() noexcept {
  thread_local std::string sentence;
  return sentence;
}

}  // namespace

static_assert(status_number(Errc::invalid_argument) == AMLDIST_EINVAL &&
              status_number(Errc::mismatch) == AMLDIST_EMISMATCH &&
              status_number(Errc::not_found) == AMLDIST_ENOTFOUND &&
              status_number(Errc::unavailable) == AMLDIST_EUNAVAILABLE &&
              status_number(Errc::limit) == AMLDIST_ELIMIT && status_number(Errc::internal) == AMLDIST_EINTERNAL &&
              status_number(Errc::timeout) == AMLDIST_ETIMEOUT && status_number(Errc::peer) == AMLDIST_EPEER &&
              status_number(Errc::aborted) == AMLDIST_EABORTED);

int status_of(Errc code) noexcept { return status_number(code); }

int fail(const Error& error) noexcept {
  try {
    last_sentence() = error.message;
  } catch (...) {
    last_sentence().clear();  // no memory for the sentence: the status alone must do
  }
  return status_of(error.code);
}

}  // namespace amldist::capi

extern "C" const char* amldist_last_error(void) { return amldist::capi::last_sentence().c_str(); }
