/* A host for the plugin that is not Slurm: loads the real spank_aml_dist.so, implements what it calls, and drives its
 * callbacks as srun, sbatch, slurmd and slurmstepd would.
 *
 *   abi_host PLUGIN --list     names of the scenarios
 *   abi_host PLUGIN NAME       runs one: 0 passed, 1 failed, 77 cannot run here
 *   abi_host PLUGIN --measure NODES TASKS_PER_NODE block|cyclic OPTION
 *                              what such a step costs, as a line of JSON on standard error */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake_machine.h"
#include "journal.h"
#include "measure.h"
#include "output.h"
#include "plugin.h"
#include "scenarios.h"

enum { SKIPPED = 77, LONGEST_SCENARIO_SECONDS = 240 };

struct scenario {
  const char* name;
  const char* what;
  void (*run)(void);
};

static const struct scenario scenarios[] = {
#define SCENARIO(name, what) {#name, what, scenario_##name},
#include "scenarios.def"
#undef SCENARIO
};
enum { SCENARIOS = sizeof scenarios / sizeof *scenarios };

void skip(const char* why) {
  output_print("skipped: %s\n", why);
  machine_close();
  exit(SKIPPED);
}

static void open_all(void) {
  journal_open();
  output_open();
  alarm(LONGEST_SCENARIO_SECONDS);
  machine_open();
}

static int run(const struct scenario* scenario) {
  open_all();
  scenario->run();
  machine_close();
  output_check_decoys();
  if (journal->failures == 0) return 0;
  output_print("%s (%s): %d checks failed\n", scenario->name, scenario->what, journal->failures);
  return 1;
}

static int run_measurement(char** arguments) {
  open_all();
  const int status = measure(arguments);
  machine_close();
  return status;
}

int main(int argc, char** argv) {
  enum { WITH_MEASUREMENT = 7 };
  const bool measures = argc == WITH_MEASUREMENT && strcmp(argv[2], "--measure") == 0;
  if (argc != 3 && !measures) {
    fprintf(stderr, "usage: %s PLUGIN (--list | NAME | --measure NODES TASKS_PER_NODE block|cyclic OPTION)\n", argv[0]);
    return 2;
  }
  plugin_path = argv[1];
  if (measures) return run_measurement(argv + 3);
  const bool list = strcmp(argv[2], "--list") == 0;
  for (size_t i = 0; i < SCENARIOS; ++i) {
    if (list) printf("%-24s %s\n", scenarios[i].name, scenarios[i].what);
    else if (strcmp(argv[2], scenarios[i].name) == 0) return run(&scenarios[i]);
  }
  if (list) return 0;
  fprintf(stderr, "%s: no scenario '%s', see --list\n", argv[0], argv[2]);
  return 2;
}
