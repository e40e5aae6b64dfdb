/* A libcuda and a libnccl in memory, for tests on machines without GPUs: AMLDIST_CUDA and AMLDIST_NCCL open it. The
 * memory of a "GPU" is this process's. What it says comes from the environment:
 *
 *   FAKE_CUDA_GPUS=8       how many GPUs there are
 *   FAKE_CUDA_INIT=100     what cuInit returns (100: no device); FAKE_CUDA_MEMORY=2: what an allocation returns
 *   FAKE_CUDA_TORN=1       a byte that the memory does not hold as it was written
 *   FAKE_NCCL_FAIL=3       what ncclCommInitAll returns; FAKE_NCCL_HANG=1: it does not return
 *   FAKE_NCCL_SLOW=50000   microseconds that an allreduce takes */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int number(const char* name, int otherwise) {
  const char* text = getenv(name);
  return text != NULL && *text != 0 ? atoi(text) : otherwise;
}

static int gpus(void) { return number("FAKE_CUDA_GPUS", 8); }
static void* current;
static char contexts[64];

int cuInit(unsigned flags) {
  (void)flags;
  return number("FAKE_CUDA_INIT", 0);
}
int cuDeviceGetCount(int* count) {
  *count = gpus();
  return 0;
}
int cuDeviceGetPCIBusId(char* text, int size, int device) {
  snprintf(text, (size_t)size, "0000:%02X:00.0", device + 1);
  return device < gpus() ? 0 : 101;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = &contexts[device];
  return 0;
}
int cuCtxSetCurrent(void* context) {
  current = context;
  return 0;
}
int cuMemAlloc_v2(unsigned long long* memory, size_t bytes) {
  if (current == NULL) return 201; /* invalid context */
  if (number("FAKE_CUDA_MEMORY", 0) != 0) return number("FAKE_CUDA_MEMORY", 0);
  void* pages = NULL;
  if (posix_memalign(&pages, 4096, bytes) != 0) return 2;
  *memory = (unsigned long long)pages;
  return 0;
}
int cuMemFree_v2(unsigned long long memory) {
  free((void*)memory);
  return 0;
}
int cuMemcpyHtoD_v2(void* gpu, const void* host, size_t bytes) {
  memcpy(gpu, host, bytes);
  return current == NULL ? 201 : 0;
}
int cuMemcpyDtoH_v2(void* host, const void* gpu, size_t bytes) {
  memcpy(host, gpu, bytes);
  if (number("FAKE_CUDA_TORN", 0) != 0) ((char*)host)[4096] ^= 1;
  return current == NULL ? 201 : 0;
}
int cuStreamCreate(void** stream, unsigned flags) {
  (void)flags;
  *stream = current;
  return 0;
}
int cuStreamSynchronize(void* stream) { return stream == current ? 0 : 400; }
int cuGetErrorString(int error, const char** words) {
  *words = error == 2 ? "out of memory" : error == 100 ? "no CUDA-capable device is detected" : "unknown error";
  return 0;
}

struct communicator {
  int device;
};
static struct communicator communicators[64];
static int waiting;

int ncclCommInitAll(struct communicator** out, int count, const int* devices) {
  while (number("FAKE_NCCL_HANG", 0)) sleep(1);
  for (int i = 0; i < count; ++i) {
    communicators[i].device = devices[i];
    out[i] = &communicators[i];
  }
  return number("FAKE_NCCL_FAIL", 0);
}
int ncclGroupStart(void) {
  waiting = 0;
  return 0;
}
int ncclAllReduce(const void* in, void* out, size_t count, int type, int operation, struct communicator* communicator,
                  void* stream) {
  ++waiting;
  /* Each rank's call comes from its own GPU, with its own stream; floats, summed. */
  const int wrong = in != out || count == 0 || type != 7 || operation != 0;
  return wrong || current != &contexts[communicator->device] || stream != current ? 4 : 0;
}
int ncclGroupEnd(void) {
  usleep((useconds_t)number("FAKE_NCCL_SLOW", 2000));
  return waiting == gpus() ? 0 : 5;
}
const char* ncclGetErrorString(int error) { return error == 3 ? "internal error" : "invalid usage"; }
