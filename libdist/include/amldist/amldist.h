/* aml-dist: the C interface of libamldist.
 *
 * ABI: symbols are versioned (AMLDIST_0); functions and enumerators are only ever added; structures that callers allocate
 * carry their size, so a newer library fills what an older caller knows.
 *
 * Thread safety: functions without a handle are safe from any thread; amldist_last_error() speaks of the calling thread.
 * Functions return 0 or a negative amldist_status, unless they say otherwise. Nothing here writes to standard output or
 * standard error.
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

/* What a call came to. Since 0.1. */
typedef enum amldist_status {
  AMLDIST_OK = 0,
  AMLDIST_EINVAL = -1,       /* an argument, or a text in the environment, is malformed */
  AMLDIST_EMISMATCH = -2,    /* two facts contradict each other */
  AMLDIST_ENOTFOUND = -3,    /* what was named does not exist */
  AMLDIST_EUNAVAILABLE = -4, /* a service, library or variable is missing */
  AMLDIST_ELIMIT = -5,       /* a documented limit would be passed */
  AMLDIST_EINTERNAL = -6     /* a bug, or no memory */
} amldist_status;

/* Release of the library, "MAJOR.MINOR.PATCH"; static. Since 0.1. */
AMLDIST_API const char *amldist_version(void);

/* One sentence about the last call of this thread that failed: what was asked, what is, what to do. "" if none did.
 * Valid until the thread's next failing call. Since 0.1. */
AMLDIST_API const char *amldist_last_error(void);

/* Who the calling process is in its step. All numbers are zero-based and dense. Since 0.1. */
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
 * outside such a step, AMLDIST_EMISMATCH when the variables contradict each other or Slurm's own, AMLDIST_EINVAL for
 * NULL or a wrong struct_size. Reads the environment with getenv(): do not change it from another thread meanwhile.
 * Since 0.1. */
AMLDIST_API int amldist_get_identity(amldist_identity *identity);

/* Checks an option text as srun does: "pytorch,master_port=6105". 0, or AMLDIST_EINVAL or AMLDIST_ELIMIT with the
 * sentence in amldist_last_error(). Since 0.1. */
AMLDIST_API int amldist_check_option(const char *text);

/* What a verification came to. Since 0.2. */
typedef enum amldist_verdict {
  AMLDIST_VERDICT_PASS = 0,
  AMLDIST_VERDICT_WARN = 1, /* verified, with warnings */
  AMLDIST_VERDICT_FAIL = 2,
  AMLDIST_VERDICT_SKIP = 3  /* nothing to verify */
} amldist_verdict;

/* Verifies the RDMA devices of this node as `aml-dist check` does, from sysfs, the device nodes and this process's
 * limits and environment; no device is used and no process started. `policy` is "require", "prefer" or "off", `sku` a
 * name of aml-dist-skus(5) or NULL. Writes the JSON object of aml-dist-check(1) into `json` (up to `size` bytes with the
 * terminating zero; NULL and 0: not wanted). Returns an amldist_verdict, AMLDIST_EINVAL for a wrong policy or SKU, or
 * AMLDIST_ELIMIT when the object does not fit (64 KiB are always enough). Reads the environment with getenv().
 * Since 0.2. */
AMLDIST_API int amldist_verify_node(const char *policy, const char *sku, char *json, size_t size);

#ifdef __cplusplus
}
#endif
#endif
