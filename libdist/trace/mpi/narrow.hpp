// Calls with large counts (MPI_Allreduce_c) under an MPI that does not have them, such as Open MPI 5.
//
// A program may refer to these names weakly, as mpi4py's wheels do, and use the calls with small counts if they are
// missing. Our wrappers define the names, so they do what such a program would do: the same call with small counts.
#pragma once

#include <climits>
#include <deque>
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

/// The arguments of one call as small numbers.
class Narrow {
 public:
  enum class Kept {
    for_the_call,
    for_good,  ///< MPI reads the arrays until a request ends; equal arrays are kept once
  };
  Narrow() = default;
  Narrow(Lengths lengths, Kept kept) noexcept : lengths_(lengths), kept_(kept) {}

  int operator()(MPI_Count number) noexcept { return fitting(number); }
  const int* sent(const MPI_Count* numbers) noexcept { return array(numbers, lengths_.sent); }
  const int* got(const MPI_Count* numbers) noexcept { return array(numbers, lengths_.got); }
  const int* sent(const MPI_Aint* numbers) noexcept { return array(numbers, lengths_.sent); }
  const int* got(const MPI_Aint* numbers) noexcept { return array(numbers, lengths_.got); }

  /// Makes the call, unless a number does not fit.
  template <typename... Parameters, typename... Arguments>
  int call(int (*function)(Parameters...), Arguments... arguments) const noexcept {
    return fits_ ? function(arguments...) : unsupported;
  }

 private:
  int fitting(long long number) noexcept {
    fits_ = fits_ && number >= INT_MIN && number <= INT_MAX;
    return static_cast<int>(number);
  }
  /// nullptr if the program passes no array: some arrays only the root has.
  template <typename Number>
  const int* array(const Number* numbers, int length) noexcept try {
    if (numbers == nullptr) return nullptr;
    std::vector<int> small;
    small.reserve(static_cast<std::size_t>(length));
    for (int i = 0; i < length; ++i) small.push_back(fitting(numbers[i]));
    return kept_ == Kept::for_good ? keep(std::move(small)) : arrays_.emplace_back(std::move(small)).data();
  } catch (...) {  // out of memory
    fits_ = false;
    return nullptr;
  }
  static const int* keep(std::vector<int> numbers);

  Lengths lengths_;
  Kept kept_ = Kept::for_the_call;
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
