#include "capi/guard.hpp"

namespace amldist::capi {
namespace {

std::string& last_sentence() noexcept {
  thread_local std::string sentence;
  return sentence;
}

}  // namespace

int status_of(Errc code) noexcept {
  switch (code) {
    case Errc::invalid_argument:
      return AMLDIST_EINVAL;
    case Errc::mismatch:
      return AMLDIST_EMISMATCH;
    case Errc::not_found:
      return AMLDIST_ENOTFOUND;
    case Errc::unavailable:
      return AMLDIST_EUNAVAILABLE;
    case Errc::limit:
      return AMLDIST_ELIMIT;
    case Errc::timeout:
      return AMLDIST_ETIMEOUT;
    case Errc::peer:
      return AMLDIST_EPEER;
    case Errc::aborted:
      return AMLDIST_EABORTED;
    case Errc::internal:
      break;
  }
  return AMLDIST_EINTERNAL;
}

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
