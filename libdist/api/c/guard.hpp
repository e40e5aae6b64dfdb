// The border between C++ and C: errors become status codes and a sentence per thread; exceptions end here.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

#include "amldist/amldist.h"
#include "base/text/result.hpp"

namespace amldist::api {

/// Status code of an error class.
[[nodiscard]] int status_of(Errc code) noexcept;

/// Keeps the sentence for amldist_last_error() of this thread and returns its status.
int fail(const Error& error) noexcept;

/// Adds the ranks that the error names to what fail() keeps.
void name_culprit(int rank, std::string_view host, std::string_view operation, std::uint64_t number) noexcept;

/// Runs a function that returns Result<void>; anything that it throws becomes AMLDIST_EINTERNAL. Always inlined,
/// because a call of its own took a tenth of the instructions of a short message's call.
template <typename Body>
[[gnu::always_inline]] inline int guarded(Body body) noexcept {
  try {
    const Result<void> result = body();
    return result ? AMLDIST_OK : fail(result.error());
  } catch (const std::exception& problem) {
    return fail({Errc::internal, problem.what()});
  } catch (...) {  // nothing may leave through C
    return fail({Errc::internal, "unknown internal error"});
  }
}

}  // namespace amldist::api
