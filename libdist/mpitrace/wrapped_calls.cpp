// MPI's calls as the program sees them. Most are written by generate.py; here are those that are like no other.
#include <optional>
#include <vector>

#include "mpitrace/narrow.hpp"
#include "mpitrace/tracer.hpp"

namespace amldist::mpitrace {
namespace {

using Ticket = FlightRecorder::Ticket;

/// Requests that the program waits for or tests, from before the call, which overwrites their handles, to its end.
class Completing {
 public:
  /// `waits`: the call returns only when something has ended.
  Completing(int count, const MPI_Request* requests, bool waits) noexcept
      : is_outermost_(depth()++ == 0), waits_(waits) {
    if (!is_outermost_ || !tracer().on() || count <= 0) return;
    try {
      for (int i = 0; i < count; ++i) {
        const Ticket ticket = requests[i] == tracer().abi().no_request ? 0 : tracer().ticket_of(requests[i]);
        pending_.push_back({requests[i], ticket});
        if (ticket != 0 && waits_) tracer().recorder().start(ticket);
      }
    } catch (...) {  // out of memory: these calls stay open in the record
      pending_.clear();
    }
  }
  ~Completing() {
    --depth();
    if (!waits_) return;
    for (const Pending& each : pending_) {
      if (each.ticket != 0) tracer().recorder().suspend(each.ticket);
    }
  }
  Completing(const Completing&) = delete;
  Completing& operator=(const Completing&) = delete;

  void complete(int index) noexcept {
    if (index < 0 || static_cast<std::size_t>(index) >= pending_.size()) return;
    Pending& each = pending_[static_cast<std::size_t>(index)];
    if (each.ticket == 0) return;
    tracer().recorder().complete(each.ticket);
    tracer().drop(each.request);
    each.ticket = 0;
  }
  void complete_all() noexcept {
    for (int i = 0; i < static_cast<int>(pending_.size()); ++i) complete(i);
  }

 private:
  struct Pending {
    MPI_Request request;
    Ticket ticket;
  };
  bool is_outermost_;
  bool waits_;
  std::vector<Pending> pending_;
};

/// Persistent requests that the program starts.
class Starting {
 public:
  Starting(int count, const MPI_Request* requests) noexcept {
    if (depth()++ != 0 || !tracer().on() || count <= 0) return;
    for (int i = 0; i < count; ++i) {
      if (const Ticket ticket = tracer().started(requests[i]); ticket != 0) first_ = first_ == 0 ? ticket : first_;
    }
  }
  ~Starting() { --depth(); }
  Starting(const Starting&) = delete;
  Starting& operator=(const Starting&) = delete;

  /// MPI's errors end a program unless it asks for another thing; then only the first is known to have failed.
  [[nodiscard]] int ended(int status) const noexcept {
    if (status != 0) tracer().recorder().fail(first_, -1);
    return status;
  }

 private:
  Ticket first_ = 0;
};

/// A call that sends to one rank and receives from another.
struct Exchange {
  Exchange(MPI_Comm comm, int dest, int send_tag, const Data& sent, int source, int receive_tag,
           const Data& received) noexcept
      : sending(Blocking{}, OfTwo{comm, Operation::send, dest, send_tag}, sent) {
    --depth();  // both are recorded
    receiving.emplace(Blocking{}, OfTwo{comm, Operation::recv, source, receive_tag}, received);
    ++depth();
  }
  ~Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  [[nodiscard]] int ended(int status) const noexcept { return receiving->ended(sending.ended(status)); }

  Traced sending;
  std::optional<Traced> receiving;
};

}  // namespace
}  // namespace amldist::mpitrace

using namespace amldist::mpitrace;

#pragma GCC visibility push(default)
extern "C" {

#include "mpitrace/wrapped_calls.inc"

/// The preloaded part asks before it hands calls to this one. 1: it may; 0: this libmpi has another
/// interface; 2: nobody has asked for a trace.
int amldist_mpitrace_use(void* libmpi) { return static_cast<int>(tracer().use(libmpi)); }

int MPI_Init(int* argc, char*** argv) {
  const auto ticket = tracer().initializing();
  ++depth();
  const int status = call_real<&MPI_Init>("PMPI_Init", argc, argv);
  --depth();
  tracer().initialized(ticket, status);
  return status;
}

int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  const auto ticket = tracer().initializing();
  ++depth();
  const int status = call_real<&MPI_Init_thread>("PMPI_Init_thread", argc, argv, required, provided);
  --depth();
  tracer().initialized(ticket, status);
  return status;
}

int MPI_Finalize(void) {
  const auto ticket = tracer().finalizing();
  ++depth();
  const int status = call_real<&MPI_Finalize>("PMPI_Finalize");
  --depth();
  tracer().finalized(ticket, status);
  return status;
}

int MPI_Sendrecv(const void* sendbuf, int sendcount, MPI_Datatype sendtype, int dest, int sendtag, void* recvbuf,
                 int recvcount, MPI_Datatype recvtype, int source, int recvtag, MPI_Comm comm, MPI_Status* status) {
  Exchange call(comm, dest, sendtag, {sendcount, sendtype, no_op()}, source, recvtag, {recvcount, recvtype, no_op()});
  return call.ended(call_real<&MPI_Sendrecv>("PMPI_Sendrecv", sendbuf, sendcount, sendtype, dest, sendtag, recvbuf,
                                             recvcount, recvtype, source, recvtag, comm, status));
}

int MPI_Sendrecv_c(const void* sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, int dest, int sendtag,
                   void* recvbuf, MPI_Count recvcount, MPI_Datatype recvtype, int source, int recvtag, MPI_Comm comm,
                   MPI_Status* status) {
  if (is_missing<&MPI_Sendrecv_c>("PMPI_Sendrecv_c")) {
    Narrow narrow;
    return narrow.call(&MPI_Sendrecv, sendbuf, narrow(sendcount), sendtype, dest, sendtag, recvbuf, narrow(recvcount),
                       recvtype, source, recvtag, comm, status);
  }
  Exchange call(comm, dest, sendtag, {sendcount, sendtype, no_op()}, source, recvtag, {recvcount, recvtype, no_op()});
  return call.ended(call_real<&MPI_Sendrecv_c>("PMPI_Sendrecv_c", sendbuf, sendcount, sendtype, dest, sendtag, recvbuf,
                                               recvcount, recvtype, source, recvtag, comm, status));
}

int MPI_Sendrecv_replace(void* buf, int count, MPI_Datatype datatype, int dest, int sendtag, int source, int recvtag,
                         MPI_Comm comm, MPI_Status* status) {
  Exchange call(comm, dest, sendtag, {count, datatype, no_op()}, source, recvtag, {count, datatype, no_op()});
  return call.ended(call_real<&MPI_Sendrecv_replace>("PMPI_Sendrecv_replace", buf, count, datatype, dest, sendtag,
                                                     source, recvtag, comm, status));
}

int MPI_Sendrecv_replace_c(void* buf, MPI_Count count, MPI_Datatype datatype, int dest, int sendtag, int source,
                           int recvtag, MPI_Comm comm, MPI_Status* status) {
  if (is_missing<&MPI_Sendrecv_replace_c>("PMPI_Sendrecv_replace_c")) {
    Narrow narrow;
    return narrow.call(&MPI_Sendrecv_replace, buf, narrow(count), datatype, dest, sendtag, source, recvtag, comm,
                       status);
  }
  Exchange call(comm, dest, sendtag, {count, datatype, no_op()}, source, recvtag, {count, datatype, no_op()});
  return call.ended(call_real<&MPI_Sendrecv_replace_c>("PMPI_Sendrecv_replace_c", buf, count, datatype, dest, sendtag,
                                                       source, recvtag, comm, status));
}

// A matched message has arrived: nobody is waited for.
int MPI_Mrecv(void* buf, int count, MPI_Datatype type, MPI_Message* message, MPI_Status* status) {
  return call_real<&MPI_Mrecv>("PMPI_Mrecv", buf, count, type, message, status);
}
int MPI_Mrecv_c(void* buf, MPI_Count count, MPI_Datatype type, MPI_Message* message, MPI_Status* status) {
  if (is_missing<&MPI_Mrecv_c>("PMPI_Mrecv_c")) {
    Narrow narrow;
    return narrow.call(&MPI_Mrecv, buf, narrow(count), type, message, status);
  }
  return call_real<&MPI_Mrecv_c>("PMPI_Mrecv_c", buf, count, type, message, status);
}

int MPI_Wait(MPI_Request* request, MPI_Status* status) {
  Completing call(1, request, true);
  const int result = call_real<&MPI_Wait>("PMPI_Wait", request, status);
  if (result == 0) call.complete_all();
  return result;
}

int MPI_Waitall(int count, MPI_Request* requests, MPI_Status* statuses) {
  Completing call(count, requests, true);
  const int result = call_real<&MPI_Waitall>("PMPI_Waitall", count, requests, statuses);
  if (result == 0) call.complete_all();
  return result;
}

int MPI_Waitany(int count, MPI_Request* requests, int* index, MPI_Status* status) {
  Completing call(count, requests, true);
  const int result = call_real<&MPI_Waitany>("PMPI_Waitany", count, requests, index, status);
  if (result == 0) call.complete(*index);
  return result;
}

int MPI_Waitsome(int count, MPI_Request* requests, int* outcount, int* indices, MPI_Status* statuses) {
  Completing call(count, requests, true);
  const int result = call_real<&MPI_Waitsome>("PMPI_Waitsome", count, requests, outcount, indices, statuses);
  for (int i = 0; result == 0 && i < *outcount; ++i) call.complete(indices[i]);
  return result;
}

int MPI_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  Completing call(1, request, false);
  const int result = call_real<&MPI_Test>("PMPI_Test", request, flag, status);
  if (result == 0 && *flag != 0) call.complete_all();
  return result;
}

int MPI_Testall(int count, MPI_Request* requests, int* flag, MPI_Status* statuses) {
  Completing call(count, requests, false);
  const int result = call_real<&MPI_Testall>("PMPI_Testall", count, requests, flag, statuses);
  if (result == 0 && *flag != 0) call.complete_all();
  return result;
}

int MPI_Testany(int count, MPI_Request* requests, int* index, int* flag, MPI_Status* status) {
  Completing call(count, requests, false);
  const int result = call_real<&MPI_Testany>("PMPI_Testany", count, requests, index, flag, status);
  if (result == 0 && *flag != 0) call.complete(*index);
  return result;
}

int MPI_Testsome(int count, MPI_Request* requests, int* outcount, int* indices, MPI_Status* statuses) {
  Completing call(count, requests, false);
  const int result = call_real<&MPI_Testsome>("PMPI_Testsome", count, requests, outcount, indices, statuses);
  for (int i = 0; result == 0 && i < *outcount; ++i) call.complete(indices[i]);
  return result;
}

int MPI_Start(MPI_Request* request) {
  const Starting call(1, request);
  return call.ended(call_real<&MPI_Start>("PMPI_Start", request));
}

int MPI_Startall(int count, MPI_Request* requests) {
  const Starting call(count, requests);
  return call.ended(call_real<&MPI_Startall>("PMPI_Startall", count, requests));
}

int MPI_Request_free(MPI_Request* request) {
  Completing call(1, request, false);
  if (depth() == 1 && tracer().on()) tracer().free(*request);
  const int result = call_real<&MPI_Request_free>("PMPI_Request_free", request);
  if (result == 0) call.complete_all();  // nobody will ever wait for it
  return result;
}
}
#pragma GCC visibility pop
