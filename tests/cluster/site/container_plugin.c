/* A SPANK plugin that does to a task what pyxis does: in task_init it overwrites the environment with the container's,
 * and moves the task into the container's user and mount namespaces, where /etc and /run are not the node's.
 * Argument of plugstack.conf: the folder of the container, with `environment` (NAME=VALUE lines) and `etc`. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <unistd.h>

SPANK_PLUGIN(container, 1)

static int fail(const char* what) {
  slurm_spank_log("container: %s: %m", what);
  return -1;
}

static int write_file(const char* path, const char* text) {
  const int file = open(path, O_WRONLY | O_CLOEXEC);
  if (file < 0) return -1;
  const ssize_t length = (ssize_t)strlen(text);
  const ssize_t written = write(file, text, (size_t)length);
  close(file);
  return written == length ? 0 : -1;
}

static int import_environment(spank_t spank, const char* folder) {
  char path[4096];
  char line[4096];
  snprintf(path, sizeof path, "%s/environment", folder);
  FILE* const file = fopen(path, "re");
  if (file == NULL) return fail(path);
  while (fgets(line, sizeof line, file) != NULL) {
    line[strcspn(line, "\n")] = '\0';
    char* const value = strchr(line, '=');
    if (value == NULL) continue;
    *value = '\0';
    spank_setenv(spank, line, value + 1, 1);
  }
  fclose(file);
  return 0;
}

static int enter_namespaces(const char* folder) {
  char etc[4096];
  char identity[64];
  snprintf(etc, sizeof etc, "%s/etc", folder);
  const unsigned user = geteuid();
  const unsigned group = getegid();
  prctl(PR_SET_DUMPABLE, 1); /* else a task that was root cannot write its own maps */
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return fail("unshare");
  snprintf(identity, sizeof identity, "%u %u 1", user, user);
  if (write_file("/proc/self/uid_map", identity) != 0) return fail("uid_map");
  write_file("/proc/self/setgroups", "deny");
  snprintf(identity, sizeof identity, "%u %u 1", group, group);
  if (write_file("/proc/self/gid_map", identity) != 0) return fail("gid_map");
  if (mount(etc, "/etc", NULL, MS_BIND | MS_REC, NULL) != 0) return fail("mount /etc");
  if (mount("run", "/run", "tmpfs", 0, NULL) != 0) return fail("mount /run");
  return 0;
}

int slurm_spank_task_init(spank_t spank, int argc, char** argv) {
  if (argc != 1) return fail("give one folder");
  if (import_environment(spank, argv[0]) != 0) return -1;
  return enter_namespaces(argv[0]);
}
