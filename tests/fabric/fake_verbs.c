/* A libibverbs that exists only in memory: AMLDIST_LIBIBVERBS=.../libfake_verbs.so makes aml-dist open it.
 *
 * FAKE_VERBS_DEVICES=mlx5_0,mlx5_1   what ibv_get_device_list() lists
 * FAKE_VERBS_FAIL=CALL:ERRNO[,...]   a call that fails: open, alloc_pd, reg_mr, create_qp, rtr, rts, post
 * FAKE_VERBS_WC=STATUS               the status of every completion
 * FAKE_VERBS_LOSE=1                  a write completes and its bytes do not arrive
 * FAKE_VERBS_LOSE_FAR=1              the same, where the bytes would go to another process
 * FAKE_VERBS_HANG=CALL               a call that never returns
 * FAKE_VERBS_CRASH=CALL              a call in which the library crashes
 * FAKE_VERBS_SHARED=DIR              registered memory is a file there: writes reach other processes and nodes
 * FAKE_VERBS_SLOW=MICROSECONDS       each write of over 1 MiB takes at least so long
 * FAKE_VERBS_DMABUF=1                ibv_reg_dmabuf_mr() knows what it is asked
 *
 * Without DIR a write goes to an address of this process: a loopback works as on a device. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#undef ibv_reg_mr
#undef ibv_query_port

enum { most_devices = 64 };

struct fake_qp {
  struct ibv_qp qp;
  int pending;
};

static struct ibv_device devices[most_devices];
static struct fake_qp* last_posted;
static int last_was_large;

/* Whether `call` is named in NAME=CALL[:NUMBER],...; its number in `number`. */
static int named(const char* variable, const char* call, int* number) {
  const char* each = getenv(variable);
  const size_t length = strlen(call);
  while (each != NULL && *each != '\0') {
    if (strncmp(each, call, length) == 0 && strchr(":,", each[length]) != NULL) {
      if (number != NULL && each[length] == ':') *number = atoi(each + length + 1);
      return 1;
    }
    each = strchr(each, ',');
    if (each != NULL) ++each;
  }
  return 0;
}

/* 0, or the errno with which the call is to fail; hangs or crashes if it is to. */
static int fault(const char* call) {
  int number = EIO;
  while (named("FAKE_VERBS_HANG", call, NULL)) pause();
  if (named("FAKE_VERBS_CRASH", call, NULL)) raise(SIGSEGV);
  if (!named("FAKE_VERBS_FAIL", call, &number)) return 0;
  errno = number;
  return number;
}

struct ibv_device** ibv_get_device_list(int* count) {
  const char* each = getenv("FAKE_VERBS_DEVICES");
  struct ibv_device** list = calloc(most_devices + 1, sizeof *list);
  *count = 0;
  if (fault("list") != 0) return NULL;
  while (each != NULL && *each != '\0' && *count < most_devices) {
    const size_t length = strcspn(each, ",");
    snprintf(devices[*count].name, sizeof devices[*count].name, "%.*s", (int)length, each);
    list[*count] = &devices[*count];
    ++*count;
    each += length;
    if (*each == ',') ++each;
  }
  return list;
}
void ibv_free_device_list(struct ibv_device** list) { free(list); }
const char* ibv_get_device_name(struct ibv_device* device) { return device->name; }

/* The file behind a key: registered memory, with its address at the end. */
static int open_shared(uint32_t key, int flags) {
  char path[4096];
  const char* const folder = getenv("FAKE_VERBS_SHARED");
  snprintf(path, sizeof path, "%s/%08x", folder != NULL ? folder : "/nonexistent", key);
  return open(path, flags | O_CLOEXEC, 0666);
}

/* Whether the memory behind a key is this process's. */
static uint32_t own_keys[most_devices];
static int is_own(uint32_t key) {
  for (int i = 0; i < most_devices; ++i) {
    if (own_keys[i] == key) return 1;
  }
  return 0;
}

/* Puts a file in the place of the memory. */
static int share(struct ibv_mr* mr) {
  static int next;
  const uint64_t address = (uint64_t)(uintptr_t)mr->addr;
  if (getrandom(&mr->rkey, sizeof mr->rkey, 0) != (ssize_t)sizeof mr->rkey) return -1;
  own_keys[next++ % most_devices] = mr->rkey;
  const int file = open_shared(mr->rkey, O_RDWR | O_CREAT | O_EXCL);
  if (file < 0) return -1;
  fchmod(file, 0666);
  const int done = pwrite(file, &address, sizeof address, (off_t)mr->length) == (ssize_t)sizeof address &&
                   mmap(mr->addr, mr->length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED;
  close(file);
  return done ? 0 : -1;
}

static int write_shared(const struct ibv_send_wr* wr) {
  uint64_t address = 0;
  if (getenv("FAKE_VERBS_LOSE_FAR") != NULL && !is_own(wr->wr.rdma.rkey)) return 0;
  const int file = open_shared(wr->wr.rdma.rkey, O_RDWR);
  if (file < 0) return ENXIO;
  const off_t end = lseek(file, 0, SEEK_END);
  int status = EIO;
  if (pread(file, &address, sizeof address, end - (off_t)sizeof address) == (ssize_t)sizeof address &&
      pwrite(file, (const void*)(uintptr_t)wr->sg_list->addr, wr->sg_list->length,
             (off_t)(wr->wr.rdma.remote_addr - address)) == (ssize_t)wr->sg_list->length) {
    status = 0;
  }
  close(file);
  return status;
}

static int post_send(struct ibv_qp* qp, struct ibv_send_wr* wr, struct ibv_send_wr** bad) {
  (void)bad;
  const int error = fault("post");
  if (error != 0) return error;
  if (getenv("FAKE_VERBS_LOSE") == NULL && getenv("FAKE_VERBS_SHARED") != NULL) {
    const int written = write_shared(wr);
    if (written != 0) return written;
  } else if (getenv("FAKE_VERBS_LOSE") == NULL) {
    memcpy((void*)(uintptr_t)wr->wr.rdma.remote_addr, (const void*)(uintptr_t)wr->sg_list->addr, wr->sg_list->length);
  }
  last_posted = (struct fake_qp*)qp;
  last_was_large = wr->sg_list->length > 1 << 20;
  ++last_posted->pending;
  return 0;
}

static int poll_cq(struct ibv_cq* cq, int most, struct ibv_wc* wc) {
  (void)cq;
  (void)most;
  if (last_posted == NULL || !last_posted->pending) return 0;
  const char* const slow = getenv("FAKE_VERBS_SLOW");
  if (slow != NULL && last_was_large) usleep((useconds_t)atoi(slow));
  const char* status = getenv("FAKE_VERBS_WC");
  --last_posted->pending;
  memset(wc, 0, sizeof *wc);
  wc->status = status != NULL ? (enum ibv_wc_status)atoi(status) : IBV_WC_SUCCESS;
  return 1;
}

struct ibv_context* ibv_open_device(struct ibv_device* device) {
  if (fault("open") != 0) return NULL;
  struct ibv_context* context = calloc(1, sizeof *context);
  context->device = device;
  context->ops.post_send = post_send;
  context->ops.poll_cq = poll_cq;
  return context;
}
int ibv_close_device(struct ibv_context* context) {
  free(context);
  return 0;
}
int ibv_query_port(struct ibv_context* context, uint8_t port, struct _compat_ibv_port_attr* attributes) {
  (void)context;
  (void)port;
  struct ibv_port_attr* own = (struct ibv_port_attr*)attributes;
  own->lid = 1;
  own->active_mtu = IBV_MTU_1024;
  return fault("query_port");
}
int ibv_query_gid(struct ibv_context* context, uint8_t port, int index, union ibv_gid* gid) {
  (void)context;
  (void)port;
  (void)index;
  memset(gid, 1, sizeof *gid);
  return fault("query_gid") != 0 ? -1 : 0;
}
struct ibv_pd* ibv_alloc_pd(struct ibv_context* context) {
  if (fault("alloc_pd") != 0) return NULL;
  struct ibv_pd* pd = calloc(1, sizeof *pd);
  pd->context = context;
  return pd;
}
int ibv_dealloc_pd(struct ibv_pd* pd) {
  free(pd);
  return 0;
}
struct ibv_mr* ibv_reg_mr(struct ibv_pd* pd, void* address, size_t length, int access) {
  (void)access;
  if (fault("reg_mr") != 0) return NULL;
  struct ibv_mr* mr = calloc(1, sizeof *mr);
  mr->pd = pd;
  mr->addr = address;
  mr->length = length;
  if (getenv("FAKE_VERBS_SHARED") != NULL && share(mr) != 0) {
    free(mr);
    return NULL;
  }
  return mr;
}
struct ibv_mr* ibv_reg_dmabuf_mr(struct ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access) {
  (void)pd;
  (void)offset;
  (void)length;
  (void)iova;
  (void)fd;
  (void)access;
  errno = getenv("FAKE_VERBS_DMABUF") != NULL ? EBADF : EOPNOTSUPP;
  return NULL;
}
int ibv_dereg_mr(struct ibv_mr* mr) {
  char path[4096];
  const char* const folder = getenv("FAKE_VERBS_SHARED");
  if (folder != NULL) {
    snprintf(path, sizeof path, "%s/%08x", folder, mr->rkey);
    unlink(path);
  }
  free(mr);
  return 0;
}
struct ibv_cq* ibv_create_cq(struct ibv_context* context, int entries, void* data, struct ibv_comp_channel* channel,
                             int vector) {
  (void)entries;
  (void)data;
  (void)channel;
  (void)vector;
  struct ibv_cq* cq = calloc(1, sizeof *cq);
  cq->context = context;
  return cq;
}
int ibv_destroy_cq(struct ibv_cq* cq) {
  free(cq);
  return 0;
}
struct ibv_qp* ibv_create_qp(struct ibv_pd* pd, struct ibv_qp_init_attr* wanted) {
  (void)wanted;
  if (fault("create_qp") != 0) return NULL;
  struct fake_qp* qp = calloc(1, sizeof *qp);
  qp->qp.context = pd->context;
  qp->qp.pd = pd;
  qp->qp.qp_num = 17;
  return &qp->qp;
}
int ibv_modify_qp(struct ibv_qp* qp, struct ibv_qp_attr* wanted, int mask) {
  (void)qp;
  (void)mask;
  if (wanted->qp_state == IBV_QPS_RTR) return fault("rtr");
  return wanted->qp_state == IBV_QPS_RTS ? fault("rts") : fault("init");
}
int ibv_destroy_qp(struct ibv_qp* qp) {
  free(qp);
  return 0;
}
