#include "api/c/guard.hpp"

#include <array>
#include <cstddef>
#include <new>

namespace amldist::api {
namespace {

/// The calling thread's last failed call.
struct LastError {
  int code = AMLDIST_OK;
  std::string sentence;
  int rank = -1;
  std::string host;
  std::string operation;
  std::uint64_t number = 0;
};

/// The calling thread's error. An exit handler of the program may call after the objects of its thread were destroyed;
/// the object that it gets then is never destroyed.
LastError& last_error() noexcept {
  thread_local bool has_ended = false;
  thread_local LastError* late = nullptr;
  alignas(LastError) thread_local std::array<std::byte, sizeof(LastError)> room;
  struct Kept {
    Kept() = default;
    ~Kept() { has_ended = true; }
    Kept(const Kept&) = delete;
    Kept& operator=(const Kept&) = delete;
    LastError last;
  };
  if (has_ended) {
    if (late == nullptr) late = new (room.data()) LastError;
    return *late;
  }
  thread_local Kept kept;
  return kept.last;
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
  LastError& last = last_error();
  last.code = status_of(error.code);
  last.rank = -1;
  last.number = 0;
  last.host.clear();
  last.operation.clear();
  try {
    last.sentence = error.message;
  } catch (...) {
    last.sentence.clear();  // no memory for the sentence: the status alone must suffice
  }
  return last.code;
}

void name_culprit(int rank, std::string_view host, std::string_view operation, std::uint64_t number) noexcept try {
  LastError& last = last_error();
  last.rank = rank;
  last.number = number;
  last.operation = operation;
  last.host = host;
} catch (...) {
  last_error().host.clear();  // as above
}

}  // namespace amldist::api

extern "C" const char* amldist_last_error(void) { return amldist::api::last_error().sentence.c_str(); }

static_assert(sizeof(amldist_error) == 48, "the layout of amldist_error is part of the ABI");

extern "C" int amldist_get_error(amldist_error* error) {
  using amldist::api::last_error;
  if (error == nullptr || error->struct_size < sizeof(amldist_error)) return AMLDIST_EINVAL;
  const auto& last = last_error();
  error->code = last.code;
  error->rank = last.rank;
  error->number = last.number;
  error->operation = last.operation.c_str();
  error->host = last.host.c_str();
  error->message = last.sentence.c_str();
  return AMLDIST_OK;
}
