// Rank 0's address over MPI: rank 0 sends it to every rank without waiting for those that do not come, so that it can
// say who they are. The others receive it on MPI_COMM_WORLD, because duplicating a communicator would need all of them
// first.
#include <algorithm>
#include <cstring>
#include <thread>

#include "base/text/text.hpp"
#include "world/bootstrap/root_address.hpp"
#include "world/mpi/mpi_session.hpp"

namespace amldist::world {
namespace {

using text::concat;

constexpr int address_tag = 15;  // in MPI_COMM_WORLD; no tag of a program's is likely to be in use during init
constexpr amldist_mpi_handle mpi_world = 0;

class MpiRootAddress final : public RootAddress {
 public:
  MpiRootAddress(MpiSession& session, const launch::ProcessIdentity& identity, PortRanges ports)
      : RootAddress(std::move(ports)),
        session_(session),
        mpi_(session.functions()),
        size_(static_cast<int>(identity.size)) {}
  /// A rank that did not come never receives the address; the text belongs to MPI until the process ends.
  ~MpiRootAddress() override {
    for (amldist_mpi_handle& send : sends_) mpi_.give_up(&send, 0);
    mpi_.give_up(&receive_, 1);
    session_.keep(std::move(text_));
  }
  MpiRootAddress(const MpiRootAddress&) = delete;
  MpiRootAddress& operator=(const MpiRootAddress&) = delete;

  [[nodiscard]] std::string to_string() const override { return concat({"rank 0 by MPI (", session_.library(), ")"}); }

  [[nodiscard]] bool carries_secret() const override { return true; }

  [[nodiscard]] Result<FileDescriptor> publish() override {
    auto listener = listen_within(ports());
    if (!listener) return listener;
    const std::string text = addresses_text(*listener, *this);
    std::memcpy(text_.data(), text.data(), std::min(text.size(), text_.size() - 1));
    for (int rank = 1; rank < size_; ++rank) {
      amldist_mpi_handle request = 0;
      if (const int error = mpi_.send(mpi_world, text_.data(), most, rank, address_tag, &request); error != 0) {
        return Error{Errc::unavailable, concat({"MPI cannot send rank 0's address: ", session_.error_text(error)})};
      }
      sends_.push_back(request);
    }
    return listener;
  }

  void progress() override {
    for (amldist_mpi_handle& send : sends_) {
      int done = 0;
      if (send != 0) static_cast<void>(mpi_.test(&send, &done));
    }
  }

  [[nodiscard]] Result<std::vector<Endpoint>> look_up(Clock::time_point deadline) override {
    if (!endpoints_.empty()) return endpoints_;
    int error = receive_ == 0 ? mpi_.receive(mpi_world, text_.data(), most, 0, address_tag, &receive_) : 0;
    for (int done = 0; error == 0 && done == 0;) {
      error = mpi_.test(&receive_, &done);
      if (done != 0) break;
      if (Clock::now() >= deadline) return Error{Errc::timeout, "rank 0 did not send its address over MPI in time"};
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    if (error != 0) {
      return Error{Errc::unavailable, concat({"MPI cannot receive rank 0's address: ", session_.error_text(error)})};
    }
    auto endpoints = endpoints_of(reinterpret_cast<const char*>(text_.data()), *this);
    if (!endpoints) return endpoints;
    endpoints_ = std::move(*endpoints);
    return endpoints_;
  }

 private:
  static constexpr int most = 4096;

  MpiSession& session_;
  const amldist_mpi_functions& mpi_;
  const int size_;
  std::vector<std::byte> text_ = std::vector<std::byte>(most);
  std::vector<amldist_mpi_handle> sends_;
  amldist_mpi_handle receive_ = 0;
  std::vector<Endpoint> endpoints_;
};

}  // namespace

std::unique_ptr<RootAddress> root_address_by_mpi(MpiSession& session, const launch::ProcessIdentity& identity,
                                                 PortRanges ports) {
  return std::make_unique<MpiRootAddress>(session, identity, std::move(ports));
}

}  // namespace amldist::world
