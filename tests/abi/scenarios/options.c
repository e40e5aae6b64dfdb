/* Malformed options are refused in one line by the first program that reads them, and never drain a node. */
#include <stdlib.h>
#include <string.h>

#include "expect.h"
#include "journal.h"
#include "plugin.h"
#include "scenarios.h"
#include "text.h"

static const char* const malformed[] = {
    /* kinds */
    "", " ", "pytorhc", "PyTorch", "pytorch ", " pytorch", "torch", "nccl", "-", "--aml-dist", "pytorch=1", "0",
    /* pieces */
    ",", "=", ",,", "pytorch,", "pytorch,,", "pytorch,=", "pytorch,=x", "pytorch,launch",
    "pytorch,launch=", "pytorch,,verbose", "pytorch,verbose,", "pytorch, verbose", "pytorch;verbose", ",pytorch",
    /* keys */
    "pytorch,lauch=per-node", "pytorch,no_such_key", "pytorch,no_such_key=1", "pytorch,LAUNCH=per-node",
    "pytorch,worker_count=2", "tensorflow,backend=nccl", "pytorch,launch=per-node,launch=per-node",
    "pytorch,verbose,verbose", "pytorch,process_count_per_node=1,process_count_per_instance=1",
    /* values */
    "pytorch,launch=per_node", "pytorch,backend=ncl", "pytorch,master_port=0", "pytorch,master_port=65536",
    "pytorch,master_port=99999999999999999999", "pytorch,master_port=-1", "pytorch,master_port=+1",
    "pytorch,master_port=0x1", "pytorch,master_port=1e3", "pytorch,master_addr=::1", "pytorch,master_addr=a:1",
    "pytorch,master_addr=a b", "pytorch,master_addr=-x", "pytorch,node_count=0", "pytorch,node_count=two",
    "pytorch,node_count=4294967297", "pytorch,verbose=1", "pytorch,rdma=maybe", "pytorch,nproc_per_node=0",
    "pytorch,launch=per-node,nproc_per_node=many", "tensorflow,chief_count=2",
    /* together */
    "none,verbose", "tensorflow,launch=per-node", "jax,launch=per-node", "ray,launch=per-process",
    "pytorch,nproc_per_node=4",
    /* hostile */
    "%s%n%n%n", "pytorch,%s%n%n%n=%n", "../../", "../../../../etc/passwd", "pytorch,master_addr=../../etc", "$(reboot)",
    "`reboot`", "pytorch,backend=$(reboot)", "\n", "pytorch\n", "pytorch,\nverbose", "a\nb\nc\nd",
    "pytorch,x=\naml-dist: all is well\n", "\r\rpytorch", "\t", "\033[2J\033[31m", "pytorch,\007=1", "\x01\x02\x7f",
    "p\xc3\xbftorch", "\xe7\x81\xab\xe7\x81\xab", "\xf0\x9f\x94\xa5,x=1", "\xff\xfe\x80", "pytorch,\xc2\x9b=1",
    "pytorch,backend=\xe2\x80\xaexyz"};
enum { MALFORMED = sizeof malformed / sizeof *malformed };

/* The fixed ones, and long ones that would be a nuisance to write down. */
static void for_each_malformed(void (*check)(const char* text)) {
  for (size_t i = 0; i < MALFORMED; ++i) check(malformed[i]);
  static const struct {
    const char* start;
    const char* piece;
    size_t count;
  } long_ones[] = {{"", "x", 100000},
                   {"pytorch,", "x", 100000},
                   {"pytorch,backend=", "x", 100000},
                   {"pytorch,master_addr=", "h", 4000},
                   {"pytorch", ",", 100000},
                   {"pytorch", ",verbose", 12500},
                   {"", "%n", 50000},
                   {"", "\n", 100000},
                   {"pytorch,x=", "\033[2J", 1000},
                   {"pytorch,master_port=", "9", 3000},
                   {"pytorch,", "no_such_key,", 300}};
  for (size_t i = 0; i < sizeof long_ones / sizeof *long_ones; ++i) {
    char* const tail = text_repeat(long_ones[i].piece, long_ones[i].count);
    char* const text = text_format("%s%s", long_ones[i].start, tail);
    check(text);
    free(text);
    free(tail);
  }
}

static void check_srun(const char* text) {
  subject("%.80s", text);
  struct step step = usual_step;
  step.option = text;
  struct submission srun;
  drive_srun(&srun, &step, NULL);
  CHECK(srun.post_opt < 0, "init_post_opt returns %d", srun.post_opt);
  expect_srun_refuses(&srun);
  submission_free(&srun);
}

void scenario_malformed_srun(void) { for_each_malformed(check_srun); }

/* What srun sends for a good option. */
static void good_launch(struct environment* environment) {
  struct submission srun;
  drive_srun(&srun, &usual_step, NULL);
  environment_copy(environment, &srun.environment);
  environment_unset(environment, OPTION_OF_JOB);
  submission_free(&srun);
}

static void check_remote(const char* text) {
  subject("%.80s", text);
  struct environment sent = {0};
  good_launch(&sent);
  struct node node;
  drive_node(&node, &usual_step, 1, &sent, text);
  expect_node_refuses(&node);
  node_free(&node);
  environment_clear(&sent);
}

void scenario_malformed_remote(void) {
  for_each_malformed(check_remote);
  /* srun would have answered this; a node that gets it was lied to. */
  check_remote("help");
}

void scenario_null_option(void) {
  static const struct place nowhere = {NULL, 0, -1, NULL, 0};
  static const enum spank_context contexts[] = {S_CTX_LOCAL, S_CTX_ALLOCATOR, S_CTX_REMOTE};
  for (size_t i = 0; i < sizeof contexts / sizeof *contexts; ++i) {
    subject("context %d", (int)contexts[i]);
    struct plugin plugin;
    plugin_load(&plugin, contexts[i], NULL);
    CHECK(plugin_call(&plugin, HOOK_INIT, nowhere) == 0, "init fails");
    plugin_take_option(&plugin, NULL, contexts[i] == S_CTX_REMOTE);
    struct environment environment = {0};
    const struct place in_step = {&usual_step, 0, -1, &environment, 0};
    const struct place place = contexts[i] == S_CTX_REMOTE ? in_step : nowhere;
    const int status = plugin_call(&plugin, HOOK_INIT_POST_OPT, place);
    CHECK(contexts[i] == S_CTX_REMOTE ? status == 0 : status < 0, "init_post_opt returns %d", status);
    CHECK(plugin_call(&plugin, HOOK_EXIT, nowhere) == 0, "exit fails");
    plugin_unload(&plugin);
  }
}
