#include "fabric/verbs/verbs_api.hpp"

#include <dlfcn.h>

#include <filesystem>
#include <system_error>

#include "base/text/text.hpp"

namespace amldist::fabric {
namespace {

/// Resolves symbols and remembers the first missing one.
class Symbols {
 public:
  explicit Symbols(void* library) : library_(library) {}

  template <typename Function>
  void find(Function*& target, const char* name) {
    target = reinterpret_cast<Function*>(::dlsym(library_, name));
    if (target == nullptr && missing_.empty()) missing_ = name;
  }
  template <typename Function>
  void find_optional(Function*& target, const char* name) const {
    target = reinterpret_cast<Function*>(::dlsym(library_, name));
  }
  [[nodiscard]] const std::string& missing() const noexcept { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

}  // namespace

std::string library_file(const VerbsApi& api) {
  Dl_info info = {};
  if (::dladdr(reinterpret_cast<const void*>(api.get_device_list), &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code failure;
  const auto file = std::filesystem::canonical(info.dli_fname, failure);
  return failure ? std::string() : file.filename().string();
}

Result<VerbsApi> load_verbs(const std::string& named) {
  const char* const name = named.empty() ? "libibverbs.so.1" : named.c_str();
  // Never closed: providers leave threads and handlers behind.
  void* const library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const reason = ::dlerror();
    return Error{Errc::unavailable, reason != nullptr ? reason : "dlopen failed"};
  }
  VerbsApi api;
  Symbols symbols(library);
  symbols.find(api.get_device_list, "ibv_get_device_list");
  symbols.find(api.free_device_list, "ibv_free_device_list");
  symbols.find(api.get_device_name, "ibv_get_device_name");
  symbols.find(api.open_device, "ibv_open_device");
  symbols.find(api.close_device, "ibv_close_device");
  symbols.find(api.query_port, "ibv_query_port");
  symbols.find(api.query_gid, "ibv_query_gid");
  symbols.find(api.alloc_pd, "ibv_alloc_pd");
  symbols.find(api.dealloc_pd, "ibv_dealloc_pd");
  symbols.find(api.reg_mr, "ibv_reg_mr");
  symbols.find_optional(api.reg_dmabuf_mr, "ibv_reg_dmabuf_mr");
  symbols.find(api.dereg_mr, "ibv_dereg_mr");
  symbols.find(api.create_cq, "ibv_create_cq");
  symbols.find(api.destroy_cq, "ibv_destroy_cq");
  symbols.find(api.create_qp, "ibv_create_qp");
  symbols.find(api.modify_qp, "ibv_modify_qp");
  symbols.find(api.destroy_qp, "ibv_destroy_qp");
  if (symbols.missing().empty()) return api;
  return Error{Errc::unavailable, text::concat({name, " has no ", symbols.missing()})};
}

}  // namespace amldist::fabric
