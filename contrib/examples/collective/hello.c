/* The smallest program: every rank adds its number and prints the sum.
 *
 *   cc hello.c $(pkg-config --cflags --libs amldist) -o hello
 *   srun -N2 -n4 --aml-dist=mpi ./hello
 */
#include <amldist/amldist.h>
#include <stdio.h>

int main(void) {
  amldist_comm* world;
  if (amldist_init(&world, 60000) != AMLDIST_OK) {
    fprintf(stderr, "hello: %s\n", amldist_last_error());
    return 1;
  }
  const int rank = amldist_rank(world);
  int32_t sum = rank + 1;
  if (amldist_allreduce(world, &sum, &sum, 1, AMLDIST_INT32, AMLDIST_SUM) != AMLDIST_OK) {
    fprintf(stderr, "hello: %s\n", amldist_last_error()); /* names the rank that is missing */
    return 1;
  }
  printf("rank %d of %d on %s: the sum is %d\n", rank, amldist_size(world), amldist_host(world, rank), (int)sum);
  return amldist_finalize(world) == AMLDIST_OK ? 0 : 1;
}
