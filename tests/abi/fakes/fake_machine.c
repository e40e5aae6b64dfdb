/* This executable's open(), bind(), gethostname() and the like come before libc's for the plugin. */
#undef _FORTIFY_SOURCE /* its inline open() could not be replaced */
#undef _GNU_SOURCE     /* its bind() takes a union that is not ISO C; ppoll() is declared below */
#define _DEFAULT_SOURCE

#include "fake_machine.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "fault.h"
#include "journal.h"
#include "seal.h"
#include "step.h"
#include "text.h"

int ppoll(struct pollfd* files, nfds_t count, const struct timespec* timeout, const sigset_t* mask);

enum { LONGEST_PATH = 4096 };

/* The far end of the listener's socket, away from the descriptors that the checks compare. */
enum { FAR_END = 310 };
static int listener = -1;
static uint16_t port_of_listener;

uint16_t machine_busy_port;
const char* machine_channel;

static char folder_of_run[] = "/tmp/abi_host.XXXXXX";
static const char leases[] = "aml-dist/ports";
static char host_name[64] = "login";

/* Files that every machine has: what this one says instead. */
static const struct {
  const char* path;
  const char* name;
} own_files[] = {{"/etc/hosts", "hosts"},
                 {"/proc/sys/net/ipv4/ip_local_port_range", "port_range"},
                 {"/proc/sys/net/ipv4/ip_local_reserved_ports", "reserved_ports"},
                 {"/proc/self/cmdline", "cmdline"}};
enum { OWN_FILES = sizeof own_files / sizeof *own_files };

/* Where a path really is. */
static const char* place_of(const char* path, char* buffer) {
  static const char run[] = "/run/";
  const char* name = strncmp(path, run, sizeof run - 1) == 0 ? path + sizeof run - 1 : NULL;
  for (size_t i = 0; i < OWN_FILES; ++i) {
    if (strcmp(path, own_files[i].path) == 0) name = own_files[i].name;
  }
  if (name == NULL) return path;
  snprintf(buffer, LONGEST_PATH, "%s/%s", folder_of_run, name);
  return buffer;
}

bool machine_recorders_hang;

/* The folders in which users keep their flight recorders, and what is below an open folder. */
static bool is_recorder(int folder, const char* path) {
  static const char* const roots[] = {"/dev/shm/aml-dist-", "/tmp/aml-dist-"};
  bool found = folder != AT_FDCWD && *path != '/';
  for (size_t i = 0; i < sizeof roots / sizeof *roots; ++i) {
    found = found || strncmp(path, roots[i], strlen(roots[i])) == 0;
  }
  return found;
}

/* Counts by the identity with which the kernel checks access to files. */
static void note_recorder(void) {
  enum { LONGEST_HANG_SECONDS = 120, NOBODY = -1 };
  if (setfsuid((uid_t)NOBODY) == 0) {
    ++journal->recorder_opens_by_root;
    return;
  }
  ++journal->recorder_opens_by_user;
  if (!machine_recorders_hang) return;
  alarm(LONGEST_HANG_SECONDS);
  for (;;) pause();
}

int openat(int folder, const char* path, int flags, ...) {
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0) {
    va_list arguments;
    va_start(arguments, flags);
    mode = (mode_t)va_arg(arguments, int);
    va_end(arguments);
  }
  if (fault_in_plugin() && is_recorder(folder, path)) note_recorder();
  return (int)syscall(SYS_openat, folder, path, flags, mode);
}

int open(const char* path, int flags, ...) {
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0) {
    va_list arguments;
    va_start(arguments, flags);
    mode = (mode_t)va_arg(arguments, int);
    va_end(arguments);
  }
  char buffer[LONGEST_PATH];
  return openat(AT_FDCWD, place_of(path, buffer), flags, mode);
}

int mkdir(const char* path, mode_t mode) {
  char buffer[LONGEST_PATH];
  return mkdirat(AT_FDCWD, place_of(path, buffer), mode);
}

int stat(const char* restrict path, struct stat* restrict status) {
  char buffer[LONGEST_PATH];
  return fstatat(AT_FDCWD, place_of(path, buffer), status, 0);
}

int unlink(const char* path) {
  char buffer[LONGEST_PATH];
  return unlinkat(AT_FDCWD, place_of(path, buffer), 0);
}

/* The plugin waits for its sentence to be heard before it ends a step; here srun does not listen. */
int nanosleep(const struct timespec* wanted, struct timespec* left) {
  (void)wanted;
  (void)left;
  return 0;
}

/* A datagram socket that is bound is the listener's. It becomes one end of a pair whose other end is the network. */
static int bind_listener(int descriptor, uint16_t port) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) != 0) abort();
  if (dup2(ends[0], descriptor) < 0 || fcntl(descriptor, F_SETFD, FD_CLOEXEC) != 0) abort();
  if (dup2(ends[1], FAR_END) < 0 || fcntl(FAR_END, F_SETFD, FD_CLOEXEC) != 0) abort();
  close(ends[0]);
  close(ends[1]);
  listener = descriptor;
  port_of_listener = port != 0 ? port : PORT_OF_LISTENER;
  return 0;
}

static bool is_datagram_socket(int descriptor) {
  int type = 0;
  socklen_t length = sizeof type;
  return getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_DGRAM;
}

int bind(int descriptor, const struct sockaddr* address, socklen_t length) {
  (void)length;
  struct sockaddr_in in;
  memcpy(&in, address, sizeof in); /* the port of an IPv6 address is in the same place */
  const bool known = address->sa_family == AF_INET || address->sa_family == AF_INET6;
  CHECK(known, "violation: bind() to a family that this host does not know");
  if (known && machine_busy_port != 0 && ntohs(in.sin_port) == machine_busy_port) {
    errno = EADDRINUSE;
    return -1;
  }
  return known && is_datagram_socket(descriptor) ? bind_listener(descriptor, ntohs(in.sin_port)) : 0;
}

static void note_datagram(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  journal_say(TO_SRUN, format, arguments);
  va_end(arguments);
}

/* srun's answer that has not been read. */
static char answer[128];

enum { HEAD = sizeof "aml-dist;1;0123456789abcdef;" - 1 };

/* Whether a message is of this kind, such as "ended;". */
static bool is_about(const char* text, const char* kind) {
  return strlen(text) > HEAD && strncmp(text + HEAD, kind, strlen(kind)) == 0;
}

bool machine_srun_is_silent;

/* srun answers two things at once: that it has heard of a task's end, and that all nodes have reported. */
static void answer_as_srun(const char* text, const char* datagram) {
  const bool reports = is_about(text, "here;");
  if (machine_srun_is_silent && !reports) return;
  if (!reports && !is_about(text, "ended;") && !is_about(text, "failed;") && !is_about(text, "refused;")) return;
  char* const words = text_format("%.*s%s", (int)HEAD, text, reports ? "start" : "heard");
  char* const stamp = text_format("%.33s", datagram + strlen("aml-dist;2;"));
  char* const sealed = seal(machine_channel, 'a', stamp, words);
  snprintf(answer, sizeof answer, "%s", sealed);
  free(words);
  free(stamp);
  free(sealed);
}

/* When a process that opens recorders hangs, until it does. */
static int wait_for_hang(void) {
  static size_t hung;
  for (++hung; journal->recorder_opens_by_user < hung;) sched_yield();
  return 0;
}

/* slurmstepd waits for srun's datagrams, and time passes at once; it waits in earnest for its own child, and so does
 * srun's thread for what it waits for. */
int poll(struct pollfd* files, nfds_t count, int timeout_ms) {
  struct pollfd* const volatile given = files; /* glibc says that poll() reads nothing there, and GCC believes it */
  const bool waits_for_srun = count == 1 && is_datagram_socket(given->fd);
  if (count == 1 && !waits_for_srun && machine_recorders_hang) return wait_for_hang();
  if (waits_for_srun && machine_srun_is_silent) { /* it is told again and again, so time must pass */
    const struct timespec pause = {0, (timeout_ms > 0 ? timeout_ms : 0) % 1000 * 1000000L};
    ppoll(NULL, 0, &pause, NULL);
  }
  if (waits_for_srun) {
    files->revents = *answer != '\0' ? POLLIN : 0;
    return *answer != '\0' ? 1 : 0;
  }
  const struct timespec timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};
  return ppoll(files, count, timeout_ms < 0 ? NULL : &timeout, NULL);
}

ssize_t recvfrom(int descriptor, void* buffer, size_t size, int flags, struct sockaddr* from, socklen_t* from_length) {
  const bool is_node = descriptor != listener && is_datagram_socket(descriptor);
  if (*answer == '\0' || !is_node) return syscall(SYS_recvfrom, descriptor, buffer, size, flags, from, from_length);
  if (from_length != NULL) *from_length = 0; /* who answers is known by the code alone */
  const size_t length = strlen(answer) < size ? strlen(answer) : size;
  memcpy(buffer, answer, length);
  *answer = '\0';
  return (ssize_t)length;
}

/* A node of a heterogeneous step asks for its record before it starts its tasks. */
static bool is_question(const char* text) { return is_about(text, "which-record"); }

/* Nothing leaves this machine. slurmstepd's nodes have two things to tell, each in its moment; and one to ask. That a
 * node is there its tasks tell where it does not know its ranks before. */
ssize_t sendto(int descriptor, const void* data, size_t size, int flags, const struct sockaddr* address,
               socklen_t length) {
  if (descriptor == listener) return (ssize_t)size; /* srun's answer to a node that is not there */
  const int paused = fault_pause();
  char* const said = unseal(machine_channel, 'q', data, size);
  CHECK(said != NULL, "violation: a datagram without its code is sent: %.*s", (int)size, (const char*)data);
  if (said == NULL) return fault_resume(paused), -1;
  const bool asks = is_question(said);
  const bool reports = is_about(said, "here;");
  const char* const moment = asks || reports ? "slurm_spank_init_post_opt, remote" : "slurm_spank_task_exit, remote";
  const bool in_task = reports && strcmp(journal->callback, "slurm_spank_task_init, remote") == 0;
  CHECK(in_task || strcmp(journal->callback, moment) == 0, "violation: a datagram is sent in %s", journal->callback);
  CHECK(is_datagram_socket(descriptor), "violation: sendto() on another socket than a datagram's");
  CHECK((fcntl(descriptor, F_GETFL) & O_NONBLOCK) != 0 || (flags & MSG_DONTWAIT) != 0, "slurmstepd may have to wait");
  struct sockaddr_in in = {0};
  CHECK(length == sizeof in && address->sa_family == AF_INET, "violation: sendto() to an unknown family");
  if (length == sizeof in) memcpy(&in, address, sizeof in);
  char text[INET_ADDRSTRLEN];
  if (inet_ntop(AF_INET, &in.sin_addr, text, sizeof text) == NULL) abort();
  if (asks) ++journal->questions;
  else if (!reports && !machine_srun_is_silent) note_datagram("%s:%u %s", text, (unsigned)ntohs(in.sin_port), said);
  answer_as_srun(said, data);
  free(said);
  fault_resume(paused);
  return (ssize_t)size;
}

/* An srun whose nodes have not reported changes its exit status so; here it is the whole host that exits. */
int on_exit(void (*function)(int, void*), void* argument) {
  (void)function;
  (void)argument;
  return 0;
}

int listen(int descriptor, int backlog) {
  (void)descriptor;
  (void)backlog;
  return 0;
}

int gethostname(char* name, size_t size) {
  snprintf(name, size, "%s", host_name);
  return 0;
}

static struct sockaddr_in own_address(void) {
  char text[INET_ADDRSTRLEN + 16];
  struct sockaddr_in address = {.sin_family = AF_INET};
  node_address(text, sizeof text, host_name);
  if (inet_pton(AF_INET, text, &address.sin_addr) != 1) abort();
  return address;
}

/* Every peer is reached over the one interface that is not loopback. */
int connect(int descriptor, const struct sockaddr* address, socklen_t length) {
  (void)descriptor;
  (void)address;
  (void)length;
  return 0;
}

int getsockname(int descriptor, struct sockaddr* restrict address, socklen_t* restrict length) {
  struct sockaddr_in own = own_address();
  if (descriptor == listener) own.sin_port = htons(port_of_listener);
  memcpy(address, &own, *length < sizeof own ? *length : sizeof own);
  *length = sizeof own;
  return 0;
}

int getifaddrs(struct ifaddrs** all) {
  static struct sockaddr_in addresses[2];
  static struct ifaddrs interfaces[2];
  addresses[0] = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  addresses[1] = own_address();
  interfaces[0] = (struct ifaddrs){.ifa_next = &interfaces[1], .ifa_name = "lo"};
  interfaces[1] = (struct ifaddrs){.ifa_name = "ib0"};
  for (size_t i = 0; i < 2; ++i) interfaces[i].ifa_addr = (struct sockaddr*)&addresses[i];
  *all = interfaces;
  return 0;
}

void freeifaddrs(struct ifaddrs* all) { (void)all; }

/* ---- for scenarios ---- */

void machine_is(const char* name) { snprintf(host_name, sizeof host_name, "%s", name); }

void machine_says(const char* path, const char* content) {
  const int paused = fault_pause();
  const int file = open(path, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600);
  const size_t length = strlen(content);
  if (file < 0 || write(file, content, length) != (ssize_t)length) abort();
  close(file);
  fault_resume(paused);
}

void machine_open(void) {
  if (mkdtemp(folder_of_run) == NULL) abort();
  machine_says("/etc/hosts", USUAL_HOSTS);
  machine_says("/proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n");
  machine_says("/proc/sys/net/ipv4/ip_local_reserved_ports", "\n");
  machine_says("/proc/self/cmdline", "srun");
}

void machine_deliver(const char* datagram) {
  CHECK(listener >= 0, "no listener");
  if (listener >= 0 && write(FAR_END, datagram, strlen(datagram)) < 0) CHECK(false, "the listener takes no datagram");
}

void machine_cut_off(void) {
  if (listener >= 0) close(FAR_END);
  listener = -1;
}

static DIR* open_leases(void) {
  char* const path = text_format("%s/%s", folder_of_run, leases);
  DIR* const folder = opendir(path);
  free(path);
  return folder;
}

size_t machine_leases(void) {
  size_t files = 0;
  DIR* const folder = open_leases();
  for (const struct dirent* entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
    if (entry->d_name[0] != '.') ++files;
  }
  if (folder != NULL) closedir(folder);
  return files;
}

void machine_close(void) {
  DIR* const folder = open_leases();
  for (const struct dirent* entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
    if (entry->d_name[0] != '.') unlinkat(dirfd(folder), entry->d_name, 0);
  }
  if (folder != NULL) closedir(folder);
  static const char* const folders[] = {"/run/aml-dist/ports", "/run/aml-dist"};
  char buffer[LONGEST_PATH];
  for (size_t i = 0; i < sizeof folders / sizeof *folders; ++i) rmdir(place_of(folders[i], buffer));
  for (size_t i = 0; i < OWN_FILES; ++i) unlink(own_files[i].path);
  unlink("/run/plugstack.conf");
  rmdir(folder_of_run);
}
