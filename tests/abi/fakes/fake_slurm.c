/* The functions of libslurm that the plugin calls or finds by name, and the name service of a cluster that does not
 * exist. */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/spank.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_slurm.h"
#include "fault.h"
#include "journal.h"
#include "plugin.h"
#include "text.h"

const struct step* fake_step;
uint16_t fake_srun_ports[2];

/* ---- logging ---- */

static void say(enum audience audience, const char* format, va_list arguments) {
  const int paused = fault_pause();
  const spank_context_t context = spank_context();
  if (audience == TO_USER && (context == S_CTX_LOCAL || context == S_CTX_ALLOCATOR)) {
    /* srun's and sbatch's log is their standard error, without a prefix for slurm_spank_log. */
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
  } else {
    journal_say(audience, format, arguments);
  }
  fault_resume(paused);
}

#define LOGGER(name, audience)         \
  void name(const char* format, ...) { \
    va_list arguments;                 \
    va_start(arguments, format);       \
    say(audience, format, arguments);  \
    va_end(arguments);                 \
  }

LOGGER(slurm_spank_log, TO_USER)
LOGGER(slurm_error, TO_ADMINISTRATOR)
LOGGER(slurm_info, TO_DEBUGGER)
LOGGER(slurm_verbose, TO_DEBUGGER)
LOGGER(slurm_debug, TO_DEBUGGER)
LOGGER(slurm_debug2, TO_DEBUGGER)
LOGGER(slurm_debug3, TO_DEBUGGER)

char* slurm_strerror(int code) {
  static char text[64];
  snprintf(text, sizeof text, "Slurm error %d", code);
  return text;
}

/* In a fork of a threaded daemon, with the user waiting: nothing that can block. */
static void not_in_task(const char* function) {
  CHECK(strncmp(journal->callback, "slurm_spank_task_init", strlen("slurm_spank_task_init")) != 0,
        "violation: %s in a task's own process", function);
}

/* ---- layout ---- */

int slurm_step_layout_destroy(slurm_step_layout_t* layout);

static slurm_step_layout_t* new_layout(const struct step* step) {
  const uint32_t nodes = nodes_of(step);
  slurm_step_layout_t* const layout = calloc(1, sizeof *layout);
  if (layout == NULL) abort();
  layout->node_cnt = nodes;
  layout->task_cnt = tasks_of(step);
  layout->node_list = text_format("%s", step->nodelist);
  layout->tasks = calloc(nodes, sizeof *layout->tasks);
  layout->tids = calloc(nodes + 1, sizeof *layout->tids); /* ended by NULL: a defect may spoil node_cnt */
  if (layout->tasks == NULL || layout->tids == NULL) abort();
  for (uint32_t node = 0; node < nodes; ++node) {
    const uint32_t count = local_tasks_of(step, node);
    layout->tasks[node] = (uint16_t)count;
    layout->tids[node] = malloc(count * sizeof **layout->tids);
    if (layout->tids[node] == NULL) abort();
    for (uint32_t local = 0; local < count; ++local) layout->tids[node][local] = rank_of(step, node, local);
  }
  return layout;
}

static void free_task_ids(slurm_step_layout_t* layout) {
  for (uint32_t** ids = layout->tids; ids != NULL && *ids != NULL; ++ids) free(*ids);
  free(layout->tids);
}

static void spoil(slurm_step_layout_t* layout, enum layout_defect defect) {
  switch (defect) {
    case NO_NODE_LIST:
      free(layout->node_list);
      layout->node_list = NULL;
      break;
    case NO_TASK_IDS:
      free_task_ids(layout);
      layout->tids = NULL;
      break;
    case NO_TASK_COUNTS:
      free(layout->tasks);
      layout->tasks = NULL;
      break;
    case WRONG_NODE_COUNT:
      --layout->node_cnt;
      break;
    case HOSTILE_NODE_LIST:
      free(layout->node_list);
      layout->node_list = text_format("n[1-99999999999");
      break;
    case RANK_TOO_HIGH:
      layout->tids[0][0] = layout->task_cnt;
      break;
    case RANK_TWICE:
      layout->tids[0][0] = layout->tids[layout->node_cnt - 1][0];
      break;
    case RANK_MISSING:
      --layout->tasks[layout->node_cnt - 1];
      break;
    case NO_NODES:
      layout->node_cnt = 0;
      layout->task_cnt = 0;
      break;
    default:
      break;
  }
}

/* Whether a job is the step's, or beside it in its heterogeneous job: root may ask about no other. */
static bool is_beside(const struct step* step, uint32_t job_id) {
  return job_id == job_of(step) ||
         (job_id >= step->het_job.leader && job_id - step->het_job.leader < step->het_job.components);
}

slurm_step_layout_t* slurm_job_step_layout_get(slurm_step_id_t* id) {
  const int paused = fault_pause();
  slurm_step_layout_t* layout = NULL;
  not_in_task("slurm_job_step_layout_get");
  ++journal->layout_requests;
  errno = ESLURM_INVALID_JOB_ID;
  if (fake_step == NULL) {
    VIOLATION("slurm_job_step_layout_get without a step");
  } else if (!is_beside(fake_step, id->job_id) || id->step_id != fake_step->step_id || id->step_het_comp != NO_VAL) {
    CHECK(is_beside(fake_step, id->job_id), "violation: root asks for the layout of %u.%u, another job's", id->job_id,
          id->step_id);
    /* A node may look for components inside the job; this job has no others. */
    CHECK(spank_context() == S_CTX_REMOTE, "violation: srun asks for the layout of %u.%u+%u", id->job_id, id->step_id,
          id->step_het_comp);
  } else if (!fault_is_met(FAULT_LAYOUT) && fake_step->layout_defect != NO_LAYOUT) {
    layout = new_layout(fake_step);
    spoil(layout, fake_step->layout_defect);
    ++journal->layouts;
    errno = 0;
  }
  fault_resume(paused);
  return layout;
}

int slurm_step_layout_destroy(slurm_step_layout_t* layout) {
  const int paused = fault_pause();
  CHECK(layout != NULL, "slurm_step_layout_destroy(NULL)");
  free_task_ids(layout);
  free(layout->tasks);
  free(layout->node_list);
  free(layout);
  --journal->layouts;
  fault_resume(paused);
  return SLURM_SUCCESS;
}

/* ---- jobs ---- */

static int load_job(job_info_msg_t** out, uint32_t job_id) {
  const int paused = fault_pause();
  not_in_task("slurm_load_job");
  ++journal->job_requests;
  *out = NULL;
  errno = ESLURM_INVALID_JOB_ID;
  /* srun's listener may still ask, with its user's rights, when srun itself is over: then slurmctld does not answer. */
  const struct step* const step = fake_step;
  CHECK(step == NULL || is_beside(step, job_id), "violation: root asks for job %u, another's", job_id);
  if (step != NULL && is_beside(step, job_id)) {
    /* Asked for the first component, slurmctld answers with all of them. */
    const bool is_leader = job_id == step->het_job.leader;
    job_info_msg_t* const message = calloc(1, sizeof *message);
    if (message == NULL) abort();
    message->record_count = is_leader ? step->het_job.components : 1;
    message->job_array = calloc(message->record_count, sizeof *message->job_array);
    if (message->job_array == NULL) abort();
    for (uint32_t i = 0; i < message->record_count; ++i) {
      slurm_job_info_t* const job = &message->job_array[i];
      job->job_id = job_id + i;
      job->user_id = 1000;
      job->job_state = JOB_RUNNING;
      job->het_job_id = step->het_job.leader;
      job->het_job_offset = job->het_job_id != 0 ? job->job_id - job->het_job_id : 0;
    }
    *out = message;
    ++journal->layouts;
    errno = 0;
  }
  fault_resume(paused);
  return *out != NULL ? SLURM_SUCCESS : SLURM_ERROR;
}

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(26, 5, 0)
int slurm_load_job(job_info_msg_t** out, slurm_step_id_t id, uint16_t flags) {
  (void)flags;
  return load_job(out, id.job_id);
}
#else
int slurm_load_job(job_info_msg_t** out, uint32_t job_id, uint16_t flags) {
  (void)flags;
  return load_job(out, job_id);
}
#endif

void slurm_free_job_info_msg(job_info_msg_t* message) {
  const int paused = fault_pause();
  free(message->job_array);
  free(message);
  --journal->layouts;
  fault_resume(paused);
}

/* ---- features ---- */

int slurm_load_node(time_t since, node_info_msg_t** out, uint16_t flags) {
  (void)since;
  (void)flags;
  const int paused = fault_pause();
  not_in_task("slurm_load_node");
  CHECK(fake_step != NULL, "violation: slurm_load_node without a step");
  *out = NULL;
  errno = SLURM_COMMUNICATIONS_CONNECTION_ERROR;
  if (fake_step != NULL && fake_step->features != NULL) {
    const char* rest = fake_step->features;
    node_info_msg_t* const message = calloc(1, sizeof *message);
    node_info_t* const nodes = calloc(MOST_NODES, sizeof *nodes);
    if (message == NULL || nodes == NULL) abort();
    for (; rest != NULL && message->record_count < MOST_NODES; ++message->record_count) {
      char name[16];
      snprintf(name, sizeof name, "n%u", message->record_count + 1);
      const char* const end = strchrnul(rest, '/');
      nodes[message->record_count].name = strdup(name);
      nodes[message->record_count].features_act = strndup(rest, (size_t)(end - rest));
      rest = *end != '\0' ? end + 1 : NULL;
    }
    message->node_array = nodes;
    *out = message;
    ++journal->layouts;
    errno = 0;
  }
  fault_resume(paused);
  return *out != NULL ? SLURM_SUCCESS : SLURM_ERROR;
}

void slurm_free_node_info_msg(node_info_msg_t* message) {
  const int paused = fault_pause();
  for (uint32_t node = 0; node < message->record_count; ++node) {
    free(message->node_array[node].name);
    free(message->node_array[node].features_act);
  }
  free(message->node_array);
  free(message);
  --journal->layouts;
  fault_resume(paused);
}

/* ---- names, kills ---- */

static void write_address(struct sockaddr_in* out, const char* text) {
  memset(out, 0, sizeof *out);
  out->sin_family = AF_INET;
  if (inet_pton(AF_INET, text, &out->sin_addr) != 1) abort();
}

int slurm_conf_get_addr(const char* node, slurm_addr_t* address, uint16_t flags);

int slurm_conf_get_addr(const char* node, slurm_addr_t* address, uint16_t flags) {
  (void)flags;
  const int paused = fault_pause();
  not_in_task("slurm_conf_get_addr");
  int status = SLURM_ERROR;
  if (!fault_is_met(FAULT_ADDRESS)) {
    char text[INET_ADDRSTRLEN + 16];
    node_address(text, sizeof text, node);
    write_address((struct sockaddr_in*)address, text);
    status = SLURM_SUCCESS;
  }
  fault_resume(paused);
  return status;
}

/* Before libc's for the plugin: the test asks no real name service. */
int getaddrinfo(const char* node, const char* service, const struct addrinfo* hints, struct addrinfo** found) {
  (void)service;
  (void)hints;
  const int paused = fault_pause();
  not_in_task("getaddrinfo");
  int status = EAI_NONAME;
  char* const known =
      text_format("%s", fake_step != NULL && fake_step->names_of_nodes != NULL ? fake_step->names_of_nodes : "");
  for (char *rest = NULL, *pair = strtok_r(known, " ", &rest); pair != NULL; pair = strtok_r(NULL, " ", &rest)) {
    char* const address = strchr(pair, '=');
    *address = '\0';
    if (strcmp(pair, node) != 0) continue;
    struct addrinfo* const answer = calloc(1, sizeof *answer + sizeof(struct sockaddr_in));
    if (answer == NULL) abort();
    answer->ai_family = AF_INET;
    answer->ai_socktype = SOCK_STREAM;
    answer->ai_addrlen = sizeof(struct sockaddr_in);
    answer->ai_addr = (struct sockaddr*)(answer + 1);
    write_address((struct sockaddr_in*)answer->ai_addr, address + 1);
    *found = answer;
    status = 0;
    break;
  }
  free(known);
  fault_resume(paused);
  return status;
}

void freeaddrinfo(struct addrinfo* answer) { free(answer); }

uint16_t* slurm_get_srun_port_range(void);

uint16_t* slurm_get_srun_port_range(void) {
  CHECK(spank_context() == S_CTX_LOCAL, "violation: SrunPortRange is asked for outside srun");
  return fake_srun_ports[0] != 0 ? fake_srun_ports : NULL;
}

static int end_step(uint32_t job_id, uint32_t step_id, uint16_t signal) {
  const int paused = fault_pause();
  not_in_task("slurm_kill_job_step");
  CHECK(spank_context() == S_CTX_REMOTE, "violation: slurm_kill_job_step outside slurmstepd");
  CHECK(signal == 9 || signal == 15, "the step is sent signal %u", signal);
  if (journal->kills < JOURNAL_KILLS) {
    journal->killed_job[journal->kills] = job_id;
    journal->killed_step[journal->kills] = step_id;
  }
  ++journal->kills;
  fault_resume(paused);
  return SLURM_SUCCESS;
}

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 5, 0)
int slurm_kill_job_step(slurm_step_id_t* id, uint16_t signal, uint16_t flags) {
  (void)flags;
  return end_step(id->job_id, id->step_id, signal);
}
#elif SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 11, 0)
int slurm_kill_job_step(uint32_t job_id, uint32_t step_id, uint16_t signal, uint16_t flags) {
  (void)flags;
  return end_step(job_id, step_id, signal);
}
#else
int slurm_kill_job_step(uint32_t job_id, uint32_t step_id, uint16_t signal) {
  return end_step(job_id, step_id, signal);
}
#endif
