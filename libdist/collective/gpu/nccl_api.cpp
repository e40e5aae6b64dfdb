#include "collective/gpu/nccl_api.hpp"

#include <dlfcn.h>

#include <string_view>

#include "base/os/shared_object.hpp"
#include "base/text/text.hpp"
#include "collective/settings.hpp"

namespace amldist::collective {
namespace {

using text::concat;

/// Resolves functions of a library and remembers the first missing one.
class Symbols {
 public:
  explicit Symbols(void* library) : library_(library) {}

  template <typename Function>
  Symbols& optional(const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(::dlsym(library_, name));
    return *this;
  }

  template <typename Function>
  Symbols& required(const char* name, Function*& function) {
    optional(name, function);
    if (function == nullptr && missing_.empty()) missing_ = name;
    return *this;
  }

  [[nodiscard]] std::string_view missing() const noexcept { return missing_; }

 private:
  void* library_;
  std::string_view missing_;
};

std::string_view take_functions(void* library, NcclApi& api) {
  Symbols symbols(library);
  symbols.required("ncclGetUniqueId", api.get_unique_id)
      .required("ncclCommInitRankConfig", api.init_rank_config)
      .required("ncclCommFinalize", api.finalize)
      .required("ncclCommDestroy", api.destroy)
      .required("ncclCommAbort", api.abort)
      .required("ncclCommSplit", api.split)
      .required("ncclCommGetAsyncError", api.get_async_error)
      .required("ncclGetErrorString", api.error_string)
      .required("ncclGetLastError", api.last_error)
      .required("ncclMemAlloc", api.mem_alloc)
      .required("ncclMemFree", api.mem_free)
      .required("ncclCommRegister", api.comm_register)
      .required("ncclCommDeregister", api.comm_deregister)
      .required("ncclGroupStart", api.group_start)
      .required("ncclGroupEnd", api.group_end)
      .required("ncclAllReduce", api.all_reduce)
      .required("ncclReduce", api.reduce)
      .required("ncclBroadcast", api.broadcast)
      .required("ncclAllGather", api.all_gather)
      .required("ncclReduceScatter", api.reduce_scatter)
      .required("ncclSend", api.send)
      .required("ncclRecv", api.recv);
  symbols.optional("ncclAlltoAll", api.all_to_all)
      .optional("ncclGather", api.gather)
      .optional("ncclScatter", api.scatter);
  return symbols.missing();
}

std::string path_of(void* function) {
  Dl_info info = {};
  const bool known = ::dladdr(function, &info) != 0 && info.dli_fname != nullptr;
  return known ? info.dli_fname : "libnccl.so.2";
}

void* open_nccl(const std::string& named) {
  constexpr const char* usual = "libnccl.so.2";
  if (!named.empty()) return ::dlopen(named.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const loaded = ::dlopen(usual, RTLD_NOW | RTLD_NOLOAD);
  return loaded != nullptr ? loaded : ::dlopen(usual, RTLD_NOW | RTLD_LOCAL);
}

}  // namespace

std::string nccl_version_name(int version) {
  const int major = version < 10000 ? version / 1000 : version / 10000;
  const int minor = version < 10000 ? version / 100 % 10 : version / 100 % 100;
  return concat({std::to_string(major), ".", std::to_string(minor), ".", std::to_string(version % 100)});
}

Result<NcclApi> load_nccl(const std::string& named) {
  void* const library = open_nccl(named);
  if (library == nullptr) {
    return Error{Errc::unavailable, concat({"buffers on a GPU need NCCL ", nccl_version_name(oldest_nccl),
                                            " or newer, which is not available (", reason_of_linker(),
                                            "): install it, or name its library with ", variable::nccl_library})};
  }
  int (*get_version)(int*) = nullptr;
  Symbols(library).optional("ncclGetVersion", get_version);
  NcclApi api;
  if (get_version == nullptr || get_version(&api.version) != nccl_success) {
    return Error{Errc::unavailable,
                 concat({text::quote(named.empty() ? "libnccl.so.2" : named), " is not NCCL: it reports no version"})};
  }
  api.path = path_of(reinterpret_cast<void*>(get_version));
  const std::string name = concat({"NCCL ", nccl_version_name(api.version), " (", api.path, ")"});
  if (api.version < oldest_nccl || api.version < 10000) {
    return Error{Errc::unavailable, concat({name, " is too old: buffers on a GPU need ", nccl_version_name(oldest_nccl),
                                            " or newer; name another library with ", variable::nccl_library})};
  }
  const std::string_view missing = take_functions(library, api);
  if (!missing.empty()) return Error{Errc::unavailable, concat({name, " lacks ", missing, ": is it a complete NCCL?"})};
  return api;
}

}  // namespace amldist::collective
