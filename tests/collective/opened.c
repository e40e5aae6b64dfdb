/* A program that loads the library at run time: dlopen(), a world, a sum, dlclose().
 *
 *   opened PATH           the world is finalized first
 *   opened PATH forgotten  it is not: its threads go on, and the process ends well */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "amldist/amldist.h"

static void* library;

static int take(const char* name, void* function) {
  void* symbol = dlsym(library, name);
  memcpy(function, &symbol, sizeof symbol);
  return symbol != NULL;
}

int main(int argc, char** argv) {
  __typeof__(&amldist_init) init;
  __typeof__(&amldist_allreduce) allreduce;
  __typeof__(&amldist_rank) rank, size;
  __typeof__(&amldist_finalize) finalize;
  __typeof__(&amldist_last_error) last_error;
  const int forgets = argc == 3 && strcmp(argv[2], "forgotten") == 0;
  if (argc != 2 + forgets || (library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL)) == NULL)
    return fprintf(stderr, "%s\n", dlerror());
  if (!take("amldist_init", &init) || !take("amldist_allreduce", &allreduce) || !take("amldist_rank", &rank) ||
      !take("amldist_size", &size) || !take("amldist_finalize", &finalize) || !take("amldist_last_error", &last_error))
    return fprintf(stderr, "%s\n", dlerror());
  for (int round = 0; round < 2; ++round) { /* a second world after the first */
    amldist_comm* world = NULL;
    if (init(&world, 30000) != AMLDIST_OK) return fprintf(stderr, "%s\n", last_error());
    int64_t sum = rank(world);
    const int ranks = size(world);
    if (allreduce(world, &sum, &sum, 1, AMLDIST_INT64, AMLDIST_SUM) != AMLDIST_OK)
      return fprintf(stderr, "%s\n", last_error());
    if (sum != (int64_t)ranks * (ranks - 1) / 2) return fprintf(stderr, "the sum is %lld\n", (long long)sum);
    if (forgets) {
      dlclose(library);
      nanosleep(&(struct timespec){1, 500000000}, NULL); /* the control thread wakes once a second */
      return 0;
    }
    if (finalize(world) != AMLDIST_OK) return fprintf(stderr, "%s\n", last_error());
  }
  return dlclose(library) == 0 ? 0 : 1;
}
