// Rank 0's address over PMIx. libpmix is opened at run time: the library loads without it.
//
// No fence is needed: PMIx_Get waits until rank 0's server has the key. Under Slurm the client is left initialised to the
// end of the process: after PMIx_Finalize a later MPI_Init of the same process fails (PMIx 4.2, Slurm 22.05).
#include "collective/meeting_point.hpp"
#include "core/text.hpp"

#ifdef AMLDIST_HAVE_PMIX
#include <dlfcn.h>
#include <pmix.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#endif

namespace amldist::collective {

using text::concat;

#ifdef AMLDIST_HAVE_PMIX
namespace {

constexpr std::string_view address_key = "amldist.rank0";

/// The functions of libpmix that are used. The library stays open: it has threads of its own.
struct Pmix {
  decltype(&PMIx_Init) init = nullptr;
  decltype(&PMIx_Put) put = nullptr;
  decltype(&PMIx_Commit) commit = nullptr;
  decltype(&PMIx_Get) get = nullptr;
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
    const bool complete = find(out.init, "PMIx_Init") && find(out.put, "PMIx_Put") &&
                          find(out.commit, "PMIx_Commit") && find(out.get, "PMIx_Get") &&
                          find(out.error_string, "PMIx_Error_string");
    if (!complete) return Error{Errc::unavailable, "libpmix lacks a function that PMIx 3 has"};
    return out;
  }
};

class PmixPoint final : public MeetingPoint {
 public:
  PmixPoint(const Pmix& pmix, const pmix_proc_t& self) : pmix_(pmix), self_(self) {}

  [[nodiscard]] std::string to_string() const override { return concat({"rank 0 by PMIx (", self_.nspace, ")"}); }

  [[nodiscard]] Result<FileDescriptor> open() override {
    auto listener = listen_on(0);
    if (!listener) return listener;
    std::string text = std::to_string(local_port(*listener));
    for (const Ipv4 address : own_addresses()) text += "," + address.to_string();
    text += ",127.0.0.1";
    pmix_value_t value = {};
    value.type = PMIX_STRING;
    value.data.string = text.data();
    pmix_key_t key = {};
    address_key.copy(key, sizeof key - 1);
    int status = pmix_.put(PMIX_GLOBAL, key, &value);
    if (status == PMIX_SUCCESS) status = pmix_.commit();
    if (status == PMIX_SUCCESS) return listener;
    return Error{Errc::unavailable, concat({"PMIx cannot publish rank 0's address: ", pmix_.error_string(status)})};
  }

  [[nodiscard]] Result<std::vector<Endpoint>> find(Clock::time_point deadline) override {
    if (places_.empty()) {
      auto text = look_up(deadline);
      if (!text) return text.error();
      const auto words = text::split(*text, ',');
      const auto port = text::to_number(words[0], 65535);
      if (!port) return Error{Errc::mismatch, concat({"PMIx gave ", text::quote(*text), " as rank 0's address"})};
      for (std::size_t i = 1; i < words.size(); ++i) {
        places_.push_back({std::string(words[i]), static_cast<std::uint16_t>(*port)});
      }
    }
    return places_;
  }

 private:
  [[nodiscard]] Result<std::string> look_up(Clock::time_point deadline) const {
    pmix_proc_t root = self_;
    root.rank = 0;
    auto seconds = std::chrono::duration_cast<std::chrono::seconds>(deadline - Clock::now()).count();
    int timeout = static_cast<int>(std::clamp<long long>(seconds, 1, 3600));
    pmix_info_t info = {};
    std::strncpy(info.key, PMIX_TIMEOUT, sizeof info.key - 1);
    info.value.type = PMIX_INT;
    info.value.data.integer = timeout;
    pmix_value_t* value = nullptr;
    pmix_key_t key = {};
    address_key.copy(key, sizeof key - 1);
    const int status = pmix_.get(&root, key, &info, 1, &value);
    if (status == PMIX_SUCCESS && value != nullptr && value->type == PMIX_STRING) {
      std::string text = value->data.string;
      std::free(value->data.string);  // what PMIX_VALUE_RELEASE does
      std::free(value);
      return text;
    }
    return Error{Errc::timeout, concat({"rank 0 did not come: PMIx has no address of it (",
                                        pmix_.error_string(status), ")"})};
  }

  Pmix pmix_;
  pmix_proc_t self_;
  std::vector<Endpoint> places_;
};

}  // namespace

Result<std::unique_ptr<MeetingPoint>> meet_by_pmix(const ProcessIdentity& identity) {
  const auto pmix = Pmix::load();
  if (!pmix) return pmix.error();
  pmix_proc_t self = {};
  if (const int status = pmix->init(&self, nullptr, 0); status != PMIX_SUCCESS) {
    return Error{Errc::unavailable, concat({"PMIx_Init failed: ", pmix->error_string(status)})};
  }
  if (self.rank != identity.rank) {
    return Error{Errc::mismatch, concat({identity.source, " says rank ", std::to_string(identity.rank),
                                         " but PMIx says rank ", std::to_string(self.rank)})};
  }
  return std::unique_ptr<MeetingPoint>(std::make_unique<PmixPoint>(*pmix, self));
}
#else
Result<std::unique_ptr<MeetingPoint>> meet_by_pmix(const ProcessIdentity& /*identity*/) {
  return Error{Errc::unavailable, "this library was built without PMIx (Debian: libpmix-dev)"};
}
#endif

}  // namespace amldist::collective
