// Rank 0's address over PMIx. libpmix is opened at run time: the library loads without it.
//
// All ranks take part in a fence, which brings the address to every node; rank 0 does not wait for it, so that it can
// say who is missing if the fence never ends. The others then ask for the address directly, but not at once: a request
// that arrives before rank 0 has published is answered "not found" for ever (PMIx 4.2, Slurm 22.05).
//
// The client stays initialised to the end of the process: after the last PMIx_Finalize a later MPI_Init of the same
// process fails. At its end it is finalised, because mpirun treats a process that only initialised PMIx as failed.
#include "base/text/text.hpp"
#include "world/bootstrap/root_address.hpp"

#ifdef AMLDIST_HAVE_PMIX
#include <dlfcn.h>
#include <pmix.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>
#endif

// PMIx's values are C unions; what they point to is freed by free().
namespace amldist::world {

using text::concat;

#ifdef AMLDIST_HAVE_PMIX
namespace {

constexpr std::string_view address_key = "amldist.rank0";

/// The functions of libpmix that are used. The library stays open: it has threads of its own.
struct Pmix {
  decltype(&PMIx_Init) init = nullptr;
  decltype(&PMIx_Initialized) is_initialized = nullptr;
  decltype(&PMIx_Finalize) finalize = nullptr;
  decltype(&PMIx_Put) put = nullptr;
  decltype(&PMIx_Commit) commit = nullptr;
  decltype(&PMIx_Get) get = nullptr;
  decltype(&PMIx_Fence_nb) fence = nullptr;
  decltype(&PMIx_Error_string) error_string = nullptr;

  [[nodiscard]] static Result<Pmix> load() {
    void* library = ::dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == nullptr) return Error{Errc::unavailable, concat({"libpmix cannot be loaded: ", ::dlerror()})};
    Pmix out;
    const auto find = [library](auto& function, const char* name) {
      void* const symbol = ::dlsym(library, name);
      std::memcpy(&function, &symbol, sizeof symbol);
      return symbol != nullptr;
    };
    const bool complete = find(out.init, "PMIx_Init") && find(out.is_initialized, "PMIx_Initialized") &&
                          find(out.finalize, "PMIx_Finalize") && find(out.put, "PMIx_Put") &&
                          find(out.commit, "PMIx_Commit") && find(out.get, "PMIx_Get") &&
                          find(out.fence, "PMIx_Fence_nb") && find(out.error_string, "PMIx_Error_string");
    if (!complete) return Error{Errc::unavailable, "libpmix lacks a function that PMIx 3 has"};
    return out;
  }
};

/// Finalises the client when the process that made this object ends, but not in its children.
class ClientEnd {
 public:
  explicit ClientEnd(const Pmix& pmix) : finalize_(pmix.finalize) {}
  ~ClientEnd() {
    if (::getpid() == owner_) static_cast<void>(finalize_(nullptr, 0));
  }
  ClientEnd(const ClientEnd&) = delete;
  ClientEnd& operator=(const ClientEnd&) = delete;

 private:
  decltype(&PMIx_Finalize) finalize_;
  const pid_t owner_ = ::getpid();
};

class PmixRootAddress final : public RootAddress {
 public:
  /// `shared`: another user, such as MPI, initialised the client, and finalises it.
  PmixRootAddress(const Pmix& pmix, const pmix_proc_t& self, bool shared, PortRanges ports)
      : RootAddress(std::move(ports)), pmix_(pmix), self_(self), shared_(shared) {}
  ~PmixRootAddress() override {
    if (shared_) static_cast<void>(pmix_.finalize(nullptr, 0));  // only decrements a counter
  }
  PmixRootAddress(const PmixRootAddress&) = delete;
  PmixRootAddress& operator=(const PmixRootAddress&) = delete;

  [[nodiscard]] std::string to_string() const override { return concat({"rank 0 by PMIx (", self_.nspace, ")"}); }

  [[nodiscard]] bool carries_secret() const override { return true; }

  [[nodiscard]] Result<FileDescriptor> publish() override {
    auto listener = listen_within(ports());
    if (!listener) return listener;
    std::string text = addresses_text(*listener, *this);
    pmix_value_t value = {};
    value.type = PMIX_STRING;
    value.data.string = text.data();
    pmix_key_t key = {};
    address_key.copy(key, sizeof key - 1);
    int status = pmix_.put(PMIX_GLOBAL, key, &value);
    if (status == PMIX_SUCCESS) status = pmix_.commit();
    if (status == PMIX_SUCCESS) status = begin_fence();
    if (status == PMIX_SUCCESS) return listener;
    return Error{Errc::unavailable, concat({"PMIx cannot publish rank 0's address: ", pmix_.error_string(status)})};
  }

  [[nodiscard]] Result<std::vector<Endpoint>> look_up(Clock::time_point deadline) override {
    if (endpoints_.empty()) {
      auto text = get_text(deadline);
      if (!text) return text.error();
      auto endpoints = endpoints_of(*text, *this);
      if (!endpoints) return endpoints.error();
      endpoints_ = std::move(*endpoints);
    }
    return endpoints_;
  }

 private:
  /// `fence_` becomes true when every rank's data has arrived everywhere. It is never freed: the fence may end at any
  /// time.
  [[nodiscard]] int begin_fence() {
    fence_ = new std::atomic<bool>(false);
    pmix_proc_t everybody = self_;
    everybody.rank = PMIX_RANK_WILDCARD;
    pmix_info_t collect = {};
    std::strncpy(collect.key, PMIX_COLLECT_DATA, sizeof collect.key - 1);
    collect.value.type = PMIX_BOOL;
    collect.value.data.flag = true;
    const auto ended = [](pmix_status_t /*status*/, void* flag) { static_cast<std::atomic<bool>*>(flag)->store(true); };
    return pmix_.fence(&everybody, 1, &collect, 1, ended, fence_);
  }

  [[nodiscard]] Result<std::string> get_text(Clock::time_point deadline) {
    if (fence_ == nullptr && begin_fence() != PMIX_SUCCESS) *fence_ = true;
    const auto direct = Clock::now() + (deadline - Clock::now()) / 2;
    pmix_proc_t root = self_;
    root.rank = 0;
    pmix_info_t info = {};
    std::strncpy(info.key, PMIX_TIMEOUT, sizeof info.key - 1);
    info.value.type = PMIX_INT;
    info.value.data.integer = 1;  // seconds
    pmix_key_t key = {};
    address_key.copy(key, sizeof key - 1);
    pmix_value_t* value = nullptr;
    int status = PMIX_ERR_TIMEOUT;
    while (status != PMIX_SUCCESS && Clock::now() < deadline) {
      if (*fence_ || Clock::now() > direct) status = pmix_.get(&root, key, &info, 1, &value);
      if (status != PMIX_SUCCESS) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (status == PMIX_SUCCESS && value != nullptr && value->type == PMIX_STRING) {
      std::string text = value->data.string;
      std::free(value->data.string);  // as PMIX_VALUE_RELEASE does
      std::free(value);
      return text;
    }
    return Error{Errc::timeout,
                 concat({"rank 0 did not publish its address over PMIx in time (", pmix_.error_string(status), ")"})};
  }

  Pmix pmix_;
  pmix_proc_t self_;
  const bool shared_;
  std::atomic<bool>* fence_ = nullptr;
  std::vector<Endpoint> endpoints_;
};

}  // namespace

Result<std::unique_ptr<RootAddress>> root_address_by_pmix(const launch::ProcessIdentity& identity, PortRanges ports) {
  const auto pmix = Pmix::load();
  if (!pmix) return pmix.error();
  pmix_proc_t self = {};
  const bool shared = pmix->is_initialized() != 0;
  if (const int status = pmix->init(&self, nullptr, 0); status != PMIX_SUCCESS) {
    return Error{Errc::unavailable,
                 concat({"PMIx_Init failed: ", pmix->error_string(status), ": start the step with srun --mpi=pmix"})};
  }
  if (!shared) static const ClientEnd end(*pmix);
  if (self.rank != identity.rank) {
    return Error{Errc::mismatch, concat({identity.source, " says rank ", std::to_string(identity.rank),
                                         " but PMIx says rank ", std::to_string(self.rank)})};
  }
  return std::unique_ptr<RootAddress>(std::make_unique<PmixRootAddress>(*pmix, self, shared, std::move(ports)));
}
#else
Result<std::unique_ptr<RootAddress>> root_address_by_pmix(const launch::ProcessIdentity& /*identity*/,
                                                          PortRanges /*ports*/) {
  return Error{Errc::unavailable, "this library was built without PMIx (Debian: libpmix-dev)"};
}
#endif

}  // namespace amldist::world
// NOLINTEND(cppcoreguidelines-pro-type-union-access, cppcoreguidelines-no-malloc)
