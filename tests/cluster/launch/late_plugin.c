/* A SPANK plugin that holds up the slurmstepd of one node between the callbacks before and those after its step's
 * output is opened. Arguments of plugstack.conf: the node, and for how many seconds. */
#include <slurm/spank.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SPANK_PLUGIN(late, 1)

int slurm_spank_init_post_opt(spank_t spank, int argc, char** argv) {
  char host[256];
  if (argc != 2 || spank_remote(spank) != 1 || gethostname(host, sizeof host) != 0) return 0;
  if (strcmp(host, argv[0]) == 0) sleep((unsigned)atoi(argv[1]));
  return 0;
}
