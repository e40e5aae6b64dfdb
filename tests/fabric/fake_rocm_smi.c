/* A librocm_smi64 in memory, for tests on machines without AMD's GPUs: AMLDIST_NVML opens it. What it says comes from
 * the environment: FAKE_RSMI_GPUS=8 is their number, and each other variable lists GPUs that differ from a healthy
 * MI300X:
 *
 *   FAKE_RSMI_ECC=3:5            GPU 3 has 5 uncorrectable errors of its memory; also ECC_GFX, XGMI_ERROR, LOST
 *   FAKE_RSMI_PENDING=1:2        2 pages wait for being taken out of use; also RETIRED, UNRESERVABLE
 *   FAKE_RSMI_PCIE=0:3           the links from GPU 0 to 3 others are PCIe, not XGMI
 *   FAKE_RSMI_LACKS=1            no GPU supports more than its existence
 *   FAKE_RSMI_INIT=8             what rsmi_init returns; FAKE_RSMI_HANG=1: it does not return
 *
 * Numbers and return codes are those of AMD's rocm_smi.h. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { success = 0, invalid_arguments = 1, not_supported = 2, init_error = 8, xgmi = 2, pcie = 1 };

struct errors {
  uint64_t correctable, uncorrectable;
};
struct page {
  uint64_t address, size;
  int status;
};

static uint64_t number(const char* name, uint64_t otherwise) {
  char full[64];
  snprintf(full, sizeof full, "FAKE_RSMI_%s", name);
  const char* text = getenv(full);
  return text != NULL && *text != 0 ? strtoull(text, NULL, 0) : otherwise;
}

/* The value for a GPU in a list "3:5,4:7". */
static uint64_t of(uint32_t gpu, const char* name, uint64_t otherwise) {
  char full[64];
  snprintf(full, sizeof full, "FAKE_RSMI_%s", name);
  const char* text = getenv(full);
  while (text != NULL && *text != 0) {
    char* end = NULL;
    const uint64_t index = strtoull(text, &end, 10);
    if (*end != ':') break;
    const uint64_t value = strtoull(end + 1, &end, 0);
    if (index == gpu) return value;
    text = *end == ',' ? end + 1 : NULL;
  }
  return otherwise;
}

static int lacks(void) { return (int)number("LACKS", 0); }

int rsmi_init(uint64_t flags) {
  (void)flags;
  while (number("HANG", 0)) sleep(1);
  return (int)number("INIT", success);
}
int rsmi_status_string(int status, const char** text) {
  *text = status == init_error ? "RSMI_STATUS_INIT_ERROR: An error occurred during initialization"
                               : "RSMI_STATUS_UNKNOWN_ERROR";
  return success;
}
int rsmi_num_monitor_devices(uint32_t* count) {
  *count = (uint32_t)number("GPUS", 8);
  return success;
}
int rsmi_dev_pci_id_get(uint32_t gpu, uint64_t* id) {
  *id = (uint64_t)(0x1000 + gpu) << 32;
  return (int)of(gpu, "LOST", success);
}
int rsmi_version_str_get(int component, char* text, uint32_t length) {
  if (component != 0) return invalid_arguments;
  snprintf(text, length, "6.8.5");
  return success;
}
int rsmi_dev_ecc_count_get(uint32_t gpu, uint64_t block, struct errors* errors) {
  if (lacks() || (block != 1 && block != 4)) return not_supported;
  errors->correctable = 7; /* usual */
  errors->uncorrectable = of(gpu, block == 1 ? "ECC" : "ECC_GFX", 0);
  return success;
}
int rsmi_dev_memory_reserved_pages_get(uint32_t gpu, uint32_t* count, struct page* pages) {
  if (lacks()) return not_supported;
  const uint64_t kinds[3] = {of(gpu, "RETIRED", 0), of(gpu, "PENDING", 0), of(gpu, "UNRESERVABLE", 0)};
  const uint32_t all = (uint32_t)(kinds[0] + kinds[1] + kinds[2]);
  for (uint32_t i = 0; pages != NULL && i < all && i < *count; ++i) {
    pages[i] = (struct page){i * 4096, 4096, i < kinds[0] ? 0 : i < kinds[0] + kinds[1] ? 1 : 2};
  }
  *count = all;
  return success;
}
int rsmi_topo_get_link_type(uint32_t from, uint32_t to, uint64_t* hops, int* type) {
  if (lacks()) return not_supported;
  *hops = 1;
  *type = to - (to > from) < of(from, "PCIE", 0) ? pcie : xgmi;
  return success;
}
int rsmi_dev_xgmi_error_status(uint32_t gpu, int* status) {
  if (lacks()) return not_supported;
  *status = (int)of(gpu, "XGMI_ERROR", 0);
  return success;
}
