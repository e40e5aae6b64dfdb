/* A libnvidia-ml in memory, for tests on machines without GPUs: AMLDIST_NVML opens it. What it says comes from the
 * environment: FAKE_NVML_GPUS=8 is their number, and each other variable lists GPUs that differ from a healthy H100:
 *
 *   FAKE_NVML_ECC=3:5      GPU 3 has 5 uncorrectable errors; also ECC_BEFORE, ROWS, PENDING, FAILED, WIDTH, THROTTLE,
 *                          PERSISTENCE, CLIQUE, FABRIC_STATE, FABRIC_STATUS, LOST
 *   FAKE_NVML_LINKS=0:17   how many NVLinks are active; LINK_SPEED: their speed in MB/s
 *   FAKE_NVML_DOMAIN=7     the byte of which the NVLink domain's UUID is made
 *   FAKE_NVML_DRIVER=535.161.08  the driver's version
 *   FAKE_NVML_LACKS=1      no GPU supports more than its existence
 *   FAKE_NVML_INIT=9       what nvmlInit_v2 returns; FAKE_NVML_HANG=1: it does not return
 *
 * Numbers and return codes are those of NVIDIA's nvml.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct gpu {
  unsigned index;
};
struct pci {
  char legacy[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char address[32];
};
struct field {
  unsigned id, scope;
  long long timestamp, latency;
  int type, status;
  union {
    unsigned number;
    unsigned long long long_number;
  } value;
};
struct fabric {
  unsigned char cluster[16];
  int status;
  unsigned clique;
  unsigned char state;
};
enum { success = 0, invalid_argument = 2, not_supported = 3 };

static struct gpu gpus[64];

static unsigned long long number(const char* name, unsigned long long otherwise) {
  char full[64];
  snprintf(full, sizeof full, "FAKE_NVML_%s", name);
  const char* text = getenv(full);
  return text != NULL && *text != 0 ? strtoull(text, NULL, 0) : otherwise;
}

/* The value for a GPU in a list "3:5,4:7". */
static unsigned long long of(const struct gpu* gpu, const char* name, unsigned long long otherwise) {
  char full[64];
  snprintf(full, sizeof full, "FAKE_NVML_%s", name);
  const char* text = getenv(full);
  while (text != NULL && *text != 0) {
    char* end = NULL;
    const unsigned long long index = strtoull(text, &end, 10);
    if (*end != ':') break;
    const unsigned long long value = strtoull(end + 1, &end, 0);
    if (index == gpu->index) return value;
    text = *end == ',' ? end + 1 : NULL;
  }
  return otherwise;
}

static int lacks(void) { return (int)number("LACKS", 0); }

int nvmlInit_v2(void) {
  while (number("HANG", 0)) sleep(1);
  return (int)number("INIT", success);
}
const char* nvmlErrorString(int code) {
  return code == 15 ? "GPU is lost" : code == 9 ? "Driver Not Loaded" : "Unknown Error";
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = (unsigned)number("GPUS", 8);
  return success;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct gpu** gpu) {
  gpus[index].index = index;
  *gpu = &gpus[index];
  return (int)of(*gpu, "LOST", success);
}
int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  const char* version = getenv("FAKE_NVML_DRIVER");
  snprintf(text, size, "%s", version != NULL ? version : "550.90.07");
  return success;
}
int nvmlDeviceGetPciInfo_v3(struct gpu* gpu, struct pci* info) {
  memset(info, 0, sizeof *info);
  snprintf(info->address, sizeof info->address, "00000000:%02X:00.0", 0x10 + gpu->index);
  return success;
}
int nvmlDeviceGetTotalEccErrors(struct gpu* gpu, int kind, int counter, unsigned long long* errors) {
  if (lacks()) return not_supported;
  if (kind != 1) return invalid_argument;
  const unsigned long long now = of(gpu, "ECC", 0);
  *errors = counter == 0 ? now : now + of(gpu, "ECC_BEFORE", 0);
  return success;
}
int nvmlDeviceGetRemappedRows(struct gpu* gpu, unsigned* correctable, unsigned* uncorrectable, unsigned* pending,
                              unsigned* failed) {
  if (lacks()) return not_supported;
  *correctable = 0;
  *uncorrectable = (unsigned)of(gpu, "ROWS", 0);
  *pending = (unsigned)of(gpu, "PENDING", 0);
  *failed = (unsigned)of(gpu, "FAILED", 0);
  return success;
}
int nvmlDeviceGetNvLinkState(struct gpu* gpu, unsigned link, unsigned* active) {
  if (lacks()) return not_supported;
  if (link >= 18) return invalid_argument;
  *active = link < of(gpu, "LINKS", 18);
  return success;
}
int nvmlDeviceGetCurrPcieLinkWidth(struct gpu* gpu, unsigned* width) {
  *width = (unsigned)of(gpu, "WIDTH", 16);
  return lacks() ? not_supported : success;
}
int nvmlDeviceGetMaxPcieLinkWidth(struct gpu* gpu, unsigned* width) {
  (void)gpu;
  *width = 16;
  return lacks() ? not_supported : success;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(struct gpu* gpu, unsigned long long* reasons) {
  *reasons = of(gpu, "THROTTLE", 1); /* idle */
  return lacks() ? not_supported : success;
}
int nvmlDeviceGetPersistenceMode(struct gpu* gpu, unsigned* mode) {
  *mode = (unsigned)of(gpu, "PERSISTENCE", 1);
  return lacks() ? not_supported : success;
}
int nvmlDeviceGetGpuFabricInfo(struct gpu* gpu, struct fabric* info) {
  if (lacks()) return not_supported;
  memset(info, 0, sizeof *info);
  info->state = (unsigned char)of(gpu, "FABRIC_STATE", 3);
  info->status = (int)of(gpu, "FABRIC_STATUS", success);
  memset(info->cluster, (int)number("DOMAIN", 0), sizeof info->cluster);
  info->clique = (unsigned)of(gpu, "CLIQUE", 0);
  return success;
}
int nvmlDeviceGetFieldValues(struct gpu* gpu, int count, struct field* fields) {
  if (lacks()) return not_supported;
  for (int i = 0; i < count; ++i) {
    fields[i].status = fields[i].id == 164 && fields[i].scope < 18 ? success : not_supported;
    fields[i].value.number = (unsigned)of(gpu, "LINK_SPEED", 26562);
  }
  return success;
}
