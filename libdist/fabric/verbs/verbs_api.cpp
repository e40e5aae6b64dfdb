#include "fabric/verbs/verbs_api.hpp"

#include <dlfcn.h>

#include <array>
#include <filesystem>
#include <system_error>

#include "fabric/facts/vendor_library.hpp"

namespace amldist::fabric {

std::string library_file(const VerbsApi& api) {
  Dl_info info = {};
  if (::dladdr(reinterpret_cast<const void*>(api.get_device_list), &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code failure;
  const auto file = std::filesystem::canonical(info.dli_fname, failure);
  return failure ? std::string() : file.filename().string();
}

Result<VerbsApi> load_verbs(const std::string& named) {
  static constexpr std::array names = {"libibverbs.so.1"};
  VendorLibrary library(named, names);
  VerbsApi api;
  library.find(api.get_device_list, "ibv_get_device_list");
  library.find(api.free_device_list, "ibv_free_device_list");
  library.find(api.get_device_name, "ibv_get_device_name");
  library.find(api.open_device, "ibv_open_device");
  library.find(api.close_device, "ibv_close_device");
  library.find(api.query_port, "ibv_query_port");
  library.find(api.query_gid, "ibv_query_gid");
  library.find(api.alloc_pd, "ibv_alloc_pd");
  library.find(api.dealloc_pd, "ibv_dealloc_pd");
  library.find(api.reg_mr, "ibv_reg_mr");
  library.find_optional(api.reg_dmabuf_mr, "ibv_reg_dmabuf_mr");
  library.find(api.dereg_mr, "ibv_dereg_mr");
  library.find(api.create_cq, "ibv_create_cq");
  library.find(api.destroy_cq, "ibv_destroy_cq");
  library.find(api.create_qp, "ibv_create_qp");
  library.find(api.modify_qp, "ibv_modify_qp");
  library.find(api.destroy_qp, "ibv_destroy_qp");
  const auto status = library.is_whole();
  return status ? Result(api) : Result<VerbsApi>(status.error());
}

}  // namespace amldist::fabric
