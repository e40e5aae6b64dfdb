/* The C interface from a plain C program: one case per run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "amldist/amldist.h"

#define CHECK(condition)                                                                                             \
  do {                                                                                                               \
    if (!(condition)) {                                                                                              \
      fprintf(stderr, "%s:%d: %s is false; last error: %s\n", __FILE__, __LINE__, #condition, amldist_last_error()); \
      exit(1);                                                                                                       \
    }                                                                                                                \
  } while (0)

static void set(const char* name, const char* value) { CHECK(setenv(name, value, 1) == 0); }

static void set_task(void) {
  set("AMLDIST_STAMP", "12.0 kind=pytorch nodes=4");
  set("RANK", "5");
  set("WORLD_SIZE", "8");
  set("LOCAL_RANK", "1");
  set("LOCAL_WORLD_SIZE", "2");
  set("NODE_RANK", "2");
  set("MASTER_PORT", "20001");
}

static void version(void) { CHECK(strlen(amldist_version()) >= strlen("0.0.0")); }

static void identity_outside_a_step(void) {
  amldist_identity id = {sizeof id, 0, 0, 0, 0, 0, 0, 0};
  CHECK(amldist_get_identity(&id) == AMLDIST_EUNAVAILABLE);
  CHECK(strstr(amldist_last_error(), "--aml-dist") != NULL);
}

static void identity_in_a_step(void) {
  amldist_identity id = {sizeof id, 0, 0, 0, 0, 0, 0, 0};
  set_task();
  CHECK(amldist_get_identity(&id) == AMLDIST_OK);
  CHECK(id.rank == 5 && id.size == 8 && id.local_rank == 1 && id.local_size == 2);
  CHECK(id.node_rank == 2 && id.nodes == 4 && id.master_port == 20001);
}

static void identity_that_contradicts(void) {
  amldist_identity id = {sizeof id, 0, 0, 0, 0, 0, 0, 0};
  set_task();
  set("SLURM_PROCID", "6");
  CHECK(amldist_get_identity(&id) == AMLDIST_EMISMATCH);
  CHECK(strstr(amldist_last_error(), "SLURM_PROCID") != NULL);
}

static void options(void) {
  CHECK(amldist_check_option("pytorch,master_port=6105") == AMLDIST_OK);
  CHECK(amldist_check_option("help") == AMLDIST_OK);
  CHECK(amldist_check_option("pytorhc") == AMLDIST_EINVAL);
  CHECK(strstr(amldist_last_error(), "'pytorch'") != NULL);
}

static void null_and_size(void) {
  amldist_identity id = {1, 0, 0, 0, 0, 0, 0, 0};
  CHECK(amldist_get_identity(NULL) == AMLDIST_EINVAL);
  CHECK(amldist_get_identity(&id) == AMLDIST_EINVAL);
  CHECK(amldist_check_option(NULL) == AMLDIST_EINVAL);
}

static void verify_node(void) {
  static char json[65536];
  CHECK(amldist_verify_node("off", NULL, json, sizeof json) == AMLDIST_VERDICT_SKIP);
  CHECK(strstr(json, "\"verdict\": \"skip\"") != NULL && strstr(json, "ib.policy") != NULL);
  const int found = amldist_verify_node("require", "Standard_ND96isr_H100_v5", json, sizeof json);
  CHECK(found >= AMLDIST_VERDICT_PASS && found <= AMLDIST_VERDICT_SKIP && found != AMLDIST_VERDICT_SKIP);
  CHECK(strstr(json, "ib.count") != NULL);
  CHECK(amldist_verify_node("off", NULL, NULL, 0) == AMLDIST_VERDICT_SKIP);
  CHECK(amldist_verify_node("off", NULL, json, 10) == AMLDIST_ELIMIT);
  CHECK(amldist_verify_node("maybe", NULL, json, sizeof json) == AMLDIST_EINVAL);
  CHECK(amldist_verify_node(NULL, NULL, json, sizeof json) == AMLDIST_EINVAL);
  CHECK(amldist_verify_node("require", "no such size", json, sizeof json) == AMLDIST_EINVAL);
}

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    void (*run)(void);
  } cases[] = {{"version", version},
               {"identity_outside_a_step", identity_outside_a_step},
               {"identity_in_a_step", identity_in_a_step},
               {"identity_that_contradicts", identity_that_contradicts},
               {"options", options},
               {"null_and_size", null_and_size},
               {"verify_node", verify_node}};
  for (size_t i = 0; argc == 2 && i < sizeof cases / sizeof *cases; ++i) {
    if (strcmp(argv[1], cases[i].name) != 0) continue;
    cases[i].run();
    return 0;
  }
  fprintf(stderr, "usage: %s CASE\n", argv[0]);
  return 2;
}
