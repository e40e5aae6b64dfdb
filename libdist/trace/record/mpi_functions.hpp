// The names of MPI's functions that share an operation with others, such as all that make a communicator. A record has
// their numbers.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace amldist::trace {

inline constexpr auto mpi_functions = std::to_array<std::string_view>({"MPI_Comm_create_group",
                                                                       "MPI_Intercomm_create",
                                                                       "MPI_Neighbor_allgather",
                                                                       "MPI_Neighbor_allgatherv",
                                                                       "MPI_Neighbor_alltoall",
                                                                       "MPI_Neighbor_alltoallv",
                                                                       "MPI_Neighbor_alltoallw",
                                                                       "MPI_Comm_dup",
                                                                       "MPI_Comm_dup_with_info",
                                                                       "MPI_Comm_split",
                                                                       "MPI_Comm_split_type",
                                                                       "MPI_Comm_create",
                                                                       "MPI_Cart_create",
                                                                       "MPI_Intercomm_merge",
                                                                       "MPI_Comm_spawn",
                                                                       "MPI_Comm_spawn_multiple",
                                                                       "MPI_Comm_accept",
                                                                       "MPI_Comm_connect",
                                                                       "MPI_Cart_sub",
                                                                       "MPI_Graph_create",
                                                                       "MPI_Dist_graph_create",
                                                                       "MPI_Dist_graph_create_adjacent",
                                                                       "MPI_Comm_idup",
                                                                       "MPI_Comm_idup_with_info",
                                                                       "MPI_Win_create",
                                                                       "MPI_Win_create_dynamic",
                                                                       "MPI_Win_allocate",
                                                                       "MPI_Win_allocate_shared",
                                                                       "MPI_File_open",
                                                                       "MPI_File_sync",
                                                                       "MPI_File_set_size",
                                                                       "MPI_File_preallocate",
                                                                       "MPI_File_set_atomicity",
                                                                       "MPI_File_set_view",
                                                                       "MPI_File_seek_shared",
                                                                       "MPI_File_read_all",
                                                                       "MPI_File_read_all_begin",
                                                                       "MPI_File_read_all_end",
                                                                       "MPI_File_iread_all",
                                                                       "MPI_File_read_at_all",
                                                                       "MPI_File_read_at_all_begin",
                                                                       "MPI_File_read_at_all_end",
                                                                       "MPI_File_iread_at_all",
                                                                       "MPI_File_read_ordered",
                                                                       "MPI_File_read_ordered_begin",
                                                                       "MPI_File_read_ordered_end",
                                                                       "MPI_File_write_all",
                                                                       "MPI_File_write_all_begin",
                                                                       "MPI_File_write_all_end",
                                                                       "MPI_File_iwrite_all",
                                                                       "MPI_File_write_at_all",
                                                                       "MPI_File_write_at_all_begin",
                                                                       "MPI_File_write_at_all_end",
                                                                       "MPI_File_iwrite_at_all",
                                                                       "MPI_File_write_ordered",
                                                                       "MPI_File_write_ordered_begin",
                                                                       "MPI_File_write_ordered_end",
                                                                       "MPI_File_close",
                                                                       "MPI_Win_fence",
                                                                       "MPI_Win_free",
                                                                       "MPI_Win_lock",
                                                                       "MPI_Win_lock_all",
                                                                       "MPI_Win_unlock",
                                                                       "MPI_Win_unlock_all",
                                                                       "MPI_Win_flush",
                                                                       "MPI_Win_flush_all",
                                                                       "MPI_Win_flush_local",
                                                                       "MPI_Win_flush_local_all",
                                                                       "MPI_Win_start",
                                                                       "MPI_Win_complete",
                                                                       "MPI_Win_wait"});

/// From 1; 0: its operation is its own.
consteval std::uint16_t function_number(std::string_view name) {
  const auto found = std::ranges::find(mpi_functions, name);
  return found != mpi_functions.end() ? static_cast<std::uint16_t>(found - mpi_functions.begin() + 1) : 0;
}

}  // namespace amldist::trace
