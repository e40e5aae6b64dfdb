#include "world/mpi/mpi_session.hpp"

#include <dlfcn.h>

#include <array>
#include <thread>

#include "base/os/shared_object.hpp"
#include "base/text/text.hpp"

namespace amldist::world {
namespace {

using text::concat;

constexpr const char* file_name = "libamldist_mpi.so";
constexpr const char* open_mpi = "libmpi.so.40";  // of Open MPI 4 and 5
/// Lower tags are reserved for the bootstrap.
constexpr int first_tag = 16;

void* open_library(const std::string& named) {
  if (!named.empty()) return ::dlopen(named.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  void* const beside =
      ::dlopen((own_folder() + "aml-dist/" + file_name).c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  return beside != nullptr ? beside : ::dlopen(file_name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

/// Whether the program has initialised Open MPI. Loads no library.
bool is_program_in_mpi() {
  void* const loaded = ::dlopen(open_mpi, RTLD_NOW | RTLD_NOLOAD);
  if (loaded == nullptr) return false;
  using Question = int(int*);
  auto* const initialized = reinterpret_cast<Question*>(::dlsym(loaded, "MPI_Initialized"));
  auto* const finalized = reinterpret_cast<Question*>(::dlsym(loaded, "MPI_Finalized"));
  int is = 0;
  int was = 0;
  if (initialized != nullptr && finalized != nullptr) {
    initialized(&is);
    finalized(&was);
  }
  ::dlclose(loaded);
  return is != 0 && was == 0;
}

/// How the environment asks for MPI to be used.
struct MpiPreference {
  bool nothing = false;    ///< neither for data nor for the bootstrap
  bool data = true;        ///< data may go over MPI
  bool is_asked = false;   ///< the user requires it
  std::string_view words;  ///< for messages: the variable that requires it
};

MpiPreference mpi_preference(const Settings& settings) {
  const bool bootstraps = settings.bootstrap == Bootstrap::mpi;
  const bool carries = settings.transport == Carrier::mpi;
  MpiPreference preference;
  preference.data = settings.transport != Carrier::tcp;
  preference.is_asked = carries || bootstraps;
  preference.nothing = !preference.data && !bootstraps;
  preference.words = carries ? "AMLDIST_TRANSPORT=mpi" : "AMLDIST_BOOTSTRAP=mpi";
  return preference;
}

}  // namespace

Result<const amldist_mpi_functions*> load_mpi(const std::string& named) {
  // Open MPI's plug-ins expect to find MPI's symbols in the global scope.
  static_cast<void>(::dlopen(open_mpi, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE));
  void* const library = open_library(named);
  const std::string name = named.empty() ? file_name : named;
  if (library == nullptr) {
    return Error{Errc::unavailable,
                 concat({"the MPI part cannot be loaded (", reason_of_linker(),
                         "): install Open MPI 4.1 or 5, and build aml-dist on a machine that has it"})};
  }
  using Get = decltype(amldist_mpi_get_functions);
  auto* const get = reinterpret_cast<Get*>(::dlsym(library, "amldist_mpi_get_functions"));
  const amldist_mpi_functions* const functions = get != nullptr ? get() : nullptr;
  if (functions == nullptr || functions->table != AMLDIST_MPI_TABLE) {
    return Error{Errc::mismatch,
                 concat({"the MPI part, ", text::quote(name), ", belongs to another release of aml-dist"})};
  }
  return functions;
}

Result<std::unique_ptr<MpiSession>> MpiSession::find(const Settings& settings,
                                                     const launch::ProcessIdentity& identity) {
  const MpiPreference preference = mpi_preference(settings);
  if (preference.nothing || (!preference.is_asked && !is_program_in_mpi())) return std::unique_ptr<MpiSession>();
  const auto functions = load_mpi(settings.mpi_library);
  if (!functions) {
    if (!preference.is_asked) return std::unique_ptr<MpiSession>();
    return Error{functions.error().code, concat({preference.words, ": ", functions.error().message})};
  }
  const int state = (*functions)->state();
  if (state == AMLDIST_MPI_FINALIZED) {
    return Error{Errc::unavailable, concat({preference.words,
                                            ": this process has already finalised MPI, which cannot be "
                                            "initialised again"})};
  }
  if (state == AMLDIST_MPI_NOT_YET && (*functions)->initialize() != 0) {
    return Error{Errc::unavailable, concat({preference.words, ": MPI_Init_thread failed"})};
  }
  auto session = std::make_unique<MpiSession>(**functions, state == AMLDIST_MPI_NOT_YET);
  session->carries_data_ = preference.data;
  session->yields_ = settings.mpi_yields;
  if (auto status = session->check(identity); !status) return status.error();
  return session;
}

MpiSession::MpiSession(const amldist_mpi_functions& functions, bool initialized_here)
    : functions_(functions), initialized_here_(initialized_here), next_tag_(first_tag) {
  std::array<char, 128> name = {};
  functions_.library(name.data(), name.size());
  library_ = name.data();
}

MpiSession::~MpiSession() {
  if (!ended_well_) {  // MPI may read from that memory until the process ends
    static_cast<void>(new auto(std::move(abandoned_)));
    return;
  }
  if (functions_.state() != AMLDIST_MPI_READY) return;
  if (comm_ != 0) static_cast<void>(functions_.free_comm(&comm_));
  if (initialized_here_) static_cast<void>(functions_.finalize());
}

Result<void> MpiSession::check(const launch::ProcessIdentity& identity) {
  int rank = 0;
  int size = 0;
  int any_thread = 0;
  if (const int error = functions_.place(&rank, &size, &any_thread, &largest_tag_); error != 0) {
    return Error{Errc::unavailable, concat({"MPI does not report the rank of this process: ", error_text(error)})};
  }
  any_thread_ = any_thread != 0;
  if (static_cast<std::uint32_t>(rank) == identity.rank && static_cast<std::uint32_t>(size) == identity.size) return {};
  const auto place = [](std::uint64_t r, std::uint64_t n) {
    return concat({"rank ", std::to_string(r), " of ", std::to_string(n)});
  };
  return Error{Errc::mismatch,
               concat({identity.source, " says ", place(identity.rank, identity.size), " but ", library_, " says ",
                       place(static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(size)),
                       ": start the step with an MPI type that this MPI supports (srun --mpi=pmix), or set "
                       "AMLDIST_TRANSPORT=tcp to run without MPI"})};
}

Result<void> MpiSession::open(calls::Watchdog& watchdog) {
  if (comm_ != 0) return {};
  amldist_mpi_handle request = 0;
  int error = functions_.copy_world(&request);
  for (int done = 0; error == 0 && done == 0;) {
    error = functions_.test(&request, &done);
    if (error != 0 || done != 0) break;
    if (auto status = watchdog.keep_waiting(calls::Watchdog::anyone); !status) return status;
    std::this_thread::yield();
  }
  if (error == 0) error = functions_.copied_world(&comm_);
  if (error == 0) return {};
  return Error{Errc::unavailable, concat({"MPI did not create a communicator for aml-dist: ", error_text(error)})};
}

std::string MpiSession::error_text(int error) const {
  std::array<char, 256> words = {};
  functions_.error_text(error, words.data(), words.size());
  return words.data();
}

}  // namespace amldist::world
