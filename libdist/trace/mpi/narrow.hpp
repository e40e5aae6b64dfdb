// Calls with large counts (MPI_Allreduce_c) under an MPI that does not have them, such as Open MPI 5.
//
// A program may refer to these names weakly, as mpi4py's wheels do, and use the calls with small counts if they are
// missing. Our wrappers define the names, so they do what such a program would do: the same call with small counts.
#pragma once

#include <climits>
#include <deque>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "trace/mpi/tracer.hpp"

namespace amldist::trace::mpi {

/// The number of counts in an array argument.
struct Lengths {
  int sent = 0;
  int got = 0;

  /// One for each member; of the other group if the communicator has two.
  static Lengths of_members(MPI_Comm comm) noexcept;
  /// One for each member of the own group.
  static Lengths of_own_group(MPI_Comm comm) noexcept;
  /// One for each neighbour in a topology.
  static Lengths of_neighbors(MPI_Comm comm) noexcept;
};

/// The arguments of one call in small numbers, where those of the call with small counts are smaller.
class Narrow {
 public:
  Narrow() = default;
  /// MPI reads the arrays of a call that is not blocking until its request ends.
  template <typename How>
  Narrow(How /*how*/, Lengths lengths) noexcept
      : lengths_(lengths), length_(lengths.sent), keeps_arrays_(!std::is_same_v<How, Blocking>) {}

  /// Makes the call, unless a number does not fit.
  template <typename... Parameters, typename... Arguments>
  int call(int (*function)(Parameters...), Arguments... arguments) noexcept {
    const std::tuple<Parameters...> small{as<Parameters>(arguments)...};  // from left to right
    return fits_ ? std::apply(function, small) : unsupported;
  }

 private:
  template <typename Small, typename Large>
  Small as(Large argument) noexcept {
    // What is sent comes first; behind the buffer for what is received come the arrays that belong to it.
    if constexpr (std::is_same_v<Large, void*>) length_ = lengths_.got;
    if constexpr (std::is_same_v<Small, Large>) return argument;
    else if constexpr (std::is_pointer_v<Small>) return array(argument);
    else return fitting(argument);
  }
  int fitting(long long number) noexcept {
    fits_ = fits_ && number >= INT_MIN && number <= INT_MAX;
    return static_cast<int>(number);
  }
  /// nullptr if the program passes no array: some arrays only the root has.
  template <typename Number>
  const int* array(const Number* numbers) noexcept try {
    if (numbers == nullptr) return nullptr;
    std::vector<int> small;
    small.reserve(static_cast<std::size_t>(length_));
    for (int i = 0; i < length_; ++i) small.push_back(fitting(numbers[i]));
    return keeps_arrays_ ? keep(std::move(small)) : arrays_.emplace_back(std::move(small)).data();
  } catch (...) {  // out of memory
    fits_ = false;
    return nullptr;
  }
  /// For good; equal ones once.
  static const int* keep(std::vector<int> numbers);

  Lengths lengths_;
  int length_ = 0;
  bool keeps_arrays_ = false;
  bool fits_ = true;
  std::deque<std::vector<int>> arrays_;
};

/// Whether the real MPI lacks the call behind one of our wrappers.
template <auto wrapper>
[[nodiscard]] bool is_missing(const char* name) noexcept {
  static const bool missing = find_real(name) == nullptr;
  return missing;
}

}  // namespace amldist::trace::mpi
