// NCCL's functions, resolved at run time and checked by version. The library is built without NCCL's header and loads
// without NCCL. Signatures and numbers are those of nccl.h, which NVIDIA keeps binary compatible within major version
// 2.
//
//   since   what                                                        used for
//   2.4     ncclCommAbort, ncclCommGetAsyncError                        required
//   2.14    ncclCommInitRankConfig, ncclCommFinalize (non-blocking)     required: an init with a deadline
//   2.18    ncclCommSplit                                               required
//   2.19    ncclMemAlloc, ncclMemFree, ncclCommRegister, -Deregister    required: the oldest release that is supported
//   2.28    ncclAlltoAll, ncclGather, ncclScatter                       optional: else grouped sends and receives
#pragma once

#include <cstddef>
#include <string>

#include "base/text/result.hpp"

// NCCL's own name for the opaque handle.
struct ncclComm;

namespace amldist::collective {

/// ncclUniqueId: passed by value.
struct NcclUniqueId {
  char bytes[128];
};

/// Results that are distinguished; all others are errors.
enum NcclResult : int { nccl_success = 0, nccl_remote_error = 6, nccl_in_progress = 7 };

/// ncclConfig_t as of 2.19. NCCL reads the members that `size` covers, whatever its own version.
struct NcclConfig {
  static constexpr int undefined = -2147483647 - 1;
  std::size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21900;
  int blocking = 0;
  int cga_cluster_size = undefined;
  int min_ctas = undefined;
  int max_ctas = undefined;
  const char* net_name = nullptr;
  int split_share = undefined;
};

/// The function table. Data types and reduction operators have the numbers of DataType and ReduceOp, except int16 and
/// uint16, which NCCL lacks.
struct NcclApi {
  using Comm = ncclComm*;

  int version = 0;   ///< 22809: 2.28.9
  std::string path;  ///< path of the library, for messages

  int (*get_unique_id)(NcclUniqueId*) = nullptr;
  int (*init_rank_config)(Comm*, int size, NcclUniqueId, int rank, NcclConfig*) = nullptr;
  int (*finalize)(Comm) = nullptr;
  int (*destroy)(Comm) = nullptr;
  int (*abort)(Comm) = nullptr;
  int (*split)(Comm, int color, int key, Comm* out, NcclConfig*) = nullptr;
  int (*get_async_error)(Comm, int* error) = nullptr;
  const char* (*error_string)(int) = nullptr;
  const char* (*last_error)(Comm) = nullptr;

  int (*mem_alloc)(void**, std::size_t) = nullptr;
  int (*mem_free)(void*) = nullptr;
  int (*comm_register)(Comm, void*, std::size_t, void** handle) = nullptr;
  int (*comm_deregister)(Comm, void* handle) = nullptr;

  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*all_reduce)(const void*, void*, std::size_t, int type, int op, Comm, void* stream) = nullptr;
  int (*reduce)(const void*, void*, std::size_t, int type, int op, int root, Comm, void* stream) = nullptr;
  int (*broadcast)(const void*, void*, std::size_t, int type, int root, Comm, void* stream) = nullptr;
  int (*all_gather)(const void*, void*, std::size_t, int type, Comm, void* stream) = nullptr;
  int (*reduce_scatter)(const void*, void*, std::size_t, int type, int op, Comm, void* stream) = nullptr;
  int (*send)(const void*, std::size_t, int type, int peer, Comm, void* stream) = nullptr;
  int (*recv)(void*, std::size_t, int type, int peer, Comm, void* stream) = nullptr;

  int (*all_to_all)(const void*, void*, std::size_t, int type, Comm, void* stream) = nullptr;         ///< optional
  int (*gather)(const void*, void*, std::size_t, int type, int root, Comm, void* stream) = nullptr;   ///< optional
  int (*scatter)(const void*, void*, std::size_t, int type, int root, Comm, void* stream) = nullptr;  ///< optional
};

/// Oldest supported release, as NCCL's own number.
inline constexpr int oldest_nccl = 21900;

/// Finds NCCL: `named` if given, else the library that the process has already loaded (two in one process conflict),
/// else libnccl.so.2 as the dynamic linker finds it. Errors, as sentences: no NCCL, too old, a function is missing. The
/// library stays loaded, because NCCL's threads cannot be stopped.
[[nodiscard]] Result<NcclApi> load_nccl(const std::string& named = {});

/// "2.28.9" for 22809; before 2.9 the numbers were shorter (2804: 2.8.4).
[[nodiscard]] std::string nccl_version_name(int version);

}  // namespace amldist::collective
