/* Goes on after a rank is lost: all-reduce fails on all ranks, the remaining ones shrink the communicator, find the
 * last step that all of them have done, and go on from there.
 *
 *   cc -O2 survive.c $(pkg-config --cflags --libs amldist) -o survive
 *   srun -n4 --no-kill --kill-on-bad-exit=0 --aml-dist=pytorch ./survive 1     (rank 1 kills itself on the way)
 */
#include <amldist/amldist.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { STEPS = 40 };

static void stop(const char* what) {
  fprintf(stderr, "%s: %s\n", what, amldist_last_error());
  exit(1);
}

/* Replaces `world` by the communicator of the remaining ranks. */
static amldist_comm* go_on(amldist_comm* world) {
  amldist_comm* left = NULL;
  if (amldist_shrink(world, &left) != AMLDIST_OK) stop("amldist_shrink");
  amldist_finalize(world); /* memory of amldist_alloc() would go with it */
  if (amldist_rank(left) == 0) printf("goes on with %d ranks\n", amldist_size(left));
  return left;
}

/* A rank may have been told of the loss one step later than another: the earliest step that failed anywhere. */
static int first_failed(amldist_comm** world, int step) {
  int32_t first = step;
  while (amldist_allreduce(*world, &first, &first, 1, AMLDIST_INT32, AMLDIST_MIN) != AMLDIST_OK) {
    *world = go_on(*world); /* another one was lost meanwhile */
    first = step;
  }
  return first;
}

int main(int argc, char** argv) {
  amldist_comm* world = NULL;
  if (amldist_init(&world, 0) != AMLDIST_OK) stop("amldist_init");
  const int rank = amldist_rank(world);
  double sums[STEPS] = {0};
  for (int step = 0; step < STEPS; ++step) {
    if (argc > 1 && atoi(argv[1]) == rank && step == STEPS / 2) raise(SIGKILL);
    const double own = step;
    if (amldist_allreduce(world, &own, &sums[step], 1, AMLDIST_FLOAT64, AMLDIST_AVG) == AMLDIST_OK) continue;
    world = go_on(world);
    step = first_failed(&world, step) - 1; /* that step again; a training would load its state */
  }
  int fine = 1;
  for (int step = 0; step < STEPS; ++step) fine = fine && sums[step] == step;
  const int status = amldist_agree(world, &fine); /* is it fine everywhere? */
  if (status != AMLDIST_OK || !fine) stop("amldist_agree");
  if (amldist_rank(world) == 0) printf("all steps are done\n");
  return amldist_finalize(world) == AMLDIST_OK ? 0 : 1;
}
