#include "program.h"

#include <string.h>

amldist_comm* world;
int rank, size;

/* Says who this rank is, for tests of the bootstrap. */
static void place(void) {
  printf("rank %d of %d, local %d of %d, node %d of %d, host %s, map %s, %s\n", rank, size, amldist_local_rank(world),
         amldist_local_size(world), amldist_node_rank(world), amldist_nodes(world), amldist_host(world, rank),
         amldist_task_map(world), amldist_provenance(world));
}

static const struct {
  const char* name;
  void (*run)(void);
} cases[] = {{"operations", run_operations},
             {"many_nodes", run_many_nodes},
             {"misuse", run_misuse},
             {"requests", run_requests},
             {"split", run_split},
             {"handles", run_handles},
             {"crossing", run_crossing},
             {"itself", run_itself},
             {"congestion", run_congestion},
             {"relay", run_relay},
             {"messages", run_messages},
             {"short_messages", run_short_messages},
             {"random_messages", run_random_messages},
             {"exchanges", run_exchanges},
             {"shrunk", run_shrunk},
             {"place", place},
             {"large", run_large},
             {"completions", run_completions},
             {"short_waits", run_short_waits},
             {"blame", run_blame},
             {"blame_in_part", run_blame_in_part},
             {"interrupted", run_interrupted},
             {"tags", run_tags},
             {"other_lengths", run_other_lengths},
             {"left_alone", run_left_alone},
             {"no_thread", run_no_thread},
             {"single_copy", run_single_copy},
             {"nowhere", run_nowhere},
             {"recorded", run_recorded},
             {"registered", run_registered},
             {"registered_unasked", run_registered_unasked},
             {"fetching", run_fetching},
             {"stop", run_stop},
             {"stop_unasked", run_stop_unasked}};

static int start(void) {
  enum { USUAL_MS = 30000 };
  const char* const given = getenv("AMLDIST_TEST_INIT_MS");
  const int deadline = given != NULL ? atoi(given) : USUAL_MS;
  if (amldist_init(&world, deadline) != AMLDIST_OK) {
    fprintf(stderr, "amldist_init: %s\n", amldist_last_error());
    return 0;
  }
  rank = amldist_rank(world);
  size = amldist_size(world);
  return 1;
}

int main(int argc, char** argv) {
  if (argc == 5 && strcmp(argv[1], "victim") == 0) {
    if (!start()) return 3;
    run_victim(argc, argv);
  }
  if (argc == 5 && strcmp(argv[1], "survivors") == 0) {
    if (!start()) return 3;
    run_survivors(argc, argv);
  }
  for (int a = 1; a < argc; ++a) { /* several cases in one world */
    size_t i = 0;
    while (i < sizeof cases / sizeof *cases && strcmp(argv[a], cases[i].name) != 0) ++i;
    if (i == sizeof cases / sizeof *cases) {
      fprintf(stderr, "usage: %s CASE... | victim HOW WHO DEADLINE_MS | survivors HOW VICTIMS DEADLINE_MS\n", argv[0]);
      return 2;
    }
    if (world == NULL && !start()) return 3;
    cases[i].run();
  }
  OK(amldist_finalize(world));
  return 0;
}
