// Expected failure as a value.
//
// Whatever a user, an administrator or a node can get wrong is returned as an Error. Exceptions remain for what no
// caller can handle (out of memory); two guards stop them: the C ABI and the SPANK callbacks.
#pragma once

#include <cassert>
#include <memory>
#include <string>
#include <utility>
#include <variant>

namespace amldist {

/// Class of a failure. It selects exit statuses and C status codes; the message is for people.
enum class Errc {
  invalid_argument,  ///< malformed input: grammar, range, unknown word
  mismatch,          ///< two valid facts contradict each other
  not_found,         ///< a named thing does not exist
  unavailable,       ///< a service or a library is missing or does not answer
  limit,             ///< input or output exceeds a documented limit
  internal,          ///< a bug or an exhausted resource
  timeout,           ///< a deadline passed
  peer,              ///< another process died, left, or contradicts this one
  aborted,           ///< cancelled here or on another rank, or the communicator is already broken
};

/// Number of a class in the C ABI and in files: -1, -2, ... in the order above.
[[nodiscard]] constexpr int status_number(Errc code) noexcept { return -1 - static_cast<int>(code); }

/// A failure: its class and one sentence that says what was asked, what was found, and what to do. The sentence has no
/// prefix, no newline and no control character.
struct Error {
  Errc code = Errc::internal;
  std::string message;
};

/// Either a value or an Error. Reading the wrong alternative is a programming error (asserted).
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : content_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : content_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const noexcept { return content_.index() == 0; }
  explicit operator bool() const noexcept { return ok(); }

  [[nodiscard]] const T& value() const& {
    assert(ok());
    return *std::get_if<0>(&content_);
  }
  [[nodiscard]] T& value() & {
    assert(ok());
    return *std::get_if<0>(&content_);
  }
  [[nodiscard]] T&& value() && {
    assert(ok());
    return std::move(*std::get_if<0>(&content_));
  }
  const T& operator*() const& { return value(); }
  T& operator*() & { return value(); }
  const T* operator->() const { return &value(); }
  T* operator->() { return &value(); }

  [[nodiscard]] const Error& error() const& {
    assert(!ok());
    return *std::get_if<1>(&content_);
  }
  [[nodiscard]] Error&& error() && {
    assert(!ok());
    return std::move(*std::get_if<1>(&content_));
  }

 private:
  std::variant<T, Error> content_;
};

/// A Result without a value. Stored as a pointer, null on success, because every call returns one.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(kept(std::move(error))) {}  // NOLINT(google-explicit-constructor)
  Result(Result&&) noexcept = default;
  Result& operator=(Result&&) noexcept = default;
  Result(const Result& other) : error_(other.ok() ? nullptr : kept(Error(other.error()))) {}
  Result& operator=(const Result& other) { return *this = Result(other); }
  ~Result() = default;

  [[nodiscard]] bool ok() const noexcept { return error_ == nullptr; }
  explicit operator bool() const noexcept { return ok(); }
  [[nodiscard]] const Error& error() const& {
    assert(!ok());
    return *error_;
  }

 private:
  /// Not inlined, so that the success path stays short.
  [[gnu::cold, gnu::noinline]] static std::unique_ptr<Error> kept(Error&& error) {
    return std::make_unique<Error>(std::move(error));
  }

  std::unique_ptr<Error> error_;
};

}  // namespace amldist
