/* What a call on device buffers costs over the call of NCCL that it makes: an all-reduce of one float on a communicator
 * of one rank, and ncclAllReduce by itself, in turn, batch by batch, over a driver and an NCCL that do nothing
 * (idle_device.cpp). So calls of the driver count by their number, not by what they take on a GPU.
 *
 *   nccl_layer_cost [SAMPLES]
 *
 * Prints both medians and the median of the differences, in nanoseconds. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../benchlib/samples.h"
#include "amldist/amldist.h"

enum { BATCH = 500, MOST = 2000 }; /* a batch fits into what the library keeps watch over */

typedef int all_reduce(const void*, void*, size_t, int, int, void*, void*);

static amldist_comm* world;
static all_reduce* bare_all_reduce;

static void own_call(float* value) {
  if (amldist_allreduce(world, value, value, 1, AMLDIST_FLOAT32, AMLDIST_MAX) == 0) return;
  fprintf(stderr, "%s\n", amldist_last_error());
  exit(1);
}

static void bare_call(float* value) { bare_all_reduce(value, value, 1, AMLDIST_FLOAT32, AMLDIST_MAX, world, NULL); }

static double batch_of(void (*call)(float*)) {
  float value = 1;
  const struct timespec rest = {0, 3000000};
  nanosleep(&rest, NULL); /* the library has seen the end of the last batch */
  const double start = now();
  for (int i = 0; i < BATCH; ++i) call(&value);
  return (now() - start) / BATCH;
}

int main(int argc, char** argv) {
  static double own[MOST], bare[MOST], difference[MOST];
  int samples = argc > 1 ? atoi(argv[1]) : 500;
  if (samples < 1 || samples > MOST) samples = MOST;
  void* const device = dlopen("libcuda.so.1", RTLD_NOW);
  if (device) *(void**)&bare_all_reduce = dlsym(device, "ncclAllReduce");
  if (!bare_all_reduce) return fprintf(stderr, "libcuda.so.1 is not the one that does nothing\n"), 1;
  if (amldist_init(&world, 60000) != 0) return fprintf(stderr, "%s\n", amldist_last_error()), 1;
  for (int s = -5; s < samples; ++s) {
    const double times[2] = {batch_of(s % 2 ? own_call : bare_call), batch_of(s % 2 ? bare_call : own_call)};
    if (s < 0) continue;
    own[s] = times[s % 2 ? 0 : 1], bare[s] = times[s % 2 ? 1 : 0];
    difference[s] = own[s] - bare[s];
  }
  printf("amldist_allreduce %.0f ns, ncclAllReduce alone %.0f ns, difference %.0f ns (goal: 60)\n",
         median(own, samples), median(bare, samples), median(difference, samples));
  return amldist_finalize(world) != 0;
}
