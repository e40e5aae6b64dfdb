// A CUDA driver and an NCCL that do nothing, at once: what a call then takes is this library's own. Built as
// libcuda.so.1, where the library looks for the driver; AMLDIST_NCCL names the same file.
#include <cstddef>
#include <cstdlib>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int success = 0;

struct UniqueId {
  char bytes[128];
};

int context;  // only its address is used

}  // namespace

// ---- driver ----
EXPORT int cuPointerGetAttribute(void* data, int attribute, unsigned long long /*pointer*/) {
  constexpr int memory_type = 2;
  constexpr unsigned device_memory = 2;
  *static_cast<unsigned*>(data) = attribute == memory_type ? device_memory : 0;
  return success;
}
EXPORT int cuStreamQuery(void* /*stream*/) { return success; }
EXPORT int cuStreamIsCapturing(void* /*stream*/, int* status) {
  *status = 0;
  return success;
}
EXPORT int cuEventCreate(void** event, unsigned /*flags*/) {
  *event = &context;
  return success;
}
EXPORT int cuEventRecord(void* /*event*/, void* /*stream*/) { return success; }
EXPORT int cuEventQuery(void* /*event*/) { return success; }
EXPORT int cuEventDestroy_v2(void* /*event*/) { return success; }
EXPORT int cuDevicePrimaryCtxRetain(void** made, int /*device*/) {
  *made = &context;
  return success;
}
EXPORT int cuDevicePrimaryCtxRelease_v2(int /*device*/) { return success; }
EXPORT int cuCtxGetCurrent(void** current) {
  *current = &context;
  return success;
}
EXPORT int cuCtxPushCurrent_v2(void* /*pushed*/) { return success; }
EXPORT int cuCtxPopCurrent_v2(void** /*popped*/) { return success; }
EXPORT int cuGetErrorString(int /*error*/, const char** words) {
  *words = "";
  return success;
}

// ---- NCCL ----
EXPORT int ncclGetVersion(int* version) {
  *version = 22809;
  return success;
}
EXPORT int ncclGetUniqueId(UniqueId* id) {
  *id = {};
  return success;
}
EXPORT const char* ncclGetErrorString(int /*result*/) { return ""; }
EXPORT const char* ncclGetLastError(void* /*comm*/) { return ""; }
EXPORT int ncclCommInitRankConfig(void** comm, int /*size*/, UniqueId /*id*/, int /*rank*/, const void* /*config*/) {
  *comm = &context;
  return success;
}
EXPORT int ncclCommGetAsyncError(void* /*comm*/, int* error) {
  *error = success;
  return success;
}
EXPORT int ncclCommFinalize(void* /*comm*/) { return success; }
EXPORT int ncclCommDestroy(void* /*comm*/) { return success; }
EXPORT int ncclCommAbort(void* /*comm*/) { return success; }
EXPORT int ncclCommSplit(void*, int, int, void**, const void*) { return success; }
EXPORT int ncclMemAlloc(void** memory, std::size_t bytes) {
  *memory = std::malloc(bytes);
  return success;
}
EXPORT int ncclMemFree(void* memory) {
  std::free(memory);
  return success;
}
EXPORT int ncclCommRegister(void*, void*, std::size_t, void**) { return success; }
EXPORT int ncclCommDeregister(void*, void*) { return success; }
EXPORT int ncclGroupStart() { return success; }
EXPORT int ncclGroupEnd() { return success; }
EXPORT int ncclAllReduce(const void*, void*, std::size_t, int, int, void*, void*) { return success; }
EXPORT int ncclReduce(const void*, void*, std::size_t, int, int, int, void*, void*) { return success; }
EXPORT int ncclReduceScatter(const void*, void*, std::size_t, int, int, void*, void*) { return success; }
EXPORT int ncclBroadcast(const void*, void*, std::size_t, int, int, void*, void*) { return success; }
EXPORT int ncclAllGather(const void*, void*, std::size_t, int, void*, void*) { return success; }
EXPORT int ncclSend(const void*, std::size_t, int, int, void*, void*) { return success; }
EXPORT int ncclRecv(void*, std::size_t, int, int, void*, void*) { return success; }
