// libibverbs, loaded at run time. Programs that never verify do not need it, and tests can replace it by a fake.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <string>

#include "base/text/result.hpp"

namespace amldist::fabric {

/// The functions in use, by their exported names without "ibv_". Posting and polling are inline functions of the header
/// and go through the context.
struct VerbsApi {
  ibv_device** (*get_device_list)(int*) = nullptr;
  void (*free_device_list)(ibv_device**) = nullptr;
  const char* (*get_device_name)(ibv_device*) = nullptr;
  ibv_context* (*open_device)(ibv_device*) = nullptr;
  int (*close_device)(ibv_context*) = nullptr;
  int (*query_port)(ibv_context*, std::uint8_t, _compat_ibv_port_attr*) = nullptr;
  int (*query_gid)(ibv_context*, std::uint8_t, int, ibv_gid*) = nullptr;
  ibv_pd* (*alloc_pd)(ibv_context*) = nullptr;
  int (*dealloc_pd)(ibv_pd*) = nullptr;
  ibv_mr* (*reg_mr)(ibv_pd*, void*, std::size_t, int) = nullptr;
  ibv_mr* (*reg_dmabuf_mr)(ibv_pd*, std::uint64_t, std::size_t, std::uint64_t, int, int) = nullptr;  ///< since 1.12
  int (*dereg_mr)(ibv_mr*) = nullptr;
  ibv_cq* (*create_cq)(ibv_context*, int, void*, ibv_comp_channel*, int) = nullptr;
  int (*destroy_cq)(ibv_cq*) = nullptr;
  ibv_qp* (*create_qp)(ibv_pd*, ibv_qp_init_attr*) = nullptr;
  int (*modify_qp)(ibv_qp*, ibv_qp_attr*, int) = nullptr;
  int (*destroy_qp)(ibv_qp*) = nullptr;
};

/// The name of the file that contains the functions, with links followed: "libibverbs.so.1.14.44.0". Empty if unknown.
[[nodiscard]] std::string library_file(const VerbsApi& api);

/// Loads `named` if it is not empty, else libibverbs.so.1, and never unloads it. Errors: unavailable, with dlerror()'s
/// text or the missing function.
[[nodiscard]] Result<VerbsApi> load_verbs(const std::string& named);

}  // namespace amldist::fabric
