// The part of an MPI's binary interface that is needed here, redeclared: the parts are built without any MPI, one for
// each interface, and find the functions at run time. Sources: mpi.h of Open MPI 4.1 and 5.0, of MPICH 5.0 and Intel
// MPI 2021 (whose interface MPICH's ABI initiative fixes), and the MPI standard 5.0, chapter on the ABI.
//
// AMLDIST_MPI_HANDLES says how large handles are: `pointers` (Open MPI, the standard's ABI) or `numbers` (MPICH's).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "calls/data_type.hpp"

extern "C" {
#ifdef AMLDIST_MPI_HANDLES_ARE_NUMBERS
using MPI_Comm = int;
using MPI_Request = int;
using MPI_Datatype = int;
using MPI_Op = int;
using MPI_Group = int;
using MPI_Info = int;
using MPI_Win = int;
using MPI_Message = int;
using MPI_Errhandler = int;
using MPI_Session = int;
#else
using MPI_Comm = void*;
using MPI_Request = void*;
using MPI_Datatype = void*;
using MPI_Op = void*;
using MPI_Group = void*;
using MPI_Info = void*;
using MPI_Win = void*;
using MPI_Message = void*;
using MPI_Errhandler = void*;
using MPI_Session = void*;
#endif
using MPI_File = void*;
using MPI_Status = void;  // only its size and its error are known: Abi::Status
using MPI_Count = long long;
using MPI_Aint = std::intptr_t;
using MPI_Offset = long long;
}

namespace amldist::trace::mpi {

/// The values of an interface that a program passes.
struct Abi {
  MPI_Comm world{};
  MPI_Comm no_comm{};
  MPI_Request no_request{};
  MPI_Datatype packed{};  ///< MPI_PACKED
  int any_source = -1;
  int any_tag = -1;
  int no_process = -2;
  int undefined = -32766;
  int thread_multiple = 3;
  void* in_place = nullptr;
  void* no_status = nullptr;     ///< MPI_STATUS_IGNORE and MPI_STATUSES_IGNORE
  int error_truncate = 15;       ///< a message is longer than its receiver takes
  int error_in_status = 18;      ///< returned by MPI_Waitall if a request has failed
  int error_still_pending = 19;  ///< of a request that has neither failed nor ended
  struct Status {
    std::size_t bytes = 24;
    std::size_t error_at = 8;  ///< offset of MPI_ERROR, an int
  };
  Status status{};

  struct Type {
    MPI_Datatype handle{};
    calls::DataType type{};
  };
  std::array<Type, 24> types{};
  std::size_t type_count = 0;
  struct Op {
    MPI_Op handle{};
    calls::ReduceOp op{};
  };
  std::array<Op, 4> ops{};

  /// For the libmpi behind `library` (a handle of dlopen). nullopt if it has another interface.
  static std::optional<Abi> of(void* library) noexcept;
};

/// Stands for a type or reduction that has no name here.
inline constexpr calls::DataType unknown_type{255};
inline constexpr calls::ReduceOp unknown_op{255};

}  // namespace amldist::trace::mpi
