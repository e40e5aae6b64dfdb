/* aml-dist: the C interface of libamldist.
 *
 * ABI: symbols are versioned (AMLDIST_0); functions and enumerators are only ever added; structures that callers
 * allocate contain their size, so a newer library fills only the fields that an older caller knows.
 *
 * Thread safety: functions without a handle are safe from any thread; amldist_last_error() reports errors of the
 * calling thread. Functions return 0 or a negative amldist_status unless they say otherwise. Nothing here writes to
 * standard output. When a communicator fails, the lowest surviving rank writes one line to standard error
 * (amldist_set_log redirects it).
 */
#ifndef AMLDIST_AMLDIST_H
#define AMLDIST_AMLDIST_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define AMLDIST_API __attribute__((visibility("default")))
#else
#define AMLDIST_API
#endif

/* In C++ every int is a value of these types: an invalid one is refused, and reading it is defined. */
#ifdef __cplusplus
#define AMLDIST_INT_BASE : int
#else
#define AMLDIST_INT_BASE
#endif

/* Result of a call. Since 0.1. */
typedef enum amldist_status {
  AMLDIST_OK = 0,
  AMLDIST_EINVAL = -1,       /* an argument, or a text in the environment, is malformed */
  AMLDIST_EMISMATCH = -2,    /* two facts contradict each other */
  AMLDIST_ENOTFOUND = -3,    /* a named thing does not exist */
  AMLDIST_EUNAVAILABLE = -4, /* a service, library or variable is missing */
  AMLDIST_ELIMIT = -5,       /* a documented limit is exceeded */
  AMLDIST_EINTERNAL = -6,    /* a bug, or out of memory */
  AMLDIST_ETIMEOUT = -7,     /* the deadline passed; the message names the missing ranks */
  AMLDIST_EPEER = -8,        /* a rank has died, left, or made another call; the message names it */
  AMLDIST_EABORTED = -9      /* amldist_abort() was called on some rank, or the communicator had failed before */
} amldist_status;

/* Release of the library, "MAJOR.MINOR.PATCH"; static. Since 0.1. */
AMLDIST_API const char* amldist_version(void);

/* One sentence about this thread's last failed call: what was asked, what was found, what to do. "" if none failed.
 * Valid until the thread's next failing call. Since 0.1. */
AMLDIST_API const char* amldist_last_error(void);

/* The same error in numbers, for programs. Since 0.2. */
typedef struct amldist_error {
  size_t struct_size;    /* set by the caller: sizeof(amldist_error) */
  int32_t code;          /* an amldist_status; 0: no call of this thread has failed */
  int32_t rank;          /* in the communicator of the call: the (first) rank to blame, or -1, as in a deadlock */
  uint64_t number;       /* of the call that did not end, or 0 */
  const char* operation; /* of that call, "allreduce", or "" */
  const char* host;      /* of `rank`; "" if it is -1 */
  const char* message;   /* amldist_last_error() */
} amldist_error;

/* Describes this thread's last failed call. The texts are valid until its next failing call. AMLDIST_EINVAL for NULL
 * or a wrong struct_size; that leaves the last error as it is. Since 0.2. */
AMLDIST_API int amldist_get_error(amldist_error* error);

/* The numbers of the calling process in its step, all counted from 0 without gaps. Since 0.1. */
typedef struct amldist_identity {
  size_t struct_size;  /* set by the caller: sizeof(amldist_identity) */
  int32_t rank;        /* 0..size-1 over the whole step */
  int32_t size;        /* processes of the step */
  int32_t local_rank;  /* 0..local_size-1 on this node */
  int32_t local_size;  /* processes of the step on this node */
  int32_t node_rank;   /* 0..nodes-1, in the order of each node's lowest rank */
  int32_t nodes;       /* nodes of the step */
  int32_t master_port; /* MASTER_PORT, or 0 if unset */
} amldist_identity;

/* Reads the identity that the plugin gave this process (--aml-dist=KIND, per process). Errors: AMLDIST_EUNAVAILABLE
 * outside such a step, AMLDIST_EMISMATCH when the variables contradict each other or Slurm's, AMLDIST_EINVAL for
 * NULL or a wrong struct_size. Reads the environment with getenv(): do not change it from another thread meanwhile.
 * Since 0.1. */
AMLDIST_API int amldist_get_identity(amldist_identity* identity);

/* Checks an option text as srun does: "pytorch,master_port=6105". 0, or AMLDIST_EINVAL or AMLDIST_ELIMIT with the
 * message in amldist_last_error(). Since 0.1. */
AMLDIST_API int amldist_check_option(const char* text);

/* ---- fabric ---- */

/* Result of a verification. Since 0.1. */
typedef enum amldist_verdict {
  AMLDIST_VERDICT_PASS = 0,
  AMLDIST_VERDICT_WARN = 1, /* verified, with warnings */
  AMLDIST_VERDICT_FAIL = 2,
  AMLDIST_VERDICT_SKIP = 3,   /* nothing to verify */
  AMLDIST_VERDICT_UNKNOWN = 4 /* verified, but something could not be read or understood. Since 0.2. */
} amldist_verdict;

/* Verifies the RDMA devices of this node as `aml-dist check` does, from sysfs, the device nodes and this process's
 * limits and environment; it opens no device and starts no process. `policy` is "require", "prefer" or "off", `sku` a
 * name of aml-dist-skus(5) or NULL. Writes the JSON object of aml-dist-check(1) into `json` (up to `size` bytes with
 * the terminating zero; NULL and 0: not wanted). Returns an amldist_verdict, AMLDIST_EINVAL for a wrong policy or SKU,
 * or AMLDIST_ELIMIT when the object does not fit (64 KiB are always enough). Reads the environment with getenv(). Since
 * 0.1. */
AMLDIST_API int amldist_verify_node(const char* policy, const char* sku, char* json, size_t size);
/* ---- communicators ----
 *
 * A communicator joins the processes of a step. Ranks, roots and peers are 0..size-1. Counts and offsets are in
 * elements, never bytes; any size_t is allowed. Every rank calls the same collectives in the same order with the same
 * count, type, operator and root; the error on the other ranks names a rank that does not.
 *
 * The caller must keep buffers valid and unchanged until the call (or its request) is complete. A collective may run in
 * place only where its description says so. A count of 0 is always allowed; then the pointers may be NULL.
 *
 * Failure: no call waits longer than the communicator's deadline (amldist_set_timeout). When a rank has died, hangs,
 * is late or makes another call, the call of every other rank returns AMLDIST_EPEER or AMLDIST_ETIMEOUT, and the
 * message in amldist_last_error() names operation and number, rank and host: allreduce #17 (1048576 float32, 4 MiB):
 * rank 3 (local 1) on node2 has not called it ...; 3 ranks wait. Ranks in it are those of the communicator that
 * amldist_init() made. The communicator has then failed: every further call returns AMLDIST_EABORTED at once with the
 * same message.
 *
 * Thread safety: one call at a time on a communicator; different communicators may be used from different threads.
 * amldist_abort(), amldist_health() and the functions that return rank, size and place are safe from any thread at any
 * time.
 *
 * fork(): a child may not use its parent's communicators, nor its requests that have not ended (AMLDIST_EUNAVAILABLE);
 * amldist_finalize() does nothing there.
 *
 * Environment: AMLDIST_BOOTSTRAP=tcp|pmix|slurm|mpi says how the ranks find rank 0 (default: the first available of MPI
 * if the program has initialised it, MASTER_ADDR with MASTER_PORT, PMIx, Slurm's own variables).
 * AMLDIST_TRANSPORT=tcp|mpi says what carries host buffers between nodes (default: MPI if every rank's program has
 * initialised Open MPI, else TCP). AMLDIST_TIMEOUT_MS is the deadline if the program gives 0. If one of the first two
 * is mpi, amldist_init() initialises MPI unless the program has, and then the last amldist_finalize() finalises it.
 * After an error over MPI, the buffers of the failed call must stay allocated and unchanged until the program ends.
 * Since 0.1. */

/* A communicator. Its layout is private. */
typedef struct amldist_comm amldist_comm;
/* A call in progress. Its layout is private. */
typedef struct amldist_request amldist_request;

/* Element types. The values never change. */
typedef enum amldist_type AMLDIST_INT_BASE {
  AMLDIST_INT8 = 0,
  AMLDIST_UINT8 = 1,
  AMLDIST_INT32 = 2,
  AMLDIST_UINT32 = 3,
  AMLDIST_INT64 = 4,
  AMLDIST_UINT64 = 5,
  AMLDIST_FLOAT16 = 6, /* IEEE 754 binary16 */
  AMLDIST_FLOAT32 = 7,
  AMLDIST_FLOAT64 = 8,
  AMLDIST_BFLOAT16 = 9, /* the upper half of a float32 */
  AMLDIST_INT16 = 10,
  AMLDIST_UINT16 = 11,
  AMLDIST_BOOL = 12 /* C's bool: a byte that is 0 or 1; the result for another value is unspecified. Since 0.2. */
} amldist_type;

/* Reduction operators. Integers wrap around. AVG is the sum divided by the number of ranks (integers: towards zero).
 * The sum is formed first, in the element type: if it wraps around, AVG is the wrapped sum divided. FLOAT16 and
 * BFLOAT16 are combined in float32 and rounded once per level (node, network). If an input of MIN or MAX is NaN, the
 * result is unspecified. BAND, BOR and BXOR combine the bits of integers and bools. Of bools, SUM and MAX are BOR, PROD
 * and MIN are BAND, and there is no AVG. A sum of inputs that each rank scales by a factor of its own, NCCL's
 * PREMUL_SUM, is SUM after multiplying the input. The values never change. */
typedef enum amldist_op AMLDIST_INT_BASE {
  AMLDIST_SUM = 0,
  AMLDIST_PROD = 1,
  AMLDIST_MAX = 2,
  AMLDIST_MIN = 3,
  AMLDIST_AVG = 4,
  AMLDIST_BAND = 5, /* bitwise. Since 0.2, like the next two. */
  AMLDIST_BOR = 6,
  AMLDIST_BXOR = 7
} amldist_op;

/* Joins all processes of the step; collective. How it finds the other ranks: see "Environment" above. Outside any
 * step the world is the calling process alone. timeout_ms limits this call and becomes the deadline of every later one;
 * 0: AMLDIST_TIMEOUT_MS, else 300000. Errors: AMLDIST_EINVAL (world is NULL, timeout_ms negative), AMLDIST_EMISMATCH
 * (two sources disagree about this process's rank or size; the message names both), AMLDIST_ETIMEOUT (the message names
 * the missing ranks), AMLDIST_EUNAVAILABLE (the address of rank 0 is unknown; or AMLDIST_SECRET=require, and the ranks
 * have no secret that only they know). *world is NULL after an error. A process has at most one world of its step at a
 * time: AMLDIST_EINVAL before the last one is finalized. */
AMLDIST_API int amldist_init(amldist_comm** world, int timeout_ms);

/* A key-value store that all ranks of a world reach, such as that of a process group. Both functions return 0, or
 * anything else for a failure; they are called only during the call that gets the store, by its thread. Since 0.1. */
typedef struct amldist_store {
  size_t struct_size; /* set by the caller: sizeof(amldist_store) */
  void* context;      /* handed to both functions */
  /* Stores `bytes` bytes under `key`, in the place of an earlier value. */
  int (*set)(void* context, const char* key, const void* value, size_t bytes);
  /* Waits at most timeout_ms until `key` has a value, copies it into `value`, which has `capacity` bytes, and stores
   * its length in *bytes. */
  int (*get)(void* context, const char* key, void* value, size_t capacity, size_t* bytes, int timeout_ms);
} amldist_store;

/* A world that the caller describes. 0 and NULL mean: as the environment says. Since 0.1. */
typedef struct amldist_config {
  size_t struct_size;         /* set by the caller: sizeof(amldist_config) */
  int32_t rank;               /* of this process, if size is given */
  int32_t size;               /* number of processes */
  const char* address;        /* of rank 0, instead of MASTER_ADDR */
  int32_t port;               /* of rank 0, instead of MASTER_PORT */
  const char* secret;         /* instead of AMLDIST_STEP_SECRET: at least 32 characters, the same on all ranks */
  const amldist_store* store; /* by which the ranks find rank 0, instead of an address */
  const char* name;           /* tells the worlds of a step, or of a store, apart: at most 128 characters */
  const char* label; /* for people: what aml-dist trace calls the world; longer ones are cut at 71 characters */
} amldist_config;

/* As amldist_init(), for a world that `config` describes. With an address, a port or a store, the process may be in
 * other worlds at the same time. Without a secret here or in the environment, one goes to all ranks by the store;
 * amldist_provenance() then says "unproven". Worlds of one store that live at the same time need names of their own;
 * one that has ended, or did not come about, may be followed by another of its name. AMLDIST_EINVAL for values that
 * cannot be right, and for a store beside an address. Since 0.1. */
AMLDIST_API int amldist_init_config(amldist_comm** world, const amldist_config* config, int timeout_ms);

/* The same with a store, a rank and a size alone. Since 0.1. */
AMLDIST_API int amldist_init_store(amldist_comm** world, const amldist_store* store, int rank, int size,
                                   int timeout_ms);

/* Ends a communicator and frees it. Collective in a healthy communicator (it waits for the other ranks, at most until
 * the deadline); local in a failed one. Requests in progress are completed first. AMLDIST_EPEER names a rank that has
 * not received a message sent to it. Finalize communicators made by amldist_split() before their parent. NULL is
 * allowed. A handle that is used or finalized again is refused with AMLDIST_EINVAL. Handles are reused after several
 * thousand finalizations; using an old one then is undefined. */
AMLDIST_API int amldist_finalize(amldist_comm* comm);

/* Place in the step; the node numbers are those of amldist_identity. A negative status for NULL. */
AMLDIST_API int amldist_rank(const amldist_comm* comm);
AMLDIST_API int amldist_size(const amldist_comm* comm);
AMLDIST_API int amldist_local_rank(const amldist_comm* comm);
AMLDIST_API int amldist_local_size(const amldist_comm* comm);
AMLDIST_API int amldist_node_rank(const amldist_comm* comm);
AMLDIST_API int amldist_nodes(const amldist_comm* comm);

/* Host name of a rank; NULL for an invalid argument. Valid as long as the communicator, as are the next two. */
AMLDIST_API const char* amldist_host(const amldist_comm* comm, int rank);
/* The map of ranks to nodes in PMI's notation, "(vector,(0,2,4))"; NULL for NULL. */
AMLDIST_API const char* amldist_task_map(const amldist_comm* comm);
/* Text for people: where identity and map came from; whether the ranks have a secret ("authenticated", "unproven" or
 * "open"; not for a world of one process); and what carries the data. NULL for NULL. */
AMLDIST_API const char* amldist_provenance(const amldist_comm* comm);

/* Every rank gets the combination of all ranks' `count` elements. send == recv: in place. */
AMLDIST_API int amldist_allreduce(amldist_comm* comm, const void* send, void* recv, size_t count, amldist_type type,
                                  amldist_op op);
/* The same, but only `root` gets the result; recv is ignored on other ranks. send == recv on the root: in place. */
AMLDIST_API int amldist_reduce(amldist_comm* comm, const void* send, void* recv, size_t count, amldist_type type,
                               amldist_op op, int root);
/* Every rank's buffer becomes the root's. */
AMLDIST_API int amldist_broadcast(amldist_comm* comm, void* buffer, size_t count, amldist_type type, int root);
/* recv[size][count]: every rank's `count` elements in rank order. send == recv + rank * count: in place. */
AMLDIST_API int amldist_allgather(amldist_comm* comm, const void* send, void* recv, size_t count, amldist_type type);
/* The same with counts[rank] elements of each rank, stored at recv + offsets[rank]. Both arrays have `size` entries
 * and are equal on all ranks; `count` is counts[own rank]. send == recv + offsets[own rank]: in place. */
AMLDIST_API int amldist_allgatherv(amldist_comm* comm, const void* send, size_t count, void* recv, const size_t* counts,
                                   const size_t* offsets, amldist_type type);
/* send[size][count]; rank r gets the combination of all ranks' send[r]. recv == send + rank * count: in place. */
AMLDIST_API int amldist_reduce_scatter(amldist_comm* comm, const void* send, void* recv, size_t count,
                                       amldist_type type, amldist_op op);
/* The same with counts[r] elements for rank r, from send + offsets[r] on. Both arrays have `size` entries; counts are
 * equal on all ranks, offsets need not be. recv == send + offsets[own rank]: in place. Since 0.2. */
AMLDIST_API int amldist_reduce_scatterv(amldist_comm* comm, const void* send, void* recv, const size_t* counts,
                                        const size_t* offsets, amldist_type type, amldist_op op);
/* send[size][count], recv[size][count]: send[r] goes to rank r, recv[r] comes from rank r. send == recv: in place,
 * on all ranks or on some. */
AMLDIST_API int amldist_alltoall(amldist_comm* comm, const void* send, void* recv, size_t count, amldist_type type);
/* The same with counts and offsets per rank. The count that rank a sends to b must be the count that b expects from a.
 * Not in place. */
AMLDIST_API int amldist_alltoallv(amldist_comm* comm, const void* send, const size_t* send_counts,
                                  const size_t* send_offsets, void* recv, const size_t* recv_counts,
                                  const size_t* recv_offsets, amldist_type type);
/* recv[size][count] on the root only. send == recv + root * count on the root: in place. */
AMLDIST_API int amldist_gather(amldist_comm* comm, const void* send, void* recv, size_t count, amldist_type type,
                               int root);
/* send[size][count] on the root only; rank r gets send[r]. recv == send + root * count on the root: in place. */
AMLDIST_API int amldist_scatter(amldist_comm* comm, const void* send, void* recv, size_t count, amldist_type type,
                                int root);
/* One message to a peer, received in the order of sending. The receiver's count and type must be the sender's. A send
 * may wait for the receiver: for an exchange, put both directions into a group, or start one without waiting.
 * The peer may be the calling rank itself. */
AMLDIST_API int amldist_send(amldist_comm* comm, const void* buffer, size_t count, amldist_type type, int peer);
AMLDIST_API int amldist_recv(amldist_comm* comm, void* buffer, size_t count, amldist_type type, int peer);
/* The same with a tag, 0 or more: a receive gets the oldest message of its peer and tag that no receive before it
 * takes, and messages of other tags do not hold it up. `peer` may be AMLDIST_ANY_SOURCE in a receive: the first message
 * with the tag that comes, from any rank; those of one rank in their order. *source, if source is not NULL, becomes the
 * sender's rank; it stays the library's until the call is complete. What comes before its receive is kept in memory of
 * the library. Messages with and without a tag are apart. They go over shared memory and TCP, whatever carries other
 * messages. NCCL has no tags: for device buffers only tag 0 and a given peer are possible (AMLDIST_EUNAVAILABLE), and
 * these are not apart from messages without a tag. Since 0.2. */
enum { AMLDIST_ANY_SOURCE = -1 };
AMLDIST_API int amldist_send_tagged(amldist_comm* comm, const void* buffer, size_t count, amldist_type type, int peer,
                                    int tag);
AMLDIST_API int amldist_recv_tagged(amldist_comm* comm, void* buffer, size_t count, amldist_type type, int peer,
                                    int tag, int* source);
/* Returns when every rank has called it. */
AMLDIST_API int amldist_barrier(amldist_comm* comm);

/* A new communicator of the ranks that gave the same colour, ordered by key, then by rank; collective. With a
 * negative colour a rank gets none, and *out becomes NULL. The deadline is inherited. */
AMLDIST_API int amldist_split(amldist_comm* comm, int color, int key, amldist_comm** out);

/* Makes a new communicator of the ranks that are left after a loss, in their old order; collective over these. Ranks
 * that end meanwhile are left out, too. Every rank that gets a communicator gets the same one. A rank is left out
 * although it may be alive if it is silent for a second (a third of a deadline below 3 s), was silent when the
 * communicator failed, or has not called this within the deadline and two seconds: its call returns
 * AMLDIST_EABORTED. A healthy communicator can be shrunk too, and counts as failed afterwards. *survivors is NULL
 * after an error.
 * `comm` stays: finalize both, in any order. Memory of amldist_alloc() belongs to `comm` and is valid until then. What
 * was split from `comm` is not touched: shrink it as well. The new communicator does not use MPI. Since 0.2. */
AMLDIST_API int amldist_shrink(amldist_comm* comm, amldist_comm** survivors);
/* *flags becomes the bitwise AND of what the ranks that are left gave; collective over these, and possible after a
 * loss. Every rank returns the same: 0, or AMLDIST_EPEER if ranks were lost, with the message that names them; *flags
 * is valid with both. After AMLDIST_EPEER the communicator has failed. Ranks are left out as by amldist_shrink(): their
 * calls return AMLDIST_EABORTED. Does not wait for requests in progress. Since 0.2. */
AMLDIST_API int amldist_agree(amldist_comm* comm, int* flags);

/* Whether the ranks should save and end: *stop is 1 from the same call on, on every rank, although they hear of it at
 * different times; 0 before. Collective in effect: every rank makes the same calls of it, such as one in each step of a
 * training. It sends nothing and does not wait, but for once: after a rank has heard of the stop, the ranks agree over
 * the control connections on the call from which on it is 1, which is soon after the last that any of them has made. A
 * rank hears of it under the key stop= of the step (aml_dist(7)): some time before the time limit, by
 * aml-dist-stop(1), and by SIGTERM or the key's signal, which the first call takes where the program leaves them to the
 * system. Elsewhere *stop stays 0. Errors: AMLDIST_EINVAL (NULL, or inside a group), and those of a collective if ranks
 * were lost. Since 0.2. */
AMLDIST_API int amldist_should_stop(amldist_comm* comm, int* stop);
/* Whether this process has heard of it: 1 or 0. Other ranks may not have heard yet: only amldist_should_stop() is the
 * same on all. For programs whose ranks agree by other means. Any thread may ask. Since 0.2. */
AMLDIST_API int amldist_stop_requested(void);

/* From now on srun's line about the first failure (aml_dist(7)) says why this process ended by SIGABRT: the text of a
 * failed assertion, or type and text of the C++ exception that nobody has caught. What was installed for the signal
 * takes place afterwards. traceback_signal: a signal whose handler writes a Python traceback of its thread into the
 * open file traceback_file, as faulthandler.register() makes one: then the line has the place, too, also for SIGSEGV,
 * SIGBUS, SIGFPE and SIGILL. Pass 0 without one. Returns 1; outside a step of aml-dist it does nothing and returns 0.
 * Call it when the program's C++ library is loaded; later calls look for it again. The package amldist calls it. Since
 * 0.2.
 */
AMLDIST_API int amldist_report_faults(int traceback_signal, int traceback_file);

/* The same without waiting. Collectives of one communicator run in the order of the calls, blocking ones and splits
 * included. Sends and receives of host buffers start at once and progress independently, even while a collective waits:
 * other calls may come between the two directions of an exchange. Sends and receives of device buffers start at the
 * next amldist_wait(), amldist_test() or collective, all together: start both directions of an exchange before that.
 * Every request must be passed to amldist_wait(), or to amldist_test() until it is done. Requests of short messages
 * that have ended already may be the same pointer; each must be passed there nevertheless. If data goes over an MPI
 * that was not initialised with MPI_THREAD_MULTIPLE, asynchronous calls run inside the next amldist_wait(),
 * amldist_test() or blocking call, on the calling thread, which must be the one that MPI allows; a collective then runs
 * to completion there, even in amldist_test(). */
AMLDIST_API int amldist_iallreduce(amldist_comm* comm, const void* send, void* recv, size_t count, amldist_type type,
                                   amldist_op op, amldist_request** request);
AMLDIST_API int amldist_ireduce(amldist_comm* comm, const void* send, void* recv, size_t count, amldist_type type,
                                amldist_op op, int root, amldist_request** request);
AMLDIST_API int amldist_ibroadcast(amldist_comm* comm, void* buffer, size_t count, amldist_type type, int root,
                                   amldist_request** request);
AMLDIST_API int amldist_iallgather(amldist_comm* comm, const void* send, void* recv, size_t count, amldist_type type,
                                   amldist_request** request);
AMLDIST_API int amldist_iallgatherv(amldist_comm* comm, const void* send, size_t count, void* recv,
                                    const size_t* counts, const size_t* offsets, amldist_type type,
                                    amldist_request** request); /* the arrays are copied */
AMLDIST_API int amldist_ireduce_scatter(amldist_comm* comm, const void* send, void* recv, size_t count,
                                        amldist_type type, amldist_op op, amldist_request** request);
AMLDIST_API int amldist_ireduce_scatterv(amldist_comm* comm, const void* send, void* recv, const size_t* counts,
                                         const size_t* offsets, amldist_type type, amldist_op op,
                                         amldist_request** request); /* the arrays are copied */
AMLDIST_API int amldist_ialltoall(amldist_comm* comm, const void* send, void* recv, size_t count, amldist_type type,
                                  amldist_request** request);
AMLDIST_API int amldist_ialltoallv(amldist_comm* comm, const void* send, const size_t* send_counts,
                                   const size_t* send_offsets, void* recv, const size_t* recv_counts,
                                   const size_t* recv_offsets, amldist_type type, amldist_request** request);
AMLDIST_API int amldist_igather(amldist_comm* comm, const void* send, void* recv, size_t count, amldist_type type,
                                int root, amldist_request** request);
AMLDIST_API int amldist_iscatter(amldist_comm* comm, const void* send, void* recv, size_t count, amldist_type type,
                                 int root, amldist_request** request);
AMLDIST_API int amldist_isend(amldist_comm* comm, const void* buffer, size_t count, amldist_type type, int peer,
                              amldist_request** request);
AMLDIST_API int amldist_irecv(amldist_comm* comm, void* buffer, size_t count, amldist_type type, int peer,
                              amldist_request** request);
AMLDIST_API int amldist_isend_tagged(amldist_comm* comm, const void* buffer, size_t count, amldist_type type, int peer,
                                     int tag, amldist_request** request);
AMLDIST_API int amldist_irecv_tagged(amldist_comm* comm, void* buffer, size_t count, amldist_type type, int peer,
                                     int tag, int* source, amldist_request** request);
AMLDIST_API int amldist_ibarrier(amldist_comm* comm, amldist_request** request);
/* Waits for a call, returns its result, frees the request and sets *request to NULL. *request == NULL counts as done.
 */
AMLDIST_API int amldist_wait(amldist_request** request);
/* If the call is complete, sets *done to 1 and acts as amldist_wait(); otherwise sets it to 0 and returns AMLDIST_OK.
 */
AMLDIST_API int amldist_test(amldist_request** request, int* done);

/* As amldist_test(), but waits up to `milliseconds` if the call is not complete. It sleeps: the library's progress
 * thread does the work. amldist_wait() works itself and so takes some microseconds less. Since 0.2. */
AMLDIST_API int amldist_wait_for(amldist_request** request, int milliseconds, int* done);

/* Calls `function` once, with the call's result, when the call is complete; amldist_last_error() and
 * amldist_get_error() describe an error there. The thread that completes the call makes it: the library's progress
 * thread, or a thread of the program that waits in the library. If the call is complete already, this thread makes it,
 * before amldist_on_complete() returns. The function may begin other calls, if no other thread is in a call on the
 * communicator; it may wait for its own request, but for nothing else. The request must still be waited for or tested
 * once; in another thread that returns after the function has returned, so then `context` may be freed. One function
 * for each request: AMLDIST_EINVAL for a second one, unless the call has ended while it began. Over an MPI without
 * MPI_THREAD_MULTIPLE there is no progress thread: see above. Since 0.2. */
typedef void (*amldist_complete_function)(int status, void* context);
AMLDIST_API int amldist_on_complete(amldist_request* request, amldist_complete_function function, void* context);

/* Lets the program interrupt a thread that waits in a call, for example after Ctrl-C. While the calling thread waits in
 * one of the calls above, in amldist_split() or in amldist_finalize(), it calls `function` about every 50 ms. If that
 * returns anything but 0, the communicator is aborted, and the call returns AMLDIST_EABORTED, here and on all other
 * ranks. amldist_wait_for() does not call it. NULL: no function. For this thread only. Returns
 * AMLDIST_OK. Since 0.2. */
typedef int (*amldist_interrupt_function)(void* context);
AMLDIST_API int amldist_set_interrupt(amldist_interrupt_function function, void* context);

/* Between these two, calls on the communicator are only collected. amldist_group_end() runs them: the collectives in
 * order, then all sends and receives at once, so that they may cross. Groups nest. amldist_group_end() returns the
 * errors of the collected calls. Asynchronous calls and amldist_split() are refused inside a group. */
AMLDIST_API int amldist_group_begin(amldist_comm* comm);
AMLDIST_API int amldist_group_end(amldist_comm* comm);

/* Allocates memory that collectives use without copying (zero-copy): shared with the other ranks of the node. Local;
 * page-aligned and zeroed. Errors: AMLDIST_ELIMIT when memory is exhausted. amldist_free() accepts only memory from
 * amldist_alloc() on the same communicator (or NULL); no rank may still be in a call that uses it. amldist_finalize()
 * frees the rest. */
AMLDIST_API int amldist_alloc(amldist_comm* comm, size_t bytes, void** memory);
AMLDIST_API int amldist_free(amldist_comm* comm, void* memory);

/* Makes the program's own memory zero-copy, like memory from amldist_alloc(), until amldist_deregister(). Its address
 * and contents stay. Local. `buffer` and `bytes` are whole pages (aligned_alloc(4096, ...)) of private memory: no file,
 * no stack, not locked, not pinned (RDMA, CUDA). During the call no other thread may write there. Deregister the memory
 * before you free it; a later call detects memory that was freed or remapped, and treats it as private. A child of
 * fork() has a copy. If the rank shares memory with no other rank, both functions do nothing. Errors:
 * AMLDIST_EINVAL (not such memory, or registered already, in part or by another communicator), AMLDIST_ELIMIT,
 * AMLDIST_EUNAVAILABLE (/proc/self/maps cannot be read). Since 0.2. */
AMLDIST_API int amldist_register(amldist_comm* comm, void* buffer, size_t bytes);
/* Ends the registration; the program keeps the memory and its contents. `buffer` is the registered address; no rank may
 * still be in a call that uses it. Local; possible also when the communicator has failed. amldist_finalize() does it
 * for the rest. Errors: AMLDIST_EINVAL (not registered, or remapped since), AMLDIST_ELIMIT, AMLDIST_EUNAVAILABLE. Since
 * 0.2. */
AMLDIST_API int amldist_deregister(amldist_comm* comm, void* buffer);

/* Deadline of every later call in milliseconds, at least 1; 0: the default. Local: set it on every rank. */
AMLDIST_API int amldist_set_timeout(amldist_comm* comm, int timeout_ms);
/* Has no effect, and is kept so that programs that call it still link. Results are deterministic with or without it: a
 * reduction of host buffers depends only on the inputs and the layout of ranks on nodes, bit for bit. Device buffers
 * are reduced by NCCL, in its own order. */
AMLDIST_API int amldist_set_deterministic(amldist_comm* comm, int on);
/* CUDA stream (cudaStream_t) for calls on device buffers; NULL: the default stream. Such a call returns when it is
 * enqueued; its request is done when the stream has completed it. Until then the library's watchdog thread watches it:
 * if it runs on the stream for longer than the deadline, or a rank has died, the watchdog aborts NCCL, the stream
 * becomes idle, and amldist_health() and every later call report the missing rank. (Not for a stream that is being
 * captured into a CUDA graph.) Calls that NCCL does not support are refused with AMLDIST_EUNAVAILABLE, and the
 * communicator stays usable: reductions of 16-bit integers, of bits (but for AND and OR of bools), amldist_alltoall()
 * in place. */
AMLDIST_API int amldist_set_stream(amldist_comm* comm, void* stream);

/* Aborts the communicator: every present and future call, on every rank, returns AMLDIST_EABORTED. Safe from any
 * thread. The handle must still be finalized. */
AMLDIST_API int amldist_abort(amldist_comm* comm);
/* AMLDIST_OK, or the status with which the communicator failed; does not wait. */
AMLDIST_API int amldist_health(const amldist_comm* comm);

/* Sets a function that gets each line, without a newline, instead of standard error. It is called from a thread of the
 * library, never after amldist_finalize(). NULL: standard error again. Since 0.1. */
typedef void (*amldist_log_function)(const char* line, void* context);
AMLDIST_API int amldist_set_log(amldist_comm* comm, amldist_log_function function, void* context);

/* ---- gradient buckets ----
 *
 * A reducer all-reduces many tensors in few calls, while others are still being computed. In each step, call
 * amldist_reducer_ready() for each tensor in any order, then amldist_reducer_wait(). Tensors are expected from the last
 * to the first, as backward passes produce them. Buckets are filled in that order, and the all-reduce of a bucket
 * starts as soon as the bucket is full, in the same order on all ranks.
 *
 * A tensor is either a view into its bucket (zero-copy) or the caller's own buffer: small ones are copied into a
 * bucket, large ones and those on a GPU are reduced in place. All ranks must give the same counts, type and options and
 * bind the same tensors.
 *
 * Thread safety: one call at a time on a reducer, and no call on its communicator from another thread meanwhile. Since
 * 0.1. */

/* A reducer. Its layout is private. */
typedef struct amldist_reducer amldist_reducer;

/* 0 means the default, except in op. */
typedef struct amldist_reducer_options {
  size_t struct_size;        /* sizeof(amldist_reducer_options) */
  size_t bucket_bytes;       /* 25 MiB */
  size_t first_bucket_bytes; /* 1 MiB: communication starts early */
  size_t fuse_bytes;         /* own buffers up to this size go together: 32 KiB in a node, 64 KiB between nodes */
  int op;                    /* amldist_op */
} amldist_reducer_options;

/* counts[tensors]: elements of each tensor, 0 allowed. options == NULL: the defaults, and AMLDIST_AVG. Local. */
AMLDIST_API int amldist_reducer_create(amldist_comm* comm, const size_t* counts, size_t tensors, amldist_type type,
                                       const amldist_reducer_options* options, amldist_reducer** reducer);
/* Memory of a tensor in its bucket: zeroed, aligned to 64 bytes, valid until amldist_reducer_free(). */
AMLDIST_API int amldist_reducer_view(amldist_reducer* reducer, size_t tensor, void** data);
/* Makes the tensor the caller's buffer. The first bind must precede any view and step; later binds between two steps.
 */
AMLDIST_API int amldist_reducer_bind(amldist_reducer* reducer, size_t tensor, void* data);
/* Marks this rank's tensor as complete. The program must not touch it until amldist_reducer_wait() returns. */
AMLDIST_API int amldist_reducer_ready(amldist_reducer* reducer, size_t tensor);
/* Returns when all tensors hold the result. AMLDIST_EINVAL names a tensor that is not ready; then the step
 * continues. */
AMLDIST_API int amldist_reducer_wait(amldist_reducer* reducer);
/* Number of collective calls per step, or a negative status. Fixes the layout, as the first view does. */
AMLDIST_API int amldist_reducer_calls(amldist_reducer* reducer);
/* Waits for calls in progress and frees the reducer. Its views become invalid, as they do when the communicator is
 * finalized. NULL is allowed. */
AMLDIST_API int amldist_reducer_free(amldist_reducer* reducer);

#ifdef __cplusplus
}
#endif
#endif
