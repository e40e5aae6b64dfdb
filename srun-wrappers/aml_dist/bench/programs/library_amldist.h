/* libamldist as something to be measured. */
#ifndef AMLDIST_BENCH_LIBRARY_AMLDIST_H
#define AMLDIST_BENCH_LIBRARY_AMLDIST_H

#include <amldist/amldist.h>

#include "core.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The table for a communicator, which stays the caller's. */
struct bench_library bench_library_amldist(amldist_comm* comm);

#ifdef __cplusplus
}
#endif
#endif
