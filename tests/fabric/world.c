/* A program that creates its world and prints the result: "0 -", "-7 rdma=require ..." (status, reason), with the
 * variables that its back ends would read. For test_world.py. */
#include <stdio.h>
#include <stdlib.h>

#include "amldist/amldist.h"

static const char* variable(const char* name) {
  const char* const value = getenv(name);
  return value != NULL ? value : "-";
}

int main(void) {
  amldist_comm* world = NULL;
  const int status = amldist_init(&world, 60000);
  printf("%d %s %s | %s\n", status, variable("NCCL_IB_DISABLE"), variable("UCX_TLS"),
         status == AMLDIST_OK ? "-" : amldist_last_error());
  return status == AMLDIST_OK ? amldist_finalize(world) != AMLDIST_OK : 1;
}
