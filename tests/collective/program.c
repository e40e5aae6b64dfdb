#include "program.h"

#include <string.h>

amldist_comm *world;
int rank, size;

/* Says who this rank is, for tests of the bootstrap. */
static void place(int argc, char **argv) {
  (void)argc, (void)argv;
  printf("rank %d of %d, local %d of %d, node %d of %d, host %s, map %s, %s\n", rank, size, amldist_local_rank(world),
         amldist_local_size(world), amldist_node_rank(world), amldist_nodes(world), amldist_host(world, rank),
         amldist_task_map(world), amldist_provenance(world));
}

static void operations(int argc, char **argv) {
  (void)argc, (void)argv;
  run_operations();
}

static const struct {
  const char *name;
  void (*run)(int argc, char **argv);
} cases[] = {{"operations", operations}, {"place", place}, {"victim", run_victim}};

int main(int argc, char **argv) {
  for (size_t i = 0; argc >= 2 && i < sizeof cases / sizeof *cases; ++i) {
    if (strcmp(argv[1], cases[i].name) != 0) continue;
    if (amldist_init(&world, 30000) != AMLDIST_OK) {
      fprintf(stderr, "amldist_init: %s\n", amldist_last_error());
      return 3;
    }
    rank = amldist_rank(world);
    size = amldist_size(world);
    cases[i].run(argc, argv);
    OK(amldist_finalize(world));
    return 0;
  }
  fprintf(stderr, "usage: %s CASE\n", argv[0]);
  return 2;
}
